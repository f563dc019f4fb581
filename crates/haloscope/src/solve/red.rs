//! Regularisation by denoising: the gradient of the prior is what the denoiser removes.

use std::sync::Arc;

use super::algorithm::{Algorithm, Setting};
use super::keys::{INNER_ITERATIONS, INNER_TOLERANCE, STEP, WEIGHT};
use super::method::{DataUse, GRADIENTS, Held, Method, Priors, SQUARES, Traits, any_keys};
use super::prior::{Plug, Prior};
use super::proximal_gradient::descend;
use super::state::State;
use crate::error::Result;
use crate::image::Image;

/// `x ← x − γ (∇f(x) + λ (x − D(x)))`.
#[derive(Clone, Debug)]
pub struct RedGradient {
    /// The step size `γ`.
    pub step: f64,
    /// The weight `λ` of the prior.
    pub weight: f64,
    /// The prior, which has a gradient.
    pub prior: Arc<dyn Prior>,
}

static RED: Traits = Traits {
    name: "red",
    aliases: &[],
    summary: "regularisation by denoising, by gradients",
    keys: &[STEP, WEIGHT],
    priors: Priors::Denoiser,
    clamps: true,
    fidelities: GRADIENTS,
    data_term: DataUse::Gradient { values: 0 },
    knows_data_term: true,
    // The image, what the denoiser removes of it, and the next.
    holds: Held { prior_copies: true, ..Held::images(2, 1, 3) },
    variants: &[],
    check: any_keys,
    make: |from| {
        let weight = from.required("weight")?;
        let step = match from.keys.number("step") {
            Some(step) => step,
            // The prior adds its weight to the Lipschitz constant.
            None => 0.99 / (0.99 / from.problem.step_size()? + weight),
        };
        Ok(Box::new(RedGradient { step, weight, prior: Arc::new(from.denoiser()?) }))
    },
};

impl RedGradient {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&RED);
}

impl Algorithm for RedGradient {
    fn name(&self) -> &'static str {
        RED.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let removed = setting.prior(|| self.prior.gradient(&state.image))?;
        let mut image = descend(setting, &state.image, self.step)?;
        image.add_scaled((-self.step * self.weight) as f32, &removed)?;
        Ok(image)
    }
}

/// `∇f(x) + λ (x − D(x_k)) = 0`, solved for the next `x`: the prox of `f / λ` at the denoised image.
#[derive(Clone, Debug)]
pub struct RedFixedPoint {
    /// The weight `λ` of the prior.
    pub weight: f64,
    /// The denoiser.
    pub prior: Plug,
}

static FIXED_POINT: Traits = Traits {
    name: "red-fixed-point",
    summary: "the same by its fixed point",
    keys: &[WEIGHT, INNER_ITERATIONS, INNER_TOLERANCE],
    fidelities: SQUARES,
    data_term: DataUse::Prox,
    knows_data_term: false,
    // The image, and the denoised one, where the prox is taken.
    holds: Held { prior_copies: true, ..Held::images(2, 1, 3) },
    make: |from| {
        let weight = from.required("weight")?;
        Ok(Box::new(RedFixedPoint { weight, prior: from.denoiser()? }))
    },
    ..RED
};

impl RedFixedPoint {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&FIXED_POINT);
}

impl Algorithm for RedFixedPoint {
    fn name(&self) -> &'static str {
        FIXED_POINT.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let denoised = setting.prior(|| self.prior.denoise(&state.image))?;
        setting.prox(&denoised, 1.0 / self.weight)
    }
}
