//! What to do, in words: whether another cut or other ranks are worth it, and what would fit if nothing does.

use super::arrangement::Arrangement;
use super::describe::megabytes;
use super::room::Room;

/// What to do.
pub(super) fn recommend(
    chosen: &Arrangement,
    alternatives: &[Arrangement],
    other_ranks: &[Arrangement],
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
            megabytes(best.largest_memory_bytes as f64),
            megabytes(chosen.largest_memory_bytes as f64),
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
fn lament(
    chosen: &Arrangement,
    alternatives: &[Arrangement],
    other_ranks: &[Arrangement],
    room: Room,
) -> String {
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
        megabytes(least.largest_memory_bytes as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::arrangement::{MemoryParts, RankShare};

    fn plan(patch: &str, load: f64, memory: usize, fits: bool) -> Arrangement {
        let parts =
            MemoryParts { images: memory, measurements: 0, tiles: 0, weights: 0, activations: 0 };
        Arrangement {
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
            rows_per_wave: None,
            halo_rounds: 0,
            halo_bytes: 0,
            fits,
            layout: None,
            ranks: vec![RankShare {
                operators: 1,
                tiles: 4,
                load,
                memory_bytes: memory,
                memory: parts,
                device_bytes: 0,
                bytes_sent_per_iteration: 0,
                device_traffic_bytes: 0,
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
        let exact =
            |fits| Arrangement { strategy: "exact", ..plan("standard", 1.3, 900_000_000, fits) };
        let tiles = plan("auto", 1.1, 100_000_000, true);
        let room = Room::Budget(500_000_000);
        let of = |chosen: &Arrangement, other: &Arrangement| {
            recommend(chosen, std::slice::from_ref(other), &[], room)
        };
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
