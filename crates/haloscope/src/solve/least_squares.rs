//! Methods without a prior: Landweber's iteration and conjugate gradients, one step at a time, so that they can be
//! watched, stopped and resumed like the others.

use super::algorithm::{Algorithm, Setting};
use super::backtracking::Backtracking;
use super::keys::STEP;
use super::method::{DataUse, Held, Method, Priors, SQUARES, Taken, Traits, any_keys};
use super::prior::clamp;
use super::proximal_gradient::descend;
use super::state::State;
use crate::array::{
    Array, add_scaled, dot, scale_and_add, slice, slice_mut, squared_norm, update, update_from_two,
};
use crate::error::Result;

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

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Array> {
        let mut next = descend(setting, &state.image, self.step)?;
        clamp(&mut next, self.range);
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
    holds: Held::images(3, 0, 4),
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

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Array> {
        let physics = setting.problem().physics();
        let mut residual = match state.arrays.remove("residual") {
            Some(residual) => residual,
            None => setting.data(|| {
                let mut residual = physics.adjoint(setting.problem().data())?;
                let seen = physics.normal(&state.image)?;
                update(slice_mut(&mut residual), &slice(&seen), |residual, seen| *residual -= seen);
                Ok(residual)
            })?,
        };
        let mut data_term = match state.number("data term") {
            Some(value) => value,
            None => setting.data(|| setting.problem().value(&state.image))?,
        };
        let weight = setting.problem().quadratic_weight().unwrap_or(1.0);
        let mut direction = state.take("direction", |_| residual.clone());
        let square = squared_norm(&slice(&residual));
        let mut mapped = setting.data(|| physics.normal(&direction))?;
        let curvature = dot(&slice(&direction), &slice(&mapped));
        // Nothing is left to do, or nothing that the operators see.
        if square == 0.0 || curvature == 0.0 {
            setting.note_data_term(data_term);
            state.set_number("data term", data_term);
            state.put("residual", residual);
            state.put("direction", direction);
            return Ok(state.image.clone());
        }
        let step = square / curvature;
        add_scaled(slice_mut(&mut residual), -step as f32, &slice(&mapped));
        // The image moves along the direction, in the array that has been used.
        let from = (&*slice(&state.image), &*slice(&direction));
        let along = step as f32;
        update_from_two(slice_mut(&mut mapped), from, |to, image, direction| {
            *to = image + along * direction;
        });
        let factor = squared_norm(&slice(&residual)) / square;
        scale_and_add(slice_mut(&mut direction), factor as f32, &slice(&residual));
        // Along the direction ½‖Ax − y‖² is a parabola, and the step goes to its lowest point.
        data_term = (data_term - 0.5 * weight * step * square).max(0.0);
        setting.note_data_term(data_term);
        state.set_number("data term", data_term);
        state.put("residual", residual);
        state.put("direction", direction);
        Ok(mapped)
    }
}
