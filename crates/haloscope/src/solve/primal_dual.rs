//! Total variation without inner iterations: Chambolle and Pock's method with a gradient step for the data
//! (Condat, Vũ).

use super::algorithm::{Algorithm, Setting};
use super::analysis::Analysis;
use super::keys::STEP;
use super::method::{Arrays, DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::prox_primal_dual::ProxPrimalDual;
use super::proximal_gradient::descend;
use super::state::State;
use crate::denoise::Wavelets;
use crate::error::Result;
use crate::image::Image;

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

static PRIMAL_DUAL: Traits = Traits {
    name: "primal-dual",
    aliases: &[],
    summary: "Chambolle-Pock (Condat-Vũ)",
    keys: &[STEP],
    priors: Priors::Analysis,
    clamps: true,
    fidelities: &[
        ("l2", Taken::AsItIs),
        ("l1", Taken::ByUnlessStep(ProxPrimalDual::METHOD)),
        ("poisson", Taken::ByUnlessStep(ProxPrimalDual::METHOD)),
        ("ball", Taken::By(ProxPrimalDual::METHOD)),
    ],
    data_term: DataUse::Gradient { values: 0 },
    knows_data_term: true,
    // The image and the dual; then also the next image, where the dual goes, and its lengths.
    holds: Held {
        data: Arrays { images: 1, duals: 1, channels: 0 },
        prior: Arrays { images: 3, duals: 1, channels: 1 },
        other: Arrays { images: 3, duals: 1, channels: 1 },
        state: Arrays { images: 1, duals: 1, channels: 0 },
        prior_copies: false,
    },
    variants: &[],
    check: any_keys,
    make: |from| {
        let weight = from.prior.weight.unwrap_or_default();
        let lipschitz = 0.99 / from.step()?;
        let method = PrimalDual { lipschitz, weight, range: from.prior.range };
        Ok(match from.prior.wavelets {
            Some(wavelets) => Box::new(WaveletPrimalDual { method, wavelets }),
            None => Box::new(method),
        })
    },
};

impl PrimalDual {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&PRIMAL_DUAL);
}

impl Algorithm for PrimalDual {
    fn name(&self) -> &'static str {
        PRIMAL_DUAL.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        self.advance(&Analysis::Differences, setting, state)
    }
}

/// `min f(x) + λ ‖Ψᵀx‖₁`: the same with the coefficients of wavelets in place of differences. Only the range of the method counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaveletPrimalDual {
    /// The numbers; the weight is that of the norm.
    pub method: PrimalDual,
    /// The bases and scales.
    pub wavelets: Wavelets,
}

impl Algorithm for WaveletPrimalDual {
    fn name(&self) -> &'static str {
        PRIMAL_DUAL.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        self.method.advance(&Analysis::Wavelets(self.wavelets), setting, state)
    }
}

impl PrimalDual {
    /// One step with the norm of a map.
    fn advance(&self, map: &Analysis, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let squared_norm = map.squared_norm(state.image.shape());
        let sigma = self.lipschitz / (2.0 * squared_norm);
        let tau = 0.99 / (self.lipschitz / 2.0 + squared_norm * sigma);
        let mut dual = state.take("dual", |image| map.zeros(image));
        let mut next = descend(setting, &state.image, tau)?;
        setting.prior(|| {
            let mut back = map.adjoint(&dual, &state.image)?;
            next.add_scaled(-tau as f32, &back)?;
            next.clamp(self.range);
            // 2 x⁺ − x, in the array that has been used.
            let from = (&next, &state.image);
            back.update_from_two(from, |to, next, before| *to = next * 2.0 - before)?;
            map.ascend(&mut dual, sigma, &back, self.weight)
        })?;
        state.put("dual", dual);
        Ok(next)
    }
}
