//! The mean or the maximum over windows.

use std::ops::Range;

use super::super::layout::{BLOCK, Layout};
use super::super::operation::{Operands, Operation};
use crate::op::PoolKind;

/// A pool.
pub(crate) struct Pooling {
    pub(crate) output: Layout,
    pub(crate) kind: PoolKind,
    pub(crate) size: [usize; 3],
    pub(crate) stride: [usize; 3],
}

impl Operation for Pooling {
    fn describe(&self) -> String {
        match self.kind {
            PoolKind::Average => "average pool".into(),
            PoolKind::Max => "max pool".into(),
        }
    }

    fn items(&self, _rows: &Range<usize>) -> usize {
        self.output.planes()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, _scratch: *mut f32) {
        let (input, output) = (operands.input(0), operands.output());
        let (image, block, plane) = self.output.plane(item);
        let start = match self.kind {
            PoolKind::Average => 0.0,
            PoolKind::Max => f32::NEG_INFINITY,
        };
        let count: usize = self.size.iter().product();
        let scale = 1.0 / count as f32;
        for row in operands.rows.clone() {
            // SAFETY: rows of the input, which nobody writes now, and of this item's plane.
            unsafe {
                let target = output.row_mut(image, block, plane, row);
                target.fill([start; BLOCK]);
                for z in 0..self.size[0] {
                    for y in 0..self.size[1] {
                        let source = input.row(
                            image,
                            block,
                            plane * self.stride[0] + z,
                            row * self.stride[1] + y,
                        );
                        for (column, pixel) in target.iter_mut().enumerate() {
                            for x in 0..self.size[2] {
                                let value = &source[column * self.stride[2] + x];
                                self.gather(pixel, value);
                            }
                        }
                    }
                }
                if self.kind == PoolKind::Average {
                    target.as_flattened_mut().iter_mut().for_each(|value| *value *= scale);
                }
                output.clear_border(image, block, plane, row);
            }
        }
    }
}

impl Pooling {
    fn gather(&self, pixel: &mut [f32; BLOCK], value: &[f32; BLOCK]) {
        for (pixel, value) in pixel.iter_mut().zip(value) {
            *pixel = match self.kind {
                PoolKind::Average => *pixel + value,
                PoolKind::Max if *value > *pixel => *value,
                PoolKind::Max => *pixel,
            };
        }
    }
}
