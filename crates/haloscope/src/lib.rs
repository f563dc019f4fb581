#![doc = include_str!("../README.md")]

pub mod array;
mod error;
pub mod io;
pub mod metrics;
pub mod phantom;
pub mod physics;

pub use array::Array;
pub use error::{Error, Result};
