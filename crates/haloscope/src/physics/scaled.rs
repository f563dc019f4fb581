//! A multiple of an operator.

use std::ops::Range;
use std::sync::Arc;

use super::{LinearPhysics, Physics, Reach, WindowPhysics};
use crate::array::{Array, View, scale};
use crate::error::{Error, Result};

/// `c A(x)`; linear if `A` is, with the norm and the closed form that follow from those of `A`.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::physics::{Identity, LinearPhysics, Scaled};
///
/// let double = Scaled::new(2.0, Arc::new(Identity::new(&[1, 8, 8])))?;
/// assert_eq!(double.exact_squared_norm(), Some(4.0));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scaled {
    factor: f32,
    operator: Arc<dyn Physics>,
}

impl Scaled {
    /// `factor` times an operator.
    pub fn new(factor: f32, operator: Arc<dyn Physics>) -> Result<Self> {
        if factor.is_finite() {
            return Ok(Self { factor, operator });
        }
        Err(Error::argument(
            "scaled",
            format!("the factor is {factor}; a finite number is expected"),
        ))
    }

    fn linear(&self) -> Result<&dyn LinearPhysics> {
        let reason = || {
            format!(
                "{} is not linear, so there is no adjoint; there is `vjp`",
                self.operator.name()
            )
        };
        self.operator.as_linear().ok_or_else(|| Error::argument("scaled", reason()))
    }

    /// The operator, on windows; asked for only where [`as_window`](Physics::as_window) found one.
    fn window(&self) -> &dyn WindowPhysics {
        self.operator.as_window().expect("the operator works on windows")
    }
}

impl Physics for Scaled {
    fn name(&self) -> &'static str {
        "scaled"
    }

    fn image_shape(&self) -> &[usize] {
        self.operator.image_shape()
    }

    fn measurement_shape(&self) -> &[usize] {
        self.operator.measurement_shape()
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        self.operator.apply_forward(batch, image, measurement)?;
        scale(measurement, self.factor);
        Ok(())
    }

    fn apply_vjp(&self, batch: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
        self.operator.apply_vjp(batch, image, v, result)?;
        scale(result, self.factor);
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        self.operator.as_linear().map(|_| self as &dyn LinearPhysics)
    }

    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        self.operator.as_window().map(|_| self as &dyn WindowPhysics)
    }

    fn cost(&self) -> f64 {
        self.operator.cost()
    }

    fn reach(&self) -> Reach {
        self.operator.reach()
    }
}

impl LinearPhysics for Scaled {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        self.linear()?.apply_adjoint(batch, measurement, image)?;
        scale(image, self.factor);
        Ok(())
    }

    fn exact_squared_norm(&self) -> Option<f64> {
        let squared = f64::from(self.factor).powi(2);
        Some(squared * self.operator.as_linear()?.exact_squared_norm()?)
    }

    /// `(c² AᵀA + s)⁻¹ b = (AᵀA + s / c²)⁻¹ b / c²`.
    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let squared = f64::from(self.factor).powi(2);
        let linear = self.operator.as_linear()?;
        if squared == 0.0 {
            let inverse = if shift > 0.0 { 1.0 / shift } else { 0.0 };
            return Some(linear.check_image(b).map(|_| b * inverse as f32));
        }
        let solution = linear.solve_normal(b, shift / squared)?;
        Some(solution.map(|solution| solution * (1.0 / squared) as f32))
    }

    fn restricted(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        Some(self.of_part(self.operator.as_linear()?.restricted(image)?))
    }

    fn shadow(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        let everywhere =
            || self.operator.measurement_shape()[1..].iter().map(|side| 0..*side).collect();
        self.operator.as_linear().map_or_else(everywhere, |linear| linear.shadow(image))
    }

    fn restricted_to_shadow(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        Some(self.of_part(self.operator.as_linear()?.restricted_to_shadow(image)?))
    }
}

impl Scaled {
    /// As many times what is measured of a part.
    fn of_part(&self, part: Result<Arc<dyn Physics>>) -> Result<Arc<dyn Physics>> {
        let scaled =
            |operator| Arc::new(Self { factor: self.factor, operator }) as Arc<dyn Physics>;
        part.map(scaled)
    }
}

impl WindowPhysics for Scaled {
    fn measurement_region(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        self.window().measurement_region(image)
    }

    fn image_reads(&self, measurement: &[Range<usize>]) -> Vec<Range<isize>> {
        self.window().image_reads(measurement)
    }

    fn measurement_reads(&self, image: &[Range<usize>]) -> Vec<Range<isize>> {
        self.window().measurement_reads(image)
    }

    fn apply_forward_window(
        &self,
        batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        self.window().apply_forward_window(batch, measurement, window, out)?;
        scale(out, self.factor);
        Ok(())
    }

    fn apply_adjoint_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        self.window().apply_adjoint_window(batch, image, window, out)?;
        scale(out, self.factor);
        Ok(())
    }

    fn window_bits_agree(&self) -> bool {
        self.window().window_bits_agree()
    }

    fn solve_normal_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        b: &[f32],
        shift: f64,
        out: &mut [f32],
    ) -> Option<Result<()>> {
        let squared = f64::from(self.factor).powi(2);
        if squared == 0.0 {
            let inverse = if shift > 0.0 { 1.0 / shift } else { 0.0 };
            out.copy_from_slice(b);
            scale(out, inverse as f32);
            return Some(Ok(()));
        }
        let solved = self.window().solve_normal_window(batch, image, b, shift / squared, out)?;
        scale(out, (1.0 / squared) as f32);
        Some(solved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::Identity;

    #[test]
    fn norm_and_closed_form_follow_from_those_of_the_operator() -> Result<()> {
        let scaled = Scaled::new(-3.0, Arc::new(Identity::new(&[1, 2])))?;
        let x = Array::ones(vec![1, 1, 2]);
        let b = scaled.normal(&x)? + &x * 2.0;
        assert_eq!(scaled.solve_normal(&b, 2.0).expect("a closed form")?, x);
        assert_eq!(scaled.exact_squared_norm(), Some(9.0));
        let nothing = Scaled::new(0.0, Arc::new(Identity::new(&[1, 2])))?;
        assert_eq!(nothing.solve_normal(&b, 0.0).expect("a closed form")?, &b * 0.0);
        assert!(Scaled::new(f32::NAN, Arc::new(Identity::new(&[1]))).is_err());
        Ok(())
    }
}
