//! Iterative refinement around a method, which is what makes its report true.
//!
//! In f32 the residual that a method updates goes to zero while the one of its image does not. So when
//! a method believes to be done, or breaks down, the residual is computed anew and the method begins
//! again from it, as long as that at least halves it. The image with the smallest residual is
//! returned.

use std::ops::ControlFlow;

use super::{Options, Report, Solution, Step, Stop};
use crate::array::Array;
use crate::error::{Error, Result};

/// Curvatures below this fraction of the largest one seen are rounding errors of f32: following them
/// would blow up the part of the image that the operator does not see.
pub(super) const NO_CURVATURE: f64 = 1e-9;

/// Where a method begins, and what it is measured by.
pub(super) struct Attempt<'a, R> {
    pub(super) x: Array,
    /// The residual of `x` and its norm, if they are known.
    pub(super) first: Option<(R, f64)>,
    /// The norm that residuals are relative to; not 0.
    pub(super) reference: f64,
    pub(super) options: &'a Options<'a>,
}

/// Why a method returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// It believes that the residual is small enough.
    Reached,
    /// There are no more iterations, or the watcher stopped it.
    Told(Stop),
    /// It cannot go on.
    Breakdown(&'static str),
}

/// Counts iterations, and decides when a method returns.
pub(super) struct Monitor<'a> {
    options: &'a Options<'a>,
    reference: f64,
    history: Vec<f64>,
}

impl Monitor<'_> {
    /// The norm of a residual that is small enough.
    pub(super) fn target(&self) -> f64 {
        self.options.tolerance * self.reference
    }

    /// Notes an iteration with the norm of its residual.
    pub(super) fn step(&mut self, residual: f64) -> Result<ControlFlow<End>> {
        finite("the residual", residual)?;
        let relative = residual / self.reference;
        self.history.push(relative);
        let step = Step { iteration: self.history.len(), residual: relative };
        if self.options.watch.is_some_and(|watch| watch(&step).is_break()) {
            return Ok(ControlFlow::Break(End::Told(Stop::Watcher)));
        }
        if residual <= self.target() {
            return Ok(ControlFlow::Break(End::Reached));
        }
        if self.is_exhausted() {
            return Ok(ControlFlow::Break(End::Told(Stop::IterationLimit)));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn is_exhausted(&self) -> bool {
        self.history.len() >= self.options.max_iterations
    }
}

/// Repeats a method from the true residual until it converges or no longer helps.
pub(super) fn refine<R>(
    attempt: Attempt<R>,
    residual: impl Fn(&Array) -> Result<(R, f64)>,
    mut method: impl FnMut(&mut Array, R, &mut Monitor) -> Result<End>,
) -> Result<Solution> {
    let Attempt { mut x, mut first, reference, options } = attempt;
    let mut monitor = Monitor { options, reference, history: Vec::new() };
    let mut end = None;
    let mut best: Option<(Array, f64)> = None;
    let stop = loop {
        let (r, norm) = match first.take() {
            Some(first) => first,
            None => residual(&x)?,
        };
        let improved = best.as_ref().is_none_or(|(_, least)| norm < *least);
        let halved = best.as_ref().is_none_or(|(_, least)| norm <= 0.5 * least);
        if improved {
            best = Some((x.clone(), norm));
        }
        if norm <= monitor.target() {
            break Stop::Converged;
        }
        match end {
            Some(End::Told(stop)) => break stop,
            Some(End::Breakdown(reason)) if !halved => break Stop::Breakdown(reason),
            Some(End::Reached) if !halved => break Stop::Stagnation,
            _ if monitor.is_exhausted() => break Stop::IterationLimit,
            _ => end = Some(method(&mut x, r, &mut monitor)?),
        }
    };
    let (image, norm) = best.unwrap_or((x, f64::INFINITY));
    let report = Report {
        stop,
        iterations: monitor.history.len(),
        residual: Some(norm / reference),
        history: monitor.history,
    };
    Ok(Solution { image, report })
}

/// A scalar that must be finite.
pub(super) fn finite(what: &'static str, value: f64) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    let reason = format!(
        "a sum over it is {value}; the input or what the operator made of it holds infinities or NaNs"
    );
    Err(Error::Numeric { what, reason })
}

pub(super) fn check_options(options: &Options) -> Result<()> {
    if options.tolerance.is_finite() && options.tolerance >= 0.0 {
        return Ok(());
    }
    let reason = format!("{} was given; it must be finite and at least 0", options.tolerance);
    Err(Error::argument("the tolerance of a least-squares solver", reason))
}
