//! Engines, which run networks: an interface, and the CPU engine behind it.
#![doc = include_str!("README.md")]

mod cpu;
pub mod graph;
mod halo;
mod options;
mod plan;
mod shard;
mod waves;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;

pub use cpu::{Cpu, InstructionSet};
pub use halo::{Faces, Halo, HaloPlan, Round};
pub use options::{Accuracy, EngineOptions, MAX_THREADS};
pub use plan::{BandSink, BandSource, EnginePlan, PlanMemory, PlanStep, Scratch};
pub use shard::{Grain, Shard};
pub use waves::{Waves, WavesOutline};

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

    /// Where it computes, in a few words: `the CPU`, or the GPU of this process.
    fn device(&self) -> String {
        "the CPU".into()
    }

    /// What its bits depend on beside the input, in a few words. Ranks that share an image must have the same, and so should a
    /// run and the one that resumes it.
    fn kind(&self) -> String {
        self.name().to_owned()
    }

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

    /// The bytes of host memory that a plan with the fastest methods would take, without the cost of making one.
    fn bytes(&self, network: &Network, input: &Shape, options: &EngineOptions) -> Result<usize> {
        let fastest = EngineOptions { memory_budget: None, ..options.clone() };
        Ok(self.plan(network, input, &fastest)?.memory().total())
    }

    /// As [`plan`](Self::plan), for a run from the first rows of the image to the last, each layer some rows behind the one
    /// before. The memory grows with the width of the image and not with its height, every value is computed once, and the
    /// result has the bits of a plan without a memory budget. The budget of the options bounds the height of the bands
    /// instead, and with them the speed.
    ///
    /// ```
    /// use haloscope_nn::Shape;
    /// use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
    /// use haloscope_nn::models::{Architecture, Dncnn};
    ///
    /// let model = Dncnn { channels: 16, depth: 4, ..Dncnn::default() }.random(1)?;
    /// let (engine, options) = (Cpu::default(), EngineOptions::default());
    /// let bytes = |height| {
    ///     let plan = engine.plan_waves(model.network(), &Shape::new([1, 3, height, 64])?, &options)?;
    ///     Ok::<_, haloscope_nn::Error>(plan.memory().total())
    /// };
    /// assert_eq!(bytes(4096)?, bytes(65_536)?);
    /// # Ok::<(), haloscope_nn::Error>(())
    /// ```
    fn plan_waves(
        &self,
        network: &Network,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        self.plan_waves_shard(network, &Shard::whole_of(input), None, options)
    }

    /// As [`plan_waves`](Self::plan_waves), for a part of an image that is cut between columns, of a volume also between planes: all parts
    /// run their waves in step, and exchange the ghosts of the rows that they have made. The bands have so many rows, if
    /// they are given. Parts that run together need the same: the least that [`outline_waves`](Self::outline_waves) finds for one
    /// of them.
    fn plan_waves_shard(
        &self,
        network: &Network,
        shard: &Shard,
        band: Option<usize>,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        let _ = (shard, band, options);
        Err(no_waves(self.name(), network))
    }

    /// What [`plan_waves_shard`](Self::plan_waves_shard) would make, without the cost of making it.
    ///
    /// ```
    /// use haloscope_nn::Shape;
    /// use haloscope_nn::engine::{Cpu, Engine, EngineOptions, Shard};
    /// use haloscope_nn::models::{Architecture, Dncnn};
    ///
    /// let model = Dncnn { channels: 16, depth: 4, ..Dncnn::default() }.random(1)?;
    /// let whole = Shape::new([1, 3, 4096, 96])?;
    /// let outline = |columns| {
    ///     let shard = Shard::new(whole.clone(), vec![0..4096, columns])?;
    ///     Cpu::default().outline_waves(model.network(), &shard, Some(144), &EngineOptions::default())
    /// };
    /// let (left, right) = (outline(0..48)?, outline(48..96)?);
    /// assert_eq!(left.waves.count, right.waves.count);
    /// assert_eq!(left.halo.rounds().len(), right.halo.rounds().len());
    /// # Ok::<(), haloscope_nn::Error>(())
    /// ```
    fn outline_waves(
        &self,
        network: &Network,
        shard: &Shard,
        band: Option<usize>,
        options: &EngineOptions,
    ) -> Result<WavesOutline> {
        let plan = self.plan_waves_shard(network, shard, band, options)?;
        Ok(WavesOutline {
            waves: plan.waves().cloned().unwrap_or_default(),
            halo: plan.halo().clone(),
            bytes: plan.memory().total(),
        })
    }

    /// The fastest plan within the memory budget of the options: for the whole image if all of it fits, or else
    /// [in waves](Self::plan_waves), or else with slower ways to convolve. Only the last one may change the last bits. As
    /// [`plan_consuming`](Self::plan_consuming) with a network of its own.
    ///
    /// ```
    /// use std::borrow::Cow;
    ///
    /// use haloscope_nn::Shape;
    /// use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
    /// use haloscope_nn::models::{Architecture, Dncnn};
    ///
    /// let model = Dncnn { channels: 16, depth: 4, ..Dncnn::default() }.random(1)?;
    /// let options = EngineOptions { memory_budget: Some(20_000_000), ..EngineOptions::default() };
    /// let plan = |height| {
    ///     let shape = Shape::new([1, 3, height, 256])?;
    ///     Cpu::default().plan_within(Cow::Borrowed(model.network()), &shape, &options)
    /// };
    /// assert!(plan(256)?.waves().is_none());
    /// let waves = plan(8192)?;
    /// assert!(waves.waves().is_some() && waves.memory().total() <= 20_000_000);
    /// # Ok::<(), haloscope_nn::Error>(())
    /// ```
    fn plan_within(
        &self,
        network: Cow<'_, Network>,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        match network {
            Cow::Borrowed(network) => self.plan(network, input, options),
            Cow::Owned(network) => self.plan_consuming(network, input, options),
        }
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

    /// The bytes of host memory that [`plan_shard`](Self::plan_shard) would take, without the cost of making a plan.
    fn shard_bytes(
        &self,
        network: &Network,
        shard: &Shard,
        options: &EngineOptions,
    ) -> Result<usize> {
        Ok(self.plan_shard(network, shard, options)?.memory().total())
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

/// That an engine knows no waves.
fn no_waves(engine: &str, network: &Network) -> Error {
    let reason = format!(
        "the engine `{engine}` cannot run {} in waves; plan the whole image, or tiles that overlap",
        network.name()
    );
    Error::Argument { what: "waves", reason }
}

/// That an engine knows no shards.
fn no_shards(engine: &str, network: &Network) -> Error {
    let reason = format!(
        "the engine `{engine}` cannot run {} on parts of an image that exchange halos; tiles that overlap are possible",
        network.name()
    );
    Error::Argument { what: "shard", reason }
}
