//! `haloscope denoise`: one image through one network.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use haloscope::io::{self, Image, ReadOptions};
use haloscope::memory::{peak_resident_bytes, resident_bytes};
use haloscope_nn::engine::{Accuracy, Cpu, Engine, Options, Plan};
use haloscope_nn::models::{Builtin, Model, Sigma};
use haloscope_nn::{Shape, Tensor};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::exit::Preparation;
use crate::model;
use crate::threads::{self, parse_threads};

/// The options of `haloscope denoise`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The noisy image, gray or colour: PNG, JPEG, TIFF, NPY, NPZ, NIfTI or FITS
    input: PathBuf,

    /// Where the result goes; the ending says as what
    #[arg(long, short)]
    out: PathBuf,

    /// The network: builtin:color, builtin:gray, or weights as .safetensors or .pth/.pt of torch.save; by default
    /// the built-in one for gray or colour
    #[arg(long, short)]
    model: Option<String>,

    /// Standard deviation of the noise where white is 1, as a number or a fraction: 25/255
    #[arg(long, short, value_parser = parse_sigma)]
    sigma: f32,

    /// Threads; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// How exact the convolutions are
    #[arg(long, value_enum, default_value = "fast")]
    accuracy: AccuracyArgument,

    /// The most memory that weights and values may take, e.g. 450MB; may cost time
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory_budget: Option<usize>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AccuracyArgument {
    /// The fastest algorithms, relative error about 5e-6
    Fast,
    /// As exact as plain sums
    Strict,
}

#[derive(Serialize)]
struct Report {
    input: String,
    output: String,
    network: String,
    width: usize,
    height: usize,
    channels: usize,
    sigma: f32,
    sigma_used: bool,
    threads: usize,
    planning_seconds: f64,
    seconds: f64,
    megapixels_per_second: f64,
    memory_predicted_bytes: usize,
    memory_measured_bytes: Option<u64>,
}

/// Reads, denoises and writes the image.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (picture, model, input) = prepare(arguments).or_misuse()?;
    let threads = threads::or_all_cores(arguments.threads);
    let options = Options {
        threads,
        accuracy: match arguments.accuracy {
            AccuracyArgument::Fast => Accuracy::Fast,
            AccuracyArgument::Strict => Accuracy::Strict,
        },
        memory_budget: arguments.memory_budget,
        ..Options::default()
    };
    let (network, sigma_used) = (model.network().name().to_owned(), model.sigma() == Sigma::Map);
    // The plan has the weights in a form of its own, in whose place these were.
    let weights = (model.network().parameters() * size_of::<f32>()) as u64;
    let before = resident_bytes().map(|bytes| bytes.saturating_sub(weights));
    let begin = Instant::now();
    // No threads, or too little memory.
    let engine: &dyn Engine = &Cpu::default();
    let plan = engine.plan_consuming(model.into_network(), input.shape(), &options).or_misuse()?;
    let planning = begin.elapsed();
    let mut output = vec![0.0; plan.output_shape().count()];
    let seconds = denoise(&*plan, &input, &mut output)?;
    // Peaks only grow, so this is the network's as long as nothing before it took more.
    let measured =
        peak_resident_bytes().zip(before).map(|(peak, before)| peak.saturating_sub(before));

    let array = restore(&picture, output)?;
    io::write(&arguments.out, &array, &picture.image.write_options(&arguments.out))?;
    let pixels = picture.width * picture.height;
    let report = Report {
        input: arguments.input.display().to_string(),
        output: arguments.out.display().to_string(),
        network,
        width: picture.width,
        height: picture.height,
        channels: picture.channels,
        sigma: arguments.sigma,
        sigma_used,
        threads,
        planning_seconds: planning.as_secs_f64(),
        seconds: seconds.as_secs_f64(),
        megapixels_per_second: pixels as f64 / 1e6 / seconds.as_secs_f64(),
        memory_predicted_bytes: plan.memory().total() + 4 * plan.output_shape().count(),
        memory_measured_bytes: measured,
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        describe(&report)?
    };
    crate::print(&text)
}

/// The picture, the network, and the one as the other takes it.
fn prepare(arguments: &Arguments) -> Result<(Picture, Model, Tensor)> {
    let picture = Picture::read(&arguments.input)?;
    // What cannot be written is better known before the work than after it.
    if io::Format::of_name(&arguments.out.display().to_string()).is_none() {
        anyhow::bail!(
            "{}: the ending does not say what to write, as .png would",
            arguments.out.display()
        );
    }
    let model = match &arguments.model {
        Some(name) => model::open(name)?,
        None => Builtin::for_channels(picture.channels).model()?,
    };
    let input = model.input(&arrange(&picture, &model)?, arguments.sigma)?;
    Ok((picture, model, input))
}

/// A picture of one or three channels.
struct Picture {
    image: Image,
    width: usize,
    height: usize,
    channels: usize,
}

impl Picture {
    fn read(path: &Path) -> Result<Self> {
        let image = io::read(path, &ReadOptions::default())?;
        let &[1, channels @ (1 | 3), height, width] = image.array.shape() else {
            anyhow::bail!(
                "{}: an array of shape {:?}; one picture of 1 or 3 channels can be denoised",
                path.display(),
                image.array.shape()
            );
        };
        check_finite(path, &image.array)?;
        Ok(Self { image, width, height, channels })
    }

    fn values(&self) -> Vec<f32> {
        self.image.array.iter().copied().collect()
    }
}

/// Refuses an image that a network would make nothing but more such values of.
pub fn check_finite(path: &Path, image: &haloscope::Array) -> Result<()> {
    let count = image.iter().filter(|value| !value.is_finite()).count();
    anyhow::ensure!(
        count == 0,
        "{}: {count} of its {} values are NaN or infinite, and a network spreads them; replace them first",
        path.display(),
        image.len()
    );
    Ok(())
}

/// The picture as the model takes it: a gray one for a colour model three times, the channels of a
/// colour one for a gray model one by one.
fn arrange(picture: &Picture, model: &Model) -> Result<Tensor> {
    let (batch, channels, values) = match (picture.channels, model.image_channels()) {
        (have, need) if have == need => (1, have, picture.values()),
        (1, 3) => (1, 3, picture.values().repeat(3)),
        (3, 1) => (3, 1, picture.values()),
        (have, need) => anyhow::bail!(
            "{} takes images of {need} channels, and this one has {have}; models of 1 and 3 channels \
             can be used for gray and colour images",
            model.network().name()
        ),
    };
    let shape = Shape::new([batch, channels, picture.height, picture.width])?;
    Ok(Tensor::new(shape, values)?)
}

/// Undoes [`arrange`]: the mean of three gray images, or three channels side by side.
fn restore(picture: &Picture, output: Vec<f32>) -> Result<haloscope::Array> {
    let pixels = picture.width * picture.height;
    let values = if picture.channels == 1 && output.len() == 3 * pixels {
        let (red, rest) = output.split_at(pixels);
        let (green, blue) = rest.split_at(pixels);
        red.iter().zip(green).zip(blue).map(|((r, g), b)| (r + g + b) / 3.0).collect()
    } else {
        output
    };
    Ok(haloscope::Array::from_shape_vec(picture.image.array.raw_dim(), values)?)
}

/// Runs the plan with a bar that moves with the operations done.
fn denoise(plan: &dyn Plan, input: &Tensor, output: &mut [f32]) -> Result<Duration> {
    let bar = ProgressBar::new(plan.flops() as u64);
    let style = ProgressStyle::with_template("denoising {bar:40} {percent:>3} %, {eta} left")?;
    bar.set_style(style);
    let mut scratch = plan.scratch();
    let begin = Instant::now();
    plan.run_observed(input.values(), output, &mut scratch, &mut |step, _| {
        bar.inc(step.flops() as u64);
    })?;
    let seconds = begin.elapsed();
    bar.finish_and_clear();
    Ok(seconds)
}

fn describe(report: &Report) -> Result<String> {
    let mut text = String::new();
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    writeln!(
        text,
        "{} ({}x{}, {}) through {} with sigma {:.4}{}",
        report.input,
        report.width,
        report.height,
        if report.channels == 1 { "gray" } else { "colour" },
        report.network,
        report.sigma,
        if report.sigma_used { "" } else { ", which this network does not use" },
    )?;
    writeln!(
        text,
        "time      {:.2} s, {:.2} megapixels/s on {} threads, after {:.2} s of planning",
        report.seconds, report.megapixels_per_second, report.threads, report.planning_seconds
    )?;
    writeln!(
        text,
        "memory    {} predicted, {} measured",
        megabytes(report.memory_predicted_bytes as f64),
        report.memory_measured_bytes.map_or_else(|| "not".into(), |bytes| megabytes(bytes as f64))
    )?;
    writeln!(text, "written   {}", report.output)?;
    Ok(text)
}

fn parse_sigma(text: &str) -> std::result::Result<f32, String> {
    let number = |text: &str| text.trim().parse::<f32>().ok();
    let sigma = match text.split_once('/') {
        Some((above, below)) => {
            number(above).zip(number(below)).map(|(above, below)| above / below)
        }
        None => number(text),
    };
    match sigma {
        Some(sigma) if (0.0..=1.0).contains(&sigma) => Ok(sigma),
        Some(sigma) if sigma > 1.0 => {
            Err(format!("white is 1, so it is from 0 to 1; did you mean {sigma}/255?"))
        }
        _ => Err("a number from 0 to 1 is needed, or a fraction such as 25/255".into()),
    }
}

/// A number of bytes with a unit.
pub fn parse_bytes(text: &str) -> std::result::Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return Err("the units are B, KB, MB and GB".into()),
    };
    match digits.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok((number * unit) as usize),
        _ => Err("a size such as 450MB is needed".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigma_is_a_number_or_a_fraction_of_white() {
        assert_eq!(parse_sigma("25/255"), Ok(25.0 / 255.0));
        assert_eq!(parse_sigma("0.1"), Ok(0.1));
        assert!(parse_sigma("25").expect_err("too large").contains("25/255"));
        for bad in ["", "x", "-1", "1/0", "nan", "1/2/3"] {
            assert!(parse_sigma(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("450MB"), Ok(450_000_000));
        assert_eq!(parse_bytes("1.5gb"), Ok(1_500_000_000));
        for bad in ["", "MB", "-3MB", "3 apples", "3TB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
