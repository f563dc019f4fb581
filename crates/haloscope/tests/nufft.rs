//! Non-uniform transforms against finufft, visibilities against ducc0's wgridder, and scans of several coils against sigpy:
//! `fixtures/make_nufft.py` writes what they make of small images.

use std::sync::Arc;

use haloscope::fourier::{Complex, Nufft};
use haloscope::least_squares::{LeastSquaresOptions, prox_l2};
use haloscope::physics::fourier::{Calibration, Cartesian, Visibilities, birdcage};
use haloscope::physics::{LinearPhysics, Physics, Stack};
use haloscope::{Array, Measurements, Result};
use safetensors::SafeTensors;

const FIXTURE: &[u8] = include_bytes!("../fixtures/nufft.safetensors");

/// A tensor's shape and values.
fn tensor(name: &str) -> (Vec<usize>, Vec<f64>) {
    let file = SafeTensors::deserialize(FIXTURE).expect("a fixture");
    let tensor = file.tensor(name).expect(name);
    let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    (tensor.shape().to_vec(), tensor.data().chunks(8).map(number).collect())
}

/// Pairs of parts as complex numbers.
fn complex(name: &str) -> Vec<Complex<f64>> {
    tensor(name).1.chunks(2).map(|parts| Complex::new(parts[0], parts[1])).collect()
}

/// Pairs of parts, (…, 2), as an array (1, 2, …).
fn channels(values: &[f64], sides: &[usize]) -> Array {
    let shape = [&[1, 2], sides].concat();
    let pixels: usize = sides.iter().product();
    let flat = (0..2 * pixels).map(|index| values[2 * (index % pixels) + index / pixels] as f32);
    Array::from_shape_vec(shape, flat.collect()).expect("all values")
}

fn relative(found: impl IntoIterator<Item = f64>, expected: &[f64]) -> f64 {
    let differences = found.into_iter().zip(expected).map(|(a, b)| (a - b).powi(2));
    (differences.sum::<f64>() / expected.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

fn flat(values: &[Complex<f64>]) -> Vec<f64> {
    values.iter().flat_map(|value| [value.re, value.im]).collect()
}

#[test]
fn transforms_are_those_of_finufft_at_the_asked_accuracy() -> Result<()> {
    for name in ["plane", "volume"] {
        let key = |part: &str| format!("{name}.{part}");
        let (mut sides, _) = tensor(&key("image"));
        sides.pop();
        let (image, samples) = (complex(&key("image")), complex(&key("samples")));
        let (forward, adjoint) = (tensor(&key("forward")).1, tensor(&key("adjoint")).1);
        let points = tensor(&key("points")).1;
        for power in 2..13 {
            let accuracy = 10.0_f64.powi(-power);
            let plan = Nufft::<f64>::new(&sides, &points, accuracy)?;
            let (mut to, mut back, mut scratch) = (samples.clone(), image.clone(), plan.scratch());
            plan.forward(&image, &mut to, &mut scratch)?;
            plan.adjoint(&samples, &mut back, &mut scratch)?;
            let errors = [relative(flat(&to), &forward), relative(flat(&back), &adjoint)];
            assert!(
                errors.iter().all(|error| *error < 1.5 * accuracy),
                "{name} {accuracy} {errors:?}"
            );
        }
        for power in 2..=6 {
            let accuracy = 10.0_f64.powi(-power);
            let narrow = |values: &[Complex<f64>]| -> Vec<Complex<f32>> {
                values.iter().map(|value| Complex::new(value.re as f32, value.im as f32)).collect()
            };
            let wide = |values: Vec<Complex<f32>>| -> Vec<f64> {
                values.iter().flat_map(|value| [f64::from(value.re), f64::from(value.im)]).collect()
            };
            let plan = Nufft::<f32>::new(&sides, &points, accuracy)?;
            let (mut to, mut back, mut scratch) =
                (narrow(&samples), narrow(&image), plan.scratch());
            plan.forward(&narrow(&image), &mut to, &mut scratch)?;
            plan.adjoint(&narrow(&samples), &mut back, &mut scratch)?;
            let errors = [relative(wide(to), &forward), relative(wide(back), &adjoint)];
            assert!(
                errors.iter().all(|error| *error < 1.5 * accuracy),
                "{name} {accuracy} {errors:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn visibilities_and_dirty_images_are_those_of_the_wgridder() -> Result<()> {
    for name in ["narrow", "wide"] {
        let key = |part: &str| format!("{name}.{part}");
        let (sides, image) = tensor(&key("image"));
        let cell = tensor(&key("cell")).1[0];
        // The wgridder's first axis is that of u, and ours that of v.
        let uvw: Vec<[f64; 3]> =
            tensor(&key("uvw")).1.chunks(3).map(|uvw| [uvw[1], uvw[0], uvw[2]]).collect();
        let (forward, adjoint) = (tensor(&key("forward")).1, tensor(&key("adjoint")).1);
        let samples = tensor(&key("samples")).1;
        for accuracy in [1e-3, 1e-5, 1e-7] {
            let telescope = Visibilities::new(&[&[1], &sides[..]].concat(), &uvw, cell, accuracy)?;
            let sky = image.iter().map(|value| *value as f32).collect();
            let sky =
                Array::from_shape_vec([&[1, 1], &sides[..]].concat(), sky).expect("all pixels");
            let measured = telescope.forward(&sky)?;
            let expected = channels(&forward, &[uvw.len()]);
            let numbers =
                |array: &Array| array.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
            let error = relative(numbers(&measured), &numbers(&expected));
            // The error is relative to the whole sky, most of whose flux is at frequencies that were not measured; single precision of
            // the data is the rest.
            assert!(error < 3.0 * accuracy + 2e-7, "{name} {accuracy} {error}");
            let dirty = telescope.adjoint(&channels(&samples, &[uvw.len()]))?;
            let error = relative(numbers(&dirty), &adjoint);
            assert!(error < accuracy + 2e-7, "{name} {accuracy} {error}");
        }
    }
    Ok(())
}

#[test]
fn a_scan_of_several_coils_is_solved_as_by_sigpy() -> Result<()> {
    let (shape, maps) = tensor("sense.maps");
    let [coils, rows, columns, _] = shape[..] else { panic!("{shape:?}") };
    let sides = [rows, columns];
    let pixels = rows * columns;
    let of_coil =
        |values: &[f64], coil: usize| channels(&values[2 * pixels * coil..][..2 * pixels], &sides);
    let mask = tensor("sense.mask").1.iter().map(|value| *value as f32).collect();
    let mask = Array::from_shape_vec(vec![1, rows, columns], mask).expect("all frequencies");
    let image = channels(&tensor("sense.image").1, &sides);
    let (full, data) = (tensor("sense.full").1, tensor("sense.data").1);
    let mut operators: Vec<Arc<dyn Physics>> = Vec::new();
    let mut measured = Vec::new();
    for coil in 0..coils {
        let map = birdcage(&sides, coils, coil)?;
        let expected = of_coil(&maps, coil);
        assert!(map.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "coil {coil}");
        let whole = Cartesian::new(&[2, rows, columns], Some(&map), None)?;
        let close = |a: &Array, b: &Array| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close(&whole.forward(&image)?, &of_coil(&full, coil)), "coil {coil}");
        operators.push(Arc::new(Cartesian::new(&[2, rows, columns], Some(&map), Some(&mask))?));
        measured.push(of_coil(&data, coil));
    }
    let stack = Stack::new(operators)?;
    let options = LeastSquaresOptions {
        tolerance: 1e-7,
        max_iterations: 300,
        ..LeastSquaresOptions::default()
    };
    let zeros = Array::zeros(image.raw_dim());
    let found = prox_l2(&stack, &zeros, &Measurements::new(measured), 100.0, &options)?.image;
    let expected = channels(&tensor("sense.solution").1, &sides);
    let expected: Vec<f64> = expected.iter().map(|value| f64::from(*value)).collect();
    let error = relative(found.iter().map(|value| f64::from(*value)), &expected);
    assert!(error < 1e-4, "{error}");
    Ok(())
}

#[test]
fn sensitivities_are_those_of_sigpy() -> Result<()> {
    let (shape, data) = tensor("calibration.data");
    let [coils, rows, columns, _] = shape[..] else { panic!("{shape:?}") };
    let pixels = rows * columns;
    let of_coil = |values: &[f64], coil: usize| {
        channels(&values[2 * pixels * coil..][..2 * pixels], &[rows, columns])
            .index_axis_move(ndarray::Axis(0), 0)
    };
    let measured: Vec<Array> = (0..coils).map(|coil| of_coil(&data, coil)).collect();
    let calibration = Calibration { width: 12, kernel: 4, threshold: 0.02, crop: 0.0 };
    let found = calibration.sensitivities(&measured)?;
    let crop = 0.95;
    let cropped = Calibration { crop, ..calibration }.sensitivities(&measured)?;
    let (maps, strength) = (tensor("calibration.maps").1, tensor("calibration.strength").1);
    let mut inside = 0;
    for coil in 0..coils {
        let expected = of_coil(&maps, coil);
        for (at, value) in expected.indexed_iter() {
            let strength = strength[at[1] * columns + at[2]];
            // Where the coils have no signal, the eigenvector is anything.
            if strength > crop {
                inside += 1;
                assert!((found[coil][&at] - value).abs() < 1e-4, "{coil} {at:?}");
            }
            if (strength - crop).abs() > 1e-4 {
                let kept = if strength > crop { found[coil][&at] } else { 0.0 };
                assert_eq!(cropped[coil][&at], kept, "{coil} {at:?} {strength}");
            }
        }
    }
    assert!(inside > coils * pixels / 2, "{inside}");
    Ok(())
}
