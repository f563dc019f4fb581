//! Small dense matrices: as an operator in f32, and their decompositions in f64 to compare with.

#![allow(dead_code, reason = "each test uses a part of it")]

use haloscope::Array;
use haloscope::Result;
use haloscope::physics::{LinearPhysics, Physics};

/// A matrix as an operator on images of shape (1, columns).
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    /// Row by row.
    pub(crate) entries: Vec<f32>,
    image: [usize; 2],
    measurement: [usize; 2],
}

impl Dense {
    pub(crate) fn new(rows: usize, columns: usize, entries: Vec<f32>) -> Self {
        assert_eq!(entries.len(), rows * columns);
        Self { entries, image: [1, columns], measurement: [1, rows] }
    }

    pub(crate) fn rows(&self) -> usize {
        self.measurement[1]
    }

    pub(crate) fn columns(&self) -> usize {
        self.image[1]
    }

    /// `AᵀA` in f64.
    pub(crate) fn normal(&self) -> Vec<Vec<f64>> {
        let (m, n) = (self.rows(), self.columns());
        let at = |i: usize, j: usize| f64::from(self.entries[i * n + j]);
        let entry = |j: usize, k: usize| (0..m).map(|i| at(i, j) * at(i, k)).sum();
        (0..n).map(|j| (0..n).map(|k| entry(j, k)).collect()).collect()
    }

    /// `Aᵀ y` in f64.
    pub(crate) fn adjoint_f64(&self, y: &[f32]) -> Vec<f64> {
        let n = self.columns();
        let product = |i: usize, j| f64::from(self.entries[i * n + j]) * f64::from(y[i]);
        (0..n).map(|j| (0..y.len()).map(|i| product(i, j)).sum()).collect()
    }

    /// The solution of least norm of `(AᵀA + shift) x = b`, by the eigenvectors of `AᵀA`.
    pub(crate) fn solve_f64(&self, b: &[f64], shift: f64) -> Vec<f64> {
        let (values, vectors) = eigen(self.normal());
        let cutoff = 1e-11 * values.iter().fold(0.0_f64, |a, b| a.max(*b));
        let mut x = vec![0.0; b.len()];
        for (value, vector) in values.iter().zip(&vectors) {
            if *value > cutoff || shift > 0.0 {
                let part = vector.iter().zip(b).map(|(v, b)| v * b).sum::<f64>()
                    / (value.max(0.0) + shift);
                x.iter_mut().zip(vector).for_each(|(x, v)| *x += part * v);
            }
        }
        x
    }

    /// `‖A‖²` in f64.
    pub(crate) fn squared_norm_f64(&self) -> f64 {
        eigen(self.normal()).0.into_iter().fold(0.0, f64::max)
    }
}

impl Physics for Dense {
    fn name(&self) -> &'static str {
        "dense"
    }

    fn image_shape(&self) -> &[usize] {
        &self.image
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let (m, n) = (self.rows(), self.columns());
        for k in 0..batch {
            for i in 0..m {
                let row = &self.entries[i * n..(i + 1) * n];
                let sum: f64 = row.iter().zip(&image[k * n..]).map(|(a, x)| f64::from(a * x)).sum();
                measurement[k * m + i] = sum as f32;
            }
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }
}

impl LinearPhysics for Dense {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let (m, n) = (self.rows(), self.columns());
        for k in 0..batch {
            for j in 0..n {
                let column =
                    (0..m).map(|i| f64::from(self.entries[i * n + j] * measurement[k * m + i]));
                image[k * n + j] = column.sum::<f64>() as f32;
            }
        }
        Ok(())
    }
}

/// Eigenvalues and eigenvectors of a symmetric matrix, by Jacobi's rotations.
pub(crate) fn eigen(mut a: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = a.len();
    let mut vectors: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for _ in 0..60 {
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q].abs() <= f64::MIN_POSITIVE {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let tangent = theta.signum() / (theta.abs() + theta.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                let sine = tangent * cosine;
                for line in &mut a {
                    let (left, right) = (line[p], line[q]);
                    line[p] = cosine * left - sine * right;
                    line[q] = sine * left + cosine * right;
                }
                for k in 0..n {
                    let (pk, qk) = (a[p][k], a[q][k]);
                    (a[p][k], a[q][k]) = (cosine * pk - sine * qk, sine * pk + cosine * qk);
                    let (vp, vq) = (vectors[p][k], vectors[q][k]);
                    (vectors[p][k], vectors[q][k]) =
                        (cosine * vp - sine * vq, sine * vp + cosine * vq);
                }
            }
        }
    }
    ((0..n).map(|i| a[i][i]).collect(), vectors)
}

/// ‖x‖.
pub(crate) fn norm<T: Copy + Into<f64>>(x: &[T]) -> f64 {
    x.iter().map(|x| (*x).into().powi(2)).sum::<f64>().sqrt()
}

/// An array of shape (1, 1, length).
pub(crate) fn row(values: &[f32]) -> Array {
    Array::from_shape_vec(vec![1, 1, values.len()], values.to_vec()).expect("a row")
}

/// ‖a − b‖ / ‖b‖, or ‖a‖ if `b` is zero.
pub(crate) fn relative(a: &Array, b: &[f64]) -> f64 {
    let difference: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    let size: f64 = b.iter().map(|b| b * b).sum();
    (difference / if size > 0.0 { size } else { 1.0 }).sqrt()
}
