//! Sensitivities of coils around a volume against sigpy's: `fixtures/make_coils.py` writes what it finds.

use haloscope::physics::Physics;
use haloscope::physics::fourier::{Calibration, Cartesian, birdcage};
use haloscope::{Array, Result};
use ndarray::Axis;
use safetensors::SafeTensors;

const FIXTURE: &[u8] = include_bytes!("../fixtures/coils.safetensors");

fn tensor(name: &str) -> Array {
    let file = SafeTensors::deserialize(FIXTURE).expect("a fixture");
    let tensor = file.tensor(name).expect(name);
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let values = tensor.data().chunks(4).map(number).collect();
    Array::from_shape_vec(tensor.shape().to_vec(), values).expect("all values")
}

#[test]
fn sensitivities_of_a_volume_are_those_of_sigpy() -> Result<()> {
    let (data, maps, strength) = (tensor("data"), tensor("maps"), tensor("strength"));
    let measured: Vec<Array> = data.outer_iter().map(|coil| coil.to_owned()).collect();
    let calibration = Calibration { width: 8, kernel: 3, threshold: 0.02, crop: 0.0 };
    let found = calibration.sensitivities(&measured)?;
    let crop = 0.95;
    let cropped = Calibration { crop, ..calibration }.sensitivities(&measured)?;
    let mut inside = 0;
    for (coil, expected) in maps.outer_iter().enumerate() {
        for (at, value) in expected.indexed_iter() {
            let strength = f64::from(strength[[0, at[1], at[2], at[3]]]);
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
    assert!(inside > strength.len(), "{inside}");
    Ok(())
}

#[test]
fn the_birdcage_around_a_ball_is_found_with_what_suits_volumes() -> Result<()> {
    let sides = [20, 24, 22];
    let ball = Array::from_shape_fn(vec![1, 1, 20, 24, 22], |at| {
        let square = |axis: usize| ((at[axis + 2] as f32 / sides[axis] as f32) - 0.5).powi(2);
        f32::from(square(0) + square(1) + square(2) < 0.16)
    });
    let (mut data, mut maps) = (Vec::new(), Vec::new());
    for coil in 0..3 {
        let map = birdcage(&sides, 3, coil)?;
        let scan = Cartesian::new(&[1, 20, 24, 22], Some(&map), None)?;
        data.push(scan.forward(&ball)?.index_axis_move(Axis(0), 0));
        maps.push(map);
    }
    let found = Calibration::of_axes(3).sensitivities(&data)?;
    // Up to the phase of the first coil, in the middle of the ball.
    for at in [[10, 12, 11], [7, 10, 13], [13, 15, 8]] {
        let value = |maps: &[Array], coil: usize| {
            let part = |part| maps[coil][[part, at[0], at[1], at[2]]];
            (part(0), part(1))
        };
        let (re, im) = value(&maps, 0);
        let turn = (re / re.hypot(im), -im / re.hypot(im));
        for coil in 0..3 {
            let (re, im) = value(&maps, coil);
            let expected = (re * turn.0 - im * turn.1, re * turn.1 + im * turn.0);
            let found = value(&found, coil);
            let error = (found.0 - expected.0).hypot(found.1 - expected.1);
            assert!(error < 0.02, "{coil} {at:?} {error}");
        }
    }
    Ok(())
}
