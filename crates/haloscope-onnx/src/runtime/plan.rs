//! A network planned for one shape: how it gets into sessions, and images through them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use haloscope_nn::engine::{EngineOptions, EnginePlan, PlanMemory, PlanStep, Scratch};
use haloscope_nn::models::{Model as Denoiser, Sigma};
use haloscope_nn::{Error, Footprint, Network, NetworkCost, Result, Shape, Stop};

use super::batches::Batches;
use super::device::{Device, Precision, Provider, failed};
use super::interface::{Element, Interface, Layout, LevelInput};
use super::session::{Model, Session, Settings, Tensor};
use super::windows::Windows;
use crate::export::{self, Size};
use crate::file::OnnxFile;

/// A plan for ONNX Runtime.
#[derive(Debug)]
pub(super) struct RuntimePlan {
    network: Network,
    interface: Interface,
    windows: Windows,
    input: Shape,
    output: Shape,
    device: Device,
    threads: usize,
    batches: Batches,
    memory: PlanMemory,
    steps: [PlanStep; 1],
    /// The session that showed that the plan works, until a run takes it.
    first: Mutex<Option<Loaded>>,
}

/// A session for so many images at once.
#[derive(Debug)]
struct Loaded {
    session: Session,
    batch: usize,
}

/// What a run works with.
#[derive(Debug, Default)]
struct Work {
    loaded: Option<Loaded>,
    image: Vec<f32>,
    level: Vec<f32>,
    planes: Vec<f32>,
}

impl RuntimePlan {
    pub(super) fn new(
        network: &Network,
        input: &Shape,
        options: &EngineOptions,
        device: Device,
    ) -> Result<Self> {
        let (interface, windows) = match file_of(network)? {
            None => (own_interface(network), Windows::new(input.spatial(), input.spatial())),
            Some(file) => {
                if device.precision == Precision::F16 && device.provider != Provider::MiGraphX {
                    let reason = format!(
                        "f16 for {}, an ONNX file; it computes in the precision of the file: export it in f16",
                        network.name()
                    );
                    return Err(failed(reason));
                }
                (file.interface().clone(), file.windows(input.spatial()))
            }
        };
        // Also refuses what the network does not take.
        let aligned = aligned(network, input)?;
        let output = Shape::image(input.batch(), network.output_channels(), input.spatial())?;
        let mut at_once = images_at_once(interface.is_single, input, &device);
        let mut memory = memory(network, &aligned, input, at_once, &device)?;
        if let Some(budget) = options.memory_budget {
            let taken = |memory: &PlanMemory| memory.device.max(memory.total());
            while at_once > 1 && taken(&memory) > budget {
                at_once /= 2;
                memory = self::memory(network, &aligned, input, at_once, &device)?;
            }
            if taken(&memory) > budget {
                let reason = format!(
                    "{budget} bytes; {} for {input} takes about {} on ONNX Runtime",
                    network.name(),
                    taken(&memory)
                );
                return Err(Error::Argument { what: "memory budget", reason });
            }
        }
        // How ONNX Runtime sums up the products of a small volume depends on the number of threads; what it does to
        // pictures did not in any test.
        let threads = if network.rank() == 2 { options.threads } else { 1 };
        let flops = 2.0 * NetworkCost::of(network, &aligned)?.multiply_adds as f64;
        let step = PlanStep::new(network.name().to_owned(), device.to_string(), flops);
        let plan = Self {
            network: network.clone(),
            interface,
            windows,
            input: input.clone(),
            output,
            device,
            threads,
            batches: Batches::new(at_once),
            memory,
            steps: [step],
            first: Mutex::default(),
        };
        let first = plan.load(at_once)?;
        plan.tried(first)
    }

    /// The plan, with its first session. That of a device with memory of its own runs once on zeros, so that want of memory, and
    /// all that such a device does at its first run, shows before there is an image.
    fn tried(mut self, first: Loaded) -> Result<Self> {
        let mut work = Work { loaded: Some(first), ..Work::default() };
        if self.device.has_memory() {
            let at_once = self.batches.size();
            let pixels: usize = self.input.spatial().iter().product();
            let (taken, given) = (self.input.channels() * pixels, self.output.channels() * pixels);
            let (zeros, mut result) = (vec![0.0; at_once * taken], vec![0.0; at_once * given]);
            self.batches.run(at_once, |range| {
                let results = &mut result[range.start * given..range.end * given];
                self.run_batch(&zeros[range.start * taken..range.end * taken], results, &mut work)
            })?;
            let aligned = aligned(&self.network, &self.input)?;
            let at_once = self.batches.size();
            self.memory = memory(&self.network, &aligned, &self.input, at_once, &self.device)?;
        }
        *self.first.get_mut().unwrap_or_else(PoisonError::into_inner) = work.loaded;
        Ok(self)
    }

    /// A session for so many images at once.
    fn load(&self, batch: usize) -> Result<Loaded> {
        Stop::check()?;
        let settings =
            Settings { device: self.device, threads: self.threads, sizes: &[], optimizes: true };
        let session = if let Some(file) = file_of(&self.network)? {
            let sizes = file.named_sizes(batch, self.windows.sides());
            Session::new(Model::File(file.path()), &Settings { sizes: &sizes, ..settings })?
        } else {
            let size = Size::Fixed { batch, sides: self.input.spatial().to_vec() };
            let model = Denoiser::new(self.network.clone(), Sigma::Ignored);
            let is_half = self.device.precision == Precision::F16;
            let bytes = export::encode_as(&model, &size, is_half)?;
            Session::new(Model::Bytes(&bytes), &settings)?
        };
        Ok(Loaded { session, batch })
    }

    /// Runs the images of a batch from `first` on, as many as `outputs` has room for.
    fn run_batch(&self, inputs: &[f32], outputs: &mut [f32], work: &mut Work) -> Result<()> {
        let interface = &self.interface;
        let pixels: usize = self.input.spatial().iter().product();
        let (taken, given) = (self.input.channels() * pixels, self.output.channels() * pixels);
        let batch = outputs.len() / given;
        if work.loaded.as_ref().is_none_or(|loaded| loaded.batch != batch) {
            work.loaded = None;
            work.loaded = Some(self.load(batch)?);
        }
        let own = if matches!(interface.level, LevelInput::Channel) {
            interface.channels + 1
        } else {
            interface.channels
        };
        for index in 0..self.windows.count() {
            Stop::check()?;
            work.image.clear();
            work.level.clear();
            for member in inputs.chunks_exact(taken) {
                let mut planes = member.chunks_exact(pixels);
                for plane in planes.by_ref().take(own) {
                    self.windows.append(index, plane, interface.white, &mut work.image);
                }
                match (&interface.level, planes.next()) {
                    (LevelInput::Map { .. }, Some(map)) => {
                        self.windows.append(index, map, interface.white, &mut work.level);
                    }
                    (LevelInput::Scalar { .. }, Some(map)) => {
                        work.level.push(self.one_level(map)? * interface.white);
                    }
                    _ => (),
                }
            }
            let sizes = |channels: usize| self.sizes(batch, channels);
            if interface.layout == Layout::ChannelsLast {
                to_last(&work.image, own, self.windows.pixels(), &mut work.planes);
                std::mem::swap(&mut work.image, &mut work.planes);
            }
            let mut tensors = vec![Tensor {
                name: &interface.image,
                element: interface.element,
                sizes: sizes(own),
                values: &work.image,
            }];
            match &interface.level {
                LevelInput::None | LevelInput::Channel => (),
                LevelInput::Map { name, element } => tensors.push(Tensor {
                    name,
                    element: *element,
                    sizes: sizes(1),
                    values: &work.level,
                }),
                LevelInput::Scalar { name, element, axes } => tensors.push(Tensor {
                    name,
                    element: *element,
                    sizes: vec![1; *axes],
                    values: &work.level,
                }),
            }
            let Some(loaded) = &mut work.loaded else {
                return Err(failed("there is no session".into()));
            };
            let planes = &mut work.planes;
            loaded.session.run(&tensors, &interface.output, |found, values| {
                let expected = sizes(self.output.channels());
                if found != expected {
                    return Err(failed(format!(
                        "{} gives {found:?} for an image of {expected:?}; a denoiser gives the image's shape",
                        self.network.name()
                    )));
                }
                let values = match interface.layout {
                    Layout::ChannelsFirst => values,
                    Layout::ChannelsLast => {
                        to_first(values, self.output.channels(), self.windows.pixels(), planes);
                        &planes[..]
                    }
                };
                let window = values.chunks_exact(self.windows.pixels());
                for (plane, result) in window.zip(outputs.chunks_exact_mut(pixels)) {
                    self.windows.store(index, plane, 1.0 / interface.white, result);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The sizes of a window's tensor.
    fn sizes(&self, batch: usize, channels: usize) -> Vec<usize> {
        let sides = self.windows.sides();
        match self.interface.layout {
            Layout::ChannelsFirst => [&[batch, channels], sides].concat(),
            Layout::ChannelsLast => [&[batch], sides, &[channels]].concat(),
        }
    }

    /// The level of a map that has only one.
    fn one_level(&self, map: &[f32]) -> Result<f32> {
        let level = map.first().copied().unwrap_or_default();
        if map.iter().all(|other| *other == level) {
            return Ok(level);
        }
        let reason = format!("a map of several; {} takes one for each image", self.network.name());
        Err(Error::Argument { what: "noise level", reason })
    }
}

impl EnginePlan for RuntimePlan {
    fn input_shape(&self) -> &Shape {
        &self.input
    }

    fn output_shape(&self) -> &Shape {
        &self.output
    }

    fn memory(&self) -> PlanMemory {
        self.memory
    }

    fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    fn scratch(&self) -> Scratch {
        let loaded = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        Scratch::new(Work { loaded, ..Work::default() })
    }

    fn run_observed(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        let begin = Instant::now();
        for (what, found, expected) in
            [("input", input.len(), &self.input), ("output", output.len(), &self.output)]
        {
            if found != expected.count() {
                let reason = format!("{found} values; the plan is for {expected}");
                return Err(Error::Argument { what, reason });
            }
        }
        let Some(work) = scratch.get_mut::<Work>() else {
            let reason = "it is another engine's; `scratch` of the plan makes one".into();
            return Err(Error::Argument { what: "scratch", reason });
        };
        let batch = self.input.batch();
        let (taken, given) = (input.len() / batch, output.len() / batch);
        self.batches.run(batch, |range| {
            let inputs = &input[range.start * taken..range.end * taken];
            let outputs = &mut output[range.start * given..range.end * given];
            self.run_batch(inputs, outputs, work)
        })?;
        observe(&self.steps[0], begin.elapsed());
        Ok(())
    }
}

/// The file, if the network is one.
fn file_of(network: &Network) -> Result<Option<&OnnxFile>> {
    let Some(foreign) = network.foreign() else { return Ok(None) };
    let file = foreign.downcast::<OnnxFile>();
    file.map(Some)
        .ok_or_else(|| failed(format!("{} runs on {} only", network.name(), foreign.engine())))
}

/// How the engine's input enters an exported network: a noise level is one of its channels already.
fn own_interface(network: &Network) -> Interface {
    Interface {
        image: export::IMAGE.into(),
        level: LevelInput::None,
        output: export::DENOISED.into(),
        layout: Layout::ChannelsFirst,
        element: Element::F32,
        channels: network.input_channels(),
        white: 1.0,
        is_single: false,
    }
}

/// The shape that the network computes on.
fn aligned(network: &Network, input: &Shape) -> Result<Shape> {
    let sides = Footprint::of(network)?.aligned(input.spatial());
    let aligned = Shape::image(input.batch(), input.channels(), &sides)?;
    network.infer(&aligned)?;
    Ok(aligned)
}

/// How many images a session gets at once. On the CPU a result must not depend on the batch, and some files take one image.
fn images_at_once(is_single: bool, input: &Shape, device: &Device) -> usize {
    if is_single || device.provider == Provider::Cpu { 1 } else { input.batch() }
}

/// About the bytes of host memory of a session for such images, without the cost of making one.
pub(super) fn host_bytes(network: &Network, input: &Shape, device: &Device) -> Result<usize> {
    let is_single = file_of(network)?.is_some_and(|file| file.interface().is_single);
    let at_once = images_at_once(is_single, input, device);
    Ok(memory(network, &aligned(network, input)?, input, at_once, device)?.total())
}

/// About the bytes of a session that computes so many images at once, and of what goes in and comes out.
fn memory(
    network: &Network,
    aligned: &Shape,
    input: &Shape,
    at_once: usize,
    device: &Device,
) -> Result<PlanMemory> {
    let some = Shape::image(at_once, aligned.channels(), aligned.spatial())?;
    let cost = NetworkCost::of(network, &some)?;
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (weights, values) = (bytes(cost.weight_bytes), bytes(cost.peak_value_bytes));
    // The tensors of a window, which are there beside the caller's.
    let pixels: usize = some.spatial().iter().product();
    let workspace = 4 * at_once * pixels * (input.channels() + network.output_channels());
    if device.has_memory() {
        return Ok(PlanMemory { workspace, device: weights + values, ..PlanMemory::default() });
    }
    Ok(PlanMemory { weights, activations: values, workspace, ..PlanMemory::default() })
}

/// Planes of pixels as pixels of channels, image by image.
fn to_last(planes: &[f32], channels: usize, pixels: usize, target: &mut Vec<f32>) {
    target.clear();
    for image in planes.chunks_exact(channels * pixels) {
        let values =
            (0..pixels).flat_map(|pixel| (0..channels).map(move |channel| (channel, pixel)));
        target.extend(values.map(|(channel, pixel)| image[channel * pixels + pixel]));
    }
}

/// The inverse of [`to_last`].
fn to_first(values: &[f32], channels: usize, pixels: usize, target: &mut Vec<f32>) {
    to_last(values, pixels, channels, target);
}
