//! How frames get from one rank to another: the small interface that each transport implements.
//!
//! A link moves frames and knows which ranks are gone; it knows nothing of collectives. Everything above it
//! (algorithms, agreement, deadlines, statistics) is written once, in [`crate::session`] and
//! [`crate::collectives`], and is therefore the same for threads and for MPI.

#[cfg(feature = "mpi")]
pub(crate) mod mpi;
pub(crate) mod solo;
pub(crate) mod threads;
// What MPI sends; tested without it.
#[cfg(any(feature = "mpi", test))]
mod wire;

use std::time::{Duration, Instant};

use crate::call::Signature;
use crate::error::{Error, Result};

/// Which communicator a frame belongs to.
///
/// The channel of a part follows from that of the whole and the number of the call that split it,
/// which are the same on all of its ranks, so nothing needs to be agreed on. Parts that one call
/// makes share it: they have no rank in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel(u64);

impl Channel {
    pub(crate) const WORLD: Self = Self(0);

    /// The channel of what call `number` makes of this one. 64 bits of a good hash do not meet by
    /// chance; MPI's tags have fewer, so frames carry all of them.
    pub(crate) fn part(self, number: u64) -> Self {
        let mut z = self.0 ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)).max(1))
    }

    #[cfg(any(feature = "mpi", test))]
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    #[cfg(any(feature = "mpi", test))]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// What every frame says about the call that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub channel: Channel,
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
    /// Ranks and channels do not take room from each other.
    fn try_send(&self, to: usize, header: Header, payload: &[u8]) -> Result<bool>;

    /// Says that one more frame of `from` will be received, so that room can be made for it.
    fn prepare(&self, channel: Channel, from: usize) -> Result<()>;

    /// The next frame of `from`, if it has arrived.
    fn try_receive(&self, channel: Channel, from: usize) -> Result<Option<Frame>>;

    /// Takes back a frame that has been read.
    fn recycle(&self, frame: Frame);

    /// Whether nothing that was sent on `channel` depends on this rank any more.
    fn flushed(&self, channel: Channel) -> Result<bool>;

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

    /// Forgets a channel that is not used any more.
    fn close(&self, channel: Channel);

    /// Ends the job: every other rank returns an error. Under MPI the process ends, too.
    fn abort(&self, error: &Error);

    /// One user of the link makes no more calls; the last one leaves the job together with the other ranks. What leaves when it is
    /// dropped does nothing here.
    fn leave(&self) {}
}
