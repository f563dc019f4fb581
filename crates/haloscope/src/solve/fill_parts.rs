//! The interpolation of [`fill`](super::fill) for images in shards, with the bits of the whole.
//!
//! A pixel of a coarser level belongs to the rank that has the first of the pixels that it is the mean of. What lies on other ranks
//! is gathered: children that a cut divides from their parent, parents on the way back, and as many pixels around a part as
//! smoothing has sweeps.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Collectives, Reduction};
use ndarray::{Dimension, IxDyn};

use super::fill::{SWEEPS, mean_around};
use crate::array::{Array, slice_mut};
use crate::error::Result;
use crate::image::{Needed, Space, WindowPlan};
use crate::region::{Region, copied, is_empty};

/// Gives the pixels that are not `seen` (0) values between those of the pixels around them. Planes of which all or nothing is seen
/// stay as they are.
pub(super) fn interpolate(space: &Arc<Space>, values: &mut Array, seen: &Array) -> Result<()> {
    let lacks = lacking(space, seen)?;
    if !lacks.iter().any(|lacks| *lacks) {
        return Ok(());
    }
    let coarse = Arc::new(coarser(space));
    let (mut means, known) = means(space, &coarse, values, seen)?;
    interpolate(&coarse, &mut means, &known)?;
    let parents = |part: &Region| spatial(part, |range| range.start / 2..range.end.div_ceil(2));
    let window = gather(&coarse, space, parents, &[&means])?.remove(0);
    let begins: Vec<usize> = space.own().iter().map(|range| range.start).collect();
    for (at, value) in values.indexed_iter_mut() {
        if lacks[plane(space, &at)] && seen[&at] == 0.0 {
            let parent = |axis: usize| match axis {
                0 | 1 => at[axis],
                _ => (at[axis] + begins[axis] % 2) >> 1,
            };
            *value = window[&(0..at.ndim()).map(parent).collect::<Vec<_>>()[..]];
        }
    }
    smooth(space, values, seen, &lacks)
}

/// Whether some pixels of a plane are seen and some are not, on any rank.
fn lacking(space: &Arc<Space>, seen: &Array) -> Result<Vec<bool>> {
    let planes = space.whole()[0] * space.whole()[1];
    let mut found = vec![0_u64; 2 * planes];
    for (at, seen) in seen.indexed_iter() {
        found[2 * plane(space, &at) + usize::from(*seen == 0.0)] = 1;
    }
    space.context().comm().all_reduce(Reduction::Max, &mut found)?;
    Ok(found.as_chunks().0.iter().map(|found: &[u64; 2]| *found == [1, 1]).collect())
}

/// Images of half the sides.
fn coarser(space: &Space) -> Space {
    let half = |side: usize| side.div_ceil(2);
    let mut whole = space.whole().to_vec();
    whole[2..].iter_mut().for_each(|side| *side = half(*side));
    let region = |part: &Region| spatial(part, |range| half(range.start)..half(range.end));
    let regions = space.regions().iter().map(region).collect();
    Space::unaligned(space.context(), &whole, regions)
}

/// The means of what is seen in a pixel of the coarser level, and whether there is any.
fn means(
    fine: &Arc<Space>,
    coarse: &Arc<Space>,
    values: &Array,
    seen: &Array,
) -> Result<(Array, Array)> {
    let children = |part: &Region| {
        let mut region = spatial(part, |range| 2 * range.start..2 * range.end);
        region
            .iter_mut()
            .zip(fine.whole())
            .for_each(|(range, side)| range.end = range.end.min(*side));
        region
    };
    let windows = gather(fine, coarse, children, &[values, seen])?;
    let shape = coarse.own_shape();
    let (mut sums, mut counts) = (Array::zeros(&shape[..]), Array::zeros(&shape[..]));
    for (at, value) in windows[0].indexed_iter() {
        if windows[1][&at] != 0.0 {
            let parent = (0..at.ndim()).map(|axis| if axis < 2 { at[axis] } else { at[axis] / 2 });
            let parent = parent.collect::<Vec<_>>();
            sums[&parent[..]] += value;
            counts[&parent[..]] += 1.0_f32;
        }
    }
    sums.zip_mut_with(&counts, |sum, count| *sum /= count.max(1.0));
    Ok((sums, counts))
}

/// Replaces unseen pixels by the means of their neighbours, all at once, [`SWEEPS`] times.
fn smooth(space: &Arc<Space>, values: &mut Array, seen: &Array, lacks: &[bool]) -> Result<()> {
    let whole = space.whole();
    let around = |part: &Region| {
        let mut region =
            spatial(part, |range| range.start.saturating_sub(SWEEPS)..range.end + SWEEPS);
        region.iter_mut().zip(whole).for_each(|(range, side)| range.end = range.end.min(*side));
        region
    };
    let mut windows = gather(space, space, around, &[values, seen])?;
    let (known, mut window) = (windows.remove(1), windows.remove(0));
    if window.is_empty() {
        return Ok(());
    }
    let sides = window.shape()[2..].to_vec();
    let lacks = known.indexed_iter().map(|(at, seen)| *seen == 0.0 && lacks[plane(space, &at)]);
    let unseen: Vec<usize> =
        lacks.enumerate().filter_map(|(at, lacks)| lacks.then_some(at)).collect();
    let values_of = slice_mut(&mut window);
    for _ in 0..SWEEPS {
        // The outermost pixels lack neighbours, and what is wrong there has not come to the own part when all is done.
        let means: Vec<f32> = unseen.iter().map(|at| mean_around(values_of, *at, &sides)).collect();
        for (at, mean) in unseen.iter().zip(means) {
            values_of[*at] = mean;
        }
    }
    let begins = around(space.own());
    let own: Region = (space.own().iter().zip(&begins))
        .map(|(own, window)| own.start - window.start..own.end - window.start)
        .collect();
    *values = copied(&window, &own);
    Ok(())
}

/// What each rank needs of the parts of `from` for its part of `to`.
fn gather(
    from: &Arc<Space>,
    to: &Space,
    needs: impl Fn(&Region) -> Region,
    parts: &[&Array],
) -> Result<Vec<Array>> {
    let window = |part: &Region| {
        let region = if is_empty(part) { spatial(part, |_| 0..0) } else { needs(part) };
        region.iter().map(|range| range.start as isize..range.end as isize).collect()
    };
    let windows: Vec<_> = to.regions().iter().map(window).collect();
    let needed = Needed { space: from.clone(), windows };
    let views: Vec<_> = parts.iter().map(|part| &***part).collect();
    WindowPlan::new(from.context(), &vec![needed; parts.len()]).gather(&views)
}

fn spatial(part: &Region, f: impl Fn(&Range<usize>) -> Range<usize>) -> Region {
    let along =
        |(axis, range): (usize, &Range<usize>)| if axis < 2 { range.clone() } else { f(range) };
    part.iter().enumerate().map(along).collect()
}

fn plane(space: &Space, at: &IxDyn) -> usize {
    at[0] * space.whole()[1] + at[1]
}
