//! What an algorithm is made of: a problem, a prior and the numbers of the method.

use std::sync::Arc;

use super::keys::Keys;
use super::prior::{Plug, Prior};
use super::problem::Problem;
use crate::error::{Error, Result};

/// What [`Method::build`](super::Method::build) makes an algorithm of. All ranks make it together.
#[derive(Clone, Debug)]
pub struct Ingredients<'a> {
    /// The data term.
    pub problem: &'a Problem,
    /// The prior.
    pub prior: PriorForms,
    /// The numbers of the method.
    pub keys: &'a Keys,
    /// The most iterations that will be run, for what is spread over them.
    pub iterations: usize,
}

/// A prior in the forms that methods take.
#[derive(Clone, Debug)]
pub struct PriorForms {
    /// As something with a prox.
    pub prox: Arc<dyn Prior>,
    /// As a denoiser, if it is one.
    pub denoiser: Option<Plug>,
    /// The weight of total variation, if it is that.
    pub weight: Option<f64>,
    /// The range that images are brought back to, where the method itself does it.
    pub range: Option<(f32, f32)>,
}

impl Ingredients<'_> {
    /// The step size that is given, or 0.99 over the Lipschitz constant of the data term.
    pub(super) fn step(&self) -> Result<f64> {
        self.keys.number("step").map_or_else(|| self.problem.step_size(), Ok)
    }

    /// The denoiser.
    pub(super) fn denoiser(&self) -> Result<Plug> {
        self.prior.denoiser.clone().ok_or_else(|| {
            Error::argument(
                "prior",
                "it does not denoise; total variation or a network is expected",
            )
        })
    }

    /// A number that must be given.
    pub(super) fn required(&self, name: &'static str) -> Result<f64> {
        self.keys.number(name).ok_or_else(|| {
            Error::argument("solver", format!("`{name}` is missing; a number above 0 is expected"))
        })
    }
}
