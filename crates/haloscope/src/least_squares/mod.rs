//! Least squares for matrix-free operators.
//!
//! [`pseudo_inverse`] and [`prox_l2`] use the closed form of an operator where it has one, and one of
//! four iterative methods elsewhere. The methods see only a [`LinearMap`] or a [`System`], so the same
//! code solves a map that is distributed over ranks. Vectors are f32, scalars f64. Reports give the
//! residual of the answer itself, recomputed at the end, because the residual that a method updates
//! drifts away from it in f32. A batch is solved as one system.

mod bicgstab;
mod conjugate_gradient;
mod lsqr;
mod map;
mod minres;
mod norm;
mod refine;
mod right_side;
mod system;

use std::fmt;
use std::ops::ControlFlow;

use crate::array::Array;
use crate::error::{Error, Result};
use right_side::RightSide;

pub use map::{Data, LinearMap};
pub(crate) use norm::largest;
pub use norm::{NormOptions, SquaredNorm, squared_norm};
pub use system::{Normal, System, solve};

/// An iterative method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinearSolver {
    /// Conjugate gradients on the normal equations (Hestenes and Stiefel).
    #[default]
    ConjugateGradient,
    /// Golub and Kahan's bidiagonalisation (Paige and Saunders): as many steps as conjugate gradients,
    /// less harm from rounding when the operator is ill-conditioned.
    Lsqr,
    /// Minimal residual on the normal equations (Paige and Saunders): the residual never grows.
    Minres,
    /// Stabilised biconjugate gradients (van der Vorst): for systems that are not symmetric.
    Bicgstab,
}

impl fmt::Display for LinearSolver {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl LinearSolver {
    fn name(self) -> &'static str {
        match self {
            Self::ConjugateGradient => "conjugate gradients",
            Self::Lsqr => "LSQR",
            Self::Minres => "MINRES",
            Self::Bicgstab => "BiCGSTAB",
        }
    }
}

/// Called after each iteration; may stop the solver.
pub type Watch<'a> = dyn Fn(&LinearIteration) -> ControlFlow<()> + 'a;

/// When to stop, where to start, and what to call after each iteration.
#[derive(Clone, Copy)]
pub struct LeastSquaresOptions<'a> {
    /// The method, where there is no closed form.
    pub method: LinearSolver,
    /// Stop when `‖b − (AᵀA + shift) x‖ ≤ tolerance · ‖b‖`.
    pub tolerance: f64,
    /// Stop after this many iterations.
    pub max_iterations: usize,
    /// Where to start; zero if there is none. Of several solutions, the one nearest to it is found.
    pub start: Option<&'a Array>,
    /// Called after each iteration; `Break` stops there.
    pub watch: Option<&'a Watch<'a>>,
}

impl Default for LeastSquaresOptions<'_> {
    fn default() -> Self {
        Self {
            method: LinearSolver::default(),
            tolerance: 1e-5,
            max_iterations: 100,
            start: None,
            watch: None,
        }
    }
}

impl fmt::Debug for LeastSquaresOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("LeastSquaresOptions")
            .field("method", &self.method)
            .field("tolerance", &self.tolerance)
            .field("max_iterations", &self.max_iterations)
            .field("start", &self.start.map(Array::shape))
            .finish_non_exhaustive()
    }
}

/// One iteration, as [`LeastSquaresOptions::watch`] sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearIteration {
    /// The number of completed iterations.
    pub iteration: usize,
    /// The relative residual that the method tracks.
    pub residual: f64,
}

/// Why a solver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The residual is within the tolerance.
    Converged,
    /// The operator has a closed form, and nothing was iterated.
    ClosedForm,
    /// All allowed iterations were completed.
    IterationLimit,
    /// [`LeastSquaresOptions::watch`] requested it.
    Watcher,
    /// f32 does not reach the tolerance: restarting from the residual no longer helps.
    Stagnation,
    /// The method cannot continue, for this reason; the best image so far is returned.
    Breakdown(&'static str),
}

/// The report of a solver.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Why it stopped.
    pub stop: Ending,
    /// How many iterations it took.
    pub iterations: usize,
    /// `‖b − (AᵀA + shift) x‖ / ‖b‖` of the image that is returned, recomputed; not measured for a
    /// closed form.
    pub residual: Option<f64>,
    /// The relative residuals that the method tracked, after each iteration.
    pub history: Vec<f64>,
}

impl Report {
    /// Whether the tolerance was reached, or the solution needed no iterations.
    #[must_use]
    pub fn converged(&self) -> bool {
        matches!(self.stop, Ending::Converged | Ending::ClosedForm)
    }

    fn without_iterations(stop: Ending, residual: Option<f64>) -> Self {
        Self { stop, iterations: 0, residual, history: Vec::new() }
    }
}

/// An image and how it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The image.
    pub image: Array,
    /// How it was found.
    pub report: Report,
}

/// The image of least norm among those that minimise `‖A x − y‖`: `A⁺ y`.
///
/// With a start, it is the minimiser nearest to the start.
///
/// ```
/// use haloscope::least_squares::{LeastSquaresOptions, pseudo_inverse};
/// use haloscope::physics::{Identity, Physics};
///
/// let operator = Identity::new(&[1, 4, 4]);
/// let image = ndarray::ArrayD::ones(vec![1, 1, 4, 4]);
/// let solution = pseudo_inverse(&operator, &operator.forward(&image)?, &LeastSquaresOptions::default())?;
/// assert!(solution.report.converged());
/// assert_eq!(solution.image, image);
/// # Ok::<(), haloscope::Error>(())
/// ```
///
/// # Errors
/// If the measurement has a wrong shape or is not finite. Missing the tolerance is not an error: see
/// [`Report::stop`].
pub fn pseudo_inverse<M: LinearMap + ?Sized>(
    map: &M,
    y: &M::Data,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    regularised(map, &map.adjoint(y)?, Some(y), 0.0, None, options)
}

/// The prox of the L2 fidelity: the minimiser of `γ/2 ‖A x − y‖² + ½ ‖x − z‖²`.
///
/// Iterations start at `z` unless the options have a start.
///
/// ```
/// use haloscope::least_squares::{LeastSquaresOptions, prox_l2};
/// use haloscope::physics::Identity;
///
/// let y = ndarray::ArrayD::ones(vec![1, 1, 4, 4]);
/// let z = ndarray::ArrayD::zeros(vec![1, 1, 4, 4]);
/// let prox = prox_l2(&Identity::new(&[1, 4, 4]), &z, &y, 1.0, &LeastSquaresOptions::default())?;
/// assert_eq!(prox.image, y * 0.5);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn prox_l2<M: LinearMap + ?Sized>(
    map: &M,
    z: &Array,
    y: &M::Data,
    gamma: f64,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    let shift = shift_of(gamma)?;
    regularised(map, &map.adjoint(y)?, Some(y), shift, Some(z), options)
}

/// [`prox_l2`] for data of which `Aᵀy` is known. All methods but LSQR need no more, and it is the same for every prox.
///
/// ```
/// use haloscope::least_squares::{LeastSquaresOptions, prox_l2_from_adjoint};
/// use haloscope::physics::{Identity, LinearPhysics};
///
/// let operator = Identity::new(&[1, 4, 4]);
/// let adjoint = operator.adjoint(&ndarray::ArrayD::ones(vec![1, 1, 4, 4]))?;
/// let z = ndarray::ArrayD::zeros(vec![1, 1, 4, 4]);
/// let prox = prox_l2_from_adjoint(&operator, &z, &adjoint, 1.0, &LeastSquaresOptions::default())?;
/// assert_eq!(prox.image, adjoint * 0.5);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn prox_l2_from_adjoint<M: LinearMap + ?Sized>(
    map: &M,
    z: &Array,
    adjoint: &Array,
    gamma: f64,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    regularised(map, adjoint, None, shift_of(gamma)?, Some(z), options)
}

fn shift_of(gamma: f64) -> Result<f64> {
    let shift = 1.0 / gamma;
    if gamma > 0.0 && shift > 0.0 && shift.is_finite() {
        return Ok(shift);
    }
    let reason = format!("γ is {gamma}; it must be finite and above 0");
    Err(Error::argument("the prox of the L2 fidelity", reason))
}

/// The minimiser of `‖A x − y‖² + shift ‖x − center‖²`, for `Aᵀy`; LSQR needs `y`, too.
fn regularised<M: LinearMap + ?Sized>(
    map: &M,
    adjoint: &Array,
    y: Option<&M::Data>,
    shift: f64,
    center: Option<&Array>,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    refine::check_options(options)?;
    let right = RightSide::shifted(adjoint, shift, center);
    let b = right.to_array()?;
    // A closed form has no place to begin: with a shift of 0 it would not find the nearest solution.
    if (shift > 0.0 || options.start.is_none())
        && let Some(image) = map.solve_normal(&b, shift)
    {
        let image = image?;
        refine::finite("the closed form", map.image_dot(&image, &image)?)?;
        return Ok(Solution {
            image,
            report: Report::without_iterations(Ending::ClosedForm, None),
        });
    }
    let options = LeastSquaresOptions { start: options.start.or(center), ..*options };
    match (options.method, y) {
        (LinearSolver::Lsqr, Some(y)) => lsqr::lsqr(map, y, shift, center, &b, &options),
        (LinearSolver::Lsqr, None) => {
            let reason = "it needs the measurements themselves; use `prox_l2`";
            Err(Error::argument("LSQR", reason))
        }
        _ => system::solve_for(&Normal::new(map, shift)?, &right, b, &options),
    }
}
