//! What a job will take of the machine's memory, before it takes it.
//!
//! The iterations are the library's to forecast. Around them a run holds the truth and the picture of the
//! measurements, and before them, for scans, copies of all measurements.

use haloscope::denoise::NetworkDenoiser;
use haloscope::forecast::{self, Denoising, Forecast};
use haloscope::tiling::{ShardPlan, Tiling};
use haloscope::{Error, Result};
use serde_json::{Value, json};

use crate::Job;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::sections::files::StartPlan;
use crate::sections::operators::Recipe;
use crate::sections::prior::PriorKind;

/// What a job will take: its iterations by the library's forecast, and what is held around them.
#[derive(Debug)]
pub struct Expected {
    /// Of the iterations, rank by rank.
    pub forecast: Forecast,
    /// The most bytes that a rank holds at once, if it is a process of its own.
    pub rank_bytes: u64,
    /// Those of them that all ranks of one process share.
    shared_bytes: u64,
}

impl Expected {
    /// Of a job on so many ranks, with its network, if it has one.
    pub(crate) fn of(
        job: &Job,
        layout: &Layout,
        ranks: usize,
        network: Option<&NetworkDenoiser>,
    ) -> Result<Self> {
        Self::with_tiling(job, layout, ranks, network, None)
    }

    /// The same, with images cut in another way, if one is given.
    pub(crate) fn with_tiling(
        job: &Job,
        layout: &Layout,
        ranks: usize,
        network: Option<&NetworkDenoiser>,
        tiling: Option<&Tiling>,
    ) -> Result<Self> {
        let measured: Vec<usize> = layout.recipes.iter().map(Recipe::measured_values).collect();
        let prior = match (&job.prior.kind, network) {
            (PriorKind::Network(plan), Some(denoiser)) => {
                let (has_range, own) = (job.prior.has_range(), || plan.tiling());
                let tiling = tiling.cloned().unwrap_or_else(own);
                forecast::PriorWork::Network(Denoising { denoiser, tiling, has_range })
            }
            (PriorKind::TotalVariation { denoiser, .. }, _) => {
                forecast::PriorWork::TotalVariation {
                    denoiser: *denoiser,
                    has_range: job.prior.has_range(),
                }
            }
            _ => forecast::PriorWork::None,
        };
        let forecast = forecast::Workload {
            image: layout.image.clone(),
            measurements: measured.iter().map(|values| vec![*values]).collect(),
            ranks,
            method: job.solver.algorithm,
            inner_iterations: job.solver.inner_iterations(),
            prior,
        }
        .forecast()?;
        let image = bytes_of(&layout.image);
        let values = measured.iter().sum();
        let all = bytes_of(&[layout.image[0], values]);
        let held =
            image * (u64::from(layout.truth.is_some()) + u64::from(job.output.folder.is_some()));
        // The file of a scan, its parts, and all of them together for the back-projection.
        let is_scan = layout.recipes[0].scan().is_some();
        let needs_all = is_scan
            && (job.output.folder.is_some() || matches!(job.start, StartPlan::BackProjection(..)));
        let preparing = if needs_all { 3 * all + 2 * image } else { 0 };
        let rank_bytes = held + preparing.max(forecast.largest_memory() as u64);
        let weights = forecast.ranks.iter().map(|share| share.memory.weights).max();
        let shared_bytes = (weights.unwrap_or(0) as u64).min(rank_bytes);
        Ok(Self { forecast, rank_bytes, shared_bytes })
    }

    /// The bytes of so many ranks in so many processes.
    #[must_use]
    pub fn bytes(&self, ranks: usize, processes: usize) -> u64 {
        let own = (self.rank_bytes - self.shared_bytes).saturating_mul(ranks as u64);
        own.saturating_add(self.shared_bytes.saturating_mul(processes as u64))
    }

    /// Refuses what does not fit on this machine, which has `here` of the ranks in so many processes.
    pub(crate) fn check(&self, here: usize, processes: usize) -> Result<()> {
        let remedy = match &self.forecast.shards {
            Some(_) => "more machines, or tiles: strategy = \"overlap\" in [prior]",
            None => "or more machines",
        };
        check(self.bytes(here, processes), remedy)
    }

    /// How much it is for so many ranks, of which each process has `together`.
    #[must_use]
    pub fn describe(&self, ranks: usize, together: usize) -> String {
        format!("about {}{}", size(self.bytes(together, 1)), whose(ranks, together))
    }

    /// The same as the words that begin a run.
    #[must_use]
    pub fn announce(&self, ranks: usize, together: usize) -> String {
        format!("about {} of memory{}", size(self.bytes(together, 1)), whose(ranks, together))
    }

    /// For programs.
    #[must_use]
    pub fn details(&self) -> Value {
        let rank = |share: &forecast::Share| {
            json!({
                "operators": share.operators,
                "tiles": share.tiles,
                "load": share.load,
                "memory_bytes": share.memory.total(),
                "halo_rounds": share.exchanges.rounds,
                "halo_bytes_sent": share.exchanges.bytes_sent,
                "bytes_sent_per_iteration": share.bytes_sent,
            })
        };
        let tiles = self.forecast.tiles.as_ref();
        json!({
            "rank_bytes": self.rank_bytes,
            "shared_bytes": self.shared_bytes,
            "available_bytes": Machine::detect().memory_available_bytes,
            "tiles": tiles.map_or(0, haloscope::tiling::TilePlan::len),
            "window": tiles.map(|tiles| tiles.window().to_vec()),
            "shards": self.forecast.shards.as_ref().map(ShardPlan::grid),
            "exact": self.forecast.shards.is_some(),
            "reason": self.forecast.choice.as_ref().map(|choice| &choice.reason),
            "teraflop_per_iteration": self.forecast.flops / 1e12,
            "ranks": self.forecast.ranks.iter().map(rank).collect::<Vec<_>>(),
        })
    }
}

/// The ranks that an amount of memory is for.
fn whose(ranks: usize, together: usize) -> String {
    match (ranks, together) {
        (1, _) => String::new(),
        (_, 1) => format!(" on each of {ranks} ranks"),
        _ => format!(" for {together} ranks together"),
    }
}

/// Refuses images of which this machine cannot hold even the few that every method needs on each of its ranks, before one
/// is made.
pub(crate) fn check_image(shape: &[usize], here: usize) -> Result<()> {
    check(bytes_of(shape).saturating_mul(4 * here as u64), "or more machines")
}

fn check(needed: u64, remedy: &str) -> Result<()> {
    match Machine::detect().memory_available_bytes {
        Some(available) if needed > available => Err(Error::argument(
            "memory",
            format!(
                "the job needs about {} on this machine and {} are available; use a smaller image, fewer ranks, {remedy}",
                gigabytes(needed),
                gigabytes(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// Of an array of this shape.
fn bytes_of(shape: &[usize]) -> u64 {
    shape.iter().fold(4, |bytes: u64, side| bytes.saturating_mul(*side as u64))
}

/// In megabytes where gigabytes would say nothing.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{} MB", bytes.div_ceil(1_000_000)),
        _ => gigabytes(bytes),
    }
}

/// In gigabytes with one digit behind the point.
#[must_use]
pub fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_process_have_the_weights_once() {
        let forecast = Forecast {
            tiles: None,
            shards: None,
            choice: None,
            batch: 0,
            flops: 0.0,
            ranks: Vec::new(),
        };
        let expected = Expected { forecast, rank_bytes: 900_000_000, shared_bytes: 600_000_000 };
        assert_eq!(expected.bytes(4, 1), 1_800_000_000);
        assert_eq!(expected.bytes(4, 4), 3_600_000_000);
        assert_eq!(expected.describe(1, 1), "about 900 MB");
        assert_eq!(expected.describe(4, 4), "about 1.8 GB for 4 ranks together");
        assert_eq!(expected.describe(4, 1), "about 900 MB on each of 4 ranks");
    }
}
