//! The plan of a job file: the image, operators, network and tiles that a run of it would have.
//!
//! The forecast is that of `haloscope check`, which also counts what the command holds around the iterations.

use std::path::Path;

use anyhow::Result;
use haloscope::denoise::NetworkDenoiser;
use haloscope::tiling::Patch;

use super::room::Room;
use super::{Arguments, Plan, Setup, Sides};
use crate::job::Job;
use crate::job::prior::PriorKind;
use crate::machine::Machine;
use crate::memory::Expected;
use crate::reconstruct::layout::Layout;

/// A job and what it comes down to.
pub struct OfJob<'a> {
    job: &'a Job,
    layout: &'a Layout,
}

/// Plans a job file with `plan`.
pub fn setup<T>(
    arguments: &Arguments,
    path: &Path,
    plan: impl FnOnce(&Setup<'_>) -> Result<T>,
) -> Result<T> {
    let job = Job::open(path)?;
    // What one rank of it needs must fit here, even if it is to run elsewhere: the data are read.
    let layout = Layout::of(&job, 1)?;
    let threads = arguments.threads.unwrap_or((Machine::detect().cores / arguments.ranks).max(1));
    let denoiser = job.open_network(threads, &layout.image)?;
    let patch = match &job.prior.kind {
        PriorKind::Network(network) => network.tiling().patch,
        _ => Patch::Standard,
    };
    let arguments = Arguments {
        size: Sides(layout.image[2..].to_vec()),
        channels: layout.image[1],
        operators: layout.recipes.len(),
        patch,
        ..arguments.clone()
    };
    plan(&Setup {
        arguments: &arguments,
        denoiser,
        method: job.solver.method.kind(),
        threads,
        room: Room::new(arguments.memory_budget),
        job: Some(OfJob { job: &job, layout: &layout }),
    })
}

/// A length of tiles as job files write it.
pub fn patch_value(patch: &str) -> String {
    match patch.parse::<usize>() {
        Ok(length) => length.to_string(),
        Err(_) if patch.contains('x') => format!("[{}]", patch.replace('x', ", ")),
        Err(_) => format!("\"{patch}\""),
    }
}

impl OfJob<'_> {
    /// What the job takes with these tiles on so many ranks.
    pub fn expect(
        &self,
        network: Option<&NetworkDenoiser>,
        patch: &Patch,
        ranks: usize,
    ) -> Result<Expected> {
        Ok(Expected::with_patch(self.job, self.layout, ranks, network, Some(patch))?)
    }

    /// A plan with what the job, and not the options, say of its tiles and its memory.
    pub fn complete(&self, plan: Plan, expected: &Expected, room: Room) -> Plan {
        let overlap = expected.forecast.tiles.as_ref().map_or(0, |tiles| {
            // The first tile may see nothing before it.
            let before = |tile: usize| tiles.tile(tile).keep.iter().map(|keep| keep.start).max();
            before(0).max(before(tiles.len() - 1)).unwrap_or(0)
        });
        let largest_memory_bytes = expected.rank_bytes as usize;
        let together_bytes = expected.bytes(plan.ranks.len(), 1) as usize;
        let fits = room.holds(largest_memory_bytes, together_bytes);
        let strategy = match &self.job.prior.kind {
            PriorKind::Network(network) => super::describe::strategy(network.strategy()),
            _ => plan.strategy,
        };
        Plan {
            overlap,
            strategy,
            largest_memory_bytes,
            together_bytes,
            fits,
            is_of_job: true,
            ..plan
        }
    }

    pub fn prior_name(&self) -> &'static str {
        match self.job.prior.kind {
            PriorKind::None => "no prior",
            PriorKind::TotalVariation { .. } => super::describe::TOTAL_VARIATION,
            PriorKind::Network(_) => "a network",
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
