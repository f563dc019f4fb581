//! Chambolle and Pock's full method: each operator's measurement has a dual variable too, so the fidelity needs a prox and
//! no gradient.

use super::algorithm::{Algorithm, Setting};
use super::ingredients::Ingredients;
use super::method::{Arrays, DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::prior::clamp;
use super::problem::Start;
use super::state::State;
use crate::array::{Array, add_scaled, extremes, scale_and_add, slice, slice_mut, update_from_two};
use crate::denoise::differences::{add_gradient, gradient_adjoint, project};
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

static PROX_PRIMAL_DUAL: Traits = Traits {
    name: "primal-dual",
    aliases: &[],
    summary: "Chambolle-Pock, with a dual for each measurement",
    keys: &[],
    priors: Priors::TotalVariation,
    clamps: true,
    fidelities: &[("l2", Taken::AsItIs), ("l1", Taken::AsItIs), ("poisson", Taken::AsItIs)],
    data_term: DataUse::Dual,
    knows_data_term: false,
    // The image, the dual of total variation, the next image, and the point ahead.
    holds: Held {
        data: Arrays { images: 1, duals: 1, channels: 0 },
        prior: Arrays { images: 2, duals: 1, channels: 1 },
        other: Arrays { images: 3, duals: 1, channels: 0 },
        prior_copies: false,
    },
    variants: &[],
    check: any_keys,
    make,
};

/// The step of the image follows from its values: those of the first step from zeros.
fn make(from: &Ingredients<'_>) -> Result<Box<dyn Algorithm>> {
    let squared_norm = from.problem.squared_norm()?;
    let (low, high) = extremes(&from.problem.start(&Start::Adjoint)?);
    let largest = f64::from(high.max(-low));
    let spread = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
    Ok(Box::new(ProxPrimalDual {
        squared_norm,
        weight: from.prior.weight.unwrap_or_default(),
        step: spread / squared_norm.max(f64::MIN_POSITIVE).sqrt(),
        range: from.prior.range,
    }))
}

impl ProxPrimalDual {
    /// What it takes and holds. In job files it is `primal-dual` for fidelities without squares.
    pub const METHOD: Method = Method::new(&PROX_PRIMAL_DUAL);
}

impl Algorithm for ProxPrimalDual {
    fn name(&self) -> &'static str {
        "prox-primal-dual"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Array> {
        let physics = setting.problem().physics();
        let shape = state.image.shape().to_vec();
        let axes = shape.len() - 2;
        // ‖∇‖² is at most 4 per axis.
        let half = |squared_norm: f64| 0.495 / (self.step * squared_norm.max(f64::MIN_POSITIVE));
        let (data_step, prior_step) = (half(self.squared_norm), half(4.0 * axes as f64));

        let mut dual_shape = shape.clone();
        dual_shape.insert(2, axes);
        let mut dual = state.take("dual", |_| Array::zeros(dual_shape));
        let data_duals = take_data_duals(setting, state)?;
        let ahead = state.arrays.remove("ahead");
        let point = ahead.as_ref().unwrap_or(&state.image);

        let mut data_duals =
            setting.data(|| setting.problem().ascend(data_duals, point, data_step))?;
        setting.prior(|| {
            add_gradient(slice_mut(&mut dual), prior_step as f32, &slice(point), &shape);
            project(slice_mut(&mut dual), &shape, self.weight as f32);
            Ok(())
        })?;
        drop(ahead);
        let mut next = setting.data(|| physics.adjoint(&data_duals))?;
        scale_and_add(slice_mut(&mut next), -self.step as f32, &slice(&state.image));
        let mut ahead = setting.prior(|| {
            let back = gradient_adjoint(&slice(&dual), &shape);
            add_scaled(slice_mut(&mut next), -self.step as f32, &back);
            clamp(&mut next, self.range);
            Ok(Array::from_shape_vec(next.raw_dim(), back).expect("as many as the image has"))
        })?;
        let from = (&*slice(&next), &*slice(&state.image));
        update_from_two(slice_mut(&mut ahead), from, |to, next, before| *to = next * 2.0 - before);
        state.put("ahead", ahead);
        state.put("dual", dual);
        for (index, part) in data_duals.iter_mut() {
            state.put(&data_dual(index), std::mem::take(part));
        }
        Ok(next)
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
