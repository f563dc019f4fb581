//! The CPU engine: plans of networks, and runs that allocate nothing.

mod buffer;
mod build;
mod convert;
mod cost;
mod kernels;
mod layout;
mod lower;
mod memory;
mod operation;
mod operations;
mod place;
mod plan;
mod step;
mod team;
mod weights;

pub use kernels::InstructionSet;
pub use plan::{Memory, Plan, Scratch};
pub use step::Step;
