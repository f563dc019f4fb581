#![doc = include_str!("../README.md")]

pub mod array;
pub mod denoise;
pub mod distribute;
mod error;
mod measurements;
pub mod physics;
pub mod tiling;

pub use array::Array;
pub use error::{Error, Result};
pub use measurements::Measurements;
