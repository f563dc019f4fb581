//! The patch lengths that give the rank with the most work the least of it.

use super::axis::AxisTiling;

/// Chooses `patch` of each axis. Tiles go to `ranks` in blocks as equal as can be, so the rank with the
/// most has ⌈tiles / ranks⌉ windows to compute. Among equals, fewer tiles win: larger windows are better
/// for a network and cost less to place.
pub(crate) fn choose(axes: &mut [AxisTiling], ranks: usize) {
    let candidates: Vec<Vec<usize>> = axes.iter().map(|axis| patches(axis, ranks)).collect();
    let mut best: Option<(usize, usize, Vec<usize>)> = None;
    let mut choice = vec![0; axes.len()];
    loop {
        for (axis, (patches, index)) in axes.iter_mut().zip(candidates.iter().zip(&choice)) {
            axis.patch = patches[*index];
        }
        let tiles: usize = axes.iter().map(AxisTiling::count).product();
        let window: usize = axes.iter().map(AxisTiling::window).product();
        let found = (tiles.div_ceil(ranks) * window, tiles, choice.clone());
        if best.as_ref().is_none_or(|best| found < *best) {
            best = Some(found);
        }
        // The next combination, as a counter with a digit per axis.
        let Some(axis) = (0..axes.len()).find(|axis| choice[*axis] + 1 < candidates[*axis].len())
        else {
            break;
        };
        choice[axis] += 1;
        choice[..axis].fill(0);
    }
    if let Some((_, _, choice)) = best {
        for (axis, (patches, index)) in axes.iter_mut().zip(candidates.iter().zip(choice)) {
            axis.patch = patches[index];
        }
    }
}

/// The shortest patches that cut an axis into 1, 2, … windows, up to four for each rank.
fn patches(axis: &AxisTiling, ranks: usize) -> Vec<usize> {
    let mut patches = vec![axis.length];
    for count in 2..=ranks.saturating_mul(4).min(64) {
        let patch = axis.patch_for(count);
        if patch < axis.length && !patches.contains(&patch) {
            patches.push(patch);
        }
    }
    patches
}

#[cfg(test)]
mod tests {
    use super::super::Border;
    use super::*;

    fn chosen(length: usize, overlap: usize, ranks: usize) -> Vec<usize> {
        let axis = AxisTiling { length, patch: 0, overlap, alignment: 8, border: Border::Inside };
        let mut axes = [axis, axis];
        choose(&mut axes, ranks);
        axes.iter().map(|axis| axis.patch).collect()
    }

    #[test]
    fn one_rank_gets_one_tile() {
        assert_eq!(chosen(512, 32, 1), [512, 512]);
    }

    #[test]
    fn two_ranks_get_half_of_the_image_each() {
        assert_eq!(chosen(512, 32, 2).iter().product::<usize>(), 512 * (256 - 32));
    }

    #[test]
    fn no_choice_of_a_coarse_grid_is_better() {
        for ranks in [1, 2, 3, 4, 5, 8] {
            let axis = AxisTiling {
                length: 400,
                patch: 0,
                overlap: 16,
                alignment: 8,
                border: Border::Reflect,
            };
            let work = |axes: &[AxisTiling]| {
                let tiles: usize = axes.iter().map(AxisTiling::count).product();
                tiles.div_ceil(ranks) * axes.iter().map(AxisTiling::window).product::<usize>()
            };
            let mut best = [axis, axis];
            choose(&mut best, ranks);
            for first in (40..=400).step_by(40) {
                for second in (40..=400).step_by(40) {
                    let other =
                        [AxisTiling { patch: first, ..axis }, AxisTiling { patch: second, ..axis }];
                    assert!(work(&best) <= work(&other), "{ranks} ranks: {best:?}, {other:?}");
                }
            }
        }
    }
}
