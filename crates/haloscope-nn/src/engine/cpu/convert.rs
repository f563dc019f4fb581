//! The way in and out: plain row-major images to the engine's layout and back.
//!
//! Images whose sides the network cannot halve often enough are extended on the way in, by
//! reflection or, where they are too small for that, by repeating the last pixel, and cut again on
//! the way out.

use std::ops::Range;

use super::layout::{BLOCK, Layout, Tensor};
use crate::engine::graph::extended;

/// Fills some rows of a plane of the engine's input from images of `[batch][channel][depth][height][width]`, of which
/// `images` holds the rows of `band`.
///
/// # Safety
/// The tensor is valid, and no other thread uses the plane.
pub(crate) unsafe fn load_plane(
    images: &[f32],
    band: &Range<usize>,
    sizes: [usize; 3],
    tensor: &Tensor,
    plane: usize,
    rows: Range<usize>,
) {
    let layout = &tensor.layout;
    let (image, block, depth) = layout.plane(plane);
    let [source_depth, height, width] = sizes;
    let z = extended(depth, source_depth, layout.depth);
    for row in rows {
        // SAFETY: the caller's contract.
        let target = unsafe { tensor.row_mut(image, block, depth, row) };
        let y = extended(row, height, layout.height) - band.start;
        for lane in 0..BLOCK {
            let channel = block * BLOCK + lane;
            if channel >= layout.channels {
                for pixel in target.iter_mut() {
                    pixel[lane] = 0.0;
                }
                continue;
            }
            let start =
                (((image * layout.channels + channel) * source_depth + z) * band.len() + y) * width;
            let row = &images[start..start + width];
            let (inside, outside) = target.split_at_mut(width);
            for (pixel, value) in inside.iter_mut().zip(row) {
                pixel[lane] = *value;
            }
            for (column, pixel) in outside.iter_mut().enumerate() {
                pixel[lane] = row[extended(width + column, width, layout.width)];
            }
        }
        // SAFETY: the caller's contract.
        unsafe { tensor.clear_border(image, block, depth, row) };
    }
}

/// Writes some rows of one channel of one image of the result, `[depth][row][column]`.
///
/// # Safety
/// The tensor is valid and nobody writes it.
pub(crate) unsafe fn store_channel(
    tensor: &Tensor,
    image: usize,
    channel: usize,
    rows: &Range<usize>,
    width: usize,
    target: &mut [f32],
) {
    for (index, row) in target.chunks_exact_mut(width).enumerate() {
        let (plane, at) = (index / rows.len(), rows.start + index % rows.len());
        // SAFETY: the caller's contract; the result is no larger than the tensor.
        let pixels = unsafe { tensor.row(image, channel / BLOCK, plane, at) };
        for (value, pixel) in row.iter_mut().zip(pixels) {
            *value = pixel[channel % BLOCK];
        }
    }
}

/// The layout of a batch of this many images.
pub(crate) fn layout_of(batch: usize, channels: usize, spatial: &[usize]) -> Layout {
    Layout::new(batch, channels, three(spatial, 1))
}

/// A value for each of three axes; images get `depth` for the first.
pub(crate) fn three<T: Copy>(spatial: &[T], depth: T) -> [T; 3] {
    match *spatial {
        [height, width] => [depth, height, width],
        [depth, height, width] => [depth, height, width],
        _ => unreachable!("networks have two or three spatial axes"),
    }
}
