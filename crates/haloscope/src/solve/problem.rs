//! The data term: operators, their measurements, and the distance between both.

use std::sync::OnceLock;

use haloscope_comm::Context;

use super::data_term::DataTerm;
use super::dealt::Dealt;
use super::fill::fill;
use super::sharded::Sharded;
use crate::array::Array;
use crate::distribute::{
    DistributedFidelity, DistributedStack, Residual, ShardedStack, Subset, Workers,
};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::least_squares::{LeastSquaresOptions, NormOptions};
use crate::measurements::Measurements;
use crate::words::count;

/// `Σ dᵢ(Aᵢ x, yᵢ)` over ranks.
#[derive(Debug)]
pub struct Problem {
    term: Box<dyn DataTerm>,
    inner: InnerOptions,
    prox: Prox,
    /// `Aᵀy`, from the first prox on.
    adjoint: OnceLock<Image>,
    /// `‖A‖²`, where it is known.
    squared_norm: Option<f64>,
}

/// How accurately proxes of the data term are computed where they have no closed form.
#[derive(Clone, Copy, Debug, PartialEq)]
struct InnerOptions {
    tolerance: f64,
    iterations: usize,
}

/// How the prox of a quadratic data term is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prox {
    /// By a closed form where the operator has one and the rank has what it needs, and by conjugate gradients elsewhere. Images
    /// in shards have the closed forms that work pixel by pixel, but not those of Fourier transforms.
    #[default]
    Auto,
    /// By a closed form that works pixel by pixel, or by conjugate gradients: the same bits in every layout.
    Iterative,
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
    Image(Image),
}

impl Problem {
    /// A problem for replicated images. Each rank needs only the measurements of its own operators, and keeps no others.
    pub fn new(
        physics: DistributedStack,
        data: Measurements,
        fidelity: DistributedFidelity,
    ) -> Result<Self> {
        Ok(Self::of(Box::new(Dealt::new(physics, data, fidelity)?)))
    }

    /// A problem for images in shards. Each rank gives its parts of the measurements, or the whole ones, of which it keeps its
    /// parts. All ranks call it.
    pub fn sharded(
        physics: ShardedStack,
        data: &Measurements,
        fidelity: DistributedFidelity,
    ) -> Result<Self> {
        Ok(Self::of(Box::new(Sharded::new(physics, data, fidelity)?)))
    }

    fn of(term: Box<dyn DataTerm>) -> Self {
        let inner = InnerOptions { tolerance: 1e-6, iterations: 50 };
        Self { term, inner, prox: Prox::default(), adjoint: OnceLock::new(), squared_norm: None }
    }

    /// Sets how accurately proxes are computed where there is no closed form: the relative residual and the maximum
    /// number of iterations (1e-6 and 50 by default).
    #[must_use]
    pub fn with_inner(mut self, tolerance: f64, iterations: usize) -> Self {
        self.inner = InnerOptions { tolerance, iterations };
        self
    }

    /// Sets the squared norm of the operators where it is known, so that no step size estimates it: operators that were
    /// scaled to a norm of 1, for example.
    #[must_use]
    pub fn with_squared_norm(mut self, squared_norm: f64) -> Self {
        self.squared_norm = Some(squared_norm);
        self
    }

    /// Sets how proxes are computed.
    #[must_use]
    pub fn with_prox(mut self, prox: Prox) -> Self {
        self.prox = prox;
        self
    }

    /// The ranks.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.term.context()
    }

    /// How many operators there are on all ranks.
    #[must_use]
    pub fn operators(&self) -> usize {
        self.term.operators()
    }

    /// What this rank has of the measurements: those of its own operators, or its part of each.
    #[must_use]
    pub fn data(&self) -> &Measurements {
        self.term.data()
    }

    pub(super) fn workers(&self) -> &Workers {
        self.term.workers()
    }

    /// Refuses images of other shapes or layouts than the problem's.
    pub fn check_image(&self, image: &Image) -> Result<()> {
        self.term.check_image(image)
    }

    /// The data term.
    pub fn value(&self, image: &Image) -> Result<f64> {
        self.term.value(image)
    }

    /// The gradient of the data term.
    pub fn gradient(&self, image: &Image) -> Result<Image> {
        self.term.gradient(image)
    }

    /// The data term and its gradient, with a single forward.
    pub fn value_and_gradient(&self, image: &Image) -> Result<(f64, Image)> {
        self.term.value_and_gradient(image)
    }

    /// The minimiser of `step · (data term) + ½ ‖v − image‖²` over `v`.
    pub fn prox(&self, image: &Image, step: f64) -> Result<Image> {
        let options = LeastSquaresOptions {
            tolerance: self.inner.tolerance,
            max_iterations: self.inner.iterations,
            ..LeastSquaresOptions::default()
        };
        let adjoint = self.known_adjoint()?;
        self.term.prox(image, adjoint, step, &options, self.prox == Prox::Auto)
    }

    /// The prox of `step · d*` at `dual + step · A x` for this rank's measurements, where `d*` is the conjugate of the
    /// fidelity: the dual step of methods for fidelities that have a prox and no gradient. No measurements are sent.
    pub fn ascend(&self, dual: Measurements, image: &Image, step: f64) -> Result<Measurements> {
        self.term.ascend(dual, image, step)
    }

    /// The shape of this rank's part of a measurement, if it has one.
    pub(super) fn part_shape(&self, operator: usize, batch: usize) -> Option<Vec<usize>> {
        self.term.part_shape(operator, batch)
    }

    /// An array of the shape of what this rank has of an operator's measurement, in the layout of the measurements.
    pub fn part_image(&self, operator: usize, part: Array) -> Result<Image> {
        self.term.part_image(operator, part)
    }

    /// What this rank has of `A x`.
    pub(super) fn forward(&self, image: &Image) -> Result<Measurements> {
        self.term.forward(image)
    }

    /// `Σ Aᵢᵀ rᵢ` over some of the operators, where `rᵢ` is a residual at the image.
    pub(super) fn back_project(
        &self,
        image: &Image,
        subset: Subset,
        residual: Residual<'_>,
    ) -> Result<Image> {
        self.term.back_project(image, subset, residual)
    }

    /// `AᵀA x`.
    pub fn normal(&self, image: &Image) -> Result<Image> {
        self.term.normal(image)
    }

    /// `Aᵀy` of the data.
    pub fn adjoint(&self) -> Result<Image> {
        match self.adjoint.get() {
            Some(adjoint) => Ok(adjoint.clone()),
            None => self.term.adjoint(),
        }
    }

    /// `Aᵀv` of something like the data.
    pub fn adjoint_of(&self, parts: &Measurements) -> Result<Image> {
        self.term.adjoint_of(parts)
    }

    /// The estimate of `‖A‖²`, as accurate as step sizes need it: these keep a hundredth away from their bound.
    pub fn squared_norm(&self) -> Result<f64> {
        if let Some(known) = self.squared_norm {
            return Ok(known);
        }
        let options = NormOptions { tolerance: 1e-2, ..NormOptions::default() };
        let norm = self.term.squared_norm(&options)?;
        let words = format!(
            "the operators have a squared norm of about {:.3e}, after {}",
            norm.estimate,
            count(norm.iterations, "iteration")
        );
        self.context().log(log::Level::Info, words);
        Ok(norm.estimate)
    }

    /// 0.99 over the Lipschitz constant of the gradient, for quadratic fidelities.
    pub fn step_size(&self) -> Result<f64> {
        let weight = self.quadratic_weight().ok_or_else(|| {
            let reason = "the fidelity has no step size of its own; give one";
            Error::argument("step size", reason)
        })?;
        let norm = self.squared_norm()?;
        let constant = weight * norm;
        if constant <= 0.0 {
            return Err(Error::argument("step size", "the operators map everything to zero"));
        }
        let step = 0.99 / constant;
        self.context().log(log::Level::Info, format!("step size {step:.3e}"));
        Ok(step)
    }

    /// A step for [`Backtracking`](super::Backtracking) to begin with, for fidelities without a bound on their curvature: one
    /// over the curvature where the data are matched best. All ranks call it.
    pub fn first_step(&self) -> Result<f64> {
        let Some(curvature) = self.term.curvature_at_best()? else {
            return self.step_size();
        };
        let norm = self.squared_norm()?;
        if norm <= 0.0 {
            return Err(Error::argument("step size", "the operators map everything to zero"));
        }
        Ok(1.0 / (curvature * norm))
    }

    /// The initial image.
    pub fn start(&self, start: &Start) -> Result<Image> {
        match start {
            Start::Image(image) => {
                let image = match self.check_image(image) {
                    Ok(()) => image.clone(),
                    // An image that every rank has is cut into the parts of the problem.
                    Err(_) => self.term.cut(image.whole()?)?,
                };
                Ok(image)
            }
            Start::Zeros => self.term.zeros(),
            Start::PseudoInverse(iterations) => {
                let max_iterations = *iterations;
                let options =
                    LeastSquaresOptions { max_iterations, ..LeastSquaresOptions::default() };
                self.term.pseudo_inverse(&options)
            }
            Start::Adjoint | Start::Filled => {
                let mut image = self.adjoint()?;
                let normal = self.normal(&image)?;
                let square = image.squared_norm()?;
                let curvature = image.dot(&normal)?;
                drop(normal);
                if matches!(start, Start::Filled) {
                    let mut ones = image.zeros_like();
                    ones.map(|_| 1.0);
                    let weights = self.normal(&ones)?;
                    drop(ones);
                    if let Some(filled) = fill(&image, &weights, square, curvature)? {
                        return Ok(filled);
                    }
                }
                let factor = if curvature > 0.0 { square / curvature } else { 0.0 };
                image.scale(factor as f32);
                Ok(image)
            }
        }
    }

    /// The weight of the squares, if the data term is a sum of squares.
    pub(super) fn quadratic_weight(&self) -> Option<f64> {
        self.term.quadratic_weight()
    }

    /// `Aᵀy`, which every prox needs and which stays the same. All ranks come here together, so all of them compute it or none.
    fn known_adjoint(&self) -> Result<&Image> {
        if let Some(adjoint) = self.adjoint.get() {
            return Ok(adjoint);
        }
        let adjoint = self.term.adjoint()?;
        Ok(self.adjoint.get_or_init(|| adjoint))
    }
}
