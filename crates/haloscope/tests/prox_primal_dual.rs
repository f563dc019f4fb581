//! Fidelities without a gradient: the full primal-dual method finds the known answers of small problems, on any number of
//! ranks, and goes on from a checkpoint on another number.

mod dense;

use std::sync::Arc;

use dense::{Dense, relative, row};
use haloscope::denoise::{Denoiser, TotalVariation};
use haloscope::distribute::distribute;
use haloscope::fidelity::{Ball, Fidelities, L1};
use haloscope::physics::{Identity, Physics};
use haloscope::solve::{
    Checkpoints, Every, JobId, Problem, ProxPrimalDual, Start, State, Stopping, solve,
};
use haloscope::{Array, Error, Measurements, Result};
use haloscope_comm::Context;

const LENGTH: usize = 24;
const WEIGHT: f64 = 0.7;
/// What each of the operators multiplies the image by.
const FACTORS: [f32; 3] = [1.0, 0.5, 1.5];
/// A bound on `‖A‖²`, the sum of the squares.
const SQUARED_NORM: f64 = 3.5;

/// Steps with noise, and outliers that squares would not forgive.
fn data() -> Vec<Vec<f32>> {
    let mut random = fastrand::Rng::with_seed(6);
    let mut value = |pixel: usize, factor: f32| {
        let step = if (8..16).contains(&pixel) { 0.8 } else { 0.2 };
        let outlier = if random.f32() < 0.15 { 2.0 } else { 0.0 };
        factor * (step + 0.1 * (random.f32() - 0.5) + outlier)
    };
    FACTORS.map(|factor| (0..LENGTH).map(|pixel| value(pixel, factor)).collect()).to_vec()
}

fn problem(ctx: &Context) -> Result<Problem> {
    let scaling = |factor: f32| {
        let entry = |index: usize| if index / LENGTH == index % LENGTH { factor } else { 0.0 };
        Arc::new(Dense::new(LENGTH, LENGTH, (0..LENGTH * LENGTH).map(entry).collect())) as Arc<_>
    };
    let physics = distribute(FACTORS.map(scaling).to_vec(), ctx)?;
    let data = Measurements::new(data().iter().map(|part| row(part)).collect());
    Problem::new(physics, data, distribute(Fidelities::from(L1), ctx)?)
}

fn method() -> ProxPrimalDual {
    ProxPrimalDual { squared_norm: SQUARED_NORM, weight: WEIGHT, step: 0.3, range: None }
}

/// The least value of `Σ |Aᵢ x − yᵢ| + λ TV(x)`: some minimiser has only values at which a term of the data has its kink, so
/// that dynamic programming over them finds it.
fn least_value() -> f64 {
    let data = data();
    let kinks: Vec<f64> = (data.iter().zip(FACTORS))
        .flat_map(|(part, factor)| part.iter().map(move |y| f64::from(y / factor)))
        .collect();
    let cost = |pixel: usize, value: f64| -> f64 {
        let terms = data.iter().zip(FACTORS);
        terms.map(|(part, factor)| (f64::from(factor) * value - f64::from(part[pixel])).abs()).sum()
    };
    let mut best: Vec<f64> = kinks.iter().map(|value| cost(0, *value)).collect();
    for pixel in 1..LENGTH {
        let from = |value: f64| {
            let arrivals = kinks.iter().zip(&best);
            let least = arrivals.map(|(before, best)| best + WEIGHT * (value - before).abs());
            least.fold(f64::INFINITY, f64::min)
        };
        best = kinks.iter().map(|value| from(*value) + cost(pixel, *value)).collect();
    }
    best.into_iter().fold(f64::INFINITY, f64::min)
}

#[test]
fn least_absolute_deviations_with_total_variation_reach_the_least_value() {
    let problem = problem(&Context::solo()).expect("a problem");
    let start = State::new(problem.start(&Start::Zeros).expect("zeros"));
    let stopping = Stopping { iterations: 8_000, ..Stopping::default() };
    let image = solve(&problem, &method(), start, &stopping, None)
        .expect("solved")
        .state
        .image
        .into_local();
    let value = problem.value(&image.clone().into()).expect("a value")
        + WEIGHT * TotalVariation::value(&image);
    let least = least_value();
    assert!((value - least).abs() < 1e-4 * least, "{value} instead of {least}");
}

#[test]
fn a_ball_around_the_data_gives_the_flattest_image_in_it() {
    let y = row(&data()[0]);
    let distance = |image: &Array| (image - &y).mapv(|value| f64::from(value).powi(2)).sum().sqrt();
    let exact = TotalVariation { iterations: 2000, tolerance: 0.0 };
    let penalised = |weight: f64| exact.denoise(&y, &(weight as f32).into()).expect("denoised");
    // The same image with a penalty on TV, whose weight is found by bisection.
    let radius = 1.5;
    let (mut low, mut high) = (0.0, 5.0);
    for _ in 0..22 {
        let middle = f64::midpoint(low, high);
        if distance(&penalised(middle)) < radius { low = middle } else { high = middle }
    }
    let expected: Vec<f64> = penalised(low).iter().map(|value| f64::from(*value)).collect();

    let ctx = Context::solo();
    let physics: Vec<Arc<dyn Physics>> = vec![Arc::new(Identity::new(&[1, LENGTH]))];
    let physics = distribute(physics, &ctx).expect("distributed");
    let ball = Fidelities::from(Ball::new(radius).expect("a radius"));
    let fidelity = distribute(ball, &ctx).expect("distributed");
    let problem = Problem::new(physics, Measurements::new(vec![y]), fidelity).expect("a problem");
    let start = State::new(problem.start(&Start::Zeros).expect("zeros"));
    let method = ProxPrimalDual { squared_norm: 1.0, weight: 1.0, step: 0.3, range: None };
    let stopping = Stopping { iterations: 8_000, ..Stopping::default() };
    let image =
        solve(&problem, &method, start, &stopping, None).expect("solved").state.image.into_local();
    assert!(relative(&image, &expected) < 1e-3, "{}", relative(&image, &expected));
}

#[test]
fn a_checkpoint_of_three_ranks_continues_to_the_same_bits_on_any_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = JobId::new("absolute deviations", b"one problem");
    let run = |ranks: usize, save_at: Option<usize>| {
        let (folder, job) = (folder.path().to_owned(), job.clone());
        let images = Context::threads(ranks, move |ctx| {
            let problem = problem(ctx)?;
            let mut checkpoints = Checkpoints::new(&folder, Every::default())?;
            let mut state = match checkpoints.load_latest(ctx, &job)? {
                Some(found) => found.state,
                None => State::new(problem.start(&Start::Zeros)?),
            };
            if let Some(iterations) = save_at {
                let stopping = Stopping { iterations, ..Stopping::default() };
                state = solve(&problem, &method(), state, &stopping, None)?.state;
                checkpoints.save_together(ctx, &state, &job)?;
            }
            let stopping = Stopping { iterations: 20, ..Stopping::default() };
            Ok::<_, Error>(
                solve(&problem, &method(), state, &stopping, None)?.state.image.into_local(),
            )
        });
        images.expect("no rank fails").swap_remove(0)
    };
    let uninterrupted = run(3, Some(7));
    for ranks in [1, 2, 3, 5] {
        assert_eq!(run(ranks, None), uninterrupted, "{ranks} ranks");
    }
}
