//! Whether a device computes what the CPU does, and how fast, for machines that nobody of us has seen.
//!
//! Every precision that the device has is compared with the CPU engine. Times are of whole runs, transfers included. The report is
//! small and holds nothing but numbers, versions and the names of the processor and the device.

use std::time::Instant;

use haloscope::memory::peak_resident_bytes;
use haloscope::{Error, Result};
use haloscope_job::{DeviceChoice, Machine};
use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions, EnginePlan};
use haloscope_nn::models::{Model, ModelName};
use haloscope_nn::{NetworkBuilder, Op, Shape, Tensor};
use haloscope_onnx::{Device, Library, OnnxRuntime, Precision, Provider};
use serde::Serialize;

/// A device, and the network and tiles to try on it.
///
/// ```no_run
/// use haloscope_study::device::DeviceCheck;
///
/// let check = DeviceCheck {
///     device: "gpu".parse()?,
///     model: "drunet".parse()?,
///     patches: vec![128, 256],
///     batches: vec![1, 4],
///     repetitions: 3,
///     threads: 8,
/// };
/// let report = check.run(&mut |note| println!("{note}"))?;
/// assert!(report.precisions.iter().all(|precision| precision.is_good()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceCheck {
    /// The device; the CPU is ONNX Runtime's CPU provider.
    pub device: DeviceChoice,
    /// The network.
    pub model: ModelName,
    /// Sides of square tiles.
    pub patches: Vec<usize>,
    /// Tiles at once.
    pub batches: Vec<usize>,
    /// Runs of which the fastest counts, after one that does not.
    pub repetitions: usize,
    /// The number of threads on the CPU.
    pub threads: usize,
}

/// What a device computes, and how fast.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    /// Of this program.
    pub version: &'static str,
    /// The version of ONNX Runtime, and where its library is.
    pub library: String,
    /// What ONNX Runtime can use.
    pub providers: Vec<&'static str>,
    /// The device.
    pub device: String,
    /// The network.
    pub model: String,
    /// This machine.
    #[serde(flatten)]
    pub machine: Machine,
    /// The number of threads on the CPU.
    pub threads: usize,
    /// Bytes per second to the device and back, together.
    pub transfer_bytes_per_second: f64,
    /// How near its results are to those of the CPU engine.
    pub precisions: Vec<Agreement>,
    /// How fast it is.
    pub speeds: Vec<Speed>,
    /// Of this process, the CPU engine's runs included.
    pub peak_host_bytes: Option<u64>,
}

/// How near the results in one precision are to those of the CPU engine.
#[derive(Debug, Serialize)]
pub struct Agreement {
    /// Its name.
    pub precision: &'static str,
    /// The greatest difference from the CPU engine, as a part of the greatest value.
    pub difference: Option<f64>,
    /// What is expected of it.
    pub accepted: f64,
    /// Why there is no difference.
    pub failure: Option<String>,
}

/// How fast tiles of one size are.
#[derive(Debug, Serialize)]
pub struct Speed {
    /// The precision by name.
    pub precision: &'static str,
    /// The side of a tile.
    pub patch: usize,
    /// The tiles at once.
    pub batch: usize,
    /// The time to plan the network.
    pub planning_seconds: f64,
    /// The time of the fastest run.
    pub seconds: f64,
    /// Its speed.
    pub megapixels_per_second: f64,
    /// Forecast, not measured.
    pub host_bytes: usize,
    /// Forecast, not measured.
    pub device_bytes: usize,
}

/// By name, and how far results in it may be from those of the CPU engine.
const PRECISIONS: [(&str, Precision, f64); 3] =
    [("f32", Precision::F32, 1e-4), ("tf32", Precision::Tf32, 1e-2), ("f16", Precision::F16, 5e-2)];

impl DeviceCheck {
    /// Runs the checks. `tell` is told which device is taken and why, where that was left open.
    pub fn run(&self, tell: &mut dyn FnMut(&str)) -> haloscope_job::Result<DeviceReport> {
        let refused = haloscope_job::Error::Refused;
        let (device, model) = self.prepare(tell).map_err(refused)?;
        let library = Library::load().map_err(|error| refused(error.into()))?;
        // The first plan shows what the device lacks.
        let options = EngineOptions { threads: self.threads, ..EngineOptions::default() };
        let rate = transfer(&device, &options, self.repetitions).map_err(refused)?;
        self.measure(device, &model, library, &options, rate).map_err(haloscope_job::Error::Failed)
    }

    fn prepare(&self, tell: &mut dyn FnMut(&str)) -> Result<(Device, Model)> {
        let (gpu, note) = self.device.resolve(0)?;
        if let Some(note) = note {
            tell(&note);
        }
        Ok((gpu.unwrap_or_default(), self.model.open(3, 2)?))
    }

    fn measure(
        &self,
        device: Device,
        model: &Model,
        library: &Library,
        options: &EngineOptions,
        transfer_bytes_per_second: f64,
    ) -> Result<DeviceReport> {
        let repetitions = self.repetitions;
        let mut report = DeviceReport {
            version: env!("CARGO_PKG_VERSION"),
            library: format!("{} at {}", library.version(), library.path().display()),
            providers: library.providers(),
            device: device.to_string(),
            model: self.model.to_string(),
            machine: Machine::detect(),
            threads: self.threads,
            transfer_bytes_per_second,
            precisions: Vec::new(),
            speeds: Vec::new(),
            peak_host_bytes: None,
        };
        for (name, precision, accepted) in PRECISIONS {
            if precision == Precision::Tf32 && device.provider != Provider::Cuda {
                continue;
            }
            let result = OnnxRuntime::new(Device { precision, ..device })
                .map_err(Error::from)
                .and_then(|engine| Ok((difference(&engine, model, options)?, engine)));
            let (difference, failure) = match &result {
                Ok((difference, _)) => (Some(*difference), None),
                Err(error) => (None, Some(error.to_string())),
            };
            report.precisions.push(Agreement { precision: name, difference, accepted, failure });
            let Ok((_, engine)) = result else { continue };
            for patch in &self.patches {
                for batch in &self.batches {
                    let sides = (*patch, *batch);
                    report.speeds.push(speed(&engine, name, model, options, sides, repetitions)?);
                }
            }
        }
        report.peak_host_bytes = peak_resident_bytes();
        Ok(report)
    }
}

impl Agreement {
    /// Whether it is as near as expected.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.difference.is_some_and(|difference| difference < self.accepted)
    }
}

/// The greatest difference from the CPU engine on an image whose sides are no multiples of anything.
fn difference(engine: &OnnxRuntime, model: &Model, options: &EngineOptions) -> Result<f64> {
    let input = input(model, 2, 93)?;
    let ours = EngineOptions { accuracy: Accuracy::Strict, ..options.clone() };
    let expected = output(&*Cpu::default().plan(model.network(), input.shape(), &ours)?, &input)?;
    let found = output(&*engine.plan(model.network(), input.shape(), options)?, &input)?;
    let greatest = expected.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    // A value that is no number is as far away as can be.
    let apart = expected.iter().zip(&found).map(|(one, other)| (one - other).abs());
    let most = apart.fold(0.0, |most: f32, apart| if apart <= most { most } else { apart });
    Ok(f64::from(most) / f64::from(greatest))
}

fn speed(
    engine: &OnnxRuntime,
    precision: &'static str,
    model: &Model,
    options: &EngineOptions,
    (patch, batch): (usize, usize),
    repetitions: usize,
) -> Result<Speed> {
    let input = input(model, batch, patch)?;
    let begin = Instant::now();
    let plan = engine.plan(model.network(), input.shape(), options)?;
    let planning_seconds = begin.elapsed().as_secs_f64();
    let seconds = fastest(&*plan, &input, repetitions)?;
    let memory = plan.memory();
    Ok(Speed {
        precision,
        patch,
        batch,
        planning_seconds,
        seconds,
        megapixels_per_second: (batch * patch * patch) as f64 / 1e6 / seconds,
        host_bytes: memory.total(),
        device_bytes: memory.device,
    })
}

/// Bytes per second to the device and back, by a network that does nearly nothing.
fn transfer(device: &Device, options: &EngineOptions, repetitions: usize) -> Result<f64> {
    let mut builder = NetworkBuilder::new("copy", 2)?;
    let image = builder.input(3)?;
    let copy = builder.push("copy", Op::Scale(1.0), &[image])?;
    let network = builder.finish(copy)?;
    let input = Tensor::filled(Shape::new([1, 3, 2048, 2048])?, 0.5);
    let plan = OnnxRuntime::new(*device)?.plan(&network, input.shape(), options)?;
    Ok(2.0 * size_of_val(input.values()) as f64 / fastest(&*plan, &input, repetitions)?)
}

fn input(model: &Model, batch: usize, side: usize) -> Result<Tensor> {
    let shape = Shape::image(batch, model.image_channels(), &vec![side; model.network().rank()])?;
    let mut next = 1_u32;
    let image = Tensor::from_fn(shape, |_| {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next as f32 / u32::MAX as f32
    });
    Ok(model.input(&image, 0.1)?)
}

fn output(plan: &dyn EnginePlan, input: &Tensor) -> Result<Vec<f32>> {
    let mut output = vec![0.0; plan.output_shape().count()];
    plan.run(input.values(), &mut output, &mut plan.scratch())?;
    Ok(output)
}

/// The seconds of the fastest run after the first.
fn fastest(plan: &dyn EnginePlan, input: &Tensor, repetitions: usize) -> Result<f64> {
    let (mut output, mut scratch) = (vec![0.0; plan.output_shape().count()], plan.scratch());
    plan.run(input.values(), &mut output, &mut scratch)?;
    let mut best = f64::INFINITY;
    for _ in 0..repetitions {
        let begin = Instant::now();
        plan.run(input.values(), &mut output, &mut scratch)?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}
