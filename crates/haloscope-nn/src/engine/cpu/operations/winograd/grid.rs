//! The grid of tiles over an image, and runs of adjacent tiles in it.

use std::ops::Range;

use crate::engine::cpu::layout::Layout;
use crate::engine::cpu::tile::Tile;

/// Tiles over so many rows of all images; flat ones over one plane, others over all planes.
pub(crate) fn tiles(output: &Layout, rows: usize, tile: Tile) -> usize {
    let volumes = output.batch * tile.over_planes(output.depth);
    volumes * rows.div_ceil(tile.side) * output.width.div_ceil(tile.side)
}

/// The grid of tiles over some rows of each image.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// The first row of tiles.
    first: usize,
    rows: usize,
    pub(super) columns: usize,
    /// Along depth; one if tiles are flat.
    slabs: usize,
}

/// Adjacent tiles in one row of tiles.
pub(super) struct Run {
    pub(super) image: usize,
    /// The slab of tiles along depth.
    pub(super) slab: usize,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) count: usize,
}

impl Grid {
    /// The tiles over some rows, which start where a tile does.
    pub(super) fn new(output: &Layout, rows: &Range<usize>, tile: Tile) -> Self {
        let columns = output.width.div_ceil(tile.side);
        let slabs = tile.over_planes(output.depth);
        let (first, rows) = (rows.start / tile.side, rows.len().div_ceil(tile.side));
        Self { first, rows, columns, slabs }
    }

    /// The tiles as runs of at most `most`, each with its place in the range.
    pub(super) fn runs(
        self,
        tiles: Range<usize>,
        most: usize,
    ) -> impl Iterator<Item = (usize, Run)> {
        let mut at = tiles.start;
        std::iter::from_fn(move || {
            if at >= tiles.end {
                return None;
            }
            let place = at - tiles.start;
            let slab = at / (self.rows * self.columns);
            let in_slab = at % (self.rows * self.columns);
            let column = in_slab % self.columns;
            let count = most.min(tiles.end - at).min(self.columns - column);
            let run = Run {
                image: slab / self.slabs,
                slab: slab % self.slabs,
                row: self.first + in_slab / self.columns,
                column,
                count,
            };
            at += count;
            Some((place, run))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_all_tiles_and_never_leave_their_row() {
        let layout = Layout::new(2, 1, [3, 13, 20]);
        let cases = [(0..13, 1), (0..13, 3), (4..13, 6), (4..8, usize::MAX)];
        let depths =
            [1, 2, 4].into_iter().flat_map(|depth| cases.clone().map(|case| (depth, case)));
        for (depth, (rows, most)) in depths {
            let tile = Tile { side: 4, depth };
            let (grid, count) = (Grid::new(&layout, &rows, tile), tiles(&layout, rows.len(), tile));
            assert_eq!(count, [2, 4, 2][depth / 2] * grid.rows * grid.columns);
            let mut at = 3;
            for (place, run) in grid.runs(3..count - 1, most) {
                assert_eq!(place, at - 3);
                let row = run.row - rows.start / 4;
                let slab = run.image * grid.slabs + run.slab;
                assert_eq!(at, (slab * grid.rows + row) * grid.columns + run.column);
                assert!(run.count <= most && run.column + run.count <= grid.columns);
                at += run.count;
            }
            assert_eq!(at, count - 1);
        }
    }
}
