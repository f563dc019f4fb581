//! Filtered back-projection over ranks.
//!
//! Each rank filters the views of its own operators and smears all views over its own lines of the image. Filtered views go
//! to all ranks in stripes of consecutive views, so that no rank holds more than a stripe of others' views, and every pixel
//! takes from the views in their order: the same bits on any number of ranks as on one.

use std::ops::Range;

use haloscope_comm::{Collectives, Context, Reduction, partition};
use haloscope_nn::Stop;
use haloscope_scratch::{Visited, done, in_pieces, piece_bytes};

use super::agree::agree;
use super::dealt_rows::DealtRows;
use super::stack::{DistributedStack, part};
use super::{ShardedStack, Workers};
use crate::array::{Array, slice, slice_mut};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::measurements::Measurements;
use crate::physics::tomography::BackProjection;
use crate::region::is_empty;

/// Values of filtered views that all ranks have at a time, unless one round of the operators has more: 16 MB.
const STRIPE: usize = 1 << 22;

/// The pieces of a scratch folder that a stripe of filtered views has in memory.
pub const STRIPE_PIECES: usize = 8;

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

/// The same for an image in shards: every rank has its part of each measurement and gets its part of the image, with the bits of
/// [`back_project`]. All ranks call it.
pub fn back_project_shards(
    stack: &ShardedStack,
    plan: &BackProjection,
    data: &Measurements,
) -> Result<Image> {
    let (space, groups) = (stack.space(), stack.len());
    let planes: usize = space.whole()[..2].iter().product();
    let check = || {
        check_image(&space.whole()[1..], plan)?;
        stack.measured().iter().enumerate().try_for_each(|(group, measured)| {
            let views = plan.views().saturating_sub(group).div_ceil(groups);
            let found = measured.whole();
            let fits = found.iter().product::<usize>() == planes * views * plan.view_len()
                && found.get(2) == Some(&views);
            if fits { Ok(()) } else { Err(other_views(group, views, plan, found)) }
        })
    };
    check()?;
    if let Some(rows) = DealtRows::of(stack, plan) {
        return rows.back_project(STRIPE, data);
    }
    let own = |rank: usize, group: usize| stack.measured()[group].regions()[rank][2].clone();
    let source = Source {
        ctx: stack.context(),
        workers: stack.workers(),
        groups,
        planes,
        has: &|rank, view| own(rank, view % groups).contains(&(view / groups)),
        part: &|group| part(data, group),
        begin: &|group| own(stack.context().rank(), group).start,
    };
    let region = &space.own()[2..];
    let mut image = Array::zeros(space.own_shape());
    let of_part = plan.of_part(region);
    let lines = 0..if is_empty(region) { 0 } else { planes * of_part.lines() };
    source.project(STRIPE, plan, &of_part, lines, slice_mut(&mut image))?;
    Image::sharded(space, image)
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
    let planes = batch * plan.image_shape()[0];
    agree(ctx, check(stack, plan, data, planes))?;
    if planes == 0 {
        return Err(Error::argument("measurements", "a batch of none; at least 1 is needed"));
    }

    let segments = partition::even(planes * plan.lines(), ctx.size());
    let own = segments[ctx.rank()].clone();
    let mut lines = vec![0.0_f32; own.len() * plan.line_len()];
    let owners = stack.owners();
    let source = Source {
        ctx,
        workers: stack.workers(),
        groups: owners.len(),
        planes,
        has: &|rank, view| owners[view % owners.len()] == rank,
        part: &|group| part(data, group),
        begin: &|_| 0,
    };
    source.project(stripe, plan, plan, own, &mut lines)?;
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

/// Views of a scan that are dealt to ranks.
struct Source<'a> {
    ctx: &'a Context,
    workers: &'a Workers,
    groups: usize,
    /// Images of the batch and channels.
    planes: usize,
    /// Whether a rank has a view.
    has: &'a dyn Fn(usize, usize) -> bool,
    /// What this rank has of the measurement of a group, and which of the group's views it begins with.
    part: &'a dyn Fn(usize) -> Result<&'a Array>,
    begin: &'a dyn Fn(usize) -> usize,
}

impl Source<'_> {
    /// Adds all views to some lines, counted over the planes, of the image of which `smeared` is the plan: all of it, or a part.
    fn project(
        &self,
        stripe: usize,
        plan: &BackProjection,
        smeared: &BackProjection,
        own: Range<usize>,
        lines: &mut [f32],
    ) -> Result<()> {
        let Self { ctx, planes, groups, .. } = *self;
        let size = plan.view_len();
        // Every stripe visits the image, which may be in a scratch folder.
        let stripe = match piece_bytes() {
            None => stripe,
            Some(bytes) => {
                // Processes may have different limits, and take the stripes of the least.
                let mut least = [bytes as u64];
                ctx.comm().all_reduce(Reduction::Min, &mut least)?;
                stripe.max(STRIPE_PIECES * usize::try_from(least[0]).unwrap_or(bytes) / 4)
            }
        };
        let together = groups * (stripe / (groups * planes * size).max(1)).max(1);
        // A rank that fails goes on with what it has, so that nobody waits for it; in the end all know.
        let mut outcome = Ok(());
        for begin in (0..plan.views()).step_by(together) {
            let views_of = |rank: usize| -> Vec<usize> {
                let views = begin..(begin + together).min(plan.views());
                views.filter(|view| (self.has)(rank, *view)).collect()
            };
            let mine = views_of(ctx.rank());
            let mut filtered = self.values(&mine, size)?;
            if outcome.is_ok() {
                let number = |index: usize| mine[index / planes];
                outcome = self.workers.run(|| plan.filter(&mut filtered, number));
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
            let rows = 0..plan.detector_rows();
            self.workers.run(|| smear(smeared, (planes, &rows), &views, own.clone(), lines));
            outcome = outcome.and_then(|()| Ok(Stop::check()?));
        }
        agree(ctx, outcome)
    }

    /// Some of this rank's views, each of all planes.
    fn values(&self, views: &[usize], size: usize) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(views.len() * self.planes * size);
        for view in views {
            let group = view % self.groups;
            let part = slice((self.part)(group)?);
            let (count, at) =
                (part.len() / (self.planes * size), view / self.groups - (self.begin)(group));
            for plane in 0..self.planes {
                let begin = (plane * count + at) * size;
                values.extend_from_slice(&part[begin..begin + size]);
            }
        }
        // As many views as there are groups meet every group.
        for view in views.iter().take(self.groups) {
            if let Ok(part) = (self.part)(view % self.groups) {
                done(&slice(part));
            }
        }
        Ok(values)
    }
}

/// Refuses measurements that are not of the views that operators have.
fn check(
    stack: &DistributedStack,
    plan: &BackProjection,
    data: &Measurements,
    planes: usize,
) -> Result<()> {
    check_image(stack.image_shape(), plan)?;
    for group in stack.local_indices() {
        let views = plan.views().saturating_sub(group).div_ceil(stack.len());
        let found = part(data, group)?;
        if found.len() != planes * views * plan.view_len() {
            return Err(other_views(group, views, plan, found.shape()));
        }
    }
    Ok(())
}

fn check_image(found: &[usize], plan: &BackProjection) -> Result<()> {
    if found == plan.image_shape() {
        return Ok(());
    }
    Err(Error::Shape {
        what: "the image of the stack".into(),
        expected: format!("{:?} is expected, as of the back-projection", plan.image_shape()),
        found: found.to_vec(),
    })
}

fn other_views(group: usize, views: usize, plan: &BackProjection, found: &[usize]) -> Error {
    Error::Shape {
        what: format!("the measurement of operator {group}"),
        expected: format!("{views} views of {} values are expected", plan.view_len()),
        found: found.to_vec(),
    }
}

/// Adds views of all planes, which have some rows of the detector, to some lines of the image, counted over its planes.
pub(super) fn smear(
    plan: &BackProjection,
    (planes, rows): (usize, &Range<usize>),
    views: &[(usize, &[f32])],
    own: Range<usize>,
    mut lines: &mut [f32],
) {
    let count = plan.lines();
    let size = plan.view_len() / plan.detector_rows() * rows.len();
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
        in_pieces(end - begin, &[Visited::of(now)], |piece| {
            let part = &mut now[piece.start * plan.line_len()..piece.end * plan.line_len()];
            plan.smear_rows(rows.clone(), &of_plane, begin + piece.start - plane * count, part);
        });
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
