//! What a program that reconstructs images uses: `use haloscope::prelude::*;`.
//!
//! Operators, denoisers and methods that only some programs need are in their modules.

pub use crate::array::Array;
pub use crate::denoise::{Denoiser, NetworkDenoiser, NoiseLevel, TotalVariation};
pub use crate::distribute::{distribute, distribute_with};
pub use crate::error::{Error, Result};
pub use crate::fidelity::{Fidelities, Fidelity, L1, L2, Poisson};
pub use crate::image::Image;
pub use crate::io;
pub use crate::measurements::Measurements;
pub use crate::noise::Noise;
pub use crate::physics::{Physics, Stack};
pub use crate::solve::{
    Algorithm, Fista, HalfQuadratic, Plug, Prior, Problem, ProximalGradient, Schedule, Start,
    State, Stopping, TotalVariationPrior, solve,
};
pub use crate::tiling::{Strategy, Tiling};
pub use haloscope_comm::Context;
