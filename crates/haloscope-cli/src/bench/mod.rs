//! `haloscope bench`: studies of how this machine or cluster does, and a model of larger ones.
//!
//! Each study is a file with its options; what they share is in `run.rs`. The work is in `haloscope-study`.

mod batch;
mod compare;
#[cfg(feature = "onnx")]
mod device;
mod memory;
mod overlap;
mod predict;
mod problem;
mod run;
mod scaling;
mod slurm;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use haloscope_study::results::read_rows;
use haloscope_study::trial::Question;
use haloscope_study::{measure, tables};

use crate::exit::{Code, Preparation};

/// The options of `haloscope bench`.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    study: Study,
}

#[derive(clap::Subcommand)]
enum Study {
    /// Time reconstructions on several numbers of ranks: speedup, efficiency, and where the time goes
    Scaling(Box<scaling::Arguments>),
    /// Run networks on images of several widths: predicted and measured memory, and time
    Memory(memory::Arguments),
    /// Process an image in patches of several sizes and batches: throughput and memory
    Batch(batch::Arguments),
    /// Denoise an image in tiles of several overlaps: how far the result is from that of the whole network
    Overlap(overlap::Arguments),
    /// Run the same reconstructions in haloscope and in deepinv, if it is installed
    Compare(compare::Arguments),
    /// Check a device against the CPU engine in each precision, and time it: a report for machines with GPUs
    #[cfg(feature = "onnx")]
    Device(device::Arguments),
    /// Predict larger numbers of ranks from measured rows and a description of a cluster
    Predict(predict::Arguments),
    /// Print the tables of existing results
    Summary {
        /// Folders of results
        #[arg(required = true)]
        results: Vec<PathBuf>,
    },
    /// Measure one configuration; the studies start this command
    #[command(hide = true)]
    Worker {
        /// What to measure, as JSON
        question: String,
    },
}

/// Runs the study that is asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<Code> {
    match &arguments.study {
        Study::Scaling(arguments) => return scaling::run(arguments),
        Study::Memory(arguments) => return memory::run(arguments),
        Study::Batch(arguments) => return batch::run(arguments),
        Study::Overlap(arguments) => return overlap::run(arguments),
        Study::Compare(arguments) => return compare::run(arguments),
        #[cfg(feature = "onnx")]
        Study::Device(arguments) => return device::run(arguments),
        Study::Predict(arguments) => predict::run(arguments),
        Study::Summary { results } => {
            let mut rows = Vec::new();
            for folder in results {
                rows.extend(read_rows(folder).or_misuse()?);
            }
            crate::print(&tables::describe(&rows))
        }
        Study::Worker { question } => work(question),
    }?;
    Ok(Code::Success)
}

/// Answers a question in lines of JSON. Nobody who listens is an error: the study has been ended.
fn work(question: &str) -> Result<()> {
    let question: Question = serde_json::from_str(question).context("the question")?;
    measure::answer(question, |answer| {
        let line = serde_json::to_string(&answer).map_err(std::io::Error::other);
        let told = line.and_then(|line| writeln!(std::io::stdout().lock(), "{line}"));
        told.map_err(|error| haloscope_study::Error::Process {
            configuration: "the study".into(),
            reason: error.to_string(),
        })
    })?;
    Ok(())
}
