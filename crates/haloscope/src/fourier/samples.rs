//! Where the samples of a transform are on its grid: sorted by tile, and divided into tasks.
//!
//! A tile is a block of the grid that fits into a core's cache. A sample belongs to the tile of the first cell that its kernel
//! touches, so that a tile and a margin behind it hold all that the tile's samples touch. A task is some samples of one tile:
//! the division depends on the samples alone, never on threads.
//!
//! The axes of the grid are those of the image in reverse, because the last transform runs along the image's first axis.

use std::f64::consts::TAU;
use std::ops::Range;

use super::Real;
use super::grid::{Grid, padded};

/// The samples of one task at the most. More would keep one thread busy when the others are done.
const MOST_OF_TASK: usize = 16_384;

/// The sorted samples of a transform on a grid of up to three axes; where there are two, the first has one cell.
pub(super) struct Samples<T> {
    /// The sides of the grid, the slowest first.
    pub(super) grid: [usize; 3],
    /// The sides of a tile with its margin, in cells.
    pub(super) room: [usize; 3],
    pub(super) tasks: Vec<Task>,
    /// Of every sorted sample, the first cell that it touches in its tile.
    pub(super) starts: Vec<u32>,
    /// Of every sorted sample, the variables of the kernel's polynomials along each axis of the grid.
    pub(super) fractions: Vec<[T; 3]>,
    /// Of every sorted sample, its place among the given ones, and the reverse.
    pub(super) places: Vec<u32>,
    pub(super) ranks: Vec<u32>,
}

/// Some samples of one tile.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The first cell of the tile.
    pub(super) corner: [usize; 3],
    pub(super) samples: Range<usize>,
}

impl<T: Real> Samples<T> {
    /// Sorts points, in radians along each of the image's axes, one after the other.
    pub(super) fn new(grid: &Grid, points: &[f64]) -> Self {
        let axes = grid.sides.len();
        let width = grid.kernel.width;
        let mut sides = [1; 3];
        for (axis, side) in grid.sides.iter().enumerate() {
            sides[2 - axis] = *side;
        }
        let tile: [usize; 3] =
            std::array::from_fn(|axis| T::TILES[axes - 2][axis].min(sides[axis]));
        let counts: [usize; 3] = std::array::from_fn(|axis| sides[axis].div_ceil(tile[axis]));
        let margin = |axis: usize| match axis {
            2 => padded(width) - 1,
            axis if axis + axes < 3 => 0,
            _ => width - 1,
        };
        let room = std::array::from_fn(|axis| tile[axis] + margin(axis));

        let count = points.len() / axes;
        let locate = |sample: usize| {
            let mut cells = [0; 3];
            let mut fractions = [T::zero(); 3];
            for axis in 0..axes {
                let side = sides[2 - axis];
                let turns = points[sample * axes + axis] / TAU;
                let position = (turns - turns.floor()) * side as f64 - 0.5 * width as f64;
                let first = position.ceil();
                cells[2 - axis] = (first + side as f64) as usize % side;
                fractions[2 - axis] = T::rounded(2.0 * (first - position) - 1.0);
            }
            (cells, fractions)
        };
        let tile_of = |cells: &[usize; 3]| {
            (0..3).fold(0, |index, axis| index * counts[axis] + cells[axis] / tile[axis])
        };
        let tiles: Vec<u32> = (0..count).map(|sample| tile_of(&locate(sample).0) as u32).collect();
        let mut ends = vec![0_usize; counts.iter().product::<usize>() + 1];
        for &tile in &tiles {
            ends[tile as usize + 1] += 1;
        }
        (1..ends.len()).for_each(|tile| ends[tile] += ends[tile - 1]);

        let mut tasks = Vec::new();
        for index in 0..ends.len() - 1 {
            let at =
                [index / (counts[1] * counts[2]), index / counts[2] % counts[1], index % counts[2]];
            let corner = std::array::from_fn(|axis| at[axis] * tile[axis]);
            let mut start = ends[index];
            while start < ends[index + 1] {
                let end = ends[index + 1].min(start + MOST_OF_TASK);
                tasks.push(Task { corner, samples: start..end });
                start = end;
            }
        }

        let mut next = ends;
        let mut starts = vec![0; count];
        let mut fractions = vec![[T::zero(); 3]; count];
        let (mut places, mut ranks) = (vec![0; count], vec![0; count]);
        for (sample, &tile_index) in tiles.iter().enumerate() {
            let place = next[tile_index as usize];
            next[tile_index as usize] += 1;
            let (cells, fraction) = locate(sample);
            let local = (0..3).fold(0, |at, axis| at * room[axis] + cells[axis] % tile[axis]);
            starts[place] = local as u32;
            fractions[place] = fraction;
            places[place] = sample as u32;
            ranks[sample] = place as u32;
        }
        Self { grid: sides, room, tasks, starts, fractions, places, ranks }
    }

    /// The bytes of so many samples, and the cells of a tile with its margin, before they are sorted.
    pub(super) fn bytes(grid: &Grid, samples: usize) -> (usize, usize) {
        let axes = grid.sides.len();
        let width = grid.kernel.width;
        let of_axis = |(axis, side): (usize, &usize)| {
            let margin = if axis == 0 { padded(width) } else { width } - 1;
            T::TILES[axes - 2][2 - axis].min(*side) + margin
        };
        let tile = grid.sides.iter().enumerate().map(of_axis).product();
        (samples * (3 * size_of::<u32>() + size_of::<[T; 3]>()), tile)
    }

    /// The cells of a tile with its margin.
    pub(super) fn cells_of_tile(&self) -> usize {
        self.room.iter().product()
    }
}
