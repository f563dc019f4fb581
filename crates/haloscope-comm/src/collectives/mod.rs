//! The algorithms behind the calls, written once for all links. `README.md` in this folder explains how
//! they work and why they were chosen.

mod broadcast;
mod exchange;
mod gather;
mod reduce;
pub mod traffic;

pub(crate) use broadcast::broadcast;
pub(crate) use exchange::exchange;
pub(crate) use gather::{all_gather, barrier, gather_words};
pub(crate) use reduce::{all_reduce, ordered_sum, reduce_scatter};

use std::ops::Range;

/// Up to this many bytes in all, the number of messages matters more than their size.
const SMALL: usize = 64 << 10;

/// The byte ranges of parts with these lengths, laid out one after the other.
pub(crate) fn layout(lengths: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let place = |length: usize| {
        let start = end;
        end += length;
        start..end
    };
    lengths.into_iter().map(place).collect()
}
