//! The head phantom of Shepp and Logan, in two and three dimensions.

use super::ellipse::{Ellipsoid, Grid, Placement};
use crate::array::Array;
use crate::error::Result;

/// Which attenuations the parts of the head have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// Those of Shepp and Logan (1974): a skull of 2 around a brain of 1.02, whose parts differ by
    /// one in a hundred.
    Original,
    /// Those of Toft (1996), from 0 to 1, where the parts can be seen.
    #[default]
    Modified,
}

/// The head of Shepp and Logan, as (1, 1, height, width) or (1, 1, depth, height, width).
///
/// In three dimensions the ellipses become the ellipsoids of Kak and Slaney's head as it is usually
/// given (ten of them, the middle slice much like the flat head).
///
/// ```
/// use haloscope::phantom::{SheppLogan, Table};
///
/// let head = SheppLogan::new(Table::Modified).draw(&[128, 128])?;
/// assert_eq!(head.shape(), [1, 1, 128, 128]);
/// assert!((head[[0, 0, 64, 64]] - 0.2).abs() < 1e-6);
/// let smooth = SheppLogan::new(Table::Original).with_points(4).draw(&[32, 32, 32])?;
/// assert_eq!(smooth.shape(), [1, 1, 32, 32, 32]);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SheppLogan {
    table: Table,
    points: usize,
    placement: Placement,
}

/// (half axes a, b; centre x, y; angle in degrees), and the values of both tables.
const FLAT: [([f64; 5], [f64; 2]); 10] = [
    ([0.69, 0.92, 0.0, 0.0, 0.0], [2.0, 1.0]),
    ([0.6624, 0.874, 0.0, -0.0184, 0.0], [-0.98, -0.8]),
    ([0.11, 0.31, 0.22, 0.0, -18.0], [-0.02, -0.2]),
    ([0.16, 0.41, -0.22, 0.0, 18.0], [-0.02, -0.2]),
    ([0.21, 0.25, 0.0, 0.35, 0.0], [0.01, 0.1]),
    ([0.046, 0.046, 0.0, 0.1, 0.0], [0.01, 0.1]),
    ([0.046, 0.046, 0.0, -0.1, 0.0], [0.01, 0.1]),
    ([0.046, 0.023, -0.08, -0.605, 0.0], [0.01, 0.1]),
    ([0.023, 0.023, 0.0, -0.606, 0.0], [0.01, 0.1]),
    ([0.023, 0.046, 0.06, -0.605, 0.0], [0.01, 0.1]),
];

/// (half axes a, b, c; centre x, y, z; angle), and the values of both tables.
const SOLID: [([f64; 7], [f64; 2]); 10] = [
    ([0.69, 0.92, 0.81, 0.0, 0.0, 0.0, 0.0], [2.0, 1.0]),
    ([0.6624, 0.874, 0.78, 0.0, -0.0184, 0.0, 0.0], [-0.98, -0.8]),
    ([0.11, 0.31, 0.22, 0.22, 0.0, 0.0, -18.0], [-0.02, -0.2]),
    ([0.16, 0.41, 0.28, -0.22, 0.0, 0.0, 18.0], [-0.02, -0.2]),
    ([0.21, 0.25, 0.41, 0.0, 0.35, -0.15, 0.0], [0.01, 0.1]),
    ([0.046, 0.046, 0.05, 0.0, 0.1, 0.25, 0.0], [0.01, 0.1]),
    ([0.046, 0.046, 0.05, 0.0, -0.1, 0.25, 0.0], [0.01, 0.1]),
    ([0.046, 0.023, 0.05, -0.08, -0.605, 0.0, 0.0], [0.01, 0.1]),
    ([0.023, 0.023, 0.02, 0.0, -0.606, 0.0, 0.0], [0.01, 0.1]),
    ([0.023, 0.046, 0.02, 0.06, -0.605, 0.0, 0.0], [0.01, 0.1]),
];

impl SheppLogan {
    /// Each pixel has the object's value at the pixel's centre.
    #[must_use]
    pub fn new(table: Table) -> Self {
        Self { table, points: 1, placement: Placement::Tiling }
    }

    /// Uses the mean over `points` per side of a pixel, which softens the edges as a detector does.
    #[must_use]
    pub fn with_points(self, points: usize) -> Self {
        Self { points, ..self }
    }

    /// Uses another position of the pixels.
    #[must_use]
    pub fn with_placement(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// The head on a grid of two or three sides; each covers −1 to 1. Row 0 is the top of the head's
    /// picture, where y is 1; in three dimensions the first axis is z, upwards from −1.
    pub fn draw(&self, sides: &[usize]) -> Result<Array> {
        let mut grid = Grid::new("shepp-logan", sides, self.points)?;
        grid.placement = self.placement;
        let column = match self.table {
            Table::Original => 0,
            Table::Modified => 1,
        };
        let ellipsoids: Vec<Ellipsoid> = if sides.len() == 2 {
            let flat = FLAT.iter().map(|&([a, b, x, y, angle], values)| Ellipsoid {
                value: values[column],
                axes: [a, b, f64::INFINITY],
                centre: [x, y, 0.0],
                angle,
            });
            flat.collect()
        } else {
            let solid = SOLID.iter().map(|&([a, b, c, x, y, z, angle], values)| Ellipsoid {
                value: values[column],
                axes: [a, b, c],
                centre: [x, y, z],
                angle,
            });
            solid.collect()
        };
        Ok(grid.draw(&ellipsoids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_values_of_the_tables() {
        for (table, skull, brain, ventricle) in
            [(Table::Original, 2.0, 1.02, 1.0), (Table::Modified, 1.0, 0.2, 0.0)]
        {
            let head = SheppLogan::new(table).draw(&[201, 201]).expect("a head");
            let at = |x: f64, y: f64| {
                head[[0, 0, ((1.0 - y) * 100.5) as usize, ((1.0 + x) * 100.5) as usize]]
            };
            assert_eq!(at(0.98, 0.0), 0.0);
            for (x, y, value) in [(0.0, 0.9, skull), (0.0, -0.45, brain), (0.22, 0.0, ventricle)] {
                assert!((at(x, y) - value).abs() < 1e-6, "{table:?} ({x}, {y}): {}", at(x, y));
            }
        }
    }

    #[test]
    fn middle_of_the_solid_head_is_much_like_the_flat_one() {
        let head = SheppLogan::new(Table::Modified);
        let (flat, solid) = (head.draw(&[65, 65]), head.draw(&[65, 65, 65]));
        let (flat, solid) = (flat.expect("flat"), solid.expect("solid"));
        let middle = solid.index_axis(ndarray::Axis(2), 32);
        let differ = flat.iter().zip(&middle).filter(|(a, b)| (**a - **b).abs() > 1e-6).count();
        assert!(differ < 65 * 65 / 50, "{differ}");
        assert!((solid[[0, 0, 32, 32, 32]] - 0.2).abs() < 1e-6);
        assert_eq!(solid[[0, 0, 1, 32, 32]], 0.0);
    }
}
