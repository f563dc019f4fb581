//! Plug-and-play reconstructions on ranks, with the time of every part of every iteration.
//!
//! All that a rank computes, vector operations included, happens in a pool of as many threads as the
//! configuration gives it; otherwise one rank on an idle machine would get help from cores that, on more ranks,
//! are not its own. Images are compared with the truth between iterations, outside what is timed.

use std::ops::ControlFlow;
use std::sync::Arc;

use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::{DistributedDenoiser, DistributedStack, distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::memory::peak_resident_bytes;
use haloscope::metrics::psnr;
use haloscope::solve::{Plug, ProximalGradient, Range, Start, State, Stopping, solve};
use haloscope::{Array, Digest, Measurements};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::Options;

use super::Tell;
use crate::error::{Error, Result};
use crate::job::{Answer, Job};
use crate::problem::{Scene, read_prepared, step_size};
use crate::row::Row;
use crate::tiles::tiling;
use haloscope_nn::models::ModelName;

/// Measures all repetitions of a job on one rank; the first rank reports them.
pub fn reconstruct(ctx: &Context, job: &Job, tell: &Tell<'_>) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(job.configuration.threads)
        .build()
        .map_err(|error| Error::argument("threads", error.to_string()))?;
    pool.install(|| run(ctx, job, tell))
}

fn run(ctx: &Context, job: &Job, tell: &Tell<'_>) -> Result<()> {
    let (configuration, settings) = (&job.configuration, &job.settings);
    let problem = configuration.problem.ok_or_else(|| missing("problem"))?;
    let operators = configuration.operators.ok_or_else(|| missing("operators"))?;
    let scene = Scene::new(problem, &configuration.sides(), operators, settings.seed)?;
    let stack = distribute(scene.factory(), ctx)?;
    let truth = match &job.truth {
        Some(file) => read_prepared(file, scene.shape())?,
        None => scene.truth()?,
    };
    let noise = settings.noise.unwrap_or(problem.default_noise());
    let data = scene.measure(&stack, &truth, noise)?;
    let digest = digest(&stack, &truth, &data)?;
    if ctx.is_root() {
        tell(Answer::Data(digest))?;
    }
    // Only the first rank compares.
    let truth = ctx.is_root().then_some(truth);

    let model = configuration.model.parse::<ModelName>()?;
    let options = Options { threads: configuration.threads, ..Options::default() };
    let network = ctx.share("network", || -> Result<_> {
        let model = model.open(problem.channels(), problem.axes())?;
        Ok(NetworkDenoiser::new(model, options)?)
    });
    let network = network?;
    let denoiser = Arc::new(distribute_with(network, ctx, tiling(configuration))?);
    let work = Work::of(&denoiser, ctx, scene.shape())?;
    let step = step_size(&stack)?;
    let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
    let problem = haloscope::solve::Problem::new(stack, data, fidelity)?;
    let start = problem.start(&Start::Adjoint)?;
    // Random weights may make an image larger at every step; values stay those of an image this way.
    let prior = Arc::new(Plug::new(denoiser, settings.sigma).range(Range::Clamp(0.0, 1.0)));
    let algorithm = ProximalGradient { step, prior, relaxation: None };

    let iterate = |iterations: usize, note: &mut Note<'_>| -> Result<Array> {
        let stopping = Stopping { iterations, ..Stopping::default() };
        let state = State::new(start.clone());
        let mut sent = ctx.comm().statistics().total().bytes_sent;
        let outcome = solve(
            &problem,
            &algorithm,
            state,
            &stopping,
            Some(&mut |record, state| {
                let now = ctx.comm().statistics().total().bytes_sent;
                note(record, state, now - sent)?;
                sent = ctx.comm().statistics().total().bytes_sent;
                Ok(ControlFlow::Continue(()))
            }),
        )?;
        Ok(outcome.state.image)
    };
    iterate(settings.warm_up, &mut |_, _, _| Ok(()))?;
    for &repetition in &job.repetitions {
        let mut rows = Vec::with_capacity(settings.iterations);
        let image = iterate(settings.iterations, &mut |record, state, bytes_sent| {
            let seconds = &record.seconds;
            let quality = truth.as_ref().map(|truth| psnr(&state.image, truth, 1.0)).transpose()?;
            rows.push(Row {
                iteration: Some(record.iteration),
                data_seconds: Some(seconds.data),
                prior_seconds: Some(seconds.prior),
                transfer_seconds: Some(seconds.communication),
                waiting_seconds: Some(seconds.waiting),
                bytes_sent: Some(bytes_sent),
                peak_bytes: peak_resident_bytes(),
                pixels_computed: Some(work.computed),
                pixels_kept: Some(work.kept),
                data_term: record.data_term,
                relative_change: Some(record.relative_change),
                psnr_db: quality.and_then(|quality| quality.first().copied()),
                ..configuration.row(repetition, ctx.rank(), seconds.total)
            });
            Ok(())
        })?;
        let rows = gather(ctx, &rows)?;
        if ctx.is_root() {
            let mut digest = Digest::default();
            digest.add(&image);
            tell(Answer::Repetition { rows, image: Some(digest.to_string()) })?;
        }
    }
    Ok(())
}

/// What is done with each iteration: its record, the state after it, and the bytes that it sent.
type Note<'a> = dyn FnMut(&haloscope::solve::Record, &State, u64) -> haloscope::Result<()> + 'a;

fn missing(what: &'static str) -> Error {
    Error::argument(what, "none was given; a reconstruction needs it")
}

/// The pixels that a rank's tiles are computed on, and those that they contribute.
pub struct Work {
    /// Pixels of the windows.
    pub computed: u64,
    /// Pixels of the image.
    pub kept: u64,
}

impl Work {
    /// Of the tiles that this rank gets of an image of a shape (channel, spatial…).
    pub fn of(denoiser: &DistributedDenoiser, ctx: &Context, shape: &[usize]) -> Result<Self> {
        let shape: Vec<usize> = [1].iter().chain(shape).copied().collect();
        let tiles = denoiser.tiles(&shape)?;
        let costs: Vec<f64> = (0..tiles.count()).map(|tile| tiles.cost(tile)).collect();
        let own = ctx.local_block(&costs)?;
        Ok(Self {
            computed: costs[own.clone()].iter().sum::<f64>() as u64,
            kept: own.map(|tile| tiles.part_len(tile) as u64).sum(),
        })
    }
}

/// Of the truth and of all ranks' measurements, in the order of the operators.
fn digest(stack: &DistributedStack, truth: &Array, data: &Measurements) -> Result<String> {
    let parts: Vec<u8> = data
        .iter()
        .flat_map(|(index, part)| {
            let mut digest = Digest::default();
            digest.add(part);
            format!("{index:08} {digest}\n").into_bytes()
        })
        .collect();
    let mut lines: Vec<String> = Vec::new();
    for part in stack.context().comm().all_gather(&parts)? {
        lines.extend(String::from_utf8_lossy(&part).lines().map(String::from));
    }
    lines.sort();
    let mut whole = Digest::default();
    whole.add(truth);
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
