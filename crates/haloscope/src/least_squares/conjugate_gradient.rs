//! Conjugate gradients: for symmetric systems without negative eigenvalues.

use std::ops::ControlFlow;

use super::refine::{End, Monitor, NO_CURVATURE, finite};
use super::system::{System, add, multiply_add};
use crate::array::{Array, copy_of};
use crate::error::Result;

/// Improves `x`, whose residual is `r`, until the monitor ends it.
pub(super) fn sweep<S: System + ?Sized>(
    system: &S,
    x: &mut Array,
    mut r: Array,
    monitor: &mut Monitor,
) -> Result<End> {
    let mut direction = copy_of(&r);
    let mut squares = system.dot(&r, &r)?;
    let mut largest_curvature = 0.0_f64;
    loop {
        let image = system.apply(&direction)?;
        let length = system.dot(&direction, &direction)?;
        let curvature = finite("conjugate gradients", system.dot(&direction, &image)?)? / length;
        largest_curvature = largest_curvature.max(curvature);
        if curvature < 0.0 && -curvature > NO_CURVATURE * largest_curvature {
            return Ok(End::Breakdown("the system has a negative eigenvalue"));
        }
        if curvature <= NO_CURVATURE * largest_curvature {
            return Ok(End::Breakdown("the operator does not see what is left of the residual"));
        }
        let step = squares / (curvature * length);
        add(x, step, &direction)?;
        add(&mut r, -step, &image)?;
        // The monitor may need the room.
        drop(image);
        let next = system.dot(&r, &r)?;
        if let ControlFlow::Break(end) = monitor.step(x, next.sqrt())? {
            return Ok(end);
        }
        multiply_add(&mut direction, next / squares, &r)?;
        squares = next;
    }
}
