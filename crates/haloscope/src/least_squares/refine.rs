//! Iterative refinement around a method, which makes its reported residual true.
//!
//! In f32 the residual that a method updates goes to zero while that of its image does not, and may
//! even grow. The residual is therefore recomputed every 32 iterations, and when a method believes
//! that it is done or breaks down. A method that was wrong restarts from the best image, as long as
//! that at least halves the residual. The image with the smallest true residual is returned.

use std::ops::ControlFlow;

use super::{Ending, LeastSquaresOptions, LinearIteration, Report, Solution};
use crate::array::{Array, copy_of};
use crate::error::{Error, Result};

/// Curvatures below this fraction of the largest one seen are rounding errors of f32: following them
/// would blow up the part of the image that the operator does not see.
pub(super) const NO_CURVATURE: f64 = 1e-8;

/// How many iterations a method is believed for. The check costs about one of them.
const CHECK: usize = 32;

/// What f32 leaves of a residual, relatively: below the first, what a method goes on to remove is
/// rounding; below the second, beginning again is no use.
const ROUNDING: f64 = f32::EPSILON as f64;
const NO_RESTART: f64 = 8.0 * ROUNDING;

/// Where a method begins, and what it is measured by.
pub(super) struct Attempt<'a, R> {
    pub(super) x: Array,
    /// The residual of `x` and its norm, if they are known.
    pub(super) first: Option<(R, f64)>,
    /// The norm that residuals are relative to; not 0.
    pub(super) reference: f64,
    pub(super) options: &'a LeastSquaresOptions<'a>,
}

/// Why a method returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// It believes that the residual is small enough, or was found to be wrong about it.
    Check,
    /// There are no more iterations, or the watcher stopped it.
    Told(Ending),
    /// It cannot continue.
    Breakdown(&'static str),
}

/// Counts iterations, keeps the best image, and decides when a method returns.
pub(super) struct Monitor<'a> {
    options: &'a LeastSquaresOptions<'a>,
    reference: f64,
    true_norm: &'a dyn Fn(&Array) -> Result<f64>,
    best: Best,
    history: Vec<f64>,
}

/// The image with the smallest true residual, and that residual's norm.
struct Best {
    norm: f64,
    /// Its copy; none while it is where the method begins, which the options have.
    image: Option<Array>,
}

impl Monitor<'_> {
    /// The norm of a residual at which a method can stop.
    pub(super) fn target(&self) -> f64 {
        self.options.tolerance.max(ROUNDING) * self.reference
    }

    /// Notes an iteration with the image it gave and the norm that its residual should have.
    pub(super) fn step(&mut self, x: &Array, residual: f64) -> Result<ControlFlow<End>> {
        haloscope_nn::Stop::check()?;
        finite("the residual", residual)?;
        let relative = residual / self.reference;
        self.history.push(relative);
        let step = LinearIteration { iteration: self.history.len(), residual: relative };
        if self.options.watch.is_some_and(|watch| watch(&step).is_break()) {
            return Ok(ControlFlow::Break(End::Told(Ending::Watcher)));
        }
        if residual <= self.target() {
            return Ok(ControlFlow::Break(End::Check));
        }
        if self.is_exhausted() {
            return Ok(ControlFlow::Break(End::Told(Ending::IterationLimit)));
        }
        if step.iteration.is_multiple_of(CHECK) {
            let norm = (self.true_norm)(x)?;
            self.keep_best(x, norm);
            if norm > 2.0 * residual {
                return Ok(ControlFlow::Break(End::Check));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn keep_best(&mut self, x: &Array, norm: f64) {
        if norm >= self.best.norm {
            return;
        }
        self.best.norm = norm;
        match &mut self.best.image {
            Some(image) => image.assign(x),
            None => self.best.image = Some(copy_of(x)),
        }
    }

    /// Goes back to the best image.
    fn restore(&self, x: &mut Array) {
        match (&self.best.image, self.options.start) {
            (Some(best), _) => x.assign(best),
            (None, Some(start)) => x.assign(start),
            (None, None) => x.fill(0.0),
        }
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
    let Attempt { mut x, first, reference, options } = attempt;
    let true_norm = |x: &Array| residual(x).map(|(_, norm)| norm);
    let (mut r, mut norm) = match first {
        Some(first) => first,
        None => residual(&x)?,
    };
    let best = Best { norm, image: None };
    let mut monitor =
        Monitor { options, reference, true_norm: &true_norm, best, history: Vec::new() };
    let mut before = f64::INFINITY;
    let mut end = End::Check;
    let stop = loop {
        if norm <= options.tolerance * reference {
            break Ending::Converged;
        }
        let helped = norm <= 0.5 * before && norm > NO_RESTART * reference;
        match end {
            End::Told(stop) => break stop,
            End::Breakdown(reason) if !helped => break Ending::Breakdown(reason),
            End::Check if !helped => break Ending::Stagnation,
            _ if monitor.is_exhausted() => break Ending::IterationLimit,
            _ => {}
        }
        before = norm;
        // What is left is the best so far. A copy is taken only here, where it is about to change.
        monitor.keep_best(&x, norm);
        end = method(&mut x, r, &mut monitor)?;
        (r, norm) = residual(&x)?;
        if monitor.best.norm < norm {
            monitor.restore(&mut x);
            (r, norm) = residual(&x)?;
        }
    };
    let report = Report {
        stop,
        iterations: monitor.history.len(),
        residual: Some(norm / reference),
        history: monitor.history,
    };
    Ok(Solution { image: x, report })
}

/// A scalar that must be finite.
pub(super) fn finite(what: &'static str, value: f64) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    let reason = format!(
        "a sum over it is {value}; the input or what the operator made of it holds infinities or NaNs"
    );
    Err(Error::Numeric { what: what.into(), reason })
}

pub(super) fn check_options(options: &LeastSquaresOptions) -> Result<()> {
    if options.tolerance.is_finite() && options.tolerance >= 0.0 {
        return Ok(());
    }
    let reason = format!("{} was given; it must be finite and at least 0", options.tolerance);
    Err(Error::argument("the tolerance of a least-squares solver", reason))
}
