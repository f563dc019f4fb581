//! A gradient step for the data and a prox for the prior: PGD and its accelerated form.

use std::sync::Arc;

use super::algorithm::{Algorithm, Setting};
use super::backtracking::Backtracking;
use super::keys::{Key, KeyKind, STEP};
use super::method::{DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::prior::Prior;
use super::state::State;
use crate::error::Result;
use crate::image::Image;

/// `x ← prox(x − γ ∇f(x))`, with a denoiser as the prox: plug-and-play proximal gradient descent.
#[derive(Clone, Debug)]
pub struct ProximalGradient {
    /// The step size `γ`.
    pub step: f64,
    /// The prior.
    pub prior: Arc<dyn Prior>,
    /// `λ`, which mixes the prior's output with its input `z`: `x ← (1 − α) z + α D(z)`, `α = γλ / (1 + γλ)`. It takes a copy
    /// of the input.
    pub relaxation: Option<f64>,
}

const GRADIENT_STEPS: Traits = Traits {
    name: "pgd",
    aliases: &[],
    summary: "proximal gradient descent; plug-and-play with a network",
    keys: &[
        STEP,
        Key::optional(
            "relaxation",
            KeyKind::Positive,
            None,
            "λ: mixes the output of the prior with its input",
        ),
    ],
    priors: Priors::Any,
    clamps: true,
    fidelities: &[
        ("l2", Taken::AsItIs),
        ("l1", Taken::WithStep),
        ("poisson", Taken::By(Backtracking::PGD_METHOD)),
    ],
    data_term: DataUse::Gradient { values: 0 },
    knows_data_term: true,
    // The image, and the point where the prior is taken.
    holds: Held::images(1, 2, 2),
    variants: &[],
    check: any_keys,
    make: |from| {
        let relaxation = from.keys.number("relaxation");
        let (step, prior) = (from.step()?, from.prior.prox.clone());
        Ok(Box::new(ProximalGradient { step, prior, relaxation }))
    },
};

static PGD: Traits =
    Traits { variants: &[("relaxation", ProximalGradient::RELAXED_METHOD)], ..GRADIENT_STEPS };

/// With a copy of that point.
static RELAXED: Traits = Traits { holds: Held::images(1, 3, 3), ..GRADIENT_STEPS };

impl ProximalGradient {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&PGD);
    /// The same with a [`relaxation`](Self::relaxation).
    pub const RELAXED_METHOD: Method = Method::new(&RELAXED);
}

impl Algorithm for ProximalGradient {
    fn name(&self) -> &'static str {
        PGD.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let point = descend(setting, &state.image, self.step)?;
        relaxed_prox(setting, &*self.prior, point, self.step, self.relaxation)
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

static FISTA: Traits = Traits {
    name: "fista",
    summary: "the same with momentum",
    keys: &[STEP],
    fidelities: &[
        ("l2", Taken::AsItIs),
        ("l1", Taken::WithStep),
        ("poisson", Taken::By(Backtracking::FISTA_METHOD)),
    ],
    // The point ahead is given up before the prior, and made anew after it.
    holds: Held::images(2, 2, 3).with_state(2),
    make: |from| Ok(Box::new(Fista { step: from.step()?, prior: from.prior.prox.clone() })),
    ..GRADIENT_STEPS
};

impl Fista {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&FISTA);
}

impl Algorithm for Fista {
    fn name(&self) -> &'static str {
        FISTA.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let momentum = state.number("momentum").unwrap_or(1.0);
        let point = {
            let ahead = state.arrays.remove("ahead");
            descend(setting, ahead.as_ref().unwrap_or(&state.image), self.step)?
        };
        let next = setting.prior(|| self.prior.prox(point, self.step))?;
        let following = f64::midpoint(1.0, (1.0 + 4.0 * momentum * momentum).sqrt());
        let factor = ((momentum - 1.0) / following) as f32;
        state.put("ahead", extrapolate(&next, &state.image, factor)?);
        state.set_number("momentum", following);
        Ok(next)
    }
}

/// `x − γ ∇f(x)`, in the array of the gradient.
pub(super) fn descend(setting: &Setting<'_>, image: &Image, step: f64) -> Result<Image> {
    let mut point = setting.gradient(image)?;
    point.scale_and_add(-step as f32, image)?;
    Ok(point)
}

/// The prox of the prior at `point`, or a mixture of both: see [`ProximalGradient::relaxation`].
pub(super) fn relaxed_prox(
    setting: &Setting<'_>,
    prior: &dyn Prior,
    point: Image,
    step: f64,
    relaxation: Option<f64>,
) -> Result<Image> {
    let Some(weight) = relaxation else { return setting.prior(|| prior.prox(point, step)) };
    let share = (step * weight / (1.0 + step * weight)) as f32;
    let mut next = setting.prior(|| prior.prox(point.clone(), step))?;
    let rest = 1.0 - share;
    next.update(&point, |next, point| *next = point * rest + *next * share)?;
    Ok(next)
}

/// `x + factor · (x − before)`.
pub(super) fn extrapolate(x: &Image, before: &Image, factor: f32) -> Result<Image> {
    let mut ahead = x.clone();
    ahead.update(before, |x, before| *x += (*x - before) * factor)?;
    Ok(ahead)
}
