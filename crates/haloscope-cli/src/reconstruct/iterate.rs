//! The loop of a run: where every iteration is shown, compared with the truth, saved, and stopped by a signal.
//!
//! All ranks run it. What only rank 0 does (comparing, showing) is not in the time that is reported; what all must
//! agree on (saving, stopping) is decided by all.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use haloscope::Result;
use haloscope::solve::{Checkpoints, JobId, Outcome, Reason, Record, State, solve};
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
                progress.show(record.iteration, &facts(record, qualities.last()));
                log::event(ctx, "iteration", || records::details(ctx.rank(), record, &qualities));
            }
            if let Some(Saving { checkpoints, id }) = &mut saving
                && checkpoints.save_if_due(ctx, state, id)?
            {
                log::event(ctx, "checkpoint", || json!({ "iteration": record.iteration }));
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
        Some(Saving { checkpoints, id }) if is_cut_short => {
            checkpoints.save_together(ctx, &outcome.state, id)?;
            Some(checkpoints.folder().to_owned())
        }
        _ => None,
    };
    Ok(Ended { outcome, seconds, qualities, signal, saved, saving })
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
