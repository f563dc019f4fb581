//! An image as patches, several of which the network gets at once.

use std::sync::Arc;
use std::time::Instant;

use haloscope::Digest;
use haloscope::denoise::{Axes, Denoiser, NetworkDenoiser};
use haloscope::distribute::distribute_with;
use haloscope::forecast::{Denoising, PriorWork, Workload};
use haloscope::memory::{peak_resident_bytes, resident_bytes};
use haloscope::phantom::landscape;
use haloscope::tiling::{Batch, Tiling};
use haloscope_comm::ContextOptions;
use haloscope_job::{ModelOptions, OpenedModel};
use haloscope_nn::engine::EngineOptions;

use super::Tell;
use crate::error::Result;
use crate::row::{Configuration, Row};
use crate::tiles::tiling;
use crate::trial::{Answer, Trial};
use haloscope_nn::models::ModelName;

/// Denoises the image, once for nothing and once for each repetition.
pub(super) fn measure(trial: &Trial, tell: &Tell<'_>) -> Result<()> {
    let configuration = &trial.configuration;
    let image = landscape(configuration.height, configuration.width)?;
    let (channels, axes) = (image.shape()[1], image.ndim() - 2);
    tell(Answer::Data(Digest::of(&image).to_string()))?;

    let name = configuration.model.parse::<ModelName>()?;
    let device = ModelOptions { device: configuration.device()?, ..ModelOptions::default() };
    let opened = OpenedModel::open(&name, channels, axes, &device)?;
    let options = EngineOptions { threads: configuration.threads, ..EngineOptions::default() };
    let threads = Some(configuration.threads);
    let ctx = ContextOptions { threads, ..ContextOptions::default() }.solo()?;
    let before = resident_bytes();
    let network = Arc::new(opened.into_denoiser(options)?);
    let denoiser = distribute_with(network.clone(), &ctx, tiling(configuration)?)?;
    let work = denoiser.work(image.shape())?;
    let level = (trial.settings.sigma as f32).into();

    denoiser.denoise(&image, &level)?;
    // What the network gets at once.
    let mut shape = vec![configuration.batch.unwrap_or(1), channels];
    shape.extend(tiling(configuration)?.plan(image.shape(), network.alignment(), 1)?.window());
    let predicted = network.plan(&shape)?.memory();
    let automatic = automatic_batch(configuration, &network, image.shape())?;
    for &repetition in &trial.repetitions {
        let begin = Instant::now();
        let denoised = denoiser.denoise(&image, &level)?;
        let seconds = begin.elapsed().as_secs_f64();
        let peak =
            peak_resident_bytes().zip(before).map(|(peak, before)| peak.saturating_sub(before));
        let digest = Digest::of(&denoised);
        let row = Row {
            peak_bytes: peak,
            predicted_bytes: Some(predicted.total() as u64),
            device_name: Some(network.device()),
            predicted_device_bytes: Some(predicted.device as u64),
            pixels_computed: Some(work.computed),
            pixels_kept: Some(work.kept),
            automatic_batch: Some(automatic as u64),
            ..configuration.row(repetition, 0, seconds)
        };
        tell(Answer::Repetition { rows: vec![row], image: Some(digest.to_string()) })?;
    }
    Ok(())
}

/// How many tiles the network would get at once if nobody said how many.
fn automatic_batch(
    configuration: &Configuration,
    network: &NetworkDenoiser,
    image: &[usize],
) -> Result<usize> {
    let tiling = Tiling { batch: Batch::Auto, ..tiling(configuration)? };
    let axes = Axes::Axial;
    let denoising = Denoising { denoiser: network, tiling, has_range: false, axes };
    let workload = Workload {
        image: image.to_vec(),
        measurements: vec![image[1..].to_vec()],
        ranks: 1,
        method: "pgd".parse()?,
        inner_iterations: 0,
        subsets: 1,
        prior: PriorWork::Network(denoising),
    };
    Ok(workload.forecast()?.batch)
}
