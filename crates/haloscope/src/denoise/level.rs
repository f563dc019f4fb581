//! The standard deviation of noise, in the units of the image.

use crate::array::Array;
use crate::error::{Error, Result};

/// The standard deviation of the noise in a batch of images.
///
/// ```
/// use haloscope::denoise::NoiseLevel;
///
/// let level: NoiseLevel = 0.1.into();
/// assert!(level.check(&[2, 3, 16, 16]).is_ok());
/// assert!(NoiseLevel::PerImage(vec![0.1]).check(&[2, 3, 16, 16]).is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum NoiseLevel {
    /// The same everywhere.
    Uniform(f32),
    /// One for each image of the batch.
    PerImage(Vec<f32>),
    /// One for each pixel: (batch or 1, 1, spatial…).
    Map(Array),
}

impl From<f32> for NoiseLevel {
    fn from(level: f32) -> Self {
        Self::Uniform(level)
    }
}

impl NoiseLevel {
    /// Rejects levels that do not fit images of this shape, (batch, channel, spatial…), or are
    /// invalid.
    pub fn check(&self, image: &[usize]) -> Result<()> {
        let good = |level: &f32| level.is_finite() && *level >= 0.0;
        let bad = |reason: String| Err(Error::argument("noise level", reason));
        let batch = image.first().copied().unwrap_or(0);
        let wrong = match self {
            Self::Uniform(level) => Some(*level).filter(|level| !good(level)),
            Self::PerImage(levels) if levels.len() != batch => {
                return bad(format!("{} levels for a batch of {batch}", levels.len()));
            }
            Self::PerImage(levels) => levels.iter().copied().find(|level| !good(level)),
            Self::Map(map) => {
                let shape = map.shape();
                let fits = shape.len() == image.len()
                    && (shape[0] == 1 || shape[0] == batch)
                    && shape[1] == 1
                    && shape[2..] == image[2..];
                if !fits {
                    return bad(format!(
                        "a map of shape {shape:?} for images of {image:?}; it has one channel, and one \
                         image or as many as they"
                    ));
                }
                map.iter().copied().find(|level| !good(level))
            }
        };
        match wrong {
            Some(level) => bad(format!("{level}; a level is finite and not negative")),
            None => Ok(()),
        }
    }

    /// The lowest and the highest.
    #[must_use]
    pub fn extremes(&self) -> [f32; 2] {
        let of = |levels: &mut dyn Iterator<Item = &f32>| {
            levels.fold([f32::INFINITY, 0.0], |[low, high], level| {
                [low.min(*level), high.max(*level)]
            })
        };
        match self {
            Self::Uniform(level) => [*level; 2],
            Self::PerImage(levels) => of(&mut levels.iter()),
            Self::Map(map) => of(&mut map.iter()),
        }
    }

    /// Appends the levels of the `pixels` of part `part` of image `image`, which is a whole one or a
    /// channel or slice. For levels that [`check`](Self::check) accepts.
    pub(crate) fn append_map(&self, image: usize, part: usize, pixels: usize, map: &mut Vec<f32>) {
        match self {
            Self::Uniform(level) => map.extend(std::iter::repeat_n(*level, pixels)),
            Self::PerImage(levels) => map.extend(std::iter::repeat_n(levels[image], pixels)),
            Self::Map(levels) => {
                let levels = levels.as_standard_layout();
                let volume: usize = levels.shape()[1..].iter().product();
                let image = if levels.shape()[0] == 1 { 0 } else { image };
                // Channels share their levels, slices do not.
                let begin = image * volume + part * pixels % volume;
                map.extend(levels.iter().skip(begin).take(pixels));
            }
        }
    }
}
