#![doc = include_str!("../README.md")]

pub mod array;
pub mod denoise;
mod digest;
pub mod distribute;
mod error;
pub mod fidelity;
pub mod forecast;
pub mod fourier;
pub mod image;
pub mod io;
pub mod least_squares;
mod measurements;
pub mod memory;
pub mod metrics;
pub mod noise;
pub mod phantom;
pub mod physics;
pub mod prelude;
mod random;
mod region;
pub mod solve;
pub mod tiling;
#[doc(hidden)]
pub mod words;

pub use array::{Array, View};
pub use digest::Digest;
pub use error::{Error, ForeignError, Result};
pub use haloscope_comm::Context;
pub use image::Image;
pub use measurements::Measurements;
