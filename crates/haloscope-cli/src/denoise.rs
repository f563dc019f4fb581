//! `haloscope denoise`: an image, a stack or a volume through one network.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use haloscope::denoise::Axes as Slices;
use haloscope::io::Axes;
use haloscope::words::{count, sides};
use haloscope_job::{DenoisedFile, Deviation, Event, FileDenoising, Observer, WhitePoint};
use haloscope_nn::engine::{Accuracy, EngineOptions};
use haloscope_nn::models::ModelName;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Code, Preparation};
use crate::interrupt::{self, Signal};
use crate::onnx::OnnxArguments;
use crate::threads::{self, parse_threads};

/// The options of `haloscope denoise`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("level").args(["sigma", "noise"])))]
pub(crate) struct Arguments {
    /// Noisy image, stack or volume: PNG, JPEG, TIFF, NPY, NPZ, NIfTI, FITS, HDF5 or Zarr
    input: PathBuf,

    /// File for the result; the ending selects the format. PNG and JPEG show 0 to `--white`. All other formats hold values
    /// in the units of the input, with the same type if the format supports it; of PNG and JPEG, values from 0 to 1, and in
    /// TIFF those of 16 bits as they are
    #[arg(long, short)]
    out: PathBuf,

    /// Network: builtin:color, builtin:gray, builtin:volume, weights as .safetensors or as .pth/.pt from torch.save, or a whole network as
    /// .onnx; by default the built-in network for gray or colour
    #[arg(long, short)]
    model: Option<String>,

    #[command(flatten)]
    onnx: OnnxArguments,

    /// Standard deviation of the noise on a scale where white is 1, as a number or a fraction: 0.1 or 25/255. Without it and
    /// without --noise, it is estimated from the image
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

    /// What a network sees of the image: itself, the slices of a volume along all three axes, or its mirror images and quarter
    /// turns. The mean of these takes three and eight times the work
    #[arg(long, value_enum, default_value = "axial")]
    slices: SlicesArgument,

    /// Number of threads; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// Accuracy of the convolutions
    #[arg(long, value_enum, default_value = "fast")]
    accuracy: AccuracyArgument,

    /// Memory limit for weights and values, e.g. 450MB; by default what is free. Where the whole image does not fit, the
    /// network runs in waves of rows, with the same result; NPY, TIFF, FITS and NIfTI images are then read and written by
    /// bands. If even waves do not fit, slower convolutions are used,
    /// which may change the last digits
    #[arg(long, value_name = "BYTES", value_parser = parse_budget)]
    memory_budget: Option<usize>,

    /// Folder on a disk for what skip connections read much later, if the network runs in waves. A wide image then takes less than
    /// half of the memory, with the same result. A quarter of --memory-budget is kept for the pages of its files
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,

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
enum SlicesArgument {
    /// Those along depth, one by one
    Axial,
    /// Those along depth, height and width; the result is the mean of the three
    All,
    /// Pictures, or the slices along depth, in their eight mirror images and quarter turns; the result is the mean of the eight
    Ensemble,
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

/// Reads, denoises and writes the image.
pub(crate) fn run(arguments: &Arguments) -> Result<Code> {
    let in_options = |error: haloscope::Error| anyhow::anyhow!(in_options(&error.to_string()));
    let plan = arguments.denoising().or_misuse()?.check().map_err(in_options).or_misuse()?;
    if plan.is_by_bands() {
        interrupt::watch()?;
    }
    let mut watch = Watch { bar: progress(plan.flops())? };
    let ran = plan.run(&mut watch);
    watch.bar.finish_and_clear();
    let done = match (ran, interrupt::requested()) {
        (Err(haloscope::Error::Interrupted), Some(signal)) => {
            let words = format!("{} ended it; nothing was written", signal.name());
            crate::log::message(log::Level::Warn, &words);
            return Ok(Code::Interrupted(signal));
        }
        (done, _) => done.map_err(in_options)?,
    };
    let text =
        if arguments.json { serde_json::to_string_pretty(&done)? + "\n" } else { describe(&done)? };
    crate::print(&text)?;
    Ok(Code::Success)
}

impl Arguments {
    fn denoising(&self) -> Result<FileDenoising> {
        let deviation = match (self.sigma, self.noise) {
            (_, Some(noise)) => Deviation::InUnits(noise),
            (Some(sigma), None) => Deviation::OfWhite(sigma),
            (None, None) => Deviation::Estimated,
        };
        Ok(FileDenoising {
            model: self.model.as_deref().map(ModelName::in_job).transpose()?,
            model_options: self.onnx.options()?,
            white: match self.white {
                Some(white) => WhitePoint::Given(white),
                None if self.normalise => WhitePoint::Normalised,
                None => WhitePoint::Automatic,
            },
            entry: self.entry.clone(),
            axes: self.axes.map(|axes| match axes {
                AxesArgument::Automatic => Axes::Automatic,
                AxesArgument::Spatial => Axes::Spatial,
                AxesArgument::ChannelFirst => Axes::ChannelFirst,
                AxesArgument::ChannelLast => Axes::ChannelLast,
            }),
            slices: match self.slices {
                SlicesArgument::Axial => Slices::Axial,
                SlicesArgument::All => Slices::All,
                SlicesArgument::Ensemble => Slices::Ensemble,
            },
            engine: EngineOptions {
                threads: threads::or_all_cores(self.threads),
                accuracy: match self.accuracy {
                    AccuracyArgument::Fast => Accuracy::Fast,
                    AccuracyArgument::Strict => Accuracy::Strict,
                },
                memory_budget: self.memory_budget,
                ..EngineOptions::default()
            },
            scratch: self.scratch.clone(),
            ..FileDenoising::new(&self.input, &self.out, deviation)
        })
    }
}

/// What the library names, and the options that are called otherwise or stand for it.
const OPTIONS: [(&str, &str); 9] = [
    ("axes", "--axes"),
    ("entry", "--entry"),
    ("memory_budget", "--memory-budget"),
    ("noise", "--noise"),
    ("normalise", "--normalise"),
    ("output", "--out"),
    ("scratch", "--scratch"),
    ("slices", "--slices"),
    ("white", "--white"),
];

/// A message of the library in the words of the command line.
fn in_options(message: &str) -> String {
    let named = |(name, option): (&str, &str)| {
        let rest = message.strip_prefix(name)?.strip_prefix(':')?;
        Some(format!("{option}:{rest}"))
    };
    let message = OPTIONS.into_iter().find_map(named).unwrap_or_else(|| message.to_owned());
    OPTIONS
        .into_iter()
        .fold(message, |message, (name, option)| message.replace(&format!("`{name}`"), option))
}

/// Shows the work done, and says what the library has to say.
struct Watch {
    bar: ProgressBar,
}

impl Watch {
    /// Prints a line that does not run into the bar.
    fn say(&self, level: log::Level, words: &str) {
        self.bar.suspend(|| crate::log::message(level, words));
    }
}

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Worked { flops } => self.bar.inc(flops as u64),
            Event::Note(words) => self.say(log::Level::Info, words),
            Event::Warning(words) => self.say(log::Level::Warn, &in_options(words)),
            _ => (),
        }
    }

    fn stop(&mut self) -> Option<u8> {
        interrupt::requested().map(Signal::number)
    }
}

/// A bar that moves with the operations done.
fn progress(flops: f64) -> Result<ProgressBar> {
    let bar = ProgressBar::new(flops as u64);
    let style = ProgressStyle::with_template("denoising {bar:40} {percent:>3} %, {eta} left")?;
    bar.set_style(style);
    Ok(bar)
}

fn describe(report: &DenoisedFile) -> Result<String> {
    let mut text = String::new();
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    writeln!(
        text,
        "{} ({}, {}) through {} with sigma {:.4}{}",
        report.input,
        sides(&report.shape[2..]),
        match report.channels {
            1 => "gray".to_owned(),
            3 => "colour".to_owned(),
            channels => format!("{channels} channels"),
        },
        report.network,
        report.sigma,
        match (report.sigma_used, report.sigma_estimated) {
            (false, _) => ", which this network does not use",
            (true, true) => ", estimated from the image",
            (true, false) => "",
        },
    )?;
    if report.slices > 1 {
        writeln!(text, "passes    {}, one by one", report.slices)?;
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
        "time      {:.2} s, {:.2} megapixels/s on {}, after {:.2} s of planning",
        report.seconds,
        report.megapixels_per_second,
        count(report.threads, "thread"),
        report.planning_seconds
    )?;
    if let Some(rows) = report.band_rows {
        writeln!(
            text,
            "waves     {} waves of {rows} rows, because the whole image would take {} at once; the result is the same{}",
            report.waves,
            megabytes(report.memory_whole_bytes as f64),
            if report.by_bands { "; the files are read and written by bands" } else { "" }
        )?;
    }
    writeln!(
        text,
        "memory    {} predicted, {} measured",
        megabytes(report.memory_predicted_bytes as f64),
        report.memory_measured_bytes.map_or_else(|| "not".into(), |bytes| megabytes(bytes as f64))
    )?;
    if let Some(bytes) = report.scratch_bytes {
        writeln!(text, "scratch   at most {} in files", megabytes(bytes as f64))?;
    }
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
pub(crate) fn parse_budget(text: &str) -> std::result::Result<usize, String> {
    haloscope_job::parse_bytes(text).map(|bytes| bytes as usize)
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
    fn messages_name_options() {
        for (message, words) in [
            (
                "noise: 3 is too much; `white` changes it",
                "--noise: 3 is too much; --white changes it",
            ),
            ("output: there is no folder a", "--out: there is no folder a"),
            ("noise.npy: give `memory_budget`", "noise.npy: give --memory-budget"),
        ] {
            assert_eq!(in_options(message), words);
        }
    }
}
