//! Numbers with their nouns.

pub use haloscope::words::count;
