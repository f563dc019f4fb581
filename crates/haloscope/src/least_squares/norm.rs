//! The squared norm of an operator by power iteration, with a certificate.
//!
//! `λ = ‖A v‖²` for a unit image `v` is a lower bound. The upper bound rests on the start, which is
//! drawn from the sphere: its part `c` along the top eigenvector has `P(|c| < s) ≤ s √(2n/π)` in n
//! dimensions, and `‖A‖² ≤ (v₀ᵀ (AᵀA)^(2k+1) v₀ / c²)^(1/(2k+1))`, where the power is known from the norms
//! of the k iterations. So it fails for a share of the seeds that is chosen in advance.

use std::f64::consts::PI;

use super::map::LinearMap;
use super::refine::finite;
use super::system::{add, is_zero, multiply};
use crate::error::{Error, Result};
use crate::random::Draws;

/// How accurately a norm is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormOptions {
    /// Stop when `‖AᵀA v − λ v‖ ≤ tolerance · λ`. The error of `λ` is about its square.
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
    let mut v = map.image_of(&normal);
    let length = map.image_dot(&v, &v)?.sqrt();
    if is_zero(length) {
        // An image without elements.
        return Ok(known(0.0, 0));
    }
    multiply(&mut v, 1.0 / length)?;
    let dimensions = map.image_shape().iter().product::<usize>() as f64;
    let unlikely = (2.0 * dimensions / (PI * options.failure * options.failure)).ln();
    // ln of v₀ᵀ (AᵀA)^(2k) v₀.
    let mut power = 0.0;
    let mut iterations = 0;
    loop {
        haloscope_nn::Stop::check()?;
        let mut w = map.normal(&v)?;
        iterations += 1;
        let growth = finite("the norm", map.image_dot(&w, &w)?)?.sqrt();
        let lambda = map.image_dot(&v, &w)?;
        if is_zero(growth) || lambda <= 0.0 {
            // A start with a part along every eigenvector is mapped to zero by zero only.
            return Ok(known(0.0, iterations));
        }
        let upper = ((power + lambda.ln() + unlikely) / (2 * iterations - 1) as f64).exp();
        let next_factor = 1.0 / growth;
        let mut difference = w.clone();
        add(&mut difference, -lambda, &v)?;
        let residual = map.image_dot(&difference, &difference)?.sqrt() / lambda;
        let converged = residual <= options.tolerance;
        if converged || iterations >= options.max_iterations {
            return Ok(SquaredNorm {
                lower: lambda,
                estimate: lambda,
                upper: upper.max(lambda),
                residual,
                iterations,
                converged,
            });
        }
        multiply(&mut w, next_factor)?;
        power += 2.0 * growth.ln();
        v = w;
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
