//! The sections of a job: what each may hold, and what becomes of it.
//!
//! Reading a section touches no other file. `docs/guide.md` is the reference of the keys.

pub(crate) mod beam;
pub(crate) mod data_files;
pub(crate) mod files;
mod kernel;
pub(crate) mod measurements;
pub(crate) mod memory;
pub(crate) mod operators;
pub(crate) mod placement;
pub(crate) mod preparation;
pub(crate) mod prior;
mod scan_file;
pub(crate) mod solver;
mod stack;
