//! What any engine wants to know of a network before it runs it: nothing here depends on how values lie in memory.

mod align;
mod fuse;

pub use align::{Aligned, extended};
pub use fuse::{Epilogues, Layer, fuse};
