//! Data fidelities over ranks: each rank compares its own measurements, and one sum brings the value or the
//! gradient to all.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use haloscope_comm::{Collectives, Context, Reduction};

use super::agree::agree;
use super::segments;
use super::stack::{linear, part};
use super::{Distribute, DistributedStack, Residual, Subset, Terms};
use crate::array::{Array, View, scale, scale_and_add, slice, slice_mut};
use crate::error::{Error, Result};
use crate::fidelity::{Fidelities, Fidelity};
use crate::least_squares::{LeastSquaresOptions, Solution, prox_l2, prox_l2_from_adjoint};
use crate::measurements::Measurements;
use crate::words::count;

/// How the operators' fidelities become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FidelityReduction {
    /// Their sum.
    #[default]
    Sum,
    /// Their mean.
    Mean,
}

/// `Σ dᵢ(Aᵢ x, yᵢ)` over ranks, or the mean.
#[derive(Clone, Debug)]
pub struct DistributedFidelity {
    source: Source,
    reduction: FidelityReduction,
}

#[derive(Clone, Debug)]
enum Source {
    List(Fidelities),
    Factory(FidelityFactory),
}

type Make = dyn Fn(usize) -> Result<Arc<dyn Fidelity>> + Send + Sync;

/// A function that makes the fidelity of an operator, called only where the operator is.
#[derive(Clone)]
pub struct FidelityFactory {
    count: usize,
    make: Arc<Make>,
    made: Arc<Mutex<BTreeMap<usize, Arc<dyn Fidelity>>>>,
}

impl FidelityFactory {
    /// A factory for `count` operators.
    pub fn new<F>(count: usize, make: F) -> Self
    where
        F: Fn(usize) -> Result<Arc<dyn Fidelity>> + Send + Sync + 'static,
    {
        Self { count, make: Arc::new(make), made: Arc::default() }
    }

    fn get(&self, operator: usize) -> Result<Arc<dyn Fidelity>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fidelity) = made.get(&operator) {
            return Ok(fidelity.clone());
        }
        let fidelity = (self.make)(operator)?;
        made.insert(operator, fidelity.clone());
        Ok(fidelity)
    }
}

impl fmt::Debug for FidelityFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FidelityFactory").field("count", &self.count).finish_non_exhaustive()
    }
}

impl DistributedFidelity {
    /// `Σ dᵢ(Aᵢ x, yᵢ)`. Each rank needs the measurements of its own operators only.
    pub fn value(
        &self,
        stack: &DistributedStack,
        image: &View,
        data: &Measurements,
    ) -> Result<f64> {
        self.check(stack, image, data)?;
        let values = self.own_values(stack, image, data);
        Ok(stack.sum_values(values)? / self.divisor(stack))
    }

    /// `dᵢ(Aᵢ x, yᵢ)` of the rank's own operators, with their indices. Nothing is sent, and nothing is added or divided.
    pub fn local_values(
        &self,
        stack: &DistributedStack,
        image: &View,
        data: &Measurements,
    ) -> Result<Vec<(usize, f64)>> {
        self.check(stack, image, data)?;
        self.own_values(stack, image, data)
    }

    /// `Σ Jᵢᵀ ∇dᵢ(Aᵢ x, yᵢ)`, where `Jᵢ` is the derivative of operator i at the image.
    pub fn gradient(
        &self,
        stack: &DistributedStack,
        image: &View,
        data: &Measurements,
    ) -> Result<Array> {
        let batch = self.check(stack, image, data)?;
        let gradient = stack.sum_images("gradient", batch, |index, operator| {
            self.with(index, |fidelity| fidelity.gradient_at(operator, image, part(data, index)?))
        })?;
        Ok(self.reduced(gradient, stack))
    }

    /// `Jᵢᵀ ∇dᵢ(Aᵢ x, yᵢ)` of the rank's own operators, whatever the reduction: to keep, to gather, to add up on the rank or
    /// over all of them.
    pub fn gradient_terms<'a>(
        &self,
        stack: &'a DistributedStack,
        image: &View,
        data: &Measurements,
    ) -> Result<Terms<'a>> {
        let batch = self.check(stack, image, data)?;
        Ok(stack.map_to_images("gradient", batch, |index, operator| {
            self.with(index, |fidelity| fidelity.gradient_at(operator, image, part(data, index)?))
        }))
    }

    /// Value and gradient, with one forward for the two.
    pub fn value_and_gradient(
        &self,
        stack: &DistributedStack,
        image: &View,
        data: &Measurements,
    ) -> Result<(f64, Array)> {
        let batch = self.check(stack, image, data)?;
        let values = Mutex::new(Vec::new());
        let ctx = stack.context();
        let gradient = stack.sum_images("gradient", batch, |index, operator| {
            let forward = ctx.span("forward");
            let (u, y) = (operator.forward(image)?, part(data, index)?);
            drop(forward);
            let (value, gradient) = self
                .with(index, |fidelity| Ok((fidelity.value(&u, y)?, fidelity.gradient(&u, y)?)))?;
            drop(u);
            values.lock().unwrap_or_else(PoisonError::into_inner).push((index, value));
            let _span = ctx.span("adjoint");
            operator.vjp(image, &gradient)
        })?;
        let values = values.into_inner().unwrap_or_else(PoisonError::into_inner);
        let value = stack.sum_values(Ok(values))? / self.divisor(stack);
        Ok((value, self.reduced(gradient, stack)))
    }

    /// `Σ Aᵢᵀ rᵢ` over some of the operators, where `rᵢ` is a [`Residual`] at the image.
    pub(crate) fn back_project(
        &self,
        stack: &DistributedStack,
        image: &View,
        data: &Measurements,
        subset: Subset,
        residual: Residual<'_>,
    ) -> Result<Array> {
        let batch = self.check(stack, image, data)?;
        let indices = subset.indices(stack.len());
        stack.subset(&indices).sum_images("subset", batch, |place, operator| {
            let index = indices[place];
            let (expected, measured) = (operator.forward(image)?, part(data, index)?);
            let residual =
                self.with(index, |fidelity| residual.of(index, expected, measured, fidelity))?;
            linear(index, operator)?.adjoint(&residual)
        })
    }

    /// `w` where the whole is `w/2 ‖A x − y‖²`.
    #[must_use]
    pub fn quadratic_weight(&self, stack: &DistributedStack) -> Option<f64> {
        self.weight_of(stack.len())
    }

    /// The least of the fidelities' [curvatures](Fidelity::curvature_at_best), if all have one. All ranks call it.
    pub fn curvature_at_best(
        &self,
        stack: &DistributedStack,
        data: &Measurements,
    ) -> Result<Option<f64>> {
        let mut least = [agree(stack.context(), self.least_curvature(data))?];
        stack.context().comm().all_reduce(Reduction::Min, &mut least)?;
        let least = least[0] / self.divisor(stack);
        Ok((least > 0.0 && least.is_finite()).then_some(least))
    }

    /// The minimiser of `γ Σ dᵢ(Aᵢ v, yᵢ) + ½ ‖v − x‖²` over `v`, for quadratic fidelities of one weight.
    pub fn prox(
        &self,
        stack: &DistributedStack,
        image: &Array,
        data: &Measurements,
        gamma: f64,
        options: &LeastSquaresOptions,
    ) -> Result<Solution> {
        self.check(stack, image, data)?;
        let weight = self.prox_weight(stack)?;
        let own = agree(stack.context(), stack.only_own(data))?;
        prox_l2(&stack.as_map()?, image, &own, gamma * weight, options)
    }

    /// [`prox`](Self::prox) for data of which `Aᵀy` is known: it is all that the prox needs of them, and stays the same from one
    /// prox to the next. Without `closed`, closed forms that need the whole image are not used.
    pub(crate) fn prox_from_adjoint(
        &self,
        stack: &DistributedStack,
        image: &Array,
        adjoint: &Array,
        gamma: f64,
        options: &LeastSquaresOptions,
        closed: bool,
    ) -> Result<Solution> {
        let weight = self.prox_weight(stack)?;
        stack.check_image(image)?;
        if segments::is_divided(stack) {
            return segments::prox(stack, image, adjoint, gamma * weight, options);
        }
        let map = if closed { stack.as_map()? } else { stack.as_open_map()? };
        prox_l2_from_adjoint(&map, image, adjoint, gamma * weight, options)
    }

    fn prox_weight(&self, stack: &DistributedStack) -> Result<f64> {
        self.quadratic_weight(stack).ok_or_else(|| {
            let reason = "only quadratic fidelities of one weight have a prox over a stack";
            Error::argument("fidelity", reason)
        })
    }

    /// The prox of `γ d*` at `dual + γ A x` for the rank's own operators, where `d*` is the conjugate of the fidelities: they
    /// need a prox, and no gradient. The duals have the shapes of the measurements, and stay on their ranks; each is given up as
    /// soon as the next one of its operator is there.
    pub(crate) fn ascend(
        &self,
        stack: &DistributedStack,
        dual: Measurements,
        image: &View,
        data: &Measurements,
        gamma: f64,
    ) -> Result<Measurements> {
        stack.check_count(&dual)?;
        self.check(stack, image, data)?;
        let duals = Mutex::new(dual);
        // The conjugate of d/c is d*(c·)/c.
        let divisor = self.divisor(stack);
        let terms = stack.map_measurements("ascend", image, |index, operator| {
            let mut point = operator.forward(image)?;
            let mut duals = duals.lock().unwrap_or_else(PoisonError::into_inner);
            part(&duals, index)?;
            let dual = duals.get_mut(index).map(std::mem::take).unwrap_or_default();
            drop(duals);
            scale_and_add(slice_mut(&mut point), gamma as f32, &slice(&dual));
            drop(dual);
            scale(slice_mut(&mut point), divisor as f32);
            let y = part(data, index)?;
            let mut next =
                self.with(index, |fidelity| fidelity.prox_conjugate(&point, y, gamma * divisor))?;
            scale(slice_mut(&mut next), divisor.recip() as f32);
            Ok(next)
        })?;
        agree(stack.context(), terms.into_local())
    }

    fn own_values(
        &self,
        stack: &DistributedStack,
        image: &View,
        data: &Measurements,
    ) -> Result<Vec<(usize, f64)>> {
        stack.map_values(|index, operator| {
            self.with(index, |fidelity| fidelity.value_at(operator, image, part(data, index)?))
        })
    }

    fn check(&self, stack: &DistributedStack, image: &View, data: &Measurements) -> Result<usize> {
        self.check_operators(stack.len())?;
        stack.check_count(data)?;
        stack.check_image(image)
    }

    /// Refuses another number of operators than there are fidelities for.
    pub(crate) fn check_operators(&self, operators: usize) -> Result<()> {
        match &self.source {
            Source::List(list) => list.check_count(operators),
            Source::Factory(factory) if factory.count != operators => {
                let reason = format!(
                    "the factory makes {} for {}; one for each is expected",
                    match factory.count {
                        1 => "1 fidelity".to_owned(),
                        number => format!("{number} fidelities"),
                    },
                    count(operators, "operator")
                );
                Err(Error::argument("fidelities", reason))
            }
            Source::Factory(_) => Ok(()),
        }
    }

    /// Calls `f` with the fidelity of an operator.
    pub(crate) fn with<T>(
        &self,
        operator: usize,
        f: impl FnOnce(&dyn Fidelity) -> Result<T>,
    ) -> Result<T> {
        match &self.source {
            Source::Factory(factory) => f(&*factory.get(operator)?),
            Source::List(list) => match list.get(operator) {
                Some(fidelity) => f(fidelity),
                None => Err(Error::argument(
                    "fidelities",
                    format!("there is none for operator {operator}"),
                )),
            },
        }
    }

    /// The sum, or the mean that is made of it.
    fn reduced(&self, mut sum: Array, stack: &DistributedStack) -> Array {
        if self.reduction == FidelityReduction::Mean {
            scale(slice_mut(&mut sum), 1.0 / stack.len() as f32);
        }
        sum
    }

    fn divisor(&self, stack: &DistributedStack) -> f64 {
        self.divisor_of(stack.len())
    }

    /// What the sum over so many operators is divided by.
    pub(crate) fn divisor_of(&self, operators: usize) -> f64 {
        match self.reduction {
            FidelityReduction::Sum => 1.0,
            FidelityReduction::Mean => operators as f64,
        }
    }

    /// `w` where the whole is `w/2 ‖A x − y‖²` for so many operators.
    pub(crate) fn weight_of(&self, operators: usize) -> Option<f64> {
        match &self.source {
            Source::List(list) => Some(list.quadratic_weight()? / self.divisor_of(operators)),
            Source::Factory(_) => None,
        }
    }

    /// The least curvature of the fidelities of these measurements where it is best; 0 if one has none.
    pub(crate) fn least_curvature(&self, data: &Measurements) -> Result<f64> {
        let mut least = f64::INFINITY;
        for (index, part) in data.iter() {
            let own = self.with(index, |fidelity| Ok(fidelity.curvature_at_best(part)))?;
            // What has none makes all of it unknown.
            least = least.min(own.unwrap_or(0.0));
        }
        Ok(least)
    }
}

impl Distribute for Fidelities {
    type Options = FidelityReduction;
    type Output = DistributedFidelity;

    fn distribute(
        self,
        _ctx: &Context,
        reduction: FidelityReduction,
    ) -> Result<DistributedFidelity> {
        Ok(DistributedFidelity { source: Source::List(self), reduction })
    }
}

impl Distribute for FidelityFactory {
    type Options = FidelityReduction;
    type Output = DistributedFidelity;

    fn distribute(
        self,
        _ctx: &Context,
        reduction: FidelityReduction,
    ) -> Result<DistributedFidelity> {
        Ok(DistributedFidelity { source: Source::Factory(self), reduction })
    }
}
