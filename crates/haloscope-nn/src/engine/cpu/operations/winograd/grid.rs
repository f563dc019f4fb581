//! The grid of tiles over an image, and runs of adjacent tiles in it.

use std::ops::Range;

use crate::engine::cpu::layout::Layout;

/// Tiles over so many rows of all images of one plane of depth.
pub(crate) fn tiles(output: &Layout, rows: usize, tile: usize) -> usize {
    output.batch * rows.div_ceil(tile) * output.width.div_ceil(tile)
}

/// The grid of tiles over some rows of each image.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// The first row of tiles.
    first: usize,
    rows: usize,
    pub(super) columns: usize,
}

/// Adjacent tiles in one row of tiles.
pub(super) struct Run {
    pub(super) image: usize,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) count: usize,
}

impl Grid {
    /// The tiles over some rows, which start where a tile does.
    pub(super) fn new(output: &Layout, rows: &Range<usize>, tile: usize) -> Self {
        let columns = output.width.div_ceil(tile);
        Self { first: rows.start / tile, rows: rows.len().div_ceil(tile), columns }
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
            let in_image = at % (self.rows * self.columns);
            let column = in_image % self.columns;
            let count = most.min(tiles.end - at).min(self.columns - column);
            let run = Run {
                image: at / (self.rows * self.columns),
                row: self.first + in_image / self.columns,
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
        let layout = Layout::new(2, 1, [1, 13, 20]);
        for (rows, most) in [(0..13, 1), (0..13, 3), (4..13, 6), (4..8, usize::MAX)] {
            let (grid, count) = (Grid::new(&layout, &rows, 4), tiles(&layout, rows.len(), 4));
            let mut at = 3;
            for (place, run) in grid.runs(3..count - 1, most) {
                assert_eq!(place, at - 3);
                let row = run.row - rows.start / 4;
                assert_eq!(at, (run.image * grid.rows + row) * grid.columns + run.column);
                assert!(run.count <= most && run.column + run.count <= grid.columns);
                at += run.count;
            }
            assert_eq!(at, count - 1);
        }
    }
}
