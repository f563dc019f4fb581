//! The table of methods is what job files, forecasts and the guide say of them.

use std::sync::Arc;

use haloscope::denoise::denoiser_fn;
use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, L1, L2, Poisson};
use haloscope::image::Image;
use haloscope::physics::{Identity, Physics, Stack};
use haloscope::solve::{
    Backtracking, ConjugateGradient, DataUse, HalfQuadratic, Ingredients, Key, KeyKind, KeyValue,
    Keys, METHODS, Method, Plug, PrimalDual, PriorForms, PriorKind, Priors, Problem,
    ProxPrimalDual, ProximalGradient, Start, State, Stopping, Taken, solve,
};
use haloscope::{Array, View};
use haloscope_comm::Context;

/// The keys that a method cannot do without, and those that only a job can find out.
fn keys(method: Method) -> Keys {
    method.keys.iter().fold(Keys::new(method), |keys, key| {
        let value = match (key.name, key.kind) {
            ("noise", _) => KeyValue::Number(0.1),
            _ if !key.is_required => return keys,
            (_, KeyKind::Pair) => KeyValue::Pair(0.2, 0.1),
            _ => KeyValue::Number(0.5),
        };
        keys.with(key.name, value).expect("a value of its kind")
    })
}

/// A denoiser as methods take it.
fn forms() -> PriorForms {
    let plug =
        Plug::new(Arc::new(denoiser_fn("none", |image: &View, _| Ok(image.to_owned()))), 0.1);
    let prox = Arc::new(plug.clone());
    PriorForms { prox, denoiser: Some(plug), weight: Some(0.01), wavelets: None, range: None }
}

fn problem(fidelity: impl Into<Fidelities>) -> Problem {
    let ctx = Context::solo();
    let operator: Arc<dyn Physics> = Arc::new(Identity::new(&[1, 8, 8]));
    let physics = distribute(Stack::new(vec![operator]).expect("a stack"), &ctx).expect("ranks");
    let data = physics.forward(&Array::ones(vec![1, 1, 8, 8])).expect("data");
    let fidelity = distribute(fidelity.into(), &ctx).expect("ranks");
    Problem::new(physics, data, fidelity).expect("a problem")
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
    let error = "newton".parse::<Method>().expect_err("unknown").to_string();
    assert!(error.contains("`newton` is unknown; there are pgd, fista, hqs"), "{error}");
    assert!(
        error.ends_with("landweber, sirt, os-sart, mlem, richardson-lucy, osem, fbp, fdk"),
        "{error}"
    );
}

/// A method that is in the table is one that can be run, for every fidelity that it takes: nothing else knows of it.
#[test]
fn every_method_is_made_of_its_keys_and_runs() {
    let fidelities: [(&str, Fidelities); 3] = [
        ("l2", L2::default().into()),
        ("l1", L1.into()),
        ("poisson", Poisson::new(1.0, 0.1).expect("a fidelity").into()),
    ];
    for method in METHODS {
        for (name, fidelity) in &fidelities {
            let mut keys = keys(*method);
            if method
                .fidelities
                .iter()
                .any(|(of, taken)| of == name && matches!(taken, Taken::WithStep))
            {
                keys = keys.with("step", KeyValue::Number(0.1)).expect("a step");
            }
            let Ok(algorithm) = method.resolve(name, &keys) else { continue };
            assert_eq!(keys.check(), Ok(()), "{method}");
            let problem = problem(fidelity.clone());
            let from =
                Ingredients { problem: &problem, prior: forms(), keys: &keys, iterations: 3 };
            let built = algorithm.build(&from).unwrap_or_else(|error| panic!("{method}: {error}"));
            let other = algorithm == ProxPrimalDual::METHOD;
            assert_eq!(built.name(), if other { "prox-primal-dual" } else { method.name });
            let start = State::new(problem.start(&Start::Adjoint).expect("an image"));
            let stopping = Stopping { iterations: 2, ..Stopping::default() };
            let outcome = solve(&problem, &*built, start, &stopping, None).expect("it runs");
            let knows = outcome.records.iter().all(|record| record.data_term.is_some());
            assert_eq!(knows, algorithm.knows_data_term, "{method} for {name}");
            let State { image, arrays, .. } = outcome.state;
            let values = |image: &Image| image.shape().iter().product::<usize>() as f64;
            let of_measurements = |name: &str| name.starts_with("dual of operator");
            let kept = arrays.iter().filter(|(name, _)| !of_measurements(name));
            let kept = kept.map(|(_, array)| values(array)).sum::<f64>() + values(&image);
            let planned = algorithm.holds.state.count(image.shape()) * values(&image);
            // Momentum begins after a few iterations of backtracking.
            let is_late = algorithm == Backtracking::FISTA_METHOD;
            assert!(kept == planned || is_late && kept < planned, "{method}: {kept}, {planned}");
            let duals = arrays.keys().filter(|name| of_measurements(name)).count();
            assert_eq!(duals, usize::from(algorithm.data_term == DataUse::Dual), "{method}");
        }
    }
}

#[test]
fn keys_are_those_of_the_method_with_values_of_their_kind() {
    let hqs = HalfQuadratic::METHOD;
    let refused = |keys: haloscope::Result<Keys>| keys.expect_err("refused").to_string();
    assert_eq!(
        refused(Keys::new(ConjugateGradient::METHOD).with("step", KeyValue::Auto)),
        "solver: cg has no key `step`; it has none"
    );
    assert_eq!(
        refused(Keys::new(hqs).with("weight", KeyValue::Number(-1.0))),
        "solver: `weight` is -1; a number above 0 is expected"
    );
    assert!(refused(Keys::new(hqs).with("levels", KeyValue::Auto)).contains("two numbers"));
    let (key, reason) = Keys::new(hqs).check().expect_err("a key is missing");
    assert_eq!((key, reason.contains("missing")), ("levels", true));
    let rising = Keys::new(hqs).with("levels", KeyValue::Pair(0.1, -0.2)).expect("two numbers");
    let (key, reason) = rising.check().expect_err("no schedule");
    assert_eq!((key, reason.contains("all must be above 0")), ("levels", true));
    let pgd = ProximalGradient::METHOD;
    let relaxed = Keys::new(pgd).with("relaxation", KeyValue::Number(2.0)).expect("a number");
    assert_eq!(pgd.resolve("l2", &relaxed), Ok(ProximalGradient::RELAXED_METHOD));
    assert_eq!(pgd.resolve("poisson", &relaxed), Ok(Backtracking::RELAXED_METHOD));
    assert!(Keys::new(pgd).is_auto("step") && !Keys::new(pgd).is_given("step"));
    // Every default is a value that could be written.
    for key in METHODS.iter().flat_map(|method| method.keys.iter().map(move |key| (method, key))) {
        if let (method, Key { name, default: Some(default), .. }) = key {
            assert!(Keys::new(*method).with(name, *default).is_ok(), "{method}: {name}");
        }
    }
}

#[test]
fn a_method_says_which_priors_it_takes_and_who_takes_others() {
    let kinds =
        [PriorKind::None, PriorKind::TotalVariation, PriorKind::Wavelets, PriorKind::Network];
    for method in METHODS {
        let taken = kinds.map(|kind| method.check_prior(kind).is_ok());
        let expected = match method.priors {
            Priors::Any => [true; 4],
            Priors::Denoiser => [false, true, true, true],
            Priors::Analysis => [false, true, true, false],
            Priors::None => [true, false, false, false],
        };
        assert_eq!(taken, expected, "{method}");
    }
    let words = |method: Method, kind| method.check_prior(kind).expect_err("refused").to_string();
    assert_eq!(
        words(ConjugateGradient::METHOD, PriorKind::Network),
        "solver: cg takes no prior, and it is a network; pgd, fista, admm and drs take any"
    );
    assert!(words(PrimalDual::METHOD, PriorKind::None).contains("takes total variation"));
    let error = ConjugateGradient::METHOD.check_clamp().expect_err("no range").to_string();
    assert_eq!(
        error,
        "solver: cg does not support `clamp`; landweber, sirt, os-sart, mlem, osem and fbp do"
    );
    assert_eq!(ProximalGradient::METHOD.check_clamp(), Ok(()));
}

#[test]
fn a_fidelity_leads_to_the_algorithm_that_takes_it() {
    let leads = |method: Method, fidelity: &str, has_step| method.for_fidelity(fidelity, has_step);
    for method in METHODS {
        let takes_squares = !matches!(method.name, "mlem" | "osem");
        assert_eq!(leads(*method, "l2", false).is_ok(), takes_squares);
        assert!(!takes_squares || leads(*method, "l2", false) == Ok(*method));
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
         primal-dual, landweber, mlem, osem and fbp take it"
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
            Priors::Analysis => "total variation, wavelets",
            Priors::None => "none",
        };
        let taken = method.fidelities.iter().filter(|(_, taken)| !matches!(taken, Taken::Not(_)));
        let taken: Vec<&str> = taken.map(|(name, _)| *name).collect();
        let fidelity = match method.data_term {
            DataUse::Nothing => " ".into(),
            _ if taken.len() < method.fidelities.len() => format!(" {} ", taken.join(", ")),
            _ => " any ".into(),
        };
        // Those for the prox of the data term are listed below the table.
        let keys: Vec<String> = (method.keys.iter())
            .filter(|key| !key.name.starts_with("inner-"))
            .map(|key| match (key.note, key.default) {
                ("", None | Some(KeyValue::Auto)) => format!("`{}`", key.name),
                ("", Some(default)) => format!("`{}` ({default})", key.name),
                (note, _) => format!("`{}` ({note})", key.name),
            })
            .collect();
        let keys = if keys.is_empty() { " ".into() } else { format!(" {} ", keys.join(", ")) };
        let (names, summary) = (names.join(", "), method.summary);
        let row = format!("| {names} | {summary} | {prior} |{fidelity}|{keys}|\n");
        assert!(guide.contains(&row), "the guide has no row\n{row}");
    }
    // What it says of methods besides.
    let guide: String = guide.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = |holds: &dyn Fn(&Method) -> bool| {
        let names = METHODS.iter().filter(|method| holds(method));
        names.map(|method| format!("`{method}`")).collect::<Vec<_>>().join(", ")
    };
    let solving = quoted(&|method| method.has_prox());
    let [iterations, tolerance] = ["inner-iterations", "inner-tolerance"].map(|name| {
        let default = HalfQuadratic::METHOD.key(name).and_then(|key| key.default);
        format!("`{name}` ({})", default.expect("a default"))
    });
    let blind = quoted(&|method| !method.knows_data_term && !method.is_direct());
    for words in [
        format!("in every step ({solving}) accept {iterations} and {tolerance}."),
        format!("(not for {blind})"),
    ] {
        assert!(guide.contains(&words), "the guide does not say\n{words}");
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
