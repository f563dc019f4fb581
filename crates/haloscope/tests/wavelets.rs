//! Coefficients against `PyWavelets`, whose output `fixtures/make_wavelets.py` writes; proxes, methods and jobs have the same bits on any
//! number of ranks.

use std::sync::Arc;

use haloscope::denoise::{Bases, Denoiser, Wavelets};
use haloscope::distribute::distribute;
use haloscope::fidelity::{Ball, Fidelities, L2};
use haloscope::physics::{Inpainting, Physics};
use haloscope::solve::{
    Algorithm, Fista, PrimalDual, Prior, Problem, ProxPrimalDual, State, Stopping,
    WaveletPrimalDual, WaveletPrior, WaveletProxPrimalDual, solve,
};
use haloscope::{Array, Result};
use haloscope_comm::Context;
use safetensors::SafeTensors;

const FIXTURE: &[u8] = include_bytes!("../fixtures/wavelets.safetensors");

/// A tensor as an image of one channel.
fn tensor(name: &str) -> Array {
    let file = SafeTensors::deserialize(FIXTURE).expect("a fixture");
    let tensor = file.tensor(name).expect(name);
    let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("eight bytes")) as f32;
    let shape = [&[1, 1], tensor.shape()].concat();
    Array::from_shape_vec(shape, tensor.data().chunks(8).map(number).collect()).expect("values")
}

#[test]
fn coefficients_are_those_of_pywavelets() -> Result<()> {
    let cases: [(&str, &[usize], usize); 4] = [
        ("even", &[1, 2, 3, 4, 5, 6, 7, 8], 2),
        ("odd", &[1, 3], 2),
        ("thin", &[2, 8], 3),
        ("volume", &[1, 2], 2),
    ];
    for (name, orders, scales) in cases {
        let image = tensor(&format!("{name}.image"));
        for &order in orders {
            let bases = Bases::daubechies(order)?;
            let wavelets = Wavelets { bases, scales, ..Wavelets::default() };
            let found = wavelets.coefficients(&image)?;
            let expected = tensor(&format!("{name}.db{order}"));
            let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 5e-6, "{name}, db{order}: {worst:e}");
        }
    }
    Ok(())
}

fn picture() -> Array {
    Array::from_shape_fn(vec![1, 1, 33, 40], |at| {
        let (row, column) = (at[2] as f32 - 15.0, at[3] as f32 - 22.0);
        f32::from(row * row + column * column < 80.0) + 0.02 * column
    })
}

/// Half of the pixels twice, with noise.
fn problem(ctx: &Context, fidelities: Fidelities) -> Result<Problem> {
    let mask = |seed: usize| {
        Array::from_shape_fn(vec![1, 33, 40], |at| {
            f32::from((at[1] * 7919 + at[2] * 104_729 + seed * 31) % 5 < 3)
        })
    };
    let operators: Vec<Arc<dyn Physics>> = (0..3)
        .map(|seed| -> Result<Arc<dyn Physics>> {
            Ok(Arc::new(Inpainting::new(&[1, 33, 40], &mask(seed))?))
        })
        .collect::<Result<_>>()?;
    let physics = distribute(operators, ctx)?;
    let mut data = physics.forward_terms(&picture())?.into_local()?;
    for (index, part) in data.iter_mut() {
        let noise = |at: usize| ((at * 2_654_435_761 + index * 97) % 1000) as f32 / 1000.0 - 0.5;
        part.iter_mut().enumerate().for_each(|(at, value)| {
            if *value != 0.0 {
                *value += 0.1 * noise(at);
            }
        });
    }
    Problem::new(physics, data, distribute(fidelities, ctx)?)
}

fn run(problem: &Problem, method: &dyn Algorithm, iterations: usize) -> Result<Array> {
    let start = State::new(Array::zeros(vec![1, 1, 33, 40]));
    let stopping = Stopping { iterations, ..Stopping::default() };
    solve(problem, method, start, &stopping, None)?.state.image.into_whole()
}

#[test]
fn the_primal_dual_method_and_fista_with_the_prox_find_the_same_image() -> Result<()> {
    let ctx = Context::solo();
    let problem = problem(&ctx, Fidelities::from(L2::default()))?;
    let range = Some((0.0, 0.9));
    let bases = "dirac, db1, db3".parse()?;
    let wavelets = Wavelets { bases, iterations: 60, tolerance: 1e-7, ..Wavelets::sara() };
    let weight = 0.2;
    let method = PrimalDual { lipschitz: 3.0, weight, range };
    let one = run(&problem, &WaveletPrimalDual { method, wavelets }, 1000)?;
    let prior: Arc<dyn Prior> =
        Arc::new(WaveletPrior { weight, denoiser: Wavelets { range, ..wavelets } });
    let other = run(&problem, &Fista { step: 0.33, prior }, 100)?;
    let worst = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 2e-3, "{worst:e}");
    let moved = one.iter().zip(&picture()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(moved > 0.02 && one.iter().all(|value| (0.0..=0.9).contains(value)));
    Ok(())
}

#[test]
fn sara_in_a_ball_stays_near_the_data_and_lowers_the_norm() -> Result<()> {
    let ctx = Context::solo();
    let radius = 0.9;
    let problem = problem(&ctx, Fidelities::from(Ball::new(radius)?))?;
    let wavelets = Wavelets::sara();
    let method = ProxPrimalDual { squared_norm: 3.0, weight: 1.0, step: 0.3, range: None };
    let found = run(&problem, &WaveletProxPrimalDual { method, wavelets }, 400)?;
    assert!(wavelets.value(&found)? < wavelets.value(&picture())?);
    let error = (found - picture()).mapv(|value| value * value).sum().sqrt();
    let size = picture().mapv(|value| value * value).sum().sqrt();
    assert!(error < 0.15 * size, "{error} of {size}");
    Ok(())
}

#[test]
fn ranks_do_not_change_the_bits() {
    let work = |ctx: &Context| -> Result<Vec<Array>> {
        let squares = problem(ctx, Fidelities::from(L2::default()))?;
        let ball = problem(ctx, Fidelities::from(Ball::new(0.9)?))?;
        let wavelets = Wavelets { iterations: 8, ..Wavelets::sara() };
        let prior: Arc<dyn Prior> = Arc::new(WaveletPrior { weight: 0.05, denoiser: wavelets });
        let method = PrimalDual { lipschitz: 3.0, weight: 0.05, range: Some((0.0, 1.0)) };
        let dual = ProxPrimalDual { squared_norm: 3.0, weight: 1.0, step: 0.3, range: None };
        Ok(vec![
            run(&squares, &Fista { step: 0.3, prior }, 4)?,
            run(&squares, &WaveletPrimalDual { method, wavelets }, 6)?,
            run(&ball, &WaveletProxPrimalDual { method: dual, wavelets }, 6)?,
        ])
    };
    let alone = work(&Context::solo()).expect("one rank");
    for ranks in [2, 3, 5] {
        for found in Context::threads(ranks, work).expect("no rank fails") {
            for (one, other) in found.iter().zip(&alone) {
                let bits =
                    |image: &Array| image.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(one), bits(other), "{ranks} ranks");
            }
        }
    }
}

#[test]
fn sara_removes_noise_from_a_picture() -> Result<()> {
    let clean = picture();
    let mut random = fastrand::Rng::with_seed(3);
    let noisy = clean.mapv(|value| value + 0.3 * (random.f32() + random.f32() - 1.0));
    let error = |image: &Array| (image - &clean).mapv(|value| value * value).sum().sqrt();
    for (wavelets, level) in [(Wavelets::default(), 0.25), (Wavelets::sara(), 0.06)] {
        let found = wavelets.denoise(&noisy, &level.into())?;
        assert!(error(&found) < 0.85 * error(&noisy), "{} {}", error(&found), error(&noisy));
    }
    Ok(())
}
