//! What tiles do to a result: a noisy image denoised in tiles, against the same network on the whole image, and the time of the tiles.

use std::sync::Arc;
use std::time::Instant;

use haloscope::denoise::Denoiser;
use haloscope::distribute::distribute_with;
use haloscope::metrics::psnr;
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::landscape;
use haloscope::tiling::{Strategy, Tiling};
use haloscope::{Array, Digest};
use haloscope_comm::ContextOptions;
use haloscope_job::{ModelOptions, OpenedModel};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;

use super::Tell;
use crate::error::{Error, Result};
use crate::row::Row;
use crate::tiles::tiling;
use crate::trial::{Answer, Trial};

/// Denoises the image exactly and in tiles, once for nothing and once for each repetition.
pub(super) fn measure(trial: &Trial, tell: &Tell<'_>) -> Result<()> {
    let configuration = &trial.configuration;
    let level = configuration.level.as_deref().and_then(|level| level.parse::<f32>().ok());
    let level = level.ok_or_else(|| {
        Error::argument("level", format!("{:?}; a number is needed", configuration.level))
    })?;
    let clean = landscape(configuration.height, configuration.width)?;
    let mut noisy = clean.clone();
    let source = NoiseSource { seed: trial.settings.seed, operator: 0 };
    Noise::gaussian(f64::from(level))?.add(&mut noisy, source)?;
    tell(Answer::Data(Digest::of(&noisy).to_string()))?;

    let name = configuration.model.parse::<ModelName>()?;
    let opened =
        OpenedModel::open(&name, clean.shape()[1], clean.ndim() - 2, &ModelOptions::default())?;
    let options = EngineOptions { threads: configuration.threads, ..EngineOptions::default() };
    let network = Arc::new(opened.into_denoiser(options)?);
    let threads = Some(configuration.threads);
    let ctx = ContextOptions { threads, ..ContextOptions::default() }.solo()?;
    let whole = distribute_with(network.clone(), &ctx, Tiling::new(Strategy::Exact))?;
    let tiles = distribute_with(network, &ctx, tiling(configuration)?)?;
    let work = tiles.work(clean.shape())?;
    let exact = whole.denoise(&noisy, &level.into())?;
    tiles.denoise(&noisy, &level.into())?;
    for &repetition in &trial.repetitions {
        let begin = Instant::now();
        let tiled = tiles.denoise(&noisy, &level.into())?;
        let seconds = begin.elapsed().as_secs_f64();
        let (rms, largest) = distance(&tiled, &exact);
        let row = Row {
            pixels_computed: Some(work.computed),
            pixels_kept: Some(work.kept),
            seam_rms: Some(rms),
            seam_largest: Some(largest),
            psnr_db: psnr(&tiled, &clean, 1.0)?.first().copied(),
            ..configuration.row(repetition, 0, seconds)
        };
        let image = Some(Digest::of(&tiled).to_string());
        tell(Answer::Repetition { rows: vec![row], image })?;
    }
    Ok(())
}

/// The root of the mean square and the largest of the differences.
fn distance(found: &Array, expected: &Array) -> (f64, f64) {
    let differences = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).abs());
    let (sum, largest) = differences
        .fold((0.0, 0.0), |(sum, most): (f64, f64), one| (sum + one * one, most.max(one)));
    ((sum / found.len().max(1) as f64).sqrt(), largest)
}
