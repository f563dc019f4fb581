//! The plan of a job file: the image, operators, network and tiles that a run of it would have.
//!
//! The forecast is that of `haloscope check`, which also counts what the command holds around the iterations.

use std::path::Path;

use anyhow::Result;
use haloscope::tiling::Tiling;

use super::room::Room;
use super::{Arguments, Plan, Setup, Sides};
use haloscope_job::{Expected, Job, JobForecast, Machine};

/// A job and what it comes down to.
pub(super) struct OfJob<'a>(&'a JobForecast<'a>);

/// Plans a job file with `plan`.
pub(super) fn setup<T>(
    arguments: &Arguments,
    path: &Path,
    plan: impl FnOnce(&Setup<'_>) -> Result<T>,
) -> Result<T> {
    let job = Job::from_file(path)?;
    if job.is_sharded() {
        anyhow::bail!(
            "{}: its image is in shards, and `plan` compares tiles; `haloscope check --ranks {}` prints the parts, messages and \
             memory of this job",
            job.name(),
            arguments.ranks
        );
    }
    let threads = arguments.threads.unwrap_or((Machine::detect().cores / arguments.ranks).max(1));
    // What one rank of it needs must fit here, even if it is to run elsewhere: the data are read.
    let forecast = job.forecast(threads)?;
    let arguments = Arguments {
        size: Sides(forecast.image()[2..].to_vec()),
        channels: forecast.image()[1],
        operators: forecast.operators(),
        ..arguments.clone()
    };
    plan(&Setup {
        arguments: &arguments,
        denoiser: forecast.network().cloned(),
        method: forecast.method(),
        tiling: forecast.tiling().unwrap_or_default(),
        threads,
        room: Room::new(arguments.memory_budget),
        job: Some(OfJob(&forecast)),
    })
}

/// A length of tiles as job files write it.
pub(super) fn patch_value(patch: &str) -> String {
    match patch.parse::<usize>() {
        Ok(length) => length.to_string(),
        Err(_) if patch.contains('x') => format!("[{}]", patch.replace('x', ", ")),
        Err(_) => format!("\"{patch}\""),
    }
}

impl OfJob<'_> {
    /// What the job takes with images that are cut like this on so many ranks.
    pub(super) fn expect(&self, tiling: &Tiling, ranks: usize) -> Result<Expected> {
        Ok(self.0.expect(ranks, Some(tiling))?)
    }

    /// A plan with what the job, and not the options, say of its tiles and its memory.
    pub(super) fn complete(plan: Plan, expected: &Expected, room: Room) -> Plan {
        let overlap = expected.forecast.tiles.as_ref().map_or(0, |tiles| {
            // The first tile may see nothing before it.
            let before = |tile: usize| tiles.tile(tile).keep.iter().map(|keep| keep.start).max();
            before(0).max(before(tiles.len() - 1)).unwrap_or(0)
        });
        let largest_memory_bytes = expected.rank_bytes as usize;
        let together_bytes = expected.bytes(plan.ranks.len(), 1) as usize;
        let fits = room.holds(largest_memory_bytes, together_bytes);
        Plan { overlap, largest_memory_bytes, together_bytes, fits, is_of_job: true, ..plan }
    }

    pub(super) fn prior_name(&self) -> &'static str {
        match self.0.tiling() {
            Some(_) => "a network",
            None if self.0.has_total_variation() => super::describe::TOTAL_VARIATION,
            None => "no prior",
        }
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
