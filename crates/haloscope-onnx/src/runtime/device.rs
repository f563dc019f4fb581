//! Where ONNX Runtime computes: an execution provider with its settings.
//!
//! A provider that cannot be had is an error: ONNX Runtime itself would compute on the CPU and say nothing. On NVIDIA's, an
//! algorithm is chosen by rules and takes a modest workspace; a search that tries them all takes gigabytes.

use std::fmt;

use haloscope_nn::{Error, Result};
use ort::ep::coreml::{ComputeUnits, ModelFormat};
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{self, ArenaExtendStrategy, ExecutionProviderDispatch};

use super::diagnosis::diagnose;
use super::{ENGINE, Library, library};

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The processor.
    #[default]
    Cpu,
    /// A GPU of NVIDIA.
    Cuda,
    /// A GPU of AMD, by `MIGraphX`, which compiles a network for each shape.
    MiGraphX,
    /// A GPU of AMD, by `ROCm`'s own provider, which older libraries have.
    Rocm,
    /// A GPU of Apple.
    CoreMl,
}

/// The numbers that a device computes with. Those that go in and come out are f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Single precision throughout.
    #[default]
    F32,
    /// Products of NVIDIA's matrix units, with 10 bits behind the point, summed up in f32.
    Tf32,
    /// Half precision.
    F16,
}

/// A device and how it is used.
///
/// ```
/// use haloscope_onnx::{Device, Precision, Provider};
///
/// let device = Device { provider: Provider::Cuda, index: 1, ..Device::default() };
/// assert_eq!((device.to_string().as_str(), device.precision), ("CUDA device 1", Precision::F32));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// What computes.
    pub provider: Provider,
    /// Which one of them, among those that the process may see.
    pub index: usize,
    /// What it computes with.
    pub precision: Precision,
    /// The most bytes that it may take of the device's memory.
    pub memory_limit: Option<usize>,
}

impl Provider {
    /// All of them, GPUs first.
    pub const ALL: [Self; 5] = [Self::Cuda, Self::MiGraphX, Self::Rocm, Self::CoreMl, Self::Cpu];

    /// As ONNX Runtime calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::MiGraphX => "MIGraphXExecutionProvider",
            Self::Rocm => "ROCMExecutionProvider",
            Self::CoreMl => "CoreMLExecutionProvider",
        }
    }

    /// What has to be installed for it.
    fn advice(self) -> &'static str {
        match self {
            Self::Cpu => "pip install onnxruntime provides it",
            Self::Cuda => {
                "pip install onnxruntime-gpu provides it; it needs NVIDIA's driver, the CUDA libraries of its version \
                 and cuDNN 9 on the library path"
            }
            Self::MiGraphX | Self::Rocm => {
                "pip install onnxruntime-migraphx provides it; it needs ROCm with MIGraphX"
            }
            Self::CoreMl => "the package onnxruntime for macOS has it",
        }
    }
}

impl Device {
    /// Refuses a provider that the library lacks, and a precision that the device does not have.
    pub(super) fn check(&self, library: &Library) -> Result<()> {
        let providers = library.providers();
        if !providers.contains(&self.provider.name()) {
            return Err(failed(format!(
                "version {} at {} has no {}, only {}; {}",
                library.version(),
                library.path().display(),
                self.provider.name(),
                providers.join(" and "),
                self.provider.advice()
            )));
        }
        if self.precision == Precision::Tf32 && self.provider != Provider::Cuda {
            let reason =
                format!("tf32 on {self}; NVIDIA's GPUs alone have it: f32 or f16 is needed");
            return Err(failed(reason));
        }
        Ok(())
    }

    /// Whether it has memory of its own.
    pub(super) fn has_memory(&self) -> bool {
        matches!(self.provider, Provider::Cuda | Provider::MiGraphX | Provider::Rocm)
    }

    /// What a session registers; nothing for the CPU, which every session has.
    pub(super) fn registration(&self) -> Option<ExecutionProviderDispatch> {
        let index = i32::try_from(self.index).unwrap_or(i32::MAX);
        let limit = self.memory_limit.unwrap_or(usize::MAX);
        let extend = ArenaExtendStrategy::SameAsRequested;
        let dispatch = match self.provider {
            Provider::Cpu => return None,
            Provider::Cuda => ep::CUDA::default()
                .with_device_id(index)
                .with_memory_limit(limit)
                .with_arena_extend_strategy(extend)
                .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
                .with_conv_max_workspace(false)
                .with_tf32(self.precision == Precision::Tf32)
                .build(),
            Provider::MiGraphX => ep::MIGraphX::default()
                .with_device_id(index)
                .with_fp16(self.precision == Precision::F16)
                .with_mem_limit(limit)
                .with_arena_extend_strategy(extend)
                .build(),
            Provider::Rocm => ep::ROCm::default()
                .with_device_id(index)
                .with_exhaustive_conv_search(false)
                .with_conv_use_max_workspace(false)
                .with_mem_limit(limit)
                .with_arena_extend_strategy(extend)
                .build(),
            Provider::CoreMl => ep::CoreML::default()
                .with_model_format(ModelFormat::MLProgram)
                .with_compute_units(ComputeUnits::CPUAndGPU)
                .with_static_input_shapes(true)
                .with_low_precision_accumulation_on_gpu(self.precision == Precision::F16)
                .build(),
        };
        Some(dispatch.error_on_failure())
    }

    /// An error of the provider, with what may help. ONNX Runtime often logs what is missing and returns that something failed.
    pub(super) fn failure(&self, error: &str) -> Error {
        let line = error.lines().next().unwrap_or_default();
        // Taken in any case, so that it is not found with a later failure.
        let logged = library::take_logged_error();
        if self.provider == Provider::Cpu {
            return failed(line.to_owned());
        }
        let mut texts = [Some(error), logged.as_deref()].into_iter().flatten();
        failed(match texts.find_map(diagnose) {
            Some(diagnosis) => format!("{self}: {diagnosis}"),
            None => format!("{self}: {line}; {}", self.provider.advice()),
        })
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "the CPU",
            Self::Cuda => "CUDA",
            Self::MiGraphX => "MIGraphX",
            Self::Rocm => "ROCm",
            Self::CoreMl => "CoreML",
        })
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.provider {
            provider @ (Provider::Cpu | Provider::CoreMl) => provider.fmt(f),
            provider => write!(f, "{provider} device {}", self.index),
        }
    }
}

pub(crate) fn failed(reason: String) -> Error {
    Error::Engine { engine: ENGINE, reason }
}
