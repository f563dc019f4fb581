//! A small job that remembers everything there is to remember: arrays and numbers beside the image.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use haloscope::denoise::TotalVariation;
use haloscope::distribute::{ShardedStack, distribute};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::image::Space;
use haloscope::physics::{Identity, Physics, Stack};
use haloscope::solve::{
    Checkpoints, Fista, JobId, Problem, Record, Start, State, Stopping, TotalVariationPrior, solve,
};
use haloscope::tiling::ShardPlan;
use haloscope::{Array, Image, Measurements, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::Grain;

/// How the job is called, and what decides its result.
pub(crate) fn job() -> JobId {
    JobId::new("frames of a ramp", b"5 frames, 96 x 96")
}

/// Where the image is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Replicated,
    /// In slabs; every rank saves its own.
    Sharded,
}

/// Goes on from the newest checkpoint, if there is one, up to so many iterations.
pub(crate) fn run(
    ctx: &Context,
    checkpoints: &mut Checkpoints,
    iterations: usize,
    place: Place,
) -> Result<State> {
    let shape = [1, 96, 96];
    let frames: Vec<Arc<dyn Physics>> =
        (0..5).map(|_| Arc::new(Identity::new(&shape)) as Arc<dyn Physics>).collect();
    let mut random = fastrand::Rng::with_seed(6);
    let mut frame =
        || Array::from_shape_fn(vec![1, 1, 96, 96], |at| at[3] as f32 / 96.0 + random.f32() - 0.5);
    let data = Measurements::new((0..5).map(|_| frame()).collect());
    let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
    let job = job();
    let (problem, found) = match place {
        Place::Replicated => {
            let problem = Problem::new(distribute(frames, ctx)?, data, fidelity)?;
            (problem, checkpoints.load_latest(ctx, &job)?)
        }
        Place::Sharded => {
            let grains = [8, 96].map(|step| Grain { step, last: 1 });
            let space = Space::new(ctx, &ShardPlan::new(&[1, 1, 96, 96], &grains, ctx.size())?)?;
            let physics = ShardedStack::new(Stack::new(frames)?, &space)?;
            let found = checkpoints.load_shards(ctx, &job, &physics)?;
            (Problem::sharded(physics, &data, fidelity)?, found)
        }
    };
    let prior = Arc::new(TotalVariationPrior { weight: 0.1, denoiser: TotalVariation::default() });
    let method = Fista { step: 0.02, prior };

    let start = match found {
        Some(found) => found.state,
        None => State::new(problem.start(&Start::Zeros)?),
    };
    let stopping = Stopping { iterations, ..Stopping::default() };
    let mut watch = |_: &Record, state: &State| {
        checkpoints.save_if_due(ctx, state, &job)?;
        Ok(std::ops::ControlFlow::Continue(()))
    };
    Ok(solve(&problem, &method, start, &stopping, Some(&mut watch))?.state)
}

/// The bits of all that a state holds, in a few digits (FNV-1a). All ranks call it.
pub(crate) fn digest(state: &State) -> Result<String> {
    let arrays = std::iter::once(&state.image).chain(state.arrays.values()).map(Image::gather);
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let arrays = arrays.iter();
    let elements = arrays.flat_map(|array| array.iter().map(|value| u64::from(value.to_bits())));
    let words = elements.chain(state.numbers.values().map(|number| number.to_bits()));
    let hash = words
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3));
    Ok(format!("{hash:016x}"))
}
