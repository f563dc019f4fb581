//! How frames get from one rank to another: the small interface that each transport implements.
//!
//! A link moves frames and knows who is gone; it has no idea of collectives. Everything above it
//! (algorithms, agreement, deadlines, statistics) is written once, in [`crate::session`] and
//! [`crate::collectives`], and is therefore the same for threads and for MPI.

#[cfg(feature = "mpi")]
pub(crate) mod mpi;
pub(crate) mod solo;
pub(crate) mod threads;

use std::time::{Duration, Instant};

use crate::call::Signature;
use crate::error::{Error, Result};

/// Which communicator a frame belongs to; 0 is the world.
pub(crate) type Channel = u32;

/// What every frame says about the call that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The sender's count of calls on the channel.
    pub number: u64,
    pub signature: Signature,
}

/// A piece of a message, aligned for every element type.
#[derive(Debug)]
pub(crate) struct Frame {
    pub header: Header,
    words: Vec<u64>,
    /// Bytes before the payload; a multiple of 8.
    start: usize,
    len: usize,
}

impl Frame {
    pub(crate) fn payload(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.start..self.start + self.len]
    }

    /// The memory, to be used again.
    pub(crate) fn into_words(self) -> Vec<u64> {
        self.words
    }
}

/// A rank's end of the connections to all other ranks of the world. Ranks here are world ranks.
///
/// None of the methods blocks, except [`wait`](Self::wait) until a given time and
/// [`absent`](Self::absent) for a grace period.
pub(crate) trait Link: Send + Sync + 'static {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// The largest payload of a frame; a multiple of 8.
    fn frame_bytes(&self) -> usize;

    /// Notes that this rank is now in call `number` of `channel`.
    fn enter(&self, channel: Channel, number: u64);

    /// Copies `payload` into a frame and sends it; false when there is no room for it now.
    fn try_send(&self, channel: Channel, to: usize, header: Header, payload: &[u8])
    -> Result<bool>;

    /// Says that one more frame of `from` will be received, so that room can be made for it.
    fn prepare(&self, channel: Channel, from: usize) -> Result<()>;

    /// The next frame of `from`, if it has arrived.
    fn try_receive(&self, channel: Channel, from: usize) -> Result<Option<Frame>>;

    /// Takes back a frame that has been read.
    fn recycle(&self, frame: Frame);

    /// Whether nothing that was sent depends on this rank any more.
    fn flushed(&self) -> Result<bool>;

    /// A mark that changes when anything happens; read it before looking for work.
    fn mark(&self) -> u64;

    /// Sleeps until something has happened since `mark`, or until `until`, or for a short while.
    /// `idle` says how long nothing has been happening.
    fn wait(&self, mark: u64, idle: Duration, until: Instant);

    /// The error that ended the job, if one did.
    fn failure(&self) -> Option<Error>;

    /// Tells all ranks that the job has ended; the first failure is the one that counts.
    fn fail(&self, error: &Error);

    /// Whether `rank` has left for good.
    fn has_left(&self, rank: usize) -> bool;

    /// Those of `members` that are not in call `number` of `channel`.
    fn absent(&self, channel: Channel, number: u64, members: &[usize]) -> Vec<usize>;

    /// A number that no channel of this rank has had; see [`reserve_channels`](Self::reserve_channels).
    fn next_channel(&self) -> Channel;

    /// Makes [`next_channel`](Self::next_channel) larger than `channel`.
    fn reserve_channels(&self, channel: Channel) -> Result<()>;

    /// Sets the longest time that leaving may take.
    fn set_deadline(&self, _: Duration) {}

    /// Ends the job: every other rank returns an error. Under MPI the process ends, too.
    fn abort(&self, error: &Error);
}
