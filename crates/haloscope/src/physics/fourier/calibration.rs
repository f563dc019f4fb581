//! Sensitivities of coils from the middle of what they measured: `ESPIRiT`.
//!
//! Uecker and others, Magnetic Resonance in Medicine 71 (2014) 990. Small windows of all coils' frequencies together lie in a
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
    /// The side of the square of frequencies in the middle that all coils measured.
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
    /// The sensitivities (2, rows, columns) of coils that measured these frequencies of a plane, (2, rows, columns), with frequency 0
    /// in the middle, as of [`Cartesian`](super::Cartesian).
    ///
    /// Squares of all coils sum to 1 where there is a signal. Phases are those relative to the first coil: the image has the phase that
    /// the first coil sees, and is complex.
    pub fn sensitivities(&self, measured: &[Array]) -> Result<Vec<Array>> {
        let refuse = |reason: String| Err(Error::argument("calibration", reason));
        let Some(&[_, rows, columns]) = measured.first().map(Array::shape) else {
            return refuse(format!(
                "{} coils of {:?} values; one or more of (2, rows, columns) are expected",
                measured.len(),
                measured.first().map(Array::shape).unwrap_or_default()
            ));
        };
        let Self { width, kernel, threshold, crop } = *self;
        if kernel == 0 || kernel > width || width > rows.min(columns) {
            return refuse(format!(
                "windows of {kernel} in a square of {width} of {rows} × {columns} frequencies; each must fit into the next"
            ));
        }
        if !(0.0..1.0).contains(&threshold) || !crop.is_finite() {
            return refuse(format!(
                "a threshold of {threshold} and a crop of {crop}; at least 0 and less than 1, and a finite number, are expected"
            ));
        }
        let mut squares = Vec::with_capacity(measured.len());
        for coil in measured {
            let values = pixel_values("calibration", "frequencies", &[rows, columns], coil)?;
            let corner = [rows / 2 - width / 2, columns / 2 - width / 2];
            let square: Vec<Complex<f64>> = (0..width * width)
                .map(|at| {
                    let value = values[(corner[0] + at / width) * columns + corner[1] + at % width];
                    Complex::new(value.re.into(), value.im.into())
                })
                .collect();
            squares.push(square);
        }
        // A line or column that nobody measured would count as data.
        for (what, place) in [("row", 0), ("column", 1)] {
            let is_empty = |line: &usize| {
                let at = |other: usize| match place {
                    0 => line * width + other,
                    _ => other * width + line,
                };
                squares
                    .iter()
                    .all(|one| (0..width).all(|other| one[at(other)] == Complex::default()))
            };
            if let Some(line) = (0..width).find(is_empty) {
                return refuse(format!(
                    "{what} {line} of the {width} × {width} frequencies in the middle is 0 in all coils; all of them are needed, with \
                     frequency 0 in the middle"
                ));
            }
        }
        let lags = self.lags(&squares);
        let matrices = self.matrices([rows, columns], measured.len(), &lags);
        let maps = self.strongest([rows, columns], measured.len(), &matrices);
        if maps.iter().all(|map| map.iter().all(|value| *value == 0.0)) {
            return refuse(format!("no pixel is seen by the coils with a strength above {crop}"));
        }
        Ok(maps)
    }

    /// For every pair of coils, the correlations of the projection onto the windows' subspace over all lags of two windows' cells.
    fn lags(&self, squares: &[Vec<Complex<f64>>]) -> Vec<Vec<Complex<f64>>> {
        let (width, kernel) = (self.width, self.kernel);
        let (cells, places) = (kernel * kernel, width - kernel + 1);
        let side = squares.len() * cells;
        // A window is a row of all coils' cells; this is the sum of its products.
        let value = |place: usize, index: usize| {
            let (coil, cell) = (index / cells, index % cells);
            let row = place / places + cell / kernel;
            squares[coil][row * width + place % places + cell % kernel]
        };
        let mut products = Hermitian::zeros(side);
        products.rows_mut().enumerate().for_each(|(i, row)| {
            for place in 0..places * places {
                let left = value(place, i).conj();
                row.iter_mut().enumerate().for_each(|(j, sum)| *sum += left * value(place, j));
            }
        });
        let (values, vectors) = eigen(products);
        let largest = values.iter().copied().fold(0.0, f64::max);
        let kept: Vec<usize> = (0..side)
            .filter(|&index| values[index].max(0.0).sqrt() > self.threshold * largest.sqrt())
            .collect();
        let count = squares.len();
        let reach = 2 * kernel - 1;
        (0..count * count)
            .into_par_iter()
            .map(|pair| {
                let mut lags = vec![Complex::default(); reach * reach];
                for a in 0..cells {
                    for b in 0..cells {
                        let (i, j) = (pair / count * cells + a, pair % count * cells + b);
                        let product = kept.iter().map(|&k| vectors[k][i].conj() * vectors[k][j]);
                        let down = a / kernel + kernel - 1 - b / kernel;
                        let along = a % kernel + kernel - 1 - b % kernel;
                        lags[down * reach + along] += product.sum::<Complex<f64>>();
                    }
                }
                lags
            })
            .collect()
    }

    /// For every pair of coils, an element of all pixels' matrices.
    fn matrices(
        &self,
        [rows, columns]: [usize; 2],
        coils: usize,
        lags: &[Vec<Complex<f64>>],
    ) -> Vec<Vec<Complex<f32>>> {
        let transform = Centred::new(&[rows, columns]);
        let reach = 2 * self.kernel - 1;
        let scale = ((rows * columns) as f64).sqrt() / (self.kernel * self.kernel) as f64;
        let place = |lag: usize, side: usize| {
            (side / 2 + side * self.kernel + lag - (self.kernel - 1)) % side
        };
        (0..coils * coils)
            .map(|pair| {
                let mut plane = vec![Complex::<f32>::default(); rows * columns];
                for (lag, value) in lags[pair].iter().enumerate() {
                    let at = place(lag / reach, rows) * columns + place(lag % reach, columns);
                    let value = value * scale;
                    plane[at] += Complex::new(value.re as f32, value.im as f32);
                }
                transform.run(true, &mut plane);
                plane
            })
            .collect()
    }

    /// The strongest eigenvector of every pixel's matrix, by the power method.
    fn strongest(
        &self,
        [rows, columns]: [usize; 2],
        coils: usize,
        matrices: &[Vec<Complex<f32>>],
    ) -> Vec<Array> {
        let pixels: Vec<Vec<Complex<f32>>> = (0..rows * columns)
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
        (0..coils)
            .map(|coil| {
                Array::from_shape_fn(vec![2, rows, columns], |at| {
                    let value = pixels[at[1] * columns + at[2]][coil];
                    if at[0] == 0 { value.re } else { value.im }
                })
            })
            .collect()
    }
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
        Ok(())
    }
}
