//! Linear maps whose norm is a prior: differences of total variation, and coefficients of wavelets. Primal-dual methods have a
//! dual variable for them and need no prox.

use crate::array::{slice, slice_mut};
use crate::denoise::Wavelets;
use crate::denoise::differences::on_images::{add_gradient, gradient_adjoint, project};
use crate::denoise::wavelets::frame::Frame;
use crate::error::{Error, Result};
use crate::image::{Image, Layout};

/// A linear map `K` whose norm is a prior.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Analysis {
    /// Differences of neighbours; the norm is total variation.
    Differences,
    /// Coefficients in bases; the norm is the sum of their absolute values. Their range is not used.
    Wavelets(Wavelets),
}

impl Analysis {
    /// The arrays as large as the image that its dual has.
    #[must_use]
    pub fn places(&self, image: &[usize]) -> usize {
        match self {
            Self::Differences => image.len().saturating_sub(2),
            Self::Wavelets(wavelets) => wavelets.bases.len(),
        }
    }

    /// An upper bound of `‖K‖²`.
    pub(super) fn squared_norm(&self, image: &[usize]) -> f64 {
        match self {
            // At most 4 per axis.
            Self::Differences => 4.0 * self.places(image) as f64,
            // Orthogonal bases, divided by the root of their number.
            Self::Wavelets(_) => 1.0,
        }
    }

    /// A dual of zeros.
    pub(super) fn zeros(&self, image: &Image) -> Image {
        image.zeros_with_axis(2, self.places(image.shape()))
    }

    /// `dual ← projection of dual + step · K point` to what the norm times `weight` allows.
    pub(super) fn ascend(
        &self,
        dual: &mut Image,
        step: f64,
        point: &Image,
        weight: f64,
    ) -> Result<()> {
        match self {
            Self::Differences => {
                add_gradient(dual, step as f32, point)?;
                project(dual, point, weight as f32);
            }
            Self::Wavelets(wavelets) => {
                let mut frame = frame_of(wavelets, point)?;
                let dual = slice_mut(dual.local_mut());
                frame.add_analysis(dual, step as f32, &slice(point.local()));
                frame.project(dual, weight as f32);
            }
        }
        Ok(())
    }

    /// `Kᵀ dual`, in the layout of `like`.
    pub(super) fn adjoint(&self, dual: &Image, like: &Image) -> Result<Image> {
        match self {
            Self::Differences => gradient_adjoint(dual, like),
            Self::Wavelets(wavelets) => {
                let mut frame = frame_of(wavelets, like)?;
                let mut result = like.zeros_like();
                frame.add_synthesis(slice_mut(result.local_mut()), 1.0, &slice(dual.local()));
                Ok(result)
            }
        }
    }
}

fn frame_of(wavelets: &Wavelets, image: &Image) -> Result<Frame> {
    match image.layout() {
        Layout::Replicated => Ok(Frame::new(wavelets, &image.shape()[2..])),
        Layout::Sharded(_) => Err(Error::argument(
            "wavelets",
            "they are coefficients of whole images, and this one is in shards; replicate the image, or use total variation",
        )),
    }
}
