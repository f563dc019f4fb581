//! The data term: operators, their measurements, and the distance between both.

use std::sync::OnceLock;

use super::super::distribute::{DistributedFidelity, DistributedStack};
use super::fill::fill;
use crate::array::{Array, scale, slice, slice_mut};
use crate::error::{Error, Result};
use crate::least_squares::{LeastSquaresOptions, NormOptions};
use crate::measurements::Measurements;

/// `Σ dᵢ(Aᵢ x, yᵢ)` over ranks.
#[derive(Debug)]
pub struct Problem {
    physics: DistributedStack,
    data: Measurements,
    fidelity: DistributedFidelity,
    inner: InnerOptions,
    /// `Aᵀy`, from the first prox on.
    adjoint: OnceLock<Array>,
}

/// How accurately proxes of the data term are computed where they have no closed form.
#[derive(Clone, Copy, Debug, PartialEq)]
struct InnerOptions {
    tolerance: f64,
    iterations: usize,
}

/// The initial image of an iteration.
#[derive(Clone, Debug, Default)]
pub enum Start {
    /// Zeros.
    Zeros,
    /// `Aᵀy`, scaled to fit the data best: the first step of steepest descent from zeros.
    #[default]
    Adjoint,
    /// `Aᵀy / AᵀA1`, the mean of the data around each pixel, and an interpolation of it where no operator sees anything:
    /// for methods whose few iterations cannot fill what is missing. [`Adjoint`](Self::Adjoint) where operators do not
    /// see constant images, so that there is no such mean.
    Filled,
    /// The least-squares solution, after at most this many iterations.
    PseudoInverse(usize),
    /// This image, for example a filtered back-projection or one from a file.
    Image(Array),
}

impl Problem {
    /// A problem. Each rank needs only the measurements of its own operators, and keeps no others.
    pub fn new(
        physics: DistributedStack,
        mut data: Measurements,
        fidelity: DistributedFidelity,
    ) -> Result<Self> {
        physics.check_count(&data)?;
        let rank = physics.context().rank();
        data.retain(|index| physics.owners()[index] == rank);
        let inner = InnerOptions { tolerance: 1e-6, iterations: 50 };
        Ok(Self { physics, data, fidelity, inner, adjoint: OnceLock::new() })
    }

    /// Sets how accurately proxes are computed where there is no closed form: the relative residual and the maximum
    /// number of iterations (1e-6 and 50 by default).
    #[must_use]
    pub fn with_inner(mut self, tolerance: f64, iterations: usize) -> Self {
        self.inner = InnerOptions { tolerance, iterations };
        self
    }

    /// The operators.
    #[must_use]
    pub fn physics(&self) -> &DistributedStack {
        &self.physics
    }

    /// The measurements of the rank's own operators.
    #[must_use]
    pub fn data(&self) -> &Measurements {
        &self.data
    }

    /// The data term.
    pub fn value(&self, image: &Array) -> Result<f64> {
        self.fidelity.value(&self.physics, image, &self.data)
    }

    /// The gradient of the data term.
    pub fn gradient(&self, image: &Array) -> Result<Array> {
        self.fidelity.gradient(&self.physics, image, &self.data)
    }

    /// The data term and its gradient, with a single forward.
    pub fn value_and_gradient(&self, image: &Array) -> Result<(f64, Array)> {
        self.fidelity.value_and_gradient(&self.physics, image, &self.data)
    }

    /// The minimiser of `step · (data term) + ½ ‖v − image‖²` over `v`.
    pub fn prox(&self, image: &Array, step: f64) -> Result<Array> {
        let options = LeastSquaresOptions {
            tolerance: self.inner.tolerance,
            max_iterations: self.inner.iterations,
            ..LeastSquaresOptions::default()
        };
        let adjoint = self.known_adjoint()?;
        let solution =
            self.fidelity.prox_from_adjoint(&self.physics, image, adjoint, step, &options)?;
        Ok(solution.image)
    }

    /// The prox of `step · d*` at `dual + step · A x` for the rank's own operators, where `d*` is the conjugate of the
    /// fidelity: the dual step of methods for fidelities that have a prox and no gradient. No measurements are sent.
    pub fn ascend(&self, dual: Measurements, image: &Array, step: f64) -> Result<Measurements> {
        self.fidelity.ascend(&self.physics, dual, image, &self.data, step)
    }

    /// 0.99 over the Lipschitz constant of the gradient, for quadratic fidelities.
    pub fn step_size(&self) -> Result<f64> {
        let weight = self.quadratic_weight().ok_or_else(|| {
            let reason = "the fidelity has no step size of its own; give one";
            Error::argument("step size", reason)
        })?;
        let norm = self.physics.squared_norm(&NormOptions::default())?;
        let constant = weight * norm.estimate;
        if constant <= 0.0 {
            return Err(Error::argument("step size", "the operators map everything to zero"));
        }
        let words = format!(
            "step size {:.3e}: the operators have a squared norm of {:.3e}",
            0.99 / constant,
            norm.estimate
        );
        self.physics.context().log(log::Level::Info, words);
        Ok(0.99 / constant)
    }

    /// A step for [`Backtracking`](super::Backtracking) to begin with, for fidelities without a bound on their curvature: one
    /// over the curvature where the data are matched best. All ranks call it.
    pub fn first_step(&self) -> Result<f64> {
        let Some(curvature) = self.fidelity.curvature_at_best(&self.physics, &self.data)? else {
            return self.step_size();
        };
        let norm = self.physics.squared_norm(&NormOptions::default())?;
        if norm.estimate <= 0.0 {
            return Err(Error::argument("step size", "the operators map everything to zero"));
        }
        Ok(1.0 / (curvature * norm.estimate))
    }

    /// The initial image.
    pub fn start(&self, start: &Start) -> Result<Array> {
        match start {
            Start::Image(image) => {
                self.physics.check_image(image)?;
                Ok(image.clone())
            }
            Start::Zeros => {
                let batch = self.physics.batch(&self.data)?;
                Ok(Array::zeros([&[batch], self.physics.image_shape()].concat()))
            }
            Start::PseudoInverse(iterations) => {
                let options = LeastSquaresOptions {
                    max_iterations: *iterations,
                    ..LeastSquaresOptions::default()
                };
                Ok(self.physics.pseudo_inverse(&self.data, &options)?.image)
            }
            Start::Adjoint | Start::Filled => {
                let mut image = self.adjoint()?;
                let normal = self.physics.normal(&image)?;
                if matches!(start, Start::Filled) {
                    let weights = self.physics.normal(&Array::ones(image.raw_dim()))?;
                    if let Some(filled) = fill(&image, &normal, &weights) {
                        return Ok(filled);
                    }
                }
                let square = crate::array::squared_norm(&slice(&image));
                let curvature = crate::array::dot(&slice(&image), &slice(&normal));
                let factor = if curvature > 0.0 { square / curvature } else { 0.0 };
                scale(slice_mut(&mut image), factor as f32);
                Ok(image)
            }
        }
    }

    /// The weight of the squares, if the data term is a sum of squares.
    pub(super) fn quadratic_weight(&self) -> Option<f64> {
        self.fidelity.quadratic_weight(&self.physics)
    }

    fn adjoint(&self) -> Result<Array> {
        match self.adjoint.get() {
            Some(adjoint) => Ok(adjoint.clone()),
            None => self.physics.adjoint(&self.data),
        }
    }

    /// `Aᵀy`, which every prox needs and which stays the same. All ranks come here together, so all of them compute it or none.
    fn known_adjoint(&self) -> Result<&Array> {
        if let Some(adjoint) = self.adjoint.get() {
            return Ok(adjoint);
        }
        let adjoint = self.physics.adjoint(&self.data)?;
        Ok(self.adjoint.get_or_init(|| adjoint))
    }
}
