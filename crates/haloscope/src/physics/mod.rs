//! Measurement operators: what an instrument does to an image.
//!
//! An operator is constructed for one image shape, so everything that depends on the shape (transforms
//! of kernels, geometry of rays) is prepared once; it then runs on any batch of such images. To write
//! one, implement the `apply_…` functions on plain slices. Users call `forward`, `vjp` and `adjoint`,
//! which take whole arrays and check their shapes.

mod affine;
mod blur;
mod compose;
mod decolorize;
mod downsampling;
mod fixed_point;
pub mod fourier;
mod identity;
mod inpainting;
mod matrix;
mod reach;
pub(crate) mod region;
mod saturation;
mod scaled;
mod stack;
pub mod tomography;
mod varying_blur;
mod window;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ndarray::{ArrayD, IxDyn};

use crate::array::{Array, View, slice, slice_mut};
use crate::error::{Error, Result};

pub use affine::Affine;
pub use blur::{Blur, BlurMethod, Padding, gaussian_width, kernels};
pub use compose::Compose;
pub use decolorize::Decolorize;
pub use downsampling::{Downsampling, DownsamplingFilter};
pub use fixed_point::FixedPoint;
pub use identity::Identity;
pub use inpainting::Inpainting;
pub use matrix::Matrix;
pub use reach::Reach;
pub use saturation::{Clipping, Saturation};
pub use scaled::Scaled;
pub use stack::Stack;
pub use varying_blur::VaryingBlur;
pub use window::WindowPhysics;

/// A differentiable map from images to measurements.
pub trait Physics: Send + Sync + fmt::Debug {
    /// What it is called in messages and job files: `blur`.
    fn name(&self) -> &str;

    /// The shape of an image, without the batch: (channel, spatial…).
    fn image_shape(&self) -> &[usize];

    /// The shape of a measurement, without the batch.
    fn measurement_shape(&self) -> &[usize];

    /// Writes the measurements of `batch` images, over whatever `measurement` holds.
    ///
    /// Both are contiguous and of the right length: callers go through [`forward`](Self::forward).
    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()>;

    /// Writes `Jᵀ v` at `image`, where `J` is the derivative there; for linear operators the adjoint.
    fn apply_vjp(&self, batch: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
        let _ = image;
        match self.as_linear() {
            Some(linear) => linear.apply_adjoint(batch, v, result),
            None => Err(Error::argument(self.name(), "this operator has no derivative")),
        }
    }

    /// The operator as a linear one, if it is linear.
    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        None
    }

    /// The operator as one that can work on parts of the image, if it can.
    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        None
    }

    /// About how much work a forward or adjoint on one image is, in multiply-adds; ranks are
    /// balanced by it.
    fn cost(&self) -> f64 {
        let elements = |shape: &[usize]| shape.iter().product::<usize>() as f64;
        elements(self.image_shape()) + elements(self.measurement_shape())
    }

    /// How far from its own place in the image a measurement depends on it.
    fn reach(&self) -> Reach {
        Reach::Everywhere
    }

    /// What the instrument measures of the images, without noise.
    fn forward(&self, image: &View) -> Result<Array> {
        let batch = self.check_image(image)?;
        let mut measurement = zeros(batch, self.measurement_shape());
        self.apply_forward(batch, &slice(image), slice_mut(&mut measurement))?;
        Ok(measurement)
    }

    /// [`forward`](Self::forward) into an array that is there already.
    fn forward_into(&self, image: &View, measurement: &mut View) -> Result<()> {
        let batch = self.check_image(image)?;
        check(self.name(), "measurement", self.measurement_shape(), measurement, Some(batch))?;
        with_slice_mut(measurement, |to| self.apply_forward(batch, &slice(image), to))
    }

    /// `Jᵀ v`, where `J` is the derivative at `image`.
    fn vjp(&self, image: &View, v: &View) -> Result<Array> {
        let batch = self.check_image(image)?;
        check(self.name(), "measurement", self.measurement_shape(), v, Some(batch))?;
        let mut result = zeros(batch, self.image_shape());
        self.apply_vjp(batch, &slice(image), &slice(v), slice_mut(&mut result))?;
        Ok(result)
    }

    /// The number of images in a batch of this operator's images.
    fn check_image(&self, image: &View) -> Result<usize> {
        check(self.name(), "image", self.image_shape(), image, None)
    }

    /// The number of measurements in a batch of this operator's measurements.
    fn check_measurement(&self, measurement: &View) -> Result<usize> {
        check(self.name(), "measurement", self.measurement_shape(), measurement, None)
    }
}

/// A linear map from images to measurements, with its exact adjoint.
///
/// An implementation also overrides [`Physics::as_linear`] with `Some(self)`.
pub trait LinearPhysics: Physics {
    /// Writes `Aᵀ y` for a batch, over whatever `image` holds.
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()>;

    /// `Aᵀ y`.
    fn adjoint(&self, measurement: &View) -> Result<Array> {
        let batch = self.check_measurement(measurement)?;
        let mut image = zeros(batch, self.image_shape());
        self.apply_adjoint(batch, &slice(measurement), slice_mut(&mut image))?;
        Ok(image)
    }

    /// [`adjoint`](Self::adjoint) into an array that is there already.
    fn adjoint_into(&self, measurement: &View, image: &mut View) -> Result<()> {
        let batch = self.check_measurement(measurement)?;
        check(self.name(), "image", self.image_shape(), image, Some(batch))?;
        with_slice_mut(image, |to| self.apply_adjoint(batch, &slice(measurement), to))
    }

    /// `AᵀA x`.
    fn normal(&self, image: &View) -> Result<Array> {
        self.adjoint(&self.forward(image)?)
    }

    /// `‖A‖²`, the largest eigenvalue of `AᵀA`, where it is known exactly.
    fn exact_squared_norm(&self) -> Option<f64> {
        None
    }

    /// The solution of `(AᵀA + shift·I) x = b` where it has a closed form, else `None`. With a shift of
    /// 0 it is the one of least norm.
    ///
    /// Pseudo-inverse (`b = Aᵀy`, shift 0) and prox of the L2 fidelity both come down to this.
    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let _ = (b, shift);
        None
    }

    /// The operator on images that are 0 outside a part (ranges along the spatial axes, none of them empty), as an operator on
    /// images of that part; `None` if it cannot be made.
    ///
    /// For operators that see everything and so have no [windows](WindowPhysics). `A x` is the sum of what parts that tile the
    /// image give, for which [`FixedPoint`] makes the order irrelevant, and the adjoint gives its part of `Aᵀ y`, both up to
    /// rounding. Their bits depend on the part, so ranks that are to agree take the same parts.
    fn restricted(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        let _ = image;
        None
    }

    /// What of the measurement depends on a part of the image: ranges along the axes behind the channels, none of them empty. By
    /// default all of it.
    ///
    /// Ranks that hold parts of the image exchange no more than this. An operator that says less than everything has
    /// [`restricted_to_shadow`](Self::restricted_to_shadow), too.
    fn shadow(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        let _ = image;
        self.measurement_shape()[1..].iter().map(|side| 0..*side).collect()
    }

    /// As [`restricted`](Self::restricted), but what is measured is the [`shadow`](Self::shadow) of the part alone.
    fn restricted_to_shadow(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        self.restricted(image)
    }
}

/// The batch of an array that must be `shape` behind its first axis.
fn check(
    operator: &str,
    role: &str,
    shape: &[usize],
    array: &View,
    batch: Option<usize>,
) -> Result<usize> {
    let found = array.shape();
    let fits = found.len() == shape.len() + 1 && found[1..] == *shape;
    if fits && found[0] > 0 && batch.is_none_or(|batch| batch == found[0]) {
        return Ok(found[0]);
    }
    let expected = match batch {
        Some(batch) => format!("{batch} of {shape:?} are expected"),
        None => format!("a batch of {shape:?} is expected: (batch, channel, spatial…)"),
    };
    Err(Error::Shape { what: format!("the {role} of {operator}"), expected, found: found.to_vec() })
}

fn zeros(batch: usize, shape: &[usize]) -> Array {
    let mut full = vec![batch];
    full.extend_from_slice(shape);
    ArrayD::zeros(IxDyn(&full))
}

fn with_slice_mut(array: &mut View, write: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<()> {
    if let Some(slice) = array.as_slice_mut() {
        return write(slice);
    }
    let mut standard = Array::zeros(array.raw_dim());
    write(slice_mut(&mut standard))?;
    array.assign(&standard);
    Ok(())
}
