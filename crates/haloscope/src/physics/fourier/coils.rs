//! Sensitivities of the coils of a birdcage, for simulations.

use std::f64::consts::TAU;

use crate::Array;
use crate::error::{Error, Result};

/// The sensitivity of one coil of a birdcage around images of two or three sides: (2, spatial…).
///
/// The coils are on a circle of 1.5 times half the image, around its first axis if there are three, and the sum of all squares
/// is 1 at each pixel. The definition is sigpy's `birdcage_maps` of two axes.
pub fn birdcage(sides: &[usize], coils: usize, coil: usize) -> Result<Array> {
    if coil >= coils || !matches!(sides.len(), 2 | 3) {
        return Err(Error::argument(
            "birdcage",
            format!(
                "coil {coil} of {coils} on sides {sides:?}; one of the coils, and two or three sides, are expected"
            ),
        ));
    }
    let [height, width] = [sides[sides.len() - 2], sides[sides.len() - 1]];
    let value = |coil: usize, row: usize, column: usize| {
        let angle = coil as f64 * TAU / coils as f64;
        let x = (column as f64 - width as f64 / 2.0) / (width as f64 / 2.0) - 1.5 * angle.cos();
        let y = (row as f64 - height as f64 / 2.0) / (height as f64 / 2.0) - 1.5 * angle.sin();
        let (strength, phase) = (1.0 / x.hypot(y), x.atan2(-y) - angle);
        (strength * phase.cos(), strength * phase.sin(), strength * strength)
    };
    let mut plane = vec![[0.0_f32; 2]; height * width];
    for (index, pixel) in plane.iter_mut().enumerate() {
        let (row, column) = (index / width, index % width);
        let total: f64 = (0..coils).map(|coil| value(coil, row, column).2).sum();
        let (real, imaginary, _) = value(coil, row, column);
        *pixel = [real / total.sqrt(), imaginary / total.sqrt()].map(|part| part as f32);
    }
    let shape: Vec<usize> = std::iter::once(2).chain(sides.iter().copied()).collect();
    let axes = shape.len();
    Ok(Array::from_shape_fn(shape, |at| plane[at[axes - 2] * width + at[axes - 1]][at[0]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_of_all_coils_sum_to_one() -> Result<()> {
        for sides in [&[6, 7][..], &[2, 5, 4]] {
            let mut total = Array::zeros(sides);
            for coil in 0..5 {
                total += &birdcage(sides, 5, coil)?
                    .mapv(|value| value * value)
                    .sum_axis(ndarray::Axis(0));
            }
            assert!(total.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
        }
        assert!(birdcage(&[4, 4], 3, 3).is_err());
        Ok(())
    }
}
