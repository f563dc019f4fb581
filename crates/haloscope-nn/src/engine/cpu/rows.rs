//! Which rows of its input a step reads.

use std::ops::Range;

use super::layout::signed;
use super::operations::Axis;
use crate::op::PaddingMode;

/// How the rows of a step's first input belong to those of its output. Of its other inputs a step reads the rows that it
/// computes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowsRead {
    /// The same rows.
    Same,
    /// The rows under the taps of a convolution, or of something that reads like one.
    Taps(Axis),
    /// The rows that a padding of so many rows repeats.
    Padded { before: usize, mode: PaddingMode },
}

impl RowsRead {
    /// The rows under windows of this size at every `stride`th row.
    pub(crate) fn windows(kernel: usize, stride: usize) -> Self {
        Self::Taps(Axis { kernel, stride, padding: 0, transposed: false })
    }

    /// The row of which each of `factor` rows is made, and `around` more on both sides.
    pub(crate) fn enlarged(factor: usize, around: usize) -> Self {
        let (kernel, padding) = ((1 + 2 * around) * factor, around * factor);
        Self::Taps(Axis { kernel, stride: factor, padding, transposed: true })
    }

    /// The first and the last row that are read of an input of `height` rows to compute `rows`, as a range; one that ends
    /// before it begins if none is read. A step that reads only the border reads the row beside it, with which the border
    /// comes.
    pub(crate) fn of(&self, rows: &Range<usize>, height: usize) -> Range<usize> {
        match self {
            Self::Same => rows.clone(),
            Self::Taps(axis) => {
                let hull = axis.hull(rows);
                let [first, last] =
                    [hull.start, hull.end - 1].map(|row| row.clamp(0, signed(height) - 1));
                if hull.is_empty() {
                    return height..0;
                }
                first.cast_unsigned()..last.cast_unsigned() + 1
            }
            Self::Padded { before, mode } => {
                let sources = rows
                    .clone()
                    .filter_map(|row| mode.source(signed(row) - signed(*before), height));
                sources.fold(height..0, |hull, row| hull.start.min(row)..hull.end.max(row + 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_under_the_taps_and_inside_the_image() {
        let conv = Axis { kernel: 3, stride: 1, padding: 1, transposed: false };
        assert_eq!(RowsRead::Taps(conv).of(&(0..6), 20), 0..7);
        assert_eq!(RowsRead::Taps(conv).of(&(6..12), 20), 5..13);
        assert_eq!(RowsRead::Taps(conv).of(&(18..20), 20), 17..20);
        assert_eq!(RowsRead::windows(2, 2).of(&(3..5), 20), 6..10);
        assert_eq!(RowsRead::enlarged(2, 0).of(&(3..5), 20), 1..3);
        assert_eq!(RowsRead::enlarged(2, 1).of(&(4..6), 20), 1..4);
        // Taps that lie in the border only bring the row beside it along.
        let outside = Axis { kernel: 1, stride: 1, padding: 1, transposed: false };
        assert_eq!(RowsRead::Taps(outside).of(&(0..1), 5), 0..1);
        assert_eq!(RowsRead::Taps(outside).of(&(6..7), 5), 4..5);
    }

    #[test]
    fn a_padding_reads_what_it_repeats() {
        let padded = |mode| RowsRead::Padded { before: 2, mode };
        assert_eq!(padded(PaddingMode::Reflect).of(&(0..2), 10), 1..3);
        assert_eq!(padded(PaddingMode::Reflect).of(&(12..14), 10), 7..9);
        assert_eq!(padded(PaddingMode::Circular).of(&(0..3), 10), 0..10);
        let none = padded(PaddingMode::Zero).of(&(0..2), 10);
        assert!(none.start >= 10 && none.end == 0);
    }
}
