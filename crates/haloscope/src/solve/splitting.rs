//! Methods that alternate the proxes of both terms: ADMM and Douglas-Rachford.

use std::sync::Arc;

use super::algorithm::{Algorithm, Setting};
use super::keys::{INNER_ITERATIONS, INNER_TOLERANCE, Key, KeyKind, KeyValue, STEP};
use super::method::{DataUse, Held, Method, Priors, SQUARES, Traits, any_keys};
use super::prior::Prior;
use super::state::State;
use crate::error::Result;
use crate::image::Image;

/// `x = prox f(z − u)`, `z = prox g(x + u)`, `u ← u + x − z`; the image is `z`.
#[derive(Clone, Debug)]
pub struct Admm {
    /// The step size of both proxes.
    pub step: f64,
    /// The prior.
    pub prior: Arc<dyn Prior>,
}

static ADMM: Traits = Traits {
    name: "admm",
    aliases: &[],
    summary: "alternating directions",
    keys: &[STEP, INNER_ITERATIONS, INNER_TOLERANCE],
    priors: Priors::Any,
    clamps: true,
    fidelities: SQUARES,
    data_term: DataUse::Prox,
    knows_data_term: false,
    // The image, the dual, and the place of the one prox or the other.
    holds: Held::images(3, 3, 3).with_state(2),
    variants: &[],
    check: any_keys,
    make: |from| Ok(Box::new(Admm { step: from.step()?, prior: from.prior.prox.clone() })),
};

impl Admm {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&ADMM);
}

impl Algorithm for Admm {
    fn name(&self) -> &'static str {
        ADMM.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let mut dual = state.take("dual", Image::zeros_like);
        let mut sum = {
            let mut point = state.image.clone();
            point.update(&dual, |image, dual| *image -= dual)?;
            setting.prox(&point, self.step)?
        };
        sum.update(&dual, |near_data, dual| *near_data += dual)?;
        // The sum is needed once more, in the place of the dual, whose time is over.
        dual.update(&sum, |dual, sum| *dual = sum)?;
        let next = setting.prior(|| self.prior.prox(sum, self.step))?;
        dual.update(&next, |sum, next| *sum -= next)?;
        state.put("dual", dual);
        Ok(next)
    }
}

/// `x = prox f(z)`, `w = prox g(2x − z)`, `z ← z + β (w − x)`; the image is `w`.
#[derive(Clone, Debug)]
pub struct DouglasRachford {
    /// The step size of both proxes.
    pub step: f64,
    /// The prior.
    pub prior: Arc<dyn Prior>,
    /// `β`, between 0 and 2.
    pub relaxation: f64,
}

static DRS: Traits = Traits {
    name: "drs",
    summary: "Douglas-Rachford splitting",
    keys: &[
        STEP,
        Key::optional("relaxation", KeyKind::Positive, Some(KeyValue::Number(1.0)), ""),
        INNER_ITERATIONS,
        INNER_TOLERANCE,
    ],
    // The image and the point; then what the prox of the data makes of it, and its mirror image.
    holds: Held::images(2, 4, 4).with_state(2),
    make: |from| {
        let relaxation = from.keys.number("relaxation").unwrap_or(1.0);
        let (step, prior) = (from.step()?, from.prior.prox.clone());
        Ok(Box::new(DouglasRachford { step, prior, relaxation }))
    },
    ..ADMM
};

impl DouglasRachford {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&DRS);
}

impl Algorithm for DouglasRachford {
    fn name(&self) -> &'static str {
        DRS.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let mut point = state.take("point", Image::clone);
        let near_data = setting.prox(&point, self.step)?;
        let mut mirrored = near_data.clone();
        mirrored.update(&point, |near, point| *near = *near * 2.0 - point)?;
        let next = setting.prior(|| self.prior.prox(mirrored, self.step))?;
        let factor = self.relaxation as f32;
        point.update_from_two((&next, &near_data), |point, next, near| {
            *point += (next - near) * factor;
        })?;
        state.put("point", point);
        Ok(next)
    }
}
