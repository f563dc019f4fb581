//! What the product kernel prefetches while it multiplies: output rows that will be written next,
//! and the input of the next block.

use std::ops::Range;

use super::item::Item;
use crate::engine::cpu::kernels::FAR_STEP;
use crate::engine::cpu::layout::{BLOCK, Tensor, signed};

/// Addresses to prefetch, one for each panel that the product kernel computes.
pub(super) struct PrefetchList {
    start: *mut *const f32,
    len: usize,
    capacity: usize,
}

impl PrefetchList {
    pub(super) fn new(start: *mut *const f32, capacity: usize) -> Self {
        Self { start, len: 0, capacity }
    }

    /// Adds a row in steps; what does not fit is not prefetched.
    fn push_row(&mut self, row: *const f32, len: usize, step: usize) {
        for offset in (0..len).step_by(step) {
            if self.len == self.capacity {
                return;
            }
            // SAFETY: `len < capacity` pointers of the thread's scratch.
            unsafe { self.start.add(self.len).write(row.wrapping_add(offset)) };
            self.len += 1;
        }
    }

    /// Fills the list up with a harmless address.
    pub(super) fn finish(self) -> *const *const f32 {
        for index in self.len..self.capacity {
            // SAFETY: as above.
            unsafe { self.start.add(index).write(self.start.cast::<f32>().cast_const()) };
        }
        self.start
    }
}

impl Item<'_> {
    /// Lists the output rows that the chunk will write, and the rows of the first added tensor.
    pub(super) fn list_output(
        &self,
        lines: &mut PrefetchList,
        output: &Tensor,
        add: Option<&Tensor>,
        panels: &Range<usize>,
    ) {
        let m = self.conv.tile;
        let step = self.list_step();
        let add = add.filter(|add| add.data != output.data);
        let blocks = panels.start * 2..output.layout.blocks().min(panels.end * 2);
        for plane in self.planes.clone() {
            for (_, run) in self.grid.runs(self.tiles.clone(), usize::MAX) {
                for block in blocks.clone() {
                    for row in run.row * m..(run.row + 1) * m {
                        for tensor in [Some(output), add].into_iter().flatten() {
                            let (row, column) = (signed(row), signed(run.column * m));
                            let start = tensor.at(run.image, block, plane, row, column);
                            lines.push_row(start, run.count * m * BLOCK, step);
                        }
                    }
                }
            }
        }
    }

    /// Lists this chunk's share of the input rows of the block that comes next.
    pub(super) fn list_next_input(
        &self,
        lines: &mut PrefetchList,
        input: &Tensor,
        chunk: usize,
        chunks: usize,
    ) {
        let conv = self.conv;
        if self.next.is_empty() || conv.output.depth > 1 {
            return;
        }
        let blocks = conv.channels() / BLOCK;
        let step = self.list_step();
        for (_, run) in self.grid.runs(self.next.clone(), usize::MAX) {
            for block in blocks * chunk / chunks..blocks * (chunk + 1) / chunks {
                let corner = self.input_corner(input, &run, block, 0);
                for row in 0..conv.tile + 2 {
                    let start = corner.wrapping_add(row * input.layout.row_stride());
                    lines.push_row(start, (run.count * conv.tile + 2) * BLOCK, step);
                }
            }
        }
    }

    /// Floats that one panel of the product kernel prefetches from each address.
    fn list_step(&self) -> usize {
        self.conv.channels() / BLOCK * self.conv.weights.depth_taps() * FAR_STEP
    }
}
