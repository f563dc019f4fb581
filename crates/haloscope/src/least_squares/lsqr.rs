//! LSQR of Paige and Saunders (1982), on `A` itself and not on the normal equations.
//!
//! A shift is carried as rows `√shift · I` under `A`, with data `√shift · center`: algebraically this is
//! the method's damping, and it allows any start and a restart from the true residual.

use std::ops::ControlFlow;

use super::map::{Data, LinearMap};
use super::refine::{Attempt, End, Monitor, finite, refine};
use super::system::{add, is_zero, multiply, multiply_add};
use super::{Ending, LeastSquaresOptions, Report, Solution};
use crate::array::Array;
use crate::error::Result;

/// Minimises `‖A x − y‖² + shift ‖x − center‖²`; `b` is the right-hand side of its normal equations.
pub(super) fn lsqr<M: LinearMap + ?Sized>(
    map: &M,
    y: &M::Data,
    shift: f64,
    center: Option<&Array>,
    b: &Array,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    let rows = Rows { map, shift_root: shift.sqrt() };
    let reference = finite("the right-hand side", map.image_dot(b, b)?)?.sqrt();
    if is_zero(reference) {
        let report = Report::without_iterations(Ending::Converged, Some(0.0));
        return Ok(Solution { image: Array::zeros(b.raw_dim()), report });
    }
    let residual = |x: &Array| {
        let mut data = y.clone();
        data.add_scaled(-1.0, &map.forward(x)?)?;
        let below = if shift > 0.0 {
            let center = center.map(|center| center.as_standard_layout().into_owned());
            let mut below = center.unwrap_or_else(|| Array::zeros(x.raw_dim()));
            add(&mut below, -1.0, x)?;
            multiply(&mut below, rows.shift_root)?;
            Some(below)
        } else {
            None
        };
        let r = Column { data, below };
        let gradient = rows.adjoint(&r)?;
        let norm = finite("the residual", map.image_dot(&gradient, &gradient)?)?.sqrt();
        Ok((r, norm))
    };
    let x = match options.start {
        Some(start) => start.as_standard_layout().into_owned(),
        None => Array::zeros(b.raw_dim()),
    };
    refine(Attempt { x, first: None, reference, options }, residual, |x, r, monitor| {
        sweep(&rows, x, r, monitor)
    })
}

/// Improves `x`, whose residual is `u`, by the bidiagonalisation that begins with it.
fn sweep<M: LinearMap + ?Sized>(
    rows: &Rows<M>,
    x: &mut Array,
    mut u: Column<M::Data>,
    monitor: &mut Monitor,
) -> Result<End> {
    let beta = rows.norm(&u)?;
    if is_zero(beta) {
        return Ok(End::Check);
    }
    u.scale(1.0 / beta)?;
    let mut v = rows.adjoint(&u)?;
    let mut alpha = rows.image_norm(&v)?;
    if is_zero(alpha) {
        return Ok(End::Check);
    }
    multiply(&mut v, 1.0 / alpha)?;
    let mut w = v.clone();
    // What the rotations leave of the diagonal, and of the residual of the data.
    let (mut diagonal, mut remaining) = (alpha, beta);
    loop {
        // u ← A v − α u, v ← Aᵀ u − β v, each normalised.
        let mut next = rows.forward(&v)?;
        next.add(-alpha, &u)?;
        u = next;
        let beta = rows.norm(&u)?;
        if is_zero(beta) {
            alpha = 0.0;
        } else {
            u.scale(1.0 / beta)?;
            let mut next = rows.adjoint(&u)?;
            add(&mut next, -beta, &v)?;
            v = next;
            alpha = rows.image_norm(&v)?;
            if !is_zero(alpha) {
                multiply(&mut v, 1.0 / alpha)?;
            }
        }

        let pivot = diagonal.hypot(beta);
        if is_zero(pivot) {
            return Ok(End::Breakdown("the operator does not see what is left of the residual"));
        }
        let (cosine, sine) = (diagonal / pivot, beta / pivot);
        let theta = sine * alpha;
        diagonal = -cosine * alpha;
        add(x, cosine * remaining / pivot, &w)?;
        multiply_add(&mut w, -theta / pivot, &v)?;
        remaining *= sine;
        // ‖Aᵀ r‖ for the rows together.
        let gradient = remaining * alpha * cosine.abs();
        if let ControlFlow::Break(end) = monitor.step(x, gradient)? {
            return Ok(end);
        }
    }
}

/// `A` with `shift_root · I` below it.
struct Rows<'a, M: ?Sized> {
    map: &'a M,
    shift_root: f64,
}

/// Data with the part that belongs to the rows below `A`, when there is a shift.
struct Column<D> {
    data: D,
    below: Option<Array>,
}

impl<M: LinearMap + ?Sized> Rows<'_, M> {
    fn forward(&self, image: &Array) -> Result<Column<M::Data>> {
        let below = (self.shift_root > 0.0).then(|| {
            let mut below = image.clone();
            multiply(&mut below, self.shift_root).map(|()| below)
        });
        Ok(Column { data: self.map.forward(image)?, below: below.transpose()? })
    }

    fn adjoint(&self, column: &Column<M::Data>) -> Result<Array> {
        let mut image = self.map.adjoint(&column.data)?;
        if let Some(below) = &column.below {
            add(&mut image, self.shift_root, below)?;
        }
        Ok(image)
    }

    fn norm(&self, column: &Column<M::Data>) -> Result<f64> {
        let below =
            column.below.as_ref().map_or(Ok(0.0), |below| self.map.image_dot(below, below))?;
        Ok(finite("LSQR", self.map.data_squared_norm(&column.data)? + below)?.sqrt())
    }

    fn image_norm(&self, image: &Array) -> Result<f64> {
        Ok(finite("LSQR", self.map.image_dot(image, image)?)?.sqrt())
    }
}

impl<D: Data> Column<D> {
    fn add(&mut self, factor: f64, other: &Self) -> Result<()> {
        self.data.add_scaled(factor as f32, &other.data)?;
        match (&mut self.below, &other.below) {
            (Some(below), Some(other)) => add(below, factor, other),
            _ => Ok(()),
        }
    }

    fn scale(&mut self, factor: f64) -> Result<()> {
        self.data.scale(factor as f32)?;
        self.below.as_mut().map_or(Ok(()), |below| multiply(below, factor))
    }
}
