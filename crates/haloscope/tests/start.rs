//! Where an iteration begins when operators do not see everything, on any number of ranks.

use std::sync::Arc;

use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, L2};
use haloscope::metrics::{mean, psnr};
use haloscope::phantom::landscape;
use haloscope::physics::{Blur, Decolorize, Inpainting, Padding, Physics, Stack, kernels};
use haloscope::solve::{Problem, Start};
use haloscope::{Array, Measurements, Result};
use haloscope_comm::Context;

const SHAPE: [usize; 3] = [3, 40, 48];

/// Every third pixel, in three operators that share the pixels of half the image; nobody sees the rest.
fn scattered() -> Result<Vec<Arc<dyn Physics>>> {
    (0..3)
        .map(|own| {
            let mask = Array::from_shape_fn(vec![1, 40, 48], |at| {
                let index = at[1] * 48 + at[2];
                f32::from(index * 7919 % 6 == own)
            });
            Ok(Arc::new(Inpainting::new(&SHAPE, &mask)?) as Arc<dyn Physics>)
        })
        .collect()
}

fn inside(kernel: &Array) -> Result<Vec<Arc<dyn Physics>>> {
    Ok(vec![Arc::new(Blur::new(&SHAPE, kernel, Padding::Valid)?)])
}

fn start(ctx: &Context, operators: Vec<Arc<dyn Physics>>, start: &Start) -> Result<Array> {
    let physics = distribute(Stack::new(operators)?, ctx)?;
    let all = physics.forward(&landscape(40, 48)?)?;
    let own: Vec<usize> = physics.local_indices().collect();
    let parts = own.into_iter().filter_map(|index| Some((index, all.get(index)?.clone())));
    let data = Measurements::partial(all.len(), parts)?;
    let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
    Problem::new(physics, data, fidelity)?.start(start)?.into_whole()
}

fn decibels(image: &Array) -> f64 {
    let truth = landscape(40, 48).expect("a picture");
    mean(&psnr(image, &truth, 1.0).expect("one shape"))
}

#[test]
fn unseen_pixels_are_filled_with_the_same_bits_on_any_number_of_ranks() {
    let filled =
        start(&Context::solo(), scattered().expect("masks"), &Start::Filled).expect("a start");
    let adjoint =
        start(&Context::solo(), scattered().expect("masks"), &Start::Adjoint).expect("a start");
    let (filled_decibels, adjoint_decibels) = (decibels(&filled), decibels(&adjoint));
    assert!(
        filled_decibels > 20.0 && filled_decibels > adjoint_decibels + 8.0,
        "{filled_decibels} {adjoint_decibels}"
    );
    for ranks in [2, 3, 5, 8] {
        let all = Context::threads(ranks, |ctx| start(ctx, scattered()?, &Start::Filled));
        assert!(all.expect("no rank fails").iter().all(|image| *image == filled), "{ranks} ranks");
    }
}

#[test]
fn the_border_of_a_valid_blur_is_as_bright_as_what_is_beside_it() {
    let kernel = kernels::gaussian(&[2.0, 2.0], 0.0).expect("a kernel");
    let [filled, adjoint] = [Start::Filled, Start::Adjoint].map(|kind| {
        start(&Context::solo(), inside(&kernel).expect("a blur"), &kind).expect("a start")
    });
    let corner = |image: &Array| f64::from(image[[0, 2, 0, 0]]);
    let truth = corner(&landscape(40, 48).expect("a picture"));
    assert!((corner(&filled) - truth).abs() < 0.25, "{} instead of {truth}", corner(&filled));
    assert!(corner(&adjoint) < 0.1, "{}", corner(&adjoint));
    assert!(decibels(&filled) > decibels(&adjoint) + 3.0);
}

#[test]
fn operators_that_do_not_see_constants_begin_with_the_adjoint() {
    // The difference of two colours.
    let edges = || -> Result<Vec<Arc<dyn Physics>>> {
        Ok(vec![Arc::new(Decolorize::with_weights(&SHAPE, &[1.0, -1.0, 0.0])?)])
    };
    let [filled, adjoint] = [Start::Filled, Start::Adjoint]
        .map(|kind| start(&Context::solo(), edges().expect("a blur"), &kind).expect("a start"));
    assert_eq!(filled, adjoint);
}
