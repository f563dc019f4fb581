//! 3×3 convolutions with stride 1 by Winograd's method; 3×3×3 with the depth summed in between.
//!
//! An item is a block of tiles, a slab of planes and a range of output channels. Its input is
//! transformed once; then for each chunk of output channels the products are formed and transformed
//! back at once, while they are in the cache. `README.md` beside the engine has the reasons and the
//! measurements.

use std::ops::Range;
use std::sync::Arc;

use super::super::kernels::{
    Depth, Epilogue, FAR_STEP, Fused, InputKernel, InstructionSet, OUTPUTS, OutputKernel, PANEL,
    Product, ProductKernel, Strided, WeightKernel, sixes,
};
use super::super::layout::{BLOCK, Layout, Tensor, signed};
use super::super::operation::{Operands, Operation, window_rows};
use super::super::weights::{Fill, Form, Weights, WinogradWeights};

/// Floats between the planes of transformed values beyond their size: one cache line more than a
/// multiple of any power of two, so that the planes do not compete for the same cache sets.
const SKEW: usize = 16;
/// Pointers to prefetch are kept in scratch memory that is counted in floats.
const POINTER: usize = size_of::<*const f32>() / size_of::<f32>();

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocking {
    /// Tiles in a block at most; a multiple of [`PANEL`].
    pub(crate) tiles: usize,
    /// Output planes in a slab at most.
    pub(crate) planes: usize,
    /// Ranges of output channels, each an item of its own.
    pub(crate) channel_groups: usize,
}

/// The convolution of one layer for one shape.
pub(crate) struct WinogradConv {
    input: Layout,
    output: Layout,
    tile: usize,
    /// Zero padding of rows and columns: 0 or 1.
    padding: [usize; 2],
    depth_padding: usize,
    weights: Arc<WinogradWeights>,
    adds: usize,
    activation: Fused,
    blocking: Blocking,
    tile_blocks: usize,
    slabs: usize,
    input_kernel: InputKernel,
    output_kernel: OutputKernel,
    weight_kernel: WeightKernel,
    product_kernel: ProductKernel,
}

impl WinogradConv {
    pub(crate) fn new(
        instructions: InstructionSet,
        input: Layout,
        output: Layout,
        padding: [usize; 3],
        weights: Arc<WinogradWeights>,
        (adds, activation): (usize, Fused),
        blocking: Blocking,
    ) -> Self {
        let tile = weights.tile();
        let tiles = tiles(&output, tile);
        let even = |count: usize, most: usize| count.div_ceil(count.div_ceil(most));
        // Blocks of almost equal size: a last block of one tile would cost as much as one of four.
        let tile_blocks = tiles.div_ceil(blocking.tiles);
        let planes = even(output.depth, blocking.planes);
        Self {
            input,
            output,
            tile,
            padding: [padding[1], padding[2]],
            depth_padding: padding[0],
            adds,
            activation,
            blocking: Blocking { planes, ..blocking },
            tile_blocks,
            slabs: output.depth.div_ceil(planes),
            input_kernel: instructions.input_kernel(tile),
            output_kernel: instructions.output_kernel(tile, adds, activation),
            weight_kernel: instructions.weight_kernel(tile),
            product_kernel: instructions.product_kernel(),
            weights,
        }
    }

    /// Planes of the transformed domain.
    fn points(&self) -> usize {
        (self.tile + 2) * (self.tile + 2)
    }

    fn channels(&self) -> usize {
        self.weights.channels()
    }

    /// Input planes under a slab.
    fn slots(&self) -> usize {
        self.blocking.planes + self.weights.depth_taps() - 1
    }

    /// Floats between the points of the transformed input.
    fn input_stride(&self) -> usize {
        self.slots() * self.blocking.tiles * self.channels() + SKEW
    }

    /// Floats between the points of the products.
    fn product_stride(&self) -> usize {
        self.blocking.planes * self.blocking.tiles * self.chunk() * OUTPUTS + SKEW
    }

    /// Panels of sixteen output channels whose products are formed before they are transformed back.
    fn chunk(&self) -> usize {
        self.weights.chunk()
    }

    /// Calls of the product kernel's panels in a chunk at most.
    fn panel_calls(&self) -> usize {
        self.points() * self.chunk() * self.blocking.planes * (self.blocking.tiles / PANEL + 1)
    }

    /// Lengths of the four parts of a thread's scratch.
    fn scratch_parts(&self) -> [usize; 4] {
        let weights = match self.weights.form() {
            Form::Transformed => 0,
            Form::Packed => self.points() * (self.chunk() * self.weights.panel_len() + SKEW),
        };
        let lists = (self.panel_calls() * POINTER).next_multiple_of(SKEW);
        [
            (self.points() * self.input_stride()).next_multiple_of(SKEW),
            (self.points() * self.product_stride()).next_multiple_of(SKEW),
            weights.next_multiple_of(SKEW),
            lists,
        ]
    }
}

impl Operation for WinogradConv {
    fn describe(&self) -> String {
        let m = self.tile;
        let kept = match self.weights.form() {
            Form::Transformed => "",
            Form::Packed => ", weights on the fly",
        };
        let depth = if self.weights.depth_taps() > 1 { "×3" } else { "" };
        format!("conv 3×3{depth}, F({m}×{m}){kept}")
    }

    fn items(&self) -> usize {
        self.tile_blocks * self.slabs * self.blocking.channel_groups
    }

    fn scratch_len(&self) -> usize {
        self.scratch_parts().iter().sum()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, scratch: *mut f32) {
        let (input, output) = (operands.input(0), operands.output());
        let group = item % self.blocking.channel_groups;
        let slab = item / self.blocking.channel_groups % self.slabs;
        let block = item / self.blocking.channel_groups / self.slabs;
        let count = tiles(&self.output, self.tile);
        let share = |index: usize| count * index / self.tile_blocks;
        let planes = self.blocking.planes;
        let chunks = self.weights.panels().div_ceil(self.chunk());
        let groups = self.blocking.channel_groups;
        let work = Item {
            conv: self,
            grid: Grid::new(&self.output, self.tile),
            tiles: share(block)..share(block + 1),
            next: share((block + 1).min(self.tile_blocks))
                ..share((block + 2).min(self.tile_blocks)),
            planes: slab * planes..((slab + 1) * planes).min(self.output.depth),
        };
        let [transformed_len, products_len, weights_len, _] = self.scratch_parts();
        let transformed = scratch;
        let products = transformed.wrapping_add(transformed_len);
        let own_weights = products.wrapping_add(products_len);
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "all parts of the scratch start at cache lines"
        )]
        let list = own_weights.wrapping_add(weights_len).cast::<*const f32>();
        let adds: [Option<Tensor>; 2] =
            std::array::from_fn(|index| (index < self.adds).then(|| operands.input(1 + index)));
        // SAFETY: the caller's contract: operands are valid and the scratch is this thread's.
        unsafe {
            work.transform_input(&input, transformed);
            for chunk in chunks * group / groups..chunks * (group + 1) / groups {
                let panels =
                    chunk * self.chunk()..((chunk + 1) * self.chunk()).min(self.weights.panels());
                let mut lines = PrefetchList::new(list, work.panel_calls(panels.len()));
                work.list_output(&mut lines, &output, adds[0].as_ref(), &panels);
                work.list_next_input(&mut lines, &input, chunk, chunks);
                work.multiply(&panels, transformed, products, own_weights, lines.finish());
                work.transform_output(&panels, products, &output, &adds, operands.border_is_clear);
            }
        }
    }

    fn rows_read(&self, input: usize, rows: Range<usize>) -> Range<isize> {
        if input == 0 {
            window_rows(rows, 3, 1, self.padding[0])
        } else {
            window_rows(rows, 1, 1, 0)
        }
    }

    fn may_overwrite(&self, input: usize) -> bool {
        input > 0
    }

    fn multiplications(&self) -> f64 {
        let taps = 9 * self.weights.depth_taps() * self.input.channels;
        self.output.values() as f64 * taps as f64
    }

    fn weights(&self) -> Option<Weights> {
        Some(Weights::Winograd(Arc::clone(&self.weights)))
    }
}

/// Tiles of all images of one plane of depth.
pub(crate) fn tiles(output: &Layout, tile: usize) -> usize {
    output.batch * output.height.div_ceil(tile) * output.width.div_ceil(tile)
}

/// The grid of tiles over each image.
#[derive(Clone, Copy)]
struct Grid {
    rows: usize,
    columns: usize,
}

/// Adjacent tiles in one row of tiles.
struct Run {
    image: usize,
    row: usize,
    column: usize,
    count: usize,
}

impl Grid {
    fn new(output: &Layout, tile: usize) -> Self {
        Self { rows: output.height.div_ceil(tile), columns: output.width.div_ceil(tile) }
    }

    /// The tiles as runs of at most `most`, each with its place in the range.
    fn runs(self, tiles: Range<usize>, most: usize) -> impl Iterator<Item = (usize, Run)> {
        let mut at = tiles.start;
        std::iter::from_fn(move || {
            if at >= tiles.end {
                return None;
            }
            let place = at - tiles.start;
            let in_image = at % (self.rows * self.columns);
            let column = in_image % self.columns;
            let count = most.min(tiles.end - at).min(self.columns - column);
            let run = Run {
                image: at / (self.rows * self.columns),
                row: in_image / self.columns,
                column,
                count,
            };
            at += count;
            Some((place, run))
        })
    }
}

/// One item at work.
struct Item<'a> {
    conv: &'a WinogradConv,
    grid: Grid,
    tiles: Range<usize>,
    /// The tiles that come next, probably on this thread.
    next: Range<usize>,
    planes: Range<usize>,
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
    fn panel_calls(&self, weight_panels: usize) -> usize {
        let (full, tail) = sixes(self.tiles.len());
        let panels = full + tail.iter().filter(|&&count| count > 0).count();
        self.conv.points() * weight_panels * self.planes.len() * panels
    }

    /// Top left corner of a run's input in the first block of channels.
    fn input_corner(&self, input: &Tensor, run: &Run, block: usize, plane: usize) -> *const f32 {
        let [row, column] = [run.row, run.column].map(|index| signed(index * self.conv.tile));
        let [above, left] = self.conv.padding.map(signed);
        input.at(run.image, block, plane, row - above, column - left)
    }

    /// Transforms the input under the item into panels.
    unsafe fn transform_input(&self, input: &Tensor, transformed: *mut f32) {
        let conv = self.conv;
        let (channels, stride) = (conv.channels(), conv.input_stride());
        let row_stride = input.layout.row_stride();
        let first_plane = signed(self.planes.start) - signed(conv.depth_padding);
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
    unsafe fn multiply(
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
                first: self.planes.start,
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
    unsafe fn transform_output(
        &self,
        panels: &Range<usize>,
        products: *const f32,
        output: &Tensor,
        adds: &[Option<Tensor>; 2],
        border_is_clear: bool,
    ) {
        let conv = self.conv;
        let m = conv.tile;
        let overhang = [
            self.grid.rows * m > output.layout.height,
            self.grid.columns * m > output.layout.width,
        ];
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
                        let at_edge = overhang[0] && run.row + 1 == self.grid.rows
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

    /// Lists the output rows that the chunk will write, and the rows of the first added tensor.
    fn list_output(
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
    fn list_next_input(
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

/// Addresses to prefetch, one for each panel that the product kernel computes.
struct PrefetchList {
    start: *mut *const f32,
    len: usize,
    capacity: usize,
}

impl PrefetchList {
    fn new(start: *mut *const f32, capacity: usize) -> Self {
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
    fn finish(self) -> *const *const f32 {
        for index in self.len..self.capacity {
            // SAFETY: as above.
            unsafe { self.start.add(index).write(self.start.cast::<f32>().cast_const()) };
        }
        self.start
    }
}
