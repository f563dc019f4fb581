//! The data term of replicated images: operators are dealt to the ranks, and each sum over them brings an image to all.

use haloscope_comm::Context;

use super::data_term::DataTerm;
use crate::array::Array;
use crate::distribute::{DistributedFidelity, DistributedStack, Residual, Subset, Workers, agree};
use crate::error::Result;
use crate::image::Image;
use crate::least_squares::{LeastSquaresOptions, NormOptions, SquaredNorm};
use crate::measurements::Measurements;

/// Operators with their measurements, each on the rank that owns it.
#[derive(Debug)]
pub(super) struct Dealt {
    physics: DistributedStack,
    data: Measurements,
    fidelity: DistributedFidelity,
}

impl Dealt {
    /// Keeps the measurements of the rank's own operators.
    pub(super) fn new(
        physics: DistributedStack,
        mut data: Measurements,
        fidelity: DistributedFidelity,
    ) -> Result<Self> {
        physics.check_count(&data)?;
        let rank = physics.context().rank();
        data.retain(|index| physics.owners()[index] == rank);
        Ok(Self { physics, data, fidelity })
    }
}

impl DataTerm for Dealt {
    fn context(&self) -> &Context {
        self.physics.context()
    }

    fn workers(&self) -> &Workers {
        self.physics.workers()
    }

    fn operators(&self) -> usize {
        self.physics.len()
    }

    fn data(&self) -> &Measurements {
        &self.data
    }

    fn check_image(&self, image: &Image) -> Result<()> {
        self.physics.check_image(image.whole()?).map(drop)
    }

    fn zeros(&self) -> Result<Image> {
        let batch = self.physics.batch(&self.data)?;
        Ok(Array::zeros([&[batch], self.physics.image_shape()].concat()).into())
    }

    fn cut(&self, whole: &Array) -> Result<Image> {
        self.physics.check_image(whole)?;
        Ok(whole.clone().into())
    }

    fn value(&self, image: &Image) -> Result<f64> {
        self.fidelity.value(&self.physics, image.whole()?, &self.data)
    }

    fn gradient(&self, image: &Image) -> Result<Image> {
        Ok(self.fidelity.gradient(&self.physics, image.whole()?, &self.data)?.into())
    }

    fn value_and_gradient(&self, image: &Image) -> Result<(f64, Image)> {
        let image = image.whole()?;
        let (value, gradient) =
            self.fidelity.value_and_gradient(&self.physics, image, &self.data)?;
        Ok((value, gradient.into()))
    }

    fn prox(
        &self,
        image: &Image,
        adjoint: &Image,
        step: f64,
        options: &LeastSquaresOptions,
        closed: bool,
    ) -> Result<Image> {
        let (image, adjoint) = (image.whole()?, adjoint.whole()?);
        let solution = self.fidelity.prox_from_adjoint(
            &self.physics,
            image,
            adjoint,
            step,
            options,
            closed,
        )?;
        Ok(solution.image.into())
    }

    fn ascend(&self, dual: Measurements, image: &Image, step: f64) -> Result<Measurements> {
        self.fidelity.ascend(&self.physics, dual, image.whole()?, &self.data, step)
    }

    fn part_shape(&self, operator: usize, batch: usize) -> Option<Vec<usize>> {
        let is_own = self.physics.owners()[operator] == self.context().rank();
        is_own.then(|| [&[batch], &self.physics.measurement_shapes()[operator][..]].concat())
    }

    fn part_image(&self, _operator: usize, part: Array) -> Result<Image> {
        Ok(part.into())
    }

    fn adjoint(&self) -> Result<Image> {
        Ok(self.physics.adjoint(&self.data)?.into())
    }

    fn adjoint_of(&self, parts: &Measurements) -> Result<Image> {
        Ok(self.physics.adjoint(parts)?.into())
    }

    fn forward(&self, image: &Image) -> Result<Measurements> {
        let terms = self.physics.forward_terms(image.whole()?)?.into_local();
        agree(self.context(), terms)
    }

    fn back_project(&self, image: &Image, subset: Subset, residual: Residual<'_>) -> Result<Image> {
        let image = image.whole()?;
        let back =
            self.fidelity.back_project(&self.physics, image, &self.data, subset, residual)?;
        Ok(back.into())
    }

    fn normal(&self, image: &Image) -> Result<Image> {
        Ok(self.physics.normal(image.whole()?)?.into())
    }

    fn pseudo_inverse(&self, options: &LeastSquaresOptions) -> Result<Image> {
        Ok(self.physics.pseudo_inverse(&self.data, options)?.image.into())
    }

    fn squared_norm(&self, options: &NormOptions) -> Result<SquaredNorm> {
        self.physics.squared_norm(options)
    }

    fn quadratic_weight(&self) -> Option<f64> {
        self.fidelity.quadratic_weight(&self.physics)
    }

    fn curvature_at_best(&self) -> Result<Option<f64>> {
        self.fidelity.curvature_at_best(&self.physics, &self.data)
    }
}
