//! Ranks that are MPI processes. Only point-to-point messages are used: see `README.md` of the
//! collectives for why.
//!
//! Frames travel in buffers that the link owns, so that a failed call can return at once while MPI
//! still holds a buffer. One message tag is for control: failures, the roll call that finds out who
//! is missing, and leaving; the other tags are the channels of communicators.

mod request;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::environment::Universe;

use self::request::{Communicator, Request};
use super::wire::{self, Control, HEADER_BYTES};
use super::{Channel, Frame, Header, Link};
use crate::error::{CallSite, Cause, Error, Result};
use crate::ranks::{DEFAULT_DEADLINE, Ranks};

/// Large enough for MPI to move at full speed, small enough to stay in the cache of a core
/// (`make bench`: 64 MiB all-reduce).
const FRAME_BYTES: usize = 256 << 10;

/// Frames that may be under way to a rank, on each channel: as much as keeps the line busy.
const QUEUE_FRAMES: usize = 4;

/// Buffers that are kept for later use.
const SPARE_FRAMES: usize = 64;

/// How long present ranks get to answer a roll call, and to leave after a failure.
const GRACE: Duration = Duration::from_millis(500);

/// The tag of control messages; channels have tags from 1.
const CONTROL_TAG: i32 = 0;

/// How long a rank waits for the others to leave. They may be writing their results.
const LEAVING: Duration = Duration::from_hours(1);

/// How long `MPI_Init` may take unless `HALOSCOPE_START_SECONDS` says otherwise: a launcher starts thousands of processes one by one.
const STARTING: Duration = Duration::from_mins(10);

/// The variable that sets another.
const START_SECONDS: &str = "HALOSCOPE_START_SECONDS";

/// This process as a rank of an MPI job.
///
/// When the last handle to it is dropped, the rank leaves. If the job went well, all ranks leave
/// together and MPI is finalised. If it failed, the rank says why on standard error and ends all
/// processes of the job with `MPI_Abort`, so that none is left running. A rank that gives up for a
/// reason of its own should say so with [`abort`](crate::Communicator::abort); if it just leaves,
/// that is all that the others can tell.
pub type Mpi = Ranks<MpiLink>;

impl Mpi {
    /// Initialises MPI and returns the rank of this process.
    pub fn initialize() -> Result<Self> {
        Self::initialize_with_frames(FRAME_BYTES)
    }

    /// Like [`initialize`](Self::initialize), with messages split into frames of at most
    /// `frame_bytes`: the same on all ranks, a multiple of 8, and less than 2³¹.
    pub fn initialize_with_frames(frame_bytes: usize) -> Result<Self> {
        if mpi::environment::is_finalized() {
            return Err(Error::Setup(
                "MPI has been finalised; a process can be a rank of one job only".into(),
            ));
        }
        let (universe, threading) = begin(Threading::Serialized)?.ok_or_else(|| {
            Error::Setup(
                "MPI is initialised already; use the communicator that exists, or \
                 `Mpi::attach` for an MPI that the program initialised itself"
                    .into(),
            )
        })?;
        Self::start(Some(universe), threading, frame_bytes, None)
    }

    /// The rank of this process in an MPI that the program has initialised, and will finalise,
    /// itself; its threads must be allowed to call MPI one at a time (`MPI_THREAD_SERIALIZED`).
    pub fn attach() -> Result<Self> {
        check_initialized()?;
        Self::start(None, mpi::environment::threading_support(), FRAME_BYTES, None)
    }

    /// The rank of this process among those of another communicator than the world, under the conditions of
    /// [`attach`](Self::attach).
    ///
    /// # Safety
    /// `communicator` points to an `MPI_Comm` of the library of this build: an intracommunicator that the program has not freed.
    pub unsafe fn attach_to(communicator: *const c_void) -> Result<Self> {
        check_initialized()?;
        // SAFETY: the caller says so.
        let handle = unsafe { *communicator.cast() };
        if Communicator::is_world(handle)? {
            return Self::join();
        }
        let threading = mpi::environment::threading_support();
        if threading < Threading::Multiple && !open_links().is_empty() {
            return Err(Error::Setup(format!(
                "this process is a rank of a communicator already, and this MPI lets threads call it as {threading:?}; leave that \
                 one first, or initialise MPI with MPI_THREAD_MULTIPLE"
            )));
        }
        Self::start(None, threading, FRAME_BYTES, Some(handle))
    }

    /// The rank of this process among all of the job, whoever initialises MPI: the program before, or this call. If the process is
    /// a rank already, this is another communicator of the same rank. All ranks must join in the same order.
    pub fn join() -> Result<Self> {
        if let Some(link) = open_links().into_iter().find(|link| link.is_world) {
            return Ok(Self::another(link));
        }
        if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
            return Self::attach();
        }
        Self::initialize()
    }

    /// A communicator of all ranks beside those that the process has.
    fn another(link: Arc<MpiLink>) -> Self {
        let number = {
            let mut state = link.state();
            state.users += 1;
            state.joined += 1;
            state.joined
        };
        let (rank, size) = (link.rank, link.size);
        // Counted down from the last call that could split the world.
        let channel = Channel::WORLD.part(u64::MAX - number);
        Self::part(link, channel, (0..size).collect(), rank, DEFAULT_DEADLINE)
    }

    /// Initialises MPI for the rest of the process, so that what [joins](Self::join) may leave and join again; MPI is finalised when
    /// the process exits. If the program has initialised it, this does nothing, and finalising it is left to the program.
    pub fn initialize_for_process() -> Result<()> {
        if mpi::environment::is_initialized() || mpi::environment::is_finalized() {
            return Ok(());
        }
        // Others in the process may call it from threads that know nothing of ours.
        if let Some((universe, _)) = begin(Threading::Multiple)? {
            std::mem::forget(universe);
            // SAFETY: the handler is a plain function that does not unwind. It runs after `on_exit`, which is registered later.
            unsafe { libc::atexit(finalize) };
        }
        Ok(())
    }

    /// The name and version of the MPI library; also before it is initialised.
    #[must_use]
    pub fn library() -> String {
        Self::library_of(&mpi::environment::library_version().unwrap_or_default())
    }

    /// The name and version in what `MPI_Get_library_version` says.
    #[must_use]
    pub fn library_of(version: &str) -> String {
        // Some libraries add pages of build options.
        let line = version.lines().next().unwrap_or_default();
        match line.strip_prefix("MPICH Version:") {
            Some(number) => format!("MPICH {}", number.trim()),
            None => line.split(", ident").next().unwrap_or_default().replace(", package: ", " "),
        }
    }

    /// Of the ranks of a communicator, or of the world.
    fn start(
        universe: Option<Universe>,
        threading: Threading,
        frame_bytes: usize,
        of: Option<mpi::ffi::MPI_Comm>,
    ) -> Result<Self> {
        if threading < Threading::Serialized {
            return Err(Error::Setup(format!(
                "this MPI lets threads call it as {threading:?}; Serialized or Multiple is needed"
            )));
        }
        let largest = (1 << 30) - HEADER_BYTES;
        if frame_bytes == 0 || !frame_bytes.is_multiple_of(8) || frame_bytes > largest {
            return Err(Error::Argument {
                operation: "mpi",
                reason: format!(
                    "frames of {frame_bytes} bytes; a multiple of 8 up to {largest} is needed"
                ),
            });
        }
        let is_world = of.is_none();
        let comm = Communicator::duplicate(of, DEFAULT_DEADLINE)?;
        let (rank, size) = (comm.rank(), comm.size());
        let state = State {
            control: comm.receive(None, CONTROL_TAG, vec![0; wire::CONTROL_WORDS])?,
            sends: HashMap::new(),
            messages: Vec::new(),
            receives: HashMap::new(),
            spare: Vec::new(),
            entered: HashMap::new(),
            present: HashSet::new(),
            leaving: BTreeSet::new(),
            failure: None,
            users: 1,
            joined: 0,
            is_over: false,
        };
        let state = Mutex::new(state);
        let link = MpiLink { rank, size, frame_bytes, is_world, comm, state, universe };
        let link = Arc::new(link);
        watch_exit(&link);
        Ok(Self::world(link))
    }
}

/// The link of [`Mpi`], shared by all communicators of a process that have the same ranks.
pub struct MpiLink {
    rank: usize,
    size: usize,
    frame_bytes: usize,
    /// Whether its ranks are all of the job.
    is_world: bool,
    comm: Communicator,
    /// Held for every use of MPI, which must be called by one thread at a time.
    state: Mutex<State>,
    /// Finalises MPI when dropped, after everything else.
    universe: Option<Universe>,
}

struct State {
    /// The receive for the next control message.
    control: Request,
    sends: HashMap<(Channel, usize), Vec<Request>>,
    /// Control messages under way.
    messages: Vec<Request>,
    receives: HashMap<(Channel, usize), VecDeque<Request>>,
    /// Buffers of frames, to be used again.
    spare: Vec<Vec<u64>>,
    /// The last call that this rank entered, on each channel.
    entered: HashMap<Channel, u64>,
    /// The answers to roll calls: channel, call, rank.
    present: HashSet<(Channel, u64, usize)>,
    leaving: BTreeSet<usize>,
    failure: Option<Error>,
    /// Communicators of all ranks that have not left.
    users: u64,
    /// How many were made beside the first one.
    joined: u64,
    /// Whether this rank has left, and MPI knows nothing of the link any more.
    is_over: bool,
}

impl MpiLink {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn frame_words(&self) -> usize {
        (HEADER_BYTES + self.frame_bytes) / 8
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.size).filter(move |other| *other != rank)
    }

    /// Two channels may share a tag by chance; their frames would be told apart by the header, as
    /// ranks that disagree.
    fn tag(&self, channel: Channel) -> i32 {
        let tags = u64::from(self.comm.largest_tag().unsigned_abs());
        (channel.to_bits() % tags) as i32 + 1
    }

    /// Sends a control message; it is small, so MPI takes it at once or soon.
    fn tell(&self, state: &mut State, to: usize, control: &Control) -> Result<()> {
        let words = control.encode(self.rank);
        let bytes = size_of_val(&words[..]);
        state.messages.push(self.comm.send(to, CONTROL_TAG, words, bytes)?);
        Ok(())
    }

    /// Takes in all control messages that have arrived.
    fn heed(&self, state: &mut State) -> Result<()> {
        while state.control.test()?.is_some() {
            let words = state.control.take_buffer();
            let message = Control::decode(&words);
            state.control = self.comm.receive(None, CONTROL_TAG, words)?;
            let Some((from, message)) = message else { continue };
            match message {
                Control::Failure(error) => drop(state.failure.get_or_insert(error)),
                Control::Leaving => drop(state.leaving.insert(from)),
                Control::Present { channel, number } => {
                    state.present.insert((channel, number, from));
                }
                Control::RollCall { channel, number } => {
                    if state.entered.get(&channel).is_some_and(|at| *at >= number) {
                        self.tell(state, from, &Control::Present { channel, number })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Forgets sends that MPI has finished; their buffers can be used again. Says how many are left.
    fn reap(&self, state: &mut State, channel: Channel, to: usize) -> Result<usize> {
        let Some(mut sends) = state.sends.remove(&(channel, to)) else { return Ok(0) };
        let done = take_done(&mut sends)?;
        for buffer in done {
            self.keep(state, buffer);
        }
        let left = sends.len();
        if left > 0 {
            state.sends.insert((channel, to), sends);
        }
        Ok(left)
    }

    /// Whether all frames of the channel, or of all channels, have been taken.
    fn all_sent(&self, state: &mut State, channel: Option<Channel>) -> Result<bool> {
        let is_meant = |key: &&(Channel, usize)| channel.is_none_or(|channel| channel == key.0);
        let keys: Vec<(Channel, usize)> = state.sends.keys().filter(is_meant).copied().collect();
        let mut left = 0;
        for (channel, to) in keys {
            left += self.reap(state, channel, to)?;
        }
        Ok(left == 0)
    }

    fn keep(&self, state: &mut State, buffer: Vec<u64>) {
        if buffer.len() == self.frame_words() && state.spare.len() < SPARE_FRAMES {
            state.spare.push(buffer);
        }
    }

    fn buffer(&self, state: &mut State) -> Vec<u64> {
        state.spare.pop().unwrap_or_else(|| vec![0; self.frame_words()])
    }

    /// Waits until `done`, taking in control messages; false if that took longer than `limit`.
    fn wait_for(&self, limit: Duration, done: impl Fn(&mut State) -> Result<bool>) -> Result<bool> {
        let begin = Instant::now();
        loop {
            {
                let mut state = self.state();
                take_done(&mut state.messages)?;
                self.heed(&mut state)?;
                if done(&mut state)? {
                    return Ok(true);
                }
            }
            if begin.elapsed() > limit {
                return Ok(false);
            }
            pause(begin.elapsed());
        }
    }

    /// Tells the other ranks that this one is leaving, and waits for them to leave, too.
    /// News of a failure ends the waiting.
    fn take_leave(&self, limit: Duration) -> Result<bool> {
        let failed = self.state().failure.is_some();
        for other in self.others() {
            self.tell(&mut self.state(), other, &Control::Leaving)?;
        }
        self.wait_for(limit, |state| {
            let all_left = state.leaving.len() == self.size - 1;
            let is_news = state.failure.is_some() && !failed;
            Ok(is_news || all_left && state.messages.is_empty() && self.all_sent(state, None)?)
        })
    }
}

impl Link for MpiLink {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    fn enter(&self, channel: Channel, number: u64) {
        self.state().entered.insert(channel, number);
    }

    fn try_send(&self, to: usize, header: Header, payload: &[u8]) -> Result<bool> {
        let mut state = self.state();
        let channel = header.channel;
        if self.reap(&mut state, channel, to)? >= QUEUE_FRAMES {
            return Ok(false);
        }
        let mut words = self.buffer(&mut state);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let length = HEADER_BYTES + payload.len();
        bytes[..HEADER_BYTES].copy_from_slice(bytemuck::cast_slice(&wire::encode_header(&header)));
        bytes[HEADER_BYTES..length].copy_from_slice(payload);
        let request = self.comm.send(to, self.tag(channel), words, length)?;
        state.sends.entry((channel, to)).or_default().push(request);
        Ok(true)
    }

    fn prepare(&self, channel: Channel, from: usize) -> Result<()> {
        let mut state = self.state();
        let buffer = self.buffer(&mut state);
        let request = self.comm.receive(Some(from), self.tag(channel), buffer)?;
        state.receives.entry((channel, from)).or_default().push_back(request);
        Ok(())
    }

    fn try_receive(&self, channel: Channel, from: usize) -> Result<Option<Frame>> {
        let mut state = self.state();
        let Some(queue) = state.receives.get_mut(&(channel, from)) else { return Ok(None) };
        let Some(first) = queue.front_mut() else { return Ok(None) };
        let Some(bytes) = first.test()? else { return Ok(None) };
        let words = first.take_buffer();
        queue.pop_front();
        let header = wire::decode_header(&words).filter(|_| bytes >= HEADER_BYTES);
        let header = header.ok_or_else(|| {
            Error::Transport(format!("a frame of rank {from} is not one of ours"))
        })?;
        Ok(Some(Frame { header, words, start: HEADER_BYTES, len: bytes - HEADER_BYTES }))
    }

    fn recycle(&self, frame: Frame) {
        let mut state = self.state();
        self.keep(&mut state, frame.into_words());
    }

    fn flushed(&self, channel: Channel) -> Result<bool> {
        self.all_sent(&mut self.state(), Some(channel))
    }

    fn mark(&self) -> u64 {
        0
    }

    fn wait(&self, _: u64, idle: Duration, _: Instant) {
        pause(idle);
    }

    fn failure(&self) -> Option<Error> {
        let mut state = self.state();
        if state.is_over {
            return state.failure.clone();
        }
        if let Err(error) = self.heed(&mut state) {
            state.failure.get_or_insert(error);
        }
        state.failure.clone()
    }

    fn fail(&self, error: &Error) {
        let mut state = self.state();
        if state.failure.is_some() || state.is_over {
            return;
        }
        state.failure = Some(error.clone());
        for other in self.others() {
            // A rank that cannot be told will notice by itself.
            let _ = self.tell(&mut state, other, &Control::Failure(error.clone()));
        }
    }

    fn has_left(&self, rank: usize) -> bool {
        self.state().leaving.contains(&rank)
    }

    /// Calls the roll: a rank that waits in a call answers, one that is gone, stopped or busy
    /// elsewhere does not.
    fn absent(&self, channel: Channel, number: u64, members: &[usize]) -> Vec<usize> {
        let others = || members.iter().copied().filter(|member| *member != self.rank);
        for other in others() {
            // A rank that cannot be told is absent, too.
            let _ = self.tell(&mut self.state(), other, &Control::RollCall { channel, number });
        }
        let is_present = |state: &State, other| state.present.contains(&(channel, number, other));
        let _ = self.wait_for(GRACE, |state| {
            Ok(state.failure.is_some() || others().all(|other| is_present(state, other)))
        });
        let state = self.state();
        others().filter(|other| !is_present(&state, *other)).collect()
    }

    fn close(&self, channel: Channel) {
        let mut state = self.state();
        state.entered.remove(&channel);
        state.receives.retain(|(other, _), queue| *other != channel || !queue.is_empty());
    }

    fn abort(&self, error: &Error) {
        if !self.state().is_over {
            self.fail(error);
            self.end_job(error);
        }
    }

    fn leave(&self) {
        let is_last = {
            let mut state = self.state();
            state.users = state.users.saturating_sub(1);
            state.users == 0
        };
        if is_last {
            self.depart();
        }
    }
}

impl MpiLink {
    /// Gives the other ranks a moment to say what they know, then ends all processes.
    fn end_job(&self, error: &Error) -> ! {
        let line = format!("haloscope: rank {} ends the job: {error}\n", self.rank);
        // One write, so that the lines of several ranks do not mix; if it fails, there is no better
        // place to say so.
        let _ = std::io::stderr().write_all(line.as_bytes());
        let _ = self.take_leave(GRACE);
        let _state = self.state();
        self.comm.abort()
    }
}

impl MpiLink {
    /// All ranks leave together, or the job is ended.
    fn depart(&self) {
        if self.state().is_over {
            return;
        }
        if let Some(error) = self.failure() {
            self.end_job(&error);
        }
        let left = self.take_leave(LEAVING);
        if let Some(error) = self.failure() {
            self.end_job(&error);
        }
        match left {
            Ok(true) => (),
            Ok(false) => {
                let leaving = self.state().leaving.clone();
                let error = Error::Timeout {
                    ranks: self.others().filter(|other| !leaving.contains(other)).collect(),
                    site: CallSite { rank: self.rank, number: 0, call: "leaving the job".into() },
                    seconds: LEAVING.as_secs_f64(),
                };
                self.fail(&error);
                self.end_job(&error);
            }
            Err(error) => self.end_job(&error),
        }
        let mut state = self.state();
        state.control.cancel();
        self.comm.free();
        state.is_over = true;
        state.failure = Some(Error::Setup("this rank has left the job; make calls before".into()));
    }
}

impl Drop for MpiLink {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = Cause::Panicked("see its message above".into());
            self.fail(&Error::RankFailed { rank: self.rank, cause });
        }
        self.depart();
        self.universe.take();
    }
}

/// Initialises MPI, if it is not. `MPI_Init` waits for all processes and has no deadline, so a process that never comes would keep the
/// others for ever: after some time they end instead, and with them, by the launcher, the job.
fn begin(threading: Threading) -> Result<Option<(Universe, Threading)>> {
    let limit = starting_time(std::env::var(START_SECONDS).ok().as_deref())?;
    let (started, waiting) = mpsc::channel::<()>();
    let watch = move || {
        if waiting.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let seconds = limit.as_secs();
            // Nobody may be left to read it, which must not keep this process from ending.
            let _ = writeln!(
                std::io::stderr(),
                "haloscope: MPI did not start within {seconds} s: a process of the job is missing or stuck; \
                 {START_SECONDS} sets the time"
            );
            // SAFETY: ends the process at once. Handlers of the library, which is in the middle of its own call, must not run.
            unsafe { libc::_exit(1) };
        }
    };
    // Without a thread for it, the start is not watched.
    let _watch = std::thread::Builder::new().name("mpi-start".into()).spawn(watch);
    let found = mpi::initialize_with_threading(threading);
    drop(started);
    Ok(found)
}

/// How long MPI may take to start, if the environment says so or not.
fn starting_time(given: Option<&str>) -> Result<Duration> {
    let Some(text) = given else { return Ok(STARTING) };
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        Error::Setup(format!(
            "{START_SECONDS} is `{text}`; a whole number of seconds from 1 is accepted"
        ))
    })
}

fn check_initialized() -> Result<()> {
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        return Ok(());
    }
    Err(Error::Setup(
        "MPI is not initialised; call `Mpi::initialize`, or initialise it before `Mpi::attach`"
            .into(),
    ))
}

/// The buffers of requests that are complete, which are taken off the list.
fn take_done(requests: &mut Vec<Request>) -> Result<Vec<Vec<u64>>> {
    let (mut done, mut index) = (Vec::new(), 0);
    while index < requests.len() {
        if requests[index].test()?.is_none() {
            index += 1;
        } else {
            done.push(requests.swap_remove(index).take_buffer());
        }
    }
    Ok(done)
}

/// The links of this process.
static LINKS: Mutex<Vec<Weak<MpiLink>>> = Mutex::new(Vec::new());

/// Those that have not left.
fn open_links() -> Vec<Arc<MpiLink>> {
    let mut links = LINKS.lock().unwrap_or_else(PoisonError::into_inner);
    links.retain(|link| link.strong_count() > 0);
    links.iter().filter_map(Weak::upgrade).filter(|link| !link.state().is_over).collect()
}

/// A process that calls `exit` does not drop its link; some launchers would take that for success
/// and end the other ranks without a word.
fn watch_exit(link: &Arc<MpiLink>) {
    static REGISTER: Once = Once::new();
    LINKS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(link));
    REGISTER.call_once(|| {
        // SAFETY: the handler is a plain function that does not unwind.
        unsafe { libc::atexit(on_exit) };
    });
}

extern "C" fn on_exit() {
    if let Some(link) = open_links().first() {
        let error = Error::RankFailed { rank: link.rank, cause: Cause::Exited };
        link.fail(&error);
        link.end_job(&link.failure().unwrap_or(error));
    }
}

/// Ends what [`Mpi::initialize_for_process`] began.
extern "C" fn finalize() {
    if !mpi::environment::is_finalized() {
        // SAFETY: MPI is initialised, and no rank is left that uses it: `on_exit` has looked.
        unsafe { mpi::ffi::MPI_Finalize() };
    }
}

/// Lets others run: at once for a while, then in longer and longer naps, so that a rank that waits
/// for seconds leaves its core alone.
fn pause(idle: Duration) {
    if idle < Duration::from_millis(1) {
        std::thread::yield_now();
    } else if idle < Duration::from_millis(50) {
        std::thread::sleep(Duration::from_micros(50));
    } else {
        std::thread::sleep(Duration::from_millis(1));
    }
}
