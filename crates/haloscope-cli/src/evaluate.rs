//! `haloscope evaluate`: how well a network removes noise from images that are known without it.
//!
//! Each image gets Gaussian noise that is not clipped, from a seed of its own; the result is rounded to 8 bits, as
//! in the published figures that it is to be compared with.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use haloscope::denoise::{Denoiser, NetworkDenoiser};
use haloscope::io::{self, ReadOptions};
use haloscope::metrics::{Ssim, psnr};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::{Array, metrics};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;
use indicatif::{ProgressBar, ProgressStyle};
use ndarray::Axis;
use serde::Serialize;

use crate::denoise::check_finite;
use crate::exit::Preparation;
use crate::threads::{self, parse_threads};
use haloscope_job::scale::Scale;
use haloscope_job::words::count;

/// The options of `haloscope evaluate`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Clean images, or folders of them
    #[arg(required = true)]
    images: Vec<PathBuf>,

    /// Network: builtin:color, builtin:gray, or a file with weights
    #[arg(long, short)]
    model: String,

    /// Standard deviations of the noise on a scale where white is 255: 15,25,50; or as fractions of white: 25/255
    #[arg(
        long,
        value_name = "SIGMA",
        value_delimiter = ',',
        default_value = "15,25,50",
        value_parser = parse_level
    )]
    levels: Vec<f32>,

    /// File with one name per line, without endings; other images in the folders are skipped
    #[arg(long, value_name = "FILE")]
    only: Option<PathBuf>,

    /// Number of threads; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    images: usize,
    threads: usize,
    levels: Vec<Level>,
}

#[derive(Serialize)]
struct Level {
    sigma: f32,
    noisy_psnr_db: f64,
    psnr_db: f64,
    ssim: f64,
    megapixels_per_second: f64,
}

/// Adds noise, removes it, and prints the mean quality for each level.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let threads = threads::or_all_cores(arguments.threads);
    let (files, denoiser) = prepare(arguments, threads).or_misuse()?;

    let bar = ProgressBar::new((files.len() * arguments.levels.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}  {eta} left")?);
    let mut levels = Vec::new();
    for level in &arguments.levels {
        let mut scores = Vec::new();
        for (index, file) in files.iter().enumerate() {
            bar.set_message(file.display().to_string());
            // Of the images before, nothing is left that a file which is wrong could spoil.
            let clean = read(file, &denoiser).or_misuse()?;
            let score = score(&denoiser, &clean, index, *level)
                .with_context(|| file.display().to_string())?;
            bar.suspend(|| {
                let (name, psnr, seconds) = (file.display(), score.psnr, score.seconds);
                log::info!("{name} with noise of {level}: {psnr:.2} dB in {seconds:.2} s");
            });
            scores.push(score);
            bar.inc(1);
        }
        let mean =
            |of: fn(&Score) -> f64| metrics::mean(&scores.iter().map(of).collect::<Vec<_>>());
        let pixels: f64 = scores.iter().map(|score| score.pixels).sum();
        let seconds: f64 = scores.iter().map(|score| score.seconds).sum();
        levels.push(Level {
            sigma: *level,
            noisy_psnr_db: mean(|score| score.noisy_psnr),
            psnr_db: mean(|score| score.psnr),
            ssim: mean(|score| score.ssim),
            megapixels_per_second: pixels / seconds / 1e6,
        });
    }
    bar.finish_and_clear();

    let report = Report { model: arguments.model.clone(), images: files.len(), threads, levels };
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        describe(&report)?
    };
    crate::print(&text)
}

/// The images, and the network, which is for all the levels.
fn prepare(arguments: &Arguments, threads: usize) -> Result<(Vec<PathBuf>, NetworkDenoiser)> {
    let files = list(arguments)?;
    let model = ModelName::in_job(&arguments.model)?.open(1, 2)?;
    for level in &arguments.levels {
        model.check_level(level / 255.0)?;
    }
    let options = EngineOptions { threads, ..EngineOptions::default() };
    Ok((files, NetworkDenoiser::new(model, options)?))
}

/// The images that were asked for, in a fixed order.
fn list(arguments: &Arguments) -> Result<Vec<PathBuf>> {
    let only = match &arguments.only {
        Some(path) => {
            Some(std::fs::read_to_string(path).with_context(|| path.display().to_string())?)
        }
        None => None,
    };
    let names: Option<Vec<&str>> = only.as_ref().map(|text| text.split_whitespace().collect());
    let is_wanted = |path: &Path| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_image = io::Format::of_name(&path.display().to_string()).is_some();
        is_image && names.as_ref().is_none_or(|names| names.contains(&stem))
    };
    let mut files = Vec::new();
    for path in &arguments.images {
        let metadata = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        if !metadata.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let mut found = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()
            .with_context(|| path.display().to_string())?;
        found.retain(|path| is_wanted(path));
        found.sort();
        files.extend(found);
    }
    anyhow::ensure!(!files.is_empty(), "there are no images in the given files and folders");
    if let Some(names) = &names {
        let missing = names.len().saturating_sub(files.len());
        anyhow::ensure!(
            missing == 0,
            "{missing} of the {} {} missing",
            count(names.len(), "named image"),
            if missing == 1 { "is" } else { "are" }
        );
    }
    Ok(files)
}

/// An image that the network takes. Planning is done once for each size, and is not what is measured.
fn read(file: &Path, denoiser: &NetworkDenoiser) -> Result<Array> {
    let image = io::read(file, &ReadOptions { white: Some(1.0), ..ReadOptions::default() })?;
    check_finite(file, &image.array)?;
    let scale = Scale::automatic(&image);
    let clean = fit(scale.apply(image.array), denoiser);
    denoiser.plan(clean.shape()).with_context(|| file.display().to_string())?;
    Ok(clean)
}

/// A colour image for a gray network becomes its mean; a gray one for a colour network comes three times.
fn fit(image: Array, denoiser: &NetworkDenoiser) -> Array {
    match (image.shape()[1], denoiser.model().image_channels()) {
        (3, 1) => image.mean_axis(Axis(1)).map_or(image, |mean| mean.insert_axis(Axis(1))),
        (1, 3) => ndarray::concatenate(Axis(1), &[image.view(), image.view(), image.view()])
            .unwrap_or(image),
        _ => image,
    }
}

struct Score {
    noisy_psnr: f64,
    psnr: f64,
    ssim: f64,
    pixels: f64,
    seconds: f64,
}

fn score(denoiser: &NetworkDenoiser, clean: &Array, index: usize, level: f32) -> Result<Score> {
    let sigma = level / 255.0;
    let mut noisy = clean.clone();
    let source = NoiseSource { seed: level.to_bits().into(), operator: index as u32 };
    Noise::gaussian(sigma.into())?.add(&mut noisy, source)?;
    let clock = Instant::now();
    let mut result = denoiser.denoise(&noisy, &sigma.into())?;
    let seconds = clock.elapsed().as_secs_f64();
    result.mapv_inplace(|value| (value.clamp(0.0, 1.0) * 255.0).round() / 255.0);
    Ok(Score {
        noisy_psnr: psnr(&noisy, clean, 1.0)?[0],
        psnr: psnr(&result, clean, 1.0)?[0],
        ssim: Ssim::new(1.0)?.per_image(&result, clean)?[0],
        pixels: clean.shape()[2..].iter().product::<usize>() as f64,
        seconds,
    })
}

/// A noise level where white is 255, or a fraction where it is 1.
fn parse_level(text: &str) -> std::result::Result<f32, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let level = match text.split_once('/') {
        // Multiplied first, so that 25/255 is 25 to the bit.
        Some((above, below)) => {
            number(above).zip(number(below)).map(|(above, below)| 255.0 * above / below)
        }
        None => number(text),
    };
    match level {
        Some(level) if level > 0.0 && level < 1.0 && !text.contains('/') => Err(format!(
            "white is 255, so {level} is hardly any noise; did you mean {level}/1, a fraction of white, or {}?",
            (255.0 * level * 100.0).round() / 100.0
        )),
        Some(level) if (0.0..=255.0).contains(&level) => Ok(level as f32),
        _ => Err("a number from 0 to 255 is needed, or a fraction such as 25/255".into()),
    }
}

fn describe(report: &Report) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "{} on {}, {}; sigma is on a scale where white is 255\n",
        report.model,
        count(report.images, "image"),
        count(report.threads, "thread")
    )?;
    writeln!(text, "sigma      noisy   denoised    SSIM    megapixels/s")?;
    for level in &report.levels {
        writeln!(
            text,
            "{:>5} {:>7.2} dB {:>7.2} dB {:>7.3} {:>15.2}",
            level.sigma,
            level.noisy_psnr_db,
            level.psnr_db,
            level.ssim,
            level.megapixels_per_second
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_of_255_or_fractions_of_white() {
        assert_eq!((parse_level("25"), parse_level("25/255")), (Ok(25.0), Ok(25.0)));
        assert_eq!(parse_level(" 0.1/1 "), Ok(25.5));
        assert_eq!(
            (parse_level("0"), parse_level("1"), parse_level("1/1000")),
            (Ok(0.0), Ok(1.0), Ok(0.255))
        );
        let hint = parse_level("0.1").expect_err("another scale");
        assert!(hint.contains("0.1/1") && hint.contains("25.5"), "{hint}");
        for bad in ["", "a", "25/0", "-1", "256", "2/1", "nan", "1/2/3"] {
            assert!(parse_level(bad).expect_err(bad).contains("25/255"), "{bad}");
        }
    }
}
