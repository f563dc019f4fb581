//! The loop of a run: where every iteration is shown, compared with the truth, saved, and stopped by a signal.
//!
//! All ranks run it. What only rank 0 does (comparing, showing) is not in the time that is reported; what all must
//! agree on (saving, stopping) is decided by all.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use haloscope::solve::{Checkpoints, FolderLock, JobId, Outcome, Reason, Record, State, solve};
use haloscope::{Error, Result};
use haloscope_comm::{Collectives, Context, Reduction};
use serde_json::json;

use super::prepare::Prepared;
use super::progress::Progress;
use super::summary::Quality;
use crate::interrupt::{self, Signal};
use crate::{log, records};

/// Checkpoints, and what they are of.
pub struct Saving {
    pub checkpoints: Checkpoints,
    pub id: JobId,
    /// What keeps other runs out of their folder, on the rank that writes them.
    pub lock: Option<FolderLock>,
    /// Whether one of them is this run's: it resumed from it, or wrote it.
    has_own: bool,
    /// Whether the last attempt failed, which is said once.
    is_in_trouble: bool,
}

impl Saving {
    /// Of a run that resumes or begins.
    pub fn new(
        checkpoints: Checkpoints,
        id: JobId,
        lock: Option<FolderLock>,
        resumes: bool,
    ) -> Self {
        Self { checkpoints, id, lock, has_own: resumes, is_in_trouble: false }
    }

    /// Saves if it is time; all ranks call it. A checkpoint that cannot be written is no reason to stop computing.
    fn save_if_due(&mut self, ctx: &Context, state: &State) -> Result<bool> {
        let outcome = self.checkpoints.save_if_due(ctx, state, &self.id);
        let Some(error) = trouble(&outcome) else {
            let is_saved = outcome?;
            self.is_in_trouble &= !is_saved;
            self.has_own |= is_saved;
            return Ok(is_saved);
        };
        if !std::mem::replace(&mut self.is_in_trouble, true) {
            let words = format!("cannot write a checkpoint: {error}; the run continues without it");
            ctx.log(::log::Level::Warn, words);
        }
        Ok(false)
    }

    /// The run is over and its result is written: nothing of it stops the next one.
    pub fn finish(&mut self) {
        self.checkpoints.finish();
        let is_empty = self.checkpoints.list().is_ok_and(|list| list.is_empty());
        if let Some(lock) = self.lock.as_mut().filter(|_| is_empty) {
            lock.discard_folder();
        }
    }

    /// Saves the state that a run is cut short with; all ranks call it. Gives the folder if that worked.
    fn save_last(&mut self, ctx: &Context, state: &State) -> Result<Option<PathBuf>> {
        let outcome = self.checkpoints.save_together(ctx, state, &self.id);
        let Some(error) = trouble(&outcome) else {
            return outcome.map(|()| Some(self.checkpoints.folder().to_owned()));
        };
        if ctx.is_root() {
            let earlier = match self.checkpoints.list().unwrap_or_default().first() {
                Some(latest) if self.has_own => {
                    format!("--resume continues from {}", latest.display())
                }
                _ => "there is none to resume from".to_owned(),
            };
            let words = format!("cannot write a checkpoint: {error}; {earlier}");
            ctx.log(::log::Level::Warn, words);
        }
        Ok(None)
    }
}

/// Why a checkpoint could not be written, unless it is that ranks are gone.
fn trouble<T>(outcome: &Result<T>) -> Option<&Error> {
    outcome.as_ref().err().filter(|error| !matches!(error, Error::Ranks(_)))
}

/// How a run went.
pub struct Ended {
    pub outcome: Outcome,
    /// Without comparisons and checkpoints.
    pub seconds: f64,
    /// How near the truth it was after some iterations.
    pub qualities: Vec<(usize, Quality)>,
    /// What ended it, if it was not a rule of the job.
    pub signal: Option<Signal>,
    /// Whether it could have gone on: a signal or the time limit ended it.
    pub is_cut_short: bool,
    /// Where the checkpoint is that the run can go on from.
    pub saved: Option<PathBuf>,
    /// The checkpoints, for what comes after.
    pub saving: Option<Saving>,
}

/// Iterates until the job's rules or a signal end it. All ranks call it, with the same state.
pub fn iterate(
    ctx: &Context,
    prepared: &Prepared,
    state: State,
    mut saving: Option<Saving>,
    progress: &mut Progress,
) -> Result<Ended> {
    let Prepared { problem, algorithm, stopping, truth, .. } = prepared;
    // Often enough for a plot.
    let every = (stopping.iterations / 15).clamp(1, 10);
    let mut qualities: Vec<(usize, Quality)> = Vec::new();
    let mut aside = Duration::ZERO;
    ctx.comm().reset_statistics();
    let begin = Instant::now();
    let outcome = solve(
        problem,
        &**algorithm,
        state,
        stopping,
        Some(&mut |record, state| {
            let clock = Instant::now();
            if ctx.is_root() {
                if let Some(truth) = truth
                    && record.iteration.is_multiple_of(every)
                {
                    qualities.push((record.iteration, Quality::of(&state.image, truth)?));
                }
                progress.show(record, &facts(record, qualities.last()));
                log::event(ctx, "iteration", || records::details(ctx.rank(), record, &qualities));
            }
            if let Some(saving) = &mut saving
                && saving.save_if_due(ctx, state)?
            {
                log::event(ctx, "checkpoint", || json!({ "iteration": record.iteration }));
                ctx.log(
                    ::log::Level::Debug,
                    format!("checkpoint after iteration {}", record.iteration),
                );
            }
            aside += clock.elapsed();
            Ok(match interrupt::requested() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        }),
    )?;
    let seconds = begin.elapsed().saturating_sub(aside).as_secs_f64();
    progress.finish();
    let signal = match outcome.reason {
        Reason::Watcher => agree_on_signal(ctx)?,
        _ => None,
    };
    // Both can be gone on from.
    let is_cut_short = signal.is_some() || outcome.reason == Reason::TimeLimit;
    let saved = match &mut saving {
        Some(saving) if is_cut_short => saving.save_last(ctx, &outcome.state)?,
        _ => None,
    };
    Ok(Ended { outcome, seconds, qualities, signal, is_cut_short, saved, saving })
}

fn facts(record: &Record, latest: Option<&(usize, Quality)>) -> String {
    let fact = match record.data_term {
        Some(term) => format!("data term {term:.4}"),
        None => format!("change {:.1e}", record.relative_change),
    };
    match latest {
        Some((_, quality)) => format!("{fact}, {:.2} dB", quality.psnr_db),
        None => fact,
    }
}

/// The signal that some rank got, for all of them.
fn agree_on_signal(ctx: &Context) -> Result<Option<Signal>> {
    let mut number = [interrupt::requested().map_or(0, Signal::number)];
    ctx.comm().all_reduce(Reduction::Max, &mut number)?;
    Ok(Signal::from_number(number[0]))
}
