//! 3×3 convolutions with stride 1 by Winograd's method; 3×3×3 with tiles along depth, or with the
//! depth summed in between.
//!
//! An item is a block of tiles, a slab of planes and a range of output channels. Its input is
//! transformed once; then for each chunk of output channels the products are formed and transformed
//! back at once, while they are in the cache. `README.md` beside the engine has the reasons and the
//! measurements.

use std::ops::Range;
use std::sync::Arc;

mod grid;
mod item;
mod prefetch;

pub(crate) use grid::tiles;

use grid::Grid;
use item::Item;
use prefetch::PrefetchList;

use crate::engine::cpu::kernels::{
    DepthKernel, FoldKernel, Fused, InputKernel, InstructionSet, OUTPUTS, OutputKernel, PANEL,
    ProductKernel, WeightKernel,
};
use crate::engine::cpu::layout::{Layout, Tensor};
use crate::engine::cpu::operation::{Operands, Operation};
use crate::engine::cpu::tile::Tile;
use crate::engine::cpu::weights::{Fill, Form, Weights, WinogradWeights};

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
    /// Output planes in a slab at most; one where tiles are deep, which are cut into blocks as the others of a plane are.
    pub(crate) planes: usize,
    /// Ranges of output channels, each an item of its own.
    pub(crate) channel_groups: usize,
}

/// The convolution of one layer for one shape.
pub(crate) struct WinogradConv {
    /// With the ghost planes as planes of the input.
    input: Layout,
    /// Ghost planes before the first.
    ghosts: usize,
    output: Layout,
    tile: Tile,
    /// Zero padding of rows and columns: 0 or 1.
    padding: [usize; 2],
    depth_padding: usize,
    weights: Arc<WinogradWeights>,
    adds: usize,
    activation: Fused,
    blocking: Blocking,
    slabs: usize,
    input_kernel: InputKernel,
    depth_kernel: DepthKernel,
    fold_kernel: FoldKernel,
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
        let even = |count: usize, most: usize| count.div_ceil(count.div_ceil(most));
        // Deep tiles along depth are tiles like others.
        let slices = if tile.is_deep() { 1 } else { output.depth };
        let planes = even(slices, blocking.planes);
        Self {
            input: input.with_ghosts(),
            ghosts: input.ghosts[0],
            output,
            tile,
            padding: [padding[1], padding[2]],
            depth_padding: padding[0],
            adds,
            activation,
            blocking: Blocking { planes, ..blocking },
            slabs: slices.div_ceil(planes),
            input_kernel: instructions.input_kernel(tile.side),
            depth_kernel: instructions.depth_kernel(),
            fold_kernel: instructions.fold_kernel(),
            output_kernel: instructions.output_kernel(tile.side, adds, activation),
            weight_kernel: instructions.weight_kernel(tile.side),
            product_kernel: instructions.product_kernel(),
            weights,
        }
    }

    /// Tiles over so many rows, and the blocks that they are cut into.
    fn tile_blocks(&self, rows: usize) -> (usize, usize) {
        let tiles = tiles(&self.output, rows, self.tile);
        (tiles, tiles.div_ceil(self.blocking.tiles))
    }

    fn channels(&self) -> usize {
        self.weights.channels()
    }

    /// Input planes under a slab.
    fn slots(&self) -> usize {
        self.blocking.planes + self.weights.summed_taps() - 1
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
        self.tile.points() * self.chunk() * self.blocking.planes * (self.blocking.tiles / PANEL + 1)
    }

    /// Lengths of the five parts of a thread's scratch.
    fn scratch_parts(&self) -> [usize; 5] {
        let weights = match self.weights.form() {
            Form::Transformed => 0,
            Form::Packed => self.tile.points() * (self.chunk() * self.weights.panel_len() + SKEW),
        };
        let lists = (self.panel_calls() * POINTER).next_multiple_of(SKEW);
        [
            (self.tile.points() * self.input_stride()).next_multiple_of(SKEW),
            (self.tile.points() * self.product_stride()).next_multiple_of(SKEW),
            weights.next_multiple_of(SKEW),
            self.tile.depth_room(PANEL).next_multiple_of(SKEW),
            lists,
        ]
    }
}

impl Operation for WinogradConv {
    fn describe(&self) -> String {
        let Tile { side, depth } = self.tile;
        let kept = match self.weights.form() {
            Form::Transformed => "",
            Form::Packed => ", weights on the fly",
        };
        let taps = if self.weights.depth_taps() > 1 { "×3" } else { "" };
        let planes = if depth > 1 { format!("{depth}×") } else { String::new() };
        format!("conv 3×3{taps}, F({planes}{side}×{side}){kept}")
    }

    fn items(&self, rows: &Range<usize>) -> usize {
        self.tile_blocks(rows.len()).1 * self.slabs * self.blocking.channel_groups
    }

    fn scratch_len(&self) -> usize {
        self.scratch_parts().iter().sum()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, scratch: *mut f32) {
        let (input, output) = (operands.input(0).with_ghosts(), operands.output());
        let group = item % self.blocking.channel_groups;
        let slab = item / self.blocking.channel_groups % self.slabs;
        let block = item / self.blocking.channel_groups / self.slabs;
        let (count, blocks) = self.tile_blocks(operands.rows.len());
        // Blocks of almost equal size: a last block of one tile would cost as much as one of four.
        let share = |index: usize| count * index / blocks;
        let planes = self.blocking.planes;
        let chunks = self.weights.panels().div_ceil(self.chunk());
        let groups = self.blocking.channel_groups;
        let work = Item {
            conv: self,
            grid: Grid::new(&self.output, &operands.rows, self.tile),
            tiles: share(block)..share(block + 1),
            next: share((block + 1).min(blocks))..share((block + 2).min(blocks)),
            planes: if self.tile.is_deep() {
                0..1
            } else {
                slab * planes..((slab + 1) * planes).min(self.output.depth)
            },
        };
        let [transformed_len, products_len, weights_len, room_len, _] = self.scratch_parts();
        let transformed = scratch;
        let products = transformed.wrapping_add(transformed_len);
        let own_weights = products.wrapping_add(products_len);
        let room = own_weights.wrapping_add(weights_len);
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "all parts of the scratch start at cache lines"
        )]
        let list = room.wrapping_add(room_len).cast::<*const f32>();
        let adds: [Option<Tensor>; 2] =
            std::array::from_fn(|index| (index < self.adds).then(|| operands.input(1 + index)));
        // SAFETY: the caller's contract: operands are valid and the scratch is this thread's.
        unsafe {
            if self.tile.is_deep() {
                work.transform_deep_input(&input, transformed, room);
            } else {
                work.transform_input(&input, transformed);
            }
            for chunk in chunks * group / groups..chunks * (group + 1) / groups {
                let panels =
                    chunk * self.chunk()..((chunk + 1) * self.chunk()).min(self.weights.panels());
                let mut lines = PrefetchList::new(list, work.panel_calls(panels.len()));
                work.list_output(&mut lines, &output, adds[0].as_ref(), &panels);
                work.list_next_input(&mut lines, &input, chunk, chunks);
                work.multiply(&panels, transformed, products, own_weights, lines.finish());
                if self.tile.is_deep() {
                    work.fold_depth(&panels, products);
                }
                work.transform_output(&panels, products, &output, &adds, operands.border_is_clear);
            }
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
