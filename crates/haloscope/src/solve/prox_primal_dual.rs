//! Chambolle and Pock's full method: each operator's measurement has a dual variable too, so the fidelity needs a prox and
//! no gradient.

use super::algorithm::{Algorithm, Setting};
use super::prior::clamp;
use super::state::State;
use crate::array::{Array, add_scaled, slice, slice_mut};
use crate::denoise::differences::{gradient, gradient_adjoint, project};
use crate::error::Result;
use crate::measurements::Measurements;

/// `min Σ dᵢ(Aᵢ x, yᵢ) + λ TV(x)` over all images, or over those in a range, for fidelities with a prox: absolute
/// deviations, counts of photons, balls around the data.
///
/// `qᵢ ← prox of σ dᵢ* at qᵢ + σ Aᵢ x̄`, `p ← p + ρ ∇x̄` projected to lengths of at most `λ`,
/// `x⁺ = x − τ (Aᵀq + ∇ᵀp)` projected to the range, `x̄ = 2x⁺ − x`. The dual steps follow from `τ`: each of the two maps gets
/// half of what `τ (σ ‖A‖² + ρ ‖∇‖²) < 1` allows. The duals `qᵢ` stay on the ranks that own the operators; an iteration sends one sum
/// of images, as a gradient would.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProxPrimalDual {
    /// `‖A‖²`, or an upper bound: the estimate of
    /// [`DistributedStack::squared_norm`](crate::distribute::DistributedStack::squared_norm).
    pub squared_norm: f64,
    /// The weight `λ` of TV.
    pub weight: f64,
    /// The step `τ` of the image. Any above 0 converges; about the range of the image's values over the square root of
    /// `‖A‖²` is fast.
    pub step: f64,
    /// The values that an image may have.
    pub range: Option<(f32, f32)>,
}

impl Algorithm for ProxPrimalDual {
    fn name(&self) -> &'static str {
        "prox-primal-dual"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let physics = setting.problem().physics();
        let shape = state.image.shape().to_vec();
        let axes = shape.len() - 2;
        // ‖∇‖² is at most 4 per axis.
        let half = |squared_norm: f64| 0.495 / (self.step * squared_norm.max(f64::MIN_POSITIVE));
        let (data_step, prior_step) = (half(self.squared_norm), half(4.0 * axes as f64));

        let ahead = state.take("ahead", Array::clone);
        let mut dual_shape = shape.clone();
        dual_shape.insert(2, axes);
        let mut dual = state.take("dual", |_| Array::zeros(dual_shape));
        let data_duals = take_data_duals(setting, state)?;

        let mut data_duals =
            setting.data(|| setting.problem().ascend(&data_duals, &ahead, data_step))?;
        setting.prior(|| {
            let rise = gradient(&slice(&ahead), &shape);
            add_scaled(slice_mut(&mut dual), prior_step as f32, &rise);
            project(slice_mut(&mut dual), &shape, self.weight as f32);
            Ok(())
        })?;
        let back = setting.data(|| physics.adjoint(&data_duals))?;
        let mut next = state.image.as_standard_layout().into_owned();
        add_scaled(slice_mut(&mut next), -self.step as f32, &slice(&back));
        setting.prior(|| {
            let back = gradient_adjoint(&slice(&dual), &shape);
            add_scaled(slice_mut(&mut next), -self.step as f32, &back);
            clamp(&mut next, self.range);
            Ok(())
        })?;
        state.put("ahead", &next * 2.0 - &state.image);
        state.put("dual", dual);
        for (index, part) in data_duals.iter_mut() {
            state.put(&data_dual(index), std::mem::take(part));
        }
        state.image = next;
        Ok(())
    }
}

fn data_dual(index: usize) -> String {
    format!("dual of operator {index}")
}

/// The duals of the rank's own operators; zeros at the first step. A state that was read from a file has them all.
fn take_data_duals(setting: &Setting<'_>, state: &mut State) -> Result<Measurements> {
    let physics = setting.problem().physics();
    let batch = state.image.shape()[0];
    let mut own = Vec::new();
    for index in physics.local_indices() {
        let shape = [&[batch], &physics.measurement_shapes()[index][..]].concat();
        own.push((index, state.take(&data_dual(index), |_| Array::zeros(shape))));
    }
    let others = (0..physics.len()).map(data_dual);
    others.for_each(|name| drop(state.arrays.remove(&name)));
    Measurements::partial(physics.len(), own)
}
