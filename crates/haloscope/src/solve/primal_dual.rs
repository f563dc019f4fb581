//! Total variation without inner iterations: Chambolle and Pock's method with a gradient step for the data
//! (Condat, Vũ).

use super::algorithm::{Algorithm, Setting};
use super::prior::clamp;
use super::state::State;
use crate::array::{Array, add_scaled, slice, slice_mut};
use crate::denoise::differences::{gradient, gradient_adjoint, project};
use crate::error::Result;

/// `min f(x) + λ TV(x)` over all images, or over those in a range, for an `f` with a gradient.
///
/// `x ← x − τ (∇f(x) + ∇ᵀp)` clamped to the range, `p ← p + σ ∇(2x⁺ − x)` projected to lengths of at most `λ`. The steps follow from
/// the Lipschitz constant `L` of `∇f`: `σ = L / (8 d)` in `d` dimensions, and `1/τ = L/2 + 4 d σ`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrimalDual {
    /// The Lipschitz constant of the data term's gradient: 0.99 over [`Problem::step_size`](super::Problem::step_size).
    pub lipschitz: f64,
    /// The weight of TV.
    pub weight: f64,
    /// The values that an image may have.
    pub range: Option<(f32, f32)>,
}

impl Algorithm for PrimalDual {
    fn name(&self) -> &'static str {
        "primal-dual"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let axes = state.image.ndim() - 2;
        let sigma = self.lipschitz / (8.0 * axes as f64);
        let tau = 0.99 / (self.lipschitz / 2.0 + 4.0 * axes as f64 * sigma);
        let shape = state.image.shape().to_vec();
        let mut dual_shape = shape.clone();
        dual_shape.insert(2, axes);
        let dual = state.take("dual", |_| Array::zeros(dual_shape));
        let descent = setting.gradient(&state.image)?;
        let mut next = state.image.as_standard_layout().into_owned();
        add_scaled(slice_mut(&mut next), -tau as f32, &slice(&descent));
        let (mirrored, dual) = setting.prior(|| {
            let back = gradient_adjoint(&slice(&dual), &shape);
            add_scaled(slice_mut(&mut next), -tau as f32, &back);
            clamp(&mut next, self.range);
            let mirrored = &next * 2.0 - &state.image;
            Ok((mirrored, dual))
        })?;
        let dual = setting.prior(|| {
            let mut dual = dual;
            let rise = gradient(&slice(&mirrored), &shape);
            add_scaled(slice_mut(&mut dual), sigma as f32, &rise);
            project(slice_mut(&mut dual), &shape, self.weight as f32);
            Ok(dual)
        })?;
        state.put("dual", dual);
        state.image = next;
        Ok(())
    }
}
