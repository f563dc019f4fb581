//! Priors: what is known about images before anything is measured.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::stretch::Stretch;
use crate::denoise::{Denoiser, NoiseLevel, TotalVariation, Wavelets, Work};
use crate::error::{Error, Result};
use crate::image::Image;

/// The prior term, which has a prox, a gradient, or both.
pub trait Prior: Send + Sync + fmt::Debug {
    /// The prox of `step` times the prior. The image is the prior's to work in.
    fn prox(&self, image: Image, step: f64) -> Result<Image>;

    /// The gradient of the prior; for a denoiser, what it removes.
    fn gradient(&self, image: &Image) -> Result<Image> {
        let _ = image;
        Err(Error::argument("prior", "this prior has no gradient; use a method with its prox"))
    }
}

/// A denoiser instead of a prox (plug-and-play) or of a gradient (regularisation by denoising).
#[derive(Clone, Debug)]
pub struct Plug {
    denoiser: Arc<dyn Denoiser>,
    level: NoiseLevel,
    range: Range,
    /// The values that are 0 and 1 to the denoiser.
    scale: (f32, f32),
    /// What spreads faint values between these.
    stretch: Option<Stretch>,
}

/// What is done to an image around the denoiser.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Range {
    /// Nothing.
    #[default]
    AsIs,
    /// Clamps values to these bounds before and after denoising.
    Clamp(f32, f32),
    /// Scales the image to 0…1 by its own extremes, anew each time, and back. The noise level is that of images from 0 to 1.
    /// [`Plug::scale`] is the same with a range that stays.
    Normalise,
}

impl Range {
    /// The bounds, if there are any; else whether the image is scaled.
    #[must_use]
    pub fn of(bounds: Option<(f32, f32)>, normalise: bool) -> Self {
        match bounds {
            Some((low, high)) => Self::Clamp(low, high),
            None if normalise => Self::Normalise,
            None => Self::AsIs,
        }
    }
}

impl Plug {
    /// A denoiser with the noise level that it is given.
    pub fn new(denoiser: Arc<dyn Denoiser>, level: impl Into<NoiseLevel>) -> Self {
        let (range, scale) = (Range::default(), (0.0, 1.0));
        Self { denoiser, level: level.into(), range, scale, stretch: None }
    }

    /// The same with a preparation of the image around the denoiser.
    #[must_use]
    pub fn range(mut self, range: Range) -> Self {
        self.range = range;
        self
    }

    /// For images whose values are in other units than those that the denoiser was trained on: `black` becomes 0 and
    /// `white` becomes 1 for it, and back. The noise level is one of images from 0 to 1, the bounds of
    /// [`Range::Clamp`] are values of the image. [`Range::Normalise`] finds both values itself and does not use these.
    pub fn scale(mut self, black: f32, white: f32) -> Result<Self> {
        if !(black.is_finite() && white.is_finite() && black < white) {
            let reason =
                format!("black is {black} and white is {white}; white must be above black");
            return Err(Error::argument("scale", reason));
        }
        self.scale = (black, white);
        Ok(self)
    }

    /// For images of a large dynamic range: what is from 0 to 1 is stretched before the denoiser sees it, and back. The noise
    /// level stays one of images that are not; the denoiser is told the [level at the background](Stretch::level).
    #[must_use]
    pub fn stretch(mut self, stretch: Stretch) -> Self {
        self.stretch = Some(stretch);
        self
    }

    /// The same with another level, for schedules.
    #[must_use]
    pub fn with_level(&self, level: impl Into<NoiseLevel>) -> Self {
        Self { level: level.into(), ..self.clone() }
    }

    /// The denoised image.
    pub fn denoise(&self, image: &Image) -> Result<Image> {
        self.denoise_any(Cow::Borrowed(image))
    }

    /// [`denoise`](Self::denoise) of an image that is not needed any more: it is clamped and scaled where it is.
    pub fn denoise_owned(&self, image: Image) -> Result<Image> {
        self.denoise_any(Cow::Owned(image))
    }

    /// Copies the image only if it has to be changed and is somebody else's.
    fn denoise_any(&self, mut image: Cow<'_, Image>) -> Result<Image> {
        let range = match self.range {
            Range::Clamp(low, high) => Some((low, high)),
            Range::AsIs | Range::Normalise => None,
        };
        let (black, white) = match self.range {
            Range::Normalise => image.extremes()?,
            Range::AsIs | Range::Clamp(..) => self.scale,
        };
        // What is flat has nothing to remove.
        if black == white {
            return Ok(image.into_owned());
        }
        if range.is_some() {
            image.to_mut().clamp(range);
        }
        let (is_scaled, width) = ((black, white) != (0.0, 1.0), white - black);
        if is_scaled {
            image.to_mut().map(|value| (value - black) / width);
        }
        let level = match &self.stretch {
            Some(stretch) => {
                image.to_mut().map(|value| stretch.apply(value));
                Cow::Owned(stretch.level(&self.level))
            }
            None => Cow::Borrowed(&self.level),
        };
        let mut result = self.denoiser.denoise_image(&image, &level)?;
        drop(image);
        if let Some(stretch) = &self.stretch {
            result.map(|value| stretch.undo(value));
        }
        if is_scaled {
            result.map(|value| value * width + black);
        }
        result.clamp(range);
        Ok(result)
    }

    /// What this rank has to do for each image of this shape, (batch, channel, spatial…).
    pub fn work(&self, image: &[usize]) -> Result<Work> {
        self.denoiser.work(image)
    }

    /// What a noise level of 1 corresponds to in the values of this image.
    pub fn unit(&self, image: &Image) -> Result<f64> {
        let (black, white) = match self.range {
            Range::Normalise => image.extremes()?,
            Range::AsIs | Range::Clamp(..) => self.scale,
        };
        // A flat image has no range.
        Ok(if black < white { f64::from(white - black) } else { 1.0 })
    }
}

impl Prior for Plug {
    /// The denoised image. The step has no effect; the level determines how much is removed.
    fn prox(&self, image: Image, _step: f64) -> Result<Image> {
        self.denoise_owned(image)
    }

    fn gradient(&self, image: &Image) -> Result<Image> {
        let mut removed = self.denoise(image)?;
        removed.update(image, |denoised, image| *denoised = image - *denoised)?;
        Ok(removed)
    }
}

/// `weight · TV`.
///
/// With a [`DistributedTotalVariation`](crate::distribute::DistributedTotalVariation) the ranks share its prox; with
/// [`TotalVariation`] every rank computes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TotalVariationPrior<D = TotalVariation> {
    /// The weight.
    pub weight: f64,
    /// How its prox is computed.
    pub denoiser: D,
}

impl<D: Denoiser> Prior for TotalVariationPrior<D> {
    fn prox(&self, image: Image, step: f64) -> Result<Image> {
        self.denoiser.denoise_image(&image, &((step * self.weight) as f32).into())
    }
}

/// `weight · ‖Ψᵀx‖₁`, of coefficients of [`Wavelets`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaveletPrior {
    /// The weight.
    pub weight: f64,
    /// The bases, and how the prox is computed.
    pub denoiser: Wavelets,
}

impl Prior for WaveletPrior {
    fn prox(&self, image: Image, step: f64) -> Result<Image> {
        self.denoiser.denoise_image(&image, &((step * self.weight) as f32).into())
    }
}
