//! An operator that sees the whole image, on an image in shards: each rank projects its part, and sums are exact.
//!
//! The parts of all ranks consist of the same grains, whatever the number of ranks. What an operator makes of a grain is rounded to
//! multiples of one unit that all ranks know, so that the sum over grains is one of integers and has no order. The measurement
//! is dealt to the ranks: each gets the sums of its share, and gives its share to all ranks for the adjoint, which every rank
//! computes grain by grain.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Collectives, Context, ElementKind, Reduction, partition, traffic};
use haloscope_nn::Stop;

use super::{Workers, agree};
use crate::array::{Array, slice, slice_mut};
use crate::error::{Error, Result};
use crate::image::{RUN, Space};
use crate::physics::{FixedPoint, Physics};
use crate::region::{Region, copied, place};
use crate::tiling::ShardPlan;

/// How much more an image may give than one of as large values whose signs were drawn. In a sum over n values, signs cost a factor
/// of about √n, so this is enough for 2²⁸ values; the unit is still 2⁻⁴² of the greatest sums. What gives more is computed twice.
const MARGIN: f32 = 16_384.0;

/// An operator on the grains that this rank has.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    /// Where each grain is in this rank's part, along the spatial axes, and the operator on it.
    grains: Arc<[(Region, Arc<dyn Physics>)]>,
    /// How many there are on all ranks.
    count: usize,
    /// The greatest sample that an image of 1 and −1 in one grain gives.
    response: f32,
    shape: Vec<usize>,
}

impl Whole {
    /// An operator for images of a space that was cut by a plan. All ranks call it.
    ///
    /// # Errors
    /// If the operator cannot be restricted to parts of the image.
    pub(super) fn new(
        index: usize,
        operator: &dyn Physics,
        space: &Space,
        plan: &ShardPlan,
        workers: &Workers,
    ) -> Result<Self> {
        let all = plan.grains();
        let own = &space.own()[2..];
        let make = || -> Result<Vec<(Region, Arc<dyn Physics>)>> {
            let mut grains = Vec::new();
            for grain in &all {
                let is_own = grain.iter().zip(own).all(|(grain, own)| {
                    own.start <= grain.start && grain.end <= own.end && !grain.is_empty()
                });
                if is_own {
                    let restricted = restricted(index, operator, grain)?;
                    let within = |(grain, own): (&Range<usize>, &Range<usize>)| {
                        grain.start - own.start..grain.end - own.start
                    };
                    grains.push((grain.iter().zip(own).map(within).collect(), restricted));
                }
            }
            Ok(grains)
        };
        let ctx = space.context();
        let grains: Arc<[_]> = agree(ctx, workers.run(make))?.into();
        let shape = operator.measurement_shape().to_vec();
        let whole = Self { grains, count: all.len(), response: 0.0, shape };
        let response = workers.run(|| whole.respond());
        let mut response = [agree(ctx, response)?];
        ctx.comm().all_reduce(Reduction::Max, &mut response)?;
        Ok(Self { response: response[0], ..whole })
    }

    /// The greatest sample that an image of 1 and −1 in one of this rank's grains gives.
    fn respond(&self) -> Result<f32> {
        let mut most = 0.0;
        for (_, operator) in &self.grains[..] {
            let mut place = 0_u64;
            let shape = [&[1], operator.image_shape()].concat();
            let signs = Array::from_shape_simple_fn(shape, || {
                place += 1;
                // The highest bit of a multiplicative hash.
                if place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { 1.0 } else { -1.0 }
            });
            most = greatest(&operator.forward(&signs)?, most);
        }
        Ok(most)
    }

    /// This rank's share of `A x`, from its part of an image whose values are up to `largest`. All ranks call it. `failed` is
    /// what went wrong on this rank before, and becomes an error on all.
    pub(super) fn forward(
        &self,
        (image, largest): (&Array, f32),
        measured: &Space,
        workers: &Workers,
        failed: Result<()>,
    ) -> Result<Array> {
        let ctx = measured.context();
        let shares = Shares::new(measured);
        let bound = (self.response * MARGIN * largest).min(f32::MAX);
        let project = |bound: f32, failed: Result<()>| -> Result<(FixedPoint, Vec<i64>, f32)> {
            let sums = failed
                .and_then(|()| FixedPoint::new(bound, self.count))
                .and_then(|unit| Ok((unit, workers.run(|| self.sums(image, unit, &shares))?)));
            let (unit, (sums, most)) = agree(ctx, sums)?;
            let mut most = [most];
            ctx.comm().all_reduce(Reduction::Max, &mut most)?;
            Ok((unit, sums, most[0]))
        };
        let (mut unit, mut sums, most) = project(bound, failed)?;
        if most > bound {
            drop(sums);
            (unit, sums, _) = project(most, Ok(()))?;
        }
        let mut result = Array::zeros(measured.own_shape());
        if ctx.size() > 1 {
            // Integers of either sign are added alike.
            let words: Vec<u64> = sums.into_iter().map(|sum| sum as u64).collect();
            let _span = ctx.span("sum");
            let own = ctx.comm().reduce_scatter(Reduction::Sum, &words, &shares.counts)?;
            drop(words);
            sums = own.into_iter().map(|sum| sum as i64).collect();
        }
        unit.round(&sums, slice_mut(&mut result));
        Ok(result)
    }

    /// What the rank's grains give, added up in the order of the shares, and the greatest sample of one of them.
    fn sums(&self, image: &Array, unit: FixedPoint, shares: &Shares) -> Result<(Vec<i64>, f32)> {
        let mut sums = vec![0; shares.counts.iter().sum()];
        let mut most = 0.0;
        for (grain, operator) in &self.grains[..] {
            Stop::check()?;
            let term = operator.forward(&copied(image, &with_planes(image, grain)))?;
            most = greatest(&term, most);
            let term = slice(&term);
            let mut rest = &mut sums[..];
            for run in &shares.runs {
                let (to, after) = rest.split_at_mut(run.len());
                unit.add(&term[run.clone()], to);
                rest = after;
            }
        }
        Ok((sums, most))
    }

    /// Brings a measurement together of which each rank has its share. All ranks call it.
    pub(super) fn gather(share: &Array, measured: &Space) -> Result<Array> {
        let ctx = measured.context();
        if ctx.size() == 1 {
            return Ok(share.clone());
        }
        let _span = ctx.span("gather");
        let shares = Shares::new(measured);
        let mut all = vec![0.0_f32; shares.counts.iter().sum()];
        ctx.comm().all_gather_into(&slice(share), &shares.counts, &mut all)?;
        let mut whole = Array::zeros(measured.whole());
        let to = slice_mut(&mut whole);
        let mut rest = &all[..];
        for run in shares.runs {
            let (from, after) = rest.split_at(run.len());
            to[run].copy_from_slice(from);
            rest = after;
        }
        Ok(whole)
    }

    /// This rank's part of `Aᵀ y`, which has this shape, of a whole measurement.
    pub(super) fn adjoint(&self, measurement: &Array, shape: &[usize]) -> Result<Array> {
        let mut image = Array::zeros(shape);
        for (grain, operator) in &self.grains[..] {
            Stop::check()?;
            let linear = operator.as_linear().ok_or_else(|| not_linear(&**operator))?;
            let part = linear.adjoint(measurement)?;
            let region = with_planes(&image, grain);
            place(&mut image, &region, &part);
        }
        Ok(image)
    }

    /// The shape of its measurement, without the batch.
    pub(super) fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }
}

/// The share of a measurement, (batch, …), that each rank has: rows of an even number along the axis behind the channels, or runs
/// of columns if there is no other. Operators begin with a rank each, so that many of few rows are spread, too.
pub(super) fn shares(index: usize, shape: &[usize], ranks: usize) -> Vec<Region> {
    let axis = 2.min(shape.len() - 1);
    let unit = if axis + 1 == shape.len() { RUN } else { 1 };
    let even = partition::even(shape[axis].div_ceil(unit), ranks);
    let region = |rank: usize| -> Region {
        let own = &even[(rank + ranks - index % ranks) % ranks];
        let range = (unit * own.start).min(shape[axis])..(unit * own.end).min(shape[axis]);
        let whole = |(at, &side): (usize, &usize)| if at == axis { range.clone() } else { 0..side };
        shape.iter().enumerate().map(whole).collect()
    };
    (0..ranks).map(region).collect()
}

/// The bytes that a rank sends for a forward and for an adjoint of an operator whose measurement is dealt so.
pub(super) fn bytes_sent(measured: &Space, rank: usize) -> (u64, u64) {
    let regions = measured.regions();
    let ranks = regions.len();
    if ranks == 1 {
        return (0, 0);
    }
    let volume = |region: &Region| region.iter().map(Range::len).product::<usize>();
    let counts: Vec<usize> = regions.iter().map(volume).collect();
    let agreement = traffic::all_gather(&vec![1; ranks])[rank];
    let others = counts.iter().sum::<usize>() - counts[rank];
    let most = traffic::all_reduce(ElementKind::F32, 1, ranks)[rank];
    let bytes: Vec<usize> = counts.iter().map(|count| 4 * count).collect();
    (agreement + most + 8 * others as u64, traffic::all_gather(&bytes)[rank])
}

/// Refuses an operator that neither works on windows nor can be restricted to parts of the image.
pub(super) fn restricted(
    index: usize,
    operator: &dyn Physics,
    grain: &[Range<usize>],
) -> Result<Arc<dyn Physics>> {
    let linear = operator.as_linear().ok_or_else(|| not_linear(operator))?;
    linear.restricted(grain).unwrap_or_else(|| {
        let reason = format!(
            "operator {index} ({}) sees the whole image and has no parts, so images cannot be in shards; use a replicated \
             image",
            operator.name()
        );
        Err(Error::argument("shards", reason))
    })
}

fn not_linear(operator: &dyn Physics) -> Error {
    let reason = format!(
        "{} is not linear, so images cannot be in shards; use a replicated image",
        operator.name()
    );
    Error::argument("shards", reason)
}

/// The shares of all ranks one after the other, as they are sent.
struct Shares {
    /// Where the values are in memory.
    runs: Vec<Range<usize>>,
    /// How many each rank has.
    counts: Vec<usize>,
}

impl Shares {
    fn new(measured: &Space) -> Self {
        let shape = measured.whole();
        let axis = 2.min(shape.len() - 1);
        let planes: usize = shape[..axis].iter().product();
        let row: usize = shape[axis + 1..].iter().product();
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut counts = Vec::new();
        for region in measured.regions() {
            let own = &region[axis];
            counts.push(planes * own.len() * row);
            for plane in 0..planes {
                let begin = plane * shape[axis];
                let run = (begin + own.start) * row..(begin + own.end) * row;
                match runs.last_mut() {
                    _ if run.is_empty() => (),
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
            }
        }
        Self { runs, counts }
    }
}

/// The greater of the magnitudes of the samples and another one; infinite if one of them is no number.
fn greatest(samples: &Array, other: f32) -> f32 {
    samples.iter().fold(other, |most, sample| match sample.abs() {
        sample if sample.is_nan() => f32::INFINITY,
        sample => most.max(sample),
    })
}

/// The largest magnitude in the parts of an image that ranks have. All ranks call it.
pub(super) fn largest(ctx: &Context, part: &Array) -> Result<f32> {
    let mut largest = [greatest(part, 0.0)];
    ctx.comm().all_reduce(Reduction::Max, &mut largest)?;
    Ok(largest[0])
}

/// All images and channels of a part, at a box along the spatial axes.
fn with_planes(part: &Array, spatial: &[Range<usize>]) -> Region {
    let planes = part.shape()[..2].iter().map(|side| 0..*side);
    planes.chain(spatial.iter().cloned()).collect()
}
