//! A matrix of numbers as an operator, for tests and small problems.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::window::check_restriction;
use super::{LinearPhysics, Physics, region, slice};
use crate::array::{Array, View, lanes};
use crate::error::{Error, Result};

/// `y = M x`, with the samples of an image in memory order.
///
/// ```
/// use haloscope::physics::{LinearPhysics, Matrix, Physics};
/// use ndarray::{ArrayD, array};
///
/// let matrix = Matrix::new(&[2, 1, 1], &array![[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]].into_dyn())?;
/// let y = matrix.forward(&ArrayD::ones(vec![1, 2, 1, 1]))?;
/// assert_eq!(y, array![[3.0, 1.0, 3.0]].into_dyn());
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone)]
pub struct Matrix {
    shape: Vec<usize>,
    measurement: [usize; 1],
    rows: Vec<f32>,
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix of {:?} to {:?}", self.shape, self.measurement)
    }
}

impl Matrix {
    /// For images of a shape, with a matrix of (measurements, samples of an image).
    pub fn new(shape: &[usize], matrix: &View) -> Result<Self> {
        let samples: usize = shape.iter().product();
        match *matrix.shape() {
            [rows, columns] if columns == samples && rows * columns > 0 => {
                let (shape, measurement) = (shape.to_vec(), [rows]);
                Ok(Self { shape, measurement, rows: slice(matrix).into_owned() })
            }
            _ => Err(Error::Shape {
                what: "the matrix".to_string(),
                expected: format!(
                    "a column for each of the {samples} samples of {shape:?} is expected"
                ),
                found: matrix.shape().to_vec(),
            }),
        }
    }

    /// The matrix of any linear operator, column by column: for tests.
    pub fn of(operator: &dyn LinearPhysics) -> Result<Self> {
        let shape = operator.image_shape();
        let samples: usize = shape.iter().product();
        let mut rows: Vec<Vec<f32>> = Vec::new();
        for i in 0..samples {
            let mut image = Array::zeros([&[1], shape].concat());
            super::slice_mut(&mut image)[i] = 1.0;
            rows.push(slice(&operator.forward(&image)?).into_owned());
        }
        let measurements = rows.first().map_or(0, Vec::len);
        let matrix = Array::from_shape_fn(vec![measurements, samples], |at| rows[at[1]][at[0]]);
        Self::new(shape, &matrix)
    }
}

impl Physics for Matrix {
    fn name(&self) -> &'static str {
        "matrix"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let samples = image.len() / batch;
        let pairs = image.chunks(samples).zip(measurement.chunks_mut(self.measurement[0]));
        for (image, measurement) in pairs {
            for (value, row) in measurement.iter_mut().zip(self.rows.chunks(samples)) {
                let products = row.iter().zip(image).map(|(a, x)| f64::from(*a) * f64::from(*x));
                *value = lanes(products) as f32;
            }
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        self.rows.len() as f64
    }
}

impl LinearPhysics for Matrix {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let samples = image.len() / batch;
        let mut sums = vec![0.0; samples];
        let pairs = image.chunks_mut(samples).zip(measurement.chunks(self.measurement[0]));
        for (image, measurement) in pairs {
            sums.fill(0.0);
            for (&value, row) in measurement.iter().zip(self.rows.chunks(samples)) {
                for (sum, &entry) in sums.iter_mut().zip(row) {
                    *sum += f64::from(entry) * f64::from(value);
                }
            }
            for (to, &sum) in image.iter_mut().zip(&sums) {
                *to = sum as f32;
            }
        }
        Ok(())
    }

    /// By Gaussian elimination on `MᵀM + shift`, if that has an inverse.
    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let samples: usize = self.shape.iter().product();
        let mut normal = vec![0.0; samples * samples];
        for row in self.rows.chunks(samples) {
            for (i, &a) in row.iter().enumerate() {
                for (j, &b) in row.iter().enumerate() {
                    normal[i * samples + j] += f64::from(a) * f64::from(b);
                }
            }
        }
        (0..samples).for_each(|i| normal[i * samples + i] += shift);
        if let Err(error) = self.check_image(b) {
            return Some(Err(error));
        }
        let mut solution = b.as_standard_layout().into_owned();
        for image in super::slice_mut(&mut solution).chunks_mut(samples) {
            eliminate(normal.clone(), image)?;
        }
        Some(Ok(solution))
    }

    /// The columns of the samples there.
    fn restricted(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        if let Err(error) = check_restriction(self.name(), &self.shape, image) {
            return Some(Err(error));
        }
        let (channels, sides) = (self.shape[0], &self.shape[1..]);
        let part = region::window(image);
        let planes = self.measurement[0] * channels;
        let mut rows = vec![0.0; planes * region::positions(&part)];
        region::copy(planes, sides, (&region::whole(sides), &self.rows), (&part, &mut rows));
        let mut shape = vec![channels];
        shape.extend(image.iter().map(Range::len));
        Some(Ok(Arc::new(Self { shape, measurement: self.measurement, rows })))
    }
}

/// Solves a system of equations in place; `None` if the matrix is singular to about 1e-12.
fn eliminate(mut matrix: Vec<f64>, right: &mut [f32]) -> Option<()> {
    let n = right.len();
    let mut x: Vec<f64> = right.iter().map(|&value| f64::from(value)).collect();
    let greatest = matrix.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| {
            matrix[a * n + column].abs().total_cmp(&matrix[b * n + column].abs())
        })?;
        if matrix[pivot * n + column].abs() <= 1e-12 * greatest {
            return None;
        }
        for k in 0..n {
            matrix.swap(column * n + k, pivot * n + k);
        }
        x.swap(column, pivot);
        for row in column + 1..n {
            let factor = matrix[row * n + column] / matrix[column * n + column];
            for k in column..n {
                matrix[row * n + k] -= factor * matrix[column * n + k];
            }
            x[row] -= factor * x[column];
        }
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| matrix[row * n + k] * x[k]).sum();
        x[row] = (x[row] - known) / matrix[row * n + row];
    }
    right.iter_mut().zip(&x).for_each(|(to, &x)| *to = x as f32);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_normal_operator_is_inverted_where_it_has_an_inverse() -> Result<()> {
        let matrix = Matrix::new(&[2], &array![[0.0, 2.0], [1.0, 1.0], [3.0, 0.0]].into_dyn())?;
        let x = array![[1.0, -2.0], [0.5, 3.0]].into_dyn();
        let solution = matrix.solve_normal(&matrix.normal(&x)?, 0.0).expect("an inverse")?;
        assert!(crate::array::distance(&slice(&solution), &slice(&x)) < 1e-5);
        let singular = Matrix::new(&[2], &array![[1.0, 1.0]].into_dyn())?;
        assert!(singular.solve_normal(&x, 0.0).is_none());
        assert!(singular.solve_normal(&x, 0.1).is_some());
        Ok(())
    }

    #[test]
    fn a_matrix_of_other_columns_is_refused() {
        let message =
            Matrix::new(&[3], &array![[1.0, 2.0]].into_dyn()).expect_err("refused").to_string();
        assert!(message.contains("[1, 2]") && message.contains("3 samples"), "{message}");
    }
}
