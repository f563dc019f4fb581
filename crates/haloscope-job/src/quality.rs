//! How near an image is to the truth.

use haloscope::metrics::{Ssim, mean, of_images, psnr};
use haloscope::{Array, Image, Result};
use serde::Serialize;

use crate::layout::Truth;

/// How near an image is to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// Peak signal-to-noise ratio, on average over the batch.
    pub psnr_db: f64,
    /// Structural similarity, unless the image is thinner than its window.
    pub ssim: Option<f64>,
}

impl Quality {
    /// Compares an image in shards with the truth; all ranks that share them call it.
    pub(crate) fn of_parts(image: &Image, truth: &Image, range: f64) -> Result<Self> {
        let similarity = Ssim::new(range)?;
        let reach = similarity.window().len() / 2;
        let has_room = image.shape()[2..].iter().all(|side| *side > reach);
        let ssim = has_room.then(|| of_images::ssim(&similarity, image, truth)).transpose()?;
        Ok(Self {
            psnr_db: mean(&of_images::psnr(image, truth, range)?),
            ssim: ssim.map(|ssim| mean(&ssim)),
        })
    }

    /// Compares an image with the truth.
    pub fn of(image: &Array, truth: &Truth) -> Result<Self> {
        let similarity = Ssim::new(truth.range)?;
        let reach = similarity.window().len() / 2;
        let has_room = image.shape()[2..].iter().all(|side| *side > reach);
        let ssim = has_room.then(|| similarity.per_image(image, &truth.image)).transpose()?;
        Ok(Self {
            psnr_db: mean(&psnr(image, &truth.image, truth.range)?),
            ssim: ssim.map(|ssim| mean(&ssim)),
        })
    }
}
