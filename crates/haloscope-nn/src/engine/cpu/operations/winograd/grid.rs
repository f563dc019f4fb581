//! The grid of tiles over an image, and runs of adjacent tiles in it.

use std::ops::Range;

use crate::engine::cpu::layout::Layout;

/// Tiles of all images of one plane of depth.
pub(crate) fn tiles(output: &Layout, tile: usize) -> usize {
    output.batch * output.height.div_ceil(tile) * output.width.div_ceil(tile)
}

/// The grid of tiles over each image.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub(super) rows: usize,
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
    pub(super) fn new(output: &Layout, tile: usize) -> Self {
        Self { rows: output.height.div_ceil(tile), columns: output.width.div_ceil(tile) }
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
                row: in_image / self.columns,
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
        let layout = Layout { batch: 2, channels: 1, depth: 1, height: 13, width: 20 };
        let grid = Grid::new(&layout, 4);
        for most in [1, 3, 6, usize::MAX] {
            let mut at = 3;
            for (place, run) in grid.runs(3..tiles(&layout, 4) - 1, most) {
                assert_eq!(place, at - 3);
                assert_eq!(at, (run.image * grid.rows + run.row) * grid.columns + run.column);
                assert!(run.count <= most && run.column + run.count <= grid.columns);
                at += run.count;
            }
            assert_eq!(at, tiles(&layout, 4) - 1);
        }
    }
}
