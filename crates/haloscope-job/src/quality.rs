//! How near an image is to the truth.

use haloscope::metrics::{Ssim, mean, of_images, psnr};
use haloscope::{Image, Result, View};
use serde::Serialize;

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

    /// Compares an image with the truth, whose black and white are `range` apart.
    pub fn of(image: &View, truth: &View, range: f64) -> Result<Self> {
        let psnr_db = mean(&psnr(image, truth, range)?);
        let similarity = Ssim::new(range)?;
        let reach = similarity.window().len() / 2;
        let has_room = image.shape()[2..].iter().all(|side| *side > reach);
        let ssim = has_room.then(|| similarity.per_image(image, truth)).transpose()?;
        Ok(Self { psnr_db, ssim: ssim.map(|ssim| mean(&ssim)) })
    }
}
