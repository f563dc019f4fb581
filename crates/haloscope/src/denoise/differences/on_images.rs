//! Differences of images in any layout. A part needs one pixel of its neighbours: the dual before it, the image after it.

use std::ops::Range;
use std::sync::Arc;

use crate::array::{Array, slice, slice_mut};
use crate::error::Result;
use crate::image::{Image, Layout, Needed, Region, Space, WindowPlan, cut, is_empty, place};

/// `dual ← dual + factor · ∇image`.
pub(crate) fn add_gradient(dual: &mut Image, factor: f32, image: &Image) -> Result<()> {
    let Layout::Sharded(space) = image.layout() else {
        let shape = image.shape().to_vec();
        super::add_gradient(slice_mut(dual.local_mut()), factor, &slice(image.local()), &shape);
        return Ok(());
    };
    let (window, _) = beside(space, image.local(), 2, [0, 1])?;
    if window.is_empty() {
        return Ok(());
    }
    // The dual in the window, of which only the own part is right in the end, and kept.
    let mut shape = window.shape().to_vec();
    shape.insert(2, shape.len() - 2);
    let mut extended = Array::zeros(shape);
    let own: Vec<_> = dual.local().shape().iter().map(|side| 0..*side).collect();
    place(&mut extended, &own, dual.local());
    super::add_gradient(slice_mut(&mut extended), factor, &slice(&window), window.shape());
    *dual.local_mut() = cut(&extended, &own);
    Ok(())
}

/// The adjoint of the gradient, in the layout of `like`.
pub(crate) fn gradient_adjoint(dual: &Image, like: &Image) -> Result<Image> {
    let mut result = like.zeros_like();
    let Layout::Sharded(space) = dual.layout() else {
        let ends = vec![true; like.shape().len() - 2];
        let to = slice_mut(result.local_mut());
        super::gradient_adjoint_into(to, &slice(dual.local()), like.shape(), &ends);
        return Ok(result);
    };
    let (window, before) = beside(space, dual.local(), 3, [1, 0])?;
    if window.is_empty() {
        return Ok(result);
    }
    let mut shape = window.shape().to_vec();
    shape.remove(2);
    let mut extended = Array::zeros(&shape[..]);
    let own = space.own();
    let ends: Vec<bool> = (3..own.len()).map(|axis| own[axis].end == space.whole()[axis]).collect();
    super::gradient_adjoint_into(slice_mut(&mut extended), &slice(&window), &shape, &ends);
    let inner: Vec<_> = (shape.iter().enumerate())
        .map(|(axis, side)| if axis < 2 { 0..*side } else { before[axis + 1]..*side })
        .collect();
    *result.local_mut() = cut(&extended, &inner);
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
