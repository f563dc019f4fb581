//! A grey image from one of several channels.

use std::ops::Range;

use super::{LinearPhysics, Physics, Reach, WindowPhysics, slice_mut};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// A weighted sum of the channels.
///
/// ```
/// use haloscope::physics::{Decolorize, Physics};
///
/// let grey = Decolorize::new(&[3, 8, 8])?.forward(&ndarray::ArrayD::ones(vec![1, 3, 8, 8]))?;
/// assert_eq!(grey.shape(), [1, 1, 8, 8]);
/// assert!((grey[[0, 0, 0, 0]] - 1.0).abs() < 1e-4);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decolorize {
    shape: Vec<usize>,
    measurement: Vec<usize>,
    weights: Vec<f32>,
}

/// What Rec. 601 weighs red, green and blue with, as deepinv rounds it: the sum is 1.00007.
const REC_601: [f32; 3] = [0.4472 * 0.66851, 0.8781 * 0.66851, 0.1706 * 0.66851];

impl Decolorize {
    /// For images of three channels, red, green and blue, with the weights of Rec. 601.
    pub fn new(shape: &[usize]) -> Result<Self> {
        Self::with_weights(shape, &REC_601)
    }

    /// With a weight for each channel.
    pub fn with_weights(shape: &[usize], weights: &[f32]) -> Result<Self> {
        if shape.len() < 2 || shape.contains(&0) || shape[0] != weights.len() {
            let expected =
                format!("{} channels and the sides, none of them 0, are expected", weights.len());
            let what = "the image of decolorize".to_string();
            return Err(Error::Shape { what, expected, found: shape.to_vec() });
        }
        if weights.iter().any(|weight| !weight.is_finite()) {
            let reason = format!("the weights are {weights:?}; finite numbers are expected");
            return Err(Error::argument("decolorize", reason));
        }
        let mut measurement = shape.to_vec();
        measurement[0] = 1;
        Ok(Self { shape: shape.to_vec(), measurement, weights: weights.to_vec() })
    }

    /// Σ wᵢ², the one eigenvalue of the normal operator that is not 0.
    fn eigenvalue(&self) -> f64 {
        self.weights.iter().map(|&weight| f64::from(weight).powi(2)).sum()
    }

    /// `(AᵀA + shift)⁻¹`, or with a shift of 0 the pseudo-inverse, pixel by pixel.
    fn solve_in_place(&self, batch: usize, images: &mut [f32], shift: f64) {
        let samples = images.len() / (batch * self.weights.len());
        let eigenvalue = self.eigenvalue();
        let inverse = |value: f64| if value > 0.0 { 1.0 / value } else { 0.0 };
        let across = inverse(shift);
        let along = (inverse(eigenvalue + shift) - across) * inverse(eigenvalue);
        for image in images.chunks_mut((samples * self.weights.len()).max(1)) {
            for i in 0..samples {
                let places = (i..).step_by(samples).zip(&self.weights);
                let product: f64 =
                    places.clone().map(|(at, &w)| f64::from(w) * f64::from(image[at])).sum();
                for (at, &w) in places {
                    let value = across * f64::from(image[at]) + along * product * f64::from(w);
                    image[at] = value as f32;
                }
            }
        }
    }
}

impl Physics for Decolorize {
    fn name(&self) -> &'static str {
        "decolorize"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let samples = measurement.len() / batch;
        let images = image.chunks(samples * self.weights.len());
        for (image, grey) in images.zip(measurement.chunks_mut(samples)) {
            grey.fill(0.0);
            for (channel, weight) in image.chunks(samples).zip(&self.weights) {
                for (grey, value) in grey.iter_mut().zip(channel) {
                    *grey += weight * value;
                }
            }
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        Some(self)
    }

    fn reach(&self) -> Reach {
        Reach::Local(0)
    }
}

impl LinearPhysics for Decolorize {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let samples = measurement.len() / batch;
        let images = image.chunks_mut(samples * self.weights.len());
        for (image, grey) in images.zip(measurement.chunks(samples)) {
            for (channel, weight) in image.chunks_mut(samples).zip(&self.weights) {
                for (value, grey) in channel.iter_mut().zip(grey) {
                    *value = weight * grey;
                }
            }
        }
        Ok(())
    }

    fn exact_squared_norm(&self) -> Option<f64> {
        Some(self.eigenvalue())
    }

    /// At each pixel, the part of `b` along the weights and the part across them have one eigenvalue each.
    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let solve = || {
            let batch = self.check_image(b)?;
            let mut solution = b.as_standard_layout().into_owned();
            self.solve_in_place(batch, slice_mut(&mut solution), shift);
            Ok(solution)
        };
        Some(solve())
    }
}

impl WindowPhysics for Decolorize {
    fn solve_normal_window(
        &self,
        batch: usize,
        _image: &[Range<usize>],
        b: &[f32],
        shift: f64,
        out: &mut [f32],
    ) -> Option<Result<()>> {
        out.copy_from_slice(b);
        self.solve_in_place(batch, out, shift);
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::slice;

    #[test]
    fn the_normal_operator_is_inverted() -> Result<()> {
        let operator = Decolorize::new(&[3, 2, 2])?;
        let x = Array::from_shape_fn(vec![2, 3, 2, 2], |i| (i[1] * 5 + i[2] * 2 + i[3]) as f32);
        let b = operator.normal(&x)? + &x * 0.25;
        let solution = operator.solve_normal(&b, 0.25).expect("a closed form")?;
        assert!(crate::array::distance(&slice(&solution), &slice(&x)) < 1e-4);
        // With no shift, the solution of least norm has the same measurement.
        let least = operator.solve_normal(&operator.normal(&x)?, 0.0).expect("a closed form")?;
        let (again, measured) = (operator.forward(&least)?, operator.forward(&x)?);
        assert!(crate::array::distance(&slice(&again), &slice(&measured)) < 1e-4);
        assert!(crate::array::norm(&slice(&least)) < crate::array::norm(&slice(&x)));
        Ok(())
    }

    #[test]
    fn other_channels_are_refused() {
        let message = Decolorize::new(&[4, 8, 8]).expect_err("refused").to_string();
        assert!(message.contains("3 channels"), "{message}");
    }
}
