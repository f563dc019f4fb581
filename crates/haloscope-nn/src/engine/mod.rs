//! Engines, which run networks: an interface, and the CPU engine behind it.
#![doc = include_str!("README.md")]

mod cpu;
pub mod graph;
mod halo;
mod options;
mod plan;
mod shard;

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;

pub use cpu::{Cpu, InstructionSet};
pub use halo::{Faces, Halo, HaloPlan, Round};
pub use options::{Accuracy, EngineOptions, MAX_THREADS};
pub use plan::{EnginePlan, PlanMemory, PlanStep, Scratch};
pub use shard::{Grain, Shard};

/// Something that runs networks.
///
/// An engine makes a [`EnginePlan`] of a network for a shape, and the plan runs on arrays in host memory, wherever the work is
/// done. Whatever can be known before that is known from the plan. Two plans of an engine for clones of one network have
/// the weights that they need in the same form only once between them.
///
/// For one engine and equal options the result depends on the input alone: not on threads, on the batch that an image is
/// part of, or on other runs.
///
/// ```
/// use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
/// use haloscope_nn::{Conv, NetworkBuilder, Shape, Tensor};
///
/// let mut builder = NetworkBuilder::new("mean", 2)?;
/// let input = builder.input(1)?;
/// let weight = Tensor::filled(Shape::new([1, 1, 3, 3])?, 1.0 / 9.0);
/// let mean = builder.conv("mean", Conv::new(weight).padding(1), input)?;
/// let network = builder.finish(mean)?;
///
/// let engine = Cpu::default();
/// let plan = engine.plan(&network, &Shape::new([1, 1, 20, 30])?, &EngineOptions::default())?;
/// let (input, mut output) = (vec![1.0; 600], vec![0.0; 600]);
/// plan.run(&input, &mut output, &mut plan.scratch())?;
/// assert!((output[31] - 1.0).abs() < 1e-5);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
pub trait Engine: Send + Sync + fmt::Debug {
    /// What it is called in messages and reports: `cpu`.
    fn name(&self) -> &str;

    /// Plans a network for inputs of this shape, any size that the network accepts when its sides are rounded up to the
    /// alignment.
    fn plan(
        &self,
        network: &Network,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>>;

    /// As [`plan`](Self::plan), and lets go of the network's weights on the way if it can: what is alive at any time is no
    /// more than the finished plan and one layer's weights. That holds if no clone of the network and no
    /// [`StateDict`](crate::weights::StateDict) keeps the weights too.
    ///
    /// ```
    /// use haloscope_nn::Shape;
    /// use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
    /// use haloscope_nn::models::{Architecture, Dncnn};
    ///
    /// let network = Dncnn { channels: 16, depth: 4, ..Dncnn::default() }.random(1)?.into_network();
    /// let options = EngineOptions { memory_budget: Some(1_000_000), ..EngineOptions::default() };
    /// let plan = Cpu::default().plan_consuming(network, &Shape::new([1, 3, 32, 32])?, &options)?;
    /// assert!(plan.memory().total() <= 1_000_000);
    /// # Ok::<(), haloscope_nn::Error>(())
    /// ```
    fn plan_consuming(
        &self,
        network: Network,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        self.plan(&network, input, options)
    }

    /// Where images of this shape may be cut along each spatial axis, so that parts which exchange halos have the bits of
    /// the whole. A side that cannot be cut has a grain of its whole length.
    fn grains(
        &self,
        network: &Network,
        whole: &Shape,
        options: &EngineOptions,
    ) -> Result<Vec<Grain>> {
        let _ = (whole, options);
        Err(no_shards(self.name(), network))
    }

    /// What a plan for a part of an image would exchange, without the cost of making one.
    fn halo(&self, network: &Network, shard: &Shard, options: &EngineOptions) -> Result<HaloPlan> {
        Ok(self.plan_shard(network, shard, options)?.halo().clone())
    }

    /// As [`plan`](Self::plan), for a part of an image. [`EnginePlan::run_shard`] then gives the bits that a plan for the whole
    /// image gives there, provided that all parts run at once.
    fn plan_shard(
        &self,
        network: &Network,
        shard: &Shard,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        if shard.is_whole() {
            return self.plan(network, shard.shape(), options);
        }
        Err(no_shards(self.name(), network))
    }
}

/// Makes an engine.
pub type MakeEngine = fn() -> Arc<dyn Engine>;

/// The engines of this build, by name. The first is what networks run on unless another is asked for.
pub const ENGINES: &[(&str, MakeEngine)] = &[("cpu", || Arc::new(Cpu::default()))];

/// That an engine knows no shards.
fn no_shards(engine: &str, network: &Network) -> Error {
    let reason = format!(
        "the engine `{engine}` cannot run {} on parts of an image that exchange halos; tiles that overlap are possible",
        network.name()
    );
    Error::Argument { what: "shard", reason }
}
