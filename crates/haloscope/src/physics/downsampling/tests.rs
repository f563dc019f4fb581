//! Facts about [`Downsampling`].

use super::*;
use crate::array::{distance, norm};
use crate::physics::Matrix;

fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_fn(shape, |_| random.f32() * 2.0 - 1.0)
}

/// Operators with a closed form.
fn operators() -> Result<Vec<Downsampling>> {
    let kernel = DownsamplingFilter::Kernel(random(&[2, 3, 3, 4], 1));
    let volume = DownsamplingFilter::Kernel(random(&[1, 1, 2, 3, 3], 2));
    let circular = Padding::Circular;
    Ok(vec![
        Downsampling::new(&[3, 6, 9], 3, &kernel, circular)?,
        Downsampling::new(&[1, 8, 6], 2, &DownsamplingFilter::Gaussian, circular)?
            .with_phase(&[1, 0])?,
        Downsampling::new(&[1, 4, 6, 4], 2, &volume, circular)?.with_phase(&[1, 0, 1])?,
        Downsampling::new(&[2, 7, 5], 3, &DownsamplingFilter::None, Padding::Valid)?
            .with_phase(&[0, 2])?,
    ])
}

#[test]
fn the_closed_form_inverts_the_normal_operator() -> Result<()> {
    for operator in operators()? {
        let x = random(&[&[2], operator.image_shape()].concat(), 3);
        let b = operator.normal(&x)? + &x * 0.3;
        let solution = operator.solve_normal(&b, 0.3).expect("a closed form")?;
        let error = distance(&slice(&solution), &slice(&x)) / norm(&slice(&x));
        assert!(error < 1e-5, "{operator:?}: {error}");
    }
    Ok(())
}

#[test]
fn with_no_shift_the_closed_form_is_the_solution_of_least_norm() -> Result<()> {
    for operator in operators()?.into_iter().skip(2) {
        // Images that the adjoint makes have no part that is not measured.
        let y = random(&[&[1], operator.measurement_shape()].concat(), 4);
        let x = operator.adjoint(&y)?;
        let solution = operator.solve_normal(&operator.normal(&x)?, 0.0).expect("a closed form")?;
        let error = distance(&slice(&solution), &slice(&x)) / norm(&slice(&x));
        assert!(error < 1e-3, "{operator:?}: {error}");
    }
    Ok(())
}

#[test]
fn the_exact_norm_is_that_of_the_matrix() -> Result<()> {
    for operator in operators()?.into_iter().skip(1) {
        let matrix = Matrix::of(&operator)?;
        let mut x = random(&[&[1], operator.image_shape()].concat(), 5);
        for _ in 0..1000 {
            x = matrix.normal(&x)?;
            x /= norm(&slice(&x)) as f32;
        }
        let estimate = norm(&slice(&matrix.normal(&x)?));
        let exact = operator.exact_squared_norm().expect("known");
        assert!((estimate - exact).abs() < 1e-4 * exact, "{operator:?}: {estimate} and {exact}");
    }
    Ok(())
}

#[test]
fn the_frames_of_all_phases_hold_every_sample_once() -> Result<()> {
    let image = Array::from_shape_fn(vec![1, 1, 5, 4], |i| (1 + i[2] * 4 + i[3]) as f32);
    let mut sum = Array::zeros(image.raw_dim());
    for phase in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let frame = Downsampling::new(&[1, 5, 4], 2, &DownsamplingFilter::None, Padding::Valid)?
            .with_phase(&phase)?;
        sum = sum + frame.normal(&image)?;
    }
    assert_eq!(sum, image);
    Ok(())
}

#[test]
fn there_is_no_closed_form_where_none_is_known() -> Result<()> {
    let filter = DownsamplingFilter::Bicubic;
    let b = Array::zeros(vec![1, 1, 9, 8]);
    for operator in [
        Downsampling::new(&[1, 9, 8], 2, &filter, Padding::Circular)?,
        Downsampling::new(&[1, 9, 8], 3, &DownsamplingFilter::Gaussian, Padding::Reflect)?,
    ] {
        assert!(operator.solve_normal(&b, 1.0).is_none());
        assert!(operator.exact_squared_norm().is_none());
    }
    Ok(())
}

#[test]
fn what_cannot_be_is_refused_with_the_value() {
    let make = |shape: &[usize], factor, filter: &DownsamplingFilter| {
        Downsampling::new(shape, factor, filter, Padding::Circular)
    };
    let message = |made: Result<Downsampling>| made.expect_err("refused").to_string();
    assert!(message(make(&[1, 8, 8], 0, &DownsamplingFilter::None)).contains("factor is 0"));
    assert!(message(make(&[8, 8], 2, &DownsamplingFilter::None)).contains("[8, 8]"));
    assert!(message(make(&[1, 4, 8, 8], 2, &DownsamplingFilter::Sinc)).contains("Sinc"));
    let half = make(&[1, 8, 8], 2, &DownsamplingFilter::None).expect("downsampling");
    assert!(message(half.with_phase(&[0, 2])).contains("[0, 2]"));
}

#[test]
fn a_box_is_the_mean_over_the_pixels_from_the_one_that_is_kept() -> Result<()> {
    for padding in [Padding::Circular, Padding::Reflect, Padding::Valid] {
        for (factor, phase) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)] {
            let image = random(&[1, 1, 12, 12], 8);
            let operator =
                Downsampling::new(&[1, 12, 12], factor, &DownsamplingFilter::Box, padding)?
                    .with_phase(&[phase, phase])?;
            let measured = operator.forward(&image)?;
            let corner = (0..factor * factor)
                .map(|i| image[[0, 0, phase + factor + i / factor, phase + i % factor]])
                .sum::<f32>()
                / (factor * factor) as f32;
            let found = measured[[0, 0, 1, 0]];
            assert!(
                (found - corner).abs() < 1e-5,
                "{padding:?} {factor} {phase}: {found} {corner}"
            );
        }
    }
    // In volumes as well.
    let volume = random(&[1, 1, 4, 4, 4], 9);
    let operator =
        Downsampling::new(&[1, 4, 4, 4], 4, &DownsamplingFilter::Box, Padding::Circular)?;
    let mean = volume.mean().expect("values");
    assert!((operator.forward(&volume)?[[0, 0, 0, 0, 0]] - mean).abs() < 1e-5);
    Ok(())
}
