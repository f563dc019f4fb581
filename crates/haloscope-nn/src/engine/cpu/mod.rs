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
mod rows;
mod stage;
mod stock;
mod team;
mod trial;
mod waves;
mod weights;
mod workplace;

use std::borrow::Cow;
use std::sync::Arc;

use super::options::{EngineOptions, MAX_THREADS};
use super::{Engine, EnginePlan, Grain, HaloPlan, Shard, WavesOutline};
use crate::error::{Error, Result};
use crate::foreign::Foreign;
use crate::network::Network;
use crate::shape::Shape;
use plan::{CpuPlan, Cut, whole_bytes};
use stock::Stock;
use waves::WavesDraft;

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
        check(&network, options)?;
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

    fn kind(&self) -> String {
        match self.instructions {
            // AVX-512 has the bits of AVX2.
            InstructionSet::Avx2 | InstructionSet::Avx512 => "cpu".into(),
            other => format!("cpu ({other})"),
        }
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

    fn bytes(&self, network: &Network, input: &Shape, options: &EngineOptions) -> Result<usize> {
        check(network, options)?;
        whole_bytes(network, input, options)
    }

    fn plan_waves_shard(
        &self,
        network: &Network,
        shard: &Shard,
        band: Option<usize>,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        check(network, options)?;
        let draft = WavesDraft::new(network, shard, band, options)?;
        let shelf = self.stock.shelf(network);
        Ok(Arc::new(draft.build(options, self.instructions, &shelf)?))
    }

    fn outline_waves(
        &self,
        network: &Network,
        shard: &Shard,
        band: Option<usize>,
        options: &EngineOptions,
    ) -> Result<WavesOutline> {
        check(network, options)?;
        Ok(WavesDraft::new(network, shard, band, options)?.outline())
    }

    fn plan_within(
        &self,
        network: Cow<'_, Network>,
        input: &Shape,
        options: &EngineOptions,
    ) -> Result<Arc<dyn EnginePlan>> {
        check(&network, options)?;
        let budget = options.memory_budget.unwrap_or(usize::MAX);
        let whole = Shard::whole_of(input);
        if self.bytes(&network, input, options)? <= budget {
            let unlimited = EngineOptions { memory_budget: None, ..options.clone() };
            return self.build(network, &whole, &unlimited);
        }
        match WavesDraft::new(&network, &whole, None, options) {
            Ok(draft) => {
                let shelf = self.stock.shelf(&network);
                drop(network);
                Ok(Arc::new(draft.build(options, self.instructions, &shelf)?))
            }
            Err(in_waves) => self.build(network, &whole, options).map_err(|error| match error {
                Error::Argument { what, reason } if what == "memory budget" => {
                    let reason = format!("{reason} at once; in waves: {in_waves}");
                    Error::Argument { what, reason }
                }
                other => other,
            }),
        }
    }

    fn grains(
        &self,
        network: &Network,
        whole: &Shape,
        options: &EngineOptions,
    ) -> Result<Vec<Grain>> {
        Foreign::check_none(network, "cpu")?;
        Ok(Cut::of(network, whole, options)?.grains)
    }

    fn halo(&self, network: &Network, shard: &Shard, options: &EngineOptions) -> Result<HaloPlan> {
        Foreign::check_none(network, "cpu")?;
        Cut::halo(network, shard, options)
    }

    fn shard_bytes(
        &self,
        network: &Network,
        shard: &Shard,
        options: &EngineOptions,
    ) -> Result<usize> {
        check(network, options)?;
        Cut::bytes(network, shard, options)
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

/// Refuses numbers of threads that no machine could run.
/// Refuses networks of other formats, and numbers of threads that cannot be.
fn check(network: &Network, options: &EngineOptions) -> Result<()> {
    Foreign::check_none(network, "cpu")?;
    if (1..=MAX_THREADS).contains(&options.threads) {
        return Ok(());
    }
    let reason = format!("{}; a number from 1 to {MAX_THREADS} is needed", options.threads);
    Err(Error::Argument { what: "threads", reason })
}
