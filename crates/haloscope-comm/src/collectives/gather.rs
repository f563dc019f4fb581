//! All-gather, and what follows from it: the barrier is an all-gather of nothing.

use std::ops::Range;

use super::{SMALL, layout};
use crate::error::Result;
use crate::link::Link;
use crate::session::{Awaited, Lane, Session};

/// Returns when all ranks have called it.
pub(crate) fn barrier<L: Link + ?Sized>(session: &mut Session<L>) -> Result<()> {
    let nothing = vec![0..0; session.size()];
    rounds(session, &[], &nothing, &mut [])
}

/// Puts `input` of each rank into its range of `output`, on all ranks; ranges are in bytes.
pub(crate) fn all_gather<L: Link + ?Sized>(
    session: &mut Session<L>,
    input: &[u8],
    ranges: &[Range<usize>],
    output: &mut [u8],
) -> Result<()> {
    if output.len() <= SMALL {
        return rounds(session, input, ranges, output);
    }
    output[ranges[session.rank].clone()].copy_from_slice(input);
    let everyone: Vec<usize> = (0..session.size()).collect();
    let mut pieces = split_ranges(output, ranges);
    share_parts(session, &mut pieces, &everyone)
}

/// Gathers the same number of words from every rank, in rank order.
pub(crate) fn gather_words<L: Link + ?Sized>(
    session: &mut Session<L>,
    words: &[u64],
) -> Result<Vec<u64>> {
    let mut gathered = vec![0_u64; words.len() * session.size()];
    let ranges = layout(vec![size_of_val(words); session.size()]);
    let output = bytemuck::cast_slice_mut(&mut gathered);
    all_gather(session, bytemuck::cast_slice(words), &ranges, output)?;
    Ok(gathered)
}

/// The disjoint `ranges`, in ascending order, of `bytes`.
pub(super) fn split_ranges<'d>(
    mut bytes: &'d mut [u8],
    ranges: &[Range<usize>],
) -> Vec<&'d mut [u8]> {
    let mut split = |range: &Range<usize>| {
        let (part, rest) = std::mem::take(&mut bytes).split_at_mut(range.len());
        bytes = rest;
        part
    };
    ranges.iter().map(&mut split).collect()
}

/// Every rank sends its own part to all of `receivers`; they fill in the parts of the others.
pub(super) fn share_parts<L: Link + ?Sized>(
    session: &mut Session<L>,
    parts: &mut [&mut [u8]],
    receivers: &[usize],
) -> Result<()> {
    let own = std::mem::take(&mut parts[session.rank]);
    let lanes: Vec<Lane> = session
        .others()
        .filter(|to| receivers.contains(to))
        .map(|to| session.lane(to, own))
        .collect();
    let (mut awaited, mut targets) = (Vec::new(), Vec::new());
    if receivers.contains(&session.rank) {
        for from in session.others() {
            for range in session.frames(parts[from].len()) {
                let (len, signature) = (range.len(), session.signature);
                awaited.push(Awaited { from, len, signature });
                targets.push((from, range));
            }
        }
    }
    session.transfer(lanes, &awaited, |place, payload| {
        let (from, range) = &targets[place];
        parts[*from][range.clone()].copy_from_slice(payload);
    })
}

/// Bruck's algorithm: in round k each rank passes on the 2^k parts that it has so far to the rank
/// 2^k below, so that ⌈log₂ n⌉ rounds do for n ranks. No rank can finish before all have begun.
fn rounds<L: Link + ?Sized>(
    session: &mut Session<L>,
    input: &[u8],
    ranges: &[Range<usize>],
    output: &mut [u8],
) -> Result<()> {
    let (rank, size) = (session.rank, session.size());
    // Part j of the rotated order is that of rank + j; each rank's own part comes first.
    let rotated = |j: usize| (rank + j) % size;
    let offsets = layout((0..size).map(|j| ranges[rotated(j)].len()));
    let mut parts = vec![0_u8; output.len()];
    parts[..input.len()].copy_from_slice(input);
    let mut have = 1;
    while have < size {
        let count = have.min(size - have);
        let (known, news) = parts.split_at_mut(offsets[have].start);
        let news = &mut news[..offsets[have + count - 1].end - offsets[have].start];
        let lane = session.lane((rank + size - have) % size, &known[..offsets[count - 1].end]);
        let awaited: Vec<Awaited> = session.awaited(rotated(have), news.len()).collect();
        let mut rest = news;
        session.transfer(vec![lane], &awaited, |_, payload| {
            let (target, tail) = std::mem::take(&mut rest).split_at_mut(payload.len());
            target.copy_from_slice(payload);
            rest = tail;
        })?;
        have += count;
    }
    for (j, part) in offsets.into_iter().enumerate() {
        output[ranges[rotated(j)].clone()].copy_from_slice(&parts[part]);
    }
    Ok(())
}
