//! `BiCGSTAB` of van der Vorst (1992): for systems that need not be symmetric.

use std::ops::ControlFlow;

use super::refine::{End, Monitor, finite};
use super::system::{System, add, multiply_add, norm};
use crate::array::Array;
use crate::error::Result;

/// Cosines of angles below this are rounding errors: the vectors count as orthogonal.
const ORTHOGONAL: f64 = 1e-10;

/// Improves `x`, whose residual is `r`, until the monitor ends it.
pub(super) fn sweep<S: System + ?Sized>(
    system: &S,
    x: &mut Array,
    mut r: Array,
    monitor: &mut Monitor,
) -> Result<End> {
    let shadow = r.clone();
    let shadow_norm = norm(system, &shadow, "BiCGSTAB")?;
    let mut direction = r.clone();
    let mut rho = shadow_norm * shadow_norm;
    loop {
        let image = system.apply(&direction)?;
        let image_norm = norm(system, &image, "BiCGSTAB")?;
        let projection = system.dot(&shadow, &image)?;
        if projection.abs() <= ORTHOGONAL * shadow_norm * image_norm {
            return Ok(End::Breakdown("the next direction is orthogonal to the first residual"));
        }
        let alpha = finite("BiCGSTAB", rho / projection)?;
        add(x, alpha, &direction)?;
        // From here to the next update `r` is the residual after half a step.
        add(&mut r, -alpha, &image)?;
        let half = norm(system, &r, "the residual")?;
        if half <= monitor.target() {
            return Ok(match monitor.step(x, half)? {
                ControlFlow::Break(end) => end,
                ControlFlow::Continue(()) => End::Check,
            });
        }
        let smoothed = system.apply(&r)?;
        let smoothed_norm = norm(system, &smoothed, "BiCGSTAB")?;
        let overlap = system.dot(&smoothed, &r)?;
        if overlap.abs() <= ORTHOGONAL * smoothed_norm * half {
            return Ok(End::Breakdown("the residual is orthogonal to its image"));
        }
        let omega = overlap / (smoothed_norm * smoothed_norm);
        add(x, omega, &r)?;
        add(&mut r, -omega, &smoothed)?;
        let residual = norm(system, &r, "the residual")?;
        if let ControlFlow::Break(end) = monitor.step(x, residual)? {
            return Ok(end);
        }
        let next_rho = system.dot(&shadow, &r)?;
        if next_rho.abs() <= ORTHOGONAL * shadow_norm * residual {
            return Ok(End::Breakdown("the residual is orthogonal to the first one"));
        }
        // direction ← r + β (direction − ω image)
        add(&mut direction, -omega, &image)?;
        multiply_add(&mut direction, (next_rho / rho) * (alpha / omega), &r)?;
        rho = next_rho;
    }
}
