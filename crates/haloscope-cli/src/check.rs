//! `haloscope check`: everything that a run would find wrong at its beginning, and what it would do; nothing is run.

use std::path::PathBuf;

use anyhow::Result;
use haloscope_comm::Launch;
use haloscope_job::Job;

use crate::exit::{Code, Misuse};
use crate::onnx::DeviceArguments;
use crate::scratch::ScratchArguments;

/// The options of `haloscope check`.
#[derive(clap::Args, Clone)]
pub(crate) struct Arguments {
    /// Job file
    job: PathBuf,

    /// Number of ranks to plan for, on this machine
    #[arg(long, value_name = "N", value_parser = crate::ranks::parse_ranks)]
    ranks: Option<usize>,

    #[command(flatten)]
    device: DeviceArguments,

    #[command(flatten)]
    scratch: ScratchArguments,
}

/// Prints the plan of the job.
pub(crate) fn run(arguments: &Arguments) -> Result<Code> {
    // Under a launcher, one process is enough to look.
    let launch = Launch::detect().ok().flatten();
    if launch.is_some_and(|launch| launch.rank != 0) {
        return Ok(Code::Success);
    }
    let ranks = arguments.ranks.or(launch.and_then(|launch| launch.size)).unwrap_or(1);
    // A launcher's ranks are processes, ours are threads.
    let together = arguments.ranks.unwrap_or(1);
    let mut job = Job::from_file(&arguments.job).map_err(Misuse::error)?;
    if let Some(device) = arguments.device.device {
        job = job.on_device(device);
    }
    let job = arguments.scratch.apply(job).map_err(Misuse::error)?;
    let plan = job.check_processes(ranks, together).map_err(Misuse::error)?;
    crate::print(&plan.to_string())?;
    Ok(Code::Success)
}
