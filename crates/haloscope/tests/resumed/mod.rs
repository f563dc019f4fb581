//! A small job that remembers everything there is to remember: arrays and numbers beside the image.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use haloscope::denoise::TotalVariation;
use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, L2};
use haloscope::physics::{Identity, Physics};
use haloscope::solve::{
    Checkpoints, Fista, JobId, Problem, Record, Start, State, Stopping, TotalVariationPrior, solve,
};
use haloscope::{Array, Image, Measurements, Result};
use haloscope_comm::Context;

/// How the job is called, and what decides its result.
pub(crate) fn job() -> JobId {
    JobId::new("frames of a ramp", b"5 frames, 96 x 96")
}

/// Goes on from the newest checkpoint, if there is one, up to so many iterations.
pub(crate) fn run(
    ctx: &Context,
    checkpoints: &mut Checkpoints,
    iterations: usize,
) -> Result<State> {
    let shape = [1, 96, 96];
    let frames: Vec<Arc<dyn Physics>> =
        (0..5).map(|_| Arc::new(Identity::new(&shape)) as Arc<dyn Physics>).collect();
    let physics = distribute(frames, ctx)?;
    let mut random = fastrand::Rng::with_seed(6);
    let mut frame =
        || Array::from_shape_fn(vec![1, 1, 96, 96], |at| at[3] as f32 / 96.0 + random.f32() - 0.5);
    let data = Measurements::new((0..5).map(|_| frame()).collect());
    let problem = Problem::new(physics, data, distribute(Fidelities::from(L2::default()), ctx)?)?;
    let prior = Arc::new(TotalVariationPrior { weight: 0.1, denoiser: TotalVariation::default() });
    let method = Fista { step: 0.02, prior };

    let job = job();
    let start = match checkpoints.load_latest(ctx, &job)? {
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

/// The bits of all that a state holds, in a few digits (FNV-1a).
pub(crate) fn digest(state: &State) -> String {
    let arrays = std::iter::once(&state.image).chain(state.arrays.values()).map(Image::local);
    let elements = arrays.flat_map(|array| array.iter().map(|value| u64::from(value.to_bits())));
    let words = elements.chain(state.numbers.values().map(|number| number.to_bits()));
    let hash = words
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}
