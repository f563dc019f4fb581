//! The table of methods is what job files, forecasts and the guide say of them.

use std::sync::Arc;

use haloscope::View;
use haloscope::denoise::denoiser_fn;
use haloscope::solve::{
    Admm, Algorithm, Backtracking, ConjugateGradient, DataUse, DouglasRachford, Fista,
    HalfQuadratic, Landweber, METHODS, Method, Plug, PrimalDual, Prior, PriorKind, Priors,
    ProxPrimalDual, ProximalGradient, RedFixedPoint, RedGradient, Schedule, Taken,
};

/// One of each algorithm that a name of the table leads to.
fn algorithms() -> Vec<(Method, Box<dyn Algorithm>)> {
    let plug =
        || Plug::new(Arc::new(denoiser_fn("none", |image: &View, _| Ok(image.to_owned()))), 0.1);
    let prior = || Arc::new(plug()) as Arc<dyn Prior>;
    let (step, weight) = (1.0, 1.0);
    let schedule = Schedule { levels: vec![0.1], steps: vec![1.0] };
    vec![
        (
            ProximalGradient::METHOD,
            Box::new(ProximalGradient { step, prior: prior(), relaxation: None }),
        ),
        (Fista::METHOD, Box::new(Fista { step, prior: prior() })),
        (HalfQuadratic::METHOD, Box::new(HalfQuadratic { prior: plug(), schedule })),
        (Admm::METHOD, Box::new(Admm { step, prior: prior() })),
        (
            DouglasRachford::METHOD,
            Box::new(DouglasRachford { step, prior: prior(), relaxation: 1.0 }),
        ),
        (RedGradient::METHOD, Box::new(RedGradient { step, weight, prior: prior() })),
        (RedFixedPoint::METHOD, Box::new(RedFixedPoint { weight, prior: plug() })),
        (PrimalDual::METHOD, Box::new(PrimalDual { lipschitz: 1.0, weight, range: None })),
        (ConjugateGradient::METHOD, Box::new(ConjugateGradient)),
        (Landweber::METHOD, Box::new(Landweber { step, range: None })),
    ]
}

#[test]
fn every_method_is_registered_once_and_is_found_by_its_names() {
    let mut names = Vec::new();
    for method in METHODS {
        for name in std::iter::once(&method.name).chain(method.aliases) {
            assert_eq!(name.parse(), Ok(*method));
            names.push(*name);
        }
    }
    let listed = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), listed, "{names:?}");
    let with_steps: Vec<Method> = METHODS.iter().copied().filter(|one| !one.is_direct()).collect();
    let algorithms = algorithms();
    assert_eq!(algorithms.iter().map(|(method, _)| *method).collect::<Vec<_>>(), with_steps);
    for (method, algorithm) in &algorithms {
        assert_eq!(algorithm.name(), method.name);
    }
    let error = "newton".parse::<Method>().expect_err("unknown").to_string();
    assert!(error.contains("`newton` is unknown; there are pgd, fista, hqs"), "{error}");
    assert!(error.ends_with("landweber, fbp, fdk"), "{error}");
}

#[test]
fn a_method_says_which_priors_it_takes_and_who_takes_others() {
    let kinds = [PriorKind::None, PriorKind::TotalVariation, PriorKind::Network];
    for method in METHODS {
        let taken = kinds.map(|kind| method.check_prior(kind).is_ok());
        let expected = match method.priors {
            Priors::Any => [true; 3],
            Priors::Denoiser => [false, true, true],
            Priors::TotalVariation => [false, true, false],
            Priors::None => [true, false, false],
        };
        assert_eq!(taken, expected, "{method}");
    }
    let words = |method: Method, kind| method.check_prior(kind).expect_err("refused").to_string();
    assert_eq!(
        words(ConjugateGradient::METHOD, PriorKind::Network),
        "solver: cg takes no prior; pgd, fista, admm and drs take any"
    );
    assert!(words(PrimalDual::METHOD, PriorKind::None).contains("takes total variation"));
}

#[test]
fn a_fidelity_leads_to_the_algorithm_that_takes_it() {
    let leads = |method: Method, fidelity: &str, has_step| method.for_fidelity(fidelity, has_step);
    for method in METHODS {
        assert_eq!(leads(*method, "l2", false), Ok(*method));
        // Nothing is refused without saying what would do.
        for (fidelity, taken) in method.fidelities {
            if let Err(error) = method.for_fidelity(fidelity, false) {
                let error = error.to_string();
                assert!(error.contains("primal-dual"), "{error}");
                assert!(matches!(taken, Taken::WithStep | Taken::Not(_)));
            }
        }
    }
    let pgd = ProximalGradient::METHOD;
    assert_eq!(leads(pgd, "poisson", false), Ok(Backtracking::PGD_METHOD));
    assert_eq!(leads(pgd, "l1", true), Ok(pgd));
    assert!(
        leads(pgd, "l1", false).expect_err("no step").to_string().contains("`step` is missing")
    );
    assert_eq!(leads(PrimalDual::METHOD, "l1", false), Ok(ProxPrimalDual::METHOD));
    assert_eq!(leads(PrimalDual::METHOD, "l1", true), Ok(PrimalDual::METHOD));
    let error = leads(HalfQuadratic::METHOD, "poisson", true).expect_err("squares").to_string();
    assert_eq!(
        error,
        "solver: hqs does not take the fidelity poisson: it solves linear systems, which squares lead to; pgd, fista, red, \
         primal-dual, landweber and fbp take it"
    );
    assert!(
        leads(pgd, "cauchy", true).expect_err("unknown").to_string().contains("l2, l1, poisson")
    );
    // Whatever takes over has the same name.
    for method in METHODS {
        for (fidelity, _) in method.fidelities {
            if let Ok(other) = method.for_fidelity(fidelity, true) {
                assert_eq!(other.name, method.name);
            }
        }
    }
}

/// The rows of the guide's table, as the table of methods gives them.
#[test]
fn the_guide_lists_the_methods_as_they_are() {
    let guide =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md"));
    let guide = guide.expect("the guide is there");
    for method in METHODS {
        let names: Vec<String> = std::iter::once(&method.name)
            .chain(method.aliases)
            .map(|name| format!("`\"{name}\"`"))
            .collect();
        let prior = match method.priors {
            Priors::Any => "any",
            Priors::Denoiser => "denoiser",
            Priors::TotalVariation => "total variation",
            Priors::None => "none",
        };
        let is_picky = method.fidelities.iter().any(|(_, taken)| matches!(taken, Taken::Not(_)));
        let fidelity = match (method.data_term, is_picky) {
            (DataUse::Nothing, _) => " ",
            (_, true) => " l2 ",
            (_, false) => " any ",
        };
        // Those for the prox of the data term are listed below the table.
        let keys: Vec<String> = (method.keys.iter())
            .filter(|key| !key.name.starts_with("inner-"))
            .map(|key| match key.note {
                "" => format!("`{}`", key.name),
                note => format!("`{}` ({note})", key.name),
            })
            .collect();
        let keys = if keys.is_empty() { " ".into() } else { format!(" {} ", keys.join(", ")) };
        let (names, summary) = (names.join(", "), method.summary);
        let row = format!("| {names} | {summary} | {prior} |{fidelity}|{keys}|\n");
        assert!(guide.contains(&row), "the guide has no row\n{row}");
    }
}

#[test]
fn what_a_method_holds_grows_with_the_axes_of_duals() {
    let images = |method: Method, shape: &[usize]| method.holds.other.count(shape);
    let (flat, volume) = ([1, 4, 8, 8], [1, 1, 8, 8, 8]);
    assert_eq!(images(ProximalGradient::METHOD, &flat), 2.0);
    assert_eq!(images(PrimalDual::METHOD, &flat), 3.0 + 2.0 + 0.25);
    assert_eq!(images(PrimalDual::METHOD, &volume), 3.0 + 3.0 + 1.0);
}
