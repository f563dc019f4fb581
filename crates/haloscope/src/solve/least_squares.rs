//! Methods without a prior: Landweber's iteration and conjugate gradients, one step at a time, so that they can be
//! watched, stopped and resumed like the others.

use super::algorithm::{Algorithm, Setting};
use super::prior::clamp;
use super::proximal_gradient::descend;
use super::state::State;
use crate::array::{add_scaled, dot, scale_and_add, slice, slice_mut, squared_norm};
use crate::error::Result;

/// `x ← x − γ ∇f(x)`, clamped to a range if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Landweber {
    /// The step size.
    pub step: f64,
    /// The values that an image may have.
    pub range: Option<(f32, f32)>,
}

impl Algorithm for Landweber {
    fn name(&self) -> &'static str {
        "landweber"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        state.image = descend(setting, &state.image, self.step)?;
        clamp(&mut state.image, self.range);
        Ok(())
    }
}

/// Conjugate gradients on the normal equations of `½ ‖A x − y‖²`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConjugateGradient;

impl Algorithm for ConjugateGradient {
    fn name(&self) -> &'static str {
        "cg"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let physics = setting.problem().physics();
        let residual = match state.arrays.remove("residual") {
            Some(residual) => residual,
            None => setting.data(|| {
                Ok(physics.adjoint(setting.problem().data())? - physics.normal(&state.image)?)
            })?,
        };
        let mut data_term = match state.number("data term") {
            Some(value) => value,
            None => setting.data(|| setting.problem().value(&state.image))?,
        };
        let weight = setting.problem().quadratic_weight().unwrap_or(1.0);
        let direction = state.take("direction", |_| residual.clone());
        let square = squared_norm(&slice(&residual));
        if square == 0.0 {
            setting.note_data_term(data_term);
            state.set_number("data term", data_term);
            state.put("residual", residual);
            state.put("direction", direction);
            return Ok(());
        }
        let mapped = setting.data(|| physics.normal(&direction))?;
        let step = square / dot(&slice(&direction), &slice(&mapped));
        let mut image = state.image.as_standard_layout().into_owned();
        add_scaled(slice_mut(&mut image), step as f32, &slice(&direction));
        let mut next = residual;
        add_scaled(slice_mut(&mut next), -step as f32, &slice(&mapped));
        let mut following = direction;
        let factor = squared_norm(&slice(&next)) / square;
        scale_and_add(slice_mut(&mut following), factor as f32, &slice(&next));
        // Along the direction ½‖Ax − y‖² is a parabola, and the step goes to its lowest point.
        data_term = (data_term - 0.5 * weight * step * square).max(0.0);
        setting.note_data_term(data_term);
        state.set_number("data term", data_term);
        state.put("residual", next);
        state.put("direction", following);
        state.image = image;
        Ok(())
    }
}
