//! Methods: a problem, a prior and a start become an image, with every iteration reported to Python.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haloscope::denoise::{Denoiser, TotalVariation};
use haloscope::distribute::DistributedStack;
use haloscope::metrics::{mean, psnr};
use haloscope::solve::{
    Checkpoints, Every, Ingredients, JobId, KeyKind, KeyValue, Keys, Method, Plug, PriorForms,
    Problem, Range, Reason, Record, Start, State, Stopping, TotalVariationPrior, estimate_noise,
    solve,
};
use haloscope::{Array, Digest, Error, Result, View};
use haloscope_comm::{Collectives, Reduction};
use haloscope_job::Quality;
use haloscope_nn::Stop;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{Input, PyMeasurements, output};
use crate::denoiser::PyDenoiser;
use crate::error::Raised;
use crate::fidelity::{PyFidelity, shared_fidelity};
use crate::operator::window_named;
use crate::run::{call_python, compute, interrupt_callables};
use crate::stack::Stack;

/// A value of a method's key, as Python gives it.
#[derive(FromPyObject)]
pub(crate) enum Given {
    /// `auto`, or the name of a window.
    Text(String),
    /// First and last.
    Pair((f64, f64)),
    /// A number or a count.
    Number(f64),
}

/// What Python says of the run.
#[derive(FromPyObject)]
pub(crate) struct Request {
    method: String,
    keys: Vec<(String, Given)>,
    prior: Option<Py<PyDenoiser>>,
    /// The weight of total variation, if that is the prior, and its iterations.
    variation: Option<(f64, usize)>,
    level: f32,
    normalise: bool,
    clamp: Option<(f32, f32)>,
    start: String,
    start_image: Option<Input>,
    truth: Option<Input>,
    max_pixel: f64,
    iterations: usize,
    relative_change: f64,
    data_term: Option<f64>,
    time_limit: Option<f64>,
    callback: Option<Py<PyAny>>,
    checkpoint: Option<String>,
    checkpoint_iterations: Option<usize>,
    checkpoint_seconds: Option<f64>,
    resume: bool,
    mean: bool,
    /// What ends a run on a thread that Ctrl-C does not come to.
    stop: Option<Py<PyStop>>,
}

/// A request to end a run.
#[pyclass(frozen, name = "Stop", module = "haloscope._haloscope")]
#[derive(Default)]
pub(crate) struct PyStop(Stop);

#[pymethods]
impl PyStop {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Asks the run to end, which raises `KeyboardInterrupt` from it and in the Python code that it calls.
    fn request(&self, py: Python<'_>) {
        self.0.request();
        interrupt_callables(py, &self.0);
    }
}

/// The image of a run, for as long as a callback runs.
#[pyclass(frozen, module = "haloscope._haloscope")]
pub(crate) struct Snapshot(Mutex<Option<Lent>>);

/// An image that `told` has borrowed.
struct Lent(*const Array);

// SAFETY: the image is only read, and only under the lock of the snapshot, from which `Loan` takes it back before `told` ends.
unsafe impl Send for Lent {}

/// Takes the image of a snapshot back when it is dropped, in whatever way the callback ends.
struct Loan<'a>(&'a Snapshot);

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[pymethods]
impl Snapshot {
    /// A copy of the image, while the callback runs.
    fn image<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let lent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `Loan` waits for this lock before `told` ends, and with it the borrow.
        let image = lent.as_ref().map(|lent| unsafe { (*lent.0).clone() });
        drop(lent);
        image.map(|image| output(py, image).into_any())
    }
}

/// What a method is told besides its problem and its prior, by the names in job files.
#[pyfunction]
pub(crate) fn method_keys(py: Python<'_>, method: &str) -> PyResult<Vec<&'static str>> {
    let method: Method = method.parse().raised(py)?;
    Ok(method.keys.iter().map(|key| key.name).collect())
}

/// Runs a method. The result is (image, reason, records, digest).
#[pyfunction]
pub(crate) fn run_solver<'py>(
    py: Python<'py>,
    stack: &Stack,
    fidelities: Vec<PyRef<'py, PyFidelity>>,
    data: &PyMeasurements,
    request: Request,
) -> PyResult<Bound<'py, PyTuple>> {
    let fidelity = shared_fidelity(&fidelities, stack, request.mean).raised(py)?;
    let name = fidelities.first().map_or("l2".into(), |fidelity| fidelity.listed_name());
    let denoiser = request.prior.as_ref().map(|prior| prior.get().denoiser.clone());
    let stop = request.stop.as_ref().map(|stop| stop.get().0.clone());
    let (image, reason, records) = compute(py, || {
        let problem = Problem::new((*stack.operators).clone(), (*data.0).clone(), fidelity)?;
        let run = || run(&request, stack, problem, &name, denoiser);
        match stop {
            Some(stop) => stop.watch(run),
            None => run(),
        }
    })?;
    let digest = Digest::of(&image).to_string();
    let records: Vec<_> = records
        .iter()
        .map(|(record, quality)| described(py, record, *quality))
        .collect::<PyResult<_>>()?;
    (output(py, image), reason, records, digest).into_pyobject(py)
}

type Ran = (Array, &'static str, Vec<(Record, Option<Quality>)>);

fn run(
    request: &Request,
    stack: &Stack,
    problem: Problem,
    fidelity: &str,
    denoiser: Option<Arc<dyn Denoiser>>,
) -> Result<Ran> {
    let method: Method = request.method.parse()?;
    let mut keys = Keys::new(method);
    for (name, given) in &request.keys {
        let kind = method.key(name).map(|key| key.kind);
        keys = keys.with(name, key_value(name, kind, given)?)?;
    }
    keys.check().map_err(|(key, reason)| Error::argument(key, reason))?;
    let is_listed = ["l2", "l1", "poisson"].contains(&fidelity);
    let algorithm = if is_listed { method.resolve(fidelity, &keys)? } else { method };
    if keys.is_auto("noise") {
        // Neighbouring views of a scan differ.
        let is_scan = |index| {
            let known = stack.operators.local_operators().iter().find(|(of, _)| *of == index);
            known.is_some_and(|(_, operator)| operator.name() == "tomography")
        };
        let axes = |index, part: &Array| if is_scan(index) && part.ndim() == 4 { 1 } else { 2 };
        let noise = estimate_noise(&problem, axes, |_, _| Ok(None))?;
        keys = keys.with("noise", KeyValue::Number(noise))?;
    }
    let problem = match (keys.number("inner-tolerance"), keys.count("inner-iterations")) {
        (Some(tolerance), Some(iterations)) => problem.with_inner(tolerance, iterations),
        _ => problem,
    };
    let prior = prior_forms(request, &problem, denoiser)?;
    let from =
        Ingredients { problem: &problem, prior, keys: &keys, iterations: request.iterations };
    let algorithm = algorithm.build(&from)?;
    let stopping = Stopping {
        iterations: request.iterations,
        relative_change: request.relative_change,
        data_term: request.data_term,
        time_limit: request.time_limit.map(|time| seconds("time_limit", time)).transpose()?,
    };
    let mut saving = Saving::open(request, &stack.operators, &problem, fidelity)?;
    let resumed = match &mut saving {
        Some(saving) => saving.resume(request, &problem)?,
        None => None,
    };
    let state = match resumed {
        Some(state) => state,
        None => State::new(problem.start(&start(request, stack, &problem)?)?),
    };
    let mut qualities = Vec::new();
    let mut watch = |record: &Record, state: &State| {
        let compare = |truth: &Input| request.compare(record, state.image.local(), &truth.view());
        let quality = request.truth.as_ref().map(compare).transpose()?;
        qualities.push(quality);
        if let Some(saving) = &mut saving {
            saving.save(&problem, state)?;
        }
        match &request.callback {
            Some(callback) => told(callback, record, quality, state),
            None => Ok(ControlFlow::Continue(())),
        }
    };
    let outcome = solve(&problem, &*algorithm, state, &stopping, Some(&mut watch));
    let outcome = match (outcome, &mut saving) {
        (Err(error), Some(saving)) => {
            saving.rescue(&problem);
            return Err(error);
        }
        (outcome, _) => outcome?,
    };
    if let Some(saving) = &mut saving {
        saving.checkpoints.finish();
    }
    let reason = match outcome.reason {
        Reason::Iterations => "max_iter",
        Reason::RelativeChange => "thres_conv",
        Reason::DataTerm => "data_term",
        Reason::TimeLimit => "time_limit",
        Reason::Watcher => "callback",
    };
    Ok((
        outcome.state.image.into_whole()?,
        reason,
        outcome.records.into_iter().zip(qualities).collect(),
    ))
}

/// The image to begin with.
fn start(request: &Request, stack: &Stack, problem: &Problem) -> Result<Start> {
    Ok(match (&request.start_image, &*request.start) {
        (Some(image), _) => Start::Image(image.to_array().into()),
        (None, "adjoint") => Start::Adjoint,
        (None, "zeros") => Start::Zeros,
        (None, "filled") => Start::Filled,
        (None, "dagger") => Start::PseudoInverse(100),
        (None, "fbp") => Start::Image(stack.back_project(problem.data())?.into()),
        (None, other) => {
            let reason =
                format!("{other:?}; adjoint, zeros, filled, dagger, fbp or an image is accepted");
            return Err(Error::argument("x_init", reason));
        }
    })
}

fn key_value(name: &str, kind: Option<KeyKind>, given: &Given) -> Result<KeyValue> {
    Ok(match (kind, given) {
        (Some(KeyKind::Window), Given::Text(window)) => KeyValue::Window(window_named(window)?),
        (_, Given::Text(auto)) if auto == "auto" => KeyValue::Auto,
        (_, Given::Text(other)) => {
            return Err(Error::argument(name, format!("{other:?}; a number is expected")));
        }
        (_, Given::Pair((first, last))) => KeyValue::Pair(*first, *last),
        (Some(KeyKind::Count), Given::Number(count)) if *count >= 0.0 => {
            KeyValue::Count(*count as usize)
        }
        (_, Given::Number(number)) => KeyValue::Number(*number),
    })
}

/// The prior in the forms that methods take.
fn prior_forms(
    request: &Request,
    problem: &Problem,
    denoiser: Option<Arc<dyn Denoiser>>,
) -> Result<PriorForms> {
    if let Some(denoiser) = denoiser {
        if request.clamp.is_some() && request.normalise {
            return Err(Error::argument(
                "clamp",
                "given with a prior whose range is \"normalize\"; the network takes its images either way: give one of both",
            ));
        }
        let range = Range::of(request.clamp, request.normalise);
        return Ok(PriorForms::denoiser(Plug::new(denoiser, request.level).range(range)));
    }
    let Some((weight, iterations)) = request.variation else {
        return Ok(PriorForms::none(request.clamp));
    };
    let denoiser = TotalVariation { iterations, ..TotalVariation::default() };
    let prior = TotalVariationPrior { weight, denoiser };
    PriorForms::total_variation(prior, request.clamp, problem.context())
}

/// Tells Python of an iteration, which may end the run.
fn told(
    callback: &Py<PyAny>,
    record: &Record,
    quality: Option<Quality>,
    state: &State,
) -> Result<ControlFlow<()>> {
    let ends = call_python(|py| {
        let described = described(py, record, quality)?;
        let snapshot = Bound::new(
            py,
            Snapshot(Mutex::new(Some(Lent(std::ptr::from_ref(state.image.local()))))),
        )?;
        let _loan = Loan(snapshot.get());
        callback.bind(py).call1((described, &snapshot))?.is_truthy()
    });
    match ends {
        Ok(true) => Ok(ControlFlow::Break(())),
        Ok(false) => Ok(ControlFlow::Continue(())),
        Err(exception) => Err(Error::foreign("callback", exception)),
    }
}

pub(crate) fn described<'py>(
    py: Python<'py>,
    record: &Record,
    quality: Option<Quality>,
) -> PyResult<Bound<'py, PyDict>> {
    let seconds = PyDict::new(py);
    seconds.set_item("total", record.seconds.total)?;
    seconds.set_item("data", record.seconds.data)?;
    seconds.set_item("prior", record.seconds.prior)?;
    seconds.set_item("communication", record.seconds.communication)?;
    seconds.set_item("waiting", record.seconds.waiting)?;
    let described = PyDict::new(py);
    described.set_item("iteration", record.iteration)?;
    described.set_item("data_term", record.data_term)?;
    described.set_item("relative_change", record.relative_change)?;
    described.set_item("psnr", quality.map(|quality| quality.psnr_db))?;
    described.set_item("ssim", quality.and_then(|quality| quality.ssim))?;
    described.set_item("seconds", seconds)?;
    described.set_item("peak_bytes", record.peak_bytes)?;
    Ok(described)
}

/// The checkpoints of a run.
struct Saving {
    checkpoints: Checkpoints,
    id: JobId,
    /// What a run that ends early can resume from.
    last: Option<State>,
}

impl Saving {
    fn open(
        request: &Request,
        stack: &DistributedStack,
        problem: &Problem,
        fidelity: &str,
    ) -> Result<Option<Self>> {
        let Some(folder) = &request.checkpoint else { return Ok(None) };
        let every = request.checkpoint_seconds.map(|time| seconds("checkpoint_every", time));
        let every = Every { iterations: request.checkpoint_iterations, time: every.transpose()? };
        let keys: Vec<_> = request.keys.iter().map(|(name, value)| (name, value.text())).collect();
        let parameters = format!(
            "{} {fidelity} {keys:?} {:?} {:?} {} {} {:?} {} {:?} {:?} {:?} {:?}",
            request.method,
            request.prior.as_ref().map(|prior| prior.get().denoiser.name().to_owned()),
            request.variation,
            request.level,
            request.normalise,
            request.clamp,
            request.start,
            request.start_image.as_ref().map(|image| Digest::of(&image.view()).value()),
            request.scheduled(),
            stack.image_shape(),
            stack.measurement_shapes(),
        );
        // The measurements of all ranks, whichever rank has them.
        let mut digests = vec![0_u64; problem.operators()];
        for (index, part) in problem.data().iter() {
            digests[index] = Digest::of(part).value();
        }
        problem.context().comm().all_reduce(Reduction::Max, &mut digests)?;
        let mut id = JobId::new(request.method.clone(), parameters.as_bytes());
        if stack.is_linear() {
            // What the operators are shows in what they make of the measurements.
            digests.push(Digest::of(problem.adjoint()?.whole()?).value());
        }
        for digest in digests {
            id = id.with_content(&digest.to_le_bytes());
        }
        Ok(Some(Self { checkpoints: Checkpoints::new(folder, every)?, id, last: None }))
    }

    fn resume(&mut self, request: &Request, problem: &Problem) -> Result<Option<State>> {
        let context = problem.context();
        if request.resume {
            return Ok(self.checkpoints.load_latest(context, &self.id)?.map(|found| found.state));
        }
        if context.is_root() {
            self.checkpoints.start_over()?;
        }
        context.comm().barrier()?;
        Ok(None)
    }

    fn save(&mut self, problem: &Problem, state: &State) -> Result<()> {
        let saved = self.checkpoints.save_if_due(problem.context(), state, &self.id)?;
        self.last = (!saved).then(|| state.clone());
        Ok(())
    }

    /// Writes the last whole iteration; that it cannot is no second failure.
    fn rescue(&mut self, problem: &Problem) {
        if let Some(state) = self.last.take()
            && problem.context().is_root()
            && let Err(error) = self.checkpoints.save(&state, &self.id)
        {
            log::warn!("the checkpoint of the last iteration was not written: {error}");
        }
    }
}

impl Request {
    /// How near the truth an image is: by its errors after each iteration, and by its structure, which takes far longer, as often as
    /// jobs are compared and after the last iteration.
    fn compare(&self, record: &Record, image: &Array, truth: &View) -> Result<Quality> {
        let every = (self.iterations / 15).clamp(1, 10);
        if record.iteration.is_multiple_of(every) || record.iteration == self.iterations {
            return Quality::of(image, truth, self.max_pixel);
        }
        Ok(Quality { psnr_db: mean(&psnr(image, truth, self.max_pixel)?), ssim: None })
    }

    /// The iterations, if a schedule follows from them; a run of any other method may be continued with more.
    fn scheduled(&self) -> Option<usize> {
        let key = "schedule-iterations";
        let method: Method = self.method.parse().ok()?;
        let is_given = self.keys.iter().any(|(name, _)| name == key);
        (method.key(key).is_some() && !is_given).then_some(self.iterations)
    }
}

/// A time that Python gives.
fn seconds(name: &str, value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        Error::argument(name, format!("{value} s; a time of 0 s or more that ends is accepted"))
    })
}

impl Given {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Pair(pair) => format!("{pair:?}"),
            Self::Number(number) => number.to_string(),
        }
    }
}
