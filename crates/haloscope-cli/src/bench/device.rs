//! `haloscope bench device`: whether a device computes what the CPU does, and how fast, for machines that nobody of us has seen.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use haloscope_job::DeviceChoice;
use haloscope_nn::models::ModelName;
use haloscope_study::device::{Agreement, DeviceCheck, DeviceReport};

use crate::exit::{Code, Misuse};
use crate::threads::{self, parse_threads};

/// The options of `haloscope bench device`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Device: gpu, gpu:N, cpu for ONNX Runtime's CPU provider, or auto
    #[arg(long, default_value = "auto", value_parser = str::parse::<DeviceChoice>)]
    device: DeviceChoice,

    /// Network: builtin:color, drunet, or weights
    #[arg(long, short, default_value = "builtin:color")]
    model: ModelName,

    /// Sides of square tiles
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "128,256",
        value_parser = clap::value_parser!(u16).range(8..=8192))]
    patches: Vec<u16>,

    /// Tiles at once
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    batches: Vec<u16>,

    /// Runs of which the fastest counts, after one that does not
    #[arg(long, value_name = "N", default_value = "3",
        value_parser = clap::value_parser!(u16).range(1..=100))]
    repetitions: u16,

    /// Number of threads on the CPU; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// File for the report, as JSON
    #[arg(long, short)]
    out: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the checks and prints the report.
pub(super) fn run(arguments: &Arguments) -> Result<Code> {
    let lengths = |list: &[u16]| list.iter().copied().map(usize::from).collect();
    let check = DeviceCheck {
        device: arguments.device,
        model: arguments.model.clone(),
        patches: lengths(&arguments.patches),
        batches: lengths(&arguments.batches),
        repetitions: arguments.repetitions.into(),
        threads: threads::or_all_cores(arguments.threads),
    };
    let tell = &mut |note: &str| crate::onnx::tell_device(Some(note));
    let report = check.run(tell).map_err(Misuse::or_failure)?;
    let text = serde_json::to_string_pretty(&report)? + "\n";
    if let Some(path) = &arguments.out {
        std::fs::write(path, &text).with_context(|| path.display().to_string())?;
    }
    crate::print(&if arguments.json { text } else { describe(&report)? })?;
    anyhow::ensure!(
        report.precisions.iter().all(Agreement::is_good),
        "{} does not compute what the CPU engine does: see the differences above",
        report.device
    );
    Ok(Code::Success)
}

fn describe(report: &DeviceReport) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "{} on {}, ONNX Runtime {}", report.model, report.device, report.library)?;
    let rate = report.transfer_bytes_per_second / 1e9;
    writeln!(text, "transfer   {rate:.1} GB/s to the device and back\n")?;
    writeln!(text, "precision   difference from the CPU engine")?;
    for Agreement { precision, difference, accepted, failure } in &report.precisions {
        let words = match (difference, failure) {
            (Some(difference), _) if difference < accepted => {
                format!("{difference:.1e}, less than {accepted:.0e}")
            }
            (Some(difference), _) => format!("{difference:.1e}, MORE than {accepted:.0e}"),
            (None, failure) => failure.clone().unwrap_or_default(),
        };
        writeln!(text, "{precision:<11} {words}")?;
    }
    writeln!(
        text,
        "\nprecision  patch  batch    seconds  megapixels/s  host, device MB (forecast)"
    )?;
    for speed in &report.speeds {
        writeln!(
            text,
            "{:<9} {:>6} {:>6} {:>10.4} {:>13.2}  {:.0}, {:.0}",
            speed.precision,
            speed.patch,
            speed.batch,
            speed.seconds,
            speed.megapixels_per_second,
            speed.host_bytes as f64 / 1e6,
            speed.device_bytes as f64 / 1e6
        )?;
    }
    Ok(text)
}
