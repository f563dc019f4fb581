//! Eigenvalues and eigenvectors of a Hermitian matrix, by Jacobi's rotations.
//!
//! Every rotation makes one element 0 that is not on the diagonal. Sweeps over all elements end when these are rounding errors.

use rayon::prelude::*;

use crate::fourier::Complex;

/// A matrix that is its own conjugate transpose, row by row.
pub(super) struct Hermitian {
    side: usize,
    values: Vec<Complex<f64>>,
}

/// Sweeps at the most; a dozen do for any matrix that is met.
const MOST_SWEEPS: usize = 40;

impl Hermitian {
    pub(super) fn zeros(side: usize) -> Self {
        Self { side, values: vec![Complex::default(); side * side] }
    }

    /// All rows, for threads.
    pub(super) fn rows_mut(&mut self) -> impl IndexedParallelIterator<Item = &mut [Complex<f64>]> {
        self.values.par_chunks_mut(self.side.max(1))
    }
}

/// All eigenvalues and their eigenvectors, in no order.
pub(super) fn eigen(matrix: Hermitian) -> (Vec<f64>, Vec<Vec<Complex<f64>>>) {
    let Hermitian { side, mut values } = matrix;
    let mut vectors: Vec<Vec<Complex<f64>>> = (0..side)
        .map(|row| {
            (0..side).map(|column| Complex::new(f64::from(u8::from(row == column)), 0.0)).collect()
        })
        .collect();
    let total: f64 = values.iter().map(Complex::norm_sqr).sum();
    for _ in 0..MOST_SWEEPS {
        let off: f64 = (0..side)
            .map(|row| values[row * side + row + 1..(row + 1) * side].iter())
            .map(|row| row.map(Complex::norm_sqr).sum::<f64>())
            .sum();
        if off <= 1e-28 * total {
            break;
        }
        for p in 0..side {
            for q in p + 1..side {
                rotate(side, &mut values, &mut vectors, p, q, total);
            }
        }
    }
    ((0..side).map(|index| values[index * side + index].re).collect(), vectors)
}

/// Makes the element of a row and a later column 0.
fn rotate(
    side: usize,
    values: &mut [Complex<f64>],
    vectors: &mut [Vec<Complex<f64>>],
    p: usize,
    q: usize,
    total: f64,
) {
    let element = values[p * side + q];
    let size = element.norm();
    if size * size <= 1e-32 * total / (side * side) as f64 {
        return;
    }
    let phase = element / size;
    let (first, second) = (values[p * side + p].re, values[q * side + q].re);
    // tan 2θ = 2 |a_pq| / (a_pp − a_qq), of which the smaller angle is taken.
    let ratio = (second - first) / (2.0 * size);
    let tangent = ratio.signum() / (ratio.abs() + ratio.hypot(1.0));
    let tangent = if ratio == 0.0 { 1.0 } else { tangent };
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = phase * (tangent * cosine);
    let (head, tail) = values.split_at_mut(q * side);
    mix(&mut head[p * side..][..side], &mut tail[..side], cosine, sine);
    for row in 0..side {
        // The columns are the conjugates of the rows.
        if row != p && row != q {
            values[row * side + p] = values[p * side + row].conj();
            values[row * side + q] = values[q * side + row].conj();
        }
    }
    values[p * side + p] = Complex::new(first - tangent * size, 0.0);
    values[q * side + q] = Complex::new(second + tangent * size, 0.0);
    values[p * side + q] = Complex::default();
    values[q * side + p] = Complex::default();
    let (head, tail) = vectors.split_at_mut(q);
    mix(&mut head[p], &mut tail[0], cosine, sine.conj());
}

/// `(x, y) → (c x − s y, s̄ x + c y)`.
fn mix(x: &mut [Complex<f64>], y: &mut [Complex<f64>], cosine: f64, sine: Complex<f64>) {
    for (x, y) in x.iter_mut().zip(y) {
        let (a, b) = (*x, *y);
        *x = a * cosine - sine * b;
        *y = sine.conj() * a + b * cosine;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vector_is_stretched_by_its_value_and_all_are_orthonormal() {
        for side in [1, 2, 7, 24] {
            let mut random = fastrand::Rng::with_seed(side as u64);
            let mut matrix = Hermitian::zeros(side);
            for row in 0..side {
                for column in row..side {
                    let imaginary = if row == column { 0.0 } else { random.f64() - 0.5 };
                    let value = Complex::new(random.f64() - 0.5, imaginary);
                    matrix.values[row * side + column] = value;
                    matrix.values[column * side + row] = value.conj();
                }
            }
            let original = matrix.values.clone();
            let (values, vectors) = eigen(matrix);
            for (index, vector) in vectors.iter().enumerate() {
                for row in 0..side {
                    let product: Complex<f64> =
                        (0..side).map(|j| original[row * side + j] * vector[j]).sum();
                    assert!((product - vector[row] * values[index]).norm() < 1e-10, "{side}");
                }
                for (other, second) in vectors.iter().enumerate() {
                    let inner: Complex<f64> =
                        vector.iter().zip(second).map(|(a, b)| a.conj() * b).sum();
                    assert!((inner.norm() - f64::from(u8::from(index == other))).abs() < 1e-10);
                }
            }
        }
    }
}
