//! Large arrays in files of a scratch folder.
#![doc = include_str!("../README.md")]

mod allocator;
mod folder;
#[cfg(target_os = "linux")]
mod keeper;
#[cfg(target_os = "linux")]
mod mapping;
#[cfg(target_os = "linux")]
mod registry;
mod scratch;
mod visit;

pub use allocator::{Allocator, in_memory};
pub use folder::Folder;
pub use scratch::{Options, Scratch, Usage};
pub use visit::{Visited, bytes_in_files, done, fetch, in_pieces, is_active, piece_bytes};
