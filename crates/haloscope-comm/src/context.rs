//! A rank's environment: its communicator, its place on the machine, its threads, seeds and log.
//!
//! A [`Context`] is made in one of three ways (alone, on threads, from the launcher) and is then always
//! used in the same way.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::common::Common;
#[cfg(feature = "mpi")]
use crate::communicator::Collectives;
use crate::communicator::Communicator;
use crate::error::{Cause, Error, RankList, Result};
use crate::host::Cores;
use crate::intercept::Intercepted;
use crate::launcher::{Choice, Launch};
use crate::link::Link;
use crate::link::solo::Solo;
use crate::link::threads::Threads;
use crate::partition;
use crate::ranks::{DEFAULT_DEADLINE, MAX_DEADLINE, MIN_DEADLINE};
use crate::trace::{Span, Trace, Traced};

/// After a failure, how long ranks may take to notice it before [`Context::threads`] returns
/// without them.
const STRAGGLING: Duration = Duration::from_secs(5);

/// A rank and its environment; cheap to clone.
///
/// ```
/// use haloscope_comm::{Collectives, Context, Reduction};
///
/// let sums = Context::threads(4, |ctx| {
///     // Operators 0 to 9, dealt to the ranks.
///     let mut sum = [ctx.local_indices(10).sum::<usize>() as u64];
///     ctx.comm().all_reduce(Reduction::Sum, &mut sum)?;
///     Ok(sum[0])
/// })?;
/// assert_eq!(sums, [45; 4]);
/// # Ok::<(), haloscope_comm::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    comm: Arc<dyn Communicator>,
    local_rank: usize,
    local_size: usize,
    threads: usize,
    seed: u64,
    launch: Option<Launch>,
    common: Common,
    said: Arc<Mutex<HashSet<String>>>,
    trace: Option<Arc<Trace>>,
}

/// How to make a [`Context`], where the defaults do not fit.
#[derive(Clone, Copy, Debug)]
pub struct ContextOptions {
    /// The longest time that a call may go without progress.
    pub deadline: Duration,
    /// Threads per rank; by default the cores that the rank can use, shared with the other ranks of
    /// the same machine.
    pub threads: Option<usize>,
    /// The seed that all ranks share.
    pub seed: u64,
}

impl Default for ContextOptions {
    fn default() -> Self {
        Self { deadline: DEFAULT_DEADLINE, threads: None, seed: 0 }
    }
}

impl ContextOptions {
    fn check(&self) -> Result<()> {
        let bad =
            |reason: &str| Err(Error::Argument { operation: "context", reason: reason.into() });
        if self.threads == Some(0) {
            return bad("0 threads per rank; there must be at least 1");
        }
        if !(MIN_DEADLINE..=MAX_DEADLINE).contains(&self.deadline) {
            return bad(&format!(
                "a deadline of {:?}; from 1 ms to 10⁹ s is possible, and 300 s is the default",
                self.deadline
            ));
        }
        Ok(())
    }

    /// One rank, alone.
    pub fn solo(&self) -> Result<Context> {
        self.check()?;
        Ok(self.context(Arc::new(Solo::new()), 0, 1, Cores::detect().count))
    }

    /// Runs `body` on `size` ranks that are threads of this process, and returns what each rank
    /// returned. See [`Context::threads`].
    pub fn threads<T, E, F>(&self, size: usize, body: F) -> std::result::Result<Vec<T>, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&Context) -> std::result::Result<T, E> + Send + Sync + 'static,
    {
        self.check()?;
        let ranks = Threads::group(size)?;
        let threads = (Cores::detect().count / size).max(1);
        let common = Common::of(size);
        let body = Arc::new(body);
        let (reports, arrivals) = mpsc::channel();
        for (rank, comm) in ranks.into_iter().enumerate() {
            let comm = Arc::new(comm);
            let mut context = self.context(comm.clone(), rank, size, threads);
            context.common = common.clone();
            let (body, reports) = (body.clone(), reports.clone());
            // The report comes before the others can notice that this rank is gone, so that what
            // went wrong first is reported first. Nobody may be left to take it.
            let run = move || {
                let (outcome, cause) = match catch_unwind(AssertUnwindSafe(|| body(&context))) {
                    Ok(Ok(result)) => (Ok(result), None),
                    Ok(Err(error)) => (Err(error), Some(Cause::ReturnedError)),
                    Err(panic) => {
                        let cause = Cause::Panicked(panic_message(&*panic));
                        let error = Error::RankFailed { rank, cause: cause.clone() };
                        (Err(error.into()), Some(cause))
                    }
                };
                let _ = reports.send((rank, outcome));
                if let Some(cause) = cause {
                    comm.link().fail(&Error::RankFailed { rank, cause });
                }
            };
            std::thread::Builder::new().name(format!("rank {rank}")).spawn(run).map_err(
                |error| Error::Setup(format!("cannot start thread rank {rank}: {error}")),
            )?;
        }
        drop(reports);
        collect(size, &arrivals)
    }

    /// What the environment asks for. See [`Context::detect`].
    pub fn detect(&self) -> Result<Context> {
        self.check()?;
        let choice = Choice::detect()?;
        if choice == Some(Choice::Solo) {
            return self.solo();
        }
        let launch = Launch::detect()?;
        if choice == Some(Choice::Mpi) || launch.is_some_and(|launch| launch.size != Some(1)) {
            return self.launched(launch);
        }
        Ok(Context { launch, ..self.solo()? })
    }

    /// The rank that MPI gives to this process.
    #[cfg(feature = "mpi")]
    fn launched(&self, launch: Option<Launch>) -> Result<Context> {
        use crate::launcher::Launcher;
        if let Some(launch) = launch
            && launch.launcher == Launcher::Torchrun
        {
            return Err(launch.unsupported());
        }
        self.placed(crate::Mpi::join()?, launch, launch.and_then(|launch| launch.size))
    }

    /// The rank that MPI gives to this process, whatever the environment says.
    #[cfg(feature = "mpi")]
    pub fn mpi(&self) -> Result<Context> {
        self.check()?;
        self.launched(Launch::detect()?)
    }

    /// The rank of this process in the communicator that `join` gives, which is asked for after the options are checked.
    #[cfg(feature = "mpi")]
    pub fn ranks(&self, join: impl FnOnce() -> Result<crate::Mpi>) -> Result<Context> {
        self.check()?;
        let launch = Launch::detect()?;
        self.placed(join()?, launch, None)
    }

    /// Without MPI there is nothing that could connect the processes.
    #[cfg(not(feature = "mpi"))]
    #[allow(clippy::unused_self)]
    fn launched(&self, launch: Option<Launch>) -> Result<Context> {
        Err(launch.map_or_else(
            || {
                Error::Unsupported(format!(
                    "{}=mpi, but this build has no MPI; rebuild with `--features mpi`",
                    crate::launcher::CHOICE_VARIABLE
                ))
            },
            |launch| launch.unsupported(),
        ))
    }

    /// The context of a rank that has joined, if there are as many as `expected`. A rank that gets no context leaves again, so that
    /// nobody waits for it.
    #[cfg(feature = "mpi")]
    fn placed(
        &self,
        comm: crate::Mpi,
        launch: Option<Launch>,
        expected: Option<usize>,
    ) -> Result<Context> {
        let comm: Arc<dyn Communicator> = Arc::new(comm);
        comm.set_deadline(self.deadline);
        let context = check_size(&*comm, expected).and_then(|()| self.among(comm.clone(), launch));
        context.inspect_err(|_| comm.leave())
    }

    /// Asks the other ranks for their machines and cores, to find this rank's place among them.
    #[cfg(feature = "mpi")]
    fn among(&self, comm: Arc<dyn Communicator>, launch: Option<Launch>) -> Result<Context> {
        let (host, cores) = (crate::host::name(), Cores::detect());
        let here = comm.all_gather(format!("{host}\n{}", cores.list).as_bytes())?;
        let place = Place::among(&here, comm.rank(), cores.count);
        let mut context = self.context(comm, place.local_rank, place.local_size, place.threads);
        context.launch = launch;
        Ok(context)
    }

    fn context(
        &self,
        comm: Arc<dyn Communicator>,
        local_rank: usize,
        local_size: usize,
        threads: usize,
    ) -> Context {
        comm.set_deadline(self.deadline);
        let threads = self.threads.unwrap_or(threads);
        let (seed, common, said) = (self.seed, Common::of(1), Arc::default());
        let (launch, trace) = (None, None);
        Context { comm, local_rank, local_size, threads, seed, launch, common, said, trace }
    }
}

impl Context {
    /// One rank, alone, with the default options.
    #[must_use]
    pub fn solo() -> Self {
        let options = ContextOptions::default();
        options.context(Arc::new(Solo::new()), 0, 1, Cores::detect().count)
    }

    /// Runs `body` on `size` ranks that are threads of this process, and returns what each rank
    /// returned.
    ///
    /// If a rank panics or returns an error, the first such rank decides the result, and the others
    /// get an error from their next call. A rank that never makes another call (it is stuck, or in
    /// an endless loop) is left behind after a few seconds: a thread cannot be stopped from outside.
    pub fn threads<T, E, F>(size: usize, body: F) -> std::result::Result<Vec<T>, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&Self) -> std::result::Result<T, E> + Send + Sync + 'static,
    {
        ContextOptions::default().threads(size, body)
    }

    /// The context that the environment asks for: `HALOSCOPE_COMM` if it is set, else MPI if a
    /// launcher started this process, else one rank.
    pub fn detect() -> Result<Self> {
        ContextOptions::default().detect()
    }

    /// The communicator of all ranks.
    #[must_use]
    pub fn comm(&self) -> &dyn Communicator {
        &*self.comm
    }

    /// The number of this rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.comm.size()
    }

    /// Whether this is rank 0, which prints for all.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.rank() == 0
    }

    /// The number of this rank among those of its machine.
    #[must_use]
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// How many ranks this machine has.
    #[must_use]
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// Threads that this rank should use for its own work.
    #[must_use]
    pub fn threads_per_rank(&self) -> usize {
        self.threads
    }

    /// What started this process, if a launcher did.
    #[must_use]
    pub fn launch(&self) -> Option<Launch> {
        self.launch
    }

    /// The seed that all ranks share, for what must be the same everywhere.
    #[must_use]
    pub fn shared_seed(&self) -> u64 {
        self.seed
    }

    /// A seed of this rank's own: the shared one plus the rank.
    #[must_use]
    pub fn rank_seed(&self) -> u64 {
        self.seed.wrapping_add(self.rank() as u64)
    }

    /// Leaves the ranks now; see [`Communicator::leave`].
    pub fn leave(&self) {
        self.comm.leave();
    }

    /// The pieces of `count` that this rank gets when they are dealt round-robin.
    pub fn local_indices(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        partition::round_robin(count, self.rank(), self.size())
    }

    /// The block of contiguous pieces that this rank gets when pieces with these costs are balanced
    /// over the ranks; see [`partition::contiguous`].
    pub fn local_block(&self, costs: &[f64]) -> Result<Range<usize>> {
        Ok(partition::contiguous(costs, self.size())?.swap_remove(self.rank()))
    }

    /// The ranks of this process: all of them if they are threads, else this one.
    #[must_use]
    pub fn process_size(&self) -> usize {
        self.common.ranks
    }

    /// The value of this name and type that the ranks of this process have in common. The first rank that asks makes it,
    /// the others wait for that; it is there as long as a rank holds it, and is made anew after that. An error is the
    /// asking rank's own.
    ///
    /// ```
    /// use haloscope_comm::{Context, Error};
    ///
    /// let tables = Context::threads(3, |ctx| {
    ///     let table = ctx.share("squares", || Ok::<_, Error>(vec![0, 1, 4, 9]))?;
    ///     Ok::<_, Error>(table)
    /// })?;
    /// assert!(tables.iter().all(|table| **table == [0, 1, 4, 9]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn share<T: Any + Send + Sync, E>(
        &self,
        name: &str,
        make: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<Arc<T>, E> {
        self.common.get(name, make)
    }

    /// The same context, whose calls and [spans](Self::span) are recorded in `trace`.
    #[must_use]
    pub fn traced(&self, trace: Trace) -> Self {
        let trace = Arc::new(trace);
        let comm = Arc::new(Intercepted { inner: self.comm.clone(), by: Traced(trace.clone()) });
        Self { comm, trace: Some(trace), ..self.clone() }
    }

    /// The same context, whose calls are made by `intercept`, which gets the communicator to make them on: to count them, or to fail
    /// on purpose in a test. Communicators that are split off make their calls themselves.
    ///
    /// ```
    /// use haloscope_comm::{Call, Collectives, Context, Error};
    ///
    /// let ctx = Context::solo().intercepted(|call, comm| match call {
    ///     Call::Barrier => Err(comm.abort("no barrier today")),
    ///     call => comm.execute(call),
    /// });
    /// assert!(ctx.comm().broadcast(0, &mut [1.0]).is_ok());
    /// assert!(ctx.comm().barrier().unwrap_err().to_string().contains("no barrier today"));
    /// ```
    #[must_use]
    pub fn intercepted(
        &self,
        intercept: impl Fn(Call<'_>, &dyn Communicator) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let comm = Arc::new(Intercepted { inner: self.comm.clone(), by: intercept });
        Self { comm, ..self.clone() }
    }

    /// The trace that records what this rank does, if there is one.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Begins something that a trace shows, if there is one; it ends when the span is dropped.
    pub fn span(&self, name: &'static str) -> Span<'_> {
        Span::begin(self.trace(), name)
    }

    /// A message of the job as a whole: logged by rank 0 only.
    pub fn log(&self, level: log::Level, message: impl fmt::Display) {
        if self.is_root() {
            log::log!(level, "{message}");
        }
    }

    /// Like [`log`](Self::log), but the same message is logged only once, by this context and its
    /// clones.
    pub fn log_once(&self, level: log::Level, message: impl fmt::Display) {
        let message = message.to_string();
        if self.is_root()
            && self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(message.clone())
        {
            log::log!(level, "{message}");
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("local_rank", &self.local_rank)
            .field("local_size", &self.local_size)
            .field("threads", &self.threads)
            .field("seed", &self.seed)
            .field("launch", &self.launch)
            .finish_non_exhaustive()
    }
}

/// What each rank returned, or the first error. After an error, ranks that do not return within a
/// while are left behind.
fn collect<T, E>(
    size: usize,
    arrivals: &mpsc::Receiver<(usize, std::result::Result<T, E>)>,
) -> std::result::Result<Vec<T>, E>
where
    E: From<Error>,
{
    let mut results: Vec<Option<T>> = (0..size).map(|_| None).collect();
    let mut failure: Option<(E, Instant)> = None;
    for _ in 0..size {
        let arrival = match &failure {
            None => arrivals.recv().ok(),
            Some((_, since)) => {
                arrivals.recv_timeout(STRAGGLING.saturating_sub(since.elapsed())).ok()
            }
        };
        match arrival {
            Some((rank, Ok(result))) => results[rank] = Some(result),
            Some((_, Err(error))) => {
                failure.get_or_insert_with(|| (error, Instant::now()));
            }
            None => break,
        }
    }
    if let Some((error, _)) = failure {
        return Err(error);
    }
    let missing: Vec<usize> = (0..size).filter(|rank| results[*rank].is_none()).collect();
    if !missing.is_empty() {
        let reason = format!("{} ended without a result", RankList(&missing));
        return Err(Error::Setup(reason).into());
    }
    Ok(results.into_iter().flatten().collect())
}

/// Whether MPI has as many ranks as the launcher started.
#[cfg(feature = "mpi")]
fn check_size(comm: &dyn Communicator, expected: Option<usize>) -> Result<()> {
    match expected {
        Some(size) if size != comm.size() => Err(Error::Setup(format!(
            "the launcher started {size} ranks, but MPI sees {}; this build uses {}, so start it with that library's mpirun (or \
             srun with its --mpi plugin)",
            comm.size(),
            crate::Mpi::library()
        ))),
        _ => Ok(()),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Where a rank is among the ranks of its machine.
#[cfg(any(feature = "mpi", test))]
#[derive(Debug, PartialEq, Eq)]
struct Place {
    local_rank: usize,
    local_size: usize,
    threads: usize,
}

#[cfg(any(feature = "mpi", test))]
impl Place {
    /// `ranks` are lines of all ranks: the machine's name, and the list of usable cores. A launcher
    /// may have bound each rank to cores of its own, or have left all cores to all ranks.
    fn among(ranks: &[Vec<u8>], rank: usize, cores: usize) -> Self {
        let host = |line: &Vec<u8>| line.split(|byte| *byte == b'\n').next().map(<[u8]>::to_vec);
        let here = |other: &&Vec<u8>| host(other) == host(&ranks[rank]);
        let sharing = ranks.iter().filter(|other| **other == ranks[rank]).count();
        Self {
            local_rank: ranks[..rank].iter().filter(here).count(),
            local_size: ranks.iter().filter(here).count(),
            threads: (cores / sharing).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_machine_share_its_cores_unless_each_is_bound_to_its_own() {
        let ranks: Vec<Vec<u8>> =
            ["a\n0-7", "b\n0-3", "a\n0-7", "b\n4-7"].map(|line| line.as_bytes().to_vec()).into();
        let place = |rank, cores| Place::among(&ranks, rank, cores);
        assert_eq!(place(2, 8), Place { local_rank: 1, local_size: 2, threads: 4 });
        assert_eq!(place(3, 4), Place { local_rank: 1, local_size: 2, threads: 4 });
        assert_eq!(place(0, 1), Place { local_rank: 0, local_size: 2, threads: 1 });
    }

    #[test]
    fn seeds_are_shared_or_offset_by_rank() {
        let options = ContextOptions { seed: 40, ..ContextOptions::default() };
        let seeds = options
            .threads(3, |ctx| Ok::<_, Error>((ctx.shared_seed(), ctx.rank_seed())))
            .expect("no rank fails");
        assert_eq!(seeds, [(40, 40), (40, 41), (40, 42)]);
    }

    #[test]
    fn bad_options_say_what_would_be_accepted() {
        let none = ContextOptions { threads: Some(0), ..ContextOptions::default() };
        let hasty = ContextOptions { deadline: Duration::ZERO, ..ContextOptions::default() };
        for (options, words) in [(none, "at least 1"), (hasty, "300 s is the default")] {
            let error = options.solo().expect_err("bad options").to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = Context::threads(0, |_| Ok::<_, Error>(())).expect_err("no ranks").to_string();
        assert_eq!(error, "threads: 0 ranks; there must be at least 1");
    }
}
