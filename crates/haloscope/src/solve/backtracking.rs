//! Proximal gradients for data terms without a Lipschitz constant: the step is halved until it is short enough.
//!
//! The curvature of the Poisson likelihood is `z / v²`, without a bound where few counts `v` are expected, and where none are
//! expected there is no gradient at all. So every step is tested: it is accepted if the data term is below the parabola
//! that the gradient and the step promise (Beck and Teboulle's condition), which an infinite data term never is. What
//! was accepted is a point where the data term is finite, and so has a gradient; a point ahead of it that has none is
//! given up for it, and the momentum with it.

use std::sync::Arc;

use super::algorithm::{Algorithm, Setting};
use super::ingredients::Ingredients;
use super::keys::{Key, KeyKind, STEP};
use super::method::{DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::prior::Prior;
use super::problem::Start;
use super::proximal_gradient::{extrapolate, relaxed_prox};
use super::state::State;
use crate::error::{Error, Result};
use crate::image::Image;

/// `x ← prox(x − γ ∇f(x))`, or its accelerated form, with a step that is found on the way.
///
/// For fidelities such as [`Poisson`](crate::fidelity::Poisson). Without momentum and with a prior that has a prox the
/// objective never rises. A step that is accepted at once is doubled for the next iteration, since where counts are many
/// the curvature is small; with momentum, which needs steps that do not grow, only in the first iterations, which have
/// none. The step is part of the [`State`]. An iteration takes one gradient and one value of the data term, or two with
/// momentum, and one more value each time that the step is halved.
#[derive(Clone, Debug)]
pub struct Backtracking {
    /// The step to begin with: [`Problem::first_step`](super::Problem::first_step).
    pub first_step: f64,
    /// The prior.
    pub prior: Arc<dyn Prior>,
    /// `λ`, to mix what the prior makes of the image with the image, as in
    /// [`ProximalGradient`](super::ProximalGradient).
    pub relaxation: Option<f64>,
    /// Whether to use Nesterov's momentum, as [`Fista`](super::Fista) does.
    pub accelerated: bool,
    /// The values that an image may have, where the prior does not see to it.
    pub range: Option<(f32, f32)>,
    /// What it is called.
    pub name: &'static str,
}

/// A step that was halved this often is too small to do anything.
const MOST_HALVINGS: usize = 60;

/// Iterations in which the step may grow, before momentum begins.
const SETTLING: usize = 10;

/// What rounding to single precision may do to the data term, relative to it.
const ROUNDING: f64 = 3e-7;

/// A move of this part of the image is none in single precision.
const STILL: f64 = 1e-7;

/// Of the methods whose steps it finds: their names, and what it holds instead of what they do.
static STEPS: Traits = Traits {
    name: "pgd",
    aliases: &[],
    summary: "proximal gradient descent with steps that are found on the way",
    keys: &[STEP, Key::optional("relaxation", KeyKind::Positive, None, "")],
    priors: Priors::Any,
    clamps: true,
    fidelities: &[("l2", Taken::AsItIs), ("l1", Taken::AsItIs), ("poisson", Taken::AsItIs)],
    data_term: DataUse::Gradient { values: 1 },
    knows_data_term: true,
    // The image, the gradient there, and the point where the prior is taken.
    holds: Held::images(1, 3, 3),
    variants: &[],
    check: any_keys,
    make: |from| make(from, STEPS.name, false),
};

static PGD: Traits = Traits { variants: &[("relaxation", Backtracking::RELAXED_METHOD)], ..STEPS };

/// With a copy of that point.
static RELAXED: Traits = Traits { holds: Held::images(1, 4, 4), ..STEPS };

static FISTA: Traits = Traits {
    name: "fista",
    keys: &[STEP],
    data_term: DataUse::Gradient { values: 2 },
    // With the point ahead.
    holds: Held::images(2, 4, 4).with_state(2),
    make: |from| make(from, FISTA.name, true),
    ..STEPS
};

static LANDWEBER: Traits = Traits {
    name: "landweber",
    keys: &[STEP],
    priors: Priors::None,
    holds: Held::images(1, 3, 3),
    make: |from| make(from, LANDWEBER.name, false),
    ..STEPS
};

fn make(
    from: &Ingredients<'_>,
    name: &'static str,
    accelerated: bool,
) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(Backtracking {
        first_step: from.keys.number("step").map_or_else(|| from.problem.first_step(), Ok)?,
        prior: from.prior.prox.clone(),
        relaxation: from.keys.number("relaxation"),
        accelerated,
        range: from.prior.range,
        name,
    }))
}

impl Backtracking {
    /// What it takes and holds as `pgd`, which it is for Poisson's fidelity.
    pub const PGD_METHOD: Method = Method::new(&PGD);
    /// The same with a [`relaxation`](Self::relaxation).
    pub const RELAXED_METHOD: Method = Method::new(&RELAXED);
    /// The same as `fista`.
    pub const FISTA_METHOD: Method = Method::new(&FISTA);
    /// The same as `landweber`.
    pub const LANDWEBER_METHOD: Method = Method::new(&LANDWEBER);
}

impl Algorithm for Backtracking {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let mut step = state.number("step").unwrap_or(self.first_step);
        let mut momentum = state.number("momentum").unwrap_or(1.0);
        let mut ahead = state.arrays.remove("ahead");
        if state.iteration == 0 && state.number("step").is_none() {
            state.image = self.defined(setting, &state.image)?;
        }
        if let Some(point) = &ahead
            && self.accelerated
            && momentum > 1.0
            && !is_finite(setting, point)?
        {
            ahead = None;
            momentum = 1.0;
        }
        let point = ahead.as_ref().unwrap_or(&state.image);
        let (value, gradient) = setting.data(|| setting.problem().value_and_gradient(point))?;
        setting.note_data_term(value);
        let mut halvings = 0;
        let next = loop {
            let next = self.advance(setting, point, &gradient, step)?;
            if is_below_parabola(setting, (value, point, &gradient), &next, step)? {
                break next;
            }
            halvings += 1;
            if halvings > MOST_HALVINGS {
                return Err(Error::Numeric {
                    what: self.name.into(),
                    reason: format!(
                        "no step above {step:e} keeps the data term finite and makes it smaller; keep the image \
                         above 0 with a range, or give the fidelity a background"
                    ),
                });
            }
            step *= 0.5;
        };
        drop((ahead, gradient));
        let is_settling = !self.accelerated || setting.iteration() < SETTLING;
        if !is_settling {
            let following = f64::midpoint(1.0, (1.0 + 4.0 * momentum * momentum).sqrt());
            let factor = ((momentum - 1.0) / following) as f32;
            let mut ahead = extrapolate(&next, &state.image, factor)?;
            ahead.clamp(self.range);
            state.put("ahead", ahead);
            state.set_number("momentum", following);
        }
        state.set_number("step", if is_settling && halvings == 0 { 2.0 * step } else { step });
        Ok(next)
    }
}

impl Backtracking {
    /// The prox of a gradient step.
    fn advance(
        &self,
        setting: &Setting<'_>,
        from: &Image,
        gradient: &Image,
        step: f64,
    ) -> Result<Image> {
        let mut point = from.clone();
        point.add_scaled(-step as f32, gradient)?;
        let mut next = relaxed_prox(setting, &*self.prior, point, step, self.relaxation)?;
        next.clamp(self.range);
        Ok(next)
    }

    /// The image to begin with, or one near it where the data term is finite: a back-projection has values below 0, and
    /// zeros expect no counts where some were measured.
    fn defined(&self, setting: &Setting<'_>, image: &Image) -> Result<Image> {
        let mut candidate = image.clone();
        candidate.clamp(self.range);
        if is_finite(setting, &candidate)? {
            return Ok(candidate);
        }
        // What an image of such data is on average; raised by too little, it is where the curvature is largest.
        let typical = |image: &Image| {
            let values = image.shape().iter().product::<usize>().max(1);
            Ok::<_, Error>(image.norm()? / (values as f64).sqrt())
        };
        let mut level = typical(&candidate)?;
        if level == 0.0 {
            level = typical(&setting.data(|| setting.problem().start(&Start::Adjoint))?)?;
        }
        let highest = self.range.map_or(f32::INFINITY, |(_, high)| high);
        for share in [0.1, 1.0] {
            let floor = ((level * share) as f32).min(highest);
            let mut lifted = candidate.clone();
            lifted.map(|value| value.max(floor));
            if is_finite(setting, &lifted)? {
                return Ok(lifted);
            }
        }
        Err(Error::Numeric {
            what: self.name.into(),
            reason: "the data term is infinite at the image to begin with, and at one that is raised above 0; begin \
                     with another image, or give the fidelity a background"
                .into(),
        })
    }
}

/// `f(x⁺) ≤ f(x) + ⟨∇f(x), x⁺ − x⟩ + ‖x⁺ − x‖² / 2γ`, up to rounding.
fn is_below_parabola(
    setting: &Setting<'_>,
    (value, point, gradient): (f64, &Image, &Image),
    next: &Image,
    step: f64,
) -> Result<bool> {
    let reached = setting.data(|| setting.problem().value(next))?;
    // The way from one to the other is computed twice instead of being kept.
    let along = Image::share([gradient, next, point], |[slope, next, point]| {
        f64::from(slope) * f64::from(next - point)
    })?;
    let square = |[next, point]: [f32; 2]| f64::from(next - point).powi(2);
    let square = Image::share([next, point], square)?;
    let size = Image::share([point], |[point]| f64::from(point).powi(2))?;
    let [along, square, size] = next.layout().totals([along, square, size])?;
    let promised = value + along + square / (2.0 * step);
    let is_still = || square.sqrt() <= STILL * size.sqrt();
    Ok(reached.is_finite() && (reached <= promised + ROUNDING * value.abs() || is_still()))
}

fn is_finite(setting: &Setting<'_>, image: &Image) -> Result<bool> {
    Ok(setting.data(|| setting.problem().value(image))?.is_finite())
}
