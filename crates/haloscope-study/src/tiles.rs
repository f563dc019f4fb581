//! How a configuration cuts its image: the one place that measurements, the model and the tables take tiles from.
//!
//! Windows depend on the image's sides, because those at its edges need no overlap there. So neither their size nor
//! their number follows from patch and overlap alone; the plan knows both.

use haloscope::tiling::{Batch, Strategy, TilePlan, Tiling};

use crate::error::Result;
use crate::network::NetworkName;
use crate::row::Configuration;

/// How a configuration cuts images.
pub fn tiling(configuration: &Configuration) -> Tiling {
    let overlap = configuration.overlap.unwrap_or(0);
    let strategy = if overlap == 0 { Strategy::Basic } else { Strategy::Overlap };
    let mut tiling = Tiling { overlap: overlap.into(), ..Tiling::new(strategy) };
    if let Some(patch) = configuration.patch {
        let sides = configuration.sides();
        // A patch that is larger than the image would be reported as a surprise; here it means all of it.
        let patch = patch.min(sides.iter().copied().max().unwrap_or(patch));
        tiling.patch = patch.into();
    }
    if let Some(batch) = configuration.batch {
        tiling.batch = Batch::AtMost(batch);
    }
    tiling
}

/// The tiles of a configuration's image; its network is not built, unless it is in a file.
pub fn plan(configuration: &Configuration) -> Result<TilePlan> {
    let alignment = configuration.model.parse::<NetworkName>()?.alignment()?;
    // Channels do not matter.
    let shape: Vec<usize> = [1, 1].into_iter().chain(configuration.sides()).collect();
    Ok(tiling(configuration).plan(&shape, alignment, configuration.ranks)?)
}
