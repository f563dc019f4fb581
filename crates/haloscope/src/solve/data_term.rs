//! What a data term does, whatever the layout of its images: [`Problem`](super::Problem) asks here.

use std::fmt;

use haloscope_comm::Context;

use crate::array::Array;
use crate::distribute::{Residual, Subset, Workers};
use crate::error::Result;
use crate::image::Image;
use crate::least_squares::{LeastSquaresOptions, NormOptions, SquaredNorm};
use crate::measurements::Measurements;

/// `Σ dᵢ(Aᵢ x, yᵢ)` over ranks, for images of one layout. All ranks call each function.
pub(crate) trait DataTerm: Send + Sync + fmt::Debug {
    /// The ranks.
    fn context(&self) -> &Context;

    /// The threads of this rank.
    fn workers(&self) -> &Workers;

    /// How many operators there are on all ranks.
    fn operators(&self) -> usize;

    /// What this rank has of the measurements.
    fn data(&self) -> &Measurements;

    /// Refuses images of other shapes or layouts.
    fn check_image(&self, image: &Image) -> Result<()>;

    /// An image of zeros.
    fn zeros(&self) -> Result<Image>;

    /// This rank's part of an image that it has as a whole.
    fn cut(&self, whole: &Array) -> Result<Image>;

    /// The value.
    fn value(&self, image: &Image) -> Result<f64>;

    /// The gradient.
    fn gradient(&self, image: &Image) -> Result<Image>;

    /// Both, with a single forward.
    fn value_and_gradient(&self, image: &Image) -> Result<(f64, Image)>;

    /// The minimiser of `step · (data term) + ½ ‖v − image‖²` over `v`; `adjoint` is `Aᵀy`. Without `closed`, closed forms that
    /// need the whole image are not used.
    fn prox(
        &self,
        image: &Image,
        adjoint: &Image,
        step: f64,
        options: &LeastSquaresOptions,
        closed: bool,
    ) -> Result<Image>;

    /// The prox of `step · d*` at `dual + step · A x`, where `d*` is the conjugate of the fidelity.
    fn ascend(&self, dual: Measurements, image: &Image, step: f64) -> Result<Measurements>;

    /// The shape of this rank's part of a measurement, if it has one.
    fn part_shape(&self, operator: usize, batch: usize) -> Option<Vec<usize>>;

    /// An array of that shape in its layout.
    fn part_image(&self, operator: usize, part: Array) -> Result<Image>;

    /// `Aᵀy` of the data.
    fn adjoint(&self) -> Result<Image>;

    /// `Aᵀv` of something like the data.
    fn adjoint_of(&self, parts: &Measurements) -> Result<Image>;

    /// What this rank has of `A x`.
    fn forward(&self, image: &Image) -> Result<Measurements>;

    /// `Σ Aᵢᵀ rᵢ` over some of the operators, where `rᵢ` is a residual at the image.
    fn back_project(&self, image: &Image, subset: Subset, residual: Residual<'_>) -> Result<Image>;

    /// `AᵀA x`.
    fn normal(&self, image: &Image) -> Result<Image>;

    /// The least-squares solution of least norm.
    fn pseudo_inverse(&self, options: &LeastSquaresOptions) -> Result<Image>;

    /// `‖A‖²`.
    fn squared_norm(&self, options: &NormOptions) -> Result<SquaredNorm>;

    /// `w` where the whole is `w/2 ‖A x − y‖²`.
    fn quadratic_weight(&self) -> Option<f64>;

    /// The least of the fidelities' curvatures where the data are matched best, if all have one.
    fn curvature_at_best(&self) -> Result<Option<f64>>;
}
