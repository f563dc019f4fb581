//! What an engine makes of a network for one shape, whichever engine it is.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use super::halo::{Halo, HaloPlan};
use crate::error::Result;
use crate::shape::Shape;

/// A network planned for one shape of input: immutable, and shared by as many runs as you like.
///
/// See [`Engine`](super::Engine) for an example.
pub trait EnginePlan: Send + Sync + fmt::Debug {
    /// The shape of the input.
    fn input_shape(&self) -> &Shape;

    /// The shape of the output.
    fn output_shape(&self) -> &Shape;

    /// The bytes that the plan and a scratch take.
    fn memory(&self) -> PlanMemory;

    /// The steps in the order in which they run; one for all the work if the engine does not tell them apart.
    fn steps(&self) -> &[PlanStep];

    /// Floating-point operations by the definition of the layers, two for each multiplication: an engine may need fewer.
    fn flops(&self) -> f64 {
        self.steps().iter().map(PlanStep::flops).sum()
    }

    /// What one run at a time needs. Any number of them may be in use at once.
    fn scratch(&self) -> Scratch;

    /// Runs the network on `input`, in row-major order as its shape says, into `output`; both are in host memory.
    fn run(&self, input: &[f32], output: &mut [f32], scratch: &mut Scratch) -> Result<()> {
        self.run_observed(input, output, scratch, &mut |_, _| ())
    }

    /// As [`run`](Self::run); `observe` is told of each step and the time it took.
    fn run_observed(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()>;

    /// What is exchanged with neighbours; nothing, unless the plan is for a part of an image.
    fn halo(&self) -> &HaloPlan {
        const { &HaloPlan::new(Vec::new()) }
    }

    /// As [`run_observed`](Self::run_observed) for a part of an image, while `halo` is told of every round of the
    /// plan's [`halo`](Self::halo), in order. If it fails, so does the run.
    fn run_shard(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        halo: &mut dyn Halo,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        let _ = halo;
        self.run_observed(input, output, scratch, observe)
    }
}

/// The bytes that a plan takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanMemory {
    /// Weights in the form that the engine reads, in host memory. Plans of one network share those that they have in
    /// common; each counts them.
    pub weights: usize,
    /// The values between the steps, in host memory; part of each [`Scratch`].
    pub activations: usize,
    /// Working memory of all threads together, in host memory; part of each [`Scratch`].
    pub workspace: usize,
    /// All that lies on a device with memory of its own.
    pub device: usize,
}

impl PlanMemory {
    /// Bytes of host memory for a plan and one scratch.
    #[must_use]
    pub fn total(&self) -> usize {
        self.weights + self.activations + self.workspace
    }
}

/// What a run works with: memory, threads, a stream of a device. Only the engine knows what is in it.
pub struct Scratch(Box<dyn Any + Send>);

impl Scratch {
    /// Wraps what the engine needs.
    pub fn new(inner: impl Any + Send) -> Self {
        Self(Box::new(inner))
    }

    /// What the engine put in, unless it was another engine.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// A step of a plan: one layer with what was fused into it.
#[derive(Clone, PartialEq)]
pub struct PlanStep {
    name: String,
    method: String,
    flops: f64,
}

impl PlanStep {
    /// A step.
    #[must_use]
    pub fn new(name: String, method: String, flops: f64) -> Self {
        Self { name, method, flops }
    }

    /// The name of the network's node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is computed: `conv 3×3, F(6×6)`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Floating-point operations by definition, two for each multiplication.
    #[must_use]
    pub fn flops(&self) -> f64 {
        self.flops
    }
}

impl fmt::Debug for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.method)
    }
}
