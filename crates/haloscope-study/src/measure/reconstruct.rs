//! The job of a configuration on ranks, with the time of every part of every iteration.
//!
//! All that a rank computes, vector operations included, happens in a pool of as many threads as the
//! configuration gives it; otherwise one rank on an idle machine would get help from cores that, on more ranks,
//! are not its own. Images are compared with the truth between iterations, outside what is timed.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use haloscope::memory::{peak_resident_bytes, resident_bytes};
use haloscope::metrics::{of_images, psnr};
use haloscope::solve::{Algorithm, Record, Setting, State, Stopping, solve};
use haloscope::{Digest, Image};
use haloscope_comm::{CallCost, Collectives, Context, ContextOptions, Operation};
use haloscope_job::Prepared;

use super::{Tell, counts};
use crate::error::{Error, Result};
use crate::row::{Mode, Row, Study};
use crate::trial::{Answer, Trial};

/// Measures all repetitions of a trial on one rank; the first rank reports them.
pub(super) fn reconstruct(ctx: &Context, trial: &Trial, tell: &Tell<'_>) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(trial.configuration.threads)
        .build()
        .map_err(|error| Error::argument("threads", error.to_string()))?;
    pool.install(|| {
        if trial.configuration.mode != Some(Mode::Contention) {
            return run(ctx, ctx, trial, tell);
        }
        // Every rank has the whole problem, and the ranks speak of nothing but their rows.
        let threads = Some(trial.configuration.threads);
        let alone = ContextOptions { threads, ..ContextOptions::default() }.solo()?;
        run(&alone, ctx, trial, tell)
    })
}

/// Measures on the ranks of `ctx`, of which `team` has one or several.
fn run(ctx: &Context, team: &Context, trial: &Trial, tell: &Tell<'_>) -> Result<()> {
    let (configuration, settings) = (&trial.configuration, &trial.settings);
    let is_counted = configuration.study == Study::Counts;
    let distribution = configuration.distribute.unwrap_or_default();
    let mut prepared = trial.job()?.prepare_distributed(ctx, distribution)?;
    let digest = digest(ctx, &prepared)?;
    if team.is_root() {
        tell(Answer::Data(digest))?;
    }
    // Only the first rank compares, unless each has a part.
    let truth = prepared.truth.take().filter(|_| ctx.is_root());
    let truth_part = prepared.truth_part.take();
    let start = prepared.start.take().ok_or_else(|| {
        Error::argument("job", "it has nothing to begin with, as if it resumed another")
    })?;
    let method = Counted { method: &*prepared.algorithm, ctx, cost: Mutex::default() };

    let iterate = |stopping: &Stopping, note: &mut Note<'_>| -> Result<Image> {
        let mut before = Sent::so_far(ctx);
        let watch = &mut |record: &Record, state: &State| {
            note(record, state, Sent::so_far(ctx).since(before))?;
            before = Sent::so_far(ctx);
            Ok(ControlFlow::Continue(()))
        };
        let outcome = solve(&prepared.problem, &method, start.clone(), stopping, Some(watch))?;
        Ok(outcome.state.image)
    };
    let warm_up = Stopping { iterations: settings.warm_up, ..prepared.stopping };
    if settings.warm_up > 0 {
        iterate(&warm_up, &mut |_, _, _| Ok(()))?;
    }
    for &repetition in &trial.repetitions {
        let mut rows = Vec::with_capacity(settings.iterations);
        // Ranks that have a problem each begin at the same time.
        team.comm().barrier()?;
        let image = iterate(&prepared.stopping, &mut |record, state, sent| {
            let (seconds, cost) = (&record.seconds, method.cost());
            let quality = match (&truth, &truth_part) {
                (_, Some((part, range))) => Some(of_images::psnr(&state.image, part, *range)?),
                (Some(truth), None) => Some(psnr(state.image.whole()?, &truth.image, truth.range)?),
                (None, None) => None,
            };
            let quality = quality.filter(|_| ctx.is_root());
            rows.push(Row {
                iteration: Some(record.iteration),
                data_seconds: Some(seconds.data),
                prior_seconds: Some(seconds.prior),
                transfer_seconds: Some(cost.transfer.as_secs_f64()),
                waiting_seconds: Some(cost.waiting.as_secs_f64()),
                bytes_sent: Some(sent.bytes),
                halo_rounds: Some(sent.exchanges),
                peak_bytes: peak_resident_bytes(),
                resident_bytes: resident_bytes(),
                device_name: prepared.devices.get(ctx.rank()).cloned(),
                pixels_computed: prepared.work.map(|work| work.computed),
                pixels_kept: prepared.work.map(|work| work.kept),
                data_term: record.data_term,
                relative_change: Some(record.relative_change),
                psnr_db: quality.and_then(|quality| quality.first().copied()),
                ..configuration.row(repetition, team.rank(), seconds.total)
            });
            Ok(())
        })?;
        if is_counted {
            // The word on whether to go on, which comes after an iteration, belongs to the next one here.
            rows.retain(|row| row.iteration > Some(1));
        }
        let mut rows = gather(team, &rows)?;
        let digest = image.digest()?;
        if team.is_root() {
            if is_counted {
                counts::compare(trial, &mut rows)?;
            }
            let image = Some(format!("{digest:016x}"));
            tell(Answer::Repetition { rows, image })?;
        }
    }
    Ok(())
}

/// What is done with each iteration: its record, the state after it, and what the rank sent in it.
type Note<'a> = dyn FnMut(&Record, &State, Sent) -> haloscope::Result<()> + 'a;

/// What a rank has sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    bytes: u64,
    /// Rounds of messages to neighbours.
    exchanges: u64,
}

impl Sent {
    fn so_far(ctx: &Context) -> Self {
        let statistics = ctx.comm().statistics();
        let exchanges = statistics.cost(Operation::Exchange).calls;
        Self { bytes: statistics.total().bytes_sent, exchanges }
    }

    fn since(self, before: Self) -> Self {
        Self { bytes: self.bytes - before.bytes, exchanges: self.exchanges - before.exchanges }
    }
}

/// A method, with what its last step cost in messages of all ranks. Records have those of the operators, which may be whole
/// on every rank while tiles are shared.
#[derive(Debug)]
struct Counted<'a> {
    method: &'a dyn Algorithm,
    ctx: &'a Context,
    cost: Mutex<CallCost>,
}

impl Counted<'_> {
    fn cost(&self) -> CallCost {
        *self.cost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Algorithm for Counted<'_> {
    fn name(&self) -> &'static str {
        self.method.name()
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> haloscope::Result<Image> {
        let before = self.ctx.comm().statistics().total();
        let result = self.method.step(setting, state);
        let after = self.ctx.comm().statistics().total();
        let cost = CallCost {
            transfer: after.transfer.saturating_sub(before.transfer),
            waiting: after.waiting.saturating_sub(before.waiting),
            ..after
        };
        *self.cost.lock().unwrap_or_else(PoisonError::into_inner) = cost;
        result
    }
}

/// Of the truth, which the first rank has, and of all ranks' measurements, in the order of the operators.
fn digest(ctx: &Context, prepared: &Prepared) -> Result<String> {
    let mut whole = Digest::default();
    if let Some((truth, _)) = &prepared.truth_part {
        whole.add_bytes(&truth.digest()?.to_le_bytes());
        for (index, part) in prepared.problem.data().iter() {
            let measured = prepared.problem.part_image(index, part.clone())?;
            whole.add_bytes(&measured.digest()?.to_le_bytes());
        }
        return Ok(whole.to_string());
    }
    let parts = prepared.problem.data().iter();
    let mine: Vec<u8> = parts
        .flat_map(|(index, part)| format!("{index:08} {}\n", Digest::of(part)).into_bytes())
        .collect();
    let mut lines: Vec<String> = Vec::new();
    for part in ctx.comm().all_gather(&mine)? {
        lines.extend(String::from_utf8_lossy(&part).lines().map(String::from));
    }
    lines.sort();
    // Ranks that have all operators have the same data.
    lines.dedup();
    if let Some(truth) = &prepared.truth {
        whole.add(&truth.image);
    }
    whole.add_bytes(lines.concat().as_bytes());
    Ok(whole.to_string())
}

/// The rows of all ranks.
fn gather(ctx: &Context, rows: &[Row]) -> Result<Vec<Row>> {
    let broken = |error: serde_json::Error| Error::argument("rows", error.to_string());
    let mine = serde_json::to_vec(rows).map_err(broken)?;
    let mut all = Vec::new();
    for rows in ctx.comm().all_gather(&mine)? {
        all.extend(serde_json::from_slice::<Vec<Row>>(&rows).map_err(broken)?);
    }
    Ok(all)
}
