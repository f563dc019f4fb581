//! What the parts of an image tell each other while a network runs on them: the pixels next to a cut, layer by layer.
//!
//! A plan for a [`Shard`](super::Shard) says all of it before anything runs. How pixels get from one part to another is the
//! business of a [`Halo`]: between the ranks of a job, or between threads. Nothing here knows ranks.

use crate::error::Result;

/// What one part sends and receives in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HaloPlan {
    rounds: Vec<Round>,
}

/// An exchange with the neighbours on both sides along one axis. The neighbours have the same round, with the same lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The step before which it takes place, as an index into [`EnginePlan::steps`](super::EnginePlan::steps); the same step
    /// comes again in every wave of a plan that runs in [waves](super::EnginePlan::waves).
    pub step: usize,
    /// The spatial axis.
    pub axis: usize,
    /// Values for the neighbour before and the one after; 0 where there is none.
    pub sent: [usize; 2],
    /// Values from the neighbour before and the one after.
    pub received: [usize; 2],
}

impl Round {
    /// Values that all faces have together.
    pub(crate) fn len(&self) -> usize {
        self.sent.iter().chain(&self.received).sum()
    }
}

impl HaloPlan {
    /// A plan of these exchanges.
    #[must_use]
    pub const fn new(rounds: Vec<Round>) -> Self {
        Self { rounds }
    }

    /// The exchanges in their order.
    #[must_use]
    pub fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// Whether nothing is exchanged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// The bytes that the part sends in a run.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        let values = self.rounds.iter().flat_map(|round| round.sent);
        values.map(|count| 4 * count as u64).sum()
    }

    /// Values of the faces of the largest exchange.
    pub(crate) fn faces_len(&self) -> usize {
        self.rounds.iter().map(Round::len).max().unwrap_or(0)
    }

    /// The messages that the part sends in a run.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.rounds.iter().flat_map(|round| round.sent).filter(|&count| count > 0).count()
    }
}

/// The values of a round: for the neighbour before and the one after, and room for theirs.
#[derive(Debug)]
pub struct Faces<'a> {
    /// As many as the round says.
    pub sent: [&'a [f32]; 2],
    /// As many as the round says; all of them are to be written.
    pub received: [&'a mut [f32]; 2],
}

/// Something that brings the faces of a part to its neighbours.
pub trait Halo {
    /// Sends `faces.sent` to the neighbours and fills `faces.received` with what they send in the same round. Returns in words
    /// why it could not.
    fn exchange(&mut self, round: &Round, faces: Faces<'_>) -> std::result::Result<(), String>;
}

/// The halo of an image that is not cut.
pub(crate) struct NoHalo;

impl Halo for NoHalo {
    fn exchange(&mut self, _: &Round, _: Faces<'_>) -> std::result::Result<(), String> {
        Err("the plan is for a part of an image, and needs `run_shard`".into())
    }
}

/// Refuses to run a plan for a part of an image without neighbours, before anything is computed.
pub(crate) fn check_whole(halo: &HaloPlan) -> Result<()> {
    if halo.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the plan is for a part of an image, which exchanges {} halos with its neighbours; use `run_shard`",
        halo.rounds.len()
    );
    Err(crate::error::Error::Argument { what: "run", reason })
}
