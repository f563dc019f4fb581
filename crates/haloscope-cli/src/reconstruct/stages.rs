//! What `-v` says of a run on rank 0: how long each of its stages took, and how the image is cut.

use std::time::Instant;

use haloscope_comm::Context;
use log::Level;

use crate::memory::Expected;
use crate::words::count;

/// The stages of a run, one after the other.
pub struct Stages<'a> {
    ctx: &'a Context,
    begin: Instant,
}

impl<'a> Stages<'a> {
    pub fn new(ctx: &'a Context) -> Self {
        Self { ctx, begin: Instant::now() }
    }

    /// A stage is over, and the next begins.
    pub fn end(&mut self, name: &str) {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.ctx.log(Level::Info, format!("{name} took {seconds:.2} s"));
        self.begin = Instant::now();
    }

    /// The tiles of a network, and what each rank has of them.
    pub fn say_tiles(&self, expected: &Expected) {
        let Some(plan) = &expected.forecast.tiles else { return };
        let join =
            |sides: &[usize]| sides.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        self.ctx.log(
            Level::Info,
            format!(
                "{} ({}) in windows of {}, {} at once, {:.2} pixels computed for each of the image",
                count(plan.len(), "tile"),
                join(&plan.grid()),
                join(plan.window()),
                expected.forecast.batch,
                plan.work_multiplier()
            ),
        );
        for (rank, share) in expected.forecast.ranks.iter().enumerate() {
            let (operators, tiles) =
                (count(share.operators, "operator"), count(share.tiles, "tile"));
            let memory = crate::memory::size(share.memory.total() as u64);
            self.ctx.log(Level::Debug, format!("rank {rank}: {operators}, {tiles}, {memory}"));
        }
    }
}
