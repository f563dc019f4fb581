//! Weights as the kernels read them, filled panel by panel so that many threads can share the work.

use std::sync::{Arc, Weak};

use super::buffer::AlignedBuffer;
use super::kernels::{Filters, InstructionSet, OUTPUTS, depth_filter, pack_filters};
use super::tile::Tile;
use crate::tensor::Tensor;

/// Panels of sixteen outputs that lie together, point by point.
const CHUNK: usize = 2;

/// What is kept of a Winograd convolution's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// The transformed weights: 16/9, 4 or 7.1 times the size of the weights for tiles of 2, 4, 6; for tiles of two planes, 4/3
    /// times as much again.
    Transformed,
    /// The weights themselves, transformed again for each block of tiles.
    Packed,
}

/// The weights of an operation, which plans for several shapes may share.
#[derive(Clone)]
pub(crate) enum Weights {
    Direct(Arc<DirectWeights>),
    Winograd(Arc<WinogradWeights>),
}

impl Weights {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Direct(weights) => weights.bytes(),
            Self::Winograd(weights) => weights.bytes(),
        }
    }
}

/// Weights that are there as long as a plan has them.
pub(crate) enum Shared {
    Direct(Weak<DirectWeights>),
    Winograd(Weak<WinogradWeights>),
}

impl Shared {
    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Self::Direct(weights) => weights.strong_count() > 0,
            Self::Winograd(weights) => weights.strong_count() > 0,
        }
    }

    pub(crate) fn get(&self) -> Option<Weights> {
        match self {
            Self::Direct(weights) => weights.upgrade().map(Weights::Direct),
            Self::Winograd(weights) => weights.upgrade().map(Weights::Winograd),
        }
    }
}

impl From<&Weights> for Shared {
    fn from(weights: &Weights) -> Self {
        match weights {
            Weights::Direct(weights) => Self::Direct(Arc::downgrade(weights)),
            Weights::Winograd(weights) => Self::Winograd(Arc::downgrade(weights)),
        }
    }
}

/// Something that is filled panel by panel from the weights of a network.
pub(crate) trait Fill: Send + Sync {
    /// Panels of sixteen outputs.
    fn panels(&self) -> usize;

    /// Fills one panel.
    ///
    /// # Safety
    /// Each panel is filled once, before anybody reads it.
    unsafe fn fill(&self, weight: &Tensor, panel: usize);
}

/// The weights of a 3×3 or 3×3×3 convolution for tiles of one size.
///
/// Transformed: `[chunk][point][panel of the chunk][depth tap][channel][OUTPUTS]`, without taps where depth is transformed. Packed:
/// `[panel][depth tap][channel][9][OUTPUTS]`.
pub(crate) struct WinogradWeights {
    instructions: InstructionSet,
    tile: Tile,
    form: Form,
    outputs: usize,
    inputs: usize,
    depth_taps: usize,
    data: AlignedBuffer,
    bias: AlignedBuffer,
}

impl WinogradWeights {
    /// Weights that are still to be filled, and the bias.
    pub(crate) fn new(
        instructions: InstructionSet,
        (tile, form): (Tile, Form),
        [outputs, inputs, depth_taps]: [usize; 3],
        bias: Option<&Tensor>,
    ) -> Self {
        let mut weights = Self {
            instructions,
            tile,
            form,
            outputs,
            inputs,
            depth_taps,
            data: AlignedBuffer::uninitialised(0),
            bias: padded_bias(outputs, bias),
        };
        weights.data = AlignedBuffer::uninitialised(weights.len());
        weights
    }

    /// Bytes that such weights take, biases aside.
    pub(crate) fn bytes_of(
        (tile, form): (Tile, Form),
        [outputs, inputs, depth_taps]: [usize; 3],
    ) -> usize {
        let panels = outputs.div_ceil(OUTPUTS);
        let panel = inputs.next_multiple_of(8) * OUTPUTS;
        let per_pair = match form {
            Form::Transformed => tile.points() * tile.summed_taps(depth_taps),
            Form::Packed => 9 * depth_taps,
        };
        panels.next_multiple_of(CHUNK.min(panels)) * panel * per_pair * size_of::<f32>()
    }

    fn len(&self) -> usize {
        let shape = [self.outputs, self.inputs, self.depth_taps];
        Self::bytes_of((self.tile, self.form), shape) / size_of::<f32>()
    }

    pub(crate) fn tile(&self) -> Tile {
        self.tile
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    pub(crate) fn depth_taps(&self) -> usize {
        self.depth_taps
    }

    /// Input channels with those that fill the last block up.
    pub(crate) fn channels(&self) -> usize {
        self.inputs.next_multiple_of(8)
    }

    /// Taps along depth that the products sum over.
    pub(crate) fn summed_taps(&self) -> usize {
        self.tile.summed_taps(self.depth_taps)
    }

    /// Floats of a transformed panel at one point.
    pub(crate) fn panel_len(&self) -> usize {
        self.summed_taps() * self.channels() * OUTPUTS
    }

    /// Panels whose points lie together.
    pub(crate) fn chunk(&self) -> usize {
        CHUNK.min(self.panels())
    }

    /// Floats between the points of a chunk.
    pub(crate) fn stride(&self) -> usize {
        self.chunk() * self.panel_len()
    }

    /// Where the first point of a panel starts.
    pub(crate) fn transformed(&self, panel: usize) -> *mut f32 {
        let chunk = self.chunk();
        let at =
            panel / chunk * self.tile.points() * self.stride() + panel % chunk * self.panel_len();
        self.data.as_ptr().wrapping_add(at)
    }

    /// Where a packed panel starts.
    pub(crate) fn packed(&self, panel: usize) -> *mut f32 {
        self.data.as_ptr().wrapping_add(panel * self.depth_taps * self.channels() * OUTPUTS * 9)
    }

    /// The biases of a panel.
    pub(crate) fn bias(&self, panel: usize) -> *const f32 {
        self.bias.as_ptr().wrapping_add(panel * OUTPUTS)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.bytes() + self.bias.bytes()
    }
}

impl Fill for WinogradWeights {
    fn panels(&self) -> usize {
        self.outputs.div_ceil(OUTPUTS)
    }

    unsafe fn fill(&self, weight: &Tensor, panel: usize) {
        let filters = Filters {
            values: weight.values(),
            outputs: self.outputs,
            inputs: self.inputs,
            depth_taps: self.depth_taps,
            depth: depth_filter(self.tile.depth),
        };
        let first = panel * OUTPUTS;
        // SAFETY: the buffer has room for all panels, and this one is the caller's.
        unsafe {
            match self.form {
                Form::Transformed => {
                    let kernel = self.instructions.filter_kernel(self.tile.side);
                    kernel(&filters, first, self.transformed(panel), self.stride());
                }
                Form::Packed => pack_filters(&filters, first, self.packed(panel)),
            }
        }
    }
}

/// Which taps of a kernel one phase of a direct convolution uses, in the order of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhaseTaps {
    /// Indices into the kernel on each axis.
    pub(crate) taps: [Vec<usize>; 3],
}

impl PhaseTaps {
    pub(crate) fn counts(&self) -> [usize; 3] {
        std::array::from_fn(|axis| self.taps[axis].len())
    }

    pub(crate) fn count(&self) -> usize {
        self.counts().iter().product()
    }
}

/// The weights of a direct convolution: `[phase][panel][block][plane][row][column][BLOCK][OUTPUTS]`.
pub(crate) struct DirectWeights {
    /// Whether the weight's axes are (input, output), as transposed convolutions have them.
    transposed: bool,
    outputs: usize,
    inputs: usize,
    kernel: [usize; 3],
    phases: Vec<PhaseTaps>,
    /// Where each phase starts.
    starts: Vec<usize>,
    data: AlignedBuffer,
    bias: AlignedBuffer,
}

impl DirectWeights {
    /// Weights that are still to be filled, and the bias.
    pub(crate) fn new(
        transposed: bool,
        [outputs, inputs]: [usize; 2],
        kernel: [usize; 3],
        phases: Vec<PhaseTaps>,
        bias: Option<&Tensor>,
    ) -> Self {
        let per_tap = outputs.next_multiple_of(OUTPUTS) * inputs.next_multiple_of(8);
        let mut starts = Vec::with_capacity(phases.len());
        let mut len = 0;
        for phase in &phases {
            starts.push(len);
            len += phase.count() * per_tap;
        }
        let data = AlignedBuffer::zeroed(len);
        let bias = padded_bias(outputs, bias);
        Self { transposed, outputs, inputs, kernel, phases, starts, data, bias }
    }

    pub(crate) fn phase(&self, phase: usize) -> &PhaseTaps {
        &self.phases[phase]
    }

    /// Whether the phases use these taps.
    pub(crate) fn has_taps(&self, phases: &[PhaseTaps]) -> bool {
        self.phases == phases
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Where a panel of a phase starts.
    pub(crate) fn panel(&self, phase: usize, panel: usize) -> *mut f32 {
        let len = self.phases[phase].count() * self.inputs.next_multiple_of(8) * OUTPUTS;
        self.data.as_ptr().wrapping_add(self.starts[phase] + panel * len)
    }

    /// The biases of a panel.
    pub(crate) fn bias(&self, panel: usize) -> *const f32 {
        self.bias.as_ptr().wrapping_add(panel * OUTPUTS)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.bytes() + self.bias.bytes()
    }
}

impl Fill for DirectWeights {
    fn panels(&self) -> usize {
        self.outputs.div_ceil(OUTPUTS)
    }

    unsafe fn fill(&self, weight: &Tensor, panel: usize) {
        let values = weight.values();
        let [_, rows, columns] = self.kernel;
        let taps_of_kernel: usize = self.kernel.iter().product();
        let first = panel * OUTPUTS;
        for (index, phase) in self.phases.iter().enumerate() {
            let target = self.panel(index, panel);
            let taps = phase.count();
            for input in 0..self.inputs {
                for k in 0..OUTPUTS.min(self.outputs - first) {
                    let pair = if self.transposed {
                        input * self.outputs + first + k
                    } else {
                        (first + k) * self.inputs + input
                    };
                    let filter = &values[pair * taps_of_kernel..(pair + 1) * taps_of_kernel];
                    let mut tap = 0;
                    for &z in &phase.taps[0] {
                        for &y in &phase.taps[1] {
                            for &x in &phase.taps[2] {
                                let at = ((input / 8 * taps + tap) * 8 + input % 8) * OUTPUTS + k;
                                // SAFETY: `at` is below the panel's length; the panel is the
                                // caller's.
                                unsafe {
                                    *target.add(at) = filter[(z * rows + y) * columns + x];
                                }
                                tap += 1;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Biases for whole panels; zero where there are none.
fn padded_bias(outputs: usize, bias: Option<&Tensor>) -> AlignedBuffer {
    let buffer = AlignedBuffer::zeroed(outputs.next_multiple_of(OUTPUTS));
    if let Some(bias) = bias {
        let values = bias.values();
        // SAFETY: the buffer is at least as long as the list of biases and not shared yet.
        unsafe { buffer.as_ptr().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }
    buffer
}
