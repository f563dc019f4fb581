//! Differences of images in any layout. A part needs one pixel of its neighbours: the dual before it, the image after it. Only
//! those faces travel, and nothing else is held of them.

use std::ops::Range;
use std::sync::Arc;

use crate::array::{Array, slice, slice_mut};
use crate::error::Result;
use crate::image::{Image, Layout, Needed, Space, WindowPlan};
use crate::region::{Region, is_empty};

/// `dual ← dual + factor · ∇image`.
pub(crate) fn add_gradient(dual: &mut Image, factor: f32, image: &Image) -> Result<()> {
    let after = match image.layout() {
        Layout::Replicated => Vec::new(),
        Layout::Sharded(space) => faces(space, image.local(), Face::ImageAfter)?,
    };
    let shape = image.local().shape();
    if !shape.contains(&0) {
        let (to, image) = (slice_mut(dual.local_mut()), slice(image.local()));
        super::add_gradient(to, factor, &image, shape, &after);
    }
    Ok(())
}

/// The adjoint of the gradient, in the layout of `like`.
pub(crate) fn gradient_adjoint(dual: &Image, like: &Image) -> Result<Image> {
    let before = match dual.layout() {
        Layout::Replicated => Vec::new(),
        Layout::Sharded(space) => faces(space, dual.local(), Face::DualBefore)?,
    };
    let mut result = like.zeros_like();
    let shape = like.local().shape();
    if !shape.contains(&0) {
        let own = like.region();
        let ends: Vec<bool> =
            own[2..].iter().zip(&like.shape()[2..]).map(|(own, side)| own.end == *side).collect();
        let to = slice_mut(result.local_mut());
        super::gradient_adjoint_into(to, &slice(dual.local()), shape, &ends, &before);
    }
    Ok(result)
}

/// Shortens the vectors of pixels that are longer than `radius`; the pixels are those of `like`.
pub(crate) fn project(dual: &mut Image, like: &Image, radius: f32) {
    let shape = like.local().shape().to_vec();
    if !shape.contains(&0) {
        super::project(slice_mut(dual.local_mut()), &shape, radius);
    }
}

/// This rank's part with so many pixels before it and after it along each axis from `first` on, as far as the image has them;
/// and how many there are before it.
pub(crate) fn beside(
    space: &Arc<Space>,
    part: &Array,
    first: usize,
    margins: [usize; 2],
) -> Result<(Array, Vec<usize>)> {
    let needed = [around(space, first, margins)];
    let window = &needed[0].windows[space.context().rank()];
    let begins =
        space.own().iter().zip(window).map(|(own, window)| own.start - window.start as usize);
    let begins = begins.collect();
    let mut found = WindowPlan::new(space.context(), &needed).gather(&[part])?;
    Ok((found.remove(0), begins))
}

/// The windows of all ranks that have so many pixels more before and after.
pub(crate) fn around(space: &Arc<Space>, first: usize, [before, after]: [usize; 2]) -> Needed {
    let whole = space.whole();
    let window = |region: &Region| {
        let is_empty = is_empty(region);
        let along = |(axis, range): (usize, &Range<usize>)| {
            if axis < first || is_empty {
                return range.start as isize..range.end as isize;
            }
            let end = (range.end + after).min(whole[axis]);
            range.start.saturating_sub(before) as isize..end as isize
        };
        region.iter().enumerate().map(along).collect()
    };
    let windows = space.regions().iter().map(window).collect();
    Needed { space: space.clone(), windows }
}

/// What a part reads of those beside it.
#[derive(Clone, Copy)]
enum Face {
    /// The pixels of an image (batch, channel, spatial…) after it along an axis.
    ImageAfter,
    /// The differences along an axis before it, of a dual (batch, channel, axis, spatial…).
    DualBefore,
}

/// The bytes that each rank sends for a gradient of an image in these parts and an adjoint.
pub(crate) fn bytes_sent(space: &Arc<Space>) -> Vec<u64> {
    let dual = space.with_axis(2, space.whole().len() - 2);
    let faces = [needed_faces(space, Face::ImageAfter), needed_faces(&dual, Face::DualBefore)];
    let of_rank = |rank| faces.iter().map(|needed| WindowPlan::bytes_sent(needed, rank)).sum();
    (0..space.regions().len()).map(of_rank).collect()
}

/// This rank's faces, one for each axis, as far as the image goes on there. All ranks call it.
fn faces(space: &Arc<Space>, part: &Array, face: Face) -> Result<Vec<Array>> {
    let needed = needed_faces(space, face);
    WindowPlan::new(space.context(), &needed).gather(&vec![&**part; needed.len()])
}

/// The faces of all ranks, along each axis.
fn needed_faces(space: &Arc<Space>, face: Face) -> Vec<Needed> {
    let whole = space.whole();
    let first = match face {
        Face::ImageAfter => 2,
        Face::DualBefore => 3,
    };
    let window = |region: &Region, axis: usize| {
        let mut window = region.clone();
        window[axis] = match face {
            Face::ImageAfter => region[axis].end..(region[axis].end + 1).min(whole[axis]),
            Face::DualBefore => region[axis].start.saturating_sub(1)..region[axis].start,
        };
        if is_empty(region) {
            window[axis] = 0..0;
        }
        if matches!(face, Face::DualBefore) {
            window[2] = axis - first..axis - first + 1;
        }
        window.iter().map(|range| range.start as isize..range.end as isize).collect()
    };
    let along = |axis: usize| {
        let windows = space.regions().iter().map(|region| window(region, axis)).collect();
        Needed { space: space.clone(), windows }
    };
    (first..whole.len()).map(along).collect()
}
