//! `haloscope evaluate`: how well a network removes noise from images that are known without it.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use haloscope_job::words::count;
use haloscope_nn::models::ModelName;
use haloscope_study::evaluate::{Evaluated, Evaluation, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Misuse, Preparation};
use crate::onnx::OnnxArguments;
use crate::threads::{self, parse_threads};

/// The options of `haloscope evaluate`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Clean images, or folders of them
    #[arg(required = true)]
    images: Vec<PathBuf>,

    /// Network: builtin:color, builtin:gray, builtin:volume, a file with weights, or an ONNX file
    #[arg(long, short)]
    model: String,

    #[command(flatten)]
    onnx: OnnxArguments,

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

/// Adds noise, removes it, and prints the mean quality for each level.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let evaluation = arguments.evaluation().or_misuse()?;
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}  {eta} left")?);
    let evaluated = evaluation.run(&mut |progress| match progress {
        Progress::Note(note) => crate::onnx::tell_device(Some(note)),
        Progress::Image { file, runs } => {
            bar.set_length(runs as u64);
            bar.set_message(file.display().to_string());
        }
        Progress::Scored { file, level, psnr_db, seconds } => {
            bar.suspend(|| {
                let name = file.display();
                log::info!("{name} with noise of {level}: {psnr_db:.2} dB in {seconds:.2} s");
            });
            bar.inc(1);
        }
        _ => (),
    });
    bar.finish_and_clear();
    let evaluated = evaluated.map_err(Misuse::or_failure)?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&evaluated)? + "\n"
    } else {
        describe(&evaluated)?
    };
    crate::print(&text)
}

impl Arguments {
    fn evaluation(&self) -> Result<Evaluation> {
        Ok(Evaluation {
            images: self.images.clone(),
            only: self.only.clone(),
            model: ModelName::in_job(&self.model)?,
            options: self.onnx.options()?,
            levels: self.levels.clone(),
            threads: threads::or_all_cores(self.threads),
        })
    }
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

fn describe(report: &Evaluated) -> Result<String> {
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
