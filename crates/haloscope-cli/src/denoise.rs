//! `haloscope denoise`: an image, a stack or a volume through one network.
//!
//! Values are brought to 0…1, where networks are trained, and written back in the units of the input; [`Scale`] has the
//! rules. A network for pictures takes a volume slice by slice.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use haloscope::Array;
use haloscope::io::{self, Axes, Format, Image, ReadOptions, Sample, WriteOptions};
use haloscope::memory::{peak_resident_bytes, resident_bytes};
use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions, EnginePlan};
use haloscope_nn::models::{Builtin, Model, ModelName, Sigma};
use haloscope_nn::{Shape, Tensor};
use indicatif::{ProgressBar, ProgressStyle};
use ndarray::{ArrayViewD, Axis};
use serde::Serialize;

use crate::exit::Preparation;
use crate::threads::{self, parse_threads};
use haloscope_job::scale::{Clipped, Scale};

/// The options of `haloscope denoise`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("level").required(true).args(["sigma", "noise"])))]
pub(crate) struct Arguments {
    /// Noisy image, stack or volume: PNG, JPEG, TIFF, NPY, NPZ, NIfTI, FITS, HDF5 or Zarr
    input: PathBuf,

    /// File for the result; the ending selects the format. PNG and JPEG show 0 to `--white`. All other formats hold values
    /// in the units of the input, with the same type if the format supports it; of PNG and JPEG, values from 0 to 1, and in
    /// TIFF those of 16 bits as they are
    #[arg(long, short)]
    out: PathBuf,

    /// Network: builtin:color, builtin:gray, or weights as .safetensors or as .pth/.pt from torch.save; by default the
    /// built-in network for gray or colour
    #[arg(long, short)]
    model: Option<String>,

    /// Standard deviation of the noise on a scale where white is 1, as a number or a fraction: 0.1 or 25/255
    #[arg(long, short, value_parser = parse_sigma)]
    sigma: Option<f32>,

    /// Standard deviation of the noise in the units of the data (counts, Hounsfield units), instead of --sigma
    #[arg(long, value_name = "VALUE", value_parser = parse_positive)]
    noise: Option<f64>,

    /// Value that is 1 to the network, in the units of the data: 4095 for 12 bits. By default white for PNG and JPEG; the
    /// full scale of integers with 8, 10, 12, 14 or 16 bits; 1 for floats from 0 to 1; for anything else, the value that
    /// 99.9 % are below
    #[arg(long, value_name = "VALUE", value_parser = parse_positive, conflicts_with = "normalise")]
    white: Option<f64>,

    /// Scale the values so that nearly all (99.8 %) are from 0 to 1 for the network
    #[arg(long)]
    normalise: bool,

    /// Name of the array in an NPZ, HDF5 or Zarr file
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,

    /// Meaning of the axes of NPY, NPZ, FITS, HDF5 and Zarr arrays
    #[arg(long, value_enum)]
    axes: Option<AxesArgument>,

    /// Number of threads; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// Accuracy of the convolutions
    #[arg(long, value_enum, default_value = "fast")]
    accuracy: AccuracyArgument,

    /// Memory limit for weights and values, e.g. 450MB; a low limit may take more time
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory_budget: Option<usize>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AccuracyArgument {
    /// The fastest algorithms, with a relative error of about 5e-6
    Fast,
    /// As accurate as plain sums
    Strict,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AxesArgument {
    /// Two or three axes are spatial; four or five begin with batch and channel
    Automatic,
    /// (height, width) or (depth, height, width)
    Spatial,
    /// (channel, height, width) or (channel, depth, height, width)
    ChannelFirst,
    /// (height, width, channel) or (depth, height, width, channel)
    ChannelLast,
}

#[derive(Serialize)]
struct Report {
    input: String,
    output: String,
    network: String,
    /// (batch, channel, spatial…).
    shape: Vec<usize>,
    width: usize,
    height: usize,
    channels: usize,
    /// How often the network was run: slices of a volume, images of a batch.
    slices: usize,
    /// What the file holds, and the values that were 0 and 1 for the network.
    values: String,
    black: f64,
    white: f64,
    scale: String,
    sigma: f32,
    sigma_in_units: f64,
    sigma_used: bool,
    threads: usize,
    planning_seconds: f64,
    seconds: f64,
    megapixels_per_second: f64,
    memory_predicted_bytes: usize,
    memory_measured_bytes: Option<u64>,
    /// How values were written.
    written_as: String,
}

/// Reads, denoises and writes the image.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Prepared { picture, model, pieces, sigma } = prepare(arguments).or_misuse()?;
    let threads = threads::or_all_cores(arguments.threads);
    let options = EngineOptions {
        threads,
        accuracy: match arguments.accuracy {
            AccuracyArgument::Fast => Accuracy::Fast,
            AccuracyArgument::Strict => Accuracy::Strict,
        },
        memory_budget: arguments.memory_budget,
    };
    let (network, sigma_used) = (model.network().name().to_owned(), model.sigma() == Sigma::Map);
    let input = pieces.input(&model, sigma).or_misuse()?;
    // The plan has the weights in a form of its own, in whose place these were.
    let weights = (model.network().parameters() * size_of::<f32>()) as u64;
    let before = resident_bytes().map(|bytes| bytes.saturating_sub(weights));
    let begin = Instant::now();
    // No threads, or too little memory.
    let engine: &dyn Engine = &Cpu::default();
    let plan = engine.plan_consuming(model.into_network(), input.shape(), &options).or_misuse()?;
    let planning = begin.elapsed();
    let (scaled, seconds) = denoise(&*plan, &pieces, input)?;
    // Peaks only grow, so this is the network's as long as nothing before it took more.
    let measured =
        peak_resident_bytes().zip(before).map(|(peak, before)| peak.saturating_sub(before));

    let result = picture.result(scaled, &arguments.out);
    if let Some(warning) = &result.warning {
        crate::log::message(log::Level::Warn, warning);
    }
    io::write(&arguments.out, &result.array, &result.options)?;
    let shape = pieces.array.shape();
    let report = Report {
        input: arguments.input.display().to_string(),
        output: arguments.out.display().to_string(),
        network,
        width: shape[shape.len() - 1],
        height: shape[shape.len() - 2],
        channels: shape[1],
        shape: shape.to_vec(),
        slices: pieces.count(),
        values: picture.image.describe(),
        black: picture.scale.black,
        white: picture.scale.white,
        scale: picture.scale.reason.clone(),
        sigma,
        sigma_in_units: f64::from(sigma) * picture.scale.range(),
        sigma_used,
        threads,
        planning_seconds: planning.as_secs_f64(),
        seconds: seconds.as_secs_f64(),
        megapixels_per_second: pieces.pixels() as f64 / 1e6 / seconds.as_secs_f64(),
        memory_predicted_bytes: plan.memory().total() + 4 * plan.output_shape().count(),
        memory_measured_bytes: measured,
        written_as: result.describe(&arguments.out),
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        describe(&report)?
    };
    crate::print(&text)
}

/// What is needed before anything is computed.
struct Prepared {
    picture: Picture,
    model: Model,
    pieces: Pieces,
    sigma: f32,
}

fn prepare(arguments: &Arguments) -> Result<Prepared> {
    let out = &arguments.out;
    haloscope_job::check_name(out).map_err(|reason| anyhow::anyhow!("--out: {reason}"))?;
    if let (Ok(input), Ok(output)) = (arguments.input.canonicalize(), out.canonicalize()) {
        anyhow::ensure!(
            input != output,
            "{}: the result would be written over the input; choose another name for --out",
            out.display()
        );
    }
    let mut picture = Picture::read(arguments)?;
    let shape = picture.image.array.shape();
    io::check_shape(out, shape)?;
    let sigma = match (arguments.sigma, arguments.noise) {
        (_, Some(noise)) => {
            let (range, sigma) = (picture.scale.range(), noise / picture.scale.range());
            anyhow::ensure!(
                sigma <= 1.0,
                "--noise {noise} is more than the {range} between black and white of the data; --white changes them"
            );
            sigma as f32
        }
        (sigma, None) => sigma.unwrap_or_default(),
    };
    let model = match &arguments.model {
        Some(name) => ModelName::in_job(name)?.open(1, 2)?,
        None => Builtin::for_channels(shape[1]).model()?,
    };
    let values = std::mem::take(&mut picture.image.array);
    let pieces = Pieces::new(picture.scale.apply(values), &model)?;
    Ok(Prepared { picture, model, pieces, sigma })
}

/// What is denoised: what its file says, and how its values are scaled.
struct Picture {
    image: Image,
    scale: Scale,
}

impl Picture {
    fn read(arguments: &Arguments) -> Result<Self> {
        let path = &arguments.input;
        let options = ReadOptions {
            // As they are stored, of pictures as well.
            white: Some(1.0),
            axes: match arguments.axes {
                None | Some(AxesArgument::Automatic) => Axes::Automatic,
                Some(AxesArgument::Spatial) => Axes::Spatial,
                Some(AxesArgument::ChannelFirst) => Axes::ChannelFirst,
                Some(AxesArgument::ChannelLast) => Axes::ChannelLast,
            },
            entry: arguments.entry.clone(),
            ..ReadOptions::default()
        };
        let image = io::read(path, &options).map_err(|error| {
            // What a job file calls `entry` is an option here.
            anyhow::anyhow!(error.to_string().replace("`entry`", "--entry"))
        })?;
        check_axes(arguments, &image)?;
        check_finite(path, &image.array)?;
        let scale = match arguments.white {
            Some(white) => Scale::with_white(white),
            None if arguments.normalise => Scale::normalising(&image.array),
            None => Scale::automatic(&image),
        };
        Ok(Self { image, scale })
    }

    /// What is written, of an array from 0 to 1.
    fn result(&self, scaled: Array, path: &Path) -> Written {
        let format = Format::of_name(&path.display().to_string());
        let samples = format.map_or(&[][..], Format::samples);
        let standard = samples.first().copied().unwrap_or(Sample::F32);
        let is_shown = format.is_some_and(Format::is_picture);
        let sample = self.image.sample;
        let has_type = samples.contains(&sample);
        let (array, sample, raw) = match (self.image.format.is_picture(), is_shown) {
            // The same picture, whatever its white was taken for.
            (true, true) if has_type => (self.scale.restore(scaled), sample, true),
            // A picture in which the scale is black and white.
            (_, true) => {
                let is_deep = !sample.is_float() && sample.bytes() > 1;
                let deep = is_deep && samples.contains(&Sample::U16);
                (scaled, if deep { Sample::U16 } else { standard }, false)
            }
            // Deep pictures stay what they are in a format that has room for them.
            (true, false) if format == Some(Format::Tiff) && sample == Sample::U16 => {
                (self.scale.restore(scaled), sample, false)
            }
            // Pictures are from 0 to 1 to those who read them.
            (true, false) => {
                let white = sample.white().unwrap_or(1.0);
                let array = self.scale.restore(scaled);
                (array.mapv_into(|value| (f64::from(value) / white) as f32), Sample::F32, false)
            }
            (false, false) => {
                // Integers would lose what lies between few counts, or between those of a file with a slope.
                let is_fine = sample.is_float()
                    || self.scale.range() >= 255.0 && self.image.scaling == io::Scaling::NONE;
                let sample = if has_type && is_fine { sample } else { standard };
                (self.scale.restore(scaled), sample, false)
            }
        };
        let options = WriteOptions { sample: Some(sample), raw, ..self.image.write_options(path) };
        let name = path.display().to_string();
        let range = if is_shown && !raw { Some((0.0, 1.0)) } else { limits(sample) };
        let warning = range.and_then(|range| {
            let advice = if is_shown {
                "a larger --white, --normalise, or another format keeps them"
            } else {
                "another format keeps them"
            };
            Clipped::of(&array, range).warning(&name, range, advice)
        });
        Written { array, options, warning }
    }
}

/// A result, and how it is written.
struct Written {
    array: Array,
    options: WriteOptions,
    warning: Option<String>,
}

impl Written {
    fn describe(&self, path: &Path) -> String {
        let format = Format::of_name(&path.display().to_string());
        let values = match (format.is_some_and(Format::is_picture), self.options.raw) {
            (true, false) => ", black is 0 and white is 1",
            _ => "",
        };
        let sample = self.options.sample.map_or_else(String::new, |sample| format!(", {sample}"));
        format!("{}{sample}{values}", format.map_or("", Format::name))
    }
}

/// Refuses an array of three axes that is rather a colour picture than a volume, unless somebody says so.
fn check_axes(arguments: &Arguments, image: &Image) -> Result<()> {
    let has_axes = matches!(
        image.format,
        Format::Npy | Format::Npz | Format::Fits | Format::Hdf5 | Format::Zarr
    );
    if let (None, true, &[1, 1, height, width, channels @ (3 | 4)]) =
        (arguments.axes, has_axes, image.array.shape())
        && height > 8
        && width > 8
    {
        anyhow::bail!(
            "{}: an array of shape [{height}, {width}, {channels}] may be a colour picture (--axes channel-last) or a \
             volume of {height} slices (--axes spatial); say which",
            arguments.input.display()
        );
    }
    Ok(())
}

/// What a type holds, if it is not everything.
fn limits(sample: Sample) -> Option<(f32, f32)> {
    Some(match sample {
        Sample::U8 => (0.0, u8::MAX.into()),
        Sample::I8 => (i8::MIN.into(), i8::MAX.into()),
        Sample::U16 => (0.0, u16::MAX.into()),
        Sample::I16 => (i16::MIN.into(), i16::MAX.into()),
        _ => return None,
    })
}

/// Refuses an image that a network would make nothing but more such values of.
pub(crate) fn check_finite(path: &Path, image: &Array) -> Result<()> {
    let count = image.iter().filter(|value| !value.is_finite()).count();
    anyhow::ensure!(
        count == 0,
        "{}: {count} of its {} values are NaN or infinite, and a network spreads them; replace them first",
        path.display(),
        image.len()
    );
    Ok(())
}

/// An array (batch, channel, spatial…) as a network takes it, piece by piece: each image of the batch, or each of its
/// slices. A gray piece is given to a colour network three times, the channels of any other to a gray one by one.
struct Pieces {
    array: Array,
    /// Whether pieces are slices along the depth.
    are_slices: bool,
    /// How often a piece's values come.
    repeats: usize,
    /// Batch and channels of the network's images.
    members: usize,
    channels: usize,
}

impl Pieces {
    fn new(array: Array, model: &Model) -> Result<Self> {
        let (sides, rank) = (array.ndim() - 2, model.network().rank());
        let (have, need) = (array.shape()[1], model.image_channels());
        let are_slices = match (sides, rank) {
            (3, 2) => true,
            (sides, rank) if sides == rank => false,
            _ => anyhow::bail!(
                "{} is a network for volumes, and this is an image of {sides} sides",
                model.network().name()
            ),
        };
        let (members, channels, repeats) = match (have, need) {
            (have, need) if have == need => (1, have, 1),
            (1, 3) => (1, 3, 3),
            (have, 1) => (have, 1, 1),
            (have, need) => anyhow::bail!(
                "{} takes images of {need} channels, and this one has {have}; models of 1 and 3 channels can be used \
                 for gray and colour images",
                model.network().name()
            ),
        };
        Ok(Self { array, are_slices, repeats, members, channels })
    }

    fn count(&self) -> usize {
        self.array.shape()[0] * if self.are_slices { self.array.shape()[2] } else { 1 }
    }

    /// The pixels of all.
    fn pixels(&self) -> usize {
        self.array.len() / self.array.shape()[1].max(1)
    }

    /// One of them, (channel, spatial…).
    fn piece(&self, index: usize) -> ArrayViewD<'_, f32> {
        if !self.are_slices {
            return self.array.index_axis(Axis(0), index);
        }
        let depth = self.array.shape()[2];
        self.array.index_axis(Axis(0), index / depth).index_axis_move(Axis(1), index % depth)
    }

    /// The values of a piece as often as they come.
    fn values(&self, index: usize) -> Vec<f32> {
        let values: Vec<f32> = self.piece(index).iter().copied().collect();
        values.repeat(self.repeats)
    }

    /// The network's input of the first.
    fn input(&self, model: &Model, sigma: f32) -> Result<Tensor> {
        let sides = &self.piece(0).shape()[1..].to_vec();
        let shape = Shape::image(self.members, self.channels, sides)?;
        Ok(model.input(&Tensor::new(shape, self.values(0))?, sigma)?)
    }

    /// Puts another piece in the place of the first: its channels, before that of the noise level.
    fn exchange(&self, index: usize, input: &mut [f32]) {
        let values = self.values(index);
        let (member, stored) = (values.len() / self.members, input.len() / self.members);
        for (to, from) in input.chunks_exact_mut(stored).zip(values.chunks_exact(member)) {
            to[..member].copy_from_slice(from);
        }
    }

    /// What the network made of a piece, in its place; of repeated ones the mean.
    fn store(&self, index: usize, output: &[f32], result: &mut Array) {
        let depth = self.array.shape()[2];
        let mut piece = if self.are_slices {
            result.index_axis_mut(Axis(0), index / depth).index_axis_move(Axis(1), index % depth)
        } else {
            result.index_axis_mut(Axis(0), index)
        };
        let count = piece.len();
        for (at, value) in piece.iter_mut().enumerate() {
            let sum: f32 = (0..self.repeats).map(|repeat| output[repeat * count + at]).sum();
            *value = sum / self.repeats as f32;
        }
    }
}

/// Runs the plan on all pieces, with a bar that moves with the operations done.
fn denoise(plan: &dyn EnginePlan, pieces: &Pieces, first: Tensor) -> Result<(Array, Duration)> {
    let bar = ProgressBar::new((plan.flops() * pieces.count() as f64) as u64);
    let style = ProgressStyle::with_template("denoising {bar:40} {percent:>3} %, {eta} left")?;
    bar.set_style(style);
    let mut scratch = plan.scratch();
    let mut input = first.values().to_vec();
    drop(first);
    let mut output = vec![0.0; plan.output_shape().count()];
    let mut result = Array::zeros(pieces.array.raw_dim());
    let begin = Instant::now();
    for index in 0..pieces.count() {
        if index > 0 {
            pieces.exchange(index, &mut input);
        }
        plan.run_observed(&input, &mut output, &mut scratch, &mut |step, _| {
            bar.inc(step.flops() as u64);
        })?;
        pieces.store(index, &output, &mut result);
    }
    let seconds = begin.elapsed();
    bar.finish_and_clear();
    Ok((result, seconds))
}

fn describe(report: &Report) -> Result<String> {
    let mut text = String::new();
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    let sides: Vec<String> = report.shape[2..].iter().map(ToString::to_string).collect();
    writeln!(
        text,
        "{} ({}, {}) through {} with sigma {:.4}{}",
        report.input,
        sides.join("x"),
        match report.channels {
            1 => "gray".to_owned(),
            3 => "colour".to_owned(),
            channels => format!("{channels} channels"),
        },
        report.network,
        report.sigma,
        if report.sigma_used { "" } else { ", which this network does not use" },
    )?;
    if report.slices > 1 {
        writeln!(text, "slices    {}, one by one", report.slices)?;
    }
    writeln!(
        text,
        "values    {}; {} is 0 and {} is 1 for the network ({}), and sigma is {:.4} in these units",
        report.values,
        brief(report.black),
        brief(report.white),
        report.scale,
        report.sigma_in_units
    )?;
    writeln!(
        text,
        "time      {:.2} s, {:.2} megapixels/s on {} thread{}, after {:.2} s of planning",
        report.seconds,
        report.megapixels_per_second,
        report.threads,
        if report.threads == 1 { "" } else { "s" },
        report.planning_seconds
    )?;
    writeln!(
        text,
        "memory    {} predicted, {} measured",
        megabytes(report.memory_predicted_bytes as f64),
        report.memory_measured_bytes.map_or_else(|| "not".into(), |bytes| megabytes(bytes as f64))
    )?;
    writeln!(text, "written   {} ({})", report.output, report.written_as)?;
    Ok(text)
}

/// A number with as many digits as one reads.
fn brief(number: f64) -> String {
    if number == number.round() { format!("{number}") } else { format!("{number:.4}") }
}

fn parse_positive(text: &str) -> std::result::Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("a number above 0 is needed".into()),
    }
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
        Some(sigma) if sigma > 1.0 => Err(format!(
            "white is 1, so it is from 0 to 1; did you mean {sigma}/255, or --noise {sigma} in the units of the data?"
        )),
        _ => Err("a number from 0 to 1 is needed, or a fraction such as 25/255".into()),
    }
}

/// A number of bytes with a unit.
pub(crate) fn parse_bytes(text: &str) -> std::result::Result<usize, String> {
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
