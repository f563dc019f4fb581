//! Broadcast: small data rides on the rounds of a gather; large data is scattered, then shared.

use super::gather::{all_gather, barrier, share_parts, split_ranges};
use super::{SMALL, layout};
use crate::error::Result;
use crate::link::Link;
use crate::partition;
use crate::session::{Awaited, Session};

/// Copies the bytes of `root` to all ranks. Returns when all ranks have called it.
pub(crate) fn broadcast<L: Link + ?Sized>(
    session: &mut Session<L>,
    root: usize,
    bytes: &mut [u8],
) -> Result<()> {
    let (rank, size) = (session.rank, session.size());
    if bytes.len() <= SMALL {
        let ranges = layout((0..size).map(|r| if r == root { bytes.len() } else { 0 }));
        let input = if rank == root { bytes.to_vec() } else { Vec::new() };
        return all_gather(session, &input, &ranges, bytes);
    }
    // The root sends each rank one part, so that its own wire carries the data once; the ranks then
    // send each other what is missing. The root itself needs nothing more.
    let mut parts = split_ranges(bytes, &partition::even(bytes.len(), size));
    if rank == root {
        let lanes = session.others().map(|to| session.lane(to, parts[to])).collect();
        session.transfer(lanes, &[], |_, _| ())?;
    } else {
        let awaited: Vec<Awaited> = session.awaited(root, parts[rank].len()).collect();
        let frame = session.link.frame_bytes();
        let own = &mut *parts[rank];
        session.transfer(Vec::new(), &awaited, |place, payload| {
            own[place * frame..][..payload.len()].copy_from_slice(payload);
        })?;
    }
    let needy: Vec<usize> = (0..size).filter(|r| *r != root).collect();
    share_parts(session, &mut parts, &needy)?;
    barrier(session)
}
