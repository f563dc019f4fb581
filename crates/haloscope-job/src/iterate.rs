//! The loop of a run: where every iteration is shown, compared with the truth, saved, and stopped on request.
//!
//! All ranks run it. What only rank 0 does (comparing, showing) is not in the time that is reported; what all must
//! agree on (saving, stopping) is decided by all.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use haloscope::Result;
use haloscope::distribute::agree_on_root;
use haloscope::solve::{Reason, Record, State, solve};
use haloscope_comm::{Collectives, Context, Reduction};

use crate::layout::Truth;
use crate::observer::Event;
use crate::prepare::Prepared;
use crate::quality::Quality;
use crate::run::Told;
use crate::saving::Saving;

/// How the iterations went.
pub(crate) struct Iterated {
    pub state: State,
    pub reason: Reason,
    pub records: Vec<Record>,
    /// Without comparisons and checkpoints.
    pub seconds: f64,
    /// How near the truth it was after some iterations.
    pub qualities: Vec<(usize, Quality)>,
    /// What an observer ended it with.
    pub stopped: Option<u8>,
    /// Whether it could have gone on: an observer or the time limit ended it.
    pub is_cut_short: bool,
    /// Where the checkpoint is that the run can go on from.
    pub saved: Option<PathBuf>,
}

/// Iterates until the job's rules or an observer end it. All ranks call it, with the same state.
pub(crate) fn iterate(
    ctx: &Context,
    prepared: &Prepared,
    state: State,
    mut saving: Option<&mut Saving>,
    told: &mut Told<'_>,
) -> Result<Iterated> {
    let Prepared { problem, algorithm, stopping, truth, truth_part, has_truth, .. } = prepared;
    // Often enough for a plot.
    let every = (stopping.iterations / 15).clamp(1, 10);
    let mut qualities: Vec<(usize, Quality)> = Vec::new();
    let mut aside = Duration::ZERO;
    let mut stop = None;
    ctx.comm().reset_statistics();
    let begin = Instant::now();
    let outcome = solve(
        problem,
        &**algorithm,
        state,
        stopping,
        Some(&mut |record, state| {
            let clock = Instant::now();
            let is_due = *has_truth && record.iteration.is_multiple_of(every);
            let quality = if let Some((truth, range)) = truth_part.as_ref().filter(|_| is_due) {
                Some(Quality::of_parts(&state.image, truth, *range)?)
            } else if is_due {
                let compare =
                    |truth: &Truth| Quality::of(state.image.whole()?, &truth.image, truth.range);
                agree_on_root(ctx, || truth.as_ref().map(compare).transpose())?.flatten()
            } else {
                None
            };
            qualities.extend(quality.map(|quality| (record.iteration, quality)));
            told.event(Event::Iteration { record, quality });
            if let Some(saving) = &mut saving
                && saving.save_if_due(ctx, state, told)?
            {
                told.event(Event::Checkpoint { iteration: record.iteration });
            }
            aside += clock.elapsed();
            stop = told.stop();
            Ok(if stop.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }),
    )?;
    let seconds = begin.elapsed().saturating_sub(aside).as_secs_f64();
    let stopped = match outcome.reason {
        Reason::Watcher => agree_on_stop(ctx, stop)?,
        _ => None,
    };
    // Both can be gone on from.
    let is_cut_short = stopped.is_some() || outcome.reason == Reason::TimeLimit;
    let saved = match &mut saving {
        Some(saving) if is_cut_short => saving.save_last(ctx, &outcome.state, told)?,
        _ => None,
    };
    Ok(Iterated {
        state: outcome.state,
        reason: outcome.reason,
        records: outcome.records,
        seconds,
        qualities,
        stopped,
        is_cut_short,
        saved,
    })
}

/// The reason to stop that some rank has, for all of them.
fn agree_on_stop(ctx: &Context, stop: Option<u8>) -> Result<Option<u8>> {
    let mut number = [u64::from(stop.unwrap_or(0))];
    ctx.comm().all_reduce(Reduction::Max, &mut number)?;
    Ok(u8::try_from(number[0]).ok().filter(|number| *number > 0))
}
