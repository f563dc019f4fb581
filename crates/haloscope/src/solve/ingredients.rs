//! What an algorithm is made of: a problem, a prior and the numbers of the method.

use std::sync::Arc;

use haloscope_comm::Context;

use super::keys::Keys;
use super::prior::{Plug, Prior, Range, TotalVariationPrior, WaveletPrior};
use super::problem::Problem;
use crate::denoise::Wavelets;
use crate::distribute::DistributedTotalVariation;
use crate::error::{Error, Result};
use crate::image::Image;

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
    /// The weight of total variation or of wavelets, if it is one of them.
    pub weight: Option<f64>,
    /// The wavelets, if it is these.
    pub wavelets: Option<Wavelets>,
    /// The range that images are brought back to, where the method itself does it.
    pub range: Option<(f32, f32)>,
}

impl PriorForms {
    /// No prior, but a range that images are brought back to, if there is one.
    #[must_use]
    pub fn none(range: Option<(f32, f32)>) -> Self {
        let prox = Arc::new(Clamped { inner: None, range });
        Self { prox, denoiser: None, weight: None, wavelets: None, range }
    }

    /// Total variation, whose prox the ranks share and whose level as a denoiser is its weight, and a range.
    pub fn total_variation(
        prior: TotalVariationPrior,
        range: Option<(f32, f32)>,
        ctx: &Context,
    ) -> Result<Self> {
        let TotalVariationPrior { weight, denoiser } = prior;
        let shared = DistributedTotalVariation::new(denoiser, ctx)?;
        let plug = Plug::new(Arc::new(shared.clone()), weight as f32);
        let inner = Some(TotalVariationPrior { weight, denoiser: shared });
        Ok(Self {
            prox: Arc::new(Clamped { inner, range }),
            denoiser: Some(plug.range(Range::of(range, false))),
            weight: Some(weight),
            wavelets: None,
            range,
        })
    }

    /// The norm of coefficients, whose level as a denoiser is its weight, and a range. Every rank computes its prox, in which the
    /// range is part of the problem.
    #[must_use]
    pub fn wavelets(weight: f64, wavelets: Wavelets, range: Option<(f32, f32)>) -> Self {
        let denoiser = Wavelets { range, ..wavelets };
        Self {
            prox: Arc::new(WaveletPrior { weight, denoiser }),
            denoiser: Some(Plug::new(Arc::new(denoiser), weight as f32)),
            weight: Some(weight),
            wavelets: Some(wavelets),
            range,
        }
    }

    /// A denoiser, which brings images to a range itself.
    #[must_use]
    pub fn denoiser(plug: Plug) -> Self {
        let prox = Arc::new(plug.clone());
        Self { prox, denoiser: Some(plug), weight: None, wavelets: None, range: None }
    }
}

/// A prior, or none, in a range: what its prox leaves is brought back to the range.
#[derive(Debug)]
struct Clamped {
    inner: Option<TotalVariationPrior<DistributedTotalVariation>>,
    range: Option<(f32, f32)>,
}

impl Prior for Clamped {
    fn prox(&self, image: Image, step: f64) -> Result<Image> {
        let mut result = match &self.inner {
            Some(prior) => prior.prox(image, step)?,
            None => image,
        };
        result.clamp(self.range);
        Ok(result)
    }
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
                "it does not denoise; total variation, wavelets or a network is expected",
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
