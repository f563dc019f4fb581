//! Sessions of ONNX Runtime: a network on a device, for one run at a time.

use std::borrow::Cow;
use std::path::Path;

use half::f16;
use haloscope_nn::Result;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session as OrtSession, SessionInputValue, SessionOutputs};
use ort::value::TensorRef;

use super::device::{Device, failed};
use super::{Element, Library};

/// Where a network comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Model<'a> {
    Bytes(&'a [u8]),
    File(&'a Path),
}

/// What a session is made with.
#[derive(Clone, Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) device: Device,
    pub(crate) threads: usize,
    /// Sizes that the file knows by name only.
    pub(crate) sizes: &'a [(String, usize)],
    /// Whether layers may be joined and values between them forgotten.
    pub(crate) optimizes: bool,
}

/// An input of a run.
#[derive(Clone, Debug)]
pub(crate) struct Tensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) element: Element,
    pub(crate) sizes: Vec<usize>,
    pub(crate) values: &'a [f32],
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    inner: OrtSession,
    device: Device,
}

impl Session {
    /// Makes a session, which takes as long as joining layers and preparing weights does.
    pub(crate) fn new(model: Model<'_>, settings: &Settings<'_>) -> Result<Self> {
        let device = settings.device;
        let fault = |error: &dyn std::fmt::Display| device.failure(&error.to_string());
        let mut builder = builder(settings).map_err(|error| fault(&error))?;
        if let Some(provider) = device.registration() {
            builder =
                builder.with_execution_providers([provider]).map_err(|error| fault(&error))?;
        }
        let session = match model {
            Model::Bytes(bytes) => builder.commit_from_memory(bytes),
            Model::File(path) => builder.commit_from_file(path),
        };
        Ok(Self { inner: session.map_err(|error| fault(&error))?, device })
    }

    /// Runs it, and gives one of its outputs to `take`: its sizes and values.
    pub(crate) fn run<T>(
        &mut self,
        inputs: &[Tensor<'_>],
        output: &str,
        take: impl FnOnce(&[usize], &[f32]) -> Result<T>,
    ) -> Result<T> {
        self.outputs(inputs, |outputs| {
            let value = outputs
                .get(output)
                .ok_or_else(|| failed(format!("there is no output `{output}`")))?;
            if let Ok((shape, values)) = value.try_extract_tensor::<f32>() {
                return take(&sizes(shape), values);
            }
            let (shape, values) = value
                .try_extract_tensor::<f16>()
                .map_err(|_| failed(format!("the output `{output}` is neither f32 nor f16")))?;
            let values: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
            take(&sizes(shape), &values)
        })
    }

    /// Runs it, and returns the bytes of each of its outputs, by name.
    pub(crate) fn output_bytes(&mut self, inputs: &[Tensor<'_>]) -> Result<Vec<(String, u64)>> {
        self.outputs(inputs, |outputs| {
            let bytes = outputs.iter().map(|(name, value)| {
                let kind = value.dtype();
                let count: u64 = kind
                    .tensor_shape()
                    .map_or(0, |shape| shape.iter().map(|size| (*size).max(0) as u64).product());
                let each =
                    kind.tensor_type().and_then(|element| element.byte_size(1)).unwrap_or(4) as u64;
                (name.to_owned(), count.saturating_mul(each))
            });
            Ok(bytes.collect())
        })
    }

    fn outputs<T>(
        &mut self,
        inputs: &[Tensor<'_>],
        take: impl FnOnce(&SessionOutputs<'_>) -> Result<T>,
    ) -> Result<T> {
        let device = self.device;
        let fault = |error: ort::Error| device.failure(error.message());
        // Kept until the run is over.
        let halves: Vec<Vec<f16>> = inputs
            .iter()
            .map(|input| match input.element {
                Element::F32 => Vec::new(),
                Element::F16 => input.values.iter().map(|value| f16::from_f32(*value)).collect(),
            })
            .collect();
        let mut values: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = Vec::new();
        for (input, halves) in inputs.iter().zip(&halves) {
            let sizes = input.sizes.clone();
            let value: SessionInputValue<'_> = match input.element {
                Element::F32 => {
                    TensorRef::from_array_view((sizes, input.values)).map_err(fault)?.into()
                }
                Element::F16 => {
                    TensorRef::from_array_view((sizes, &halves[..])).map_err(fault)?.into()
                }
            };
            values.push((input.name.into(), value));
        }
        let outputs = self.inner.run(values).map_err(fault)?;
        take(&outputs)
    }
}

fn builder(settings: &Settings<'_>) -> std::result::Result<SessionBuilder, String> {
    let text = |error: ort::Error<SessionBuilder>| error.to_string();
    let library = Library::load().map_err(|error| error.to_string())?;
    let builder = OrtSession::builder(library.environment()).map_err(|error| error.to_string())?;
    let level = if settings.optimizes {
        GraphOptimizationLevel::All
    } else {
        GraphOptimizationLevel::Disable
    };
    let builder = builder.with_optimization_level(level).map_err(text)?;
    let builder = builder.with_intra_threads(settings.threads).map_err(text)?;
    let builder = builder.with_inter_threads(1).map_err(text)?;
    let mut builder = builder.with_deterministic_compute(true).map_err(text)?;
    for (name, size) in settings.sizes {
        builder = builder.with_dimension_override(name, *size as i64).map_err(text)?;
    }
    Ok(builder)
}

fn sizes(shape: &ort::value::Shape) -> Vec<usize> {
    shape.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect()
}
