//! The CPU engine: plans of networks, and runs that allocate nothing.

mod buffer;
mod build;
mod convert;
mod cost;
mod ghosts;
mod kernels;
mod layout;
mod lower;
mod memory;
mod operation;
mod operations;
mod place;
mod plan;
mod stage;
mod stock;
mod team;
mod weights;

use std::borrow::Cow;
use std::sync::Arc;

use super::options::{EngineOptions, MAX_THREADS};
use super::{Engine, EnginePlan, Grain, HaloPlan, Shard};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;
use plan::{CpuPlan, Cut};
use stock::Stock;

pub use kernels::InstructionSet;

/// The engine that runs networks on the CPU, in f32.
///
/// Plans share transformed weights: those of one network for the same method exist once, however many plans of the engine
/// use them, and as long as one does.
///
/// ```
/// use haloscope_nn::Shape;
/// use haloscope_nn::engine::{Cpu, Engine, InstructionSet, EngineOptions};
/// use haloscope_nn::models::{Architecture, Dncnn};
///
/// let model = Dncnn { channels: 16, depth: 4, ..Dncnn::default() }.random(1)?;
/// let engine = Cpu::with_instructions(InstructionSet::Portable)?;
/// let plan = engine.plan(model.network(), &Shape::new([1, 3, 32, 32])?, &EngineOptions::default())?;
/// assert_eq!(plan.output_shape().sizes(), [1, 3, 32, 32]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Cpu {
    instructions: InstructionSet,
    stock: Stock,
}

impl Cpu {
    /// An engine with these instructions instead of the ones that suit the CPU best.
    pub fn with_instructions(instructions: InstructionSet) -> Result<Self> {
        if !instructions.is_available() {
            let reason = format!("{instructions:?}, which this CPU does not have");
            return Err(Error::Argument { what: "instructions", reason });
        }
        Ok(Self { instructions, stock: Stock::default() })
    }

    /// The instructions that it uses.
    #[must_use]
    pub fn instructions(&self) -> InstructionSet {
        self.instructions
    }

    fn build(
        &self,
        network: Cow<'_, Network>,
        shard: &Shard,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        if !(1..=MAX_THREADS).contains(&options.threads) {
            let reason = format!("{}; a number from 1 to {MAX_THREADS} is needed", options.threads);
            return Err(Error::Argument { what: "threads", reason });
        }
        let shelf = self.stock.shelf(&network);
        let plan = CpuPlan::new(network, shard, options, self.instructions, &shelf)?;
        Ok(Arc::new(plan))
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self { instructions: InstructionSet::detect(), stock: Stock::default() }
    }
}

impl Engine for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn plan(
        &self,
        network: &Network,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        self.build(Cow::Borrowed(network), &Shard::whole_of(input), options)
    }

    fn plan_consuming(
        &self,
        network: Network,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        self.build(Cow::Owned(network), &Shard::whole_of(input), options)
    }

    fn grains(
        &self,
        network: &Network,
        whole: &Shape,
        options: &EngineOptions,
    ) -> Result<Vec<Grain>> {
        Ok(Cut::of(network, whole, options)?.grains)
    }

    fn halo(&self, network: &Network, shard: &Shard, options: &EngineOptions) -> Result<HaloPlan> {
        Cut::halo(network, shard, options)
    }

    fn plan_shard(
        &self,
        network: &Network,
        shard: &Shard,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        self.build(Cow::Borrowed(network), shard, options)
    }
}
