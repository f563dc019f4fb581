//! Channels to space and back.

use std::ops::Range;

use super::super::layout::{BLOCK, Layout, signed};
use super::super::operation::{Operands, Operation};

/// A pixel shuffle or its inverse.
pub(crate) struct Shuffle {
    pub(crate) output: Layout,
    /// Sizes of a block of pixels that are channels on the other side.
    pub(crate) factor: [usize; 3],
    /// Whether space becomes channels.
    pub(crate) inverse: bool,
}

impl Operation for Shuffle {
    fn describe(&self) -> String {
        if self.inverse { "pixel unshuffle".into() } else { "pixel shuffle".into() }
    }

    fn items(&self, _rows: &Range<usize>) -> usize {
        self.output.planes()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, _scratch: *mut f32) {
        let (input, output) = (operands.input(0), operands.output());
        let (image, block, plane) = self.output.plane(item);
        let [depth, height, width] = self.factor;
        let count = depth * height * width;
        for row in operands.rows.clone() {
            // SAFETY: rows of the input, which nobody writes now, and of this item's plane.
            unsafe {
                let target = output.row_mut(image, block, plane, row);
                for lane in 0..BLOCK {
                    let channel = block * BLOCK + lane;
                    if channel >= self.output.channels {
                        for pixel in target.iter_mut() {
                            pixel[lane] = 0.0;
                        }
                    } else if self.inverse {
                        let (from, tap) = (channel / count, channel % count);
                        let (z, y) = (tap / width / height, tap / width % height);
                        let source =
                            input.row(image, from / BLOCK, plane * depth + z, row * height + y);
                        for (column, pixel) in target.iter_mut().enumerate() {
                            pixel[lane] = source[column * width + tap % width][from % BLOCK];
                        }
                    } else {
                        let (z, y) = (plane % depth, row % height);
                        for (column, pixel) in target.iter_mut().enumerate() {
                            let from = channel * count + (z * height + y) * width + column % width;
                            let at = input
                                .at(
                                    image,
                                    from / BLOCK,
                                    plane / depth,
                                    signed(row / height),
                                    signed(column / width),
                                )
                                .wrapping_add(from % BLOCK);
                            pixel[lane] = *at;
                        }
                    }
                }
                output.clear_border(image, block, plane, row);
            }
        }
    }
}
