//! Every method finds the known answer of a small problem, on any number of ranks, and goes on where it was left.

mod dense;

use std::ops::ControlFlow;
use std::sync::Arc;

use dense::{Dense, relative, row};
use haloscope::denoise::{Denoiser, NoiseLevel, TotalVariation, denoiser_fn};
use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, L2};
use haloscope::physics::Physics;
use haloscope::solve::{
    Admm, Algorithm, ConjugateGradient, DouglasRachford, Fista, HalfQuadratic, Landweber, Plug,
    PrimalDual, Prior, Problem, ProxPrimalDual, ProximalGradient, Range, Reason, Record,
    RedFixedPoint, RedGradient, Schedule, Start, State, Stopping, TotalVariationPrior, solve,
};
use haloscope::{Array, Error, Image, Measurements, Result};
use haloscope_comm::Context;

const COLUMNS: usize = 12;
const PARTS: usize = 3;

/// A stack of three matrices, of 5, 6 and 7 rows.
fn matrices() -> Vec<Dense> {
    let mut random = fastrand::Rng::with_seed(4);
    (0..PARTS)
        .map(|index| {
            let rows = 5 + index;
            Dense::new(rows, COLUMNS, (0..rows * COLUMNS).map(|_| random.f32() - 0.5).collect())
        })
        .collect()
}

/// All of it as one matrix.
fn whole() -> Dense {
    let mut entries = Vec::new();
    let mut rows = 0;
    for part in matrices() {
        rows += part.rows();
        let identity = |column: usize| {
            row(&(0..COLUMNS).map(|c| f32::from(u8::from(c == column))).collect::<Vec<_>>())
        };
        for line in 0..part.rows() {
            for column in 0..COLUMNS {
                entries.push(part.forward(&identity(column)).expect("forward")[[0, 0, line]]);
            }
        }
    }
    Dense::new(rows, COLUMNS, entries)
}

fn measured() -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(8);
    (0..whole().rows()).map(|_| random.f32()).collect()
}

fn problem(ctx: &Context) -> Result<Problem> {
    problem_in_units(ctx, 1.0)
}

/// The same measurements in other units.
fn problem_in_units(ctx: &Context, unit: f32) -> Result<Problem> {
    let operators: Vec<Arc<dyn Physics>> =
        matrices().into_iter().map(|matrix| Arc::new(matrix) as Arc<dyn Physics>).collect();
    let physics = distribute(operators, ctx)?;
    let (mut rest, mut parts) = (measured(), Vec::new());
    for matrix in matrices() {
        let later = rest.split_off(matrix.rows());
        parts.push(row(&rest) * unit);
        rest = later;
    }
    let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
    Ok(Problem::new(physics, Measurements::new(parts), fidelity)?.with_inner(1e-7, 200))
}

/// `weight/2 ‖x‖²`.
#[derive(Debug)]
struct Ridge(f64);

impl Prior for Ridge {
    fn prox(&self, mut image: Image, step: f64) -> Result<Image> {
        image.scale((1.0 / (1.0 + step * self.0)) as f32);
        Ok(image)
    }

    fn gradient(&self, image: &Image) -> Result<Image> {
        let mut gradient = image.clone();
        gradient.scale(self.0 as f32);
        Ok(gradient)
    }
}

/// A linear denoiser, which shrinks.
fn shrinking(factor: f32) -> Plug {
    Plug::new(Arc::new(denoiser_fn("shrink", move |image, _| Ok(image * factor))), 0.1)
}

fn run(algorithm: &dyn Algorithm, iterations: usize) -> Array {
    let problem = problem(&Context::solo()).expect("a problem");
    let start = State::new(problem.start(&Start::Zeros).expect("zeros"));
    let stopping = Stopping { iterations, ..Stopping::default() };
    solve(&problem, algorithm, start, &stopping, None).expect("solved").state.image.into_local()
}

/// The minimiser of `½ ‖A x − y‖² + shift/2 ‖x‖²`.
fn ridge_solution(shift: f64) -> Vec<f64> {
    let matrix = whole();
    matrix.solve_f64(&matrix.adjoint_f64(&measured()), shift)
}

fn step_size() -> f64 {
    problem(&Context::solo()).expect("a problem").step_size().expect("a step size")
}

#[test]
fn methods_without_a_prior_find_the_least_squares_solution() {
    let expected = ridge_solution(0.0);
    let methods: [(&dyn Algorithm, usize); 2] =
        [(&Landweber { step: step_size(), range: None }, 20_000), (&ConjugateGradient, 40)];
    for (method, iterations) in methods {
        let error = relative(&run(method, iterations), &expected);
        assert!(error < 1e-4, "{method:?}: {error}");
    }
}

#[test]
fn conjugate_gradients_know_the_data_term_without_computing_it() {
    let ctx = Context::solo();
    let problem = problem(&ctx).expect("a problem");
    let start = State::new(problem.start(&Start::Adjoint).expect("an image"));
    let stopping = Stopping { iterations: 6, ..Stopping::default() };
    let mut last = f64::INFINITY;
    let mut watch = |record: &Record, state: &State| {
        let (noted, true_value) = (record.data_term.expect("noted"), problem.value(&state.image)?);
        assert!((noted - true_value).abs() < 1e-4 * true_value, "{noted} and {true_value}");
        assert!(noted < last, "it falls");
        last = noted;
        Ok(ControlFlow::Continue(()))
    };
    solve(&problem, &ConjugateGradient, start, &stopping, Some(&mut watch)).expect("solved");
}

#[test]
fn methods_with_a_prior_find_the_minimiser_of_the_sum() {
    let (weight, step) = (0.3, step_size());
    let prior = || Arc::new(Ridge(weight)) as Arc<dyn Prior>;
    let expected = ridge_solution(weight);
    let methods: [(&dyn Algorithm, usize); 5] = [
        (&ProximalGradient { step, prior: prior(), relaxation: None }, 2000),
        (&Fista { step, prior: prior() }, 2000),
        (&Admm { step: 1.0, prior: prior() }, 400),
        (&DouglasRachford { step: 1.0, prior: prior(), relaxation: 1.0 }, 400),
        (&RedGradient { step: 0.5 * step, weight: 1.0, prior: prior() }, 4000),
    ];
    for (method, iterations) in methods {
        let error = relative(&run(method, iterations), &expected);
        assert!(error < 1e-4, "{method:?}: {error}");
    }
}

#[test]
fn plug_and_play_with_a_linear_denoiser_has_the_fixed_point_in_closed_form() {
    let (factor, step) = (0.8_f32, step_size());
    let gap = 1.0 / f64::from(factor) - 1.0;
    // x = c (x − γ Aᵀ(A x − y)) is (AᵀA + (1/c − 1)/γ) x = Aᵀ y.
    let pgd = ProximalGradient { step, prior: Arc::new(shrinking(factor)), relaxation: None };
    assert!(relative(&run(&pgd, 3000), &ridge_solution(gap / step)) < 1e-4);
    // With α = γλ / (1 + γλ) the denoiser shrinks by 1 − α + α c.
    let relaxed = ProximalGradient { relaxation: Some(2.0), ..pgd };
    let share = step * 2.0 / (1.0 + step * 2.0);
    let gap_relaxed = 1.0 / (1.0 - share + share * f64::from(factor)) - 1.0;
    assert!(relative(&run(&relaxed, 3000), &ridge_solution(gap_relaxed / step)) < 1e-4);
    // z = c x with (γ AᵀA + 1) x = γ Aᵀ y + z; the image is z = c x.
    let schedule = Schedule { levels: vec![0.1], steps: vec![2.0] };
    let hqs = HalfQuadratic { prior: shrinking(factor), schedule };
    let expected: Vec<f64> = ridge_solution((1.0 - f64::from(factor)) / 2.0)
        .iter()
        .map(|x| x * f64::from(factor))
        .collect();
    assert!(relative(&run(&hqs, 500), &expected) < 1e-4);
    // AᵀA x − Aᵀ y + λ (1 − c) x = 0.
    let red = RedFixedPoint { weight: 0.7, prior: shrinking(factor) };
    assert!(relative(&run(&red, 1000), &ridge_solution(0.7 * (1.0 - f64::from(factor)))) < 1e-4);
}

#[test]
fn methods_for_total_variation_agree_and_nothing_near_is_better() {
    let weight = 0.05;
    let prior = Arc::new(TotalVariationPrior {
        weight,
        denoiser: TotalVariation { iterations: 2000, tolerance: 1e-9 },
    });
    let step = step_size();
    let one = run(&PrimalDual { lipschitz: 0.99 / step, weight, range: None }, 20_000);
    let other = run(&Fista { step, prior }, 1500);
    let flat = |image: &Array| image.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
    assert!(relative(&one, &flat(&other)) < 1e-4, "{}", relative(&one, &flat(&other)));
    let problem = problem(&Context::solo()).expect("a problem");
    let value = |image: &Array| {
        problem.value(&image.clone().into()).expect("a value")
            + weight * TotalVariation::value(image)
    };
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..50 {
        let near = one.mapv(|x| x + 0.02 * (random.f32() - 0.5));
        assert!(value(&near) >= value(&one) - 1e-6);
    }
}

#[test]
fn methods_that_keep_to_a_range_find_the_best_image_in_it() {
    let (low, high) = (0.1_f32, 0.6_f32);
    let range = Some((low, high));
    let step = step_size();
    let found = run(&Landweber { step, range }, 20_000);
    let matrix = whole();
    let residual: Vec<f32> = matrix
        .forward(&found)
        .expect("forward")
        .iter()
        .zip(measured())
        .map(|(a, b)| a - b)
        .collect();
    let slope = matrix.adjoint_f64(&residual);
    let mut places = [0; 3];
    for (value, slope) in found.iter().zip(slope) {
        // It would go down only below the range, and up only above it.
        let (place, is_best) = match *value {
            value if value <= low => (0, slope > -1e-5),
            value if value >= high => (1, slope < 1e-5),
            _ => (2, slope.abs() < 1e-5),
        };
        places[place] += 1;
        assert!(is_best, "{value}: {slope}");
    }
    assert!(places.iter().all(|count| *count > 0), "{places:?}");

    // In one dimension the prox of TV in a range is that of TV, brought back to the range.
    let weight = 0.05;
    let denoiser = TotalVariation { iterations: 2000, tolerance: 1e-9 };
    let prior = Arc::new(InRange(TotalVariationPrior { weight, denoiser }, low, high));
    let one = run(&PrimalDual { lipschitz: 0.99 / step, weight, range }, 20_000);
    let other = run(&Fista { step, prior }, 1500);
    let other: Vec<f64> = other.iter().map(|value| f64::from(*value)).collect();
    assert!(relative(&one, &other) < 1e-4, "{}", relative(&one, &other));
    assert!(one.iter().any(|value| *value == low) && one.iter().any(|value| *value > low));
}

/// Total variation in a range.
#[derive(Debug)]
struct InRange(TotalVariationPrior, f32, f32);

impl Prior for InRange {
    fn prox(&self, image: Image, step: f64) -> Result<Image> {
        let mut result = self.0.prox(image, step)?;
        result.clamp(Some((self.1, self.2)));
        Ok(result)
    }
}

#[test]
fn a_normalised_denoiser_does_not_depend_on_the_units_of_the_data() {
    // It takes values towards their mean, by the level that it is told.
    let denoiser = denoiser_fn("towards the mean", |image, level| {
        let NoiseLevel::Uniform(level) = *level else { unreachable!("the levels are uniform") };
        assert!(image.iter().all(|value| (0.0..=1.0).contains(value)), "{image}");
        let mean = image.sum() / image.len() as f32;
        Ok(image.mapv(|value| value + level * (mean - value)))
    });
    let denoiser: Arc<dyn Denoiser> = Arc::new(denoiser);
    let solve_in_units = |unit: f32| {
        let problem = problem_in_units(&Context::solo(), unit).expect("a problem");
        let prior = || Plug::new(denoiser.clone(), 0.2).range(Range::Normalise);
        let step = problem.step_size().expect("a step size");
        let noise = 0.3 * f64::from(unit);
        let schedule = Schedule::falling(0.5, 0.1, 6, noise, 0.23).expect("a schedule");
        let methods: [Box<dyn Algorithm>; 2] = [
            Box::new(ProximalGradient { step, prior: Arc::new(prior()), relaxation: None }),
            Box::new(HalfQuadratic { prior: prior(), schedule }),
        ];
        methods.map(|method| {
            let start = State::new(problem.start(&Start::Adjoint).expect("a start"));
            let stopping = Stopping { iterations: 6, ..Stopping::default() };
            solve(&problem, &*method, start, &stopping, None)
                .expect("solved")
                .state
                .image
                .into_local()
                / unit
        })
    };
    // Powers of two change no bits.
    assert_eq!(solve_in_units(1.0), solve_in_units(1.0 / 64.0));
    assert_eq!(solve_in_units(1.0), solve_in_units(1024.0));

    let flat = Array::from_elem(vec![1, 1, COLUMNS], 0.02_f32);
    let plug = Plug::new(denoiser.clone(), 0.2).range(Range::Normalise);
    let flat = Image::from(flat);
    assert_eq!(plug.denoise(&flat).expect("a flat image"), flat);
}

#[test]
fn runs_have_the_same_bits_on_any_number_of_ranks_and_when_they_are_continued() {
    let step = step_size();
    let solve_on = move |ctx: &Context, pause: Option<usize>| -> Result<Vec<u32>> {
        let mut bits = Vec::new();
        let prior = || Arc::new(Ridge(0.2)) as Arc<dyn Prior>;
        let methods: Vec<Box<dyn Algorithm>> = vec![
            Box::new(ProximalGradient { step, prior: prior(), relaxation: Some(1.0) }),
            Box::new(Fista { step, prior: prior() }),
            Box::new(Admm { step: 1.0, prior: prior() }),
            Box::new(DouglasRachford { step: 1.0, prior: prior(), relaxation: 1.2 }),
            Box::new(HalfQuadratic {
                prior: shrinking(0.9),
                schedule: Schedule::falling(0.2, 0.01, 6, 0.05, 0.23)?,
            }),
            Box::new(RedGradient { step: 0.5 * step, weight: 1.0, prior: prior() }),
            Box::new(RedFixedPoint { weight: 0.5, prior: shrinking(0.9) }),
            Box::new(PrimalDual { lipschitz: 0.99 / step, weight: 0.01, range: None }),
            Box::new(ProxPrimalDual {
                squared_norm: 0.99 / step,
                weight: 0.01,
                step: 0.3,
                range: None,
            }),
            Box::new(ConjugateGradient),
            Box::new(Landweber { step, range: None }),
        ];
        for method in methods {
            let problem = problem(ctx)?;
            let mut state = State::new(problem.start(&Start::Adjoint)?);
            for iterations in pause.into_iter().chain([8]) {
                let stopping = Stopping { iterations, ..Stopping::default() };
                let outcome = solve(&problem, &*method, state, &stopping, None)?;
                assert_eq!(outcome.reason, Reason::Iterations);
                state = outcome.state;
            }
            bits.extend(state.image.local().iter().map(|value| value.to_bits()));
        }
        Ok(bits)
    };
    let alone = solve_on(&Context::solo(), None).expect("one rank");
    assert_eq!(solve_on(&Context::solo(), Some(3)).expect("continued"), alone);
    for ranks in [2, 3, 5, 8] {
        let all =
            Context::threads(ranks, move |ctx| solve_on(ctx, Some(5))).expect("no rank fails");
        assert!(all.iter().all(|bits| *bits == alone), "{ranks} ranks");
    }
}

#[test]
fn rules_and_watchers_stop_all_ranks_at_once() {
    let step = step_size();
    let outcomes = Context::threads(3, move |ctx| {
        let problem = problem(ctx)?;
        let start = || Ok::<_, Error>(State::new(problem.start(&Start::Zeros)?));
        let method = Landweber { step, range: None };
        let mut reasons = Vec::new();
        let rules = [
            Stopping { iterations: 100_000, relative_change: 1e-3, ..Stopping::default() },
            Stopping { iterations: 100_000, data_term: Some(2.0), ..Stopping::default() },
            Stopping {
                iterations: usize::MAX,
                time_limit: Some(std::time::Duration::from_millis(20)),
                ..Stopping::default()
            },
        ];
        for rule in &rules {
            let outcome = solve(&problem, &method, start()?, rule, None)?;
            reasons.push((outcome.reason, outcome.state.iteration));
        }
        // One rank's watcher is enough.
        let rank = ctx.rank();
        let mut watch = |record: &Record, _: &State| {
            let stop = rank == 1 && record.iteration == 4;
            Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let outcome = solve(&problem, &method, start()?, &Stopping::default(), Some(&mut watch))?;
        reasons.push((outcome.reason, outcome.state.iteration));
        Ok::<_, Error>(reasons)
    });
    let outcomes = outcomes.expect("no rank fails");
    assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{outcomes:?}");
    let reasons: Vec<Reason> = outcomes[0].iter().map(|(reason, _)| *reason).collect();
    assert_eq!(
        reasons,
        [Reason::RelativeChange, Reason::DataTerm, Reason::TimeLimit, Reason::Watcher]
    );
    assert_eq!(outcomes[0][3].1, 4);
}

#[test]
fn a_step_that_is_too_large_is_an_error_and_not_an_image() {
    let problem = problem(&Context::solo()).expect("a problem");
    let start = State::new(problem.start(&Start::Adjoint).expect("a start"));
    let stopping = Stopping { iterations: 5000, ..Stopping::default() };
    let error = solve(&problem, &Landweber { step: 50.0, range: None }, start, &stopping, None)
        .expect_err("it diverges");
    assert!(error.to_string().contains("a smaller step size may help"), "{error}");
}
