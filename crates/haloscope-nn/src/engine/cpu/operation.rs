//! What every step of a plan can do: be split into items, and run an item.

use std::ops::Range;

use super::layout::{Layout, Tensor};
use super::weights::Weights;

/// The work of one step, fixed for the shapes of its plan.
pub(crate) trait Operation: Send + Sync {
    /// What it is, for breakdowns of time: `conv 3×3 F(6×6)`.
    fn describe(&self) -> String;

    /// Pieces of work of these rows of the output that may run in any order and on any thread.
    fn items(&self, rows: &Range<usize>) -> usize;

    /// Floats of scratch that a thread needs.
    fn scratch_len(&self) -> usize {
        0
    }

    /// Runs one item.
    ///
    /// # Safety
    /// The operands have the layouts that the operation was made for and their memory is valid; no
    /// two threads run the same item; nobody else writes the operands; `scratch` is aligned to a
    /// cache line, valid for `scratch_len` floats, and used by this thread only.
    unsafe fn run(&self, item: usize, operands: &Operands<'_>, scratch: *mut f32);

    /// Whether the output may lie in the memory of this input if the layouts are the same.
    fn may_overwrite(&self, _input: usize) -> bool {
        false
    }

    /// Multiplications that the definition of the operation has.
    fn multiplications(&self) -> f64 {
        0.0
    }

    /// The weights that it keeps.
    fn weights(&self) -> Option<Weights> {
        None
    }
}

/// A value of a plan: its layout and its place in the activations' memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) layout: Layout,
    pub(crate) offset: usize,
    /// The row of the image that is the first in memory.
    pub(crate) first: usize,
}

impl Value {
    /// The value in memory. Rows are counted from the first of the image, whichever of them are there.
    pub(crate) fn tensor(&self, memory: *mut f32) -> Tensor {
        let start = memory.wrapping_add(self.offset);
        let data = start.wrapping_sub(self.first * self.layout.row_stride());
        Tensor { layout: self.layout, data }
    }
}

/// The tensors of one step.
pub(crate) struct Operands<'a> {
    pub(crate) memory: *mut f32,
    pub(crate) values: &'a [Value],
    pub(crate) inputs: &'a [usize],
    pub(crate) output: usize,
    /// The rows of the output to compute.
    pub(crate) rows: Range<usize>,
    /// Whether the border of the output holds zeros already: the value that lay there before had
    /// the same layout.
    pub(crate) border_is_clear: bool,
}

// SAFETY: the memory belongs to the scratch of one run; steps give each row to one thread.
unsafe impl Sync for Operands<'_> {}

impl Operands<'_> {
    pub(crate) fn input(&self, index: usize) -> Tensor {
        self.values[self.inputs[index]].tensor(self.memory)
    }

    pub(crate) fn output(&self) -> Tensor {
        self.values[self.output].tensor(self.memory)
    }
}
