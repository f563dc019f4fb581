//! Photon counts: steps that are found on the way reach the solution that is known, and never leave where counts mean
//! something.

mod dense;

use std::sync::Arc;

use dense::Dense;
use haloscope::denoise::TotalVariation;
use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, Poisson};
use haloscope::physics::{Physics, Stack};
use haloscope::solve::{
    Backtracking, Outcome, Prior, Problem, ProxPrimalDual, State, Stopping, TotalVariationPrior,
    solve,
};
use haloscope::{Error, Image, Measurements, Result};
use haloscope_comm::Context;

const COLUMNS: usize = 6;
const GAIN: f64 = 0.5;

/// Two operators without negative weights.
fn matrices() -> Vec<Dense> {
    let mut random = fastrand::Rng::with_seed(11);
    (0..2)
        .map(|_| Dense::new(8, COLUMNS, (0..8 * COLUMNS).map(|_| random.f32()).collect()))
        .collect()
}

/// Counts that no image explains exactly, some of them zero.
fn counts(index: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(20 + index as u64);
    (0..8).map(|_| (random.f32() * 12.0).floor() * GAIN as f32).collect()
}

fn problem(ctx: &Context, background: f64) -> Result<Problem> {
    let operators = matrices().into_iter().map(|dense| Arc::new(dense) as Arc<dyn Physics>);
    let stack = distribute(Stack::new(operators.collect())?, ctx)?;
    let own: Vec<usize> = stack.local_indices().collect();
    let part = |index| (index, dense::row(&counts(index)));
    let data = Measurements::partial(2, own.into_iter().map(part))?;
    let fidelity = distribute(Fidelities::from(Poisson::new(GAIN, background)?), ctx)?;
    Problem::new(stack, data, fidelity)
}

/// The most likely image that is not negative: Richardson's and Lucy's iteration, in f64.
fn most_likely(background: f64) -> Vec<f64> {
    let (mut rows, mut measured) = (Vec::new(), Vec::new());
    for (index, dense) in matrices().iter().enumerate() {
        let lines = dense.entries.chunks(COLUMNS);
        rows.extend(lines.map(|line| line.iter().map(|a| f64::from(*a)).collect::<Vec<f64>>()));
        measured.extend(counts(index).iter().map(|count| f64::from(*count) / GAIN));
    }
    let mut image = vec![1.0; COLUMNS];
    for _ in 0..200_000 {
        let expected = |row: &Vec<f64>| {
            row.iter().zip(&image).map(|(a, x)| a * x).sum::<f64>() / GAIN + background
        };
        let ratios: Vec<f64> =
            rows.iter().zip(&measured).map(|(row, count)| count / expected(row)).collect();
        for (column, value) in image.iter_mut().enumerate() {
            let back: f64 = rows.iter().zip(&ratios).map(|(row, ratio)| row[column] * ratio).sum();
            *value *= back / rows.iter().map(|row| row[column]).sum::<f64>();
        }
    }
    image
}

/// Keeps images from becoming negative.
#[derive(Debug)]
struct NotNegative;

impl Prior for NotNegative {
    fn prox(&self, mut image: Image, _step: f64) -> Result<Image> {
        image.map(|value| value.max(0.0));
        Ok(image)
    }
}

fn method(problem: &Problem, accelerated: bool) -> Result<Backtracking> {
    Ok(Backtracking {
        first_step: problem.first_step()?,
        prior: Arc::new(NotNegative),
        relaxation: None,
        accelerated,
        range: Some((0.0, f32::INFINITY)),
        name: "test",
    })
}

fn run(
    ctx: &Context,
    background: f64,
    accelerated: bool,
    start: f32,
    iterations: usize,
) -> Result<Outcome> {
    let problem = problem(ctx, background)?;
    let method = method(&problem, accelerated)?;
    let state = State::new(dense::row(&[start; COLUMNS]));
    let stopping = Stopping { iterations, ..Stopping::default() };
    solve(&problem, &method, state, &stopping, None)
}

#[test]
fn steps_that_are_found_reach_the_most_likely_image() {
    for background in [0.0, 0.7] {
        let expected = most_likely(background);
        // From zeros, where counts were measured and none are expected, and from too much.
        for (accelerated, start) in
            [(false, 1.0), (true, 1.0), (true, 0.0), (false, 100.0), (true, -1.0)]
        {
            let found = run(&Context::solo(), background, accelerated, start, 4000).expect("a run");
            let image: Vec<f64> =
                found.state.image.local().iter().map(|value| f64::from(*value)).collect();
            let error = image.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            let largest = expected.iter().copied().fold(0.0, f64::max);
            assert!(
                error < 5e-3 * largest,
                "{background} {accelerated} {start}: {image:?}, not {expected:?}"
            );
        }
    }
}

#[test]
fn without_momentum_the_data_term_never_rises() {
    let outcome = run(&Context::solo(), 0.0, false, 50.0, 200).expect("a run");
    let terms: Vec<f64> = outcome.records.iter().filter_map(|record| record.data_term).collect();
    assert_eq!(terms.len(), 200);
    assert!(terms[199] < terms[0] - 1.0, "{} to {}", terms[0], terms[199]);
    for pair in terms.windows(2) {
        assert!(pair[1] <= pair[0] + 1e-5 * pair[0].abs(), "{} to {}", pair[0], pair[1]);
    }
}

#[test]
fn any_number_of_ranks_finds_the_same_bits_and_a_run_goes_on_to_them() {
    let image = |ranks: usize| {
        let states =
            Context::threads(ranks, |ctx| Ok::<_, Error>(run(ctx, 0.0, true, 0.0, 40)?.state));
        states.expect("no rank fails")
    };
    let alone = image(1).remove(0);
    for ranks in [2, 3, 5] {
        assert!(image(ranks).iter().all(|state| *state == alone), "{ranks} ranks");
    }
    let ctx = Context::solo();
    let half = run(&ctx, 0.0, true, 0.0, 17).expect("half").state;
    let problem = problem(&ctx, 0.0).expect("a problem");
    let method = method(&problem, true).expect("a method");
    let stopping = Stopping { iterations: 40, ..Stopping::default() };
    let resumed = solve(&problem, &method, half, &stopping, None).expect("the rest");
    assert_eq!(resumed.state, alone);
}

#[test]
fn duals_of_the_measurements_agree_with_steps_that_are_found() {
    let ctx = Context::solo();
    let problem = problem(&ctx, 0.3).expect("a problem");
    let weight = 0.4;
    let stopping = Stopping { iterations: 30_000, ..Stopping::default() };
    let start = || State::new(dense::row(&[1.0; COLUMNS]));
    let squares = |dense: &Dense| dense.entries.iter().map(|a| f64::from(a * a)).sum::<f64>();
    let norm = matrices().iter().map(squares).sum();
    let dual = ProxPrimalDual { squared_norm: norm, weight, step: 0.5, range: Some((0.0, 1e6)) };
    let one =
        solve(&problem, &dual, start(), &stopping, None).expect("duals").state.image.into_local();
    let prior = TotalVariationPrior {
        weight,
        denoiser: TotalVariation { iterations: 500, tolerance: 1e-9 },
    };
    let steps = Backtracking {
        first_step: problem.first_step().expect("a step"),
        prior: Arc::new(prior),
        relaxation: None,
        accelerated: true,
        range: Some((0.0, 1e6)),
        name: "test",
    };
    let stopping = Stopping { iterations: 3000, ..Stopping::default() };
    let other =
        solve(&problem, &steps, start(), &stopping, None).expect("steps").state.image.into_local();
    let error = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(error < 0.02 * one.iter().copied().fold(0.0, f32::max), "{one:?} and {other:?}");
}
