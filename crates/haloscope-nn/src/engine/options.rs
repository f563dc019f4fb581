//! What a caller may choose when a network is planned, whichever engine runs it.

/// The most threads that a plan takes: more than machines have cores, and fewer than systems start.
pub const MAX_THREADS: usize = 4096;

/// Options of a [`EnginePlan`](super::EnginePlan).
///
/// ```
/// use haloscope_nn::engine::{Accuracy, EngineOptions};
///
/// let options = EngineOptions { threads: 2, accuracy: Accuracy::Strict, ..EngineOptions::default() };
/// assert_eq!(options.memory_budget, None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// Threads that a run uses, the caller's included, up to [`MAX_THREADS`]. The result does not
    /// depend on it.
    pub threads: usize,
    /// How exact the convolutions are.
    pub accuracy: Accuracy,
    /// The most bytes that a plan and one scratch may take, on the device if the engine has one; slower ways to
    /// convolve are chosen until they fit. With [`Engine::plan_consuming`](super::Engine::plan_consuming) the
    /// network's own weights are not in memory beside them.
    pub memory_budget: Option<usize>,
    /// Whether waves keep the rows that skip connections read much later in an array of their own, which is not in the budget: an
    /// allocator may put it into a file. It takes a copy of these rows, and changes no bits.
    pub skips_apart: bool,
}

/// How exact convolutions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accuracy {
    /// The fastest algorithms in f32: a relative error of about 5e-6 for a whole DRUNet.
    Fast,
    /// Algorithms about as exact as a plain sum in f32.
    Strict,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { threads: 1, accuracy: Accuracy::Fast, memory_budget: None, skips_apart: false }
    }
}
