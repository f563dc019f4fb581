//! A network on an image in shards: every rank denoises its part, and layers exchange the rows that they read.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Collectives, Reduction};

use super::agree::agree;
use super::halo::RankHalo;
use crate::array::{Array, View};
use crate::denoise::{Denoiser, NetworkDenoiser, NetworkShard, NoiseLevel, Work};
use crate::error::{Error, Result};
use crate::image::{Image, Layout, Space};
use crate::region::{Region, copied, is_empty};
use crate::tiling::ShardPlan;

/// A network for images of one [`Space`]. Each part has the bits that the network gives the whole image there, and no rank ever has
/// more than its part.
#[derive(Debug)]
pub struct ShardedNetwork {
    network: Arc<NetworkDenoiser>,
    space: Arc<Space>,
    plan: ShardPlan,
    own: Option<NetworkShard>,
    /// How often the rank that does it most often exchanges halos.
    rounds: usize,
}

impl ShardedNetwork {
    /// Plans the network for this rank's part. All ranks call it.
    ///
    /// # Errors
    /// If the space is not cut where the network may be: at its [grains](NetworkDenoiser::grains); or if a memory budget of the
    /// network needs waves, and the space is cut between rows.
    pub fn new(network: impl Into<Arc<NetworkDenoiser>>, space: &Arc<Space>) -> Result<Self> {
        let network = network.into();
        let ctx = space.context();
        let prepare = || -> Result<(ShardPlan, Option<NetworkShard>)> {
            let plan = space.plan().ok_or_else(|| {
                Error::argument("shards", "the space was not made of a plan; use `Space::new`")
            })?;
            check_cuts(&network, space)?;
            let pass = network.pass(plan)?;
            let is_idle = is_empty(&space.own()[2..]);
            let own = (!is_idle).then(|| network.shard(plan, ctx.rank(), pass)).transpose()?;
            Ok((plan.clone(), own))
        };
        let (plan, own) = agree(ctx, prepare())?;
        let own_rounds = own.as_ref().map_or(0, |own| own.halo().rounds().len() * own.runs());
        let mut rounds = [own_rounds as u64];
        ctx.comm().all_reduce(Reduction::Max, &mut rounds)?;
        Ok(Self { network, space: space.clone(), plan, own, rounds: rounds[0] as usize })
    }

    /// This rank's part, planned; `None` if it has none.
    #[must_use]
    pub fn own(&self) -> Option<&NetworkShard> {
        self.own.as_ref()
    }

    fn denoise_part(&self, image: &Image, level: &NoiseLevel) -> Result<Image> {
        let ctx = self.space.context();
        let mut halo = RankHalo::new(ctx, &self.plan, self.network.model().network().rank());
        let Some(own) = &self.own else {
            agree(ctx, level.check(self.space.whole()))?;
            halo.finish(self.rounds)?;
            return Ok(image.clone());
        };
        // Parts that run wait for each other, so all begin or none does. What fails after that fails between ranks.
        let checked = level.check(self.space.whole()).and_then(|()| {
            let level = part_of_level(level, self.space.own());
            self.network.check(image.local(), &level)?;
            Ok(level)
        });
        let level = agree(ctx, checked)?;
        let _span = ctx.span("part");
        let trace = ctx.trace().filter(|trace| trace.wants_layers());
        let mut note = |layer: &str, length| {
            if let Some(trace) = trace {
                trace.note(layer.to_owned(), length);
            }
        };
        let result = own.denoise(image.local(), &level, &mut halo, &mut note);
        let result = halo.failure().map_or(result, |error| Err(error.into()))?;
        halo.finish(self.rounds)?;
        image.with(result)
    }
}

impl Denoiser for ShardedNetwork {
    fn name(&self) -> &str {
        self.network.name()
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        self.network.denoise(image, level)
    }

    fn denoise_image(&self, image: &Image, level: &NoiseLevel) -> Result<Image> {
        match image.layout() {
            Layout::Sharded(space) if *space == self.space => self.denoise_part(image, level),
            Layout::Sharded(space) => Err(Error::argument(
                self.name(),
                format!(
                    "it was planned for {:?} of images of shape {:?} here, and this is {:?} of {:?}; plan it for this space",
                    self.space.own(),
                    self.space.whole(),
                    space.own(),
                    space.whole()
                ),
            )),
            Layout::Replicated => Ok(self.denoise(image.local(), level)?.into()),
        }
    }

    fn alignment(&self) -> usize {
        self.network.alignment()
    }

    fn sides(&self) -> Option<usize> {
        self.network.sides()
    }

    fn network(&self) -> Option<&NetworkDenoiser> {
        Some(&self.network)
    }

    fn work(&self, image: &[usize]) -> Result<Work> {
        if image != self.space.whole() {
            return self.network.work(image);
        }
        let pixels = self.space.own()[2..].iter().map(Range::len).product::<usize>() as u64;
        Ok(Work { computed: pixels, kept: pixels })
    }
}

/// Refuses cuts that are not at the network's grains.
fn check_cuts(network: &NetworkDenoiser, space: &Space) -> Result<()> {
    let grains = network.grains(space.whole())?;
    for region in space.regions().iter().filter(|region| !is_empty(region)) {
        for (axis, (range, grain)) in region[2..].iter().zip(&grains).enumerate() {
            let side = space.whole()[axis + 2];
            let is_last = range.end == side && range.start > 0;
            if range.start % grain.step != 0 || (is_last && range.len() < grain.last) {
                return Err(Error::argument(
                    "shards",
                    format!(
                        "a part has {range:?} of {side} along axis {axis}; {} needs cuts at multiples of {}, and {} pixels \
                         after the last",
                        network.name(),
                        grain.step,
                        grain.last
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// The level of a part of the image.
fn part_of_level(level: &NoiseLevel, own: &Region) -> NoiseLevel {
    match level {
        NoiseLevel::Map(map) => {
            let mut region: Region = map.shape()[..2].iter().map(|side| 0..*side).collect();
            region.extend(own[2..].iter().cloned());
            NoiseLevel::Map(copied(map, &region))
        }
        NoiseLevel::Uniform(_) | NoiseLevel::PerImage(_) => level.clone(),
    }
}
