//! Sums of ellipses and ellipsoids on a grid, which all phantoms of tomography are.
//!
//! The one idea: a value of the grid is the mean of the object over points inside the pixel, and one
//! point, the centre, is the usual case.

use ndarray::IxDyn;
use rayon::prelude::*;

use crate::array::Array;
use crate::error::{Error, Result};

/// More points per side of a pixel than this make no visible difference.
const MOST_POINTS: usize = 16;

/// An ellipsoid in the cube from −1 to 1, turned about the z axis; `x` to the right, `y` up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ellipsoid {
    pub value: f64,
    /// Half axes; one of two dimensions has an infinite third.
    pub axes: [f64; 3],
    pub centre: [f64; 3],
    /// Counter-clockwise, in degrees.
    pub angle: f64,
}

/// Where the pixels of a phantom are on its square or cube from −1 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Pixels tile the square, which is what operators of tomography assume.
    #[default]
    Tiling,
    /// The centres of the outermost pixels are on the border, as those of scikit-image, deepinv and
    /// MATLAB are.
    ToTheBorder,
}

/// Where and how large the grid is.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    /// (height, width) or (depth, height, width), over −1…1 each.
    pub sides: Vec<usize>,
    /// Points per side of a pixel.
    pub points: usize,
    pub placement: Placement,
}

impl Grid {
    /// Checks the sides and the points of a pixel.
    pub(super) fn new(what: &'static str, sides: &[usize], points: usize) -> Result<Self> {
        if !(2..=3).contains(&sides.len()) || sides.contains(&0) {
            let reason = format!("sides of {sides:?}; two or three, at least 1 each, are needed");
            return Err(Error::argument(what, reason));
        }
        if !(1..=MOST_POINTS).contains(&points) {
            let reason =
                format!("{points} points per side of a pixel; 1 to {MOST_POINTS} are possible");
            return Err(Error::argument(what, reason));
        }
        Ok(Self { sides: sides.to_vec(), points, placement: Placement::Tiling })
    }

    /// The sum of ellipsoids, as (1, 1, spatial…).
    pub(super) fn draw(&self, ellipsoids: &[Ellipsoid]) -> Array {
        let (height, width) = (self.sides[self.sides.len() - 2], self.sides[self.sides.len() - 1]);
        let depth = if self.sides.len() == 3 { self.sides[0] } else { 1 };
        let prepared: Vec<Prepared> = ellipsoids.iter().map(Prepared::new).collect();
        let xs = self.places(width, false);
        let ys = self.places(height, true);
        let zs =
            if depth == 1 && self.sides.len() == 2 { vec![0.0] } else { self.places(depth, false) };
        let points = self.points;
        let points_deep = zs.len() / depth;
        let share = 1.0 / (points * points * points_deep) as f64;
        let mut values = vec![0.0_f32; depth * height * width];
        values.par_chunks_mut(width).enumerate().for_each(|(row, values)| {
            let (slice, row) = (row / height, row % height);
            let mut sums = vec![0.0_f64; width * points];
            for &z in &zs[slice * points_deep..(slice + 1) * points_deep] {
                for &y in &ys[row * points..(row + 1) * points] {
                    for ellipsoid in &prepared {
                        ellipsoid.add_along_row(y, z, &xs, &mut sums);
                    }
                }
            }
            for (value, sums) in values.iter_mut().zip(sums.chunks(points)) {
                *value = (sums.iter().sum::<f64>() * share) as f32;
            }
        });
        let shape: Vec<usize> = [1, 1].iter().chain(&self.sides).copied().collect();
        Array::from_shape_vec(IxDyn(&shape), values).expect("one value per place")
    }

    /// Coordinates of the points of one axis; rows go down where coordinates go up.
    fn places(&self, side: usize, is_down: bool) -> Vec<f64> {
        let count = side * self.points;
        // A single pixel has its centre in the middle in any case.
        let stretch = match self.placement {
            Placement::ToTheBorder if side > 1 => side as f64 / (side - 1) as f64,
            _ => 1.0,
        };
        let place = |i: usize| ((2 * i + 1) as f64 / count as f64 - 1.0) * stretch;
        (0..count).map(|i| if is_down { -place(i) } else { place(i) }).collect()
    }
}

struct Prepared {
    value: f64,
    axes: [f64; 3],
    centre: [f64; 3],
    sine: f64,
    cosine: f64,
}

impl Prepared {
    fn new(ellipsoid: &Ellipsoid) -> Self {
        let (sine, cosine) = ellipsoid.angle.to_radians().sin_cos();
        let Ellipsoid { value, axes, centre, .. } = *ellipsoid;
        Self { value, axes, centre, sine, cosine }
    }

    fn add_along_row(&self, y: f64, z: f64, xs: &[f64], sums: &mut [f64]) {
        let (y, z) = (y - self.centre[1], (z - self.centre[2]) / self.axes[2]);
        for (sum, x) in sums.iter_mut().zip(xs) {
            let x = x - self.centre[0];
            let along = (x * self.cosine + y * self.sine) / self.axes[0];
            let across = (y * self.cosine - x * self.sine) / self.axes[1];
            if along * along + across * across + z * z <= 1.0 {
                *sum += self.value;
            }
        }
    }
}

/// A disk, or a ball in three dimensions, in the square or cube from −1 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// What it adds to the values inside.
    pub value: f32,
    /// Its radius; 1 touches the border.
    pub radius: f64,
    /// Its centre, in the order of the array's axes: (y, x) or (z, y, x), all growing with the index.
    pub centre: Vec<f64>,
}

/// A sum of disks or balls, as (1, 1, spatial…), from `points` per side of a pixel.
///
/// ```
/// use haloscope::phantom::{Disk, disks};
///
/// let disk = Disk { value: 2.0, radius: 0.5, centre: vec![0.0, 0.25] };
/// let image = disks(&[64, 64], &[disk], 4)?;
/// // The integral over the square of side 2 is that of a disk, 2 · π/4.
/// let integral = image.sum() / (32.0 * 32.0);
/// assert!((integral - std::f32::consts::FRAC_PI_2).abs() < 0.01);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn disks(sides: &[usize], disks: &[Disk], points: usize) -> Result<Array> {
    let grid = Grid::new("disks", sides, points)?;
    let ellipsoids = disks.iter().map(|disk| {
        let is_good = disk.radius > 0.0 && disk.radius.is_finite();
        if !is_good || disk.centre.len() != sides.len() {
            let reason = format!("{disk:?} in {} dimensions", sides.len());
            return Err(Error::argument("disks", reason));
        }
        let along = |axis: usize| disk.centre.iter().rev().nth(axis).copied();
        Ok(Ellipsoid {
            value: f64::from(disk.value),
            axes: [
                disk.radius,
                disk.radius,
                if sides.len() == 3 { disk.radius } else { f64::INFINITY },
            ],
            // Rows are drawn from the top, where y is large.
            centre: [along(0).unwrap_or(0.0), -along(1).unwrap_or(0.0), along(2).unwrap_or(0.0)],
            angle: 0.0,
        })
    });
    Ok(grid.draw(&ellipsoids.collect::<Result<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centre_of_a_disk_is_in_the_order_of_the_axes() {
        let one = |centre: &[f64]| Disk { value: 1.0, radius: 0.1, centre: centre.to_vec() };
        let flat = disks(&[20, 20], &[one(&[-0.5, 0.5])], 1).expect("a disk");
        assert_eq!((flat[[0, 0, 5, 15]], flat[[0, 0, 15, 5]]), (1.0, 0.0));
        let solid = disks(&[20, 20, 20], &[one(&[-0.5, 0.0, 0.5])], 1).expect("a ball");
        assert_eq!((solid[[0, 0, 5, 10, 15]], solid[[0, 0, 15, 10, 5]]), (1.0, 0.0));
    }

    #[test]
    fn more_points_come_nearer_to_the_area() {
        let disk = [Disk { value: 1.0, radius: 0.7, centre: vec![0.013, 0.021] }];
        let error = |points| {
            let image = disks(&[32, 32], &disk, points).expect("a disk");
            (f64::from(image.sum()) / 256.0 - std::f64::consts::PI * 0.49).abs()
        };
        assert!(error(8) < error(1) / 4.0, "{} {}", error(8), error(1));
    }

    #[test]
    fn nonsense_is_refused() {
        let disk = |radius, centre| [Disk { value: 1.0, radius, centre }];
        assert!(disks(&[8, 8], &disk(0.0, vec![0.0, 0.0]), 1).is_err());
        assert!(disks(&[8, 8], &disk(0.5, vec![0.0]), 1).is_err());
        assert!(disks(&[8], &disk(0.5, vec![0.0]), 1).is_err());
        assert!(disks(&[8, 8], &disk(0.5, vec![0.0, 0.0]), 0).is_err());
    }
}
