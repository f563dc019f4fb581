//! Larger images by nearest neighbours or linear interpolation, with PyTorch's coordinates.

use std::ops::Range;

use super::super::layout::{BLOCK, Layout};
use super::super::operation::{Operands, Operation};
use crate::op::UpsampleMode;

/// An interpolation to a multiple of the size.
pub(crate) struct Upsample {
    pub(crate) input: Layout,
    pub(crate) output: Layout,
    /// The multiple on each axis.
    pub(crate) factor: [usize; 3],
    pub(crate) mode: UpsampleMode,
}

/// Two neighbours on an axis and the weight of the second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Neighbours {
    first: usize,
    second: usize,
    weight: f32,
}

impl Upsample {
    fn neighbours(&self, axis: usize, position: usize, size: usize) -> Neighbours {
        let factor = self.factor[axis];
        if self.mode == UpsampleMode::Nearest || factor == 1 {
            let nearest = position / factor;
            return Neighbours { first: nearest, second: nearest, weight: 0.0 };
        }
        // (position + ½) / factor − ½ in units of 1 / (2 · factor), not before the first centre.
        let twice = (2 * position + 1).saturating_sub(factor);
        let first = twice / (2 * factor);
        let weight = (twice % (2 * factor)) as f32 / (2 * factor) as f32;
        Neighbours { first, second: (first + 1).min(size - 1), weight }
    }
}

impl Operation for Upsample {
    fn describe(&self) -> String {
        match self.mode {
            UpsampleMode::Nearest => "nearest upsampling".into(),
            UpsampleMode::Linear => "linear upsampling".into(),
        }
    }

    fn items(&self, _rows: &Range<usize>) -> usize {
        self.output.planes()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, _scratch: *mut f32) {
        let (input, output) = (operands.input(0), operands.output());
        let (image, block, plane) = self.output.plane(item);
        let planes = self.neighbours(0, plane, self.input.depth);
        for row in operands.rows.clone() {
            let rows = self.neighbours(1, row, self.input.height);
            // SAFETY: rows of the input, which nobody writes now, and of this item's plane.
            unsafe {
                let target = output.row_mut(image, block, plane, row);
                let source = |plane, row| input.row(image, block, plane, row);
                let sources = [
                    [source(planes.first, rows.first), source(planes.first, rows.second)],
                    [source(planes.second, rows.first), source(planes.second, rows.second)],
                ];
                for (column, pixel) in target.iter_mut().enumerate() {
                    let columns = self.neighbours(2, column, self.input.width);
                    *pixel = if self.mode == UpsampleMode::Nearest {
                        sources[0][0][columns.first]
                    } else {
                        let [near, far] = sources.map(|rows_of_plane| {
                            let [above, below] = rows_of_plane.map(|pixels| {
                                mix(pixels[columns.first], pixels[columns.second], columns.weight)
                            });
                            mix(above, below, rows.weight)
                        });
                        mix(near, far, planes.weight)
                    };
                }
                output.clear_border(image, block, plane, row);
            }
        }
    }
}

fn mix(first: [f32; BLOCK], second: [f32; BLOCK], weight: f32) -> [f32; BLOCK] {
    std::array::from_fn(|lane| first[lane] * (1.0 - weight) + second[lane] * weight)
}
