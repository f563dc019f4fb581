//! Jobs whose image is in shards: what they need, how the image is cut, and where the parts of data and truth come from.
//!
//! No rank holds the image or a measurement. Measurements, truths, masks and images to start from are read by region, and the
//! views of a scan by the ranks that have them. A phantom is made by the first rank, which sends every rank its part and keeps
//! none of the rest. So is an image that is made smaller (`shrink`), and a scan whose shape nothing less than all of it tells.

use std::ops::Range;

use haloscope::denoise::{Axes, NetworkDenoiser};
use haloscope::distribute::{ShardedStack, agree};
use haloscope::image::{Image, Region, Space};
use haloscope::noise::NoiseSource;
use haloscope::physics::Stack;
use haloscope::tiling::{ShardPlan, Shards, coarse_grains};
use haloscope::{Error, Measurements, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::Grain;
use toml::de::DeValue;

use crate::Job;
use crate::document::{Place, Section, Value};
use crate::job::LayoutPlan;
use crate::layout::Layout;
use crate::sections::measurements::{ImageFile, Source};
use crate::sections::operators::{Entry, Recipe};
use crate::sections::prior::{BLOCK, PriorKind};

/// `image = "sharded"` of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardedPlan {
    /// Where the job says so, unless it leaves it open.
    pub place: Option<Place>,
}

impl ShardedPlan {
    fn refuse(&self, reason: impl std::fmt::Display) -> Error {
        let reason = format!("{reason}; image = \"replicated\" works");
        match &self.place {
            Some(place) => place.refuse(reason),
            None => Error::argument("image", reason),
        }
    }
}

/// `shards`: the parts along each side, of an image in shards or of an exact network on a replicated one.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub place: Place,
    pub shards: Shards,
}

/// What is written at `shards`.
struct GridValue(Shards);

impl<'a> Value<'a> for GridValue {
    fn expected() -> String {
        "\"auto\", or the number of parts along each side, as in [2, 2]".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self(Shards::Auto)),
            Some(_) => None,
            None => Vec::of(value).map(|grid| Self(Shards::Grid(grid))),
        }
    }
}

impl Grid {
    /// The grid of a section, if it has one.
    pub(crate) fn read(section: &Section) -> Result<Option<Self>> {
        let value: Option<GridValue> = section.get("shards")?;
        Ok(value.map(|GridValue(shards)| Self { place: section.place_of("shards"), shards }))
    }

    /// The one of two grids that there is.
    pub(crate) fn only(of_image: Option<Self>, of_prior: Option<Self>) -> Result<Option<Self>> {
        match (of_image, of_prior) {
            (Some(_), Some(again)) => Err(again.place.refuse(
                "`shards` also stand beside `image`, which is enough: leave them out here",
            )),
            (one, other) => Ok(one.or(other)),
        }
    }

    /// Whether it says how many parts there are.
    pub(crate) fn is_given(&self) -> bool {
        self.shards != Shards::Auto
    }
}

/// Operators on an image in shards, with their parts of the measurements, and the truth and its range, if there is one.
pub(crate) struct AcquiredShards {
    pub physics: ShardedStack,
    pub data: Measurements,
    pub truth: Option<(Image, f64)>,
}

impl Job {
    /// Whether the image is in shards for certain. With `image = "auto"`, that depends on the ranks.
    #[must_use]
    pub fn is_sharded(&self) -> bool {
        matches!(self.image.layout, LayoutPlan::Sharded(_))
    }

    /// Whether it is because the job says so.
    pub(crate) fn must_be_sharded(&self) -> bool {
        matches!(&self.image.layout, LayoutPlan::Sharded(plan) if plan.place.is_some())
    }

    /// Refuses what an image in shards cannot serve, as far as the job itself says it.
    pub(crate) fn check_shards(&self) -> Result<()> {
        let obstacle = self.obstacle_to_shards();
        if let (LayoutPlan::Sharded(plan), Some(obstacle)) = (&self.image.layout, obstacle) {
            return Err(plan.refuse(obstacle));
        }
        let grid = self.image.grid.as_ref().filter(|grid| grid.is_given());
        let has_network = matches!(self.prior.kind, PriorKind::Network(_));
        match (&self.image.layout, grid) {
            (LayoutPlan::Replicated, Some(grid)) if !has_network => Err(grid.place.refuse(
                "`shards` are given, and nothing is cut: the image is replicated and there is no network; leave them out, \
                 or take image = \"sharded\"",
            )),
            _ => Ok(()),
        }
    }

    /// Why the image cannot be in shards, as far as the job itself says it.
    pub(crate) fn obstacle_to_shards(&self) -> Option<String> {
        if let PriorKind::Network(network) = &self.prior.kind
            && let Some(key) = network.tiling_key()
        {
            return Some(format!(
                "a network on an image in shards is exact and has the image's parts, and [prior] has `{key}`: leave it out"
            ));
        }
        if let PriorKind::Network(network) = &self.prior.kind
            && network.axes != Axes::Axial
        {
            return Some(format!(
                "a network that looks at the image in several ways turns it, which parts of it cannot be, and [prior] has axes = \
                 \"{}\": take \"axial\", or image = \"replicated\"",
                network.axes.name()
            ));
        }
        if let PriorKind::Wavelets { .. } = &self.prior.kind {
            return Some(
                "wavelets are coefficients of the whole image, of which no rank would have all: take image = \"replicated\", or \
                 kind = \"total-variation\" in [prior]"
                    .into(),
            );
        }
        if let Source::Files(files) = &self.measurements
            && files.has_frames()
            && !self.operators.iter().all(Entry::is_scan)
        {
            return Some(
                "`flat`, `dark` and `logarithm` are for measurements that are read as a whole, and those of an image in \
                 shards are read in parts"
                    .into(),
            );
        }
        if !self.operators.iter().all(Entry::measures_pixels) {
            return Some(
                "operators that measure frequencies see the whole image, of which no rank would have all".into(),
            );
        }
        if self.output.dirty.is_some() || self.output.point_spread.is_some() {
            return Some("`dirty` and `psf` of [output] are written of whole images".into());
        }
        if self.preparation.is_given() {
            return Some(
                "[preparation] works on whole views, and an image in shards has parts of them"
                    .into(),
            );
        }
        if self.output.folder.is_some() && self.output.files.is_empty() {
            return Some(
                "pictures and a report are not made of an image in shards, so `folder` of [output] stays empty: give `file`"
                    .into(),
            );
        }
        None
    }

    /// How an image of this shape (batch, channel, spatial…) is cut for so many ranks, if it is in shards.
    pub(crate) fn shard_plan(
        &self,
        image: &[usize],
        network: Option<&NetworkDenoiser>,
        ranks: usize,
    ) -> Result<Option<ShardPlan>> {
        let LayoutPlan::Sharded(plan) = &self.image.layout else { return Ok(None) };
        let anywhere = Grain { step: 1, last: 1 };
        let mut grains = match network {
            Some(network) => network.grains(image).map_err(|error| plan.refuse(error))?,
            None => vec![anywhere; image.len() - 2],
        };
        // No cut divides a block by which the range of the image is found.
        for grain in &mut grains {
            grain.step = least_common_multiple(grain.step.max(1), BLOCK);
        }
        // The views of a scan see everything, of one grain after the other.
        if self.has_scan() {
            grains = coarse_grains(&image[2..], &grains);
        }
        let grid = self.image.grid.as_ref();
        let given = grid.map_or(&Shards::Auto, |grid| &grid.shards);
        let place = grid.map(|grid| &grid.place).or(plan.place.as_ref());
        let shards = match network {
            Some(network) => network.cut_at(image, &grains, given, ranks),
            None => ShardPlan::with_shards(image, &grains, given, ranks),
        };
        shards.map(Some).map_err(|error| match place {
            Some(place) => place.refuse(error),
            None => error,
        })
    }

    /// The file with the truth, if ranks can read their parts of it.
    pub(crate) fn truth_in_parts(&self) -> Option<&ImageFile> {
        let file = match &self.measurements {
            Source::Simulation(simulation) => simulation.file(),
            _ => self.truth.as_ref().and_then(|plan| plan.file.as_ref()),
        };
        file.filter(|file| file.has_parts())
    }

    /// Whether some operators are views of a scan, which see the whole image.
    pub(crate) fn has_scan(&self) -> bool {
        self.operators.iter().any(Entry::is_scan)
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
        for scan in layout.recipes.iter().filter_map(Recipe::scan) {
            scan.normalise_in_shards(&space)?;
        }
        let make = || -> Result<Stack> {
            let part = &space.own()[2..];
            let made = layout.recipes.iter().map(|recipe| recipe.make_part(part));
            Stack::new(made.collect::<Result<_>>()?)
        };
        let physics = ShardedStack::new(agree(ctx, make())?, &space)?;
        let truth = match layout.range {
            Some(range) => {
                let part = if let Some(file) = job.truth_in_parts() {
                    Image::sharded(&space, file.load_part(ctx, &space)?)?
                } else {
                    let whole = layout.truth.take();
                    Image::scatter(&space, whole.as_ref().map(|truth| &*truth.image))?
                };
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
            _ => layout.read_shards(ctx, job, &physics)?,
        };
        layout.kept.clear();
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
