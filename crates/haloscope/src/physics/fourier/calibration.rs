//! Sensitivities of coils from the middle of what they measured: `ESPIRiT`.
//!
//! Uecker and others, Magnetic Resonance in Medicine 71 (2014) 990. Planes and volumes are calibrated alike. Small windows of all coils' frequencies together lie in a
//! subspace; at every pixel, the projection onto it is a matrix of the coils, whose strongest eigenvector is their sensitivities. The
//! definitions and the defaults are sigpy's.

use rayon::prelude::*;

use super::centred::Centred;
use super::hermitian::{Hermitian, eigen};
use super::pixel_values;
use crate::Array;
use crate::error::{Error, Result};
use crate::fourier::Complex;

/// How sensitivities are estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The side of the square or cube of frequencies in the middle that all coils measured.
    pub width: usize,
    /// The side of the windows.
    pub kernel: usize,
    /// Singular values below this part of the largest are noise.
    pub threshold: f64,
    /// Pixels whose eigenvalue is below this have no signal, and no sensitivities.
    pub crop: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { width: 24, kernel: 6, threshold: 0.02, crop: 0.95 }
    }
}

/// Steps of the power method at each pixel.
const STEPS: usize = 100;

impl Calibration {
    /// What suits images of so many axes: sigpy's defaults for planes, and smaller windows and cubes for volumes. Work grows with the
    /// third power of the coils times the cells of a window.
    #[must_use]
    pub fn of_axes(axes: usize) -> Self {
        if axes < 3 { Self::default() } else { Self { width: 16, kernel: 4, ..Self::default() } }
    }

    /// The sensitivities (2, spatial…) of coils that measured these frequencies of a plane or a volume, (2, spatial…), with frequency
    /// 0 in the middle, as of [`Cartesian`](super::Cartesian).
    ///
    /// Squares of all coils sum to 1 where there is a signal. Phases are those relative to the first coil: the image has the phase that
    /// the first coil sees, and is complex.
    pub fn sensitivities(&self, measured: &[Array]) -> Result<Vec<Array>> {
        let refuse = |reason: String| Err(Error::argument("calibration", reason));
        let shape = measured.first().map(Array::shape).unwrap_or_default();
        let Some((_, sides)) =
            shape.split_first().filter(|(_, sides)| (2..=3).contains(&sides.len()))
        else {
            return refuse(format!(
                "{} coils of {shape:?} values; one or more of (2, rows, columns) or (2, planes, rows, columns) are expected",
                measured.len(),
            ));
        };
        let Self { width, kernel, threshold, crop } = *self;
        if kernel == 0 || kernel > width || sides.iter().any(|side| width > *side) {
            return refuse(format!(
                "windows of {kernel} in a square of {width} of {} frequencies; each must fit into the next",
                sides.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ")
            ));
        }
        if !(0.0..1.0).contains(&threshold) || !crop.is_finite() {
            return refuse(format!(
                "a threshold of {threshold} and a crop of {crop}; at least 0 and less than 1, and a finite number, are expected"
            ));
        }
        let middles = Cube { side: width, axes: sides.len() };
        let mut squares = Vec::with_capacity(measured.len());
        for coil in measured {
            let values = pixel_values("calibration", "frequencies", sides, coil)?;
            let place = |cell: usize| {
                let places = sides.iter().zip(middles.place(cell));
                places.fold(0, |at, (side, place)| at * side + side / 2 - width / 2 + place)
            };
            let square: Vec<Complex<f64>> = (0..middles.cells())
                .map(|cell| {
                    let value = values[place(cell)];
                    Complex::new(value.re.into(), value.im.into())
                })
                .collect();
            squares.push(square);
        }
        if let Some((axis, line)) = empty(&squares, middles) {
            let what = ["column", "row", "plane"][sides.len() - 1 - axis];
            return refuse(format!(
                "{what} {line} of the {} frequencies in the middle is 0 in all coils; all of them are needed, with \
                 frequency 0 in the middle",
                vec![width.to_string(); sides.len()].join(" × ")
            ));
        }
        let lags = self.lags(&squares, sides.len());
        let matrices = self.matrices(sides, measured.len(), &lags);
        let maps = self.strongest(sides, measured.len(), &matrices);
        if maps.iter().all(|map| map.iter().all(|value| *value == 0.0)) {
            return refuse(format!("no pixel is seen by the coils with a strength above {crop}"));
        }
        Ok(maps)
    }

    /// For every pair of coils, the correlations of the projection onto the windows' subspace over all lags of two windows' cells.
    fn lags(&self, squares: &[Vec<Complex<f64>>], axes: usize) -> Vec<Vec<Complex<f64>>> {
        let (width, kernel) = (self.width, self.kernel);
        let windows = Cube { side: kernel, axes };
        let places = Cube { side: width - kernel + 1, axes };
        let lags = Cube { side: 2 * kernel - 1, axes };
        let whole = Cube { side: width, axes };
        let cells = windows.cells();
        let side = squares.len() * cells;
        let offsets: Vec<usize> = (0..cells).map(|cell| whole.index(windows.place(cell))).collect();
        // A window is a row of all coils' cells; this is the sum of its products.
        let rows: Vec<Vec<Complex<f64>>> = (0..places.cells())
            .into_par_iter()
            .map(|place| {
                let corner = whole.index(places.place(place));
                let of_coil = |square: &'_ Vec<Complex<f64>>| -> Vec<Complex<f64>> {
                    offsets.iter().map(|offset| square[corner + offset]).collect()
                };
                squares.iter().flat_map(of_coil).collect()
            })
            .collect();
        let mut products = Hermitian::zeros(side);
        products.rows_mut().enumerate().for_each(|(i, sums)| {
            for row in &rows {
                let left = row[i].conj();
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += left * value);
            }
        });
        drop(rows);
        let (values, vectors) = eigen(products);
        let largest = values.iter().copied().fold(0.0, f64::max);
        let kept: Vec<usize> = (0..side)
            .filter(|&index| values[index].max(0.0).sqrt() > self.threshold * largest.sqrt())
            .collect();
        let count = squares.len();
        let lag = |a: usize, b: usize| {
            let both = windows.place(a).zip(windows.place(b));
            lags.index(both.map(|(a, b)| a + kernel - 1 - b))
        };
        (0..count * count)
            .into_par_iter()
            .map(|pair| {
                let mut sums = vec![Complex::default(); lags.cells()];
                for a in 0..cells {
                    for b in 0..cells {
                        let (i, j) = (pair / count * cells + a, pair % count * cells + b);
                        let product = kept.iter().map(|&k| vectors[k][i].conj() * vectors[k][j]);
                        sums[lag(a, b)] += product.sum::<Complex<f64>>();
                    }
                }
                sums
            })
            .collect()
    }

    /// For every pair of coils, an element of all pixels' matrices.
    fn matrices(
        &self,
        sides: &[usize],
        coils: usize,
        lags: &[Vec<Complex<f64>>],
    ) -> Vec<Vec<Complex<f32>>> {
        let transform = Centred::new(sides);
        let reach = Cube { side: 2 * self.kernel - 1, axes: sides.len() };
        let pixels: usize = sides.iter().product();
        let cells = self.kernel.pow(sides.len() as u32);
        let scale = (pixels as f64).sqrt() / cells as f64;
        let place = |lag: usize| {
            let both = sides.iter().zip(reach.place(lag));
            both.fold(0, |at, (side, lag)| {
                at * side + (side / 2 + side * self.kernel + lag - (self.kernel - 1)) % side
            })
        };
        let places: Vec<usize> = (0..reach.cells()).map(place).collect();
        (0..coils * coils)
            .map(|pair| {
                let mut image = vec![Complex::<f32>::default(); pixels];
                for (&at, value) in places.iter().zip(&lags[pair]) {
                    let value = value * scale;
                    image[at] += Complex::new(value.re as f32, value.im as f32);
                }
                transform.run(true, &mut image);
                image
            })
            .collect()
    }

    /// The strongest eigenvector of every pixel's matrix, by the power method.
    fn strongest(
        &self,
        sides: &[usize],
        coils: usize,
        matrices: &[Vec<Complex<f32>>],
    ) -> Vec<Array> {
        let count: usize = sides.iter().product();
        let pixels: Vec<Vec<Complex<f32>>> = (0..count)
            .into_par_iter()
            .map(|pixel| {
                let matrix: Vec<_> = matrices.iter().map(|plane| plane[pixel]).collect();
                let mut vector = vec![Complex::new(1.0_f32, 0.0); coils];
                let mut strength = 0.0;
                for _ in 0..STEPS {
                    let product = |row: &[Complex<f32>]| {
                        row.iter().zip(&vector).map(|(a, b)| a * b).sum::<Complex<f32>>()
                    };
                    let next: Vec<_> = matrix.chunks(coils).map(product).collect();
                    strength = next.iter().map(Complex::norm_sqr).sum::<f32>().sqrt();
                    vector = next.iter().map(|value| value / strength.max(1e-30)).collect();
                }
                let first = vector[0].norm();
                let has_signal = f64::from(strength) > self.crop && first > 0.0;
                let turn = if has_signal { vector[0].conj() / first } else { Complex::default() };
                vector.iter().map(|value| value * turn).collect()
            })
            .collect();
        let shape: Vec<usize> = std::iter::once(2).chain(sides.iter().copied()).collect();
        (0..coils)
            .map(|coil| {
                let real = pixels.iter().map(|pixel| pixel[coil].re);
                let values = real.chain(pixels.iter().map(|pixel| pixel[coil].im));
                Array::from_shape_vec(shape.clone(), values.collect()).expect("a value for each")
            })
            .collect()
    }
}

/// A square or a cube of cells, the last axis fastest.
#[derive(Clone, Copy)]
struct Cube {
    side: usize,
    axes: usize,
}

impl Cube {
    fn cells(self) -> usize {
        self.side.pow(self.axes as u32)
    }

    /// The place of a cell along each axis.
    fn place(self, cell: usize) -> impl Iterator<Item = usize> {
        let of_axis = move |axis| cell / self.side.pow(axis as u32) % self.side;
        (0..self.axes).rev().map(of_axis)
    }

    fn index(self, place: impl Iterator<Item = usize>) -> usize {
        place.fold(0, |at, place| at * self.side + place)
    }
}

/// The axis and the place of a line or plane that nobody measured, which would count as data.
fn empty(squares: &[Vec<Complex<f64>>], cube: Cube) -> Option<(usize, usize)> {
    for axis in 0..cube.axes {
        let mut has_values = vec![false; cube.side];
        for square in squares {
            for (cell, value) in square.iter().enumerate() {
                let place = cube.place(cell).nth(axis).unwrap_or(0);
                has_values[place] |= *value != Complex::default();
            }
        }
        if let Some(place) = has_values.iter().position(|has| !has) {
            return Some((axis, place));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::Physics;
    use crate::physics::fourier::{Cartesian, birdcage};

    /// What the coils of a birdcage measure of a disk.
    fn measured(side: usize, coils: usize) -> Result<(Vec<Array>, Vec<Array>)> {
        let disk = Array::from_shape_fn(vec![1, 1, side, side], |at| {
            let square = |x: usize| (x as f32 - side as f32 / 2.0).powi(2);
            f32::from(square(at[2]) + square(at[3]) < (0.4 * side as f32).powi(2))
        });
        let mut scans = (Vec::new(), Vec::new());
        for coil in 0..coils {
            let map = birdcage(&[side, side], coils, coil)?;
            let scan = Cartesian::new(&[1, side, side], Some(&map), None)?;
            scans.0.push(scan.forward(&disk)?.index_axis_move(ndarray::Axis(0), 0));
            scans.1.push(map);
        }
        Ok(scans)
    }

    #[test]
    fn the_maps_of_a_birdcage_are_found_up_to_the_first_coils_phase() -> Result<()> {
        let (data, maps) = measured(48, 4)?;
        let found = Calibration::default().sensitivities(&data)?;
        for row in [16, 24, 31] {
            for column in [18, 24, 33] {
                let value = |maps: &[Array], coil: usize| {
                    Complex::new(maps[coil][[0, row, column]], maps[coil][[1, row, column]])
                };
                let first = value(&maps, 0);
                let turn = first.conj() / first.norm();
                for coil in 0..4 {
                    let expected = value(&maps, coil) * turn;
                    assert!(
                        (value(&found, coil) - expected).norm() < 0.02,
                        "{coil} {row} {column}"
                    );
                }
            }
        }
        // There is nothing in the corner.
        assert!(found.iter().all(|map| map[[0, 0, 0]] == 0.0 && map[[1, 0, 0]] == 0.0));
        Ok(())
    }

    #[test]
    fn squares_that_do_not_fit_are_refused() -> Result<()> {
        let (data, _) = measured(16, 2)?;
        let message = |calibration: Calibration| {
            calibration.sensitivities(&data).expect_err("refused").to_string()
        };
        assert!(message(Calibration::default()).contains("a square of 24 of 16 × 16"));
        assert!(
            message(Calibration { width: 5, ..Calibration::default() }).contains("windows of 6")
        );
        let narrow = Calibration { width: 12, threshold: 1.5, ..Calibration::default() };
        assert!(message(narrow).contains("threshold of 1.5"));
        assert!(Calibration::default().sensitivities(&[]).is_err());
        let (mut data, _) = measured(32, 2)?;
        for coil in &mut data {
            coil.slice_axis_mut(ndarray::Axis(1), (14..15).into()).fill(0.0);
        }
        let missing = Calibration::default().sensitivities(&data).expect_err("a row").to_string();
        assert!(missing.contains("row 10 of the 24 × 24"), "{missing}");
        Ok(())
    }
}
