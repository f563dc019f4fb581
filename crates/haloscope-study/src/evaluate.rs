//! How well a network removes noise from images that are known without it.
//!
//! Each image gets Gaussian noise that is not clipped, from a seed of its own; the result is rounded to 8 bits, as
//! in the published figures that it is to be compared with.

use std::path::{Path, PathBuf};
use std::time::Instant;

use haloscope::denoise::{Denoiser, NetworkDenoiser};
use haloscope::io::{self, Format, ReadOptions};
use haloscope::metrics::{self, Ssim, psnr};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::words::count;
use haloscope::{Array, Error, Result};
use haloscope_job::scale::{Scale, check_finite};
use haloscope_job::{ModelOptions, OpenedModel};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;
use ndarray::Axis;
use serde::Serialize;

/// A network, and the images and levels of noise to measure it on.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use haloscope::{Array, io};
/// use haloscope_study::evaluate::Evaluation;
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// io::write(&folder.join("clean.png"), &Array::from_elem(vec![1, 3, 16, 16], 0.5), &Default::default())?;
/// let evaluation = Evaluation {
///     images: vec![folder.to_owned()],
///     only: None,
///     model: "dncnn:4:3".parse()?,
///     options: Default::default(),
///     levels: vec![25.0],
///     threads: 1,
/// };
/// let found = evaluation.run(&mut |_| ())?;
/// assert_eq!((found.images, found.levels[0].sigma), (1, 25.0));
/// assert!((found.levels[0].noisy_psnr_db - 20.17).abs() < 1.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Clean images, or folders of them.
    pub images: Vec<PathBuf>,
    /// A file with names, without endings; other images of the folders are skipped.
    pub only: Option<PathBuf>,
    /// The network.
    pub model: ModelName,
    /// What is said of it besides its name.
    pub options: ModelOptions,
    /// Standard deviations of the noise on a scale where white is 255.
    pub levels: Vec<f32>,
    /// The number of threads.
    pub threads: usize,
}

/// What an evaluation is doing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Which device runs the network and why, where that was left open.
    Note(&'a str),
    /// An image is next.
    Image {
        /// Its file.
        file: &'a Path,
        /// How often an image is denoised in the whole evaluation.
        runs: usize,
    },
    /// It is done.
    Scored {
        /// Its file.
        file: &'a Path,
        /// The standard deviation of its noise.
        level: f32,
        /// The quality of the result.
        psnr_db: f64,
        /// The time of the network.
        seconds: f64,
    },
}

/// The quality of a network.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluated {
    /// The name of the network.
    pub model: String,
    /// How many images there were.
    pub images: usize,
    /// The number of threads.
    pub threads: usize,
    /// Of each level of noise.
    pub levels: Vec<LevelQuality>,
}

/// The mean quality of images with one level of noise.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LevelQuality {
    /// The standard deviation of the noise, on a scale where white is 255.
    pub sigma: f32,
    /// Of the images with noise.
    pub noisy_psnr_db: f64,
    /// Of the results.
    pub psnr_db: f64,
    /// Of the results.
    pub ssim: f64,
    /// The speed of the network.
    pub megapixels_per_second: f64,
}

impl Evaluation {
    /// Adds noise, removes it, and compares. `tell` is told of each image.
    pub fn run(&self, tell: &mut dyn FnMut(Progress<'_>)) -> haloscope_job::Result<Evaluated> {
        let refused = haloscope_job::Error::Refused;
        let files = self.list().map_err(refused)?;
        let denoiser = self.open(tell).map_err(refused)?;
        let runs = files.len() * self.levels.len();
        let mut levels = Vec::new();
        for level in &self.levels {
            let mut scores = Vec::new();
            for (index, file) in files.iter().enumerate() {
                tell(Progress::Image { file, runs });
                // Of the images before, nothing is left that a file which is wrong could spoil.
                let clean = read(file, &denoiser).map_err(refused)?;
                let score = score(&denoiser, &clean, index, *level)
                    .map_err(|error| haloscope_job::Error::Failed(of_file(file, &error)))?;
                let (psnr_db, seconds) = (score.psnr, score.seconds);
                tell(Progress::Scored { file, level: *level, psnr_db, seconds });
                scores.push(score);
            }
            levels.push(LevelQuality::of(*level, &scores));
        }
        let model = self.model.in_jobs();
        Ok(Evaluated { model, images: files.len(), threads: self.threads, levels })
    }

    /// The network, which is for all the levels.
    fn open(&self, tell: &mut dyn FnMut(Progress<'_>)) -> Result<NetworkDenoiser> {
        let opened = OpenedModel::open(&self.model, 1, 2, &self.options)?;
        for level in &self.levels {
            opened.model.check_level(level / 255.0)?;
        }
        if let Some(note) = &opened.note {
            tell(Progress::Note(note));
        }
        opened.into_denoiser(EngineOptions { threads: self.threads, ..EngineOptions::default() })
    }

    /// The images that were asked for, in a fixed order.
    fn list(&self) -> Result<Vec<PathBuf>> {
        let only = match &self.only {
            Some(path) => Some(std::fs::read_to_string(path).map_err(|e| of_file(path, &e))?),
            None => None,
        };
        let names: Option<Vec<&str>> = only.as_ref().map(|text| text.split_whitespace().collect());
        let is_wanted = |path: &Path| {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let is_image = Format::of_name(&path.display().to_string()).is_some();
            is_image && names.as_ref().is_none_or(|names| names.contains(&stem))
        };
        let mut files = Vec::new();
        for path in &self.images {
            let failed = |error: std::io::Error| of_file(path, &error);
            if !std::fs::metadata(path).map_err(failed)?.is_dir() {
                files.push(path.clone());
                continue;
            }
            let entries = std::fs::read_dir(path).map_err(failed)?;
            let found = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>();
            let mut found: Vec<PathBuf> = found.map_err(failed)?;
            found.retain(|path| is_wanted(path));
            found.sort();
            files.extend(found);
        }
        if files.is_empty() {
            let reason = "there are none in the given files and folders";
            return Err(Error::argument("images", reason));
        }
        if let (Some(path), Some(names)) = (&self.only, &names)
            && names.len() > files.len()
        {
            let missing = names.len() - files.len();
            let all = count(names.len(), "named image");
            let are = if missing == 1 { "is" } else { "are" };
            let reason = format!("{missing} of the {all} {are} missing");
            return Err(Error::Content { file: path.display().to_string(), reason });
        }
        Ok(files)
    }
}

/// An error that says whose it is.
fn of_file(file: &Path, error: &dyn std::error::Error) -> Error {
    Error::File { file: file.display().to_string(), reason: error.to_string() }
}

/// An image that the network takes. Planning is done once for each size, and is not what is measured.
fn read(file: &Path, denoiser: &NetworkDenoiser) -> Result<Array> {
    let image = io::read(file, &ReadOptions { white: Some(1.0), ..ReadOptions::default() })?;
    check_finite(file, &image.array)?;
    let scale = Scale::automatic(&image);
    let clean = fit(scale.apply(image.array), denoiser).map_err(|error| of_file(file, &error))?;
    denoiser.plan(clean.shape()).map_err(|error| of_file(file, &error))?;
    Ok(clean)
}

/// A colour image for a gray network becomes its mean. A gray one says nothing of a colour network, whose noise would differ from
/// channel to channel.
fn fit(image: Array, denoiser: &NetworkDenoiser) -> Result<Array> {
    match (image.shape()[1], denoiser.model().image_channels()) {
        (3, 1) => Ok(image.mean_axis(Axis(1)).map_or(image, |mean| mean.insert_axis(Axis(1)))),
        (1, 3) => Err(Error::argument(
            "image",
            format!(
                "it is gray, and {} takes colour images; evaluate a gray network on it, such as builtin:gray",
                denoiser.model().network().name()
            ),
        )),
        _ => Ok(image),
    }
}

struct Score {
    noisy_psnr: f64,
    psnr: f64,
    ssim: f64,
    pixels: f64,
    seconds: f64,
}

impl LevelQuality {
    fn of(sigma: f32, scores: &[Score]) -> Self {
        let mean =
            |of: fn(&Score) -> f64| metrics::mean(&scores.iter().map(of).collect::<Vec<_>>());
        let sum = |of: fn(&Score) -> f64| scores.iter().map(of).sum::<f64>();
        Self {
            sigma,
            noisy_psnr_db: mean(|score| score.noisy_psnr),
            psnr_db: mean(|score| score.psnr),
            ssim: mean(|score| score.ssim),
            megapixels_per_second: sum(|score| score.pixels) / sum(|score| score.seconds) / 1e6,
        }
    }
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
