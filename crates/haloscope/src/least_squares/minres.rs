//! MINRES of Paige and Saunders (1975): for symmetric systems, definite or not.
//!
//! Lanczos' recurrence makes the system tridiagonal, plane rotations make that triangular, and the
//! image is updated by the columns of the inverse as they appear. Residuals never grow.

use std::ops::ControlFlow;

use super::refine::{End, Monitor, NO_CURVATURE, finite};
use super::system::{System, add, is_zero, multiply, norm};
use crate::array::Array;
use crate::error::Result;

/// Improves `x`, whose residual is `r`, until the monitor ends it.
pub(super) fn sweep<S: System + ?Sized>(
    system: &S,
    x: &mut Array,
    r: Array,
    monitor: &mut Monitor,
) -> Result<End> {
    let mut beta = norm(system, &r, "the residual")?;
    if is_zero(beta) {
        return Ok(End::Check);
    }
    let mut residual = beta;
    let mut v = r;
    multiply(&mut v, 1.0 / beta)?;
    let mut previous_v = Array::zeros(v.raw_dim());
    let [mut w, mut previous_w] = [previous_v.clone(), previous_v.clone()];
    // The last two rotations, and the entries of the triangle that they leave for the next column.
    let (mut cosine, mut sine) = (-1.0, 0.0);
    let (mut corner, mut above) = (0.0, 0.0);
    let mut scale = 0.0_f64;
    // In the first step there is no previous vector to be orthogonal to.
    beta = 0.0;
    loop {
        let mut next = system.apply(&v)?;
        add(&mut next, -beta, &previous_v)?;
        let alpha = finite("MINRES", system.dot(&v, &next)?)?;
        add(&mut next, -alpha, &v)?;
        let next_beta = norm(system, &next, "MINRES")?;
        scale = scale.max(alpha.abs()).max(next_beta);

        let two_above = above;
        let one_above = cosine * corner + sine * alpha;
        let diagonal = sine * corner - cosine * alpha;
        above = sine * next_beta;
        corner = -cosine * next_beta;
        let pivot = diagonal.hypot(next_beta);
        if pivot <= NO_CURVATURE * scale {
            return Ok(End::Breakdown("the operator does not see what is left of the residual"));
        }
        (cosine, sine) = (diagonal / pivot, next_beta / pivot);

        // w ← (v − one_above · w − two_above · previous_w) / pivot
        let mut column = v.clone();
        add(&mut column, -one_above, &w)?;
        add(&mut column, -two_above, &previous_w)?;
        multiply(&mut column, 1.0 / pivot)?;
        previous_w = std::mem::replace(&mut w, column);
        add(x, cosine * residual, &w)?;
        residual *= sine;
        if let ControlFlow::Break(end) = monitor.step(x, residual.abs())? {
            return Ok(end);
        }
        if is_zero(next_beta) {
            return Ok(End::Breakdown("the operator does not see what is left of the residual"));
        }
        multiply(&mut next, 1.0 / next_beta)?;
        previous_v = std::mem::replace(&mut v, next);
        beta = next_beta;
    }
}
