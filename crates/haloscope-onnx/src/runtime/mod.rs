//! ONNX Runtime as an engine: for our networks, which are exported in memory, and for those of ONNX files.

mod batches;
mod device;
mod devices;
mod diagnosis;
mod interface;
mod library;
mod plan;
mod session;
mod windows;

use std::sync::Arc;

use haloscope_nn::engine::{Engine, EngineOptions, EnginePlan, MAX_THREADS};
use haloscope_nn::{Error, Network, Result, Shape};

pub(crate) use device::failed;
pub use device::{Device, Precision, Provider};
pub use devices::gpus;
pub(crate) use interface::{Element, Interface, Layout, LevelInput};
pub use library::Library;
use plan::RuntimePlan;
pub(crate) use session::{Model, Session, Settings, Tensor};
pub(crate) use windows::Windows;

/// The name of the engine.
pub(crate) const ENGINE: &str = "onnxruntime";

/// ONNX Runtime on one device.
///
/// A plan exports the network for its shape and has a session for each run at a time. Images go through it one by one on
/// the CPU, so that a result does not depend on the batch, and volumes on one thread, because sums would depend on their number.
/// On other devices as many images as the plan's shape has go at once, and half as many whenever the memory does not suffice.
///
/// ```no_run
/// use haloscope_nn::engine::{Engine, EngineOptions};
/// use haloscope_nn::models::{Architecture, Dncnn};
/// use haloscope_nn::Shape;
/// use haloscope_onnx::{Device, OnnxRuntime};
///
/// let engine = OnnxRuntime::new(Device::default())?;
/// let network = Dncnn::default().random(1)?.into_network();
/// let plan = engine.plan(&network, &Shape::new([1, 3, 256, 256])?, &EngineOptions::default())?;
/// println!("{} bytes", plan.memory().total());
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OnnxRuntime {
    device: Device,
}

impl OnnxRuntime {
    /// The engine on a device.
    ///
    /// # Errors
    /// If the library is missing or too old, or lacks the device's provider.
    pub fn new(device: Device) -> Result<Self> {
        device.check(Library::load()?)?;
        Ok(Self { device })
    }

    /// Where it computes.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn device(&self) -> String {
        self.device.to_string()
    }

    fn kind(&self) -> String {
        let version = Library::load().map_or("", Library::version);
        format!("ONNX Runtime {version}, {} in {}", self.device.provider, self.device.precision)
    }

    fn bytes(&self, network: &Network, input: &Shape, _: &EngineOptions) -> Result<usize> {
        plan::host_bytes(network, input, &self.device)
    }

    fn plan(
        &self,
        network: &Network,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        if !(1..=MAX_THREADS).contains(&options.threads) {
            let reason = format!("{}; a number from 1 to {MAX_THREADS} is needed", options.threads);
            return Err(Error::Argument { what: "threads", reason });
        }
        let limit = self.device.memory_limit.into_iter().chain(options.memory_budget).min();
        let device = Device { memory_limit: limit, ..self.device };
        Ok(Arc::new(RuntimePlan::new(network, input, options, device)?))
    }
}
