#![doc = include_str!("../README.md")]

mod export;
#[cfg(feature = "runtime")]
mod file;
mod options;
#[cfg(feature = "runtime")]
mod runtime;

pub use export::{Size, encode};
#[cfg(feature = "runtime")]
pub use file::open;
pub use options::{FileOptions, LevelKind};
#[cfg(feature = "runtime")]
pub use runtime::{Device, Library, OnnxRuntime, Precision, Provider, gpus};
