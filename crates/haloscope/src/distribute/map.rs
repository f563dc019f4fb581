//! A distributed stack as least-squares methods see it: measurements stay on their ranks, and the ranks
//! talk in sums and norms only.

use std::borrow::Cow;

use haloscope_comm::Collectives;

use super::agree::agree;
use super::has_pointwise_solution;
use super::stack::{DistributedStack, linear, part};
use crate::array::{Array, row_of, slice, slice_mut, squared_norm_of_rows, standard};
use crate::error::Result;
use crate::least_squares::{
    self, LeastSquaresOptions, LinearMap, NormOptions, Solution, SquaredNorm,
};
use crate::measurements::Measurements;

/// A [`DistributedStack`] whose data are each rank's own measurements.
#[derive(Clone, Copy, Debug)]
pub struct DistributedMap<'a> {
    stack: &'a DistributedStack,
    closed: bool,
}

impl DistributedStack {
    /// The stack for the methods of [`least_squares`], which all ranks run side by side.
    pub fn as_map(&self) -> Result<DistributedMap<'_>> {
        self.check_linear("least squares")?;
        Ok(DistributedMap { stack: self, closed: true })
    }

    /// The same without closed forms that need the whole image.
    pub(crate) fn as_open_map(&self) -> Result<DistributedMap<'_>> {
        Ok(DistributedMap { closed: false, ..self.as_map()? })
    }

    /// The least-squares solution of least norm, exactly: the ranks iterate together.
    pub fn pseudo_inverse(
        &self,
        measurements: &Measurements,
        options: &LeastSquaresOptions,
    ) -> Result<Solution> {
        let own = agree(self.context(), self.only_own(measurements))?;
        least_squares::pseudo_inverse(&self.as_map()?, &own, options)
    }

    /// The mean of the operators' own pseudo-inverses: one reduction instead of one per iteration, and
    /// an approximation of [`pseudo_inverse`](Self::pseudo_inverse) at best.
    pub fn mean_of_pseudo_inverses(
        &self,
        measurements: &Measurements,
        options: &LeastSquaresOptions,
    ) -> Result<Array> {
        self.check_linear("mean of pseudo-inverses")?;
        self.check_count(measurements)?;
        let batch = self.batch(measurements)?;
        // The options' observer belongs to the caller's thread, and sees one system only.
        let (method, tolerance, max_iterations) =
            (options.method, options.tolerance, options.max_iterations);
        let start = options.start;
        let terms = self.map_to_images("pseudo-inverse", batch, |index, operator| {
            let options =
                LeastSquaresOptions { method, tolerance, max_iterations, start, watch: None };
            let y = part(measurements, index)?;
            Ok(least_squares::pseudo_inverse(linear(index, operator)?, y, &options)?.image)
        });
        terms.mean()
    }

    /// `‖A‖²` by Lanczos' method over all ranks.
    pub fn squared_norm(&self, options: &NormOptions) -> Result<SquaredNorm> {
        least_squares::squared_norm(&self.as_map()?, options)
    }

    /// `Σ ‖Aᵢ‖²`, which is at least `‖A‖²`: one reduction instead of one per iteration.
    pub fn squared_norm_bound(&self, options: &NormOptions) -> Result<f64> {
        self.check_linear("squared norm")?;
        let bounds = self.map_values(|index, operator| {
            Ok(least_squares::squared_norm(linear(index, operator)?, options)?.upper)
        });
        self.sum_values(bounds)
    }

    /// The measurements of the rank's own operators.
    pub fn own(&self, measurements: &Measurements) -> Result<Measurements> {
        self.check_count(measurements)?;
        let parts =
            self.local_indices().map(|index| Ok((index, part(measurements, index)?.clone())));
        Measurements::partial(self.len(), parts.collect::<Result<Vec<_>>>()?)
    }

    /// The same, copied only if others are there too.
    pub(crate) fn only_own<'a>(
        &self,
        measurements: &'a Measurements,
    ) -> Result<Cow<'a, Measurements>> {
        let present = measurements.iter().map(|(index, _)| index);
        if measurements.len() == self.len() && present.eq(self.local_indices()) {
            return Ok(Cow::Borrowed(measurements));
        }
        self.own(measurements).map(Cow::Owned)
    }

    /// The sum of a number for each operator, in their order.
    pub(crate) fn sum_values(&self, local: Result<Vec<(usize, f64)>>) -> Result<f64> {
        let local = agree(self.context(), local)?;
        let values: Vec<[f64; 1]> = local.iter().map(|(_, value)| [*value]).collect();
        let terms: Vec<(u64, &[f64])> = local
            .iter()
            .zip(&values)
            .map(|((index, _), value)| (*index as u64, &value[..]))
            .collect();
        let mut sum = [0.0];
        self.context().comm().ordered_sum(&terms, &mut sum)?;
        Ok(sum[0])
    }
}

impl LinearMap for DistributedMap<'_> {
    type Data = Measurements;

    fn image_shape(&self) -> &[usize] {
        self.stack.image_shape()
    }

    fn forward(&self, image: &Array) -> Result<Measurements> {
        agree(self.stack.context(), self.stack.forward_terms(image)?.into_local())
    }

    fn adjoint(&self, data: &Measurements) -> Result<Array> {
        self.stack.adjoint(data)
    }

    fn normal(&self, image: &Array) -> Result<Array> {
        self.stack.normal(image)
    }

    fn data_squared_norm(&self, data: &Measurements) -> Result<f64> {
        let square = |part: &Array| squared_norm_of_rows(&slice(part), row_of(part));
        let squares = data.iter().map(|(index, part)| (index, square(part)));
        self.stack.sum_values(Ok(squares.collect()))
    }

    /// A stack of one operator has its closed form, which its owner computes.
    fn solve_normal(&self, b: &Array, shift: f64) -> Option<Result<Array>> {
        let [owner] = self.stack.owners() else { return None };
        let solution = self.stack.local_operators().first().and_then(|(_, one)| {
            if self.closed {
                return one.as_linear()?.solve_normal(b, shift);
            }
            // Pixel by pixel, as images in shards have it.
            let operator = one.as_window().filter(|one| has_pointwise_solution(*one))?;
            let whole: Vec<_> = b.shape()[2..].iter().map(|side| 0..*side).collect();
            let mut image = Array::zeros(b.raw_dim());
            let (batch, to) = (b.shape()[0], slice_mut(&mut image));
            let solved = operator.solve_normal_window(batch, &whole, &slice(b), shift, to)?;
            Some(solved.map(|()| image))
        });
        if self.stack.context().size() == 1 {
            return solution.map(|solution| solution.map(standard));
        }
        let mut exists = [u8::from(solution.is_some())];
        if let Err(error) = self.stack.context().comm().broadcast(*owner, &mut exists) {
            return Some(Err(error.into()));
        }
        (exists[0] == 1).then(|| {
            self.stack.check_image(b)?;
            let own = solution.transpose().map(|own| own.map(|image| (0, image)));
            let local = own.and_then(|own| Measurements::partial(1, own));
            self.stack.terms(vec![b.shape().to_vec()], local).sum()
        })
    }
}
