//! A rank that ends in the middle of the exchanges of an exact denoiser.

use std::sync::Arc;

use haloscope::Error;
use haloscope::denoise::{NetworkDenoiser, NoiseLevel, Pass};
use haloscope::distribute::agree;
use haloscope::tiling::{ShardPlan, Tiles};
use haloscope::{Array, Result};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::{EngineOptions, Faces, Halo, Round};
use haloscope_nn::models::{Architecture, Drunet};

/// A network for gray images of some rows of grains, which slabs share.
pub(crate) fn network() -> Result<Arc<NetworkDenoiser>> {
    let drunet = Drunet {
        channels: [8, 12, 16, 24],
        blocks: 1,
        image_channels: 1,
        output_channels: 1,
        ..Drunet::default()
    };
    Ok(Arc::new(NetworkDenoiser::new(drunet.random(1)?, EngineOptions::default())?))
}

/// Takes part in a denoiser of all ranks, in slabs, and calls `die` after some rounds.
pub(crate) fn denoise_and_die(
    ctx: &Context,
    network: &NetworkDenoiser,
    noisy: &Array,
    level: &NoiseLevel,
    (rounds, die): (usize, &dyn Fn()),
) -> Result<()> {
    let (shape, rank) = (noisy.shape(), ctx.rank());
    let shards = ShardPlan::new(shape, &network.grains(shape)?, ctx.size())?;
    assert_eq!(shards.grid(), [ctx.size(), 1]);
    let shard = network.shard(&shards, rank, Pass::AtOnce)?;
    assert!(rounds < shard.halo().rounds().len());
    // As the others do before they begin.
    agree(ctx, Ok::<_, Error>(()))?;
    let mut halo = Mortal { ctx, shards: &shards, rounds, die };
    shard.denoise(&shards.extract(noisy, rank)?, level, &mut halo, &mut |_, _| ()).map(drop)
}

/// A halo over ranks that fails after some rounds.
struct Mortal<'a> {
    ctx: &'a Context,
    shards: &'a ShardPlan,
    rounds: usize,
    die: &'a dyn Fn(),
}

impl Halo for Mortal<'_> {
    fn exchange(&mut self, round: &Round, faces: Faces<'_>) -> std::result::Result<(), String> {
        let Some(left) = self.rounds.checked_sub(1) else {
            (self.die)();
            return Err("the power is out".into());
        };
        self.rounds = left;
        let neighbour = |side| self.shards.neighbour(self.ctx.rank(), round.axis, side);
        let sent = faces.sent.into_iter().enumerate();
        let sends: Vec<(usize, &[f32])> = sent
            .filter(|(_, face)| !face.is_empty())
            .filter_map(|(side, face)| Some((neighbour(side)?, face)))
            .collect();
        let received = faces.received.into_iter().enumerate();
        let mut receives: Vec<(usize, &mut [f32])> = received
            .filter(|(_, face)| !face.is_empty())
            .filter_map(|(side, face)| Some((neighbour(side)?, face)))
            .collect();
        self.ctx.comm().exchange(&sends, &mut receives).map_err(|error| error.to_string())
    }
}
