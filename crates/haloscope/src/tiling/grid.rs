//! How many parts an image gets along each axis: the grid that suits a number of ranks, or whether a given one does.

use std::ops::Range;

use haloscope_nn::engine::Grain;

use crate::error::{Error, Result};

/// Grids that are shown to who asked for one that does not fit.
const MOST_SHOWN: usize = 4;

/// The cost of a grid: the pixels of its largest part, then the parts of a plane of a volume, then the pixels of that part's faces.
type Cost = (usize, usize, usize);

/// How much larger the largest slab of a volume may be than the largest block: an eighth.
const SLACK: usize = 8;

/// The grid of at most `ranks` parts whose largest part is the smallest, and whose cuts are the shortest then.
///
/// Volumes are cut into slabs first, and in the plane only where slabs run out: where the largest part would be more than an eighth
/// larger than it has to be. Cuts between planes are the ones that operators know how to serve: slices that are denoised one
/// by one do not see each other, and the rows of a detector follow the planes, where a cut in the plane leaves every rank
/// with a share of every ray.
pub(super) fn largest(sides: &[usize], grains: &[Grain], ranks: usize) -> Vec<usize> {
    let mut grids = Vec::new();
    each(sides, grains, ranks, &mut vec![1; sides.len()], 0, &mut |grid| {
        grids.push((cost(sides, grains, grid), grid.to_vec()));
    });
    let least = grids.iter().map(|((volume, ..), _)| *volume).min().unwrap_or(0);
    let most = if sides.len() == 3 { least + least / SLACK } else { least };
    let fitting = grids.into_iter().filter(|((volume, ..), _)| *volume <= most);
    let best = fitting.min_by_key(|((volume, in_plane, faces), _)| (*in_plane, *volume, *faces));
    best.map_or_else(|| vec![1; sides.len()], |(_, grid)| grid)
}

/// Refuses a grid that is not one for so many ranks, and says which would be.
pub(super) fn check(grid: &[usize], sides: &[usize], grains: &[Grain], ranks: usize) -> Result<()> {
    let refuse = |reason: String| Err(Error::argument("shards", reason));
    if grid.len() != sides.len() {
        let fitting = largest(sides, grains, ranks);
        return refuse(format!(
            "{grid:?}; one number for each of {} spatial axes is needed, such as {fitting:?}",
            sides.len()
        ));
    }
    let parts = grid.iter().fold(1_usize, |parts, along| parts.saturating_mul(*along));
    if parts != ranks {
        let fitting = fitting(sides, grains, ranks);
        return refuse(format!("{grid:?} are {parts} parts for {ranks} ranks; {fitting}"));
    }
    for ((&along, &side), grain) in grid.iter().zip(sides).zip(grains) {
        let most = grain.most_parts(side);
        if along > most {
            let (step, fitting) = (grain.step, fitting(sides, grains, ranks));
            return refuse(format!(
                "{grid:?} has {along} parts of {side} pixels, of which at most {most} are possible (cuts are at \
                 multiples of {step}); {fitting}"
            ));
        }
    }
    Ok(())
}

/// The grids for so many ranks, the best first, or what to do if there is none.
fn fitting(sides: &[usize], grains: &[Grain], ranks: usize) -> String {
    let of = |ranks: usize| {
        let mut grids = Vec::new();
        each(sides, grains, ranks, &mut vec![1; sides.len()], 0, &mut |grid| {
            if grid.iter().product::<usize>() == ranks {
                grids.push((cost(sides, grains, grid), grid.to_vec()));
            }
        });
        grids.sort_by(|(one, a), (other, b)| one.cmp(other).then(b.cmp(a)));
        grids
    };
    let grids = of(ranks);
    if grids.is_empty() {
        let most: Vec<usize> =
            sides.iter().zip(grains).map(|(side, grain)| grain.most_parts(*side)).collect();
        // One part always fits.
        let fewer = (1..ranks).rev().find(|fewer| !of(*fewer).is_empty()).unwrap_or(1);
        return format!(
            "no grid of {ranks} parts fits, because at most {most:?} are possible; take {fewer} ranks, or \"auto\", which \
             leaves ranks without a part"
        );
    }
    let shown: Vec<String> =
        grids.iter().take(MOST_SHOWN).map(|(_, grid)| format!("{grid:?}")).collect();
    format!("grids that fit: {}", shown.join(", "))
}

fn cost(sides: &[usize], grains: &[Grain], grid: &[usize]) -> Cost {
    let longest = |axis: usize| {
        let cut = grains[axis].cut(sides[axis], grid[axis]).unwrap_or_default();
        cut.iter().map(Range::len).max().unwrap_or(0)
    };
    let lengths: Vec<usize> = (0..sides.len()).map(longest).collect();
    let volume: usize = lengths.iter().product();
    let in_plane = if sides.len() == 3 { grid[1] * grid[2] } else { 1 };
    // The faces of a part in the middle.
    let face = |axis: usize| (grid[axis] - 1).min(2) * volume / lengths[axis].max(1);
    (volume, in_plane, (0..sides.len()).map(face).sum())
}

/// Calls `visit` with all grids of at most `ranks` parts from `axis` on.
fn each(
    sides: &[usize],
    grains: &[Grain],
    ranks: usize,
    grid: &mut Vec<usize>,
    axis: usize,
    visit: &mut dyn FnMut(&[usize]),
) {
    if axis == sides.len() {
        return visit(grid);
    }
    for parts in 1..=ranks.min(grains[axis].most_parts(sides[axis])) {
        grid[axis] = parts;
        each(sides, grains, ranks / parts, grid, axis + 1, visit);
    }
    grid[axis] = 1;
}
