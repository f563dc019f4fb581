//! How to cut the image: exactly or into tiles, of which a handful of sizes are compared by what the slowest rank has to do.

use anyhow::Result;
use haloscope::tiling::{Patch, Shards, Strategy, Tiling};

use super::room::Room;
use super::{Plan, Setup, describe};

/// Patch sizes that people use, from what a small network takes to what a large memory holds.
const PATCHES: [usize; 8] = [64, 96, 128, 192, 256, 384, 512, 1024];

/// The same job with its image cut in other ways: those that fit before those that do not, and the least work of the slowest rank first;
/// among equals, the least memory.
pub(super) fn alternatives(setup: &Setup<'_>, chosen: &Plan) -> Result<Vec<Plan>> {
    if setup.denoiser.is_none() {
        return Ok(Vec::new());
    }
    let longest = setup.arguments.size.0.iter().copied().max().unwrap_or(1);
    let lengths = PATCHES.into_iter().filter(|length| *length < longest).chain([longest]);
    // Tiles that do not depend on the ranks go before the same tiles that do.
    let patches = std::iter::once(Patch::Standard).chain(lengths.map(Patch::from));
    let patches = patches.chain(std::iter::once(Patch::Auto));
    let strategy = match setup.tiling.strategy {
        Strategy::Standard | Strategy::Exact => Strategy::Overlap,
        strategy => strategy,
    };
    let tiles = patches.map(|patch| Tiling { patch, strategy, ..shared(setup) });
    let mut plans: Vec<Plan> = Vec::new();
    // Some networks cannot be exact.
    plans.extend(setup.plan(&Tiling::new(Strategy::Exact), setup.arguments.ranks));
    plans.retain(|_| !chosen.is_exact());
    for tiling in tiles {
        let plan = setup.plan(&tiling, setup.arguments.ranks)?;
        // Different patches may come to the same windows.
        let is_new = |other: &Plan| {
            let cut = |plan: &Plan| (plan.is_exact(), plan.grid.clone(), plan.window.clone());
            cut(other) != cut(&plan)
        };
        let is_chosen = !chosen.is_exact() && plan.patch == chosen.patch;
        if !is_chosen && plans.iter().chain([chosen]).all(is_new) {
            plans.push(plan);
        }
    }
    plans.sort_by(|one, other| {
        let work = one.largest_load.total_cmp(&other.largest_load);
        let memory = one.largest_memory_bytes.cmp(&other.largest_memory_bytes);
        other.fits.cmp(&one.fits).then(work).then(memory)
    });
    Ok(plans)
}

/// How the image is cut, without a grid of parts, which suits one number of ranks.
fn shared(setup: &Setup<'_>) -> Tiling {
    Tiling { shards: Shards::Auto, ..setup.tiling.clone() }
}

/// The same job on 1, 2, 4, … ranks, up to four times as many as were asked for.
pub(super) fn other_ranks(setup: &Setup<'_>) -> Result<Vec<Plan>> {
    let asked = setup.arguments.ranks;
    let powers = std::iter::successors(Some(1_usize), |ranks| ranks.checked_mul(2));
    let others = powers.take_while(|ranks| *ranks <= 4 * asked).filter(|ranks| *ranks != asked);
    // A grid that is given means that the network is exact.
    let strategy = match (&setup.tiling.shards, setup.tiling.strategy) {
        (Shards::Grid(_), Strategy::Standard) => Strategy::Exact,
        (_, strategy) => strategy,
    };
    let tiling = Tiling { strategy, ..shared(setup) };
    others.map(|ranks| setup.plan(&tiling, ranks)).collect()
}

/// What to do.
pub(super) fn recommend(
    chosen: &Plan,
    alternatives: &[Plan],
    other_ranks: &[Plan],
    room: Room,
) -> String {
    let best = alternatives.first().filter(|best| {
        // A few percent of work are not worth another choice, unless the first does not fit; nor is a result that is not that
        // of the network.
        let is_faster = best.largest_load < 0.98 * chosen.largest_load && !chosen.is_exact();
        best.fits && (!chosen.fits || is_faster)
    });
    let idle = chosen.ranks.iter().filter(|rank| rank.tiles + rank.operators == 0).count();
    let have = if idle == 1 { "has" } else { "have" };
    let of_idle = match chosen.most_tiles {
        0 => format!("use fewer ranks: {idle} of {} {have} no operator", chosen.ranks.len()),
        _ => format!(
            "use fewer ranks: {idle} of {} {have} neither operators nor tiles",
            chosen.ranks.len()
        ),
    };
    let advice = match (best, chosen.fits) {
        (None, true) if idle > 0 => return of_idle,
        (None, true) => "it is fine as it is".to_owned(),
        (Some(best), _) => format!(
            "use {}: the slowest rank computes {:.2} times a fair share instead of {:.2}, in {} instead of {}{}",
            best.option(),
            best.largest_load,
            chosen.largest_load,
            describe::megabytes(best.largest_memory_bytes as f64),
            describe::megabytes(chosen.largest_memory_bytes as f64),
            if best.patch == "auto" && !best.is_exact() {
                "; the bits then depend on the number of ranks"
            } else {
                ""
            },
        ),
        (None, false) => lament(chosen, alternatives, other_ranks, room),
    };
    if idle == 0 { advice } else { format!("{advice}; {of_idle}") }
}

/// That nothing fits, and what would.
fn lament(chosen: &Plan, alternatives: &[Plan], other_ranks: &[Plan], room: Room) -> String {
    let ranks = chosen.ranks.len();
    let least = std::iter::once(chosen)
        .chain(alternatives)
        .min_by_key(|plan| plan.largest_memory_bytes)
        .unwrap_or(chosen);
    let patch = match chosen.most_tiles {
        0 => String::new(),
        _ => format!(" with {}", least.option()),
    };
    let nearest = other_ranks
        .iter()
        .filter(|plan| plan.fits)
        .min_by_key(|plan| plan.ranks.len().abs_diff(ranks));
    let remedy = match (nearest.map(|plan| plan.ranks.len()), room) {
        (Some(1), _) => "with one rank it would",
        (Some(fitting), _) => &format!("with {fitting} ranks it would"),
        (None, Room::Budget(_)) => "use a smaller image, a smaller network or a larger budget",
        (None, _) => {
            "use a smaller image, or more machines, with --memory-budget for what a rank of them may take"
        }
    };
    format!(
        "nothing fits in {room}: the least is {} on each rank{patch}; {remedy}",
        describe::megabytes(least.largest_memory_bytes as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Parts, Rank};

    fn plan(patch: &str, load: f64, memory: usize, fits: bool) -> Plan {
        let parts = Parts { images: memory, measurements: 0, tiles: 0, weights: 0, activations: 0 };
        Plan {
            patch: patch.into(),
            overlap: 32,
            strategy: "overlap",
            reason: None,
            tiles: 4,
            grid: vec![2, 2],
            window: vec![96, 96],
            tiles_at_once: 1,
            work_multiplier: load,
            teraflop_per_iteration: 1.0,
            most_operators: 1,
            most_tiles: 4,
            largest_load: load,
            largest_memory_bytes: memory,
            together_bytes: memory,
            bytes_sent_per_iteration: 0,
            halo_rounds: 0,
            halo_bytes: 0,
            fits,
            ranks: vec![Rank {
                operators: 1,
                tiles: 4,
                load,
                memory_bytes: memory,
                memory: parts,
                bytes_sent_per_iteration: 0,
            }],
            is_of_job: false,
        }
    }

    #[test]
    fn the_least_work_that_fits_is_recommended() {
        let chosen = plan("64", 2.25, 100_000_000, true);
        let better = plan("256", 1.2, 300_000_000, true);
        let room = Room::Machine(1_000_000_000);
        let advice = recommend(&chosen, std::slice::from_ref(&better), &[], room);
        assert!(advice.contains("--patch 256") && advice.contains("1.20"), "{advice}");
        assert_eq!(
            recommend(&better, std::slice::from_ref(&chosen), &[], room),
            "it is fine as it is"
        );
        let auto = plan("auto", 1.1, 300_000_000, true);
        let advice = recommend(&chosen, &[auto], &[], room);
        assert!(advice.ends_with("the bits then depend on the number of ranks"), "{advice}");
    }

    #[test]
    fn an_exact_network_gives_way_to_tiles_only_where_it_does_not_fit() {
        let exact = |fits| Plan { strategy: "exact", ..plan("standard", 1.3, 900_000_000, fits) };
        let tiles = plan("auto", 1.1, 100_000_000, true);
        let room = Room::Budget(500_000_000);
        let of =
            |chosen: &Plan, other: &Plan| recommend(chosen, std::slice::from_ref(other), &[], room);
        assert_eq!(of(&exact(true), &tiles), "it is fine as it is");
        assert!(of(&exact(false), &tiles).starts_with("use --patch auto: "));
        let advice = of(&plan("64", 2.25, 100_000_000, true), &exact(true));
        assert!(
            advice.starts_with("use --strategy exact: the slowest rank computes 1.30"),
            "{advice}"
        );
    }

    #[test]
    fn a_budget_that_nothing_fits_in_is_said_with_the_least_that_would() {
        let chosen = plan("256", 1.2, 300_000_000, false);
        let smaller = plan("64", 2.25, 200_000_000, false);
        let room = Room::Budget(150_000_000);
        let advice = recommend(&chosen, std::slice::from_ref(&smaller), &[], room);
        assert_eq!(
            advice,
            "nothing fits in 150 MB on each rank: the least is 200 MB on each rank with --patch 64; use a smaller \
             image, a smaller network or a larger budget"
        );
        let other = plan("auto", 1.0, 100_000_000, true);
        let advice = recommend(&chosen, &[smaller], &[other], room);
        assert!(advice.ends_with("; with one rank it would"), "{advice}");
    }

    #[test]
    fn more_work_is_recommended_only_where_less_does_not_fit() {
        let chosen = plan("512", 1.1, 900_000_000, false);
        let smaller = plan("128", 1.6, 300_000_000, true);
        let advice = recommend(&chosen, &[smaller], &[], Room::Budget(500_000_000));
        assert!(advice.contains("--patch 128"), "{advice}");
    }
}
