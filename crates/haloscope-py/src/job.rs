//! Job files: checks, forecasts and runs, as the command has them.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::Error;
use haloscope_comm::{Context, ContextOptions};
use haloscope_job::{
    Advice, Choices, Event, Job, JobBuilder, Observer, Outcome, Outline, Problem, Resuming, Summary,
};
use haloscope_nn::Stop;
use numpy::PyArrayDyn;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::output;
use crate::context::PyContext;
use crate::denoiser::{PyDenoiser, tiling};
use crate::error::Raised;
use crate::run::{call_python, compute};

/// A job file, or its text and the folder that its paths start from.
#[pyclass(frozen, name = "Job", module = "haloscope._haloscope")]
pub(crate) struct PyJob(Arc<Job>);

#[pymethods]
impl PyJob {
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(Arc::new(compute(py, || Job::from_file(&path))?)))
    }

    /// Of the text of a file, which need not say where the result goes.
    #[staticmethod]
    fn parse(py: Python<'_>, name: &str, text: &str, folder: PathBuf) -> PyResult<Self> {
        let job = compute(py, || JobBuilder::from_text(text)?.name(name).folder(folder).build())?;
        Ok(Self(Arc::new(job)))
    }

    /// What is resumed: `latest`, `never`, `refuse` or `off`.
    fn resuming(&self, py: Python<'_>, what: &str) -> PyResult<Self> {
        let resuming = match what {
            "latest" => Resuming::Latest,
            "never" => Resuming::Never,
            "refuse" => Resuming::Refuse,
            "off" => Resuming::Off,
            other => {
                let reason = format!("{other:?}; latest, never, refuse or off is accepted");
                return Err(crate::error::raise(py, Error::argument("resuming", reason)));
            }
        };
        Ok(Self(Arc::new((*self.0).clone().resuming(resuming))))
    }

    /// With the pictures and the page of the result in a folder.
    fn with_pictures_in(&self, folder: PathBuf) -> Self {
        Self(Arc::new((*self.0).clone().with_pictures_in(&folder)))
    }

    #[getter]
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    /// What it would do on so many ranks, before anything runs.
    fn check<'py>(&self, py: Python<'py>, ranks: usize) -> PyResult<Bound<'py, PyDict>> {
        let plan = compute(py, || self.0.check(ranks))?;
        let described = PyDict::new(py);
        described.set_item("text", plan.to_string())?;
        let lines: Vec<_> = plan.lines.iter().map(|(name, value)| (*name, value)).collect();
        described.set_item("lines", lines)?;
        described.set_item("image", &plan.image)?;
        described.set_item("measurements", &plan.measurements)?;
        described.set_item("rank_bytes", plan.expected.rank_bytes)?;
        described.set_item("warnings", &plan.warnings)?;
        Ok(described)
    }

    /// What `haloscope plan` says of it, as text and as JSON.
    fn plan(
        &self,
        py: Python<'_>,
        ranks: usize,
        threads: Option<usize>,
        memory_budget: Option<usize>,
    ) -> PyResult<(String, String)> {
        advice(py, || self.0.advise(ranks, threads, memory_budget))
    }

    /// Runs it on the ranks of a context, or on as many threads. Of an image in shards, which a job must ask for, a rank of a context gets its part. `observe(kind, content)` is told of everything on rank 0.
    fn run<'py>(
        &self,
        py: Python<'py>,
        context: Option<&PyContext>,
        ranks: usize,
        observe: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let context = context.map(PyContext::context).transpose().raised(py)?;
        let job = self.0.clone();
        let outcome = compute(py, move || {
            if let Some(context) = context {
                return run(&job.with_whole_image(), &context, observe.as_ref());
            }
            let stop = Stop::current();
            let gathered = move |context: &Context| {
                let mut outcome = run(&job, context, observe.as_ref())?;
                // The parts of an image in shards are all in this process.
                if outcome.state.image.layout() != &haloscope::image::Layout::Replicated {
                    outcome.state.image = outcome.state.image.gather()?.into();
                }
                Ok::<_, Error>(outcome)
            };
            let body = move |context: &Context| stop.watch(|| gathered(context));
            let mut outcomes = ContextOptions::default().threads(ranks, body)?;
            Ok(outcomes.swap_remove(0))
        })?;
        let result = PyDict::new(py);
        result.set_item("text", Summary::of(&outcome).describe())?;
        result.set_item("ending", outcome.ending.to_string())?;
        result.set_item("method", outcome.method)?;
        result.set_item("prior", &outcome.prior)?;
        result.set_item("seconds", outcome.seconds)?;
        result.set_item("digest", &outcome.bits)?;
        result.set_item("resumed_from", outcome.resumed_from)?;
        result.set_item("files", &outcome.files)?;
        result.set_item("psnr", outcome.quality.map(|quality| quality.psnr_db))?;
        result.set_item("ssim", outcome.quality.and_then(|quality| quality.ssim))?;
        let records: Vec<_> = outcome.records[0]
            .iter()
            .map(|record| {
                let known = outcome.qualities.iter().find(|(at, _)| *at == record.iteration);
                crate::solve::described(py, record, known.map(|(_, quality)| *quality))
            })
            .collect::<PyResult<_>>()?;
        result.set_item("records", records)?;
        let image: Bound<'_, PyArrayDyn<f32>> = output(py, outcome.written().into_owned());
        result.set_item("image", image)?;
        Ok(result)
    }
}

/// A reconstruction that Python describes: the shape of the image with its batch, and of each measurement without. `patch` is
/// empty for tiles that suit the ranks.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "a reconstruction has as many parts")]
pub(crate) fn plan(
    py: Python<'_>,
    image: Vec<usize>,
    measurements: Vec<Vec<usize>>,
    denoiser: Option<&PyDenoiser>,
    method: Option<&str>,
    inner_iterations: usize,
    strategy: &str,
    patch: Option<Vec<usize>>,
    overlap: Option<Vec<usize>>,
    ranks: usize,
    threads: Option<usize>,
    memory_budget: Option<usize>,
) -> PyResult<(String, String)> {
    let denoiser = denoiser.map(PyDenoiser::whole_network).transpose().raised(py)?;
    let method = method.map(str::parse).transpose().raised(py)?;
    let tiling = tiling(strategy, patch, overlap).raised(py)?;
    let outline = Outline {
        image,
        measurements,
        denoiser,
        method,
        inner_iterations,
        tiling,
        ranks,
        threads,
        memory_budget,
    };
    advice(py, || outline.advise())
}

/// As text and as JSON.
fn advice(
    py: Python<'_>,
    advise: impl FnOnce() -> haloscope::Result<Advice> + Send,
) -> PyResult<(String, String)> {
    let advice = compute(py, advise)?;
    let json = serde_json::to_string_pretty(&advice);
    let json = json.map_err(|error| Error::foreign("plan", error)).raised(py)?;
    Ok((advice.to_string(), json))
}

fn run(job: &Job, context: &Context, observe: Option<&Py<PyAny>>) -> haloscope::Result<Outcome> {
    let mut observer = Told { observe: observe.filter(|_| context.is_root()), raised: None };
    let outcome = job.run(context, &mut observer).map_err(haloscope_job::Error::into_inner);
    match observer.raised {
        Some(exception) => Err(Error::foreign("observer", exception)),
        None => outcome,
    }
}

/// Passes events on to Python, until it raises.
struct Told<'a> {
    observe: Option<&'a Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Told<'_> {
    fn tell(
        &mut self,
        kind: &str,
        content: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>>,
    ) {
        let Some(observe) = self.observe.filter(|_| self.raised.is_none()) else { return };
        let told = call_python(|py| observe.bind(py).call1((kind, content(py)?)).map(drop));
        self.raised = told.err();
    }
}

impl Observer for Told<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started { iterations, .. } => {
                self.tell("started", |py| Ok(iterations.into_pyobject(py)?.into_any()));
            }
            Event::Note(words) => {
                self.tell("note", |py| Ok(words.into_pyobject(py)?.into_any()));
            }
            Event::Warning(words) => {
                self.tell("warning", |py| Ok(words.into_pyobject(py)?.into_any()));
            }
            Event::Iteration { record, quality } => {
                self.tell("iteration", |py| {
                    Ok(crate::solve::described(py, record, quality)?.into_any())
                });
            }
            _ => (),
        }
    }

    /// An exception, and Ctrl-C, end the run after the iteration, with a checkpoint if it has a folder for them.
    fn stop(&mut self) -> Option<u8> {
        (self.raised.is_some() || Stop::check().is_err()).then_some(2)
    }
}

/// The text of a job file to begin with.
#[pyfunction]
pub(crate) fn job_template(
    py: Python<'_>,
    problem: &str,
    size: Option<usize>,
    model: Option<&str>,
) -> PyResult<String> {
    let Some(known) = Problem::named(problem) else {
        let reason = format!(
            "{problem:?}; deblur, tomography-2d, tomography-3d, super-resolution, denoise, inpainting, mri or radio is accepted"
        );
        return Err(crate::error::raise(py, Error::argument("problem", reason)));
    };
    Ok(known.job(&Choices {
        name: problem.to_owned(),
        sides: known.sides(size.unwrap_or(known.default_size())),
        operators: None,
        model: known.model(model),
        iterations: None,
    }))
}
