//! The halo of a part of an image, whose neighbours are ranks.

use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::{Faces, Halo, Round};

use crate::tiling::ShardPlan;

/// Exchanges faces with the ranks that have the neighbouring parts: part `i` is rank `i`'s. It waits for those ranks only.
pub(super) struct RankHalo<'a> {
    ctx: &'a Context,
    shards: &'a ShardPlan,
    /// Spatial axes of the image before those of the network.
    slices: usize,
    calls: usize,
    failure: Option<haloscope_comm::Error>,
}

impl<'a> RankHalo<'a> {
    /// For a network of so many spatial axes.
    pub(super) fn new(ctx: &'a Context, shards: &'a ShardPlan, axes: usize) -> Self {
        let slices = shards.grid().len().saturating_sub(axes);
        Self { ctx, shards, slices, calls: 0, failure: None }
    }

    /// What went wrong between the ranks.
    pub(super) fn failure(&mut self) -> Option<haloscope_comm::Error> {
        self.failure.take()
    }

    /// Takes part in the rounds that other ranks have and this one has not: ranks call as often as each other.
    pub(super) fn finish(&self, calls: usize) -> Result<(), haloscope_comm::Error> {
        (self.calls..calls).try_for_each(|_| self.ctx.comm().exchange::<f32>(&[], &mut []))
    }
}

impl Halo for RankHalo<'_> {
    fn exchange(&mut self, round: &Round, faces: Faces<'_>) -> Result<(), String> {
        let axis = self.slices + round.axis;
        let bytes = 4 * round.sent.iter().sum::<usize>();
        let _span = self.ctx.span("halo").with("axis", axis as f64).with("bytes", bytes as f64);
        let neighbour = |side: usize| self.shards.neighbour(self.ctx.rank(), axis, side);
        let mut sends: Vec<(usize, &[f32])> = Vec::with_capacity(2);
        let mut receives: Vec<(usize, &mut [f32])> = Vec::with_capacity(2);
        for (side, (sent, received)) in faces.sent.into_iter().zip(faces.received).enumerate() {
            let Some(rank) = neighbour(side) else { continue };
            if !sent.is_empty() {
                sends.push((rank, sent));
            }
            if !received.is_empty() {
                receives.push((rank, received));
            }
        }
        self.calls += 1;
        let outcome = self.ctx.comm().exchange(&sends, &mut receives);
        outcome.map_err(|error| {
            let reason = error.to_string();
            self.failure = Some(error);
            reason
        })
    }
}
