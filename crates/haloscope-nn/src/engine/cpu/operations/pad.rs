//! A larger copy of a tensor whose margin is filled as a padding mode says.
//!
//! Convolutions whose padding is not zero, or wider than the border that every tensor has, read
//! such a copy.

use std::ops::Range;

use super::super::layout::{BLOCK, Layout, signed};
use super::super::operation::{Operands, Operation};
use crate::op::PaddingMode;

/// A padded copy.
pub(crate) struct Pad {
    pub(crate) input: Layout,
    pub(crate) output: Layout,
    /// How much is added before the first plane, row and column.
    pub(crate) before: [usize; 3],
    pub(crate) mode: PaddingMode,
}

impl Pad {
    fn source(&self, axis: usize, position: usize, size: usize) -> Option<usize> {
        self.mode.source(signed(position) - signed(self.before[axis]), size)
    }
}

impl Operation for Pad {
    fn describe(&self) -> String {
        format!("{} padding", self.mode.name())
    }

    fn items(&self, _rows: &Range<usize>) -> usize {
        self.output.planes()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, _scratch: *mut f32) {
        let (input, output) = (operands.input(0), operands.output());
        let (image, block, plane) = self.output.plane(item);
        let source_plane = self.source(0, plane, self.input.depth);
        for row in operands.rows.clone() {
            let source_row = self.source(1, row, self.input.height);
            // SAFETY: rows of the input, which nobody writes now, and of this item's plane.
            unsafe {
                let target = output.row_mut(image, block, plane, row);
                if let (Some(plane), Some(row)) = (source_plane, source_row) {
                    let source = input.row(image, block, plane, row);
                    for (column, pixel) in target.iter_mut().enumerate() {
                        let from = self.source(2, column, self.input.width);
                        *pixel = from.map_or([0.0; BLOCK], |column| source[column]);
                    }
                } else {
                    target.fill([0.0; BLOCK]);
                }
                output.clear_border(image, block, plane, row);
            }
        }
    }
}
