//! Denoisers: the priors of plug-and-play methods.
//!
//! A [`Denoiser`] takes images and their noise level. Tiling, distribution and solvers are built on
//! this trait and work with networks, classical methods and closures alike.

mod axes;
pub(crate) mod differences;
mod function;
mod level;
mod network;
mod pass;
mod shard;
pub(crate) mod slab;
mod total_variation;
pub(crate) mod wavelets;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haloscope_scratch::{Visited, in_pieces};

use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::image::{Image, Layout};

pub use axes::{Averaged, Axes};
pub use function::{FunctionDenoiser, denoiser_fn};
pub use level::NoiseLevel;
pub use network::NetworkDenoiser;
pub use pass::{MOST_PASS_BYTES, Pass};
pub use shard::{Exchanges, NetworkShard};
pub use total_variation::TotalVariation;
pub use wavelets::{Bases, Wavelets};

/// Removes noise of a known level from images.
///
/// The result for one image must not depend on the others in the batch; then tiles may be batched in any
/// way, and any number of ranks gives the same bits.
pub trait Denoiser: Send + Sync + fmt::Debug {
    /// Its name in messages: `drunet`.
    fn name(&self) -> &str;

    /// The images without their noise, whose standard deviation is `level`.
    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array>;

    /// The same for images in any layout. All ranks that share an image call it.
    ///
    /// # Errors
    /// If the image is in shards and the denoiser needs whole images.
    fn denoise_image(&self, image: &Image, level: &NoiseLevel) -> Result<Image> {
        match image.layout() {
            Layout::Replicated => Ok(self.denoise(image.local(), level)?.into()),
            Layout::Sharded(_) => Err(Error::argument(
                self.name(),
                "it denoises whole images, and this one is in shards; replicate the image, or use a network or total variation",
            )),
        }
    }

    /// [`denoise`](Self::denoise), where `observe` is called for each part of the work as it ends, with the time that it
    /// took: a network's layers.
    fn denoise_observed(
        &self,
        image: &View,
        level: &NoiseLevel,
        observe: &mut dyn FnMut(&str, Duration),
    ) -> Result<Array> {
        let _ = observe;
        self.denoise(image, level)
    }

    /// The sides of a tile should be multiples of this, so that nothing is padded.
    fn alignment(&self) -> usize {
        1
    }

    /// How many of an image's sides it sees at once: 2 for a network of pictures, which treats the slices of a volume one by
    /// one. `None` if it sees all that there are.
    fn sides(&self) -> Option<usize> {
        None
    }

    /// The bytes that it takes for a batch of this shape besides input and output, if it knows.
    fn memory(&self, shape: &[usize]) -> Result<Option<usize>> {
        let _ = shape;
        Ok(None)
    }

    /// The network, if it is one: networks can denoise parts of an image at once and give the bits of the whole.
    fn network(&self) -> Option<&NetworkDenoiser> {
        None
    }

    /// What this rank has to do for images of this shape, (batch, channel, spatial…): all of it, unless ranks share it.
    fn work(&self, image: &[usize]) -> Result<Work> {
        let pixels = image.iter().skip(2).product::<usize>() as u64;
        Ok(Work { computed: pixels, kept: pixels })
    }
}

/// What one rank does for a denoised image, in pixels of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The pixels that the denoiser computes: those of the rank's tiles, their overlap included.
    pub computed: u64,
    /// Those of them that become part of the image.
    pub kept: u64,
}

impl<D: Denoiser + ?Sized> Denoiser for Arc<D> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        (**self).denoise(image, level)
    }

    fn denoise_image(&self, image: &Image, level: &NoiseLevel) -> Result<Image> {
        (**self).denoise_image(image, level)
    }

    fn denoise_observed(
        &self,
        image: &View,
        level: &NoiseLevel,
        observe: &mut dyn FnMut(&str, Duration),
    ) -> Result<Array> {
        (**self).denoise_observed(image, level, observe)
    }

    fn alignment(&self) -> usize {
        (**self).alignment()
    }

    fn sides(&self) -> Option<usize> {
        (**self).sides()
    }

    fn memory(&self, shape: &[usize]) -> Result<Option<usize>> {
        (**self).memory(shape)
    }

    fn network(&self) -> Option<&NetworkDenoiser> {
        (**self).network()
    }

    fn work(&self, image: &[usize]) -> Result<Work> {
        (**self).work(image)
    }
}

/// Rejects arrays that are not images, before they spread through the reconstruction.
pub(crate) fn check_finite(what: &'static str, image: &View) -> Result<()> {
    let is_bad = |value: &f32| !value.is_finite();
    let bad = match image.as_slice() {
        None => image.iter().position(is_bad),
        Some(values) => {
            let mut found = None;
            in_pieces(values.len(), &[Visited::of(values)], |piece| {
                if found.is_none() {
                    let begin = piece.start;
                    found = values[piece].iter().position(is_bad).map(|index| begin + index);
                }
            });
            found
        }
    };
    match bad {
        None => Ok(()),
        Some(index) => Err(Error::Numeric {
            what: what.into(),
            reason: format!(
                "element {index} of the image of shape {:?} is not finite; a step size that is too \
                 large makes an iteration diverge",
                image.shape()
            ),
        }),
    }
}
