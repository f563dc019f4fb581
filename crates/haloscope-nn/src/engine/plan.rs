//! What an engine makes of a network for one shape, whichever engine it is.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::halo::{Halo, HaloPlan};
use super::waves::Waves;
use crate::error::{Error, Result};
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

    /// As [`run`](Self::run); `observe` is told of each step and the time it took. In [`waves`](Self::waves) a step comes
    /// once in each wave, with the operations of the rows that the wave computes.
    fn run_observed(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()>;

    /// How it runs in waves, if it does.
    fn waves(&self) -> Option<&Waves> {
        None
    }

    /// As [`run_observed`](Self::run_observed), with the input read and the output written by bands of rows (the last axis but
    /// one), each once and in their order. A plan that runs in [`waves`](Self::waves) holds no more of either than a band;
    /// any other one reads all at once.
    fn run_bands(
        &self,
        read: &mut BandSource<'_>,
        write: &mut BandSink<'_>,
        scratch: &mut Scratch,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        let mut input = vec![0.0; self.input_shape().count()];
        let mut output = vec![0.0; self.output_shape().count()];
        let rows = |shape: &Shape| 0..shape.spatial()[shape.spatial().len() - 2];
        read(rows(self.input_shape()), &mut input).map_err(Error::Band)?;
        self.run_observed(&input, &mut output, scratch, observe)?;
        write(rows(self.output_shape()), &output).map_err(Error::Band)
    }

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

/// Fills `[batch][channel][depth][row][column]` with these rows of the input, or says in words why it cannot.
pub type BandSource<'a> =
    dyn FnMut(Range<usize>, &mut [f32]) -> std::result::Result<(), String> + 'a;

/// Takes these rows of the output, in the same order, or says in words why it cannot.
pub type BandSink<'a> = dyn FnMut(Range<usize>, &[f32]) -> std::result::Result<(), String> + 'a;

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
    /// Rows that waves keep apart ([`EngineOptions::skips_apart`](super::EngineOptions::skips_apart)); part of each [`Scratch`].
    pub apart: usize,
}

impl PlanMemory {
    /// Bytes of host memory for a plan and one scratch, without what is kept apart.
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

    /// Makes it a part of a step, with so many operations.
    pub(crate) fn set_flops(&mut self, flops: f64) {
        self.flops = flops;
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
