//! A gradient step for the data and a prox for the prior: PGD and its accelerated form.

use std::sync::Arc;

use super::algorithm::{Algorithm, Setting};
use super::prior::Prior;
use super::state::State;
use crate::array::{Array, add_scaled, slice, slice_mut};
use crate::error::Result;

/// `x ← prox(x − γ ∇f(x))`, with a denoiser as the prox: plug-and-play proximal gradient descent.
#[derive(Clone, Debug)]
pub struct ProximalGradient {
    /// The step size `γ`.
    pub step: f64,
    /// The prior.
    pub prior: Arc<dyn Prior>,
    /// `λ`, which mixes the prior's output with its input `z`: `x ← (1 − α) z + α D(z)`, `α = γλ / (1 + γλ)`.
    pub relaxation: Option<f64>,
}

impl Algorithm for ProximalGradient {
    fn name(&self) -> &'static str {
        "pgd"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let point = descend(setting, &state.image, self.step)?;
        let denoised = setting.prior(|| self.prior.prox(&point, self.step))?;
        state.image = match self.relaxation {
            None => denoised,
            Some(weight) => {
                let share = (self.step * weight / (1.0 + self.step * weight)) as f32;
                point * (1.0 - share) + denoised * share
            }
        };
        Ok(())
    }
}

/// [`ProximalGradient`] with Nesterov's momentum (Beck and Teboulle's FISTA).
#[derive(Clone, Debug)]
pub struct Fista {
    /// The step size.
    pub step: f64,
    /// The prior.
    pub prior: Arc<dyn Prior>,
}

impl Algorithm for Fista {
    fn name(&self) -> &'static str {
        "fista"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let ahead = state.take("ahead", Array::clone);
        let momentum = state.number("momentum").unwrap_or(1.0);
        let point = descend(setting, &ahead, self.step)?;
        let next = setting.prior(|| self.prior.prox(&point, self.step))?;
        let following = f64::midpoint(1.0, (1.0 + 4.0 * momentum * momentum).sqrt());
        let factor = ((momentum - 1.0) / following) as f32;
        state.put("ahead", &next + &((&next - &state.image) * factor));
        state.set_number("momentum", following);
        state.image = next;
        Ok(())
    }
}

/// `x − γ ∇f(x)`.
pub(super) fn descend(setting: &Setting<'_>, image: &Array, step: f64) -> Result<Array> {
    let gradient = setting.gradient(image)?;
    let mut point = image.as_standard_layout().into_owned();
    add_scaled(slice_mut(&mut point), -step as f32, &slice(&gradient));
    Ok(point)
}
