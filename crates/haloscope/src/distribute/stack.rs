//! A stack of operators over ranks.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Collectives, Context};
use haloscope_nn::Stop;
use ndarray::IxDyn;

use super::agree::agree;
use super::factory::Factory;
use super::rounds::{self, rounds};
use super::terms::Terms;
use super::workers::Workers;
use super::{Assignment, Distribute, Gather};
use crate::array::{Array, View, add_scaled, slice, slice_mut, standard};
use crate::error::{Error, Result};
use crate::measurements::Measurements;
use crate::noise::{Noise, NoiseSource};
use crate::physics::{LinearPhysics, Physics, Stack};
use crate::words::count;

/// How a stack is distributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackOptions {
    /// Which rank owns which operator.
    pub assignment: Assignment,
    /// How measurements are gathered.
    pub gather: Gather,
}

/// A [`Stack`] over ranks, used like one: all ranks call the same function with the same image.
///
/// Measurements may be complete or only those of the rank's own operators, so that no rank need hold all
/// of them. Each operation exists in two forms: under its own name it brings the result to all ranks; as
/// `…_terms` it leaves that choice to the caller.
///
/// See [`distribute`](super::distribute) for an example.
#[derive(Clone, Debug)]
pub struct DistributedStack {
    ctx: Context,
    workers: Workers,
    local: Vec<(usize, Arc<dyn Physics>)>,
    owners: Vec<usize>,
    /// The order in which terms are computed and added up, unless all are computed first.
    rounds: Option<Vec<Range<usize>>>,
    image_shape: Vec<usize>,
    measurement_shapes: Vec<Vec<usize>>,
    is_linear: bool,
    gather: Gather,
}

impl DistributedStack {
    /// How many operators there are on all ranks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Never: a stack has at least one operator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The rank of each operator.
    #[must_use]
    pub fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// The operators that this rank owns.
    #[must_use]
    pub fn local_indices(&self) -> impl ExactSizeIterator<Item = usize> {
        self.local.iter().map(|(index, _)| *index)
    }

    /// The operators that this rank owns, with their indices.
    #[must_use]
    pub fn local_operators(&self) -> &[(usize, Arc<dyn Physics>)] {
        &self.local
    }

    /// The shape of an image, without the batch: (channel, spatial…).
    #[must_use]
    pub fn image_shape(&self) -> &[usize] {
        &self.image_shape
    }

    /// The shape of each operator's measurement, without the batch.
    #[must_use]
    pub fn measurement_shapes(&self) -> &[Vec<usize>] {
        &self.measurement_shapes
    }

    /// Whether all operators on all ranks are linear.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        self.is_linear
    }

    /// The ranks.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// The threads of this rank.
    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// What all operators measure of the images, without noise.
    pub fn forward(&self, image: &View) -> Result<Measurements> {
        self.forward_terms(image)?.gather()
    }

    /// What the rank's own operators measure.
    pub fn forward_terms(&self, image: &View) -> Result<Terms<'_>> {
        self.map_measurements("forward", image, |_, operator| operator.forward(image))
    }

    /// What all operators measure of the images, with noise: one kind for all operators, or one for
    /// each. It is the same on any number of ranks.
    pub fn measure(&self, image: &View, noise: &[Noise], seed: u64) -> Result<Measurements> {
        self.measure_terms(image, noise, seed)?.gather()
    }

    /// What the rank's own operators measure, with noise.
    pub fn measure_terms(&self, image: &View, noise: &[Noise], seed: u64) -> Result<Terms<'_>> {
        if noise.len() != 1 && noise.len() != self.len() {
            let (kinds, operators) = (count(noise.len(), "kind"), count(self.len(), "operator"));
            let reason = format!("{kinds} for {operators}; give one, or one for each");
            return Err(Error::argument("noise", reason));
        }
        let mut terms = self.forward_terms(image)?;
        if let Ok(local) = &mut terms.local {
            let add = || {
                local.iter_mut().try_for_each(|(index, part)| {
                    let source = NoiseSource { seed, operator: index as u32 };
                    noise[index.min(noise.len() - 1)].add(part, source)
                })
            };
            if let Err(error) = self.workers.run(add) {
                terms.local = Err(error);
            }
        }
        Ok(terms)
    }

    /// `Aᵀ y = Σ Aᵢᵀ yᵢ`.
    pub fn adjoint(&self, measurements: &Measurements) -> Result<Array> {
        self.check_linear("adjoint")?;
        self.check_count(measurements)?;
        let batch = self.batch(measurements)?;
        self.sum_images("adjoint", batch, |index, operator| {
            linear(index, operator)?.adjoint(part(measurements, index)?)
        })
    }

    /// The stack of these operators alone, which are on the same ranks and are counted anew.
    pub(super) fn subset(&self, indices: &[usize]) -> Self {
        let place = |index: usize| indices.iter().position(|of_subset| *of_subset == index);
        let local = self.local.iter();
        let local = local.filter_map(|(index, own)| Some((place(*index)?, own.clone()))).collect();
        let owners: Vec<usize> = indices.iter().map(|index| self.owners[*index]).collect();
        let shapes = indices.iter().map(|index| self.measurement_shapes[*index].clone());
        Self {
            local,
            rounds: rounds(&owners),
            owners,
            measurement_shapes: shapes.collect(),
            ..self.clone()
        }
    }

    /// `Aᵢᵀ yᵢ` of the rank's own operators.
    pub fn adjoint_terms(&self, measurements: &Measurements) -> Result<Terms<'_>> {
        self.check_linear("adjoint")?;
        self.check_count(measurements)?;
        let batch = self.batch(measurements)?;
        Ok(self.map_to_images("adjoint", batch, |index, operator| {
            linear(index, operator)?.adjoint(part(measurements, index)?)
        }))
    }

    /// `Σ Jᵢᵀ vᵢ`, where `Jᵢ` is the derivative of operator i at `image`.
    pub fn vjp(&self, image: &View, v: &Measurements) -> Result<Array> {
        let batch = self.check_image(image)?;
        self.check_count(v)?;
        self.sum_images("adjoint", batch, |index, operator| operator.vjp(image, part(v, index)?))
    }

    /// `Jᵢᵀ vᵢ` of the rank's own operators.
    pub fn vjp_terms(&self, image: &View, v: &Measurements) -> Result<Terms<'_>> {
        let batch = self.check_image(image)?;
        self.check_count(v)?;
        let vjp = |index: usize, operator: &dyn Physics| operator.vjp(image, part(v, index)?);
        Ok(self.map_to_images("adjoint", batch, vjp))
    }

    /// `AᵀA x = Σ AᵢᵀAᵢ x`.
    pub fn normal(&self, image: &View) -> Result<Array> {
        self.check_linear("normal")?;
        let batch = self.check_image(image)?;
        self.sum_images("normal", batch, |index, operator| linear(index, operator)?.normal(image))
    }

    /// `AᵢᵀAᵢ x` of the rank's own operators.
    pub fn normal_terms(&self, image: &View) -> Result<Terms<'_>> {
        self.check_linear("normal")?;
        let batch = self.check_image(image)?;
        let normal = |index, operator: &dyn Physics| linear(index, operator)?.normal(image);
        Ok(self.map_to_images("normal", batch, normal))
    }

    /// `AAᵀ y`.
    pub fn gram(&self, measurements: &Measurements) -> Result<Measurements> {
        self.forward(&self.adjoint(measurements)?)
    }

    /// `(AAᵀ y)ᵢ` of the rank's own operators; the adjoint in it is summed over all ranks.
    pub fn gram_terms(&self, measurements: &Measurements) -> Result<Terms<'_>> {
        self.forward_terms(&self.adjoint(measurements)?)
    }

    /// Applies `f` to the rank's own operators, to make of each what it measures of `image`, or something of that shape;
    /// `name` is for traces.
    pub(crate) fn map_measurements(
        &self,
        name: &'static str,
        image: &View,
        f: impl Fn(usize, &dyn Physics) -> Result<Array> + Send + Sync,
    ) -> Result<Terms<'_>> {
        let batch = self.check_image(image)?;
        let shapes = self.measurement_shapes.iter().map(|shape| with_batch(batch, shape));
        Ok(self.map(name, shapes.collect(), f))
    }

    /// Applies `f` to the rank's own operators, to make an image of each; `name` is for traces.
    pub(crate) fn map_to_images(
        &self,
        name: &'static str,
        batch: usize,
        f: impl Fn(usize, &dyn Physics) -> Result<Array> + Send + Sync,
    ) -> Terms<'_> {
        self.map(name, vec![with_batch(batch, &self.image_shape); self.len()], f)
    }

    /// The sum over all operators of the images that `f` makes of them: the bits of [`Terms::sum`], without the images of all of
    /// the rank's operators at once. `name` is for traces.
    pub(crate) fn sum_images(
        &self,
        name: &'static str,
        batch: usize,
        f: impl Fn(usize, &dyn Physics) -> Result<Array> + Send + Sync,
    ) -> Result<Array> {
        let shape = with_batch(batch, &self.image_shape);
        match &self.rounds {
            _ if self.ctx.size() == 1 => self.workers.run(|| {
                let terms = self.local.iter();
                let terms = terms.map(|(index, operator)| self.term(name, *index, operator, &f));
                add_up(&shape, terms)
            }),
            None => self.map_to_images(name, batch, f).sum(),
            Some(rounds) => rounds::sum(&self.ctx, &self.owners, rounds, &shape, |index| {
                self.own_term(name, index, &f)
            }),
        }
    }

    /// This rank's segment of that sum, where the ranks own these segments of the image. `arrived` is room that the next sum can
    /// use again.
    pub(super) fn sum_segment(
        &self,
        name: &'static str,
        batch: usize,
        segments: &[Range<usize>],
        arrived: &mut Vec<Vec<f32>>,
        f: impl Fn(usize, &dyn Physics) -> Result<Array> + Send + Sync,
    ) -> Result<Vec<f32>> {
        let shape = with_batch(batch, &self.image_shape);
        let Some(rounds) = &self.rounds else {
            let sum = self.map_to_images(name, batch, f).sum()?;
            return Ok(slice(&sum)[segments[self.ctx.rank()].clone()].to_vec());
        };
        let term = |index| self.own_term(name, index, &f);
        rounds::own_segment(&self.ctx, &self.owners, rounds, segments, arrived, &shape, term)
    }

    /// What `f` makes of one of the rank's own operators, in the rank's threads.
    fn own_term(
        &self,
        name: &'static str,
        index: usize,
        f: &(impl Fn(usize, &dyn Physics) -> Result<Array> + Send + Sync),
    ) -> Result<Array> {
        let own = self.local.iter().find(|(own, _)| *own == index);
        let (_, operator) = own.expect("a rank is asked for terms of its own operators");
        self.workers.run(|| self.term(name, index, operator, f))
    }

    fn term(
        &self,
        name: &'static str,
        index: usize,
        operator: &Arc<dyn Physics>,
        f: &impl Fn(usize, &dyn Physics) -> Result<Array>,
    ) -> Result<Array> {
        Stop::check()?;
        let _span = self.ctx.span(name).with("operator", index as f64);
        f(index, &**operator)
    }

    /// Applies `f` to the rank's own operators, one after the other: each shares its work with the
    /// rank's threads.
    pub(crate) fn map(
        &self,
        name: &'static str,
        shapes: Vec<Vec<usize>>,
        f: impl Fn(usize, &dyn Physics) -> Result<Array> + Send + Sync,
    ) -> Terms<'_> {
        let apply = || {
            let operators = self.local.iter();
            let results = operators
                .map(|(index, operator)| Ok((*index, self.term(name, *index, operator, &f)?)));
            Measurements::partial(self.len(), results.collect::<Result<Vec<_>>>()?)
        };
        let local = self.workers.run(apply);
        self.terms(shapes, local)
    }

    /// Terms of these shapes, of which the rank has its own.
    pub(super) fn terms(&self, shapes: Vec<Vec<usize>>, local: Result<Measurements>) -> Terms<'_> {
        Terms { ctx: &self.ctx, how: self.gather, owners: &self.owners, shapes, local }
    }

    /// A number for each of the rank's own operators.
    pub(crate) fn map_values(
        &self,
        f: impl Fn(usize, &dyn Physics) -> Result<f64> + Send + Sync,
    ) -> Result<Vec<(usize, f64)>> {
        let operators = self.local.iter();
        let values = operators.map(|(index, operator)| Ok((*index, f(*index, &**operator)?)));
        self.workers.run(|| values.collect())
    }

    /// The number of images in a batch, which all ranks see alike.
    pub(crate) fn check_image(&self, image: &View) -> Result<usize> {
        let shape = image.shape();
        if shape.len() == self.image_shape.len() + 1
            && shape[1..] == self.image_shape
            && shape[0] > 0
        {
            return Ok(shape[0]);
        }
        Err(Error::Shape {
            what: "the image of the stack".into(),
            expected: format!(
                "a batch of {:?} is expected: (batch, channel, spatial…)",
                self.image_shape
            ),
            found: shape.to_vec(),
        })
    }

    /// Refuses measurements that are not of this stack's number of operators.
    pub(crate) fn check_count(&self, measurements: &Measurements) -> Result<()> {
        if measurements.len() == self.len() {
            return Ok(());
        }
        let (parts, operators) = (measurements.len(), self.len());
        let (parts, operators) = (count(parts, "measurement"), count(operators, "operator"));
        let reason = format!("{parts} for {operators}; give one for each");
        Err(Error::argument("stack", reason))
    }

    pub(crate) fn check_linear(&self, operation: &'static str) -> Result<()> {
        if self.is_linear {
            return Ok(());
        }
        Err(Error::argument(
            operation,
            "not all operators of the stack are linear; `vjp` is for those",
        ))
    }

    /// The batch of the measurements, which a rank without operators must ask the others for.
    pub(crate) fn batch(&self, measurements: &Measurements) -> Result<usize> {
        let mine = measurements
            .iter()
            .next()
            .map_or(0, |(_, part)| part.shape().first().copied().unwrap_or(0));
        // Complete measurements, or an operator on every rank: nobody needs to ask, and all know it.
        let everyone_knows = (0..self.ctx.size()).all(|rank| self.owners.contains(&rank));
        if everyone_knows {
            return Ok(mine);
        }
        let mut most = [mine as u64];
        self.ctx.comm().all_reduce(haloscope_comm::Reduction::Max, &mut most)?;
        Ok(most[0] as usize)
    }

    fn new(
        ctx: &Context,
        owners: Vec<usize>,
        local: Vec<(usize, Arc<dyn Physics>)>,
        gather: Gather,
    ) -> Result<Self> {
        let workers = agree(ctx, Workers::new(ctx))?;
        let shapes = agree(ctx, exchange_shapes(ctx, owners.len(), &local))?;
        let is_linear = shapes.iter().all(|shapes| shapes.is_linear);
        let image_shape = shapes[0].image.clone();
        if let Some(index) = shapes.iter().position(|shapes| shapes.image != image_shape) {
            return Err(Error::Shape {
                what: format!("the image of operator {index}"),
                expected: format!("{image_shape:?} is expected, as of operator 0"),
                found: shapes[index].image.clone(),
            });
        }
        let measurement_shapes = shapes.into_iter().map(|shapes| shapes.measurement).collect();
        let (ctx, rounds) = (ctx.clone(), rounds(&owners));
        Ok(Self {
            ctx,
            workers,
            local,
            owners,
            rounds,
            image_shape,
            measurement_shapes,
            is_linear,
            gather,
        })
    }
}

impl Distribute for Stack {
    type Options = StackOptions;
    type Output = DistributedStack;

    fn distribute(self, ctx: &Context, options: StackOptions) -> Result<DistributedStack> {
        self.into_iter().collect::<Vec<_>>().distribute(ctx, options)
    }
}

impl Distribute for Vec<Arc<dyn Physics>> {
    type Options = StackOptions;
    type Output = DistributedStack;

    fn distribute(self, ctx: &Context, options: StackOptions) -> Result<DistributedStack> {
        check_not_empty(self.len())?;
        let costs = || Some(self.iter().map(|operator| operator.cost()).collect());
        let owners = options.assignment.owners(self.len(), ctx, costs)?;
        let own = self
            .into_iter()
            .enumerate()
            .filter(|(index, _)| owners[*index] == ctx.rank())
            .collect();
        DistributedStack::new(ctx, owners, own, options.gather)
    }
}

impl Distribute for Factory {
    type Options = StackOptions;
    type Output = DistributedStack;

    fn distribute(self, ctx: &Context, options: StackOptions) -> Result<DistributedStack> {
        check_not_empty(self.count)?;
        let owners = options.assignment.owners(self.count, ctx, || None)?;
        let shared = self.shared.broadcast(ctx)?;
        let own = (0..self.count).filter(|index| owners[*index] == ctx.rank());
        let made = own.map(|index| Ok((index, (self.make)(index, ctx, &shared)?))).collect();
        DistributedStack::new(ctx, owners, agree(ctx, made)?, options.gather)
    }
}

fn check_not_empty(count: usize) -> Result<()> {
    if count == 0 {
        return Err(Error::argument("stack", "there are no operators; at least one is needed"));
    }
    Ok(())
}

/// What all ranks know of an operator.
#[derive(Default)]
struct Shapes {
    is_linear: bool,
    image: Vec<usize>,
    measurement: Vec<usize>,
}

/// What each rank knows of its own operators, for all of them.
fn exchange_shapes(
    ctx: &Context,
    count: usize,
    local: &[(usize, Arc<dyn Physics>)],
) -> Result<Vec<Shapes>> {
    let mut words: Vec<u64> = Vec::new();
    for (index, operator) in local {
        let (image, measurement) = (operator.image_shape(), operator.measurement_shape());
        words.extend([*index as u64, u64::from(operator.as_linear().is_some())]);
        for shape in [image, measurement] {
            words.push(shape.len() as u64);
            words.extend(shape.iter().map(|size| *size as u64));
        }
    }
    let mut shapes: Vec<Shapes> = (0..count).map(|_| Shapes::default()).collect();
    for words in ctx.comm().all_gather(&words)? {
        let mut words = words.into_iter().map(|word| word as usize);
        let mut next = || words.next();
        while let (Some(index), Some(is_linear)) = (next(), next()) {
            let mut shape = || -> Option<Vec<usize>> {
                let axes = next()?;
                (0..axes).map(|_| next()).collect()
            };
            let (Some(image), Some(measurement)) = (shape(), shape()) else { break };
            shapes[index] = Shapes { is_linear: is_linear == 1, image, measurement };
        }
    }
    Ok(shapes)
}

/// The sum of terms of a shape, from the first to the last, of which two exist at a time.
fn add_up(shape: &[usize], terms: impl Iterator<Item = Result<Array>>) -> Result<Array> {
    let mut sum: Option<Array> = None;
    for term in terms {
        let term = check_term(term?, shape)?;
        match &mut sum {
            None => sum = Some(term),
            Some(sum) => add_scaled(slice_mut(sum), 1.0, &slice(&term)),
        }
    }
    Ok(sum.unwrap_or_else(|| Array::zeros(IxDyn(shape))))
}

/// A term of a sum, in standard layout, if it has the shape of the others.
pub(super) fn check_term(term: Array, shape: &[usize]) -> Result<Array> {
    if term.shape() == shape {
        return Ok(standard(term));
    }
    Err(Error::Shape {
        what: "a term of the sum".into(),
        expected: format!("{shape:?} is expected, as of the others"),
        found: term.shape().to_vec(),
    })
}

pub(super) fn with_batch(batch: usize, shape: &[usize]) -> Vec<usize> {
    std::iter::once(batch).chain(shape.iter().copied()).collect()
}

pub(crate) fn linear(index: usize, operator: &dyn Physics) -> Result<&dyn LinearPhysics> {
    operator.as_linear().ok_or_else(|| {
        let reason = format!("operator {index} ({}) is not linear", operator.name());
        Error::argument("stack", reason)
    })
}

/// The measurement of an operator, which must be on the rank that owns it.
pub(crate) fn part(measurements: &Measurements, index: usize) -> Result<&Array> {
    measurements.get(index).ok_or_else(|| {
        let reason = format!("the measurement of operator {index} is not on the rank that owns it");
        Error::argument("stack", reason)
    })
}
