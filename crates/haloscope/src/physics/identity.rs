//! The identity; with noise, the denoising problem.

use std::ops::Range;

use super::{LinearPhysics, Physics, Reach, WindowPhysics};
use crate::array::{Array, View, scale};
use crate::error::Result;

/// `A x = x`.
///
/// ```
/// use haloscope::physics::{Identity, Physics};
///
/// let image = ndarray::ArrayD::ones(vec![1, 3, 8, 8]);
/// assert_eq!(Identity::new(&[3, 8, 8]).forward(&image)?, image);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Identity {
    shape: Vec<usize>,
}

impl Identity {
    /// For images of a shape (channel, spatial…).
    #[must_use]
    pub fn new(shape: &[usize]) -> Self {
        Self { shape: shape.to_vec() }
    }
}

impl Physics for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        measurement.copy_from_slice(image);
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

impl LinearPhysics for Identity {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        image.copy_from_slice(measurement);
        Ok(())
    }

    fn exact_squared_norm(&self) -> Option<f64> {
        Some(1.0)
    }

    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let mut solution = b.as_standard_layout().into_owned();
        scale(solution.as_slice_mut()?, (1.0 / (1.0 + shift)) as f32);
        Some(Ok(solution))
    }
}

impl WindowPhysics for Identity {
    fn solve_normal_window(
        &self,
        _batch: usize,
        _image: &[Range<usize>],
        b: &[f32],
        shift: f64,
        out: &mut [f32],
    ) -> Option<Result<()>> {
        out.copy_from_slice(b);
        scale(out, (1.0 / (1.0 + shift)) as f32);
        Some(Ok(()))
    }
}
