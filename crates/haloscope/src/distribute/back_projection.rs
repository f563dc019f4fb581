//! Filtered back-projection over ranks.
//!
//! Each rank filters the views of its own operators and smears all views over its own lines of the image. Filtered views go
//! to all ranks in stripes of consecutive views, so that no rank holds more than a stripe of others' views, and every pixel
//! takes from the views in their order: the same bits on any number of ranks as on one.

use std::ops::Range;

use haloscope_comm::{Collectives, partition};
use haloscope_nn::Stop;

use super::agree::agree;
use super::stack::{DistributedStack, part};
use crate::array::{Array, slice, slice_mut};
use crate::error::{Error, Result};
use crate::measurements::Measurements;
use crate::physics::tomography::BackProjection;

/// Values of filtered views that all ranks have at a time, unless one round of the operators has more: 16 MB.
const STRIPE: usize = 1 << 22;

/// The image by filtered back-projection of a scan whose views are dealt to the operators of `stack`: operator `g` of `n` has
/// the views `g`, `g + n`, `g + 2n` and so on ([`Grouping::Interleaved`](crate::physics::tomography::Grouping)). `plan` is of
/// all views. All ranks call it, each with the measurements of its own operators, and all get the image.
///
/// ```
/// use haloscope::distribute::{back_project, distribute};
/// use haloscope::physics::{Physics, Stack};
/// use haloscope::physics::tomography::{Grouping, ParallelBeam, Tomography2d, Window, evenly_spaced};
/// use haloscope_comm::Context;
///
/// let images = Context::threads(2, |ctx| {
///     let scan = ParallelBeam::new(evenly_spaced(30, std::f64::consts::PI), 24);
///     let whole = Tomography2d::new(&[1, 16, 16], scan)?;
///     let groups = whole.split(4, Grouping::Interleaved)?;
///     let groups: Vec<_> = groups.into_iter().map(|group| std::sync::Arc::new(group) as _).collect();
///     let stack = distribute(Stack::new(groups)?, ctx)?;
///     let disc = ndarray::ArrayD::from_shape_fn(vec![1, 1, 16, 16], |at| {
///         f32::from((at[2] as f32 - 7.5).hypot(at[3] as f32 - 7.5) < 6.0)
///     });
///     let data = stack.forward_terms(&disc)?.into_local()?;
///     back_project(&stack, &whole.back_projection(Window::Hann)?, &data)
/// })?;
/// assert_eq!(images[0], images[1]);
/// assert!((images[0][[0, 0, 8, 8]] - 1.0).abs() < 0.05);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn back_project(
    stack: &DistributedStack,
    plan: &BackProjection,
    data: &Measurements,
) -> Result<Array> {
    back_project_by(STRIPE, stack, plan, data)
}

fn back_project_by(
    stripe: usize,
    stack: &DistributedStack,
    plan: &BackProjection,
    data: &Measurements,
) -> Result<Array> {
    let ctx = stack.context();
    stack.check_count(data)?;
    let batch = stack.batch(data)?;
    let groups = stack.len();
    let size = plan.view_len();
    let planes = batch * plan.image_shape()[0];
    agree(ctx, check(stack, plan, data, planes))?;
    if planes == 0 {
        return Err(Error::argument("measurements", "a batch of none; at least 1 is needed"));
    }

    let segments = partition::even(planes * plan.lines(), ctx.size());
    let own = segments[ctx.rank()].clone();
    let mut lines = vec![0.0_f32; own.len() * plan.line_len()];
    let rounds = plan.views().div_ceil(groups);
    let together = (stripe / (groups * planes * size).max(1)).max(1);
    // A rank that fails goes on with what it has, so that nobody waits for it; in the end all know.
    let mut outcome = Ok(());
    for begin in (0..rounds).step_by(together) {
        let round = begin..(begin + together).min(rounds);
        let views_of = |rank: usize| views_of(stack, plan.views(), rank, round.clone());
        let mine = views_of(ctx.rank());
        let mut filtered = Vec::with_capacity(mine.len() * planes * size);
        for view in &mine {
            let part = slice(part(data, view % groups)?);
            let views = part.len() / (planes * size);
            for plane in 0..planes {
                let begin = (plane * views + view / groups) * size;
                filtered.extend_from_slice(&part[begin..begin + size]);
            }
        }
        if outcome.is_ok() {
            let number = |index: usize| mine[index / planes];
            outcome = stack.workers().run(|| plan.filter(&mut filtered, number));
        }
        let all_views: Vec<Vec<usize>> = (0..ctx.size()).map(views_of).collect();
        let counts: Vec<usize> =
            all_views.iter().map(|views| views.len() * planes * size).collect();
        let mut all = vec![0.0_f32; counts.iter().sum()];
        {
            let _span = ctx.span("gather");
            ctx.comm().all_gather_into(&filtered, &counts, &mut all)?;
        }
        let mut views: Vec<(usize, &[f32])> =
            all_views.into_iter().flatten().zip(all.chunks_exact(planes * size)).collect();
        views.sort_by_key(|(view, _)| *view);
        stack.workers().run(|| smear(plan, planes, &views, own.clone(), &mut lines));
        outcome = outcome.and_then(|()| Ok(Stop::check()?));
    }
    agree(ctx, outcome)?;
    let shape = [&[batch], plan.image_shape()].concat();
    if ctx.size() == 1 {
        return Array::from_shape_vec(shape, lines)
            .map_err(|error| Error::argument("back-projection", error.to_string()));
    }
    let _span = ctx.span("gather");
    let mut image = Array::zeros(shape);
    let counts: Vec<usize> =
        segments.iter().map(|segment| segment.len() * plan.line_len()).collect();
    ctx.comm().all_gather_into(&lines, &counts, slice_mut(&mut image))?;
    Ok(image)
}

/// Refuses measurements that are not of the views that operators have.
fn check(
    stack: &DistributedStack,
    plan: &BackProjection,
    data: &Measurements,
    planes: usize,
) -> Result<()> {
    if stack.image_shape() != plan.image_shape() {
        return Err(Error::Shape {
            what: "the image of the stack".into(),
            expected: format!("{:?} is expected, as of the back-projection", plan.image_shape()),
            found: stack.image_shape().to_vec(),
        });
    }
    for group in stack.local_indices() {
        let views = plan.views().saturating_sub(group).div_ceil(stack.len());
        let found = part(data, group)?;
        if found.len() != planes * views * plan.view_len() {
            return Err(Error::Shape {
                what: format!("the measurement of operator {group}"),
                expected: format!("{views} views of {} values are expected", plan.view_len()),
                found: found.shape().to_vec(),
            });
        }
    }
    Ok(())
}

/// The views of a rank in some rounds over the operators.
fn views_of(
    stack: &DistributedStack,
    views: usize,
    rank: usize,
    rounds: Range<usize>,
) -> Vec<usize> {
    let owners = stack.owners();
    let groups = (0..owners.len()).filter(|group| owners[*group] == rank);
    groups
        .flat_map(|group| rounds.clone().map(move |round| group + round * owners.len()))
        .filter(|view| *view < views)
        .collect()
}

/// Adds views of all planes to some lines of the image, counted over its planes.
fn smear(
    plan: &BackProjection,
    planes: usize,
    views: &[(usize, &[f32])],
    own: Range<usize>,
    mut lines: &mut [f32],
) {
    let (count, size) = (plan.lines(), plan.view_len());
    for plane in 0..planes {
        let begin = own.start.max(plane * count);
        let end = own.end.min((plane + 1) * count);
        if begin >= end {
            continue;
        }
        let of_plane: Vec<(usize, &[f32])> = views
            .iter()
            .map(|(view, values)| (*view, &values[plane * size..(plane + 1) * size]))
            .collect();
        let (now, rest) = lines.split_at_mut((end - begin) * plan.line_len());
        plan.smear(&of_plane, begin - plane * count, now);
        lines = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{PI, TAU};
    use std::sync::Arc;

    use haloscope_comm::Context;

    use super::*;
    use crate::distribute::distribute;
    use crate::physics::Physics;
    use crate::physics::tomography::{
        ConeBeam, FanBeam, Grouping, ParallelBeam, Tomography2d, Tomography3d, Window,
        evenly_spaced,
    };

    /// The bits of an image by ranks that have groups of the views, for stripes of one round and of all.
    fn check<P: Physics + 'static>(
        groups: Vec<P>,
        plan: BackProjection,
        views: &Array,
        expected: &Array,
    ) {
        let groups: Vec<Arc<dyn Physics>> =
            groups.into_iter().map(|group| Arc::new(group) as _).collect();
        let parts: Vec<Array> = (0..groups.len())
            .map(|group| {
                let own: Vec<usize> = (group..views.shape()[2]).step_by(groups.len()).collect();
                views.select(ndarray::Axis(2), &own)
            })
            .collect();
        let (plan, parts) = (Arc::new(plan), Arc::new(parts));
        for ranks in [1, 2, 3, 5, 8] {
            for stripe in [1, STRIPE] {
                let (groups, plan, parts) = (groups.clone(), plan.clone(), parts.clone());
                let images = Context::threads(ranks, move |ctx| {
                    let stack = distribute(groups.clone(), ctx)?;
                    let own = stack.local_indices().map(|index| (index, parts[index].clone()));
                    let data = Measurements::partial(stack.len(), own)?;
                    back_project_by(stripe, &stack, &plan, &data)
                });
                for image in images.expect("no rank fails") {
                    assert_eq!(image, expected, "{ranks} ranks, stripes of {stripe}");
                }
            }
        }
    }

    fn noise(shape: Vec<usize>) -> Array {
        let mut random = fastrand::Rng::with_seed(3);
        Array::from_shape_simple_fn(shape, || random.f32() - 0.5)
    }

    #[test]
    fn ranks_find_the_bits_of_all_views_in_one_place() {
        let whole = Tomography2d::new(&[2, 9, 7], ParallelBeam::new(evenly_spaced(13, PI), 11))
            .expect("a scan");
        let views = noise(vec![2, 2, 13, 11]);
        let expected = whole.filtered_back_projection(&views, Window::Ramp).expect("an image");
        let groups = whole.split(4, Grouping::Interleaved).expect("groups");
        check(groups, whole.back_projection(Window::Ramp).expect("a plan"), &views, &expected);

        let mut scan = FanBeam::new(evenly_spaced(9, 4.0), 11, 30.0, 10.0);
        scan.offset = 1.5;
        let whole = Tomography2d::new(&[1, 8, 8], scan).expect("a scan").scaled(0.5).expect("half");
        let views = noise(vec![1, 1, 9, 11]);
        let expected = whole.filtered_back_projection(&views, Window::Hann).expect("an image");
        let groups = whole.split(3, Grouping::Interleaved).expect("groups");
        check(groups, whole.back_projection(Window::Hann).expect("a plan"), &views, &expected);

        let scan = ConeBeam::new(evenly_spaced(7, TAU), [5, 6], 30.0, 10.0);
        let whole = Tomography3d::new(&[1, 3, 4, 5], scan).expect("a scan");
        let views = noise(vec![1, 1, 7, 5, 6]);
        let expected = whole.filtered_back_projection(&views, Window::Ramp).expect("an image");
        let groups = whole.split(7, Grouping::Interleaved).expect("groups");
        check(groups, whole.back_projection(Window::Ramp).expect("a plan"), &views, &expected);
    }

    #[test]
    fn measurements_of_other_views_are_refused_on_all_ranks() {
        let errors = Context::threads(2, |ctx| {
            let scan = ParallelBeam::new(evenly_spaced(6, PI), 11);
            let whole = Tomography2d::new(&[1, 9, 7], scan)?;
            let groups: Vec<Arc<dyn Physics>> =
                (whole.split(2, Grouping::Interleaved)?.into_iter())
                    .map(|group| Arc::new(group) as _)
                    .collect();
            let stack = distribute(groups, ctx)?;
            let views = 3 + ctx.rank();
            let data = Measurements::partial(2, [(ctx.rank(), noise(vec![1, 1, views, 11]))])?;
            let error = back_project(&stack, &whole.back_projection(Window::Ramp)?, &data);
            Ok::<_, Error>(error.expect_err("4 views").to_string())
        });
        for error in errors.expect("no rank fails") {
            assert!(
                error.contains("3 views of 11 values") && error.contains("[1, 1, 4, 11]"),
                "{error}"
            );
        }
    }
}
