//! Radio interferometry: visibilities of a part of the sky.

use std::f64::consts::TAU;

use super::pixel_values;
use super::planes::{MOST_PLANES, plane_count, planes};
use super::sampled::{Parameters, Sampled};
use crate::View;
use crate::error::{Error, Result};
use crate::fourier::Complex;
use crate::physics::{LinearPhysics, Physics};

/// What an interferometer measures of the sky: `V_j = √weight_j Σ B(l, m) I(l, m) / n exp(−2πi (u_j l + v_j m − w_j (n − 1)))`,
/// where `n = √(1 − l² − m²)`.
///
/// The image is real, (1, rows, columns), in units for each pixel: `l` grows with the columns and `m` with the rows, from 0 in the
/// middle. Measurements are (2, visibility): the real parts and the imaginary parts, times the roots of the weights, by which data
/// must be [multiplied](Self::weighted), too. A long observation is a [`Stack`](crate::physics::Stack) of such operators, one for
/// each block of time or channel.
///
/// ```
/// use haloscope::Array;
/// use haloscope::physics::{Physics, fourier::Visibilities};
///
/// let uvw = [[0.0, 0.0, 0.0], [800.0, -120.0, 35.0]];
/// let telescope = Visibilities::new(&[1, 64, 64], &uvw, 5e-4, 1e-5)?;
/// let sky = Array::ones(vec![1, 1, 64, 64]);
/// assert!((telescope.forward(&sky)?[[0, 0, 0]] - 4096.0).abs() < 1.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Debug)]
pub struct Visibilities {
    shape: Vec<usize>,
    measured: Vec<usize>,
    weights: Option<Vec<f32>>,
    sampled: Sampled,
}

impl Visibilities {
    /// For images of a shape (1, rows, columns) with square cells of so many radians, at (u, v, w) in wavelengths, with a relative
    /// error of about `accuracy`.
    ///
    /// Where `w` is 0 everywhere, one transform does; otherwise w-planes are stacked.
    pub fn new(shape: &[usize], uvw: &[[f64; 3]], cell: f64, accuracy: f64) -> Result<Self> {
        Self::with(shape, uvw, cell, None, None, accuracy)
    }

    /// With weights for each visibility, 0 for those that are flagged, and a primary beam, (1, rows, columns), that the sky is
    /// multiplied with; 0 masks a pixel.
    pub fn with(
        shape: &[usize],
        uvw: &[[f64; 3]],
        cell: f64,
        weights: Option<&[f64]>,
        beam: Option<&View>,
        accuracy: f64,
    ) -> Result<Self> {
        let refuse = |reason: String| Err(Error::argument("visibilities", reason));
        let [1, rows, columns] = *shape else {
            return Err(Error::Shape {
                what: "the image of visibilities".into(),
                expected: "(1, rows, columns) is expected".into(),
                found: shape.to_vec(),
            });
        };
        if !(cell.is_finite() && cell > 0.0) || rows == 0 || columns == 0 {
            return refuse(format!(
                "{rows} × {columns} cells of {cell} rad; cells that are more than 0 are expected"
            ));
        }
        let place = |index: usize, side: usize| (index as f64 - (side / 2) as f64) * cell;
        let squares = (0..rows * columns).map(|pixel| {
            place(pixel / columns, rows).powi(2) + place(pixel % columns, columns).powi(2)
        });
        let squares: Vec<f64> = squares.collect();
        if squares.iter().any(|square| *square >= 1.0) {
            return refuse(format!(
                "{rows} × {columns} cells of {cell} rad reach beyond the horizon; smaller or fewer ones are expected"
            ));
        }
        if let Some(weights) = weights
            && (weights.len() != uvw.len()
                || weights.iter().any(|weight| !(weight.is_finite() && *weight >= 0.0)))
        {
            return refuse(format!(
                "{} weights for {} visibilities; one for each, finite and at least 0, is expected",
                weights.len(),
                uvw.len()
            ));
        }
        let finest = uvw.iter().map(|[u, v, _]| u.abs().max(v.abs())).fold(0.0, f64::max);
        if !uvw.iter().flatten().all(|value| value.is_finite()) {
            return refuse("some of u, v and w are not finite".into());
        }
        // Single precision may round what is just at the end beyond it.
        if finest * cell > 0.5 * (1.0 + 1e-6) {
            return refuse(format!(
                "u or v of {finest} wavelengths is finer than cells of {cell:e} rad show; {:e} rad or less is expected",
                0.5 / finest
            ));
        }
        let n_minus_one: Vec<f64> =
            squares.iter().map(|square| -square / ((1.0 - square).sqrt() + 1.0)).collect();
        let w: Vec<f64> = uvw.iter().map(|[_, _, w]| *w).collect();
        if let Some(count) = plane_count(&w, &n_minus_one).filter(|count| *count > MOST_PLANES) {
            let most = w.iter().fold(0.0_f64, |most, w| most.max(w.abs()));
            return refuse(format!(
                "w of up to {most} wavelengths needs about {count:.0} planes for this field, and {MOST_PLANES} are the most; w is in \
                 wavelengths, as u and v are"
            ));
        }
        let Some(stack) = planes(&w, &n_minus_one, accuracy) else {
            return refuse(format!("no kernel has an accuracy of {accuracy:e}"));
        };
        let mut map: Vec<Complex<f32>> = (n_minus_one.iter().zip(&stack.correction))
            .map(|(n, correction)| Complex::new((correction / (n + 1.0)) as f32, 0.0))
            .collect();
        if let Some(beam) = beam {
            let beam = pixel_values("visibilities", "primary beam", &shape[1..], beam)?;
            map.iter_mut().zip(beam).for_each(|(map, beam)| *map *= beam.re);
        }
        let points: Vec<f64> =
            uvw.iter().flat_map(|[u, v, _]| [TAU * v * cell, TAU * u * cell]).collect();
        let weights: Option<Vec<f32>> =
            weights.map(|weights| weights.iter().map(|weight| weight.sqrt() as f32).collect());
        let parameters = Parameters {
            shape,
            points: &points,
            map: Some(map),
            weights: weights.clone(),
            scale: 1.0,
            accuracy,
        };
        let sampled = Sampled::new(parameters, stack.planes)?;
        Ok(Self { shape: shape.to_vec(), measured: vec![2, uvw.len()], weights, sampled })
    }

    /// Visibilities, (batch, 2, visibility), times the roots of the weights: the data that belong to this operator.
    pub fn weighted(&self, visibilities: &View) -> Result<crate::Array> {
        self.check_measurement(visibilities)?;
        let mut weighted = visibilities.to_owned();
        if let Some(weights) = &self.weights {
            for mut row in weighted.lanes_mut(ndarray::Axis(2)) {
                row.iter_mut().zip(weights).for_each(|(value, weight)| *value *= weight);
            }
        }
        Ok(weighted)
    }

    /// The response to a point in the middle: the adjoint of its visibilities, divided by its value there.
    pub fn point_spread(&self) -> Result<crate::Array> {
        let mut point = vec![0.0; self.shape.iter().product()];
        let [rows, columns] = [self.shape[1], self.shape[2]];
        let middle = rows / 2 * columns + columns / 2;
        point[middle] = 1.0;
        let mut measured = vec![0.0; 2 * self.sampled.samples()];
        self.sampled.forward(&point, &mut measured)?;
        self.sampled.adjoint(&measured, &mut point)?;
        let peak = point[middle];
        if peak > 0.0 {
            for value in &mut point {
                *value /= peak;
            }
        }
        crate::Array::from_shape_vec(vec![1, 1, rows, columns], point)
            .map_err(|error| Error::argument("visibilities", error.to_string()))
    }
}

impl Physics for Visibilities {
    fn name(&self) -> &'static str {
        "visibilities"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measured
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        self.sampled.forward(image, measurement)
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        self.sampled.cost()
    }
}

impl LinearPhysics for Visibilities {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        self.sampled.adjoint(measurement, image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;

    #[test]
    fn the_point_spread_is_one_in_the_middle_and_symmetric() -> Result<()> {
        let uvw: Vec<[f64; 3]> =
            (0..50).map(|i| [f64::from(i * 7 % 41) * 2.0, f64::from(i * 5 % 37), 0.0]).collect();
        let telescope = Visibilities::new(&[1, 16, 16], &uvw, 1e-3, 1e-6)?;
        let spread = telescope.point_spread()?;
        assert!((spread[[0, 0, 8, 8]] - 1.0).abs() < 1e-5);
        assert!((spread[[0, 0, 6, 11]] - spread[[0, 0, 10, 5]]).abs() < 1e-4);
        Ok(())
    }

    #[test]
    fn flagged_visibilities_and_masked_pixels_do_not_count() -> Result<()> {
        let uvw = [[10.0, 20.0, 5.0], [-30.0, 4.0, -8.0]];
        let beam = Array::from_shape_fn(vec![1, 8, 8], |at| f32::from(at[1] > 2));
        let telescope =
            Visibilities::with(&[1, 8, 8], &uvw, 1e-2, Some(&[0.0, 4.0]), Some(&beam), 1e-5)?;
        let image = Array::from_shape_fn(vec![1, 1, 8, 8], |at| (at[2] * at[3]) as f32);
        let measured = telescope.forward(&image)?;
        assert_eq!((measured[[0, 0, 0]], measured[[0, 1, 0]]), (0.0, 0.0));
        let back = telescope.adjoint(&measured)?;
        assert!(back.indexed_iter().all(|(at, value)| (at[2] <= 2) == (*value == 0.0)));
        // The same as unweighted ones of the masked image, times the root of the weight.
        let plain = Visibilities::new(&[1, 8, 8], &uvw, 1e-2, 1e-5)?;
        let masked = &image * &beam.insert_axis(ndarray::Axis(0));
        let expected = telescope.weighted(&plain.forward(&masked)?)?;
        assert!(measured.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-3));
        Ok(())
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let message = |shape: &[usize], uvw: &[[f64; 3]], cell: f64| {
            Visibilities::new(shape, uvw, cell, 1e-4).expect_err("refused").to_string()
        };
        assert!(message(&[2, 8, 8], &[], 0.01).contains("[2, 8, 8]"));
        assert!(message(&[1, 8, 8], &[], 0.0).contains("0 rad"));
        assert!(message(&[1, 400, 8], &[], 0.01).contains("beyond the horizon"));
        assert!(message(&[1, 8, 8], &[[0.0, 51.0, 0.0]], 0.01).contains("51 wavelengths"));
        assert!(message(&[1, 8, 8], &[[f64::NAN, 0.0, 0.0]], 0.01).contains("not finite"));
        let wrong =
            Visibilities::with(&[1, 8, 8], &[[0.0; 3]], 0.01, Some(&[1.0, 2.0]), None, 1e-4);
        assert!(
            wrong.expect_err("two weights").to_string().contains("2 weights for 1 visibilities")
        );
    }
}
