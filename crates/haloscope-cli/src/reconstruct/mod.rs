//! `haloscope reconstruct`: a job on all ranks, with its progress and its summary. `haloscope demo`
//! does the same with a job of its own.

mod progress;
mod watch;

use std::path::PathBuf;

use anyhow::Result;
use haloscope::distribute::agree;
use haloscope_comm::Context;
use haloscope_job::{Ending, Error, Job, Outcome, Resuming, Summary};

use crate::exit::{Agreed, Code};
use crate::interrupt::{self, Signal};
use crate::onnx::DeviceArguments;
use crate::ranks::RankArguments;
use crate::scratch::ScratchArguments;
use crate::trace::TraceArguments;
use watch::Watch;

/// The options of `haloscope reconstruct`.
#[derive(clap::Args, Clone)]
pub(crate) struct Arguments {
    /// Job file; `haloscope init` writes one to start from
    job: PathBuf,

    /// Resume from the last checkpoint, if there is one
    #[arg(long, conflicts_with = "start_over")]
    resume: bool,

    /// Discard the checkpoints of earlier runs
    #[arg(long)]
    start_over: bool,

    #[command(flatten)]
    device: DeviceArguments,

    #[command(flatten)]
    scratch: ScratchArguments,

    #[command(flatten)]
    run: RunArguments,
}

/// The options of commands that run a job: what it prints, where its ranks come from, and whether it is traced.
#[derive(clap::Args, Clone)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    printing: Printing,

    #[command(flatten)]
    ranks: RankArguments,

    #[command(flatten)]
    trace: TraceArguments,
}

/// What a run prints.
#[derive(clap::Args, Clone, Copy)]
struct Printing {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Print neither progress nor a summary
    #[arg(long, short)]
    quiet: bool,
}

/// Reconstructs, and reports on rank 0.
pub(crate) fn run(arguments: &Arguments) -> Result<Code> {
    let (path, device) = (arguments.job.clone(), arguments.device.device);
    let scratch = arguments.scratch.clone();
    let resuming = match (arguments.resume, arguments.start_over) {
        (true, _) => Resuming::Latest,
        (_, true) => Resuming::Never,
        _ => Resuming::Refuse,
    };
    arguments.run.run(move |ctx| {
        let job = scratch.apply(agree(ctx, Job::from_file(&path))?.resuming(resuming))?;
        Ok(match device {
            Some(device) => job.on_device(device),
            None => job,
        })
    })
}

impl RunArguments {
    /// Runs the job that `job` makes on every rank, and prints what came of it.
    pub(crate) fn run(
        &self,
        job: impl Fn(&Context) -> haloscope::Result<Job> + Send + Sync + 'static,
    ) -> Result<Code> {
        interrupt::watch()?;
        let (printing, trace) = (self.printing, self.trace.clone());
        let result = self.ranks.run(move |ctx| {
            trace.run(ctx, |ctx| {
                let job = job(ctx).map_err(|error| Agreed::misuse(ctx, error))?;
                reconstruct(ctx, &job, printing)
            })
        })?;
        finish(result, printing)
    }
}

/// Prints what a run returned on this rank.
fn finish(result: Finished, printing: Printing) -> Result<Code> {
    match result {
        // Ranks other than the first have nothing to say.
        Finished::Done(None) => Ok(Code::Success),
        Finished::Done(Some(summary)) => {
            if printing.json {
                crate::print(&(serde_json::to_string_pretty(&*summary)? + "\n"))?;
            } else if !printing.quiet {
                crate::print(&summary.describe())?;
            }
            Ok(Code::Success)
        }
        Finished::Interrupted { signal, note } => {
            if let Some(note) = note {
                crate::log::message(log::Level::Warn, &note);
            }
            Ok(Code::Interrupted(signal))
        }
    }
}

/// How a run ended, on one rank.
enum Finished {
    /// By the rules of the job; rank 0 has the summary.
    Done(Option<Box<Summary>>),
    /// By a signal; rank 0 has words on it.
    Interrupted { signal: Signal, note: Option<String> },
}

/// Runs a job; all ranks call it.
fn reconstruct(ctx: &Context, job: &Job, printing: Printing) -> Result<Finished> {
    let mut watch = Watch::new(ctx, job, printing);
    let outcome = job.run(ctx, &mut watch).map_err(|error| match error {
        Error::Refused(error) => Agreed::misuse(ctx, error),
        Error::Failed(error) => Agreed::failure(ctx, error),
    })?;
    let signal = match outcome.ending {
        Ending::Stopped(number) => Signal::from_number(number),
        _ => None,
    };
    Ok(match signal {
        Some(signal) => {
            let note = ctx.is_root().then(|| interruption(job, &outcome, signal));
            Finished::Interrupted { signal, note }
        }
        None => Finished::Done(watch.into_summary()),
    })
}

fn interruption(job: &Job, outcome: &Outcome, signal: Signal) -> String {
    let (name, iteration) = (signal.name(), outcome.iterations());
    match &outcome.checkpoints {
        None => format!("ended by {name} after iteration {iteration}, without a checkpoint"),
        Some(folder) => format!(
            "ended by {name} after iteration {iteration}; a checkpoint is in {}, and `haloscope reconstruct {} \
             --resume` resumes from it",
            folder.display(),
            job.name()
        ),
    }
}
