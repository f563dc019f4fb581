//! What a plan that runs in waves tells of itself.

use super::halo::HaloPlan;

/// How a plan runs an image from its first rows to its last, each layer some rows behind the one before.
///
/// See [`Engine::plan_waves`](super::Engine::plan_waves).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waves {
    /// Rows of the input that a wave takes; the last one may take a few more.
    pub band: usize,
    /// Waves until the output is complete.
    pub count: usize,
    /// For each step of the plan, how many rows of the input it is behind at most.
    pub delays: Vec<usize>,
}

/// What a plan in waves would be, before it is made.
///
/// See [`Engine::outline_waves`](super::Engine::outline_waves).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WavesOutline {
    /// How it would run.
    pub waves: Waves,
    /// What it would exchange with its neighbours.
    pub halo: HaloPlan,
    /// The bytes that it would take with one scratch.
    pub bytes: usize,
}

impl Waves {
    /// The rows of the input that the output is behind at most.
    #[must_use]
    pub fn delay(&self) -> usize {
        self.delays.iter().copied().max().unwrap_or(0)
    }
}
