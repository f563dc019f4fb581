//! The operations that plans are made of, one per file.

mod concat;
mod direct;
mod pad;
mod pointwise;
mod pool;
mod shuffle;
mod upsample;
mod winograd;

pub(crate) use concat::Concat;
pub(crate) use direct::{Axis, DirectConv, phase_taps};
pub(crate) use pad::Pad;
pub(crate) use pointwise::{Function, Pointwise};
pub(crate) use pool::Pooling;
pub(crate) use shuffle::Shuffle;
pub(crate) use upsample::Upsample;
pub(crate) use winograd::{Blocking, WinogradConv, tiles};
