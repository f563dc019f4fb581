//! Regularisation by denoising: the gradient of the prior is what the denoiser removes.

use std::sync::Arc;

use super::algorithm::{Algorithm, Setting};
use super::prior::{Plug, Prior};
use super::state::State;
use crate::array::{add_scaled, slice, slice_mut};
use crate::error::Result;

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

impl Algorithm for RedGradient {
    fn name(&self) -> &'static str {
        "red"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let removed = setting.prior(|| self.prior.gradient(&state.image))?;
        let gradient = setting.gradient(&state.image)?;
        let mut image = state.image.as_standard_layout().into_owned();
        add_scaled(slice_mut(&mut image), -self.step as f32, &slice(&gradient));
        add_scaled(slice_mut(&mut image), (-self.step * self.weight) as f32, &slice(&removed));
        state.image = image;
        Ok(())
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

impl Algorithm for RedFixedPoint {
    fn name(&self) -> &'static str {
        "red-fixed-point"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let denoised = setting.prior(|| self.prior.denoise(&state.image))?;
        state.image = setting.prox(&denoised, 1.0 / self.weight)?;
        Ok(())
    }
}
