//! Where the values of an image are: all of them on every rank, or each part on its rank.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Collectives, Context, Reduction};

use super::sum::{RUN, Sum, sum_of};
use crate::array::{View, row_of, slice};
use crate::error::{Error, Result};
use crate::region::{self, Region, is_empty};
use crate::tiling::{ShardPlan, Tiles};

/// Where the values of an [`Image`](super::Image) are.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Layout {
    /// All of them on every rank, with the same bits.
    #[default]
    Replicated,
    /// Each rank has its own part.
    Sharded(Arc<Space>),
}

/// An array in parts, one for each rank. All ranks know all parts.
#[derive(Clone)]
pub struct Space {
    ctx: Context,
    whole: Vec<usize>,
    regions: Vec<Region>,
    /// How it was cut, if by a plan.
    plan: Option<ShardPlan>,
}

impl Space {
    /// The parts of a plan, each on the rank of its number; ranks beyond them have nothing.
    ///
    /// # Errors
    /// If there are more parts than ranks, or columns are not cut at multiples of 8.
    pub fn new(ctx: &Context, plan: &ShardPlan) -> Result<Arc<Self>> {
        if plan.count() > ctx.size() {
            return Err(Error::argument(
                "shards",
                format!(
                    "{} parts for {} ranks; give a rank to each part",
                    plan.count(),
                    ctx.size()
                ),
            ));
        }
        let regions = regions_of(plan, ctx.size());
        let space = Self::of_regions(ctx, plan.image_shape(), regions)?;
        Ok(Arc::new(Self { plan: Some(plan.clone()), ..space }))
    }

    /// The parts that so many ranks will have by a plan, before there are ranks: to count what they will send.
    pub(crate) fn outline(plan: &ShardPlan, ranks: usize) -> Arc<Self> {
        let regions = regions_of(plan, ranks);
        Arc::new(Self::unaligned(&Context::solo(), plan.image_shape(), regions))
    }

    /// The parts of an array that lie in these regions, one for each rank. Together they must be the array; empty regions have no
    /// part in it.
    pub(crate) fn of_regions(ctx: &Context, whole: &[usize], regions: Vec<Region>) -> Result<Self> {
        let starts = regions.iter().filter(|region| !is_empty(region)).filter_map(|r| r.last());
        if let Some(bad) = starts.map(|columns| columns.start).find(|start| start % RUN != 0) {
            return Err(Error::argument(
                "shards",
                format!("a part begins at column {bad}; cut columns at multiples of {RUN}"),
            ));
        }
        if regions.len() != ctx.size() {
            let reason = format!("{} parts for {} ranks", regions.len(), ctx.size());
            return Err(Error::argument("shards", reason));
        }
        region::check_cover(whole, &regions)?;
        Ok(Self::unaligned(ctx, whole, regions))
    }

    /// The same for arrays that are not summed, which may be cut anywhere.
    pub(crate) fn unaligned(ctx: &Context, whole: &[usize], regions: Vec<Region>) -> Self {
        Self { ctx: ctx.clone(), whole: whole.to_vec(), regions, plan: None }
    }

    /// The same parts of arrays that have one more axis, of so many places, before axis `at`.
    pub(crate) fn with_axis(&self, at: usize, places: usize) -> Arc<Self> {
        let mut with = Self { plan: None, ..self.clone() };
        with.whole.insert(at, places);
        with.regions.iter_mut().for_each(|region| region.insert(at, 0..places));
        Arc::new(with)
    }

    /// The same parts of another number of images.
    pub(crate) fn with_batch(&self, batch: usize) -> Self {
        let mut with = Self { plan: None, ..self.clone() };
        with.whole[0] = batch;
        with.regions.iter_mut().for_each(|region| region[0] = 0..batch);
        with
    }

    /// The ranks.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// The shape of the whole array.
    #[must_use]
    pub fn whole(&self) -> &[usize] {
        &self.whole
    }

    /// How it was cut.
    pub(crate) fn plan(&self) -> Option<&ShardPlan> {
        self.plan.as_ref()
    }

    /// The part of each rank.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The part of this rank.
    #[must_use]
    pub fn own(&self) -> &Region {
        &self.regions[self.ctx.rank()]
    }

    /// The shape of this rank's part.
    #[must_use]
    pub fn own_shape(&self) -> Vec<usize> {
        self.own().iter().map(Range::len).collect()
    }
}

/// The part of each rank; those beyond the parts of the plan have nothing.
fn regions_of(plan: &ShardPlan, ranks: usize) -> Vec<Region> {
    let whole = plan.image_shape();
    let of_rank = |rank: usize| {
        let nothing = || vec![0..0; whole.len() - 2];
        let spatial = if rank < plan.count() { plan.region(rank) } else { nothing() };
        [0..whole[0], 0..whole[1]].into_iter().chain(spatial).collect()
    };
    (0..ranks).map(of_rank).collect()
}

impl PartialEq for Space {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.whole == other.whole && self.regions == other.regions)
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space")
            .field("whole", &self.whole)
            .field("own", self.own())
            .finish_non_exhaustive()
    }
}

impl Layout {
    /// The totals of sums of which each rank has a share, or all, in one message.
    pub(crate) fn totals<const N: usize>(&self, sums: [Sum; N]) -> Result<[f64; N]> {
        match self {
            Self::Replicated => Ok(sums.map(|sum| sum.value())),
            Self::Sharded(space) => totals(&space.ctx, sums),
        }
    }

    /// The same for any number of sums.
    pub(crate) fn totals_of(&self, sums: Vec<Sum>) -> Result<Vec<f64>> {
        let Self::Sharded(space) = self else {
            return Ok(sums.iter().map(Sum::value).collect());
        };
        let mut words: Vec<[u64; Sum::WORDS]> = sums.into_iter().map(Sum::to_words).collect();
        space.ctx.comm().all_reduce(Reduction::Sum, words.as_flattened_mut())?;
        Ok(words.iter().map(|words| Sum::from_words(words).value()).collect())
    }

    /// The smallest of the first values of all ranks, and the largest of the second.
    pub(crate) fn extremes(&self, (low, high): (f32, f32)) -> Result<(f32, f32)> {
        let Self::Sharded(space) = self else { return Ok((low, high)) };
        let mut ends = [low, -high];
        space.ctx.comm().all_reduce(Reduction::Min, &mut ends)?;
        Ok((ends[0], -ends[1]))
    }

    /// One outcome for all ranks that share the array.
    pub(crate) fn agree<T>(&self, outcome: Result<T>) -> Result<T> {
        match self {
            Self::Replicated => outcome,
            Self::Sharded(space) => crate::distribute::agree(&space.ctx, outcome),
        }
    }
}

/// The totals of sums of which each rank has a share, in one message.
pub(crate) fn totals<const N: usize>(ctx: &Context, sums: [Sum; N]) -> Result<[f64; N]> {
    let mut words = sums.map(Sum::to_words);
    ctx.comm().all_reduce(Reduction::Sum, words.as_flattened_mut())?;
    Ok(words.map(|words| Sum::from_words(&words).value()))
}

/// The inner product of two arrays of which each rank has whole runs.
pub(crate) fn dot_on_ranks(ctx: &Context, a: &View, b: &View) -> Result<f64> {
    let product = |[a, b]: [f32; 2]| f64::from(a) * f64::from(b);
    let [total] = totals(ctx, [sum_of([&slice(a), &slice(b)], row_of(a), product)])?;
    Ok(total)
}
