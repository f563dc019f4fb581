//! One item of a Winograd convolution: transform, multiply, transform back.

use std::ops::Range;

use super::grid::{Grid, Run};
use super::{SKEW, WinogradConv};
use crate::engine::cpu::kernels::{Depth, Epilogue, OUTPUTS, PANEL, Product, Strided, sixes};
use crate::engine::cpu::layout::{BLOCK, Layout, Tensor, signed};
use crate::engine::cpu::weights::Form;

/// One item at work.
pub(super) struct Item<'a> {
    pub(super) conv: &'a WinogradConv,
    pub(super) grid: Grid,
    pub(super) tiles: Range<usize>,
    /// The tiles that come next, probably on this thread.
    pub(super) next: Range<usize>,
    pub(super) planes: Range<usize>,
}

impl Item<'_> {
    /// The panels of the block: the place of the first tile and the number of tiles.
    fn panels(&self) -> impl Iterator<Item = (usize, usize)> {
        let (full, tail) = sixes(self.tiles.len());
        let after = full * PANEL;
        (0..full)
            .map(|panel| (panel * PANEL, PANEL))
            .chain([(after, tail[0]), (after + tail[0], tail[1])])
            .filter(|&(_, count)| count > 0)
    }

    /// Panels that the product kernel computes for a chunk of `weight_panels`.
    pub(super) fn panel_calls(&self, weight_panels: usize) -> usize {
        let (full, tail) = sixes(self.tiles.len());
        let panels = full + tail.iter().filter(|&&count| count > 0).count();
        self.conv.points() * weight_panels * self.planes.len() * panels
    }

    /// Top left corner of a run's input in the first block of channels.
    pub(super) fn input_corner(
        &self,
        input: &Tensor,
        run: &Run,
        block: usize,
        plane: usize,
    ) -> *const f32 {
        let [row, column] = [run.row, run.column].map(|index| signed(index * self.conv.tile));
        let [above, left] = self.conv.padding.map(signed);
        input.at(run.image, block, plane, row - above, column - left)
    }

    /// Transforms the input under the item into panels.
    pub(super) unsafe fn transform_input(&self, input: &Tensor, transformed: *mut f32) {
        let conv = self.conv;
        let (channels, stride) = (conv.channels(), conv.input_stride());
        let row_stride = input.layout.row_stride();
        let first_plane = signed(conv.ghosts + self.planes.start) - signed(conv.depth_padding);
        for slot in 0..self.planes.len() + conv.weights.depth_taps() - 1 {
            let plane = first_plane + signed(slot);
            if plane < 0 || plane >= signed(input.layout.depth) {
                continue;
            }
            let plane = plane.cast_unsigned();
            for (panel, (first, count)) in self.panels().enumerate() {
                let start = self.tiles.start + first;
                let panel_at = (slot * conv.blocking.tiles + panel * PANEL) * channels;
                for (place, run) in self.grid.runs(start..start + count, PANEL) {
                    let target = transformed.wrapping_add(panel_at + place * BLOCK);
                    for block in 0..channels / BLOCK {
                        let source = self.input_corner(input, &run, block, plane);
                        let target = target.wrapping_add(block * PANEL * BLOCK);
                        // SAFETY: the border of the input holds whole tiles, and the slot of the
                        // panel lies in this thread's scratch.
                        unsafe {
                            (conv.input_kernel)(source, row_stride, run.count, target, stride);
                        }
                    }
                }
            }
        }
    }

    /// Forms the products of a chunk of output channels.
    pub(super) unsafe fn multiply(
        &self,
        panels: &Range<usize>,
        transformed: *const f32,
        products: *mut f32,
        own_weights: *mut f32,
        lines: *const *const f32,
    ) {
        let conv = self.conv;
        let channels = conv.channels();
        let panel_len = conv.weights.panel_len();
        // SAFETY: the scratch has room for the chunk's weights.
        let (weights, weight_stride) = unsafe { self.chunk_weights(panels, own_weights) };
        let (full_panels, tail) = sixes(self.tiles.len());
        let tile_panels = full_panels + tail.iter().filter(|&&count| count > 0).count();
        let shares = tile_panels * self.planes.len();
        let product = Product {
            points: conv.points(),
            weight_panels: panels.len(),
            full_panels,
            tail,
            blocks: channels / BLOCK,
            depth: Depth {
                first: conv.ghosts + self.planes.start,
                planes: self.planes.len(),
                inputs: conv.input.depth,
                taps: conv.weights.depth_taps(),
                padding: conv.depth_padding,
            },
            input: Strided {
                start: transformed,
                point_stride: conv.input_stride(),
                slot_stride: conv.blocking.tiles * channels,
            },
            weights: Strided {
                start: weights,
                point_stride: weight_stride,
                slot_stride: panel_len,
            },
            output: Strided {
                start: products,
                point_stride: conv.product_stride(),
                slot_stride: conv.blocking.tiles * OUTPUTS,
            },
            output_planes: conv.blocking.planes,
            // The bias enters at the point (1, 1), from where it reaches every pixel once.
            bias: conv.weights.bias(panels.start),
            bias_point: conv.tile + 3,
            next_share: (panel_len / shares).next_multiple_of(SKEW),
            lines,
        };
        // SAFETY: transformed input and products lie in this thread's scratch with room for the
        // block; the list has an address for every panel.
        unsafe { (conv.product_kernel)(&product) };
    }

    /// The transformed weights of a chunk and the floats between their points.
    unsafe fn chunk_weights(
        &self,
        panels: &Range<usize>,
        own_weights: *mut f32,
    ) -> (*const f32, usize) {
        let conv = self.conv;
        let panel_len = conv.weights.panel_len();
        match conv.weights.form() {
            Form::Transformed => (conv.weights.transformed(panels.start), conv.weights.stride()),
            Form::Packed => {
                let stride = conv.chunk() * panel_len + SKEW;
                for panel in panels.clone() {
                    let target = own_weights.wrapping_add((panel - panels.start) * panel_len);
                    let source = conv.weights.packed(panel);
                    // SAFETY: the packed panel has `panel_len / OUTPUTS` channels of nine weights;
                    // the scratch has room for all points of the chunk.
                    unsafe { (conv.weight_kernel)(source, panel_len / OUTPUTS, target, stride) };
                }
                (own_weights, stride)
            }
        }
    }

    /// Transforms the products of a chunk back, and clears the border beside them.
    pub(super) unsafe fn transform_output(
        &self,
        panels: &Range<usize>,
        products: *const f32,
        output: &Tensor,
        adds: &[Option<Tensor>; 2],
        border_is_clear: bool,
    ) {
        let conv = self.conv;
        let m = conv.tile;
        let rows = output.layout.height.div_ceil(m);
        let overhang =
            [rows * m > output.layout.height, self.grid.columns * m > output.layout.width];
        let (stride, row_stride) = (conv.product_stride(), output.layout.row_stride());
        let first_block = panels.start * 2;
        let blocks = output.layout.blocks().min(panels.end * 2) - first_block;
        for (index, plane) in self.planes.clone().enumerate() {
            for (place, run) in self.grid.runs(self.tiles.clone(), usize::MAX) {
                let (row, column) = (signed(run.row * m), signed(run.column * m));
                for block in 0..blocks {
                    let at = |tensor: &Tensor| {
                        tensor.at(run.image, first_block + block, plane, row, column)
                    };
                    let slot = (block / 2 * conv.blocking.planes + index) * conv.blocking.tiles;
                    let source =
                        products.wrapping_add((slot + place) * OUTPUTS + block % 2 * BLOCK);
                    let epilogue = Epilogue {
                        adds: std::array::from_fn(|index| {
                            adds[index]
                                .as_ref()
                                .map_or(std::ptr::null(), |add| at(add).cast_const())
                        }),
                        second: [0; 2],
                        slope: conv.activation.slope(),
                    };
                    // SAFETY: the border of the output and of what is added holds whole tiles; no
                    // other item writes these tiles. Tiles that reach into the border leave values
                    // there, which are cleared next.
                    unsafe {
                        (conv.output_kernel)(
                            source,
                            stride,
                            run.count,
                            at(output),
                            row_stride,
                            &epilogue,
                        );
                        let at_edge = overhang[0] && run.row + 1 == rows
                            || overhang[1] && run.column + run.count == self.grid.columns;
                        if !border_is_clear || at_edge {
                            self.clear_border(
                                output,
                                &run,
                                first_block + block,
                                plane,
                                border_is_clear,
                            );
                        }
                    }
                }
            }
        }
    }

    /// Clears the part of the border that only this run touches; where the rest is clear, only what
    /// its tiles left there.
    unsafe fn clear_border(
        &self,
        output: &Tensor,
        run: &Run,
        block: usize,
        plane: usize,
        rest_is_clear: bool,
    ) {
        let m = self.conv.tile;
        let Layout { height, width, .. } = output.layout;
        let (start, end) = (run.column * m, (run.column + run.count) * m);
        let (first, last) = (run.column == 0, run.column + run.count == self.grid.columns);
        let rows = run.row * m..(run.row + 1) * m;
        // SAFETY: rows and columns of the border of this plane; those that other runs write in
        // (below the image) are cleared under this run only.
        unsafe {
            for row in rows.clone() {
                let row = signed(row);
                if row >= signed(height) {
                    output.clear(run.image, block, plane, row, signed(start)..signed(end));
                } else if last {
                    output.clear(run.image, block, plane, row, signed(width)..signed(end));
                }
                if !rest_is_clear && first {
                    output.clear(run.image, block, plane, row, -1..0);
                }
                if !rest_is_clear && last {
                    output.clear_to_end(run.image, block, plane, row, end);
                }
            }
            if rest_is_clear || !first {
                return;
            }
            if run.row == 0 {
                output.clear_row(run.image, block, plane, -1);
            }
            if rows.end >= height {
                for row in rows.end..output.layout.rows_after() {
                    output.clear_row(run.image, block, plane, signed(row));
                }
            }
        }
    }
}
