//! One call in progress: sends and receives frames until the call is done, fails or is overdue.
//!
//! An algorithm states, for each phase, what this rank sends to whom and what it receives from whom
//! in which order; [`Session::transfer`] does the rest. Sends to different ranks are independent of
//! each other and of the receives, so the ranks cannot deadlock, whatever the order of arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::call::Signature;
use crate::error::{CallSite, Cause, Error, Result};
use crate::link::{Channel, Header, Link};
use crate::statistics::CallCost;

/// Receives for which a link makes room in advance.
const LOOKAHEAD: usize = 8;

/// How long a frame of a rank that has left may still be on its way.
const PARTING: Duration = Duration::from_millis(50);

/// One call of one rank. Ranks here are those of the communicator, not of the world.
pub(crate) struct Session<'a, L: Link + ?Sized> {
    pub link: &'a L,
    pub channel: Channel,
    /// World ranks of the communicator's ranks.
    pub members: &'a [usize],
    pub rank: usize,
    pub number: u64,
    pub signature: Signature,
    pub deadline: Duration,
    pub cost: CallCost,
    /// The ranks from which a frame of this call has arrived.
    heard: Vec<bool>,
}

/// What this rank sends to one other rank, in order.
pub(crate) struct Lane<'d> {
    to: usize,
    frames: VecDeque<(Signature, &'d [u8])>,
}

/// A frame that this rank receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub from: usize,
    pub len: usize,
    pub signature: Signature,
}

impl<'a, L: Link + ?Sized> Session<'a, L> {
    pub(crate) fn begin(
        link: &'a L,
        channel: Channel,
        members: &'a [usize],
        rank: usize,
        number: u64,
        signature: Signature,
        deadline: Duration,
    ) -> Result<Self> {
        if let Some(error) = link.failure() {
            return Err(error);
        }
        link.enter(channel, number);
        let heard = vec![false; members.len()];
        let cost = CallCost { calls: 1, ..CallCost::default() };
        Ok(Self { link, channel, members, rank, number, signature, deadline, cost, heard })
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// The other ranks, beginning with the next one, so that not all send to the same rank first.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<L> {
        let (rank, size) = (self.rank, self.members.len());
        (1..size).map(move |step| (rank + step) % size)
    }

    /// Cuts `len` bytes into frames; nothing is one empty frame.
    pub(crate) fn frames(
        &self,
        len: usize,
    ) -> impl Iterator<Item = std::ops::Range<usize>> + use<L> {
        let frame = self.link.frame_bytes();
        (0..len.div_ceil(frame).max(1)).map(move |i| i * frame..((i + 1) * frame).min(len))
    }

    /// A lane that carries `bytes` to `to`.
    pub(crate) fn lane<'d>(&self, to: usize, bytes: &'d [u8]) -> Lane<'d> {
        let mut lane = Lane { to, frames: VecDeque::new() };
        lane.frames.extend(self.frames(bytes.len()).map(|range| (self.signature, &bytes[range])));
        lane
    }

    /// A lane of single frames, each with its own signature.
    pub(crate) fn lane_of<'d>(
        to: usize,
        frames: impl IntoIterator<Item = (Signature, &'d [u8])>,
    ) -> Lane<'d> {
        Lane { to, frames: frames.into_iter().collect() }
    }

    /// The frames of a message of `len` bytes from `from`.
    pub(crate) fn awaited(
        &self,
        from: usize,
        len: usize,
    ) -> impl Iterator<Item = Awaited> + use<L> {
        let signature = self.signature;
        self.frames(len).map(move |range| Awaited { from, len: range.len(), signature })
    }

    /// Sends all lanes and receives `awaited` in order, handing each payload to `on_receive` with
    /// its place in the list. At most one lane goes to each rank.
    pub(crate) fn transfer(
        &mut self,
        mut lanes: Vec<Lane>,
        awaited: &[Awaited],
        mut on_receive: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let begin = Instant::now();
        let mut last_progress = begin;
        let mut parting = None;
        let mut waited = Duration::ZERO;
        let (mut prepared, mut received) = (0, 0);
        loop {
            let mark = self.link.mark();
            while prepared < awaited.len().min(received + LOOKAHEAD) {
                self.link
                    .prepare(self.channel, self.world(awaited[prepared].from))
                    .map_err(|e| self.fail(e))?;
                prepared += 1;
            }
            let mut progress = self.send_some(&mut lanes)?;
            while received < prepared
                && self.receive_one(&awaited[received], |payload| on_receive(received, payload))?
            {
                received += 1;
                progress = true;
            }
            let sent = lanes.iter().all(|lane| lane.frames.is_empty());
            if sent
                && received == awaited.len()
                && self.link.flushed(self.channel).map_err(|e| self.fail(e))?
            {
                self.cost.waiting += waited;
                self.cost.transfer += begin.elapsed().saturating_sub(waited);
                return Ok(());
            }
            let now = Instant::now();
            if progress {
                (last_progress, parting) = (now, None);
                continue;
            }
            let idle = now - last_progress;
            let waits_for = awaited.get(received).map(|expected| expected.from);
            let nap = self.patience(&lanes, waits_for, idle, &mut parting)?;
            self.link.wait(mark, idle, now + nap);
            // Until the awaited rank has said anything in this call, it is late; afterwards its
            // data is on the way.
            if waits_for.is_some_and(|from| !self.heard[from]) {
                waited += now.elapsed();
            }
        }
    }

    fn world(&self, rank: usize) -> usize {
        self.members[rank]
    }

    fn send_some(&mut self, lanes: &mut [Lane]) -> Result<bool> {
        let mut progress = false;
        for lane in lanes {
            while let Some((signature, bytes)) = lane.frames.front() {
                let header = self.header(*signature);
                let to = self.world(lane.to);
                if !self.link.try_send(to, header, bytes).map_err(|e| self.fail(e))? {
                    break;
                }
                self.cost.bytes_sent += bytes.len() as u64;
                lane.frames.pop_front();
                progress = true;
            }
        }
        Ok(progress)
    }

    fn receive_one(&mut self, expected: &Awaited, on_receive: impl FnOnce(&[u8])) -> Result<bool> {
        let from = self.world(expected.from);
        let frame = self.link.try_receive(self.channel, from).map_err(|e| self.fail(e))?;
        let Some(frame) = frame else { return Ok(false) };
        self.heard[expected.from] = true;
        let header = self.header(expected.signature);
        if frame.header != header || frame.payload().len() != expected.len {
            return Err(self.fail(Error::Mismatch {
                first: self.site(self.rank, &header),
                second: self.site(expected.from, &frame.header),
            }));
        }
        self.cost.bytes_received += expected.len as u64;
        on_receive(frame.payload());
        self.link.recycle(frame);
        Ok(true)
    }

    /// How long this rank may sleep before it looks again; an error if the job has ended, if a
    /// needed rank is gone, or if the deadline has passed. `parting` is since when one is gone.
    fn patience(
        &self,
        lanes: &[Lane],
        waits_for: Option<usize>,
        idle: Duration,
        parting: &mut Option<Instant>,
    ) -> Result<Duration> {
        if let Some(error) = self.link.failure() {
            return Err(error);
        }
        let receivers = lanes.iter().filter(|lane| !lane.frames.is_empty()).map(|lane| lane.to);
        let mut needed: Vec<usize> = receivers.chain(waits_for).collect();
        if needed.is_empty() {
            // All is sent, but not all has been taken.
            needed.extend(lanes.iter().map(|lane| lane.to));
        }
        let mut needed: Vec<usize> = needed.into_iter().map(|rank| self.world(rank)).collect();
        if let Some(&rank) = needed.iter().find(|rank| self.link.has_left(**rank)) {
            // Its last frame may have come between the last look for it and this one.
            let grace = PARTING.saturating_sub(parting.get_or_insert_with(Instant::now).elapsed());
            if !grace.is_zero() {
                return Ok(grace);
            }
            return Err(self.fail(Error::RankFailed { rank, cause: Cause::Left }));
        }
        let left = self.deadline.saturating_sub(idle);
        if !left.is_zero() {
            return Ok(left);
        }
        let ranks = self.link.absent(self.channel, self.number, self.members);
        // Another rank may have called the roll meanwhile, and ended the job.
        if let Some(error) = self.link.failure() {
            return Err(error);
        }
        let site = self.site(self.rank, &self.header(self.signature));
        let seconds = idle.as_secs_f64();
        if !ranks.is_empty() {
            return Err(self.fail(Error::Timeout { ranks, site, seconds }));
        }
        needed.sort_unstable();
        needed.dedup();
        Err(self.fail(Error::Stuck { ranks: needed, site, seconds }))
    }

    fn header(&self, signature: Signature) -> Header {
        Header { channel: self.channel, number: self.number, signature }
    }

    fn site(&self, rank: usize, header: &Header) -> CallSite {
        CallSite {
            rank: self.world(rank),
            number: header.number,
            call: header.signature.to_string(),
        }
    }

    /// Ends the job for all ranks; returns the error that counts, which may be an earlier one.
    fn fail(&self, error: Error) -> Error {
        self.link.fail(&error);
        self.link.failure().unwrap_or(error)
    }
}
