//! Ranks that are threads of one process: frames move through queues in shared memory.
//!
//! Each rank has a mailbox with one queue per sender and a bell that rings when something happens.
//! A queue holds a few frames; a sender that finds it full tries again when the bell rings. Waiting
//! spins for some microseconds when every rank can have a core of its own, then sleeps.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Channel, Frame, Header, Link};
use crate::error::{Cause, Error, Result};
use crate::ranks::Ranks;

/// Small enough for a core's L2 cache, so that the receiver reads what is still warm
/// (`make bench`: 64 MiB all-reduce).
const FRAME_BYTES: usize = 128 << 10;

/// Frames that a sender may be ahead of a receiver, on each channel.
const QUEUE_FRAMES: usize = 4;

/// Longest spin before a waiting rank sleeps.
const SPIN: Duration = Duration::from_micros(40);

/// One of several ranks that are threads of this process.
///
/// ```
/// use haloscope_comm::{Collectives, Reduction, Threads};
///
/// let ranks = Threads::group(3)?;
/// let threads = ranks.into_iter().map(|rank| {
///     std::thread::spawn(move || {
///         let mut value = [1.0_f64];
///         rank.all_reduce(Reduction::Sum, &mut value).map(|()| value[0])
///     })
/// });
/// for thread in threads.collect::<Vec<_>>() {
///     assert_eq!(thread.join().expect("no rank panics")?, 3.0);
/// }
/// # Ok::<(), haloscope_comm::Error>(())
/// ```
pub type Threads = Ranks<ThreadLink>;

impl Threads {
    /// The `size` ranks of a new world; give each to a thread.
    pub fn group(size: usize) -> Result<Vec<Self>> {
        Self::group_with_frames(size, FRAME_BYTES)
    }

    /// Like [`group`](Self::group), with messages split into frames of at most `frame_bytes`.
    pub fn group_with_frames(size: usize, frame_bytes: usize) -> Result<Vec<Self>> {
        let hub = Arc::new(Hub::new(size, frame_bytes)?);
        Ok((0..size)
            .map(|rank| Self::world(Arc::new(ThreadLink { rank, hub: hub.clone() })))
            .collect())
    }
}

/// The link of [`Threads`]: one rank's place at the hub.
#[derive(Debug)]
pub struct ThreadLink {
    rank: usize,
    hub: Arc<Hub>,
}

/// What the ranks share.
#[derive(Debug)]
struct Hub {
    mailboxes: Vec<Mailbox>,
    frame_bytes: usize,
    failure: Mutex<Option<Error>>,
    failed: AtomicBool,
    /// Memory of frames, to be used again.
    spare: Mutex<Vec<Vec<u64>>>,
    spin: bool,
}

#[derive(Debug, Default)]
struct Mailbox {
    /// One queue per sender.
    queues: Vec<Mutex<VecDeque<Frame>>>,
    bell: Bell,
    left: AtomicBool,
    /// The last call that the rank entered, on each channel.
    entered: Mutex<HashMap<Channel, u64>>,
}

impl Hub {
    fn new(size: usize, frame_bytes: usize) -> Result<Self> {
        let bad = |reason: String| Err(Error::Argument { operation: "threads", reason });
        if size == 0 {
            return bad("0 ranks; there must be at least 1".into());
        }
        if size > MAX_RANKS {
            return bad(format!("{size} ranks; at most {MAX_RANKS} threads can be ranks"));
        }
        if frame_bytes == 0 || !frame_bytes.is_multiple_of(8) {
            return bad(format!("frames of {frame_bytes} bytes; a multiple of 8 is needed"));
        }
        let mailbox = || Mailbox {
            queues: (0..size).map(|_| Mutex::default()).collect(),
            ..Mailbox::default()
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            mailboxes: (0..size).map(|_| mailbox()).collect(),
            frame_bytes,
            failure: Mutex::default(),
            failed: AtomicBool::new(false),
            spare: Mutex::default(),
            spin: size <= cores,
        })
    }
}

/// Queues are allotted for every pair of ranks, so the number of ranks needs a limit.
const MAX_RANKS: usize = 1024;

impl ThreadLink {
    fn mailbox(&self) -> &Mailbox {
        &self.hub.mailboxes[self.rank]
    }

    /// An ample list of spare frames: what all ranks together can have in flight.
    fn spare_limit(&self) -> usize {
        2 * QUEUE_FRAMES * self.hub.mailboxes.len()
    }
}

impl Link for ThreadLink {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.hub.mailboxes.len()
    }

    fn frame_bytes(&self) -> usize {
        self.hub.frame_bytes
    }

    fn enter(&self, channel: Channel, number: u64) {
        lock(&self.mailbox().entered).insert(channel, number);
    }

    fn try_send(&self, to: usize, header: Header, payload: &[u8]) -> Result<bool> {
        let mailbox = &self.hub.mailboxes[to];
        let queue = &mailbox.queues[self.rank];
        let is_ours = |frame: &&Frame| frame.header.channel == header.channel;
        // Calls on a channel are made one at a time, so the room that is there now stays there.
        if lock(queue).iter().filter(is_ours).count() >= QUEUE_FRAMES {
            return Ok(false);
        }
        let mut words = lock(&self.hub.spare).pop().unwrap_or_default();
        words.resize(payload.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut(&mut words)[..payload.len()].copy_from_slice(payload);
        lock(queue).push_back(Frame { header, words, start: 0, len: payload.len() });
        mailbox.bell.ring();
        Ok(true)
    }

    fn prepare(&self, _: Channel, _: usize) -> Result<()> {
        Ok(())
    }

    fn try_receive(&self, channel: Channel, from: usize) -> Result<Option<Frame>> {
        let mut queue = lock(&self.mailbox().queues[from]);
        let was_full = queue.len() >= QUEUE_FRAMES;
        let Some(place) = queue.iter().position(|frame| frame.header.channel == channel) else {
            return Ok(None);
        };
        let frame = queue.remove(place);
        drop(queue);
        if was_full {
            self.hub.mailboxes[from].bell.ring();
        }
        Ok(frame)
    }

    fn recycle(&self, frame: Frame) {
        let mut spare = lock(&self.hub.spare);
        if spare.len() < self.spare_limit() {
            spare.push(frame.into_words());
        }
    }

    fn flushed(&self, _: Channel) -> Result<bool> {
        Ok(true)
    }

    fn mark(&self) -> u64 {
        self.mailbox().bell.count()
    }

    fn wait(&self, mark: u64, _: Duration, until: Instant) {
        self.mailbox().bell.wait(mark, until, self.hub.spin);
    }

    fn failure(&self) -> Option<Error> {
        if !self.hub.failed.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.hub.failure).clone()
    }

    fn fail(&self, error: &Error) {
        lock(&self.hub.failure).get_or_insert_with(|| error.clone());
        self.hub.failed.store(true, Ordering::Release);
        self.hub.mailboxes.iter().for_each(|mailbox| mailbox.bell.ring());
    }

    fn has_left(&self, rank: usize) -> bool {
        self.hub.mailboxes[rank].left.load(Ordering::Acquire)
    }

    fn absent(&self, channel: Channel, number: u64, members: &[usize]) -> Vec<usize> {
        let is_absent = |rank: usize| {
            lock(&self.hub.mailboxes[rank].entered).get(&channel).is_none_or(|at| *at < number)
        };
        members.iter().copied().filter(|rank| is_absent(*rank)).collect()
    }

    fn close(&self, channel: Channel) {
        lock(&self.mailbox().entered).remove(&channel);
    }

    fn abort(&self, error: &Error) {
        self.fail(error);
    }
}

impl Drop for ThreadLink {
    /// The rank leaves. A panic is news for all; a clean exit matters only to those who still wait.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = Cause::Panicked("see its message above".into());
            self.fail(&Error::RankFailed { rank: self.rank, cause });
        }
        self.mailbox().left.store(true, Ordering::Release);
        self.hub.mailboxes.iter().for_each(|mailbox| mailbox.bell.ring());
    }
}

/// Counts events and wakes the threads of a rank that wait for one.
#[derive(Debug, Default)]
struct Bell {
    count: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Bell {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn ring(&self) {
        // A sleeper counts itself and then reads `count`; here it is the other way round. With both
        // in one total order (SeqCst) at least one side sees the other.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.lock));
            self.wake.notify_all();
        }
    }

    fn wait(&self, mark: u64, until: Instant, spin: bool) {
        if spin {
            let start = Instant::now();
            while start.elapsed() < SPIN {
                for _ in 0..32 {
                    if self.count() != mark {
                        return;
                    }
                    std::hint::spin_loop();
                }
            }
        }
        let mut guard = lock(&self.lock);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.count.load(Ordering::SeqCst) == mark {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            guard = self.wake.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
    }
}

/// Nothing that is done under these locks can leave the data half changed, so a panic of another
/// rank does not make it unusable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
