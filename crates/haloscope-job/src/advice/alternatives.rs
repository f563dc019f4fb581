//! The same reconstruction cut in other ways and on other ranks: a handful of tiles, compared by what the slowest rank has to do.

use haloscope::Result;
use haloscope::tiling::{Patch, Shards, Strategy, Tiling};

use super::arrangement::Arrangement;
use super::planner::Planner;

/// Patch sizes that people use, from what a small network takes to what a large memory holds.
const PATCHES: [usize; 8] = [64, 96, 128, 192, 256, 384, 512, 1024];

/// It with its image cut in other ways: those that fit before those that do not, and the least work of the slowest rank first;
/// among equals, the least memory.
pub(super) fn other_cuts(planner: &Planner<'_>, chosen: &Arrangement) -> Result<Vec<Arrangement>> {
    let what = &planner.what;
    if what.denoiser.is_none() || planner.must_be_sharded() {
        return Ok(Vec::new());
    }
    let longest = what.image[2..].iter().copied().max().unwrap_or(1);
    let lengths = PATCHES.into_iter().filter(|length| *length < longest).chain([longest]);
    // Tiles that do not depend on the ranks go before the same tiles that do.
    let patches = std::iter::once(Patch::Standard).chain(lengths.map(Patch::from));
    let patches = patches.chain(std::iter::once(Patch::Auto));
    let strategy = match what.tiling.strategy {
        Strategy::Standard | Strategy::Exact => Strategy::Overlap,
        strategy => strategy,
    };
    // A grid of parts suits one number of ranks.
    let shared = Tiling { shards: Shards::Auto, ..what.tiling.clone() };
    let tiles = patches.map(|patch| Tiling { patch, strategy, ..shared.clone() });
    let mut found: Vec<Arrangement> = Vec::new();
    // Some networks cannot be exact.
    found.extend(planner.cut(&Tiling::new(Strategy::Exact), what.ranks));
    found.retain(|_| !chosen.is_exact());
    for tiling in tiles {
        let new = planner.cut(&tiling, what.ranks)?;
        // Different patches may come to the same windows.
        let is_new = |other: &Arrangement| {
            let cut = |it: &Arrangement| (it.is_exact(), it.grid.clone(), it.window.clone());
            cut(other) != cut(&new)
        };
        let is_chosen = !chosen.is_exact() && new.patch == chosen.patch;
        if !is_chosen && found.iter().chain([chosen]).all(is_new) {
            found.push(new);
        }
    }
    found.sort_by(|one, other| {
        let work = one.largest_load.total_cmp(&other.largest_load);
        let memory = one.largest_memory_bytes.cmp(&other.largest_memory_bytes);
        other.fits.cmp(&one.fits).then(work).then(memory)
    });
    Ok(found)
}

/// It on 1, 2, 4, … ranks, up to four times as many as were asked for.
pub(super) fn other_ranks(planner: &Planner<'_>) -> Result<Vec<Arrangement>> {
    let asked = planner.what.ranks;
    let powers = std::iter::successors(Some(1_usize), |ranks| ranks.checked_mul(2));
    let others = powers.take_while(|ranks| *ranks <= 4 * asked).filter(|ranks| *ranks != asked);
    others.map(|ranks| planner.own(ranks, false)).collect()
}
