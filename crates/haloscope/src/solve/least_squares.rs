//! Methods without a prior: Landweber's iteration and conjugate gradients, one step at a time, so that they can be
//! watched, stopped and resumed like the others.

use super::algorithm::{Algorithm, Setting};
use super::backtracking::Backtracking;
use super::keys::STEP;
use super::method::{DataUse, Held, Method, Priors, SQUARES, Taken, Traits, any_keys};
use super::proximal_gradient::descend;
use super::state::State;
use crate::error::Result;
use crate::image::Image;

/// `x ← x − γ ∇f(x)`, clamped to a range if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Landweber {
    /// The step size.
    pub step: f64,
    /// The values that an image may have.
    pub range: Option<(f32, f32)>,
}

static LANDWEBER: Traits = Traits {
    name: "landweber",
    aliases: &[],
    summary: "gradient descent",
    keys: &[STEP],
    priors: Priors::None,
    clamps: true,
    fidelities: &[
        ("l2", Taken::AsItIs),
        ("l1", Taken::WithStep),
        ("poisson", Taken::By(Backtracking::LANDWEBER_METHOD)),
    ],
    data_term: DataUse::Gradient { values: 0 },
    knows_data_term: true,
    // The image and the next.
    holds: Held::images(1, 0, 2),
    variants: &[],
    check: any_keys,
    make: |from| Ok(Box::new(Landweber { step: from.step()?, range: from.prior.range })),
};

impl Landweber {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&LANDWEBER);
}

impl Algorithm for Landweber {
    fn name(&self) -> &'static str {
        LANDWEBER.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let mut next = descend(setting, &state.image, self.step)?;
        next.clamp(self.range);
        Ok(next)
    }
}

/// Conjugate gradients on the normal equations of `½ ‖A x − y‖²`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConjugateGradient;

static CG: Traits = Traits {
    name: "cg",
    summary: "conjugate gradients",
    keys: &[],
    clamps: false,
    fidelities: SQUARES,
    data_term: DataUse::Normal,
    // The image, the residual and the direction; then also the next image.
    holds: Held::images(3, 0, 4).with_state(3),
    make: |_| Ok(Box::new(ConjugateGradient)),
    ..LANDWEBER
};

impl ConjugateGradient {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&CG);
}

impl Algorithm for ConjugateGradient {
    fn name(&self) -> &'static str {
        CG.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let problem = setting.problem();
        let mut residual = match state.arrays.remove("residual") {
            Some(residual) => residual,
            None => setting.data(|| {
                let mut residual = problem.adjoint()?;
                let seen = problem.normal(&state.image)?;
                residual.update(&seen, |residual, seen| *residual -= seen)?;
                Ok(residual)
            })?,
        };
        let mut data_term = match state.number("data term") {
            Some(value) => value,
            None => setting.data(|| problem.value(&state.image))?,
        };
        let weight = problem.quadratic_weight().unwrap_or(1.0);
        let mut direction = state.take("direction", |_| residual.clone());
        let square = residual.squared_norm()?;
        let mut mapped = setting.data(|| problem.normal(&direction))?;
        let curvature = direction.dot(&mapped)?;
        // Nothing is left to do, or nothing that the operators see.
        if square == 0.0 || curvature == 0.0 {
            setting.note_data_term(data_term);
            state.set_number("data term", data_term);
            state.put("residual", residual);
            state.put("direction", direction);
            return Ok(state.image.clone());
        }
        let step = square / curvature;
        residual.add_scaled(-step as f32, &mapped)?;
        // The image moves along the direction, in the array that has been used.
        let along = step as f32;
        mapped.update_from_two((&state.image, &direction), |to, image, direction| {
            *to = image + along * direction;
        })?;
        let factor = residual.squared_norm()? / square;
        direction.scale_and_add(factor as f32, &residual)?;
        // Along the direction ½‖Ax − y‖² is a parabola, and the step goes to its lowest point.
        data_term = (data_term - 0.5 * weight * step * square).max(0.0);
        setting.note_data_term(data_term);
        state.set_number("data term", data_term);
        state.put("residual", residual);
        state.put("direction", direction);
        Ok(mapped)
    }
}
