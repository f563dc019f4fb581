//! An operator that sees the whole image, on an image in shards: each rank projects its part, and sums are exact.
//!
//! The parts of all ranks consist of the same grains, whatever the number of ranks. What an operator makes of a grain is rounded to
//! multiples of one unit that all ranks know, so that the sum over grains is one of integers and has no order. The measurement
//! is dealt to the ranks: each gets the sums of its share, and gives of its share what the others need for the adjoint, which every
//! rank computes grain by grain.
//!
//! Where a part of the image has its shadow on some rows of a detector only, as slabs of a volume do, ranks own the rows in the
//! middle of their shadow, and only what lies in the shadow of another rank travels to or from it: nothing at all where rows and
//! planes coincide. Otherwise everybody needs everything.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Collectives, Context, ElementKind, Reduction, partition, traffic};
use haloscope_nn::Stop;
use ndarray::{ArrayD, Axis, Slice};

use super::{Workers, agree};
use crate::array::{Array, slice, slice_mut};
use crate::error::{Error, Result};
use crate::image::{Needed, RUN, Space, WindowPlan};
use crate::physics::{FixedPoint, Physics};
use crate::region::{Region, copied, is_empty, place, sides, volume, whole, within};
use crate::tiling::ShardPlan;

/// How much more an image may give than one of as large values whose signs were drawn. In a sum over n values, signs cost a factor
/// of about √n, so this is enough for 2²⁸ values; the unit is still 2⁻⁴² of the greatest sums. What gives more is computed twice.
const MARGIN: f32 = 16_384.0;

/// An operator on the grains that this rank has.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    grains: Arc<[GrainOperator]>,
    /// How many there are on all ranks.
    count: usize,
    /// The greatest sample that an image of 1 and −1 in one grain gives.
    response: f32,
    shape: Vec<usize>,
    /// Of the parts of all ranks.
    shadows: Arc<[Region]>,
}

/// An operator on one grain, which measures the shadow of the grain.
#[derive(Debug)]
struct GrainOperator {
    /// Where the grain is in this rank's part, along the spatial axes.
    place: Region,
    operator: Arc<dyn Physics>,
    /// Behind the channels of the measurement.
    shadow: Region,
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
        let make = || -> Result<Vec<GrainOperator>> {
            let mut grains = Vec::new();
            for grain in &all {
                let is_own = grain.iter().zip(own).all(|(grain, own)| {
                    own.start <= grain.start && grain.end <= own.end && !grain.is_empty()
                });
                if is_own {
                    let (operator, shadow) =
                        (restricted(index, operator, grain)?, shadow(operator, grain));
                    grains.push(GrainOperator { place: within(grain, own), operator, shadow });
                }
            }
            Ok(grains)
        };
        let ctx = space.context();
        let grains: Arc<[_]> = agree(ctx, workers.run(make))?.into();
        let shape = operator.measurement_shape().to_vec();
        let shadows = shadows(operator, space).into();
        let whole = Self { grains, count: all.len(), response: 0.0, shape, shadows };
        let response = workers.run(|| whole.respond());
        let mut response = [agree(ctx, response)?];
        ctx.comm().all_reduce(Reduction::Max, &mut response)?;
        Ok(Self { response: response[0], ..whole })
    }

    /// The greatest sample that an image of 1 and −1 in one of this rank's grains gives.
    fn respond(&self) -> Result<f32> {
        let mut most = 0.0;
        for GrainOperator { operator, .. } in &self.grains[..] {
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
    /// what went wrong on this rank before, and becomes an error on all. `windows` is the plan of the [`Needed`] shadows.
    pub(super) fn forward(
        &self,
        (image, largest): (&Array, f32),
        (measured, windows): (&Space, Option<&WindowPlan>),
        workers: &Workers,
        failed: Result<()>,
    ) -> Result<Array> {
        let ctx = measured.context();
        let target = match windows {
            Some(_) => Target::Shadow(&self.shadows[ctx.rank()]),
            None => Target::Shares(Shares::new(measured)),
        };
        let batch = measured.whole()[0];
        let bound = (self.response * MARGIN * largest).min(f32::MAX);
        let project = |bound: f32, failed: Result<()>| -> Result<(FixedPoint, Sums, f32)> {
            let sums = failed.and_then(|()| FixedPoint::new(bound, self.count)).and_then(|unit| {
                Ok((unit, workers.run(|| self.sums(image, unit, batch, &target))?))
            });
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
        let own: Vec<i64> = match (windows, &target) {
            (Some(windows), _) => {
                let _span = ctx.span("sum");
                windows.add_up(&sums, &measured.own_shape())?.into_raw_vec_and_offset().0
            }
            (None, Target::Shares(shares)) if ctx.size() > 1 => {
                // Integers of either sign are added alike.
                let (sums, _) = sums.into_raw_vec_and_offset();
                let words: Vec<u64> = sums.into_iter().map(|sum| sum as u64).collect();
                let _span = ctx.span("sum");
                let own = ctx.comm().reduce_scatter(Reduction::Sum, &words, &shares.counts)?;
                drop(words);
                own.into_iter().map(|sum| sum as i64).collect()
            }
            _ => sums.into_raw_vec_and_offset().0,
        };
        unit.round(&own, slice_mut(&mut result));
        Ok(result)
    }

    /// What the rank's grains give, added up, and the greatest sample of one of them.
    fn sums(
        &self,
        image: &Array,
        unit: FixedPoint,
        batch: usize,
        target: &Target<'_>,
    ) -> Result<(Sums, f32)> {
        let all = self.with_planes(batch, &whole(&self.shape[1..]));
        let mut sums = Sums::zeros(match target {
            Target::Shadow(shadow) => sides(&self.with_planes(batch, shadow)),
            Target::Shares(shares) => vec![shares.counts.iter().sum()],
        });
        let mut most = 0.0;
        for grain in &self.grains[..] {
            Stop::check()?;
            let part = copied(image, &with_planes(image, &grain.place));
            let mut term = grain.operator.forward(&part)?;
            most = greatest(&term, most);
            match target {
                Target::Shadow(shadow) => {
                    let mut to = sums.view_mut();
                    for (axis, range) in within(&grain.shadow, shadow).into_iter().enumerate() {
                        to.slice_axis_inplace(Axis(axis + 2), Slice::from(range));
                    }
                    for (mut to, term) in to.rows_mut().into_iter().zip(term.rows()) {
                        let lines = to.as_slice_mut().zip(term.as_slice());
                        let (to, term) = lines.expect("the last axis is contiguous");
                        unit.add(term, to);
                    }
                }
                Target::Shares(shares) => {
                    let shadow = self.with_planes(batch, &grain.shadow);
                    if shadow != all {
                        let own = std::mem::replace(&mut term, Array::zeros(sides(&all)));
                        place(&mut term, &shadow, &own);
                    }
                    let term = slice(&term);
                    let mut rest = sums.as_slice_mut().expect("it was just made");
                    for run in &shares.runs {
                        let (to, after) = rest.split_at_mut(run.len());
                        unit.add(&term[run.clone()], to);
                        rest = after;
                    }
                }
            }
        }
        Ok((sums, most))
    }

    /// A box behind the channels, of all images and channels.
    fn with_planes(&self, batch: usize, shadow: &[Range<usize>]) -> Region {
        [0..batch, 0..self.shape[0]].into_iter().chain(shadow.iter().cloned()).collect()
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

    /// This rank's part of `Aᵀ y`, which has this shape, of what a measurement has in the shadow of the part.
    pub(super) fn adjoint(
        &self,
        measurement: &Array,
        shape: &[usize],
        rank: usize,
    ) -> Result<Array> {
        let mut image = Array::zeros(shape);
        for grain in &self.grains[..] {
            Stop::check()?;
            let operator = &grain.operator;
            let linear = operator.as_linear().ok_or_else(|| not_linear(&**operator))?;
            let shadow = within(&grain.shadow, &self.shadows[rank]);
            let part = if self.with_planes(shape[0], &shadow) == whole(measurement.shape()) {
                linear.adjoint(measurement)?
            } else {
                linear.adjoint(&copied(measurement, &self.with_planes(shape[0], &shadow)))?
            };
            let region = with_planes(&image, &grain.place);
            place(&mut image, &region, &part);
        }
        Ok(image)
    }

    /// The shadows of the parts of all ranks, behind the channels.
    pub(super) fn shadows(&self) -> &[Region] {
        &self.shadows
    }

    /// The shape of its measurement, without the batch.
    pub(super) fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }
}

/// Sums of samples in units.
type Sums = ArrayD<i64>;

/// Where sums are added up.
enum Target<'a> {
    /// In the shadow of this rank's part, behind the channels.
    Shadow(&'a Region),
    /// In the shares of all ranks, one after the other.
    Shares(Shares),
}

/// What of a measurement depends on the part of the image that each rank has, behind the channels; nothing for ranks without one.
pub(super) fn shadows(operator: &dyn Physics, space: &Space) -> Vec<Region> {
    let of = |part: &Region| {
        if is_empty(part) {
            return vec![0..0; operator.measurement_shape().len() - 1];
        }
        shadow(operator, &part[2..])
    };
    space.regions().iter().map(of).collect()
}

fn shadow(operator: &dyn Physics, part: &[Range<usize>]) -> Region {
    let everywhere = || whole(&operator.measurement_shape()[1..]);
    operator.as_linear().map_or_else(everywhere, |linear| linear.shadow(part))
}

/// The window of a measurement that each rank needs, unless some need all of it and the others nothing.
pub(super) fn needed(shadows: &[Region], measured: &Arc<Space>) -> Option<Needed> {
    dealt_axis(shadows, &measured.whole()[2..])?;
    let planes = whole(&measured.whole()[..2]);
    let window = |shadow: &Region| {
        if is_empty(shadow) {
            return vec![0..0; measured.whole().len()];
        }
        let window = planes.iter().chain(shadow);
        window.map(|range| range.start as isize..range.end as isize).collect()
    };
    Some(Needed { space: measured.clone(), windows: shadows.iter().map(window).collect() })
}

/// The first axis behind the channels along which a shadow is not all there is.
fn dealt_axis(shadows: &[Region], sides: &[usize]) -> Option<usize> {
    let is_part = |axis: &usize| {
        let mut parts = shadows.iter().filter(|shadow| !is_empty(shadow));
        parts.any(|shadow| shadow[*axis].len() < sides[*axis])
    };
    (0..sides.len()).find(is_part)
}

/// The share of a measurement, (batch, …), that each rank has: what is near the middle of its shadow, or an even share of all
/// if shadows are everywhere.
pub(super) fn regions(index: usize, shape: &[usize], shadows: &[Region]) -> Vec<Region> {
    let Some(axis) = dealt_axis(shadows, &shape[2..]) else {
        return shares(index, shape, shadows.len());
    };
    let unit = if axis + 3 == shape.len() { RUN } else { 1 };
    let along: Vec<Range<usize>> = shadows.iter().map(|shadow| shadow[axis].clone()).collect();
    let region = |own: Range<usize>| -> Region {
        let mut region = whole(shape);
        region[axis + 2] = own;
        region
    };
    deal(&along, shape[axis + 2], unit).into_iter().map(region).collect()
}

/// Cuts a side between ranks, at multiples of a unit, in the middle of where the shadows of two that are neighbours overlap. Those
/// with the same shadow share what falls to them evenly.
fn deal(shadows: &[Range<usize>], side: usize, unit: usize) -> Vec<Range<usize>> {
    let mut order: Vec<usize> = (0..shadows.len()).collect();
    order.retain(|&rank| !shadows[rank].is_empty());
    order.sort_by_key(|&rank| (shadows[rank].start + shadows[rank].end, rank));
    let groups: Vec<&[usize]> = order.chunk_by(|a, b| shadows[*a] == shadows[*b]).collect();
    let mut own = vec![0..0; shadows.len()];
    let mut begin = 0;
    for (number, group) in groups.iter().enumerate() {
        let end = groups.get(number + 1).map_or(side, |next| {
            let cut = shadows[group[0]].end.midpoint(shadows[next[0]].start);
            cut.next_multiple_of(unit).clamp(begin, side)
        });
        let even = partition::even((end - begin).div_ceil(unit), group.len());
        for (&rank, share) in group.iter().zip(even) {
            let at = |cut: usize| (begin + unit * cut).min(end);
            own[rank] = at(share.start)..at(share.end);
        }
        begin = end;
    }
    own
}

/// Even shares of a measurement, (batch, …): rows of an even number along the axis behind the channels, or runs of columns if there is
/// no other. Operators begin with a rank each, so that many of few rows are spread, too.
fn shares(index: usize, shape: &[usize], ranks: usize) -> Vec<Region> {
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
pub(super) fn bytes_sent(measured: &Space, needed: Option<&Needed>, rank: usize) -> (u64, u64) {
    let regions = measured.regions();
    let ranks = regions.len();
    if ranks == 1 {
        return (0, 0);
    }
    let agreement = traffic::all_gather(&vec![1; ranks])[rank];
    let most = traffic::all_reduce(ElementKind::F32, 1, ranks)[rank];
    let (sums, samples) = if let Some(needed) = needed {
        let needed = std::slice::from_ref(needed);
        // A sum has twice the bytes of a sample.
        let sums = 2 * WindowPlan::bytes_received(needed, rank);
        (sums, WindowPlan::bytes_sent(needed, rank))
    } else {
        let counts: Vec<usize> = regions.iter().map(|region| volume(region)).collect();
        let others = counts.iter().sum::<usize>() - counts[rank];
        let bytes: Vec<usize> = counts.iter().map(|count| 4 * count).collect();
        (8 * others as u64, traffic::all_gather(&bytes)[rank])
    };
    (agreement + most + sums, samples)
}

/// Refuses an operator that neither works on windows nor can be restricted to parts of the image.
pub(super) fn restricted(
    index: usize,
    operator: &dyn Physics,
    grain: &[Range<usize>],
) -> Result<Arc<dyn Physics>> {
    let linear = operator.as_linear().ok_or_else(|| not_linear(operator))?;
    linear.restricted_to_shadow(grain).unwrap_or_else(|| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_dealt_where_shadows_meet_and_all_of_them_once() {
        // Slabs whose rows are their planes keep them.
        assert_eq!(deal(&[0..4, 4..6, 6..9], 9, 1), [0..4, 4..6, 6..9]);
        // Cones overlap; rows that nobody sees go to the nearest.
        assert_eq!(deal(&[2..7, 4..10, 8..12], 16, 1), [0..5, 5..9, 9..16]);
        // Blocks beside each other have one shadow, and some ranks none.
        assert_eq!(deal(&[0..6, 0..6, 0..0, 4..10], 10, 1), [0..3, 3..5, 0..0, 5..10]);
        assert_eq!(deal(&[4..10, 0..6], 10, 1), [5..10, 0..5]);
        assert_eq!(deal(&[0..20, 20..37], 37, 8), [0..24, 24..37]);
        for (shadows, side) in [(vec![0..1, 0..1, 0..1], 7), (vec![3..4, 0..0, 0..2], 4)] {
            let dealt = deal(&shadows, side, 1);
            assert_eq!(dealt.iter().map(Range::len).sum::<usize>(), side, "{dealt:?}");
        }
    }
}
