//! One step of a plan, as callers see it.

use std::fmt;
use std::ops::Range;

use super::operation::Operation;

/// A step of a plan: one layer with what was fused into it.
pub struct Step {
    name: String,
    operation: Box<dyn Operation>,
    inputs: Vec<usize>,
    output: usize,
    border_is_clear: bool,
}

impl Step {
    pub(crate) fn new(
        name: String,
        operation: Box<dyn Operation>,
        inputs: Vec<usize>,
        output: usize,
        border_is_clear: bool,
    ) -> Self {
        Self { name, operation, inputs, output, border_is_clear }
    }

    /// The name of the network's node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is computed: `conv 3×3, F(6×6)`.
    #[must_use]
    pub fn method(&self) -> String {
        self.operation.describe()
    }

    /// Floating-point operations by definition, two for each multiplication.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * self.operation.multiplications()
    }

    /// The values that the step reads, as indices that are the same throughout the plan. 0 is the
    /// network's input.
    #[must_use]
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// The value that the step writes.
    #[must_use]
    pub fn output(&self) -> usize {
        self.output
    }

    /// The rows of one of its inputs that some rows of its output depend on. Rows before 0 and
    /// beyond the last are padding, or belong to a neighbour where an image is spread over ranks.
    #[must_use]
    pub fn rows_read(&self, input: usize, rows: Range<usize>) -> Range<isize> {
        self.operation.rows_read(input, rows)
    }

    pub(crate) fn border_is_clear(&self) -> bool {
        self.border_is_clear
    }

    pub(crate) fn operation(&self) -> &dyn Operation {
        &*self.operation
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.operation.describe())
    }
}
