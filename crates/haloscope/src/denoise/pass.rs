//! How a network runs on the parts of an image: at once, or in waves that hold less.
//!
//! Both give the bits of the whole image, so the choice may follow from memory, and from the number of ranks with it. Every rank makes
//! it for itself, from the parts and the options of the network, which all ranks have.

use std::cmp::Reverse;
use std::ops::Range;

use haloscope_nn::engine::{Engine, EngineOptions, Grain, Shard, WavesOutline};
use haloscope_nn::{Footprint, NetworkCost, Shape};

use super::network::NetworkDenoiser;
use crate::error::{Error, Result};
use crate::tiling::{ShardPlan, Shards, Tiles};

/// The most bytes that the layers of a network may hold at once on one rank, where no memory budget is given: those of a DRUNet on
/// 2048² pixels, with little room above. An engine takes about three quarters of it, and the weights besides. Larger
/// parts run in [waves](Pass::Waves).
pub const MOST_PASS_BYTES: u64 = 5_000_000_000;

/// The threads that bands suit where no memory budget is given, so that ranks with other numbers of threads agree on them.
const THREADS: usize = 2;

/// How a network runs on the parts of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pass {
    /// All rows of a layer, then the next layer.
    #[default]
    AtOnce,
    /// From the first rows to the last, each layer some rows behind the one before
    /// ([`Engine::plan_waves_shard`](haloscope_nn::engine::Engine::plan_waves_shard)). The image is not cut between rows.
    Waves {
        /// Rows that a wave takes.
        band: usize,
    },
}

impl Pass {
    /// The rows that a wave takes, if there are waves.
    #[must_use]
    pub fn band(&self) -> Option<usize> {
        match self {
            Self::AtOnce => None,
            Self::Waves { band } => Some(*band),
        }
    }
}

/// The bytes that parts hold when they run at once.
struct Held {
    /// Of the largest part.
    bytes: u64,
    /// The most that there may be.
    most: u64,
}

/// What waves on some parts take.
struct InWaves {
    band: usize,
    /// Of the largest part.
    bytes: u64,
}

impl NetworkDenoiser {
    /// The parts of images of this shape, (batch, channel, spatial…), for so many ranks. Where the parts of [`Shards::Auto`] would
    /// hold too much at once, the image is not cut between rows, so that they run in waves.
    ///
    /// ```
    /// use haloscope::denoise::{NetworkDenoiser, Pass};
    /// use haloscope::tiling::Shards;
    /// use haloscope_nn::engine::EngineOptions;
    /// use haloscope_nn::models::{Architecture, Dncnn};
    ///
    /// let network = |memory_budget| {
    ///     let model = Dncnn { depth: 4, channels: 16, ..Dncnn::default() }.random(1)?;
    ///     NetworkDenoiser::new(model, EngineOptions { memory_budget, ..EngineOptions::default() })
    /// };
    /// let (image, free, tight) = ([1, 3, 2048, 512], network(None)?, network(Some(20_000_000))?);
    /// let parts = free.cut(&image, &Shards::Auto, 4)?;
    /// assert_eq!((parts.grid(), free.pass(&parts)?), (vec![4, 1], Pass::AtOnce));
    /// let parts = tight.cut(&image, &Shards::Auto, 4)?;
    /// assert_eq!(parts.grid(), [1, 4]);
    /// assert!(tight.pass(&parts)?.band().is_some());
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn cut(&self, image: &[usize], shards: &Shards, ranks: usize) -> Result<ShardPlan> {
        self.cut_at(image, &self.grains(image)?, shards, ranks)
    }

    /// As [`cut`](Self::cut), at multiples of the network's [grains](Self::grains) that are given.
    pub fn cut_at(
        &self,
        image: &[usize],
        grains: &[Grain],
        shards: &Shards,
        ranks: usize,
    ) -> Result<ShardPlan> {
        let parts = ShardPlan::with_shards(image, grains, shards, ranks)?;
        if *shards != Shards::Auto {
            return Ok(parts);
        }
        let held = self.held_at_once(&parts)?;
        if held.bytes <= held.most {
            return Ok(parts);
        }
        let columns = parts.without_cut_rows(ranks)?;
        if self.engine().1.memory_budget.is_some() {
            // Nothing else can keep a budget. Slices that are shared out leave a rank with wider parts than columns do.
            let narrow = parts.in_columns(ranks)?;
            return Ok(if self.in_waves(&columns).is_ok() { columns } else { narrow });
        }
        let at_once = self.plan_bytes(&parts)?;
        // A narrow image has fewer columns than ranks, and the others would idle.
        let is_better = columns.count() >= parts.count()
            && self.in_waves(&columns).is_ok_and(|waves| waves.bytes < at_once);
        Ok(if is_better { columns } else { parts })
    }

    /// How the network runs on these parts: at once if they hold no more than the memory budget of its options, or than
    /// [`MOST_PASS_BYTES`] without one; else in waves, if these hold less.
    ///
    /// # Errors
    /// If there is a memory budget, and nothing keeps it.
    pub fn pass(&self, shards: &ShardPlan) -> Result<Pass> {
        let held = self.held_at_once(shards)?;
        if held.bytes <= held.most {
            return Ok(Pass::AtOnce);
        }
        let budget = self.engine().1.memory_budget;
        let grid = shards.grid();
        if !has_whole_rows(shards) {
            let Some(budget) = budget else { return Ok(Pass::AtOnce) };
            let columns = shards.without_cut_rows(shards.count())?.grid();
            return Err(Error::argument(
                "memory budget",
                format!(
                    "{budget} bytes; parts in a grid of {grid:?} take {} at once, and waves, which take less, need parts \
                     that are not cut between rows: a grid of {columns:?}",
                    held.bytes
                ),
            ));
        }
        match (self.in_waves(shards), budget) {
            (Ok(waves), None) if waves.bytes >= self.plan_bytes(shards)? => Ok(Pass::AtOnce),
            (Ok(waves), _) => Ok(Pass::Waves { band: waves.band }),
            (Err(error), Some(_)) => {
                let reason = match error {
                    Error::Network(haloscope_nn::Error::Argument { reason, .. }) => reason,
                    error => error.to_string(),
                };
                let reason = format!("{reason}; take more ranks, or tiles that overlap");
                Err(Error::argument("memory budget", reason))
            }
            (Err(_), None) => Ok(Pass::AtOnce),
        }
    }

    /// The bytes that the network takes for the largest of these parts, weights included, with two
    /// threads unless there is a memory budget, if it runs in this way. No plan is made.
    pub fn part_bytes(&self, shards: &ShardPlan, pass: Pass) -> Result<u64> {
        match pass {
            Pass::AtOnce => self.plan_bytes(shards),
            Pass::Waves { band } => {
                self.most(shards, |shard| Ok(self.outline(shard, Some(band))?.bytes as u64))
            }
        }
    }

    /// The bytes that the layers of the network hold at most for one pass over images of this shape, by the definition of the
    /// network; an engine may need less.
    pub fn pass_bytes(&self, image: &[usize]) -> Result<u64> {
        self.layer_bytes(&self.input_shape(image)?)
    }

    /// The bytes that the network takes for images of this shape in waves on one rank, weights included. They depend on the image and
    /// the network, and not on the threads or the memory budget of the options.
    pub fn wave_bytes(&self, image: &[usize]) -> Result<u64> {
        let whole = self.input_shape(image)?;
        let region = whole.spatial().iter().map(|&side| 0..side).collect();
        let (engine, options) = self.engine();
        let options = EngineOptions { threads: THREADS, memory_budget: None, ..options.clone() };
        let network = self.model().network();
        let outline = engine.outline_waves(network, &Shard::new(whole, region)?, None, &options)?;
        Ok(outline.bytes as u64)
    }

    /// What is exchanged, and what is held, by a part in waves of so many rows, if they are given.
    pub(super) fn outline(&self, shard: &Shard, band: Option<usize>) -> Result<WavesOutline> {
        let (engine, options) = self.deciding();
        Ok(engine.outline_waves(self.model().network(), shard, band, &options)?)
    }

    /// What parts hold at once, and what they may hold.
    fn held_at_once(&self, shards: &ShardPlan) -> Result<Held> {
        let bytes = |shard: &Shard| self.layer_bytes(shard.shape());
        match self.engine().1.memory_budget {
            Some(budget) => Ok(Held { bytes: self.plan_bytes(shards)?, most: budget as u64 }),
            None => Ok(Held { bytes: self.most(shards, bytes)?, most: MOST_PASS_BYTES }),
        }
    }

    /// What the plan of the largest part takes that runs at once.
    fn plan_bytes(&self, shards: &ShardPlan) -> Result<u64> {
        let (engine, options) = self.deciding();
        let unlimited = EngineOptions { memory_budget: None, ..options };
        let network = self.model().network();
        self.most(shards, |shard| Ok(engine.shard_bytes(network, shard, &unlimited)? as u64))
    }

    /// The bands that all parts can have, and what they take.
    fn in_waves(&self, shards: &ShardPlan) -> Result<InWaves> {
        if !has_whole_rows(shards) {
            return Err(Error::argument("waves", "parts that are cut between rows"));
        }
        let mut waves = InWaves { band: usize::MAX, bytes: 0 };
        let mut kinds = self.kinds(shards)?;
        // The largest first, so that an error says what all need.
        kinds.sort_by_key(|shard| Reverse(shard.shape().count()));
        for shard in kinds {
            let outline = self.outline(&shard, None)?;
            waves.band = waves.band.min(outline.waves.band);
            waves.bytes = waves.bytes.max(outline.bytes as u64);
        }
        Ok(waves)
    }

    /// The engine, and the options with which ranks find the same whatever threads they have.
    fn deciding(&self) -> (&dyn Engine, EngineOptions) {
        let (engine, options) = self.engine();
        let threads = if options.memory_budget.is_some() { options.threads } else { THREADS };
        (engine, EngineOptions { threads, ..options.clone() })
    }

    /// The bytes of a pass over inputs of this shape.
    fn layer_bytes(&self, input: &Shape) -> Result<u64> {
        let network = self.model().network();
        let sides = Footprint::of(network)?.aligned(input.spatial());
        let aligned = Shape::image(input.batch(), input.channels(), &sides)?;
        Ok(NetworkCost::of(network, &aligned)?.peak_value_bytes)
    }

    /// The most of something over all parts.
    fn most(&self, shards: &ShardPlan, of: impl Fn(&Shard) -> Result<u64>) -> Result<u64> {
        let bytes = self.kinds(shards)?.iter().map(of).collect::<Result<Vec<_>>>()?;
        Ok(bytes.into_iter().max().unwrap_or(0))
    }

    /// One of the network's parts of each kind that there is.
    fn kinds(&self, shards: &ShardPlan) -> Result<Vec<Shard>> {
        let mut kinds = Vec::new();
        let mut found = Vec::new();
        for part in 0..shards.count() {
            let kind = shards.kind(part);
            if !kinds.contains(&kind) {
                kinds.push(kind);
                found.push(self.part(shards.image_shape(), &shards.region(part))?.0);
            }
        }
        Ok(found)
    }

    /// The network's part of a region, and how often the network runs for it.
    pub(super) fn part(&self, image: &[usize], region: &[Range<usize>]) -> Result<(Shard, usize)> {
        let whole = self.input_shape(image)?;
        let (slices, own) = region.split_at(region.len().saturating_sub(whole.spatial().len()));
        let parts = slices.iter().map(Range::len).product::<usize>();
        let at_once = self.model().image_channels() * whole.batch();
        let shard = Shard::new(whole, own.to_vec())?;
        Ok((shard, image[0] * image[1] * parts / at_once.max(1)))
    }
}

/// Whether no part is cut between rows, along which waves run.
fn has_whole_rows(shards: &ShardPlan) -> bool {
    shards.grid().iter().rev().nth(1).is_none_or(|parts| *parts == 1)
}
