//! The CPU engine: plans of networks, and runs that allocate nothing.
#![doc = include_str!("README.md")]

mod cpu;
mod options;

pub use cpu::{InstructionSet, Memory, Plan, Scratch, Step};
pub use options::{Accuracy, MAX_THREADS, Options};
