//! Direct convolutions of any kernel and stride, and transposed convolutions as several of them.
//!
//! A transposed convolution with stride `s` is `s` ordinary ones per axis, one for each position of
//! an output pixel modulo the stride (its *phase*), whose results interleave. An item is one row of
//! the output. Taps that fall on planes outside the volume and its ghosts are skipped; rows and columns outside are
//! the border's zeros, so whoever makes the plan sees to it that the border is wide enough.

use std::ops::Range;
use std::sync::Arc;

use super::super::kernels::{
    DirectKernel, Epilogue, Fused, InstructionSet, OUTPUTS, PIXELS, Pixels, Taps, sixes,
};
use super::super::layout::{BLOCK, Layout, Tensor, signed};
use super::super::operation::{Operands, Operation};
use super::super::weights::{DirectWeights, PhaseTaps, Weights};

/// How outputs and inputs of one axis belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) transposed: bool,
}

impl Axis {
    /// The phases of the axis; an ordinary convolution has one.
    pub(crate) fn phases(&self) -> usize {
        if self.transposed { self.stride } else { 1 }
    }

    /// The taps of a phase in the order of the input.
    ///
    /// Transposed: output `o` gets input `i` times tap `k` where `i·stride + k = o + padding`; the
    /// taps of phase `r` are `r, r + stride, …`, and the larger the tap, the earlier the input.
    fn taps(&self, phase: usize) -> Vec<usize> {
        if self.transposed {
            (phase..self.kernel).step_by(self.stride).rev().collect()
        } else {
            (0..self.kernel).collect()
        }
    }

    fn tap_count(&self, phase: usize) -> usize {
        let step = if self.transposed { self.stride } else { 1 };
        self.kernel.saturating_sub(phase).div_ceil(step)
    }

    /// The phase of an output, and the input under its first tap.
    fn first_input(&self, output: usize) -> (usize, isize) {
        if !self.transposed {
            return (0, signed(output * self.stride) - signed(self.padding));
        }
        let at = output + self.padding;
        let (phase, last) = (at % self.stride, at / self.stride);
        (phase, signed(last) + 1 - signed(self.tap_count(phase)))
    }

    /// The inputs under the taps of some outputs, from the first to the last; they may lie outside. Empty if there are no
    /// taps.
    pub(crate) fn hull(&self, outputs: &Range<usize>) -> Range<isize> {
        let Range { start, end } = *outputs;
        // Those within a stride of the ends reach furthest.
        let edges = (start..end.min(start + self.stride))
            .chain(end.saturating_sub(self.stride).max(start)..end);
        let taps = edges.filter_map(|output| {
            let (phase, first) = self.first_input(output);
            let count = self.tap_count(phase);
            (count > 0).then_some(first..first + signed(count))
        });
        taps.reduce(|hull, taps| hull.start.min(taps.start)..hull.end.max(taps.end)).unwrap_or(0..0)
    }

    /// How far the taps of any output of an axis reach outside: before the first input and beyond
    /// the last.
    pub(crate) fn reach(&self, inputs: usize, outputs: usize) -> [usize; 2] {
        let hull = self.hull(&(0..outputs));
        if hull.is_empty() {
            return [0; 2];
        }
        [-hull.start, hull.end - signed(inputs)].map(|reach| reach.max(0).cast_unsigned())
    }
}

/// The taps of all phases of three axes, the last axis fastest.
pub(crate) fn phase_taps(axes: &[Axis; 3]) -> Vec<PhaseTaps> {
    let mut phases = Vec::new();
    for z in 0..axes[0].phases() {
        for y in 0..axes[1].phases() {
            for x in 0..axes[2].phases() {
                phases
                    .push(PhaseTaps { taps: [axes[0].taps(z), axes[1].taps(y), axes[2].taps(x)] });
            }
        }
    }
    phases
}

/// The convolution of one layer for one shape.
pub(crate) struct DirectConv {
    input: Layout,
    output: Layout,
    axes: [Axis; 3],
    weights: Arc<DirectWeights>,
    adds: usize,
    activation: Fused,
    kernels: [DirectKernel; PIXELS],
}

impl DirectConv {
    pub(crate) fn new(
        instructions: InstructionSet,
        input: Layout,
        output: Layout,
        axes: [Axis; 3],
        weights: Arc<DirectWeights>,
        (adds, activation): (usize, Fused),
    ) -> Self {
        let step = input_step(&axes[2]);
        let kernels = std::array::from_fn(|pixels| instructions.direct_kernel(pixels + 1, step));
        Self { input, output, axes, weights, adds, activation, kernels }
    }

    /// The taps of a phase that fall on planes of the input, and the first of those.
    fn clip_depth(&self, phase: &PhaseTaps, first: isize) -> (Range<usize>, usize) {
        let skipped = (-first).max(0).cast_unsigned();
        let left = (signed(self.input.with_ghosts().depth) - first).max(0).cast_unsigned();
        let end = phase.taps[0].len().min(left);
        (skipped.min(end)..end, (first.max(0)).cast_unsigned())
    }

    /// Convolves the outputs of one row that belong to one phase of the columns.
    unsafe fn run_phase(
        &self,
        row: &OutputRow,
        column_phase: usize,
        input: &Tensor,
        output: &Tensor,
        adds: &[Option<Tensor>; 2],
    ) {
        let [_, _, columns] = &self.axes;
        let first_column = if columns.transposed {
            (column_phase + columns.stride - columns.padding % columns.stride) % columns.stride
        } else {
            0
        };
        let step = columns.phases();
        if first_column >= self.output.width {
            return;
        }
        let count = (self.output.width - first_column).div_ceil(step);
        let (_, input_column) = columns.first_input(first_column);
        let phase_index = row.phase * columns.phases() + column_phase;
        let phase = self.weights.phase(phase_index);
        let (depth_taps, input_plane) = self.clip_depth(phase, row.input_plane);
        let counts = phase.counts();
        let layout = &input.layout;
        let row_weights = counts[2] * BLOCK * OUTPUTS;
        let taps = Taps {
            count: [depth_taps.len(), counts[1], counts[2]],
            stride: [layout.plane_stride(), layout.row_stride(), BLOCK],
            blocks: layout.blocks(),
            block_stride: layout.block_stride(),
            last_lanes: (self.weights.inputs() - 1) % BLOCK + 1,
            skipped_weights: (counts[0] - depth_taps.len()) * counts[1] * row_weights,
        };
        let input_step = input_step(columns);
        let output_step = step * BLOCK;
        // With no plane under the taps the pointer is not read.
        let plane = input_plane.min(layout.depth - 1);
        let source = input.at(row.image, 0, plane, row.source, input_column);
        let (full, tail) = sixes(count);
        for panel in 0..output.layout.blocks().div_ceil(2) {
            let weights = self
                .weights
                .panel(phase_index, panel)
                .wrapping_add(depth_taps.start * counts[1] * row_weights);
            let bias = self.weights.bias(panel);
            let has_second = panel * 2 + 1 < output.layout.blocks();
            let at = |tensor: &Tensor| {
                let (y, x) = (signed(row.at), signed(first_column));
                tensor.at(row.image, panel * 2, row.plane, y, x)
            };
            let mut pixels = Pixels {
                input: source,
                input_stride: input_step,
                output: at(output),
                output_stride: output_step,
                second: has_second.then(|| output.layout.block_stride()),
            };
            let mut epilogue = Epilogue {
                adds: std::array::from_fn(|index| {
                    adds[index].as_ref().map_or(std::ptr::null(), |add| at(add).cast_const())
                }),
                second: std::array::from_fn(|index| {
                    adds[index].as_ref().map_or(0, |add| add.layout.block_stride())
                }),
                slope: self.activation.slope(),
            };
            for (groups, size) in [(full, PIXELS), (1, tail[0]), (1, tail[1])] {
                if size == 0 {
                    continue;
                }
                for _ in 0..groups {
                    // SAFETY: all taps of these pixels lie in the input or its border, the pixels
                    // in one row of the output, which this item alone writes.
                    unsafe { (self.kernels[size - 1])(&taps, weights, bias, &pixels, &epilogue) };
                    pixels.input = pixels.input.wrapping_add(size * input_step);
                    pixels.output = pixels.output.wrapping_add(size * output_step);
                    for add in epilogue.adds.iter_mut().filter(|add| !add.is_null()) {
                        *add = add.wrapping_add(size * output_step);
                    }
                }
            }
        }
    }
}

/// Floats between the inputs of neighbouring outputs of one phase.
fn input_step(columns: &Axis) -> usize {
    if columns.transposed { BLOCK } else { columns.stride * BLOCK }
}

/// One row of the output, and where its taps start in the input.
struct OutputRow {
    image: usize,
    plane: usize,
    at: usize,
    /// The phase of plane and row.
    phase: usize,
    /// The plane of the input under the first tap, counted from the first ghost.
    input_plane: isize,
    /// The row of the input under the first tap.
    source: isize,
}

impl Operation for DirectConv {
    fn describe(&self) -> String {
        let [depth, height, width] = &self.axes;
        let kind = if width.transposed { "transposed conv" } else { "conv" };
        let size = if self.input.depth * self.output.depth * depth.kernel > 1 {
            format!("{}×{}×{}", depth.kernel, height.kernel, width.kernel)
        } else {
            format!("{}×{}", height.kernel, width.kernel)
        };
        format!("{kind} {size}, stride {}, direct", width.stride)
    }

    fn items(&self, rows: &Range<usize>) -> usize {
        self.output.batch * self.output.depth * rows.len()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, _scratch: *mut f32) {
        let (input, output) = (operands.input(0).with_ghosts(), operands.output());
        let adds: [Option<Tensor>; 2] =
            std::array::from_fn(|index| (index < self.adds).then(|| operands.input(1 + index)));
        let (depth, rows) = (self.output.depth, &operands.rows);
        let (image, plane) = (item / rows.len() / depth, item / rows.len() % depth);
        let row = rows.start + item % rows.len();
        let (plane_phase, input_plane) = self.axes[0].first_input(plane);
        let input_plane = input_plane + signed(self.input.ghosts[0]);
        let (row_phase, input_row) = self.axes[1].first_input(row);
        let phase = plane_phase * self.axes[1].phases() + row_phase;
        let target = OutputRow { image, plane, at: row, phase, input_plane, source: input_row };
        // SAFETY: the caller's contract; the border beside this row is this item's too.
        unsafe {
            for column_phase in 0..self.axes[2].phases() {
                self.run_phase(&target, column_phase, &input, &output, &adds);
            }
            if !operands.border_is_clear {
                for block in 0..output.layout.blocks() {
                    output.clear_border(image, block, plane, row);
                }
            }
        }
    }

    fn may_overwrite(&self, input: usize) -> bool {
        input > 0
    }

    fn multiplications(&self) -> f64 {
        let taps: usize = self.axes.iter().map(|axis| axis.kernel).product();
        let pairs = self.input.channels as f64 * self.output.channels as f64 * taps as f64;
        let layout = if self.axes[2].transposed { &self.input } else { &self.output };
        pairs * (layout.values() / layout.channels) as f64
    }

    fn weights(&self) -> Option<Weights> {
        Some(Weights::Direct(Arc::clone(&self.weights)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_a_transposed_axis_share_its_taps() {
        let axis = Axis { kernel: 4, stride: 2, padding: 1, transposed: true };
        assert_eq!((axis.taps(0), axis.taps(1)), (vec![2, 0], vec![3, 1]));
        // Output 0 gets input −1 times tap 3 and input 0 times tap 1.
        assert_eq!(axis.first_input(0), (1, -1));
        assert_eq!(axis.first_input(1), (0, 0));
        assert_eq!(axis.reach(5, 10), [1, 1]);
    }

    #[test]
    fn convolutions_reach_out_by_their_padding() {
        let axis = Axis { kernel: 5, stride: 1, padding: 2, transposed: false };
        assert_eq!(axis.reach(9, 9), [2, 2]);
        let strided = Axis { kernel: 2, stride: 2, padding: 0, transposed: false };
        assert_eq!(strided.reach(9, 4), [0, 0]);
    }
}
