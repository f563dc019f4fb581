//! The squared norm of an operator by Lanczos' method, with a certificate.
//!
//! Images `vⱼ` are made orthogonal to those before them, and `AᵀA` becomes a tridiagonal matrix between them, whose largest
//! eigenvalue `θ` is a lower bound. It needs about the square root of the iterations of a power iteration where eigenvalues lie
//! close together, as those of blurs of large images do.
//!
//! The upper bound rests on the start, which is drawn from the sphere: its part `c` along the top eigenvector has
//! `P(|c| < s) ≤ s √(2n/π)` in n dimensions. For Chebyshev's polynomial `T` of degree `2k − 1`, `p(x) = 1 + T(2x/θ − 1)` is not
//! negative for any eigenvalue, and at most 2 for those of the matrix, which give `v₀ᵀ p(AᵀA) v₀` exactly after k iterations. So
//! `c² p(‖A‖²) ≤ 2`, except for a share of the seeds that is chosen in advance.

use std::f64::consts::PI;

use super::map::LinearMap;
use super::refine::finite;
use super::system::{add, is_zero, multiply};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::random::Draws;

/// How accurately a norm is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormOptions {
    /// Stop when `‖AᵀA v − λ v‖ ≤ tolerance · λ` for the best image `v` so far. The error of `λ` is less: about the square of
    /// the tolerance where no other eigenvalue is near.
    pub tolerance: f64,
    /// Stop after this many iterations, each of which is a forward and an adjoint.
    pub max_iterations: usize,
    /// The seed of the start; the same seed gives the same result.
    pub seed: u64,
    /// The share of seeds for which the upper bound may be wrong.
    pub failure: f64,
}

impl Default for NormOptions {
    fn default() -> Self {
        Self { tolerance: 1e-3, max_iterations: 200, seed: 0, failure: 1e-6 }
    }
}

/// What is known about `‖A‖²`, up to the rounding of f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquaredNorm {
    /// `‖A‖²` is at least this.
    pub lower: f64,
    /// The best guess: between the bounds, and equal to the lower one unless it is exact.
    pub estimate: f64,
    /// `‖A‖²` is at most this, except for the chosen share of seeds. A safe step size is its inverse.
    pub upper: f64,
    /// `‖AᵀA v − λ v‖ / λ`: `AᵀA` has an eigenvalue this close to the estimate, relatively.
    pub residual: f64,
    /// How many times `AᵀA` was applied; 0 if the norm is known exactly.
    pub iterations: usize,
    /// Whether the residual is within the tolerance.
    pub converged: bool,
}

/// `‖A‖²`, the largest eigenvalue of `AᵀA`.
///
/// ```
/// use haloscope::least_squares::{NormOptions, squared_norm};
/// use haloscope::physics::Identity;
///
/// let norm = squared_norm(&Identity::new(&[3, 8, 8]), &NormOptions::default())?;
/// assert_eq!((norm.lower, norm.upper), (1.0, 1.0));
/// # Ok::<(), haloscope::Error>(())
/// ```
///
/// # Errors
/// If an option is invalid or the operator gives infinities or NaNs.
pub fn squared_norm<M: LinearMap + ?Sized>(map: &M, options: &NormOptions) -> Result<SquaredNorm> {
    check(options)?;
    if let Some(exact) = map.exact_squared_norm() {
        return Ok(known(exact, 0));
    }
    // Normal numbers: their direction is uniform on the sphere. No operator has this index, so the start is independent of all
    // noise.
    let normal = |index| Draws::new(options.seed, u32::MAX, index + 1).normal() as f32;
    let found = largest(map, map.image_of(&normal), options.tolerance, options.max_iterations)?;
    if found.value <= 0.0 {
        return Ok(known(0.0, found.iterations));
    }
    let dimensions = map.image_shape().iter().product::<usize>() as f64;
    // ln of 4 over c², which is at least so large.
    let unlikely = (8.0 * dimensions / (PI * options.failure * options.failure)).ln();
    let reach = (unlikely / (2 * found.iterations - 1) as f64).cosh();
    Ok(SquaredNorm {
        lower: found.value,
        estimate: found.value,
        upper: found.value * f64::midpoint(1.0, reach),
        residual: found.residual,
        iterations: found.iterations,
        converged: found.residual <= options.tolerance,
    })
}

/// The largest eigenvalue of `AᵀA` among the images that were tried.
pub(crate) struct Largest {
    /// The eigenvalue; 0 if `A` maps the start to zero, or the start is zero.
    pub value: f64,
    /// `‖AᵀA v − λ v‖ / λ`.
    pub residual: f64,
    /// How many times `AᵀA` was applied.
    pub iterations: usize,
}

/// Lanczos' method from a start, until the residual is within the tolerance or there are so many iterations.
pub(crate) fn largest<M: LinearMap + ?Sized>(
    map: &M,
    start: Array,
    tolerance: f64,
    max_iterations: usize,
) -> Result<Largest> {
    let mut v = start;
    let length = map.image_dot(&v, &v)?.sqrt();
    if is_zero(length) {
        return Ok(Largest { value: 0.0, residual: 0.0, iterations: 0 });
    }
    multiply(&mut v, 1.0 / length)?;
    let mut matrix = Tridiagonal::default();
    let mut before: Option<Array> = None;
    loop {
        haloscope_nn::Stop::check()?;
        let mut w = map.normal(&v)?;
        let along = map.image_dot(&v, &w)?;
        add(&mut w, -along, &v)?;
        if let (Some(before), Some(beside)) = (&before, matrix.beside.last()) {
            add(&mut w, -beside, before)?;
        }
        let rest = finite("the norm", map.image_dot(&w, &w)?)?.sqrt();
        matrix.diagonal.push(along);
        let (value, last) = matrix.largest();
        let iterations = matrix.diagonal.len();
        if value <= 0.0 {
            // A start with a part along every eigenvector is mapped to zero by zero only.
            return Ok(Largest { value: 0.0, residual: 0.0, iterations });
        }
        let residual = rest * last / value;
        if residual <= tolerance || iterations >= max_iterations {
            return Ok(Largest { value, residual, iterations });
        }
        multiply(&mut w, 1.0 / rest)?;
        matrix.beside.push(rest);
        before = Some(std::mem::replace(&mut v, w));
    }
}

/// A symmetric matrix with entries beside its diagonal only, all of which are above 0.
#[derive(Default)]
struct Tridiagonal {
    diagonal: Vec<f64>,
    beside: Vec<f64>,
}

impl Tridiagonal {
    /// The largest eigenvalue, and the magnitude of the last entry of its unit eigenvector.
    fn largest(&self) -> (f64, f64) {
        let size = self.diagonal.len();
        // No eigenvalue is larger than the sum of a row.
        let row = |index: usize| {
            let before = index.checked_sub(1).map_or(0.0, |before| self.beside[before]);
            self.diagonal[index] + before + self.beside.get(index).copied().unwrap_or(0.0)
        };
        let mut above = (0..size).map(row).fold(f64::NEG_INFINITY, f64::max);
        let mut below = self.diagonal.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        loop {
            let between = f64::midpoint(below, above);
            if between <= below || between >= above {
                break;
            }
            // All pivots are positive exactly if no eigenvalue is larger.
            if self.pivots(between).all(|pivot| pivot > 0.0) {
                above = between;
            } else {
                below = between;
            }
        }
        // The eigenvector from its last entry on, which is taken for 1.
        let (mut entry, mut square) = (1.0, 1.0);
        for (pivot, beside) in self.pivots(above).zip(self.beside.iter().rev()) {
            entry *= pivot / beside;
            square += entry * entry;
        }
        (above, 1.0 / f64::sqrt(square))
    }

    /// The pivots of `value · I − T`, eliminated from the last row on.
    fn pivots(&self, value: f64) -> impl Iterator<Item = f64> {
        let mut last: Option<f64> = None;
        self.diagonal.iter().enumerate().rev().map(move |(index, diagonal)| {
            let below = last.map_or(0.0, |pivot| self.beside[index] * self.beside[index] / pivot);
            let pivot = value - diagonal - below;
            last = Some(pivot);
            pivot
        })
    }
}

fn known(value: f64, iterations: usize) -> SquaredNorm {
    SquaredNorm {
        lower: value,
        estimate: value,
        upper: value,
        residual: 0.0,
        iterations,
        converged: true,
    }
}

fn check(options: &NormOptions) -> Result<()> {
    if !(options.tolerance.is_finite() && options.tolerance >= 0.0) {
        let reason = format!("the tolerance is {}; it must be at least 0", options.tolerance);
        return Err(Error::argument("the norm of an operator", reason));
    }
    if options.max_iterations == 0 {
        return Err(Error::argument(
            "the norm of an operator",
            "at least 1 iteration is needed, not 0",
        ));
    }
    if !(options.failure > 0.0 && options.failure < 1.0) {
        let reason =
            format!("the failure share is {}; it must be between 0 and 1", options.failure);
        return Err(Error::argument("the norm of an operator", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix of a string with 2 on its diagonal and 1 beside it has eigenvectors that are sines.
    #[test]
    fn the_largest_eigenvalue_of_a_string_is_known() {
        for size in [1, 2, 5, 40, 200] {
            let matrix = Tridiagonal { diagonal: vec![2.0; size], beside: vec![1.0; size - 1] };
            let (largest, last) = matrix.largest();
            let angle = PI / (size + 1) as f64;
            assert!((largest - (2.0 + 2.0 * angle.cos())).abs() < 1e-12, "{size}: {largest}");
            let entry = (2.0 / (size + 1) as f64).sqrt() * angle.sin();
            assert!((last - entry).abs() < 1e-9, "{size}: {last}, {entry}");
        }
    }
}
