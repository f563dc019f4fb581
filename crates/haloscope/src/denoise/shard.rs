//! A network on one part of an image, whose neighbours run at the same time.

use std::fmt;
use std::ops::Add;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haloscope_nn::engine::{
    Engine, EngineOptions, EnginePlan, Grain, Halo, HaloPlan, PlanMemory, PlanStep, Scratch, Shard,
};

use super::network::{Members, NetworkDenoiser};
use super::{NoiseLevel, Pass};
use crate::array::{Array, View};
use crate::error::Result;
use crate::tiling::{Kind, ShardPlan, Tiles};

/// One part of an image, planned. All parts denoise at once, and the results are those of the whole image to the bit.
pub struct NetworkShard {
    members: Members,
    plan: Arc<dyn EnginePlan>,
    /// How often the network runs: once for each channel or slice that it takes one by one.
    runs: usize,
    idle: Mutex<Option<Scratch>>,
}

/// What a part of an image exchanges with its neighbours while the image is denoised once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanges {
    /// Exchanges along one axis, each with the neighbours on both sides.
    pub rounds: usize,
    /// Messages that it sends.
    pub messages: usize,
    /// Bytes that it sends.
    pub bytes_sent: u64,
}

impl Add for Exchanges {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rounds: self.rounds + other.rounds,
            messages: self.messages + other.messages,
            bytes_sent: self.bytes_sent + other.bytes_sent,
        }
    }
}

impl Exchanges {
    /// Those of a network that runs so often.
    fn of(halo: &HaloPlan, runs: usize) -> Self {
        Self {
            rounds: halo.rounds().len() * runs,
            messages: halo.messages() * runs,
            bytes_sent: halo.bytes_sent() * runs as u64,
        }
    }
}

impl NetworkDenoiser {
    /// Where images of this shape, (batch, channel, spatial…), may be cut along each spatial axis.
    pub fn grains(&self, image: &[usize]) -> Result<Vec<Grain>> {
        let input = self.input_shape(image)?;
        let (engine, options) = self.unlimited();
        let own = engine.grains(self.model().network(), &input, &options)?;
        // Axes that the network does not have are those of slices, which do not see each other.
        let mut grains = vec![Grain { step: 1, last: 1 }; image.len() - 2 - own.len()];
        grains.extend(own);
        Ok(grains)
    }

    /// What each part of an image exchanges with its neighbours. Nothing is planned for it.
    pub fn exchanges(&self, shards: &ShardPlan, pass: Pass) -> Result<Vec<Exchanges>> {
        // Parts of one kind exchange as much.
        let mut known: Vec<(Kind, Exchanges)> = Vec::new();
        let of_part = |part: usize| {
            let kind = shards.kind(part);
            if let Some((_, exchanges)) = known.iter().find(|(other, _)| *other == kind) {
                return Ok(*exchanges);
            }
            let (shard, runs) = self.part(shards.image_shape(), &shards.region(part))?;
            let exchanges = Exchanges::of(&self.halo(&shard, pass)?, runs);
            known.push((kind, exchanges));
            Ok(exchanges)
        };
        (0..shards.count()).map(of_part).collect()
    }

    fn halo(&self, shard: &Shard, pass: Pass) -> Result<HaloPlan> {
        match pass {
            Pass::AtOnce => {
                let (engine, options) = self.unlimited();
                Ok(engine.halo(self.model().network(), shard, &options)?)
            }
            Pass::Waves { band } => Ok(self.outline(shard, Some(band))?.halo),
        }
    }

    /// Plans a part of an image to run in this [way](Self::pass), which all parts share.
    pub fn shard(&self, shards: &ShardPlan, part: usize, pass: Pass) -> Result<NetworkShard> {
        let (shard, runs) = self.part(shards.image_shape(), &shards.region(part))?;
        let ((engine, options), network) = (self.unlimited(), self.model().network());
        let plan = match pass {
            Pass::AtOnce => engine.plan_shard(network, &shard, &options)?,
            Pass::Waves { band } => {
                engine.plan_waves_shard(network, &shard, Some(band), &options)?
            }
        };
        let members = self.members(shard.shape().clone());
        Ok(NetworkShard { members, plan, runs, idle: Mutex::default() })
    }

    /// What parts are planned with. The memory budget decides how they run, and never how they convolve.
    fn unlimited(&self) -> (&dyn Engine, EngineOptions) {
        let (engine, options) = self.engine();
        (engine, EngineOptions { memory_budget: None, ..options.clone() })
    }
}

impl NetworkShard {
    /// What is exchanged for one image.
    #[must_use]
    pub fn exchanges(&self) -> Exchanges {
        Exchanges::of(self.plan.halo(), self.runs)
    }

    /// What one run of the network exchanges.
    #[must_use]
    pub fn halo(&self) -> &HaloPlan {
        self.plan.halo()
    }

    /// How often the network runs for one image.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// The bytes that the plan and a run take.
    #[must_use]
    pub fn memory(&self) -> PlanMemory {
        self.plan.memory()
    }

    /// Values of the network's input in one run.
    #[must_use]
    pub(crate) fn input_len(&self) -> usize {
        self.plan.input_shape().count()
    }

    /// Floating-point operations for one image.
    #[must_use]
    pub fn flops(&self) -> f64 {
        self.plan.flops() * self.runs as f64
    }

    /// The part without its noise. `observe` is told of each layer and its time. The image and the level have been
    /// [checked](NetworkDenoiser::check), so that all parts begin or none does.
    pub fn denoise(
        &self,
        part: &View,
        level: &NoiseLevel,
        halo: &mut dyn Halo,
        observe: &mut dyn FnMut(&str, Duration),
    ) -> Result<Array> {
        let lock = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().take();
        let mut scratch = taken.unwrap_or_else(|| self.plan.scratch());
        let mut note = |step: &PlanStep, length| observe(step.name(), length);
        let result = self.members.run(part, level, |input, output| {
            Ok(self.plan.run_shard(input, output, &mut scratch, halo, &mut note)?)
        });
        *lock() = Some(scratch);
        result
    }
}

impl fmt::Debug for NetworkShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkShard").field("plan", &self.plan).finish_non_exhaustive()
    }
}
