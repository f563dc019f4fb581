//! A saturating sensor: the one operator that is not linear.

use super::{Physics, Reach};
use crate::error::{Error, Result};

/// How values stay below the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clipping {
    /// `L tanh(x / L)`: like x for small values, never beyond ±L.
    Smooth,
    /// `min(max(x, 0), L)`, whose derivative is taken as 0 at and beyond the ends.
    Hard,
}

/// Every sample passes a curve that flattens at a limit `L`.
///
/// After another operator, such as a blur, it is used through [`Compose`](super::Compose).
///
/// ```
/// use haloscope::physics::{Clipping, Physics, Saturation};
///
/// let sensor = Saturation::new(&[1, 1, 2], 1.0, Clipping::Hard)?;
/// let image = ndarray::array![[[[0.5, 3.0]]]].into_dyn();
/// assert_eq!(sensor.forward(&image)?, ndarray::array![[[[0.5, 1.0]]]].into_dyn());
/// assert!(sensor.as_linear().is_none());
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Saturation {
    shape: Vec<usize>,
    limit: f32,
    clipping: Clipping,
}

impl Saturation {
    /// For images of a shape (channel, spatial…), with a positive limit.
    pub fn new(shape: &[usize], limit: f32, clipping: Clipping) -> Result<Self> {
        if limit.is_finite() && limit > 0.0 {
            return Ok(Self { shape: shape.to_vec(), limit, clipping });
        }
        Err(Error::argument(
            "saturation",
            format!("the limit is {limit}; a positive number is expected"),
        ))
    }

    fn value(&self, x: f32) -> f32 {
        match self.clipping {
            Clipping::Smooth => self.limit * (x / self.limit).tanh(),
            Clipping::Hard => x.clamp(0.0, self.limit),
        }
    }

    fn derivative(&self, x: f32) -> f32 {
        match self.clipping {
            Clipping::Smooth => 1.0 - (x / self.limit).tanh().powi(2),
            Clipping::Hard => f32::from(x > 0.0 && x < self.limit),
        }
    }
}

impl Physics for Saturation {
    fn name(&self) -> &'static str {
        "saturation"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }

    fn reach(&self) -> Reach {
        Reach::Local(0)
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        for (to, &x) in measurement.iter_mut().zip(image) {
            *to = self.value(x);
        }
        Ok(())
    }

    fn apply_vjp(&self, _batch: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
        for ((to, &x), v) in result.iter_mut().zip(image).zip(v) {
            *to = v * self.derivative(x);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::array::{Array, View, dot};
    use crate::physics::{Blur, Compose, Padding, kernels, slice};

    /// ⟨v, (f(x + h d) − f(x − h d)) / 2h⟩, the differences in f64.
    fn slope(operator: &dyn Physics, x: &Array, direction: &Array, v: &View) -> Result<f64> {
        let step = 1e-2;
        let (after, before) = (
            operator.forward(&(x + &(direction * step)))?,
            operator.forward(&(x - &(direction * step)))?,
        );
        let pairs = after.iter().zip(&before).zip(v);
        Ok(pairs.map(|((a, b), v)| (f64::from(*a) - f64::from(*b)) * f64::from(*v)).sum::<f64>()
            / (2.0 * f64::from(step)))
    }

    #[test]
    fn the_derivative_is_that_of_finite_differences_alone_and_after_a_blur() -> Result<()> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut array = || Array::from_shape_fn(vec![1, 1, 12, 12], |_| random.f32() * 2.0 - 0.7);
        let shape = [1, 12, 12];
        let smooth = Arc::new(Saturation::new(&shape, 0.8, Clipping::Smooth)?);
        let blur = Arc::new(Blur::new(&shape, &kernels::uniform(&[2, 3])?, Padding::Reflect)?);
        let both = Compose::new(Arc::<Saturation>::clone(&smooth), blur)?;
        assert!(both.as_linear().is_none());
        for operator in [&*smooth as &dyn Physics, &both] {
            let (x, direction, v) = (array(), array(), array());
            let expected = slope(operator, &x, &direction, &v)?;
            let found = dot(&slice(&operator.vjp(&x, &v)?), &slice(&direction));
            assert!((found - expected).abs() < 1e-3 * expected.abs(), "{found} and {expected}");
        }
        Ok(())
    }

    #[test]
    fn a_limit_that_is_not_positive_is_refused() {
        let message = Saturation::new(&[1], 0.0, Clipping::Hard).expect_err("refused").to_string();
        assert!(message.contains("limit is 0"), "{message}");
    }
}
