//! One way to run a reconstruction: how its image is cut, and what each rank has and takes.

use haloscope::forecast::{Forecast, Memory, Share};
use haloscope::tiling::{Extent, Patch, Strategy, TilePlan, Tiling};
use haloscope::words::sides;
use serde::Serialize;

use super::room::Room;
use crate::choice::LayoutChoice;
use crate::memory::Expected;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Arrangement {
    /// As it is given to `--patch`.
    pub patch: String,
    /// The largest along any side; 0 without a network.
    pub overlap: usize,
    /// `exact`, or how tiles are joined.
    pub strategy: &'static str,
    /// Why it is exact or has tiles.
    pub reason: Option<String>,
    pub tiles: usize,
    pub grid: Vec<usize>,
    pub window: Vec<usize>,
    pub tiles_at_once: usize,
    /// Pixels that are computed for each pixel of the image.
    pub work_multiplier: f64,
    pub teraflop_per_iteration: f64,
    /// The operators of the rank with the most of them.
    pub most_operators: usize,
    /// The tiles of the rank with the most of them.
    pub most_tiles: usize,
    /// The pixels that the network computes on the rank with the most of them, in fair shares of the image's; 0 without
    /// a network.
    pub largest_load: f64,
    pub largest_memory_bytes: usize,
    /// Of all ranks, if they are threads of one process.
    pub together_bytes: usize,
    pub bytes_sent_per_iteration: u64,
    /// The rows that a wave of an exact network takes, if it runs in waves.
    pub rows_per_wave: Option<usize>,
    /// The rounds of exchanges of an exact network in an iteration, and the bytes that they send, of the rank with the most.
    pub halo_rounds: usize,
    pub halo_bytes: u64,
    pub fits: bool,
    /// Where the values of a job's image are, and what the other layout takes.
    pub layout: Option<LayoutChoice>,
    pub ranks: Vec<RankShare>,
    /// Whether a job file, and not an option, says how long tiles are.
    #[serde(skip)]
    pub is_of_job: bool,
}

/// What one rank has and takes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RankShare {
    pub operators: usize,
    pub tiles: usize,
    pub load: f64,
    pub memory_bytes: usize,
    pub memory: MemoryParts,
    /// In the memory of its device.
    pub device_bytes: usize,
    pub bytes_sent_per_iteration: u64,
    /// To its device and back, in an iteration.
    pub device_traffic_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct MemoryParts {
    pub images: usize,
    pub measurements: usize,
    pub tiles: usize,
    pub weights: usize,
    pub activations: usize,
}

impl Arrangement {
    /// Of a forecast with images that are cut like this.
    pub(super) fn of(tiling: &Tiling, forecast: &Forecast, has_network: bool, room: Room) -> Self {
        let exchanges = forecast.largest_exchanges();
        let (tiles, shards) = (forecast.tiles.as_ref(), forecast.shards.as_ref());
        // A job that says that its image is in shards leaves no choice.
        let (strategy, reason) = match (&forecast.choice, shards) {
            (Some(choice), _) => (choice.tiling.strategy, Some(choice.reason.clone())),
            (None, Some(_)) if has_network => {
                (Strategy::Exact, Some("the image is in shards".into()))
            }
            _ => (tiling.strategy, None),
        };
        let (grid, window) = match (tiles, shards) {
            (Some(tiles), _) => (tiles.grid(), tiles.window().to_vec()),
            (None, Some(shards)) => (shards.grid(), shards.longest()),
            (None, None) => (Vec::new(), Vec::new()),
        };
        let together = forecast.process_memory(0..forecast.ranks.len());
        let most = |of: fn(&Share) -> usize| forecast.ranks.iter().map(of).max().unwrap_or(0);
        Self {
            patch: patch_name(&tiling.patch),
            overlap: tiles.map_or(0, |tiles| tiles.overlap().iter().copied().max().unwrap_or(0)),
            strategy: strategy_name(strategy),
            reason,
            tiles: forecast.ranks.iter().map(|share| share.tiles).sum(),
            grid,
            window,
            tiles_at_once: forecast.batch,
            work_multiplier: tiles.map_or(1.0, TilePlan::work_multiplier),
            teraflop_per_iteration: forecast.flops / 1e12,
            most_operators: most(|share| share.operators),
            most_tiles: most(|share| share.tiles),
            largest_load: forecast.largest_load(),
            largest_memory_bytes: forecast.largest_memory(),
            together_bytes: together,
            bytes_sent_per_iteration: forecast.bytes_sent(),
            rows_per_wave: forecast.pass.band(),
            halo_rounds: exchanges.rounds,
            halo_bytes: exchanges.bytes_sent,
            fits: room.holds(forecast.largest_memory(), together),
            layout: None,
            ranks: forecast.ranks.iter().map(RankShare::of).collect(),
            is_of_job: false,
        }
    }

    /// The same with what a job, and not the options, say of its tiles and its memory.
    pub(super) fn of_job(self, expected: &Expected, room: Room) -> Self {
        let overlap = expected.forecast.tiles.as_ref().map_or(0, |tiles| {
            // The first tile may see nothing before it.
            let before = |tile: usize| tiles.tile(tile).keep.iter().map(|keep| keep.start).max();
            before(0).max(before(tiles.len() - 1)).unwrap_or(0)
        });
        let largest_memory_bytes = expected.rank_bytes as usize;
        let together_bytes = expected.bytes(self.ranks.len(), 1) as usize;
        Self {
            overlap,
            largest_memory_bytes,
            together_bytes,
            fits: room.holds(largest_memory_bytes, together_bytes),
            layout: expected.layout.clone(),
            is_of_job: true,
            ..self
        }
    }

    pub(super) fn is_exact(&self) -> bool {
        self.strategy == strategy_name(Strategy::Exact)
    }

    /// What cuts the image like this.
    pub(super) fn option(&self) -> String {
        match (self.is_exact(), self.is_of_job) {
            (true, true) => "`strategy = \"exact\"` in [prior]".into(),
            (true, false) => "--strategy exact".into(),
            (false, true) => format!("`patch = {}` in [prior]", patch_value(&self.patch)),
            (false, false) => format!("--patch {}", self.patch),
        }
    }

    /// The rank that needs the most memory.
    pub(super) fn largest(&self) -> &RankShare {
        let most = self.ranks.iter().max_by_key(|rank| rank.memory_bytes);
        most.unwrap_or(&self.ranks[0])
    }
}

impl RankShare {
    fn of(share: &Share) -> Self {
        let Memory { images, measurements, tiles, weights, activations, device } = share.memory;
        Self {
            operators: share.operators,
            tiles: share.tiles,
            load: share.load,
            memory_bytes: share.memory.total(),
            memory: MemoryParts { images, measurements, tiles, weights, activations },
            device_bytes: device,
            bytes_sent_per_iteration: share.bytes_sent,
            device_traffic_bytes: share.device_traffic,
        }
    }
}

fn patch_name(patch: &Patch) -> String {
    match patch {
        Patch::Standard => "standard".into(),
        Patch::Auto => "auto".into(),
        Patch::Given(Extent::Same(length)) => length.to_string(),
        Patch::Given(Extent::PerAxis(lengths)) => sides(lengths),
    }
}

fn strategy_name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Standard => "standard",
        Strategy::Basic => "basic",
        Strategy::Overlap => "overlap",
        Strategy::Blend => "blend",
        Strategy::Exact => "exact",
    }
}

/// A length of tiles as job files write it.
fn patch_value(patch: &str) -> String {
    match patch.parse::<usize>() {
        Ok(length) => length.to_string(),
        Err(_) if patch.contains('x') => format!("[{}]", patch.replace('x', ", ")),
        Err(_) => format!("\"{patch}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_job_files_have_them() {
        let written = ["256", "8x256x256", "auto"].map(patch_value);
        assert_eq!(written, ["256", "[8, 256, 256]", "\"auto\""]);
    }
}
