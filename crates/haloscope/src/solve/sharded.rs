//! The data term of images in shards: every rank has its part of the image and of all measurements.

use haloscope_comm::{Collectives, Context, Reduction};

use super::data_term::DataTerm;
use crate::array::{Array, scale, scale_and_add, slice, slice_mut};
use crate::distribute::{DistributedFidelity, Residual, ShardedStack, Subset, Workers};
use crate::error::{Error, Result};
use crate::image::{Image, Layout};
use crate::least_squares::{
    self, LeastSquaresOptions, NormOptions, SquaredNorm, prox_l2_from_adjoint,
};
use crate::measurements::Measurements;
use crate::region::copied;
use crate::words::count;

/// Operators on parts, with the parts of their measurements.
#[derive(Debug)]
pub(super) struct Sharded {
    physics: ShardedStack,
    data: Measurements,
    fidelity: DistributedFidelity,
    layout: Layout,
}

impl Sharded {
    /// Keeps this rank's parts of measurements, which are given as parts or as a whole.
    pub(super) fn new(
        physics: ShardedStack,
        data: &Measurements,
        fidelity: DistributedFidelity,
    ) -> Result<Self> {
        fidelity.check_operators(physics.len())?;
        if data.len() != physics.len() {
            let (parts, operators) =
                (count(data.len(), "measurement"), count(physics.len(), "operator"));
            let reason = format!("{parts} for {operators}; give one for each");
            return Err(Error::argument("stack", reason));
        }
        let part = |index: usize| {
            let (given, space) = (data.get(index), &physics.measured()[index]);
            match given {
                Some(given) if given.shape() == space.own_shape() => Ok((index, given.clone())),
                Some(given) if given.shape() == space.whole() => {
                    Ok((index, copied(given, space.own())))
                }
                _ => Err(Error::Shape {
                    what: format!("the measurement of operator {index}"),
                    expected: format!("{:?} is this rank's part", space.own_shape()),
                    found: given.map(|given| given.shape().to_vec()).unwrap_or_default(),
                }),
            }
        };
        let parts = (0..physics.len()).map(part).collect::<Result<Vec<_>>>();
        let layout = Layout::Sharded(physics.space().clone());
        let data = Measurements::partial(physics.len(), layout.agree(parts)?)?;
        Ok(Self { physics, data, fidelity, layout })
    }

    /// The measurement of an operator, of which each rank has its part.
    fn part(&self, operator: usize) -> Result<&Array> {
        self.data.get(operator).ok_or_else(|| {
            Error::argument("stack", format!("the measurement of operator {operator} is absent"))
        })
    }

    /// `Σ dᵢ(uᵢ, yᵢ)`, added in the order of the operators, with one message for all of them.
    fn value_of(&self, predicted: &Measurements) -> Result<f64> {
        let (mut factors, mut sums) = (Vec::new(), Vec::new());
        for (index, u) in predicted.iter() {
            let y = self.part(index)?;
            let (factor, sum) =
                self.fidelity.with(index, |fidelity| fidelity.value_share(&self.layout, u, y))?;
            factors.push(factor);
            sums.push(sum);
        }
        let totals = self.layout.totals_of(sums)?;
        let values = factors.iter().zip(totals).map(|(factor, total)| factor * total);
        Ok(values.reduce(|sum, value| sum + value).unwrap_or(0.0) / self.divisor())
    }

    /// Residuals take the place of what they are computed from.
    fn gradient_of(&self, mut predicted: Measurements) -> Result<Image> {
        for (index, u) in predicted.iter_mut() {
            let y = self.part(index)?;
            let residual =
                self.fidelity.with(index, |fidelity| fidelity.gradient_share(&self.layout, u, y));
            *u = residual?;
        }
        let mut gradient = self.physics.adjoint(&predicted)?;
        if self.divisor() > 1.0 {
            gradient.scale(1.0 / self.physics.len() as f32);
        }
        Ok(gradient)
    }

    fn divisor(&self) -> f64 {
        self.fidelity.divisor_of(self.physics.len())
    }
}

impl DataTerm for Sharded {
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
        self.physics.check_image(image)
    }

    fn zeros(&self) -> Result<Image> {
        let space = self.physics.space();
        Image::sharded(space, Array::zeros(space.own_shape()))
    }

    fn cut(&self, whole: &Array) -> Result<Image> {
        Image::cut(self.physics.space(), whole)
    }

    fn value(&self, image: &Image) -> Result<f64> {
        self.value_of(&self.physics.forward(image)?)
    }

    fn gradient(&self, image: &Image) -> Result<Image> {
        self.gradient_of(self.physics.forward(image)?)
    }

    fn value_and_gradient(&self, image: &Image) -> Result<(f64, Image)> {
        let predicted = self.physics.forward(image)?;
        Ok((self.value_of(&predicted)?, self.gradient_of(predicted)?))
    }

    /// Closed forms that need the whole image are never there.
    fn prox(
        &self,
        image: &Image,
        adjoint: &Image,
        step: f64,
        options: &LeastSquaresOptions,
        _closed: bool,
    ) -> Result<Image> {
        let weight = self.quadratic_weight().ok_or_else(|| {
            let reason = "only quadratic fidelities of one weight have a prox over a stack";
            Error::argument("fidelity", reason)
        })?;
        self.check_image(image)?;
        let (z, adjoint) = (image.local(), adjoint.local());
        let solution = prox_l2_from_adjoint(&self.physics, z, adjoint, step * weight, options)?;
        image.with(solution.image)
    }

    /// Points take the place of what they are computed from, and each dual goes once it is used.
    fn ascend(&self, mut dual: Measurements, image: &Image, step: f64) -> Result<Measurements> {
        let divisor = self.divisor();
        let mut points = self.physics.forward(image)?;
        for (index, point) in points.iter_mut() {
            let dual = dual.get_mut(index).map(std::mem::take).unwrap_or_default();
            if dual.shape() != point.shape() {
                return Err(Error::Shape {
                    what: format!("the dual of operator {index}"),
                    expected: format!("{:?} is this rank's part", point.shape()),
                    found: dual.shape().to_vec(),
                });
            }
            scale_and_add(slice_mut(point), step as f32, &slice(&dual));
            drop(dual);
            scale(slice_mut(point), divisor as f32);
            let y = self.part(index)?;
            *point = self.fidelity.with(index, |fidelity| {
                fidelity.prox_conjugate_share(&self.layout, point, y, step * divisor)
            })?;
            scale(slice_mut(point), divisor.recip() as f32);
        }
        Ok(points)
    }

    fn part_shape(&self, operator: usize, _batch: usize) -> Option<Vec<usize>> {
        Some(self.physics.measured()[operator].own_shape())
    }

    fn part_image(&self, operator: usize, part: Array) -> Result<Image> {
        Image::sharded(&self.physics.measured()[operator], part)
    }

    fn adjoint(&self) -> Result<Image> {
        self.physics.adjoint(&self.data)
    }

    fn adjoint_of(&self, parts: &Measurements) -> Result<Image> {
        self.physics.adjoint(parts)
    }

    fn forward(&self, image: &Image) -> Result<Measurements> {
        self.physics.forward(image)
    }

    fn back_project(&self, image: &Image, subset: Subset, residual: Residual<'_>) -> Result<Image> {
        let indices = subset.indices(self.physics.len());
        let physics = self.physics.subset(&indices);
        let mut parts = physics.forward(image)?;
        let residuals = parts.iter_mut().try_for_each(|(place, part)| {
            let (index, expected) = (indices[place], std::mem::take(part));
            let measured = self.part(index)?;
            *part = self
                .fidelity
                .with(index, |fidelity| residual.of(index, expected, measured, fidelity))?;
            Ok(())
        });
        self.layout.agree(residuals)?;
        physics.adjoint(&parts)
    }

    fn normal(&self, image: &Image) -> Result<Image> {
        self.physics.normal(image)
    }

    fn pseudo_inverse(&self, options: &LeastSquaresOptions) -> Result<Image> {
        let solution = least_squares::pseudo_inverse(&self.physics, &self.data, options)?;
        Image::sharded(self.physics.space(), solution.image)
    }

    fn squared_norm(&self, options: &NormOptions) -> Result<SquaredNorm> {
        self.physics.squared_norm(options)
    }

    fn quadratic_weight(&self) -> Option<f64> {
        self.fidelity.weight_of(self.physics.len())
    }

    fn curvature_at_best(&self) -> Result<Option<f64>> {
        let least = self.layout.agree(self.fidelity.least_curvature(&self.data))?;
        let mut least = [least];
        self.context().comm().all_reduce(Reduction::Min, &mut least)?;
        let least = least[0] / self.divisor();
        Ok((least > 0.0 && least.is_finite()).then_some(least))
    }
}
