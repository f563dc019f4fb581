//! Total variation has the same bits on any number of ranks, whatever they share.

use std::sync::Arc;

use haloscope::denoise::{Denoiser, NoiseLevel, TotalVariation};
use haloscope::distribute::{DistributedTotalVariation, distribute};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::physics::{Identity, Physics};
use haloscope::solve::{Fista, Problem, Start, State, Stopping, TotalVariationPrior, solve};
use haloscope::{Array, Error, Measurements, Result};
use haloscope_comm::Context;

fn noise(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_simple_fn(shape, || random.f32())
}

fn bits(image: &Array) -> Vec<u32> {
    image.iter().map(|value| value.to_bits()).collect()
}

/// The result of every rank, which must all be alike.
fn shared(ranks: usize, image: &Array, level: &NoiseLevel, denoiser: TotalVariation) -> Array {
    let (image, level) = (image.clone(), level.clone());
    let results = Context::threads(ranks, move |ctx| {
        DistributedTotalVariation::new(denoiser, ctx)?.denoise(&image, &level)
    });
    let mut results = results.expect("no rank fails");
    let first = results.remove(0);
    assert!(results.iter().all(|other| bits(other) == bits(&first)), "{ranks} ranks differ");
    first
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_one() {
    // Pictures and volumes, in colours and batches, with fewer rows than ranks, of one row, of one column, and of one side.
    let shapes: [&[usize]; 9] = [
        &[1, 1, 24, 17],
        &[1, 3, 19, 23],
        &[2, 3, 9, 6],
        &[1, 1, 3, 40],
        &[1, 2, 1, 12],
        &[1, 1, 11, 1],
        &[1, 1, 7, 6, 9],
        &[2, 2, 4, 5, 3],
        &[1, 1, 30],
    ];
    for shape in shapes {
        let image = noise(shape, 5);
        let levels: NoiseLevel =
            if shape[0] == 2 { NoiseLevel::PerImage(vec![0.05, 0.4]) } else { 0.2.into() };
        for (iterations, tolerance) in [(200, 1e-3), (30, 0.0), (2, 0.0), (1, 0.0), (0, 0.0)] {
            let denoiser = TotalVariation { iterations, tolerance };
            let expected = denoiser.denoise(&image, &levels).expect("denoised");
            for ranks in [1, 2, 3, 5, 8] {
                let found = shared(ranks, &image, &levels, denoiser);
                assert_eq!(
                    bits(&found),
                    bits(&expected),
                    "{shape:?} on {ranks} ranks, {denoiser:?}"
                );
            }
        }
    }
}

/// The tolerance ends iterations at the same one everywhere, and not at the last.
#[test]
fn ranks_stop_together() {
    let image = noise(&[1, 1, 40, 20], 3);
    let by_tolerance = TotalVariation { iterations: 500, tolerance: 1e-3 };
    let stopped = by_tolerance.denoise(&image, &0.3.into()).expect("denoised");
    let all = TotalVariation { tolerance: 0.0, ..by_tolerance };
    assert_ne!(stopped, all.denoise(&image, &0.3.into()).expect("denoised"));
    for ranks in [2, 5] {
        assert_eq!(shared(ranks, &image, &0.3.into(), by_tolerance), stopped);
    }
}

#[test]
fn what_is_refused_is_refused_on_all_ranks() {
    let image = noise(&[1, 1, 6, 6], 1);
    let map = NoiseLevel::Map(image.clone());
    let mut infinite = image.clone();
    infinite[[0, 0, 3, 3]] = f32::INFINITY;
    for (image, level) in [(image, map), (infinite, 0.1.into())] {
        let errors = Context::threads(3, move |ctx| {
            let denoiser = DistributedTotalVariation::new(TotalVariation::default(), ctx)?;
            Ok::<_, Error>(denoiser.denoise(&image, &level).expect_err("refused").to_string())
        });
        let errors = errors.expect("no rank fails");
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    }
}

#[test]
fn a_reconstruction_has_the_bits_of_the_prior_that_is_not_shared() {
    let run = |ctx: &Context, is_shared: bool| -> Result<Array> {
        let frame = || Arc::new(Identity::new(&[3, 14, 10])) as Arc<dyn Physics>;
        let physics = distribute(vec![frame(), frame(), frame()], ctx)?;
        let data = (0..3).map(|seed| noise(&[1, 3, 14, 10], seed)).collect();
        let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
        let problem = Problem::new(physics, Measurements::new(data), fidelity)?;
        let (weight, denoiser, step) = (0.1, TotalVariation::default(), 0.3);
        let state = State::new(problem.start(&Start::Adjoint)?);
        let stopping = Stopping { iterations: 8, ..Stopping::default() };
        let outcome = if is_shared {
            let denoiser = DistributedTotalVariation::new(denoiser, ctx)?;
            let prior = Arc::new(TotalVariationPrior { weight, denoiser });
            solve(&problem, &Fista { step, prior }, state, &stopping, None)
        } else {
            let prior = Arc::new(TotalVariationPrior { weight, denoiser });
            solve(&problem, &Fista { step, prior }, state, &stopping, None)
        };
        Ok(outcome?.state.image.into_local())
    };
    let alone = run(&Context::solo(), false).expect("a run");
    for ranks in [1, 2, 3, 5, 8] {
        let images = Context::threads(ranks, move |ctx| run(ctx, true)).expect("no rank fails");
        assert!(images.iter().all(|image| bits(image) == bits(&alone)), "{ranks} ranks");
    }
}
