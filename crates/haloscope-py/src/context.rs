//! Ranks: the context of a process or of a thread, and threads that are ranks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haloscope::{Error, Result};
use haloscope_comm::{Choice, Collectives, Context, ContextOptions, Launch, Reduction};
use haloscope_nn::Stop;
use numpy::PyArrayDyn;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Input, output};
use crate::error::{Raised, add_note, raise};
use crate::run::{call_python, compute, with_granted};

/// A rank and its surroundings, until it is closed.
#[pyclass(frozen, name = "Context", module = "haloscope._haloscope")]
pub(crate) struct PyContext(Mutex<Option<Context>>);

impl PyContext {
    pub(crate) fn of(context: Context) -> Self {
        Self(Mutex::new(Some(context)))
    }

    /// The context, if it is not closed.
    pub(crate) fn context(&self) -> Result<Context> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| {
            Error::argument(
                "context",
                "it is closed; make what needs it inside of its `with` block",
            )
        })
    }
}

fn options(seed: u64, threads: Option<usize>, deadline: f64) -> Result<ContextOptions> {
    let deadline = Duration::try_from_secs_f64(deadline).map_err(|_| {
        Error::argument("deadline", format!("{deadline} s; a time above 0 is needed"))
    })?;
    Ok(ContextOptions { deadline, threads, seed })
}

#[pymethods]
impl PyContext {
    /// `backend` is `auto`, `solo` or `mpi`.
    #[new]
    fn new(
        py: Python<'_>,
        backend: &str,
        seed: u64,
        threads: Option<usize>,
        deadline: f64,
    ) -> PyResult<Self> {
        let options = options(seed, threads, deadline).raised(py)?;
        let is_launched = is_launched(py)?;
        let backend = backend.to_owned();
        // On this thread, which is the one that MPI is initialised on.
        let context = py.detach(move || {
            Ok::<_, Error>(match &*backend {
                "auto" if is_launched => mpi(&options)?,
                "auto" => options.detect()?,
                "solo" => options.solo()?,
                "mpi" => mpi(&options)?,
                other => {
                    let reason = format!("{other:?}; auto, solo or mpi is accepted");
                    return Err(Error::argument("backend", reason));
                }
            })
        });
        Ok(Self::of(context.raised(py)?))
    }

    /// Ranks of a communicator of mpi4py, which lies at an address; `library` is what mpi4py's MPI says that it is.
    #[staticmethod]
    fn of_mpi4py(
        py: Python<'_>,
        address: usize,
        library: &str,
        seed: u64,
        threads: Option<usize>,
        deadline: f64,
    ) -> PyResult<Self> {
        let options = options(seed, threads, deadline).raised(py)?;
        let context = py.detach(|| of_mpi4py(&options, address, library));
        Ok(Self::of(context.raised(py)?))
    }

    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.context().raised(py)?.rank())
    }

    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.context().raised(py)?.size())
    }

    #[getter]
    fn local_rank(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.context().raised(py)?.local_rank())
    }

    #[getter]
    fn local_size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.context().raised(py)?.local_size())
    }

    #[getter]
    fn threads_per_rank(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.context().raised(py)?.threads_per_rank())
    }

    fn local_indices(&self, py: Python<'_>, count: usize) -> PyResult<Vec<usize>> {
        Ok(self.context().raised(py)?.local_indices(count).collect())
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let context = self.context().raised(py)?;
        compute(py, || Ok(context.comm().barrier()?))
    }

    fn broadcast<'py>(
        &self,
        py: Python<'py>,
        values: Input,
        root: usize,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let context = self.context().raised(py)?;
        let array = compute(py, || {
            let mut array = values.to_array();
            let slice = array.as_slice_mut().expect("a copy of an array in C order");
            context.comm().broadcast(root, slice)?;
            Ok(array)
        })?;
        Ok(output(py, array))
    }

    fn all_reduce<'py>(
        &self,
        py: Python<'py>,
        values: Input,
        operation: &str,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let context = self.context().raised(py)?;
        let reduction = match operation {
            "sum" => Reduction::Sum,
            "min" => Reduction::Min,
            "max" => Reduction::Max,
            other => {
                let reason = format!("{other:?}; sum, min or max is accepted");
                return Err(raise(py, Error::argument("op", reason)));
            }
        };
        let array = compute(py, || {
            let mut array = values.to_array();
            let slice = array.as_slice_mut().expect("a copy of an array in C order");
            context.comm().all_reduce(reduction, slice)?;
            Ok(array)
        })?;
        Ok(output(py, array))
    }

    /// The bytes that each rank has.
    fn all_gather_bytes(&self, py: Python<'_>, bytes: Vec<u8>) -> PyResult<Vec<Vec<u8>>> {
        let context = self.context().raised(py)?;
        compute(py, || Ok(context.comm().all_gather(&bytes)?))
    }

    /// Ends the job on all ranks.
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let context = self.context().raised(py)?;
        let error = py.detach(|| context.comm().abort(reason));
        Err(raise(py, error.into()))
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cost = self.context().raised(py)?.comm().statistics().total();
        let costs = PyDict::new(py);
        costs.set_item("calls", cost.calls)?;
        costs.set_item("bytes_sent", cost.bytes_sent)?;
        costs.set_item("bytes_received", cost.bytes_received)?;
        costs.set_item("transfer_seconds", cost.transfer.as_secs_f64())?;
        costs.set_item("waiting_seconds", cost.waiting.as_secs_f64())?;
        Ok(costs)
    }

    /// Leaves the ranks, whoever still has what was distributed to them.
    fn close(&self, py: Python<'_>) {
        let context = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last one waits for the others.
        py.detach(|| {
            if let Some(context) = context {
                context.leave();
            }
        });
    }
}

/// Ranks of MPI, which is initialised until the process exits: contexts come and go.
#[cfg(feature = "mpi")]
fn mpi(options: &ContextOptions) -> Result<Context> {
    haloscope_comm::Mpi::initialize_for_process()?;
    Ok(options.mpi()?)
}

#[cfg(not(feature = "mpi"))]
fn mpi(options: &ContextOptions) -> Result<Context> {
    // Names the launcher, if there is one.
    options.detect()?;
    Err(no_mpi())
}

#[cfg(feature = "mpi")]
fn of_mpi4py(options: &ContextOptions, address: usize, library: &str) -> Result<Context> {
    use haloscope_comm::Mpi;
    let (own, other) = (Mpi::library(), Mpi::library_of(library));
    if own != other {
        return Err(haloscope_comm::Error::Setup(format!(
            "haloscope was built with {own}, and mpi4py uses {other}; both must be of one library: build haloscope with the mpicc \
             of mpi4py's"
        ))
        .into());
    }
    // SAFETY: mpi4py gives the address of the handle of a communicator that the caller holds, and its library is ours.
    Ok(options.ranks(|| unsafe { Mpi::attach_to(address as *const _) })?)
}

#[cfg(not(feature = "mpi"))]
fn of_mpi4py(_: &ContextOptions, _: usize, _: &str) -> Result<Context> {
    Err(no_mpi())
}

#[cfg(not(feature = "mpi"))]
fn no_mpi() -> Error {
    haloscope_comm::Error::Unsupported(
        "this build of haloscope has no MPI; install it from source with \
         MATURIN_PEP517_ARGS=\"--features mpi\" pip install ."
            .into(),
    )
    .into()
}

/// Whether the environment asks for the ranks of a launcher, as [`ContextOptions::detect`] sees it.
#[pyfunction]
pub(crate) fn is_launched(py: Python<'_>) -> PyResult<bool> {
    Ok(match Choice::detect().raised(py)? {
        Some(Choice::Solo) => false,
        Some(Choice::Mpi) => true,
        None => Launch::detect().raised(py)?.is_some_and(|launch| launch.size != Some(1)),
    })
}

/// Calls `body` with the context of each of `ranks` threads, and gives what each returned.
#[pyfunction]
pub(crate) fn launch(
    py: Python<'_>,
    body: Py<PyAny>,
    ranks: usize,
    seed: u64,
    threads: Option<usize>,
    deadline: f64,
) -> PyResult<Vec<Py<PyAny>>> {
    let options = options(seed, threads, deadline).raised(py)?;
    let failures: Arc<Mutex<Vec<PyErr>>> = Arc::default();
    let noted = failures.clone();
    let result = compute(py, move || {
        let stop = Stop::current();
        options.threads(ranks, move |context| {
            let rank = || {
                call_python(|py| {
                    let own = Py::new(py, PyContext::of(context.clone()))?;
                    let result = with_granted(context.threads_per_rank(), || {
                        body.call1(py, (own.clone_ref(py),))
                    });
                    own.get().close(py);
                    if let Err(exception) = &result {
                        add_note(py, exception, &format!("on rank {} of {ranks}", context.rank()));
                        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                        noted.push(exception.clone_ref(py));
                    }
                    result
                })
            };
            stop.watch(rank).map_err(|exception| Error::foreign("ranks", exception))
        })
    });
    let Err(first) = result else { return result };
    // What a rank says of another one is only a consequence.
    let failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    let of_ranks = py.import("haloscope._errors")?.getattr("RankError")?;
    let is_interrupt = first.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py);
    let cause = failures.iter().find(|failure| !failure.is_instance(py, &of_ranks));
    Err(cause.filter(|_| !is_interrupt).map_or(first, |cause| cause.clone_ref(py)))
}
