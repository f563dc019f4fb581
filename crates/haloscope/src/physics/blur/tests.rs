//! Facts about [`Blur`] as a whole.

use super::*;

/// Random samples in [−1, 1).
fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_fn(shape, |_| random.f32() * 2.0 - 1.0)
}

fn relative(a: &View, b: &View) -> f64 {
    let a_b = crate::array::distance(&slice(a), &slice(b));
    a_b / crate::array::norm(&slice(b)).max(1e-30)
}

const PADDINGS: [Padding; 5] =
    [Padding::Circular, Padding::Reflect, Padding::Replicate, Padding::Constant, Padding::Valid];

#[test]
fn all_methods_agree_for_every_padding() -> Result<()> {
    let cases: [(&[usize], &[usize]); 8] = [
        (&[2, 23, 31], &[1, 1, 5, 8]),
        (&[3, 40, 17], &[1, 3, 6, 3]),
        (&[1, 7, 9], &[1, 1, 1, 1]),
        (&[1, 6, 1], &[1, 1, 4, 1]),
        (&[2, 9, 10, 11], &[2, 1, 3, 4, 5]),
        (&[1, 100, 90], &[2, 1, 31, 30]),
        // Several blocks.
        (&[1, 6, 700], &[1, 1, 2, 9]),
        (&[1, 17, 13, 19], &[1, 1, 5, 2, 1]),
    ];
    for (i, (shape, kernel)) in cases.into_iter().enumerate() {
        let kernel = random(kernel, i as u64);
        for padding in PADDINGS {
            let direct = Blur::with_method(shape, &kernel, padding, BlurMethod::Direct)?;
            let x = random(&[&[2], shape].concat(), 9);
            let blurred = direct.forward(&x)?;
            let y = random(blurred.shape(), 10);
            let adjoint = direct.adjoint(&y)?;
            for method in [BlurMethod::Fourier, BlurMethod::Blocks] {
                let other = Blur::with_method(shape, &kernel, padding, method)?;
                for (a, b) in [(&blurred, other.forward(&x)?), (&adjoint, other.adjoint(&y)?)] {
                    assert!(relative(&b, a) < 1e-5, "{padding:?} {shape:?} {method:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_kernel_larger_than_the_image_wraps_and_reflects_as_often_as_it_must() -> Result<()> {
    let kernel = random(&[1, 1, 9, 14], 1);
    for padding in &PADDINGS[..4] {
        let direct = Blur::with_method(&[1, 3, 4], &kernel, *padding, BlurMethod::Direct)?;
        let fourier = Blur::with_method(&[1, 3, 4], &kernel, *padding, BlurMethod::Fourier)?;
        let x = random(&[1, 1, 3, 4], 2);
        assert!(relative(&fourier.forward(&x)?, &direct.forward(&x)?) < 1e-5, "{padding:?}");
        assert!(relative(&fourier.adjoint(&x)?, &direct.adjoint(&x)?) < 1e-5, "{padding:?}");
    }
    Ok(())
}

#[test]
fn each_image_and_channel_has_its_kernel() -> Result<()> {
    let kernel = random(&[2, 3, 3, 4], 1);
    let x = random(&[2, 3, 12, 10], 2);
    let whole = Blur::new(&[3, 12, 10], &kernel, Padding::Reflect)?.forward(&x)?;
    for image in 0..2 {
        for channel in 0..3 {
            let part = |array: &View| {
                array
                    .slice_each_axis(|axis| match axis.axis.index() {
                        0 => (image..=image).into(),
                        1 => (channel..=channel).into(),
                        _ => (..).into(),
                    })
                    .to_owned()
            };
            let one = Blur::new(&[1, 12, 10], &part(&kernel), Padding::Reflect)?;
            assert_eq!(one.forward(&part(&x))?, part(&whole));
        }
    }
    Ok(())
}

#[test]
fn adjoint_is_exact_with_a_kernel_for_each_image() -> Result<()> {
    let kernel = random(&[2, 3, 3, 4], 1);
    for padding in PADDINGS {
        for method in [BlurMethod::Direct, BlurMethod::Fourier] {
            let blur = Blur::with_method(&[3, 12, 10], &kernel, padding, method)?;
            let x = random(&[2, 3, 12, 10], 3);
            let ax = blur.forward(&x)?;
            let y = random(ax.shape(), 4);
            let (left, right) = (
                crate::array::dot(&slice(&ax), &slice(&y)),
                crate::array::dot(&slice(&x), &slice(&blur.adjoint(&y)?)),
            );
            let scale = crate::array::norm(&slice(&ax)) * crate::array::norm(&slice(&y));
            assert!((left - right).abs() < 1e-6 * scale, "{padding:?} {method:?}");
        }
    }
    Ok(())
}

#[test]
fn the_result_has_the_same_bits_on_any_number_of_threads() -> Result<()> {
    let kernel = random(&[1, 1, 7, 9], 1);
    let x = random(&[1, 2, 300, 280], 2);
    for method in [BlurMethod::Direct, BlurMethod::Fourier, BlurMethod::Blocks] {
        let blur = Blur::with_method(&[2, 300, 280], &kernel, Padding::Reflect, method)?;
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("a pool").install(|| (blur.forward(&x), blur.adjoint(&x)))
        };
        assert_eq!(on(1), on(3));
    }
    Ok(())
}

#[test]
fn circular_blur_inverts_its_normal_operator() -> Result<()> {
    for (shape, kernel) in
        [(&[2, 20, 23][..], &[1, 1, 3, 4][..]), (&[1, 6, 8, 7], &[1, 1, 3, 3, 2])]
    {
        let kernel = random(kernel, 5);
        for method in [BlurMethod::Direct, BlurMethod::Fourier] {
            let blur = Blur::with_method(shape, &kernel, Padding::Circular, method)?;
            let x = random(&[&[2], shape].concat(), 6);
            let b = blur.normal(&x)? + &x * 0.5;
            let solution = blur.solve_normal(&b, 0.5).expect("a closed form")?;
            assert!(relative(&solution, &x) < 1e-5, "{}", relative(&solution, &x));
        }
    }
    Ok(())
}

#[test]
fn with_no_shift_the_solution_has_no_part_that_is_not_measured() -> Result<()> {
    // The mean of two neighbours does not see the alternating image.
    let kernel = kernels::uniform(&[1, 2])?;
    let blur = Blur::new(&[1, 4, 8], &kernel, Padding::Circular)?;
    let alternating =
        Array::from_shape_fn(vec![1, 1, 4, 8], |i| if i[3] % 2 == 0 { 1.0 } else { -1.0 });
    let constant = Array::ones(vec![1, 1, 4, 8]);
    let b = blur.normal(&(&constant + &alternating))?;
    let solution = blur.solve_normal(&b, 0.0).expect("a closed form")?;
    assert!(relative(&solution, &constant) < 1e-5);
    Ok(())
}

#[test]
fn the_norm_of_a_circular_blur_is_the_greatest_eigenvalue() -> Result<()> {
    let blur = Blur::new(&[1, 9, 8], &random(&[1, 1, 3, 3], 3), Padding::Circular)?;
    let mut x = random(&[1, 1, 9, 8], 4);
    for _ in 0..2000 {
        x = blur.normal(&x)?;
        x /= crate::array::norm(&slice(&x)) as f32;
    }
    let estimate = crate::array::norm(&slice(&blur.normal(&x)?));
    let exact = blur.exact_squared_norm().expect("known");
    assert!((estimate - exact).abs() < 1e-4 * exact, "{estimate} and {exact}");
    assert!(
        Blur::new(&[1, 9, 8], &random(&[1, 1, 3, 3], 3), Padding::Reflect)?
            .exact_squared_norm()
            .is_none()
    );
    Ok(())
}

#[test]
fn large_kernels_go_through_fourier_transforms_and_small_ones_do_not() -> Result<()> {
    let method =
        |kernel: &View| Blur::new(&[1, 256, 256], kernel, Padding::Circular).map(|b| b.method());
    assert_eq!(method(&random(&[1, 1, 5, 5], 0))?, BlurMethod::Direct);
    assert_eq!(method(&random(&[1, 1, 41, 41], 0))?, BlurMethod::Fourier);
    // A product of a column and a row stays direct for longer.
    assert_eq!(method(&kernels::gaussian(&[6.0, 6.0], 0.0)?)?, BlurMethod::Direct);
    Ok(())
}

#[test]
fn what_cannot_be_is_refused_with_the_value() {
    let message = |shape: &[usize], kernel: &View, padding| {
        Blur::new(shape, kernel, padding).expect_err("refused").to_string()
    };
    let kernel = |shape: &[usize]| Array::ones(shape);
    assert!(
        message(&[1, 8, 8], &kernel(&[1, 1, 0, 3]), Padding::Circular).contains("[1, 1, 0, 3]")
    );
    assert!(
        message(&[3, 8, 8], &kernel(&[1, 2, 3, 3]), Padding::Circular)
            .contains("1 channel or all 3")
    );
    assert!(message(&[1, 8, 8], &kernel(&[3, 3]), Padding::Circular).contains("4 axes"));
    assert!(message(&[1, 4, 8], &kernel(&[1, 1, 5, 3]), Padding::Valid).contains("[1, 5, 3]"));
    assert!(message(&[1, 0, 8], &kernel(&[1, 1, 5, 3]), Padding::Constant).contains("[1, 0, 8]"));
    let mut broken = kernel(&[1, 1, 3, 3]);
    broken[[0, 0, 1, 1]] = f32::NAN;
    assert!(message(&[1, 8, 8], &broken, Padding::Reflect).contains("NaN"));
    let blur = Blur::new(&[1, 8, 8], &kernel(&[2, 1, 3, 3]), Padding::Constant).expect("a blur");
    let message = blur.forward(&Array::ones(vec![3, 1, 8, 8])).expect_err("refused").to_string();
    assert!(message.contains("kernels for 2 images and 3 images"), "{message}");
}
