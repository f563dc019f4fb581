//! Square systems `H x = b`, and the normal equations as one of them.

use super::map::{LinearMap, elements_mut, local_dot};
use super::refine::{Attempt, check_options, finite, refine};
use super::right_side::RightSide;
use super::{
    Ending, LeastSquaresOptions, LinearSolver, Report, Solution, bicgstab, conjugate_gradient,
    minres,
};
use crate::array::{Array, add_scaled, elements, scale, scale_and_add};
use crate::error::{Error, Result};

/// A square operator on images.
///
/// ```
/// use haloscope::least_squares::{LeastSquaresOptions, System, solve};
/// use haloscope::{Array, Result};
///
/// struct Triple;
/// impl System for Triple {
///     fn apply(&self, x: &Array) -> Result<Array> {
///         Ok(x * 3.0)
///     }
/// }
/// let solution = solve(&Triple, &Array::from_elem(vec![1, 4], 6.0), &LeastSquaresOptions::default())?;
/// assert_eq!(solution.image, Array::from_elem(vec![1, 4], 2.0));
/// # Ok::<(), haloscope::Error>(())
/// ```
pub trait System {
    /// `H x`, of the shape of `x`, in standard layout.
    fn apply(&self, x: &Array) -> Result<Array>;

    /// The inner product, over all ranks if the images are divided.
    fn dot(&self, a: &Array, b: &Array) -> Result<f64> {
        local_dot(a, b)
    }
}

/// `H = AᵀA + shift·I`.
#[derive(Debug)]
pub struct Normal<'a, M: ?Sized> {
    map: &'a M,
    shift: f64,
}

impl<'a, M: LinearMap + ?Sized> Normal<'a, M> {
    /// The normal equations of a map.
    ///
    /// # Errors
    /// If the shift is negative or not finite.
    pub fn new(map: &'a M, shift: f64) -> Result<Self> {
        if shift.is_finite() && shift >= 0.0 {
            return Ok(Self { map, shift });
        }
        let reason = format!("the shift is {shift}; it must be finite and at least 0");
        Err(Error::argument("normal equations", reason))
    }
}

impl<M: LinearMap + ?Sized> System for Normal<'_, M> {
    fn apply(&self, x: &Array) -> Result<Array> {
        let mut result = self.map.normal(x)?;
        if self.shift > 0.0 {
            add(&mut result, self.shift, x)?;
        }
        Ok(result)
    }

    fn dot(&self, a: &Array, b: &Array) -> Result<f64> {
        self.map.image_dot(a, b)
    }
}

/// Solves `H x = b`.
///
/// `H` must be symmetric and not negative for conjugate gradients, symmetric for MINRES, anything for
/// `BiCGSTAB`. When it is singular, `b` should be in its range.
///
/// # Errors
/// If `b` is not finite, the shapes do not fit, or the method is LSQR, which needs an adjoint: see
/// [`pseudo_inverse`](super::pseudo_inverse).
pub fn solve<S: System + ?Sized>(
    system: &S,
    b: &Array,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    let right = RightSide::whole(b);
    solve_for(system, &right, right.to_array()?, options)
}

/// The same for a right-hand side that can be computed again; `b` is its array.
pub(super) fn solve_for<S: System + ?Sized>(
    system: &S,
    right: &RightSide,
    b: Array,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    check_options(options)?;
    let sweep = match options.method {
        LinearSolver::ConjugateGradient => conjugate_gradient::sweep::<S>,
        LinearSolver::Minres => minres::sweep::<S>,
        LinearSolver::Bicgstab => bicgstab::sweep::<S>,
        LinearSolver::Lsqr => {
            let reason = "it needs an operator and its adjoint; use `pseudo_inverse` or `prox_l2`";
            return Err(Error::argument("LSQR", reason));
        }
    };
    let reference = norm(system, &b, "the right-hand side")?;
    if is_zero(reference) {
        let report = Report::without_iterations(Ending::Converged, Some(0.0));
        return Ok(Solution { image: Array::zeros(b.raw_dim()), report });
    }
    let residual = |x: &Array| {
        let r = right.minus(system.apply(x)?)?;
        let norm = norm(system, &r, "the residual")?;
        Ok((r, norm))
    };
    let (x, first) = match options.start {
        Some(start) => {
            drop(b);
            (start.as_standard_layout().into_owned(), None)
        }
        None => (Array::zeros(b.raw_dim()), Some((b, reference))),
    };
    refine(Attempt { x, first, reference, options }, residual, |x, r, monitor| {
        sweep(system, x, r, monitor)
    })
}

/// Whether a norm is below what f32 can divide by.
pub(super) fn is_zero(norm: f64) -> bool {
    norm < f64::from(f32::MIN_POSITIVE)
}

/// `‖x‖`, which must be finite.
pub(super) fn norm<S: System + ?Sized>(system: &S, x: &Array, what: &'static str) -> Result<f64> {
    Ok(finite(what, system.dot(x, x)?)?.sqrt())
}

/// `y ← y + a x`.
pub(super) fn add(y: &mut Array, a: f64, x: &Array) -> Result<()> {
    let x = x.as_standard_layout();
    let Some(from) = x.as_slice() else { return Ok(()) };
    add_scaled(elements_mut(y, x.shape())?, a as f32, from);
    Ok(())
}

/// `y ← x + b y`.
pub(super) fn multiply_add(y: &mut Array, b: f64, x: &Array) -> Result<()> {
    let from = elements("least squares", x)?;
    scale_and_add(elements_mut(y, x.shape())?, b as f32, from);
    Ok(())
}

/// `y ← a y`.
pub(super) fn multiply(y: &mut Array, a: f64) -> Result<()> {
    let shape = y.shape().to_vec();
    scale(elements_mut(y, &shape)?, a as f32);
    Ok(())
}
