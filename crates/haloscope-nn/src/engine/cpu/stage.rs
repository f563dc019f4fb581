//! One step of a plan with what it takes to run it.

use super::operation::Operation;

/// The work of one [`PlanStep`](crate::engine::PlanStep), and the values that it reads and writes.
pub(crate) struct Stage {
    pub(crate) operation: Box<dyn Operation>,
    /// Indices that are the same throughout the plan. 0 is the network's input.
    pub(crate) inputs: Vec<usize>,
    pub(crate) output: usize,
    pub(crate) border_is_clear: bool,
}
