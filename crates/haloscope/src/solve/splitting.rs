//! Methods that alternate the proxes of both terms: ADMM and Douglas-Rachford.

use std::sync::Arc;

use super::algorithm::{Algorithm, Setting};
use super::prior::Prior;
use super::state::State;
use crate::array::Array;
use crate::error::Result;

/// `x = prox f(z − u)`, `z = prox g(x + u)`, `u ← u + x − z`; the image is `z`.
#[derive(Clone, Debug)]
pub struct Admm {
    /// The step size of both proxes.
    pub step: f64,
    /// The prior.
    pub prior: Arc<dyn Prior>,
}

impl Algorithm for Admm {
    fn name(&self) -> &'static str {
        "admm"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let dual = state.take("dual", |image| Array::zeros(image.raw_dim()));
        let near_data = setting.prox(&(&state.image - &dual), self.step)?;
        let sum = &near_data + &dual;
        state.image = setting.prior(|| self.prior.prox(&sum, self.step))?;
        state.put("dual", sum - &state.image);
        Ok(())
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

impl Algorithm for DouglasRachford {
    fn name(&self) -> &'static str {
        "drs"
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<()> {
        let point = state.take("point", Array::clone);
        let near_data = setting.prox(&point, self.step)?;
        let mirrored = &near_data * 2.0 - &point;
        state.image = setting.prior(|| self.prior.prox(&mirrored, self.step))?;
        let moved = (&state.image - &near_data) * self.relaxation as f32;
        state.put("point", point + moved);
        Ok(())
    }
}
