//! A communicator over any link: counts the calls, checks them, runs them and keeps the costs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::call::{Call, Operation, Signature};
use crate::collectives::{self, layout};
use crate::communicator::Communicator;
use crate::error::{Cause, Error, Result};
use crate::link::{Channel, Link};
use crate::session::Session;
use crate::statistics::Statistics;

/// The longest time without progress, unless set otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_mins(5);

/// Shorter deadlines would name ranks that the system merely has not run yet.
pub const MIN_DEADLINE: Duration = Duration::from_millis(1);

/// Longer than any job, and short enough to be added to any time.
pub const MAX_DEADLINE: Duration = Duration::from_secs(1_000_000_000);

/// A rank's communicator; [`Solo`](crate::Solo), [`Threads`](crate::Threads) and `Mpi` are this
/// type with their links.
#[allow(private_bounds)]
pub struct Ranks<L: Link> {
    link: Arc<L>,
    channel: Channel,
    /// World ranks of this communicator's ranks.
    members: Vec<usize>,
    rank: usize,
    /// Calls made so far; held while a call is made, so that threads make them one at a time.
    number: Mutex<u64>,
    deadline: Mutex<Duration>,
    statistics: Mutex<Statistics>,
}

#[allow(private_bounds)]
impl<L: Link> Ranks<L> {
    /// The communicator of all ranks of `link`.
    pub(crate) fn world(link: Arc<L>) -> Self {
        let (rank, size) = (link.rank(), link.size());
        Self::part(link, Channel::WORLD, (0..size).collect(), rank, DEFAULT_DEADLINE)
    }

    pub(crate) fn part(
        link: Arc<L>,
        channel: Channel,
        members: Vec<usize>,
        rank: usize,
        deadline: Duration,
    ) -> Self {
        Self {
            link,
            channel,
            members,
            rank,
            number: Mutex::new(0),
            deadline: Mutex::new(deadline),
            statistics: Mutex::default(),
        }
    }

    pub(crate) fn link(&self) -> &L {
        &self.link
    }

    /// Runs `body` as the next call.
    fn call<T>(
        &self,
        signature: Signature,
        body: impl FnOnce(&mut Session<L>) -> Result<T>,
    ) -> Result<T> {
        let mut next = lock(&self.number);
        let number = *next;
        *next += 1;
        let mut session = Session::begin(
            &*self.link,
            self.channel,
            &self.members,
            self.rank,
            number,
            signature,
            self.deadline(),
        )?;
        let result = body(&mut session);
        lock(&self.statistics).record(signature.operation, &session.cost);
        result
    }
}

#[allow(private_bounds)]
impl<L: Link> Communicator for Ranks<L> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn execute(&self, call: Call<'_>) -> Result<()> {
        let check = call.check(self.rank, self.size());
        // A refused call counts, too: if other ranks accept theirs, the next call shows it.
        if let Err(error) = check {
            *lock(&self.number) += 1;
            return Err(error);
        }
        self.call(call.signature(), |session| match call {
            Call::Barrier => collectives::barrier(session),
            Call::Broadcast { root, mut data } => {
                collectives::broadcast(session, root, data.bytes_mut())
            }
            Call::AllReduce { reduction, mut data } => {
                collectives::all_reduce(session, data.kind(), reduction, data.bytes_mut())
            }
            Call::ReduceScatter { reduction, input, counts, mut output } => {
                let ranges = layout(counts.iter().map(|count| count * input.kind().size()));
                let (input, output, kind) = (input.bytes(), output.bytes_mut(), input.kind());
                collectives::reduce_scatter(session, kind, reduction, input, &ranges, output)
            }
            Call::AllGather { input, counts, mut output } => {
                let ranges = layout(counts.iter().map(|count| count * input.kind().size()));
                collectives::all_gather(session, input.bytes(), &ranges, output.bytes_mut())
            }
            Call::Exchange { sends, receives } => collectives::exchange(session, sends, receives),
            Call::OrderedSum { contributions, mut output } => {
                let kind = output.kind();
                collectives::ordered_sum(session, kind, contributions, output.bytes_mut())
            }
        })
    }

    fn split(&self, color: Option<u64>, key: u64) -> Result<Option<Arc<dyn Communicator>>> {
        let wish = [u64::from(color.is_some()), color.unwrap_or(0), key];
        let (number, wishes) = self.call(Signature::new(Operation::Split), |session| {
            Ok((session.number, collectives::gather_words(session, &wish)?))
        })?;
        let wishes = wishes.as_chunks::<3>().0;
        let Some(color) = color else { return Ok(None) };
        let mut group: Vec<(u64, usize)> = wishes
            .iter()
            .enumerate()
            .filter(|(_, wish)| wish[0] == 1 && wish[1] == color)
            .map(|(rank, wish)| (wish[2], rank))
            .collect();
        group.sort_unstable();
        let rank = group.iter().position(|(_, rank)| *rank == self.rank).unwrap_or(0);
        let members = group.into_iter().map(|(_, rank)| self.members[rank]).collect();
        let channel = self.channel.part(number);
        let part = Self::part(self.link.clone(), channel, members, rank, self.deadline());
        Ok(Some(Arc::new(part)))
    }

    fn deadline(&self) -> Duration {
        *lock(&self.deadline)
    }

    fn set_deadline(&self, deadline: Duration) {
        *lock(&self.deadline) = deadline.clamp(MIN_DEADLINE, MAX_DEADLINE);
    }

    fn statistics(&self) -> Statistics {
        lock(&self.statistics).clone()
    }

    fn reset_statistics(&self) {
        *lock(&self.statistics) = Statistics::default();
    }

    fn abort(&self, reason: &str) -> Error {
        let rank = self.members[self.rank];
        let error = Error::RankFailed { rank, cause: Cause::Aborted(reason.into()) };
        self.link.abort(&error);
        error
    }

    fn leave(&self) {
        self.link.leave();
    }
}

#[allow(private_bounds)]
impl<L: Link> Drop for Ranks<L> {
    fn drop(&mut self) {
        self.link.close(self.channel);
    }
}

#[allow(private_bounds)]
impl<L: Link> fmt::Debug for Ranks<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks")
            .field("rank", &self.rank)
            .field("members", &self.members)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// A panic of another thread cannot leave what these locks guard half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
