//! Networks by name with the engine that runs them: one place for jobs, studies and the command.
//!
//! Models of this library run on its CPU engine, unless a GPU is asked for. ONNX files and GPUs are ONNX Runtime's, in builds that
//! have it.

use std::path::Path;
use std::sync::Arc;

use haloscope::Result;
use haloscope::denoise::NetworkDenoiser;
use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Model, ModelName};
use haloscope_onnx::FileOptions;

use crate::device::DeviceChoice;

/// A model and the engine that runs it.
#[derive(Clone, Debug)]
pub struct OpenedModel {
    /// The model.
    pub model: Model,
    /// Its engine.
    pub engine: Arc<dyn Engine>,
    /// Which device runs it and why, where that was left open.
    pub note: Option<String>,
}

/// What is said of a model besides its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOptions {
    /// What an ONNX file does not say itself.
    pub file: FileOptions,
    /// The device.
    pub device: DeviceChoice,
    /// The number of the process on its machine, by which it has one of several GPUs.
    pub local_rank: usize,
}

impl OpenedModel {
    /// Opens a model for images with so many channels and spatial axes; trained ones have their own.
    ///
    /// ```
    /// use haloscope_job::OpenedModel;
    ///
    /// let opened = OpenedModel::open(&"dncnn:8:3".parse()?, 3, 2, &Default::default())?;
    /// assert_eq!((opened.engine.name(), opened.model.image_channels()), ("cpu", 3));
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn open(
        name: &ModelName,
        channels: usize,
        axes: usize,
        options: &ModelOptions,
    ) -> Result<Self> {
        let is_file = name.is_onnx();
        if !is_file && options.file != FileOptions::default() {
            let reason = format!("`{name}` is no ONNX file, and something is said of one");
            return Err(haloscope::Error::argument("onnx", reason));
        }
        let (runtime, note) = runtime(options, is_file)?;
        let model = match name {
            ModelName::File(path) if is_file => open_file(path, &options.file)?,
            _ => name.open(channels, axes)?,
        };
        let engine = runtime.unwrap_or_else(|| Arc::new(Cpu::default()));
        Ok(Self { model, engine, note })
    }

    /// The denoiser that plans with these options.
    pub fn into_denoiser(self, options: EngineOptions) -> Result<NetworkDenoiser> {
        NetworkDenoiser::with_engine(self.model, self.engine, options)
    }
}

/// ONNX Runtime, if the model is a file of it or is to run on a GPU.
#[cfg(feature = "onnx")]
#[allow(clippy::type_complexity)]
fn runtime(
    options: &ModelOptions,
    is_file: bool,
) -> Result<(Option<Arc<dyn Engine>>, Option<String>)> {
    let (gpu, note) = options.device.resolve(options.local_rank)?;
    if gpu.is_none() && !is_file {
        return Ok((None, note));
    }
    let engine = haloscope_onnx::OnnxRuntime::new(gpu.unwrap_or_default())?;
    Ok((Some(Arc::new(engine)), note))
}

#[cfg(not(feature = "onnx"))]
#[allow(clippy::type_complexity)]
fn runtime(options: &ModelOptions, _: bool) -> Result<(Option<Arc<dyn Engine>>, Option<String>)> {
    options.device.check()?;
    let note = "the network runs on the CPU, because this build has no ONNX Runtime";
    Ok((None, (options.device == DeviceChoice::Auto).then(|| note.to_owned())))
}

#[cfg(feature = "onnx")]
fn open_file(path: &Path, file: &FileOptions) -> Result<Model> {
    Ok(haloscope_onnx::open(path, file)?)
}

#[cfg(not(feature = "onnx"))]
fn open_file(path: &Path, _: &FileOptions) -> Result<Model> {
    Err(haloscope::Error::Unsupported {
        file: path.display().to_string(),
        reason: "an ONNX file; this build does not have ONNX Runtime: build with --features onnx"
            .into(),
    })
}
