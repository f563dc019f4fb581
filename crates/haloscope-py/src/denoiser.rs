//! Denoisers: networks, total variation, Python callables, and any of them on tiles that ranks share.

use std::collections::HashMap;
use std::sync::Arc;

use haloscope::denoise::{Bases, Denoiser, NetworkDenoiser, NoiseLevel, TotalVariation, Wavelets};
use haloscope::distribute::{Cutting, DenoiserOptions, DistributedDenoiser, distribute_with};
use haloscope::tiling::{Batch, Extent, Overlap, Patch, Strategy, Tiling};
use haloscope::{Error, Result};
use haloscope_job::{ModelOptions, OpenedModel};
use haloscope_nn::engine::{Accuracy, EngineOptions};
use haloscope_nn::models::{Builtin, Model, ModelName};
use haloscope_nn::{NetworkCost, Shape, StateDict, Tensor};
use haloscope_onnx::FileOptions;
use numpy::PyArrayDyn;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Input, output};
use crate::context::PyContext;
use crate::error::{Raised, raise};
use crate::function::Function;
use crate::run::compute;

/// The name of the built-in network for images of so many channels and spatial sides.
#[pyfunction]
pub(crate) fn builtin_for(channels: usize, sides: usize) -> String {
    ModelName::Builtin(Builtin::for_image(channels, sides)).to_string()
}

/// A denoiser of the library.
#[pyclass(frozen, name = "Denoiser", module = "haloscope._haloscope")]
pub(crate) struct PyDenoiser {
    pub denoiser: Arc<dyn Denoiser>,
    /// How it is cut, if ranks share it.
    shared: Option<Shared>,
}

/// A denoiser that ranks share, and how.
struct Shared {
    denoiser: Arc<dyn Denoiser>,
    tiling: Tiling,
    ranks: usize,
}

/// A noise level as Python gives it: a number, one for each image, or a map.
#[derive(FromPyObject)]
pub(crate) enum Level {
    /// The same everywhere.
    Uniform(f32),
    /// One for each pixel.
    Map(Input),
    /// One for each image.
    PerImage(Vec<f32>),
}

impl Level {
    pub(crate) fn level(&self) -> NoiseLevel {
        match self {
            Self::Uniform(level) => NoiseLevel::Uniform(*level),
            Self::Map(map) => NoiseLevel::Map(map.to_array()),
            Self::PerImage(levels) => NoiseLevel::PerImage(levels.clone()),
        }
    }
}

impl PyDenoiser {
    fn of(denoiser: Arc<dyn Denoiser>) -> Self {
        Self { denoiser, shared: None }
    }

    fn network(&self) -> Result<&NetworkDenoiser> {
        let no = || Error::argument(self.denoiser.name(), "it is not a network");
        self.denoiser.network().ok_or_else(no)
    }

    /// The network that ranks share, if it is shared.
    pub(crate) fn whole_network(&self) -> Result<&NetworkDenoiser> {
        let denoiser = self.shared.as_ref().map_or(&self.denoiser, |shared| &shared.denoiser);
        let no = || {
            let reason =
                "its memory is not known; a network, or none for total variation, is accepted";
            Error::argument(self.denoiser.name(), reason)
        };
        denoiser.network().ok_or_else(no)
    }
}

#[pymethods]
impl PyDenoiser {
    /// A network by the name or file of its weights. `onnx` is what an ONNX file does not say itself.
    #[staticmethod]
    fn named(
        py: Python<'_>,
        name: &str,
        threads: usize,
        accuracy: &str,
        memory_budget: Option<usize>,
        onnx: Vec<(String, String)>,
        device: &str,
    ) -> PyResult<Self> {
        let options = engine_options(threads, accuracy, memory_budget).raised(py)?;
        let model = model_options(&onnx, device).raised(py)?;
        let network = compute(py, || {
            let opened = OpenedModel::open(&ModelName::in_job(name)?, 3, 2, &model)?;
            if let Some(note) = &opened.note {
                log::info!("{note}");
            }
            opened.into_denoiser(options)
        })?;
        Ok(Self::of(Arc::new(network)))
    }

    /// A network by the arrays of its state dict.
    #[staticmethod]
    fn of_weights(
        py: Python<'_>,
        weights: HashMap<String, Input>,
        threads: usize,
        accuracy: &str,
        memory_budget: Option<usize>,
    ) -> PyResult<Self> {
        let options = engine_options(threads, accuracy, memory_budget).raised(py)?;
        let network = compute(py, || {
            let mut state = StateDict::default();
            for (name, array) in weights {
                let view = array.view();
                let values = view.as_slice().expect("inputs are in C order").to_vec();
                let tensor = Tensor::new(Shape::new(view.shape().to_vec())?, values)?;
                state.insert(name, tensor);
            }
            NetworkDenoiser::new(Model::recognize(&state)?, options)
        })?;
        Ok(Self::of(Arc::new(network)))
    }

    #[staticmethod]
    fn total_variation(iterations: usize, tolerance: f64) -> Self {
        Self::of(Arc::new(TotalVariation { iterations, tolerance }))
    }

    #[staticmethod]
    fn wavelets(
        py: Python<'_>,
        bases: &str,
        scales: usize,
        coarse: Option<bool>,
        iterations: usize,
        tolerance: f64,
    ) -> PyResult<Self> {
        let bases = bases.parse::<Bases>().raised(py)?;
        let standard = if bases == Bases::SARA { Wavelets::sara() } else { Wavelets::default() };
        let coarse = coarse.unwrap_or(standard.coarse);
        Ok(Self::of(Arc::new(Wavelets {
            bases,
            scales,
            coarse,
            range: None,
            iterations,
            tolerance,
        })))
    }

    /// A callable `f(x, sigma)`.
    #[staticmethod]
    fn function(name: String, function: Py<PyAny>, alignment: usize, threadsafe: bool) -> Self {
        Self::of(Arc::new(Function::new(name, function, alignment.max(1), threadsafe)))
    }

    /// The same on tiles that the ranks share.
    #[expect(clippy::too_many_arguments, reason = "as many as a tiling has")]
    fn distributed(
        &self,
        py: Python<'_>,
        context: &PyContext,
        strategy: &str,
        patch: Option<Vec<usize>>,
        overlap: Option<Vec<usize>>,
        axes: Option<Vec<usize>>,
        border: &str,
        batch: Option<usize>,
    ) -> PyResult<Self> {
        let context = context.context().raised(py)?;
        let ranks = context.size();
        let tiling = Tiling {
            axes,
            border: border.parse().raised(py)?,
            batch: batch.map_or(Batch::Auto, Batch::AtMost),
            ..tiling(strategy, patch, overlap).raised(py)?
        };
        let options = DenoiserOptions {
            cutting: Cutting::Tiling(tiling.clone()),
            ..DenoiserOptions::default()
        };
        let shared: DistributedDenoiser =
            compute(py, || distribute_with(self.denoiser.clone(), &context, options))?;
        let own = Shared { denoiser: self.denoiser.clone(), tiling, ranks };
        Ok(Self { denoiser: Arc::new(shared), shared: Some(own) })
    }

    fn denoise<'py>(
        &self,
        py: Python<'py>,
        image: Input,
        level: Level,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let level = level.level();
        let array = compute(py, || self.denoiser.denoise(&image.view(), &level))?;
        Ok(output(py, array))
    }

    /// The seconds of each part of the work: a network's layers.
    fn profile(&self, py: Python<'_>, image: Input, level: f32) -> PyResult<Vec<(String, f64)>> {
        compute(py, || {
            let mut parts = Vec::new();
            let mut observe = |name: &str, time: std::time::Duration| {
                parts.push((name.to_owned(), time.as_secs_f64()));
            };
            self.denoiser.denoise_observed(&image.view(), &level.into(), &mut observe)?;
            Ok(parts)
        })
    }

    #[getter]
    fn name(&self) -> String {
        self.denoiser.name().to_owned()
    }

    fn memory(&self, py: Python<'_>, shape: Vec<usize>) -> PyResult<Option<usize>> {
        compute(py, || self.denoiser.memory(&shape))
    }

    /// Architecture, channels of images, parameters, and the levels that it was trained for.
    fn describe_network(&self, py: Python<'_>) -> PyResult<(String, usize, usize, (f32, f32))> {
        let model = self.network().raised(py)?.model();
        let (network, levels) = (model.network(), model.levels());
        let levels = (*levels.start(), *levels.end());
        Ok((network.name().to_owned(), model.image_channels(), network.parameters(), levels))
    }

    /// The operations for a batch of this shape, an addition and a multiplication being two.
    fn flops(&self, py: Python<'_>, shape: Vec<usize>) -> PyResult<u64> {
        let network = self.network().raised(py)?.model().network();
        let mut input = shape;
        if let Some(channels) = input.get_mut(1) {
            *channels = network.input_channels();
        }
        Ok(2 * NetworkCost::of(network, &Shape::new(input).raised(py)?).raised(py)?.multiply_adds)
    }

    /// The tiles of a shared denoiser for images of this shape.
    fn tiles<'py>(&self, py: Python<'py>, shape: Vec<usize>) -> PyResult<Bound<'py, PyDict>> {
        let Some(shared) = &self.shared else {
            let reason = "it has no tiles; distribute it first";
            return Err(raise(py, Error::argument(self.denoiser.name(), reason)));
        };
        let seen = self.denoiser.sides().unwrap_or(usize::MAX);
        if shape.len() > seen.saturating_add(2) {
            let reason = format!(
                "images of shape {shape:?}; the tiles of images with {seen} sides are listed"
            );
            return Err(raise(py, Error::argument(self.denoiser.name(), reason)));
        }
        let plan = compute(py, || {
            let tiling = shared.tiling.choose(&shape, &*shared.denoiser)?.tiling;
            tiling.plan(&shape, self.denoiser.alignment(), shared.ranks)
        })?;
        let tiles: Vec<Vec<(usize, usize)>> = (0..plan.len())
            .map(|tile| {
                plan.tile(tile).write.iter().map(|range| (range.start, range.end)).collect()
            })
            .collect();
        let blocks: Vec<_> = plan.blocks().iter().map(|block| (block.start, block.end)).collect();
        let described = PyDict::new(py);
        described.set_item("count", plan.len())?;
        described.set_item("grid", plan.grid())?;
        described.set_item("window", plan.window())?;
        described.set_item("overlap", plan.overlap())?;
        described.set_item("work_multiplier", plan.work_multiplier())?;
        described.set_item("loads", plan.loads())?;
        described.set_item("notes", plan.notes())?;
        described.set_item("tiles", tiles)?;
        described.set_item("blocks", blocks)?;
        Ok(described)
    }
}

/// How images are cut. An empty list of lengths is what suits the ranks.
pub(crate) fn tiling(
    strategy: &str,
    patch: Option<Vec<usize>>,
    overlap: Option<Vec<usize>>,
) -> Result<Tiling> {
    let extent = |lengths: Vec<usize>| match lengths[..] {
        [length] => Extent::Same(length),
        _ => Extent::PerAxis(lengths),
    };
    Ok(Tiling {
        patch: match patch {
            None => Patch::Standard,
            Some(lengths) if lengths.is_empty() => Patch::Auto,
            Some(lengths) => Patch::Given(extent(lengths)),
        },
        overlap: overlap.map_or(Overlap::Standard, |lengths| Overlap::Given(extent(lengths))),
        ..Tiling::new(strategy.parse::<Strategy>()?)
    })
}

fn model_options(onnx: &[(String, String)], device: &str) -> Result<ModelOptions> {
    let mut file = FileOptions::default();
    for (key, value) in onnx {
        file.set(key, value).map_err(|reason| Error::argument("onnx", reason))?;
    }
    let device = device.parse().map_err(|reason: String| Error::argument("device", reason))?;
    Ok(ModelOptions { file, device, ..ModelOptions::default() })
}

fn engine_options(
    threads: usize,
    accuracy: &str,
    memory_budget: Option<usize>,
) -> Result<EngineOptions> {
    let accuracy = match accuracy {
        "fast" => Accuracy::Fast,
        "strict" => Accuracy::Strict,
        other => {
            let reason = format!("{other:?}; fast or strict is accepted");
            return Err(Error::argument("accuracy", reason));
        }
    };
    Ok(EngineOptions { threads, accuracy, memory_budget, ..EngineOptions::default() })
}
