//! The two traits that the rest of haloscope sees: [`Communicator`], which is object-safe, and
//! [`Collectives`], the typed methods on top of it.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, Contribution, Incoming, Outgoing};
use crate::element::{Element, Reduction, View, ViewMut};
use crate::error::{Error, Result};
use crate::statistics::Statistics;

/// The connection of one rank to the others. All ranks make the same calls in the same order.
///
/// No call hangs: a rank that panics, leaves or stays away makes the others return an error that
/// names it, within the [`deadline`](Self::deadline); so does a disagreement about the call. After
/// such an error the job is over, and every later call returns it again.
///
/// Except for an exchange, a call returns only after every rank has made it, so an error surfaces
/// at the call that it belongs to.
pub trait Communicator: Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Makes a call; see [`Collectives`] for the typed methods.
    fn execute(&self, call: Call<'_>) -> Result<()>;

    /// Ranks that give the same `color` form a communicator of their own, ordered by `key` and then
    /// by rank; a rank that gives none gets none. All ranks must call it.
    fn split(&self, color: Option<u64>, key: u64) -> Result<Option<Arc<dyn Communicator>>>;

    /// The longest time that a call may take without any progress.
    fn deadline(&self) -> Duration;

    /// Sets the [`deadline`](Self::deadline) of this rank's later calls on this communicator: from a
    /// millisecond to 10⁹ s; values outside are clamped. Communicators that were split off keep
    /// theirs.
    fn set_deadline(&self, deadline: Duration);

    /// What this rank's calls on this communicator have cost since the start or the last
    /// [`reset_statistics`](Self::reset_statistics).
    fn statistics(&self) -> Statistics;

    /// Resets the statistics.
    fn reset_statistics(&self);

    /// Ends the job: every other rank returns [`Error::RankFailed`] with this reason from its
    /// current or next call. Returns the error for this rank to return; under MPI it does not
    /// return, because the processes are ended.
    fn abort(&self, reason: &str) -> Error;

    /// Leaves the job now, instead of when the last handle is dropped; for programs that cannot tell who still holds one. Under
    /// MPI it waits for the other ranks to leave, and later calls are refused. Call it once on a communicator that was made, not
    /// on one that was split off; ranks that are threads leave when they return.
    fn leave(&self) {}
}

/// The calls of a [`Communicator`] with the types of Rust slices.
///
/// ```
/// use haloscope_comm::{Collectives, Communicator, Reduction, Solo};
///
/// fn norm(comm: &dyn Communicator, part: &[f64]) -> haloscope_comm::Result<f64> {
///     let mut square = [part.iter().map(|x| x * x).sum()];
///     comm.all_reduce(Reduction::Sum, &mut square)?;
///     Ok(f64::sqrt(square[0]))
/// }
///
/// assert_eq!(norm(&Solo::new(), &[3.0, 4.0])?, 5.0);
/// # Ok::<(), haloscope_comm::Error>(())
/// ```
pub trait Collectives: Communicator {
    /// Returns when all ranks have called it.
    fn barrier(&self) -> Result<()> {
        self.execute(Call::Barrier)
    }

    /// Copies `values` of `root` into `values` of all ranks; the same length everywhere.
    fn broadcast<T: Element>(&self, root: usize, values: &mut [T]) -> Result<()> {
        self.execute(Call::Broadcast { root, data: ViewMut::new(values) })
    }

    /// Copies the list of `root`, whose length the others need not know; theirs is replaced.
    fn broadcast_list<T: Element>(&self, root: usize, values: &mut Vec<T>) -> Result<()> {
        let mut length = [values.len() as u64];
        self.broadcast(root, &mut length)?;
        values.resize(to_usize("broadcast_list", length[0])?, T::zeroed());
        self.broadcast(root, values)
    }

    /// Replaces `values` on all ranks by their reduction over ranks, taken in rank order, so that
    /// all ranks get the same bits.
    fn all_reduce<T: Element>(&self, reduction: Reduction, values: &mut [T]) -> Result<()> {
        self.execute(Call::AllReduce { reduction, data: ViewMut::new(values) })
    }

    /// Reduces `input` over ranks and returns this rank's part, of `counts[rank]` elements.
    fn reduce_scatter<T: Element>(
        &self,
        reduction: Reduction,
        input: &[T],
        counts: &[usize],
    ) -> Result<Vec<T>> {
        let mut part = vec![T::zeroed(); counts.get(self.rank()).copied().unwrap_or(0)];
        self.execute(Call::ReduceScatter {
            reduction,
            input: View::new(input),
            counts,
            output: ViewMut::new(&mut part),
        })?;
        Ok(part)
    }

    /// The lists of all ranks, whose lengths may differ, in rank order.
    fn all_gather<T: Element>(&self, values: &[T]) -> Result<Vec<Vec<T>>> {
        let mut lengths = vec![0_u64; self.size()];
        self.all_gather_into(&[values.len() as u64], &vec![1; self.size()], &mut lengths)?;
        let counts = lengths
            .into_iter()
            .map(|length| to_usize("all_gather", length))
            .collect::<Result<Vec<usize>>>()?;
        let total = counts.iter().try_fold(0_usize, |sum, count| sum.checked_add(*count));
        let total = total.ok_or_else(|| overflow("all_gather"))?;
        let mut all = vec![T::zeroed(); total];
        self.all_gather_into(values, &counts, &mut all)?;
        let mut rest = all.as_slice();
        let mut take = |count: usize| {
            let (list, tail) = rest.split_at(count);
            rest = tail;
            list.to_vec()
        };
        Ok(counts.into_iter().map(&mut take).collect())
    }

    /// Concatenates the lists of all ranks in `output`, when all ranks know the lengths.
    fn all_gather_into<T: Element>(
        &self,
        values: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<()> {
        self.execute(Call::AllGather {
            input: View::new(values),
            counts,
            output: ViewMut::new(output),
        })
    }

    /// Sends `(rank, values)` and receives into `(rank, values)`, all at once; between two ranks
    /// the messages match in order.
    ///
    /// It counts as a call of all ranks, so every rank must call it equally often: those that have
    /// nothing to send or receive pass empty lists. A rank that skips it is out of step, and the next
    /// call that involves it fails with [`Mismatch`](crate::Error::Mismatch).
    ///
    /// It waits for the neighbours only, so a message that nobody receives is detected not here but
    /// by the next call that involves both ranks.
    fn exchange<T: Element>(
        &self,
        sends: &[(usize, &[T])],
        receives: &mut [(usize, &mut [T])],
    ) -> Result<()> {
        let sends: Vec<Outgoing> = sends
            .iter()
            .map(|(to, values)| Outgoing { to: *to, data: View::new(values) })
            .collect();
        let mut receives: Vec<Incoming> = receives
            .iter_mut()
            .map(|(from, values)| Incoming { from: *from, data: ViewMut::new(values) })
            .collect();
        self.execute(Call::Exchange { sends: &sends, receives: &mut receives })
    }

    /// The sum of all ranks' `(index, values)` in the order of the indices: the same bits for any
    /// number of ranks and any assignment of indices to ranks. Ranks may have none.
    fn ordered_sum<T: Element>(&self, contributions: &[(u64, &[T])], sum: &mut [T]) -> Result<()> {
        let contributions: Vec<Contribution> = contributions
            .iter()
            .map(|(index, values)| Contribution { index: *index, data: View::new(values) })
            .collect();
        self.execute(Call::OrderedSum { contributions: &contributions, output: ViewMut::new(sum) })
    }

    /// Runs `work` on rank 0 while the other ranks wait for it, however long it takes; all ranks call it. Rank 0 gets what
    /// the work returns, the others get `None`.
    ///
    /// A rank that is gone is noticed within the [`deadline`](Communicator::deadline) all the same, rank 0 among them. The
    /// work itself makes no calls on this communicator.
    ///
    /// ```
    /// use haloscope_comm::{Collectives, Context, Error};
    ///
    /// let written = Context::threads(3, |ctx| {
    ///     let write = || "a large file";
    ///     Ok::<_, Error>(ctx.comm().on_root(write)?)
    /// })?;
    /// assert_eq!(written, [Some("a large file"), None, None]);
    /// # Ok::<(), Error>(())
    /// ```
    fn on_root<T>(&self, work: impl FnOnce() -> T) -> Result<Option<T>> {
        crate::root::on_root(self, work)
    }

    /// The statistics of all ranks, in rank order. The gathering itself is not in them.
    fn gather_statistics(&self) -> Result<Vec<Statistics>> {
        let words = self.all_gather(&self.statistics().to_words())?;
        Ok(words.iter().map(|words| Statistics::from_words(words)).collect())
    }
}

impl<C: Communicator + ?Sized> Collectives for C {}

fn to_usize(operation: &'static str, length: u64) -> Result<usize> {
    usize::try_from(length).map_err(|_| overflow(operation))
}

fn overflow(operation: &'static str) -> Error {
    Error::Argument {
        operation,
        reason: format!("the length of all lists together overflows; at most {} fit", usize::MAX),
    }
}
