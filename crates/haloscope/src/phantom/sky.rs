//! A part of the sky: a galaxy with arms, and sources that are points.

use crate::array::Array;
use crate::error::{Error, Result};

/// A galaxy seen from the side, with two arms and a bright middle, and a few dozen point sources on a dark sky: (1, 1, rows,
/// columns), from 0 to 1.
///
/// ```
/// let sky = haloscope::phantom::sky(64, 64)?;
/// assert_eq!(sky.shape(), [1, 1, 64, 64]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn sky(rows: usize, columns: usize) -> Result<Array> {
    if rows < 8 || columns < 8 {
        return Err(Error::argument(
            "sky",
            format!("{rows} × {columns} pixels; 8 × 8 or more are expected"),
        ));
    }
    let scale = rows.min(columns) as f64 / 2.0;
    let place = |row: f64, column: f64| {
        ((row - rows as f64 / 2.0) / scale, (column - columns as f64 / 2.0) / scale)
    };
    let points: Vec<[f64; 3]> = (0..POINTS).map(point).collect();
    // Points are as wide as a pixel and a half, whatever the size.
    let width = 1.5 / scale;
    Ok(Array::from_shape_fn(vec![1, 1, rows, columns], |at| {
        let (y, x) = place(at[2] as f64, at[3] as f64);
        let mut value = galaxy(y, x);
        for [row, column, strength] in &points {
            let square = (y - row).powi(2) + (x - column).powi(2);
            value += strength * (-0.5 * square / (width * width)).exp();
        }
        value.min(1.0) as f32
    }))
}

const POINTS: usize = 40;

/// Row, column and strength of a point source, by quotients that fill the plane evenly.
fn point(index: usize) -> [f64; 3] {
    let fraction = |factor: f64| (0.5 + factor * index as f64).fract();
    // Powers of the inverse of the plastic number.
    let [row, column] = [0.754_877_666_246_692_8, 0.569_840_290_998_053_3].map(fraction);
    let strength = 0.8 * (-4.0 * fraction(0.618_033_988_749_894_9)).exp() + 0.05;
    [1.8 * row - 0.9, 1.8 * column - 0.9, strength]
}

fn galaxy(y: f64, x: f64) -> f64 {
    // Turned by 35° and inclined.
    let (sine, cosine) = 0.61_f64.sin_cos();
    let (along, across) = (cosine * x + sine * y, (cosine * y - sine * x) * 2.4);
    let radius = along.hypot(across);
    let angle = across.atan2(along);
    let arms = 0.5 + 0.5 * (2.0 * (angle - 5.5 * (radius + 0.05).ln() / 2.0)).cos();
    let disk = (-radius / 0.28).exp();
    0.55 * (-(radius / 0.07).powi(2)).exp() + 0.75 * disk * (0.25 + 0.75 * arms.powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_a_picture_and_most_of_the_sky_is_dark() -> Result<()> {
        let sky = sky(96, 128)?;
        assert!(sky.iter().all(|value| (0.0..=1.0).contains(value)));
        let bright = sky.iter().filter(|value| **value > 0.5).count();
        let dark = sky.iter().filter(|value| **value < 0.1).count();
        assert!(bright > 20 && dark > sky.len() / 2, "{bright} {dark}");
        assert!(super::sky(4, 100).is_err());
        Ok(())
    }
}
