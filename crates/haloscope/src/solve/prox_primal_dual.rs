//! Chambolle and Pock's full method: each operator's measurement has a dual variable too, so the fidelity needs a prox and
//! no gradient.

use super::algorithm::{Algorithm, Setting};
use super::analysis::Analysis;
use super::ingredients::Ingredients;
use super::method::{Arrays, DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::problem::Start;
use super::state::State;
use crate::array::Array;
use crate::denoise::Wavelets;
use crate::error::Result;
use crate::image::Image;
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
    priors: Priors::Analysis,
    clamps: true,
    fidelities: &[
        ("l2", Taken::AsItIs),
        ("l1", Taken::AsItIs),
        ("poisson", Taken::AsItIs),
        ("ball", Taken::AsItIs),
    ],
    data_term: DataUse::Dual,
    knows_data_term: false,
    // The image, the dual of total variation, the next image, and the point ahead.
    holds: Held {
        data: Arrays { images: 1, duals: 1, channels: 0 },
        prior: Arrays { images: 2, duals: 1, channels: 1 },
        other: Arrays { images: 3, duals: 1, channels: 0 },
        state: Arrays { images: 2, duals: 1, channels: 0 },
        prior_copies: false,
    },
    variants: &[],
    check: any_keys,
    make,
};

/// The step of the image follows from its values: those of the first step from zeros.
fn make(from: &Ingredients<'_>) -> Result<Box<dyn Algorithm>> {
    let squared_norm = from.problem.squared_norm()?;
    let (low, high) = from.problem.start(&Start::Adjoint)?.extremes()?;
    let largest = f64::from(high.max(-low));
    let spread = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
    let method = ProxPrimalDual {
        squared_norm,
        weight: from.prior.weight.unwrap_or_default(),
        step: spread / squared_norm.max(f64::MIN_POSITIVE).sqrt(),
        range: from.prior.range,
    };
    Ok(match from.prior.wavelets {
        Some(wavelets) => Box::new(WaveletProxPrimalDual { method, wavelets }),
        None => Box::new(method),
    })
}

impl ProxPrimalDual {
    /// What it takes and holds. In job files it is `primal-dual` for fidelities without squares.
    pub const METHOD: Method = Method::new(&PROX_PRIMAL_DUAL);
}

impl Algorithm for ProxPrimalDual {
    fn name(&self) -> &'static str {
        "prox-primal-dual"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        self.advance(&Analysis::Differences, setting, state)
    }
}

/// `min Σ dᵢ(Aᵢ x, yᵢ) + λ ‖Ψᵀx‖₁`: the same with the coefficients of wavelets in place of differences. With
/// [`Ball`](crate::fidelity::Ball) and [`Wavelets::sara`] it is the constrained problem of SARA. Only the range of the method counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaveletProxPrimalDual {
    /// The numbers; the weight is that of the norm.
    pub method: ProxPrimalDual,
    /// The bases and scales.
    pub wavelets: Wavelets,
}

impl Algorithm for WaveletProxPrimalDual {
    fn name(&self) -> &'static str {
        "prox-primal-dual"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        self.method.advance(&Analysis::Wavelets(self.wavelets), setting, state)
    }
}

impl ProxPrimalDual {
    /// One step with the norm of a map.
    fn advance(&self, map: &Analysis, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let problem = setting.problem();
        let half = |squared_norm: f64| 0.495 / (self.step * squared_norm.max(f64::MIN_POSITIVE));
        let prior_step = half(map.squared_norm(state.image.shape()));
        let data_step = half(self.squared_norm);

        let mut dual = state.take("dual", |image| map.zeros(image));
        let data_duals = take_data_duals(setting, state)?;
        let ahead = state.arrays.remove("ahead");
        let point = ahead.as_ref().unwrap_or(&state.image);

        let mut data_duals = setting.data(|| problem.ascend(data_duals, point, data_step))?;
        setting.prior(|| map.ascend(&mut dual, prior_step, point, self.weight))?;
        drop(ahead);
        let mut next = setting.data(|| problem.adjoint_of(&data_duals))?;
        next.scale_and_add(-self.step as f32, &state.image)?;
        let mut ahead = setting.prior(|| {
            let back = map.adjoint(&dual, &state.image)?;
            next.add_scaled(-self.step as f32, &back)?;
            next.clamp(self.range);
            Ok(back)
        })?;
        let from = (&next, &state.image);
        ahead.update_from_two(from, |to, next, before| *to = next * 2.0 - before)?;
        state.put("ahead", ahead);
        state.put("dual", dual);
        for (index, part) in data_duals.iter_mut() {
            let part = problem.part_image(index, std::mem::take(part))?;
            state.put(&data_dual(index), part);
        }
        Ok(next)
    }
}

const DUAL: &str = "dual of operator ";

fn data_dual(index: usize) -> String {
    format!("{DUAL}{index}")
}

/// The operator whose measurement has the dual of this name.
pub(super) fn operator_of(name: &str) -> Option<usize> {
    name.strip_prefix(DUAL)?.parse().ok()
}

/// The duals of the measurements that this rank has a part of; zeros at the first step. A state that was read from a file has
/// them all.
fn take_data_duals(setting: &Setting<'_>, state: &mut State) -> Result<Measurements> {
    let problem = setting.problem();
    let batch = state.image.shape()[0];
    let mut own = Vec::new();
    for index in 0..problem.operators() {
        let known = state.arrays.remove(&data_dual(index));
        let Some(shape) = problem.part_shape(index, batch) else { continue };
        own.push((index, known.map_or_else(|| Array::zeros(shape), Image::into_local)));
    }
    Measurements::partial(problem.operators(), own)
}
