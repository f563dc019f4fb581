//! Messages between neighbours: all at once, matched in order between two ranks.

use std::collections::BTreeMap;

use crate::call::{Incoming, Operation, Outgoing, Signature};
use crate::element::View;
use crate::error::Result;
use crate::link::Link;
use crate::session::{Awaited, Session};

/// Sends and receives all messages; those of a rank to itself are copied.
pub(crate) fn exchange<L: Link + ?Sized>(
    session: &mut Session<L>,
    sends: &[Outgoing],
    receives: &mut [Incoming],
) -> Result<()> {
    let rank = session.rank;
    let mut to_self = sends.iter().filter(|message| message.to == rank);
    for message in receives.iter_mut().filter(|message| message.from == rank) {
        if let Some(sent) = to_self.next() {
            message.data.bytes_mut().copy_from_slice(sent.data.bytes());
        }
    }
    let signature = |view: View| Signature::of(Operation::Exchange, view.kind(), view.len());
    let mut frames: BTreeMap<usize, Vec<(Signature, &[u8])>> = BTreeMap::new();
    for message in sends.iter().filter(|message| message.to != rank) {
        let bytes = message.data.bytes();
        let lane = frames.entry(message.to).or_default();
        lane.extend(session.frames(bytes.len()).map(|r| (signature(message.data), &bytes[r])));
    }
    let lanes = frames.into_iter().map(|(to, frames)| Session::<L>::lane_of(to, frames)).collect();
    let (mut awaited, mut targets) = (Vec::new(), Vec::new());
    for (index, message) in receives.iter().enumerate().filter(|(_, m)| m.from != rank) {
        let view = message.data.as_view();
        for range in session.frames(view.bytes().len()) {
            let (from, len) = (message.from, range.len());
            awaited.push(Awaited { from, len, signature: signature(view) });
            targets.push((index, range));
        }
    }
    session.transfer(lanes, &awaited, |place, payload| {
        let (index, range) = &targets[place];
        receives[*index].data.bytes_mut()[range.clone()].copy_from_slice(payload);
    })
}
