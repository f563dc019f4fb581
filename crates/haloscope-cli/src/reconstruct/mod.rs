//! A job from its file to its result, on all ranks: `haloscope reconstruct`, and what `haloscope demo` is made of.
//!
//! `layout` and `prepare` make a problem of a job, `iterate` is the loop, and rank 0 writes what came out.

mod facts;
mod iterate;
pub mod layout;
mod pictures;
mod prepare;
mod progress;
mod stages;
mod summary;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::agree;
use haloscope::solve::{Checkpoints, FolderLock, JobId, State, gather_records};
use haloscope::{Array, io};
use haloscope_comm::{Collectives, Context};
use serde_json::json;

use crate::exit::{Agreed, Code};
use crate::interrupt::{self, Signal};
use crate::job::Job;
use crate::job::files::is_picture;
use crate::memory::Expected;
use crate::ranks::RankArguments;
use crate::records::RankSummary;
use crate::trace::TraceArguments;
use facts::Facts;
use iterate::{Ended, Saving, iterate};
use layout::Layout;
use prepare::Prepared;
use progress::Progress;
use stages::Stages;
use summary::digest;
pub use summary::{Quality, Summary};

/// The options of `haloscope reconstruct`.
#[derive(clap::Args, Clone)]
pub struct Arguments {
    /// Job file; `haloscope init` writes one to start from
    job: PathBuf,

    /// Resume from the last checkpoint, if there is one
    #[arg(long, conflicts_with = "start_over")]
    resume: bool,

    /// Discard the checkpoints of earlier runs
    #[arg(long)]
    start_over: bool,

    #[command(flatten)]
    printing: Printing,

    #[command(flatten)]
    ranks: RankArguments,

    #[command(flatten)]
    trace: TraceArguments,
}

/// What a run prints.
#[derive(clap::Args, Clone, Copy)]
pub struct Printing {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Print neither progress nor a summary
    #[arg(long, short)]
    quiet: bool,
}

/// Reconstructs, and reports on rank 0.
pub fn run(arguments: &Arguments) -> Result<Code> {
    interrupt::watch()?;
    let (path, printing, trace) =
        (arguments.job.clone(), arguments.printing, arguments.trace.clone());
    let resuming = match (arguments.resume, arguments.start_over) {
        (true, _) => Resuming::Latest,
        (_, true) => Resuming::Never,
        _ => Resuming::Refuse,
    };
    let result = arguments.ranks.run(move |ctx| {
        trace.run(ctx, |ctx| {
            let job = agree(ctx, Job::open(&path)).map_err(|error| Agreed::misuse(ctx, error))?;
            reconstruct(ctx, &job, Some(resuming), printing)
        })
    })?;
    finish(result, printing)
}

/// Prints what a run returned on this rank.
pub fn finish(result: Finished, printing: Printing) -> Result<Code> {
    match result {
        // Ranks other than the first have nothing to say.
        Finished::Done(None) => Ok(Code::Success),
        Finished::Done(Some(summary)) => {
            if printing.json {
                crate::print(&(serde_json::to_string_pretty(&*summary)? + "\n"))?;
            } else if !printing.quiet {
                crate::print(&summary.describe()?)?;
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

/// What is done about checkpoints that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resuming {
    /// Go on from the latest.
    Latest,
    /// Give them up.
    Never,
    /// Refuse to run.
    Refuse,
}

/// How a run ended, on one rank.
pub enum Finished {
    /// By the rules of the job; rank 0 has the summary.
    Done(Option<Box<Summary>>),
    /// By a signal; rank 0 has words on it.
    Interrupted { signal: Signal, note: Option<String> },
}

/// Runs a job; all ranks call it. Without `resuming` there are no checkpoints.
pub fn reconstruct(
    ctx: &Context,
    job: &Job,
    resuming: Option<Resuming>,
    printing: Printing,
) -> Result<Finished> {
    let refused = |error| Agreed::misuse(ctx, error);
    let mut stages = Stages::new(ctx);
    let layout = agree(ctx, Layout::of(job, ctx.local_size())).map_err(refused)?;
    stages.end("reading the job and its data");
    let network = agree(ctx, job.share_network(ctx, &layout.image)).map_err(refused)?;
    let expected = expect(ctx, job, &layout, network.as_deref()).map_err(refused)?;
    stages.say_tiles(&expected);
    let (shape, operators) = (layout.image[1..].to_vec(), layout.recipes.len());
    let facts = Facts::of(job, &layout);
    let (saving, found) = match resuming {
        None => (None, None),
        Some(resuming) => {
            let opened = open_checkpoints(ctx, job, resuming, printing);
            let (saving, found) = opened.map_err(refused)?;
            (Some(saving), found)
        }
    };
    let _output = lock_output(ctx, job, saving.is_some()).map_err(refused)?;
    let warnings = agree(ctx, layout.warnings(job)).map_err(refused)?;
    stages.end("opening the network and the folders");
    let begin = Instant::now();
    let mut prepared = Prepared::new(ctx, job, layout, network, found.as_ref()).map_err(refused)?;
    let preparation = begin.elapsed().as_secs_f64();
    // What is refused is not warned of.
    for warning in warnings {
        ctx.log(log::Level::Warn, warning);
    }
    let resumed_from = found.as_ref().map(|state| state.iteration);
    let state = found.or(prepared.start.take()).context("a run begins or goes on")?;
    let failed = |error| Agreed::failure(ctx, error);
    stages.end("preparing operators, measurements and method");
    announce(ctx, job, &shape, &prepared, resumed_from);
    say(ctx, printing, &expected, &prepared.notes);
    let mut progress =
        Progress::new(ctx, printing.quiet, state.iteration, prepared.stopping.iterations)?;
    let mut ended = iterate(ctx, &prepared, state, saving, &mut progress).map_err(failed)?;
    stages.end("iterating");
    let statistics = ctx.comm().gather_statistics()?;
    let records = gather_records(ctx, &ended.outcome.records)?;
    if let Some(signal) = ended.signal {
        let note = ctx.is_root().then(|| interruption(job, &ended, signal));
        return Ok(Finished::Interrupted { signal, note });
    }
    let moved: u64 = statistics.iter().map(|costs| costs.total().bytes_sent).sum();
    let written = if ctx.is_root() {
        let of_rank =
            |(rank, records): (usize, &Vec<_>)| RankSummary::of(rank, records, &ended.qualities);
        let is_direct = job.solver.method.is_direct();
        let mut summary = Summary {
            problem: job.name.clone(),
            shape,
            operators,
            ranks: ctx.size(),
            method: job.solver.method.name(),
            prior: job.prior.describe(),
            iterations: ended.outcome.state.iteration,
            resumed_from,
            reason: if is_direct {
                "filtered back-projection has no iterations".into()
            } else {
                ended.outcome.reason.to_string()
            },
            seconds: if is_direct { preparation } else { ended.seconds },
            data_term: ended.outcome.records.iter().rev().find_map(|record| record.data_term),
            before: None,
            before_shows: prepared.before.as_ref().map(|before| before.shows.clone()),
            after: None,
            megabytes_moved: moved as f64 / 1e6,
            per_rank: records.iter().enumerate().map(of_rank).collect(),
            bits: String::new(),
            depends_on_ranks: job.prior.depends_on_ranks(),
            files: Vec::new(),
            pictures: Vec::new(),
            page: None,
            checkpoints: ended.saved.as_deref().map(|folder| folder.display().to_string()),
            facts,
        };
        write_result(job, &prepared, &ended, &mut summary).map(|()| {
            conclude(ctx, &summary);
            Some(Box::new(summary))
        })
    } else {
        Ok(None)
    };
    let written = written.map_err(|error| {
        error.downcast::<haloscope::Error>().unwrap_or_else(|error| haloscope::Error::File {
            file: "output".into(),
            reason: format!("{error:#}"),
        })
    });
    let written = agree(ctx, written).map_err(|error| rescue(ctx, &mut ended, error));
    stages.end("writing the result");
    if let (Ok(_), Some(saving)) = (&written, &mut ended.saving)
        && ctx.is_root()
        && !ended.is_cut_short
    {
        saving.finish();
    }
    Ok(Finished::Done(written.map_err(failed)?))
}

/// Tells people, and programs, what the run will take and what was found in the data.
fn say(ctx: &Context, printing: Printing, expected: &Expected, notes: &[String]) {
    crate::log::event(ctx, "plan", || expected.details());
    if !ctx.is_root() || printing.quiet {
        return;
    }
    if !crate::log::is_json() {
        let needed = expected.announce(ctx.size(), ctx.process_size());
        crate::log::message(log::Level::Info, &needed);
    }
    for note in notes {
        crate::log::message(log::Level::Info, note);
    }
}

/// What cannot be written is not lost if there is room for a checkpoint.
fn rescue(ctx: &Context, ended: &mut Ended, error: haloscope::Error) -> haloscope::Error {
    let Some(Saving { checkpoints, id, .. }) = &mut ended.saving else { return error };
    match checkpoints.save_together(ctx, &ended.outcome.state, id) {
        Err(_) => error,
        Ok(()) => haloscope::Error::File {
            file: "the result".into(),
            reason: format!(
                "{error}; the image is in a checkpoint in {}, and --resume writes it again",
                checkpoints.folder().display()
            ),
        },
    }
}

/// What the job will take, if it fits on this machine; all ranks agree on it.
fn expect(
    ctx: &Context,
    job: &Job,
    layout: &Layout,
    network: Option<&NetworkDenoiser>,
) -> haloscope::Result<Expected> {
    let expected = Expected::of(job, layout, ctx.size(), network);
    let (here, processes) = (ctx.local_size(), ctx.local_size() / ctx.process_size());
    agree(ctx, expected.and_then(|expected| expected.check(here, processes).map(|()| expected)))
}

/// Tells programs what begins.
fn announce(
    ctx: &Context,
    job: &Job,
    shape: &[usize],
    prepared: &Prepared,
    resumed_from: Option<usize>,
) {
    crate::log::event(ctx, "started", || {
        json!({
            "problem": job.name,
            "shape": shape,
            "operators": prepared.problem.physics().len(),
            "ranks": ctx.size(),
            "method": job.solver.method.name(),
            "prior": job.prior.describe(),
            "iterations": prepared.stopping.iterations,
            "resumed_from": resumed_from,
        })
    });
}

/// Tells programs what came of it.
fn conclude(ctx: &Context, summary: &Summary) {
    crate::log::event(ctx, "finished", || {
        json!({
            "reason": summary.reason,
            "iterations": summary.iterations,
            "seconds": summary.seconds,
            "psnr_db": summary.after.map(|quality| quality.psnr_db),
            "files": summary.files,
            "per_rank": summary.per_rank,
        })
    });
}

/// The checkpoints of a job, and the state to go on from.
fn open_checkpoints(
    ctx: &Context,
    job: &Job,
    resuming: Resuming,
    printing: Printing,
) -> haloscope::Result<(Saving, Option<State>)> {
    // Only the first rank writes and reads them, and keeps other runs away.
    let lock = if ctx.is_root() { lock_checkpoints(job) } else { Ok(None) };
    let lock = agree(ctx, lock)?;
    let id = if ctx.is_root() { job.id(ctx.size()) } else { Ok(JobId::new(&*job.name, &[])) };
    let id = agree(ctx, id)?;
    let mut checkpoints = agree(ctx, job.checkpoint.open())?;
    let mut state = None;
    match resuming {
        Resuming::Latest => {
            let found = checkpoints.load_latest(ctx, &id)?;
            match &found {
                Some(found) => {
                    found.notes().iter().for_each(|note| ctx.log(log::Level::Warn, note));
                }
                None => ctx.log(
                    log::Level::Warn,
                    format!(
                        "there is no checkpoint in {}; the run starts from the beginning",
                        checkpoints.folder().display()
                    ),
                ),
            }
            state = found.map(|found| found.state);
        }
        Resuming::Never => {
            let outcome = if ctx.is_root() { checkpoints.start_over() } else { Ok(()) };
            agree(ctx, outcome)?;
        }
        Resuming::Refuse => {
            let outcome =
                if ctx.is_root() { begin_anew(&mut checkpoints, printing) } else { Ok(()) };
            agree(ctx, outcome)?;
        }
    }
    Ok((Saving::new(checkpoints, id, lock, state.is_some()), state))
}

/// Checkpoints of a run that is over are given up; others must not be lost.
fn begin_anew(checkpoints: &mut Checkpoints, printing: Printing) -> haloscope::Result<()> {
    let list = checkpoints.list()?;
    let Some(latest) = list.first() else { return Ok(()) };
    if !checkpoints.is_finished() {
        return Err(haloscope::Error::argument(
            "checkpoints",
            format!(
                "{} is there from an earlier run; --resume continues it, --start-over discards it",
                latest.display()
            ),
        ));
    }
    if !printing.quiet {
        let note = format!(
            "{} is from a run that finished; this run starts over, and --resume would have continued it",
            latest.display()
        );
        crate::log::message(log::Level::Info, &note);
    }
    checkpoints.start_over()
}

/// Keeps other runs out of the folder of checkpoints. One that cannot be written does so by itself, and is needed only
/// when there is something to save.
fn lock_checkpoints(job: &Job) -> haloscope::Result<Option<FolderLock>> {
    match FolderLock::take(&job.checkpoint.folder) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ haloscope::Error::Argument { .. }) => Err(error),
        Err(error) => {
            let level =
                if job.checkpoint.is_periodic() { log::Level::Warn } else { log::Level::Info };
            log::log!(level, "{error}; checkpoints cannot be written there");
            Ok(None)
        }
    }
}

/// Keeps other runs out of the folder of pictures, on the first rank.
fn lock_output(
    ctx: &Context,
    job: &Job,
    has_checkpoints: bool,
) -> haloscope::Result<Option<FolderLock>> {
    let same = |one: &Path, other: &Path| {
        one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
    };
    let is_locked = |folder: &Path| has_checkpoints && same(folder, &job.checkpoint.folder);
    let folder = job.output.folder.as_deref().filter(|_| ctx.is_root());
    let lock = folder.filter(|folder| !is_locked(folder)).map(FolderLock::take).transpose();
    agree(ctx, lock)
}

fn interruption(job: &Job, ended: &Ended, signal: Signal) -> String {
    let (name, iteration) = (signal.name(), ended.outcome.state.iteration);
    match &ended.saved {
        None => format!("ended by {name} after iteration {iteration}, without a checkpoint"),
        Some(folder) => format!(
            "ended by {name} after iteration {iteration}; a checkpoint is in {}, and `haloscope reconstruct {} \
             --resume` goes on from it",
            folder.display(),
            job.name
        ),
    }
}

/// Writes the image, pictures and the page, and completes the summary.
fn write_result(
    job: &Job,
    prepared: &Prepared,
    ended: &Ended,
    summary: &mut Summary,
) -> Result<()> {
    let output = &job.output;
    let found = &ended.outcome.state.image;
    summary.bits = digest(found);
    let clamped = output.clamp.map(|(low, high)| found.mapv(|value| value.clamp(low, high)));
    let after = clamped.as_ref().unwrap_or(found);
    for file in &output.files {
        if is_picture(file) {
            pictures::write_image(file, after, output.contrast)?;
        } else {
            io::write(file, after, &prepared.placement.write_options())?;
        }
        summary.files.push(file.display().to_string());
    }
    let truth = prepared.truth.as_ref();
    if let Some(truth) = truth {
        let of = |image: &Array| Quality::of(image, truth);
        summary.before = prepared.before.as_ref().map(|before| of(&before.image)).transpose()?;
        summary.after = Some(of(after)?);
    }
    if let Some(folder) = &output.folder {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let before = prepared.before.as_ref();
        let unit = &summary.facts.unit;
        let pictures = pictures::write(folder, truth, before, after, output.contrast, unit)?;
        summary.pictures = pictures.iter().map(|picture| picture.path.clone()).collect();
        let path = folder.join("report.html");
        summary.page = Some(path.display().to_string());
        let page = summary.to_page(&pictures, &ended.outcome.records, &ended.qualities)?;
        write_text(&path, &page)?;
    }
    Ok(())
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    Ok(io::write_atomically(path, |file| file.write_all(text.as_bytes()))?)
}
