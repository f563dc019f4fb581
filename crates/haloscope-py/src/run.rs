//! Calculations away from the interpreter's lock, which Ctrl-C ends.
//!
//! Python delivers signals to its main thread alone. A call from there therefore calculates on a thread of its own, while the
//! main thread looks for signals every 50 ms; on Ctrl-C it makes the request that engines, planners and solvers look at
//! ([`Stop`]), and raises `KeyboardInterrupt` when they have ended. Calls from other threads, such as ranks', calculate where they
//! are and watch the request that their thread watches. No lock of Rust is held while a thread attaches to the interpreter.

use std::cell::Cell;
use std::ffi::c_ulong;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock};
use std::time::Duration;

use haloscope::{Error, Result};
use haloscope_nn::Stop;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::raise;

/// How often the main thread looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Python code that runs for a calculation: the request that ends it, and its thread as Python numbers them.
static CALLABLES: Mutex<Vec<(Stop, c_ulong)>> = Mutex::new(Vec::new());

/// Threads of operators outside of ranks, where their number was set.
static POOL: RwLock<Option<Arc<ThreadPool>>> = RwLock::new(None);

thread_local! {
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    static GRANTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Calculates without the interpreter's lock; Ctrl-C ends it.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is that of one lifetime")]
pub(crate) fn compute<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    static LOGGING: Once = Once::new();
    // Not on import: the command has a logger of its own. Somebody else may have installed one.
    LOGGING.call_once(|| drop(pyo3_log::try_init()));
    if !is_main(py)? {
        return py.detach(work).map_err(|error| raise(py, error));
    }
    let stop = Stop::default();
    let (result, interrupt) = py.detach(|| {
        std::thread::scope(|scope| {
            let (ended, end) = channel::<()>();
            let stop = &stop;
            let worker = scope.spawn(move || {
                // Hung up when the work ends, in whatever way.
                let _ended = ended;
                stop.watch(work)
            });
            let mut interrupt = None;
            while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if let Err(signal) = Python::attach(|py| py.check_signals()) {
                    stop.request();
                    Python::attach(|py| interrupt_callables(py, stop));
                    interrupt = Some(signal);
                }
            }
            (worker.join(), interrupt)
        })
    });
    if let Some(signal) = interrupt {
        return Err(signal);
    }
    match result {
        Ok(result) => result.map_err(|error| raise(py, error)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Calls Python code from a calculation, in which Ctrl-C raises `KeyboardInterrupt` as on the main thread.
pub(crate) fn call_python<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> PyResult<T> {
    Python::attach(|py| {
        if Stop::check().is_err() {
            return Err(PyKeyboardInterrupt::new_err(()));
        }
        // SAFETY: the thread is attached.
        let thread = unsafe { pyo3::ffi::PyThread_get_thread_ident() } as c_ulong;
        let _running = Running::new(Stop::current(), thread);
        call(py)
    })
}

/// An entry of [`CALLABLES`], until it is dropped.
struct Running(Stop, c_ulong);

impl Running {
    fn new(stop: Stop, thread: c_ulong) -> Self {
        CALLABLES.lock().unwrap_or_else(PoisonError::into_inner).push((stop.clone(), thread));
        Self(stop, thread)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut callables = CALLABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own =
            |(stop, thread): &(Stop, c_ulong)| stop.is_same_as(&self.0) && *thread == self.1;
        if let Some(own) = callables.iter().rposition(is_own) {
            callables.swap_remove(own);
        }
    }
}

/// Raises `KeyboardInterrupt` in the Python code of a calculation, at its next instruction.
pub(crate) fn interrupt_callables(py: Python<'_>, stop: &Stop) {
    let callables = CALLABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let threads: Vec<_> = callables
        .iter()
        .filter(|(its, _)| its.is_same_as(stop))
        .map(|(_, thread)| *thread)
        .collect();
    drop(callables);
    let exception = py.get_type::<PyKeyboardInterrupt>();
    for thread in threads {
        // SAFETY: the thread is attached; one that has ended is not found, which does nothing.
        unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(thread as _, exception.as_ptr()) };
    }
}

fn is_main(py: Python<'_>) -> PyResult<bool> {
    if let Some(known) = IS_MAIN.get() {
        return Ok(known);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = threading.call_method0("get_ident")?.eq(main)?;
    IS_MAIN.set(Some(is_main));
    Ok(is_main)
}

/// Applies operators on the threads that [`set_num_threads`] asked for.
pub(crate) fn on_threads<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pool = POOL.read().unwrap_or_else(PoisonError::into_inner).clone();
    match pool {
        Some(pool) => {
            let stop = Stop::current();
            pool.install(|| stop.watch(work))
        }
        None => work(),
    }
}

/// Tells what is made on this thread how many threads its rank has, while `body` runs.
pub(crate) fn with_granted<T>(threads: usize, body: impl FnOnce() -> T) -> T {
    struct Before(Option<usize>);
    impl Drop for Before {
        fn drop(&mut self) {
            GRANTED.set(self.0);
        }
    }
    let _before = Before(GRANTED.replace(Some(threads)));
    body()
}

/// Sets the threads of calls outside of ranks.
#[pyfunction]
pub(crate) fn set_num_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    if threads == 0 {
        return Err(raise(py, Error::argument("threads", "0 is given; at least 1 is needed")));
    }
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| raise(py, Error::argument("threads", error.to_string())))?;
    *POOL.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(pool));
    Ok(())
}

/// The threads of calls on this thread.
#[pyfunction]
pub(crate) fn get_num_threads() -> usize {
    let pool = || POOL.read().unwrap_or_else(PoisonError::into_inner).clone();
    GRANTED
        .get()
        .or_else(|| pool().map(|pool| pool.current_num_threads()))
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
