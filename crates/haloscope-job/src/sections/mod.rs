//! The sections of a job: what each may hold, and what becomes of it.
//!
//! Reading a section touches no other file. `docs/guide.md` is the reference of the keys.

pub mod beam;
pub mod files;
mod kernel;
pub mod measurements;
pub mod operators;
pub mod placement;
pub mod prior;
pub mod solver;
mod stack;
