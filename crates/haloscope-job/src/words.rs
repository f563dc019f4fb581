//! Numbers in words: with their nouns, and as sides.

pub use haloscope::words::{count, sides};
