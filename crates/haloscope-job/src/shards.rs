//! Jobs whose image is in shards: what they need, how the image is cut, and where the parts of data and truth come from.
//!
//! No rank holds the image or a measurement. Measurements in files are read by region. A truth, which a simulation needs, is
//! made or read by the first rank, which sends every rank its part and keeps none of the rest.

use std::ops::Range;

use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::{ShardedStack, agree};
use haloscope::image::{Image, Region, Space};
use haloscope::noise::NoiseSource;
use haloscope::physics::Stack;
use haloscope::tiling::{ShardPlan, Shards};
use haloscope::{Error, Measurements, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::Grain;

use crate::Job;
use crate::document::Place;
use crate::layout::Layout;
use crate::sections::measurements::Source;
use crate::sections::operators::Entry;
use crate::sections::prior::{BLOCK, PriorKind};

/// `image = "sharded"` of a job.
#[derive(Clone, Debug)]
pub(crate) struct ShardedPlan {
    pub place: Place,
    /// The parts along each side.
    pub shards: Shards,
}

impl ShardedPlan {
    fn refuse(&self, reason: impl std::fmt::Display) -> Error {
        self.place.refuse(format!("{reason}; image = \"replicated\" works"))
    }
}

/// Operators on an image in shards, with their parts of the measurements, and the truth and its range, if there is one.
pub(crate) struct AcquiredShards {
    pub physics: ShardedStack,
    pub data: Measurements,
    pub truth: Option<(Image, f64)>,
}

impl Job {
    /// Whether the image is in shards.
    #[must_use]
    pub fn is_sharded(&self) -> bool {
        self.image.sharded.is_some()
    }

    /// Refuses what an image in shards cannot serve, as far as the job itself says it.
    pub(crate) fn check_shards(&self) -> Result<()> {
        let Some(plan) = &self.image.sharded else { return Ok(()) };
        if self.operators.iter().any(Entry::is_scan) {
            return Err(plan.refuse(
                "an image in shards needs operators that see a part of it at a time, and the views of a scan see all of it",
            ));
        }
        if let PriorKind::Network(network) = &self.prior.kind
            && let Some(key) = network.tiling_key()
        {
            return Err(plan.refuse(format!(
                "a network on an image in shards is exact and has the image's parts, and [prior] has `{key}`: leave it out"
            )));
        }
        if let Source::Files(files) = &self.measurements
            && files.has_frames()
        {
            return Err(plan.refuse(
                "`flat`, `dark` and `logarithm` are for measurements that are read as a whole, and those of an image in \
                 shards are read in parts",
            ));
        }
        if self.output.folder.is_some() && self.output.files.is_empty() {
            return Err(plan.refuse(
                "pictures and a report are not made of an image in shards, so `folder` of [output] stays empty: give `file`",
            ));
        }
        Ok(())
    }

    /// How an image of this shape (batch, channel, spatial…) is cut for so many ranks, if it is.
    pub(crate) fn shard_plan(
        &self,
        image: &[usize],
        network: Option<&NetworkDenoiser>,
        ranks: usize,
    ) -> Result<Option<ShardPlan>> {
        let Some(plan) = &self.image.sharded else { return Ok(None) };
        let anywhere = Grain { step: 1, last: 1 };
        let mut grains = match network {
            Some(network) => network.grains(image).map_err(|error| plan.refuse(error))?,
            None => vec![anywhere; image.len() - 2],
        };
        // No cut divides a block by which the range of the image is found.
        for grain in &mut grains {
            grain.step = least_common_multiple(grain.step.max(1), BLOCK);
        }
        let shards = ShardPlan::with_shards(image, &grains, &plan.shards, ranks);
        shards.map(Some).map_err(|error| plan.place.refuse(error))
    }

    /// Whether the result may differ from that of a replicated image: closed forms of the data term by Fourier transforms,
    /// and tiles of a network, are for whole images.
    pub(crate) fn has_own_bits_in_shards(
        &self,
        layout: &Layout,
        network: Option<&NetworkDenoiser>,
    ) -> Result<bool> {
        if !self.is_sharded() {
            return Ok(false);
        }
        let is_pixelwise = |name: &str| matches!(name, "identity" | "inpainting" | "decolorize");
        let has_closed_form = self.solver.method.has_prox()
            && !layout.recipes.iter().all(|recipe| is_pixelwise(recipe.name()));
        let has_tiles = match (&self.prior.kind, network) {
            (PriorKind::Network(plan), Some(network)) => {
                !plan.tiling().choose(&layout.image, network)?.is_exact()
            }
            _ => false,
        };
        Ok(has_closed_form || has_tiles)
    }
}

impl AcquiredShards {
    /// Makes the operators and reads or simulates this rank's parts of what they measured; all ranks call it.
    pub(crate) fn new(
        ctx: &Context,
        job: &Job,
        layout: &mut Layout,
        plan: &ShardPlan,
    ) -> Result<Self> {
        let space = agree(ctx, Space::new(ctx, plan))?;
        let make = || -> Result<Stack> {
            let made = layout.recipes.iter().map(|recipe| {
                let operator = recipe.make()?;
                match (operator.as_window(), &job.image.sharded) {
                    (None, Some(plan)) => Err(plan.refuse(format!(
                        "an image in shards needs operators that see a part of it at a time, and {} sees all of it",
                        recipe.name()
                    ))),
                    _ => Ok(operator),
                }
            });
            Stack::new(made.collect::<Result<_>>()?)
        };
        let physics = ShardedStack::new(agree(ctx, make())?, &space)?;
        let truth = match layout.range {
            Some(range) => {
                let whole = layout.truth.take();
                let part = Image::scatter(&space, whole.as_ref().map(|truth| &*truth.image))?;
                Some((part, range))
            }
            None => None,
        };
        let data = match (&job.measurements, &truth) {
            (Source::Simulation(simulation), Some((truth, _))) => {
                let mut data = physics.forward(truth)?;
                let noise = &simulation.noise;
                let add = data.iter_mut().try_for_each(|(index, part)| {
                    let space = &physics.measured()[index];
                    let source = NoiseSource { seed: simulation.seed, operator: index as u32 };
                    let place = (space.whole(), &space.own()[..]);
                    noise[index.min(noise.len() - 1)].add_to_part(part, place, source)
                });
                agree(ctx, add)?;
                data
            }
            _ => read(ctx, job, layout, &physics)?,
        };
        Ok(Self { physics, data, truth })
    }

    /// Digests of all operators' measurements, in their order, those of a replicated image; all ranks call it.
    pub(crate) fn digests(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (index, part) in self.data.iter() {
            let whole = Image::sharded(&self.physics.measured()[index], part.clone())?;
            bytes.extend(whole.digest()?.to_le_bytes());
        }
        Ok(bytes)
    }
}

/// This rank's parts of measurements in files.
fn read(ctx: &Context, job: &Job, layout: &Layout, physics: &ShardedStack) -> Result<Measurements> {
    let Source::Files(files) = &job.measurements else {
        return Err(Error::argument("measurements", "there are no files"));
    };
    let shapes: Vec<Vec<usize>> =
        physics.measured().iter().map(|space| space.whole()[1..].to_vec()).collect();
    let mut parts = Vec::new();
    for (index, space) in physics.measured().iter().enumerate() {
        let check = |shape: &[usize]| layout.check_shape(&shapes, index, shape);
        let part = files.load_part(ctx, layout.recipes[index].file, space, check)?;
        let checked = if part.is_empty() { Ok(()) } else { layout.check_values(job, index, &part) };
        agree(ctx, checked)?;
        parts.push((index, part));
    }
    Measurements::partial(physics.len(), parts)
}

/// The parts of all ranks along the spatial axes; none for ranks without one.
pub(crate) fn spatial_regions(space: &Space) -> Vec<Region> {
    let spatial = |part: &Region| {
        let is_empty = part.iter().any(Range::is_empty);
        if is_empty { Vec::new() } else { part[2..].to_vec() }
    };
    space.regions().iter().map(spatial).collect()
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}
