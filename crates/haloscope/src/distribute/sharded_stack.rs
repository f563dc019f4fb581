//! A stack of operators on an image in shards: every rank applies all operators to its part.
//!
//! The measurements are in parts, too. Of operators that see a part of the image at a time a gradient sends two messages to each
//! neighbour: what the operators read of the image beyond the part, and what their adjoints read of the residuals, those of all
//! operators together. Operators that see everything are in `whole.rs`. The sum over the operators is the rank's own, in their
//! order: the bits of a replicated image, except for blurs by Fourier transforms of the whole image, which shards compute in
//! blocks, and for operators that see everything.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Context, ElementKind, traffic};

use super::whole::{self, Whole};
use super::{Workers, agree};
use crate::array::{Array, View, add_scaled, row_of, slice, slice_mut};
use crate::error::{Error, Result};
use crate::image::{Image, Layout, Needed, RUN, Space, WindowPlan, dot_on_ranks, sum_of};
use crate::least_squares::{self, LinearMap, NormOptions, SquaredNorm};
use crate::measurements::Measurements;
use crate::physics::{Physics, Stack, WindowPhysics, region};
use crate::region::{Region, is_empty};
use crate::tiling::{ShardPlan, Tiles};

/// Operators for images of one [`Space`]. All ranks call the same functions.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::distribute::ShardedStack;
/// use haloscope::image::{Image, Space};
/// use haloscope::physics::{Blur, Padding, Stack, kernels};
/// use haloscope::tiling::ShardPlan;
/// use haloscope_comm::Context;
/// use haloscope_nn::engine::Grain;
///
/// let image = ndarray::ArrayD::from_shape_fn(vec![1, 1, 20, 24], |at| (at[2] * at[3] % 7) as f32);
/// let blur = Blur::new(&[1, 20, 24], &kernels::uniform(&[3, 3])?, Padding::Circular)?;
/// let stack = Stack::new(vec![Arc::new(blur)])?;
/// let expected = stack.normal(&image)?;
/// let found = Context::threads(3, move |ctx| {
///     let grain = Grain { step: 1, last: 1 };
///     let space = Space::new(ctx, &ShardPlan::new(image.shape(), &[grain, grain], 3)?)?;
///     let physics = ShardedStack::new(stack.clone(), &space)?;
///     physics.normal(&Image::cut(&space, &image)?)?.gather()
/// })?;
/// assert!(found.iter().all(|found| *found == expected));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShardedStack {
    workers: Workers,
    operators: Vec<Operator>,
    space: Arc<Space>,
    /// Of each measurement.
    measured: Vec<Arc<Space>>,
    /// What the operators read of the image, all together, and what their adjoints read of the measurements.
    image_reads: Reads,
    data_reads: Reads,
    /// For each operator that sees everything what the shadows of parts are, unless they are everywhere.
    shadow_reads: Vec<Option<Reads>>,
    /// Whether the normal equations of a single operator have a solution pixel by pixel.
    is_pointwise: bool,
}

/// An operator, as far as this rank needs it.
#[derive(Clone, Debug)]
enum Operator {
    /// One that works on parts of the image with what lies around them.
    Local(Arc<dyn Physics>),
    /// One that sees everything.
    Whole(Whole),
}

/// What a rank sends and has of the measurements, before there are ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTraffic {
    /// The bytes that it sends for a forward of all operators.
    pub forward: u64,
    /// The bytes that it sends for an adjoint.
    pub adjoint: u64,
    /// The values that it has of all measurements.
    pub values: usize,
    /// The most values of a measurement that it has for a while: all, or those in the shadow of its part, of operators that see the
    /// whole image.
    pub gathered: usize,
    /// The most partial sums of a measurement that are on their way from it and to it, of parts with shadows.
    pub in_transit: usize,
    /// The values that its operators read of the image, all together: its part and what lies around it.
    pub read: usize,
    /// The values that their adjoints read of all measurements.
    pub read_back: usize,
}

/// The most grains on which an operator that sees the whole image works one after the other.
const MOST_GRAINS: usize = 256;

/// Arrays of which this rank reads windows.
#[derive(Clone, Debug)]
struct Reads {
    needed: Vec<Needed>,
    plan: WindowPlan,
}

impl ShardedStack {
    /// The operators of a stack, for images of a space. All ranks call it.
    ///
    /// Operators that see the whole image work on one grain of the space's [plan](ShardPlan::grains) after the other, so the bits of
    /// their results depend on the grains; [`coarse_grains`](crate::tiling::coarse_grains) are few and large.
    ///
    /// # Errors
    /// If an operator is not linear, sees the whole image and has no parts, or has images of another shape.
    pub fn new(stack: Stack, space: &Arc<Space>) -> Result<Self> {
        let workers = agree(space.context(), Workers::new(space.context()))?;
        let mut operators = Vec::new();
        for (index, operator) in stack.into_iter().enumerate() {
            if operator.image_shape() != &space.whole()[1..] {
                return Err(Error::Shape {
                    what: format!("the image of operator {index}"),
                    expected: format!("{:?} is in shards", &space.whole()[1..]),
                    found: operator.image_shape().to_vec(),
                });
            }
            operators.push(if operator.as_window().is_some() {
                Operator::Local(operator)
            } else {
                let plan = plan_of(space)?;
                Operator::Whole(Whole::new(index, &*operator, space, plan, &workers)?)
            });
        }
        Self::with(operators, space, workers)
    }

    fn with(operators: Vec<Operator>, space: &Arc<Space>, workers: Workers) -> Result<Self> {
        let (ctx, batch) = (space.context(), space.whole()[0]);
        let measured: Vec<Arc<Space>> = operators
            .iter()
            .enumerate()
            .map(|(index, operator)| {
                let shape = [&[batch], operator.measurement_shape()].concat();
                let regions = match operator {
                    Operator::Whole(operator) => whole::regions(index, &shape, operator.shadows()),
                    Operator::Local(_) => local_regions(operator.window(), &shape, space),
                };
                Ok(Arc::new(Space::of_regions(ctx, &shape, regions)?))
            })
            .collect::<Result<_>>()?;
        Ok(Self::of(operators, measured, space, workers))
    }

    /// The stack of these operators alone, with the same parts of their measurements; they are counted anew.
    pub(crate) fn subset(&self, indices: &[usize]) -> Self {
        let operators = indices.iter().map(|index| self.operators[*index].clone());
        let measured = indices.iter().map(|index| self.measured[*index].clone());
        Self::of(operators.collect(), measured.collect(), &self.space, self.workers.clone())
    }

    fn of(
        operators: Vec<Operator>,
        measured: Vec<Arc<Space>>,
        space: &Arc<Space>,
        workers: Workers,
    ) -> Self {
        let ctx = space.context();
        let windows: Vec<_> = operators.iter().map(Operator::window).collect();
        let (of_image, of_data) = needed(&windows, space, &measured);
        let (image_reads, data_reads) = (Reads::new(ctx, of_image), Reads::new(ctx, of_data));
        let shadow_reads = operators.iter().zip(&measured).map(|(operator, measured)| {
            let Operator::Whole(operator) = operator else { return None };
            let needed = whole::needed(operator.shadows(), measured)?;
            Some(Reads::new(ctx, vec![needed]))
        });
        let shadow_reads = shadow_reads.collect();
        let is_pointwise = match &windows[..] {
            [Some(one)] => has_pointwise_solution(*one),
            _ => false,
        };
        let space = space.clone();
        Self {
            workers,
            operators,
            space,
            measured,
            image_reads,
            data_reads,
            shadow_reads,
            is_pointwise,
        }
    }

    /// The images' space.
    #[must_use]
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// The space of each operator's measurement.
    #[must_use]
    pub fn measured(&self) -> &[Arc<Space>] {
        &self.measured
    }

    /// How many operators there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operators.len()
    }

    /// Never: a stack has at least one operator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }

    /// The ranks.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.space.context()
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The bytes that a rank sends for a forward of all operators.
    #[must_use]
    pub fn forward_bytes(&self, rank: usize) -> u64 {
        self.traffic(rank).forward
    }

    /// The bytes that a rank sends for an adjoint of all operators.
    #[must_use]
    pub fn adjoint_bytes(&self, rank: usize) -> u64 {
        self.traffic(rank).adjoint
    }

    fn traffic(&self, rank: usize) -> RankTraffic {
        let shadows: Vec<Shadow> = (self.operators.iter().zip(&self.shadow_reads))
            .map(|(operator, reads)| match operator {
                Operator::Local(_) => Shadow::Window,
                Operator::Whole(_) => match reads {
                    Some(reads) => Shadow::Some(reads.needed[0].clone()),
                    None => Shadow::Everywhere,
                },
            })
            .collect();
        let (of_image, of_data) = (&self.image_reads.needed, &self.data_reads.needed);
        traffic_of(&shadows, &self.measured, of_image, of_data, rank)
    }

    /// What each of so many ranks sends and has of the measurements of these operators on an image in these shards:
    /// what [`forward_bytes`](Self::forward_bytes) and [`adjoint_bytes`](Self::adjoint_bytes) are there, without the ranks.
    ///
    /// # Errors
    /// If an operator is not linear, or sees the whole image and has no parts.
    pub fn messages(
        operators: &[Arc<dyn Physics>],
        shards: &ShardPlan,
        ranks: usize,
    ) -> Result<Vec<RankTraffic>> {
        let (ctx, whole) = (Context::solo(), shards.image_shape());
        let space = Space::outline(shards, ranks);
        let (mut measured, mut shadows) = (Vec::new(), Vec::new());
        for (index, operator) in operators.iter().enumerate() {
            let shape = [&whole[..1], operator.measurement_shape()].concat();
            let of_regions = |regions| Arc::new(Space::unaligned(&ctx, &shape, regions));
            if operator.as_window().is_some() {
                measured.push(of_regions(local_regions(operator.as_window(), &shape, &space)));
                shadows.push(Shadow::Window);
                continue;
            }
            check_grains(shards)?;
            let pixel = vec![0..1; whole.len() - 2];
            whole::restricted(index, &**operator, &pixel)?;
            let of_parts = whole::shadows(&**operator, &space);
            let regions = of_regions(whole::regions(index, &shape, &of_parts));
            shadows
                .push(whole::needed(&of_parts, &regions).map_or(Shadow::Everywhere, Shadow::Some));
            measured.push(regions);
        }
        let windows: Vec<_> = operators.iter().map(|operator| operator.as_window()).collect();
        let (of_image, of_data) = needed(&windows, &space, &measured);
        let of_rank = |rank| traffic_of(&shadows, &measured, &of_image, &of_data, rank);
        Ok((0..ranks).map(of_rank).collect())
    }

    /// This rank's part of what each operator measures.
    pub fn forward(&self, image: &Image) -> Result<Measurements> {
        self.check_image(image)?;
        self.forward_part(image.local())
    }

    /// This rank's part of `Aᵀy`, from its parts of the measurements.
    pub fn adjoint(&self, measurements: &Measurements) -> Result<Image> {
        Image::sharded(&self.space, self.adjoint_part(measurements)?)
    }

    /// This rank's part of `AᵀA x`.
    pub fn normal(&self, image: &Image) -> Result<Image> {
        self.adjoint(&self.forward(image)?)
    }

    /// `‖A‖²` by Lanczos' method, with the bits of one rank.
    pub fn squared_norm(&self, options: &NormOptions) -> Result<SquaredNorm> {
        if self.space.whole()[0] == 1 {
            return least_squares::squared_norm(self, options);
        }
        // One image is enough.
        let one = Arc::new(self.space.with_batch(1));
        let one = Self::with(self.operators.clone(), &one, self.workers.clone())?;
        least_squares::squared_norm(&one, options)
    }

    /// Refuses images of other spaces.
    pub(crate) fn check_image(&self, image: &Image) -> Result<()> {
        if matches!(image.layout(), Layout::Sharded(space) if *space == self.space) {
            return Ok(());
        }
        Err(Error::argument(
            "image",
            format!(
                "one of shape {:?}, {:?} of it here, was met by operators for {:?}, {:?} of it here; cut the image as \
                 the operators are",
                image.shape(),
                image.region(),
                self.space.whole(),
                self.space.own()
            ),
        ))
    }

    pub(crate) fn forward_part(&self, image: &Array) -> Result<Measurements> {
        let ctx = self.context();
        let window = self.image_reads.plan.gather(&[image])?.remove(0);
        let has_whole = self.operators.iter().any(|operator| operator.window().is_none());
        let largest = if has_whole { whole::largest(ctx, image)? } else { 0.0 };
        let mut results = Vec::new();
        // A rank that fails goes on to where all ranks talk about it.
        let mut failed = Ok(());
        for (index, (operator, measured)) in self.operators.iter().zip(&self.measured).enumerate() {
            let _span = ctx.span("forward").with("operator", index as f64);
            let result = match operator {
                Operator::Whole(operator) => {
                    let failed = std::mem::replace(&mut failed, Ok(()));
                    let windows = self.shadow_reads[index].as_ref().map(|reads| &reads.plan);
                    let measured = (&**measured, windows);
                    operator.forward((image, largest), measured, &self.workers, failed)?
                }
                Operator::Local(_) if failed.is_err() => continue,
                Operator::Local(operator) => {
                    let mut result = Array::zeros(measured.own_shape());
                    let forward =
                        || self.forward_window(&**operator, measured, &window, &mut result);
                    failed = self.workers.run(forward);
                    result
                }
            };
            results.push((index, result));
        }
        Measurements::partial(self.len(), agree(ctx, failed.map(|()| results))?)
    }

    /// A part of what an operator measures, from a window of the image that all operators read together.
    fn forward_window(
        &self,
        operator: &dyn Physics,
        measured: &Space,
        window: &Array,
        result: &mut Array,
    ) -> Result<()> {
        let Some(operator) = operator.as_window().filter(|_| !result.is_empty()) else {
            return Ok(());
        };
        let of_window = &self.image_reads.needed[0].windows[self.context().rank()][2..];
        let (batch, sides) = (self.space.whole()[0], &self.space.whole()[2..]);
        let planes = batch * self.space.whole()[1];
        let part = &measured.own()[2..];
        let reads = operator.image_reads(part);
        if reads == of_window {
            return operator.forward_window(batch, part, &slice(window), slice_mut(result));
        }
        let mut read = vec![0.0; planes * region::positions(&reads)];
        let (from, to) = ((of_window, &*slice(window)), (&reads[..], &mut read[..]));
        region::copy(planes, sides, from, to);
        operator.forward_window(batch, part, &read, slice_mut(result))
    }

    pub(crate) fn adjoint_part(&self, measurements: &Measurements) -> Result<Array> {
        let parts: Vec<&Array> = (0..self.len())
            .map(|index| {
                let part = measurements.get(index);
                part.filter(|part| part.shape() == self.measured[index].own_shape()).ok_or_else(
                    || {
                        let expected = self.measured[index].own_shape();
                        let reason = format!(
                            "this rank's part of measurement {index}, {expected:?}, is not there"
                        );
                        Error::argument("stack", reason)
                    },
                )
            })
            .collect::<Result<_>>()?;
        let views: Vec<&View> = parts.iter().map(|part| &***part).collect();
        let windows = self.data_reads.plan.gather(&views)?;
        let (ctx, own_shape) = (self.context(), self.space.own_shape());
        let (own, batch) = (&self.space.own()[2..], self.space.whole()[0]);
        let mut sum: Option<Array> = None;
        // A rank that fails goes on with its messages, so that nobody waits for it; in the end all know.
        let mut outcome = Ok(());
        for (index, (operator, window)) in self.operators.iter().zip(windows).enumerate() {
            let _span = ctx.span("adjoint").with("operator", index as f64);
            let gathered = match operator {
                Operator::Whole(_) => match &self.shadow_reads[index] {
                    Some(reads) => reads.plan.gather(&[views[index]])?.remove(0),
                    None => Whole::gather(parts[index], &self.measured[index])?,
                },
                Operator::Local(_) => window,
            };
            if is_empty(self.space.own()) || outcome.is_err() {
                continue;
            }
            let term = self.workers.run(|| match operator {
                Operator::Whole(operator) => operator.adjoint(&gathered, &own_shape, ctx.rank()),
                Operator::Local(operator) => {
                    let operator = windowed(index, &**operator)?;
                    let mut term = Array::zeros(&own_shape[..]);
                    let to = slice_mut(&mut term);
                    operator.adjoint_window(batch, own, &slice(&gathered), to)?;
                    Ok(term)
                }
            });
            match (term, &mut sum) {
                (Ok(term), None) => sum = Some(term),
                (Ok(term), Some(sum)) => add_scaled(slice_mut(sum), 1.0, &slice(&term)),
                (Err(error), _) => outcome = Err(error),
            }
        }
        agree(ctx, outcome)?;
        Ok(sum.unwrap_or_else(|| Array::zeros(own_shape)))
    }
}

impl Operator {
    fn window(&self) -> Option<&dyn WindowPhysics> {
        match self {
            Self::Local(operator) => operator.as_window(),
            Self::Whole(_) => None,
        }
    }

    /// The shape of its measurement, without the batch.
    fn measurement_shape(&self) -> &[usize] {
        match self {
            Self::Local(operator) => operator.measurement_shape(),
            Self::Whole(operator) => operator.measurement_shape(),
        }
    }
}

/// The plan by which a space was cut, which says what its grains are.
fn plan_of(space: &Space) -> Result<&ShardPlan> {
    let plan = space.plan().ok_or_else(|| {
        Error::argument("shards", "the parts of operators that see the whole image need a plan")
    })?;
    check_grains(plan).map(|()| plan)
}

/// Refuses grains that are too many to work on one after the other.
fn check_grains(plan: &ShardPlan) -> Result<()> {
    let count = plan.grain_count();
    if count <= MOST_GRAINS {
        return Ok(());
    }
    let reason = format!(
        "the image has {count} grains, and operators that see the whole image work on one after the other; cut it at          `coarse_grains`, or at other grains of which there are at most {MOST_GRAINS}"
    );
    Err(Error::argument("shards", reason))
}

/// What each rank has of a measurement of an operator that works on parts: what belongs to its part of the image.
fn local_regions(
    window: Option<&dyn WindowPhysics>,
    shape: &[usize],
    space: &Space,
) -> Vec<Region> {
    let nothing = || shape.iter().map(|_| 0..0).collect();
    let of_part =
        |part| window.map_or_else(nothing, |operator| measured_region(operator, shape, part));
    space.regions().iter().map(of_part).collect()
}

/// What an operator needs of its measurement for a part of the image.
enum Shadow {
    /// A window, as it says itself.
    Window,
    /// What lies in the shadow of the part.
    Some(Needed),
    /// Everything.
    Everywhere,
}

/// What a rank sends and has, where some operators see the whole image.
fn traffic_of(
    shadows: &[Shadow],
    measured: &[Arc<Space>],
    of_image: &[Needed],
    of_data: &[Needed],
    rank: usize,
) -> RankTraffic {
    let ranks = measured.first().map_or(1, |space| space.regions().len());
    let volume = |region: &Region| region.iter().map(Range::len).product::<usize>();
    let mut all = RankTraffic {
        forward: bytes_sent(of_image, rank, ranks),
        adjoint: bytes_sent(of_data, rank, ranks),
        values: measured.iter().map(|space| volume(&space.regions()[rank])).sum(),
        gathered: 0,
        in_transit: 0,
        read: of_image.iter().map(|needed| needed.window_len(rank)).sum(),
        read_back: of_data.iter().map(|needed| needed.window_len(rank)).sum(),
    };
    for (shadow, space) in shadows.iter().zip(measured) {
        let needed = match shadow {
            Shadow::Window => continue,
            Shadow::Some(needed) => Some(needed),
            Shadow::Everywhere => None,
        };
        let (forward, adjoint) = whole::bytes_sent(space, needed, rank);
        all.forward += forward;
        all.adjoint += adjoint;
        let all_of_it = || space.whole().iter().product();
        all.gathered = all.gathered.max(needed.map_or_else(all_of_it, |it| it.window_len(rank)));
        if let Some(needed) = needed {
            let needed = std::slice::from_ref(needed);
            let bytes =
                WindowPlan::bytes_sent(needed, rank) + WindowPlan::bytes_received(needed, rank);
            all.in_transit = all.in_transit.max(bytes as usize / size_of::<f32>());
        }
    }
    if ranks > 1 && shadows.iter().any(|shadow| !matches!(shadow, Shadow::Window)) {
        // The largest value of the image.
        all.forward += traffic::all_reduce(ElementKind::F32, 1, ranks)[rank];
    }
    all
}

/// What the operators read of the image, all together, and what their adjoints read of each measurement: nothing for those
/// that see the whole image.
fn needed(
    windows: &[Option<&dyn WindowPhysics>],
    space: &Arc<Space>,
    measured: &[Arc<Space>],
) -> (Vec<Needed>, Vec<Needed>) {
    let sides = &space.whole()[2..];
    let of_rank = |rank: usize| {
        let read = windows.iter().zip(measured).map(|(operator, measured)| {
            let part = &measured.regions()[rank];
            match operator {
                Some(operator) if !is_empty(part) => operator.image_reads(&part[2..]),
                _ => region::nothing(sides.len()),
            }
        });
        let nothing = region::nothing(sides.len());
        let read = read.fold(nothing, |all, next| region::around(all, next, sides));
        with_planes(&space.whole()[..2], read)
    };
    let windows_of_image = (0..space.regions().len()).map(of_rank).collect();
    let of_data = windows.iter().zip(measured).map(|(operator, measured)| {
        let of_part = |part: &Region| match operator {
            Some(operator) if !is_empty(part) => {
                with_planes(&measured.whole()[..2], operator.measurement_reads(&part[2..]))
            }
            _ => region::nothing(measured.whole().len()),
        };
        let windows = space.regions().iter().map(of_part).collect();
        Needed { space: measured.clone(), windows }
    });
    (vec![Needed { space: space.clone(), windows: windows_of_image }], of_data.collect())
}

impl Reads {
    fn new(ctx: &Context, needed: Vec<Needed>) -> Self {
        Self { plan: WindowPlan::new(ctx, &needed), needed }
    }
}

impl LinearMap for ShardedStack {
    type Data = Measurements;

    fn image_shape(&self) -> &[usize] {
        &self.space.whole()[1..]
    }

    fn image_of(&self, element: &dyn Fn(u64) -> f32) -> Array {
        let (whole, own) = (self.space.whole(), self.space.own());
        Array::from_shape_fn(self.space.own_shape(), |at| {
            let place = |axis: usize| own[axis].start + at[axis];
            let index = (0..whole.len()).fold(0, |index, axis| index * whole[axis] + place(axis));
            element(index as u64)
        })
    }

    fn forward(&self, image: &Array) -> Result<Measurements> {
        self.forward_part(image)
    }

    fn adjoint(&self, data: &Measurements) -> Result<Array> {
        self.adjoint_part(data)
    }

    fn data_squared_norm(&self, data: &Measurements) -> Result<f64> {
        let square =
            |part: &Array| sum_of([&slice(part)], row_of(part), |[a]| f64::from(a) * f64::from(a));
        let sums = data.iter().map(|(_, part)| square(part)).collect();
        let totals = Layout::Sharded(self.space.clone()).totals_of(sums)?;
        Ok(totals.iter().sum())
    }

    fn image_dot(&self, a: &Array, b: &Array) -> Result<f64> {
        dot_on_ranks(self.context(), a, b)
    }

    fn solve_normal(&self, b: &Array, shift: f64) -> Option<Result<Array>> {
        if !self.is_pointwise {
            return None;
        }
        let operator = self.operators.first()?.window()?;
        let mut solution = Array::zeros(b.raw_dim());
        if b.is_empty() {
            return Some(Ok(solution));
        }
        let (own, batch) = (&self.space.own()[2..], b.shape()[0]);
        let to = slice_mut(&mut solution);
        let solved = operator.solve_normal_window(batch, own, &slice(b), shift, to)?;
        Some(solved.map(|()| solution))
    }
}

/// What a rank sends of its part to those that need it, and with which all agree that none of them has failed.
fn bytes_sent(needed: &[Needed], rank: usize, ranks: usize) -> u64 {
    let agreement = if ranks > 1 { traffic::all_gather(&vec![1; ranks])[rank] } else { 0 };
    WindowPlan::bytes_sent(needed, rank) + agreement
}

/// The operator as one that works on parts.
fn windowed(index: usize, operator: &dyn Physics) -> Result<&dyn WindowPhysics> {
    operator.as_window().ok_or_else(|| {
        Error::argument(
            "shards",
            format!(
                "operator {index} ({}) sees the whole image, so images cannot be in shards; use a replicated image",
                operator.name()
            ),
        )
    })
}

/// What belongs to a part of the image, cut between columns at multiples of [`RUN`], so that no run of a sum is divided.
fn measured_region(operator: &dyn WindowPhysics, shape: &[usize], part: &Region) -> Region {
    let mut region: Region = [0..shape[0], 0..shape[1]].into();
    if is_empty(part) {
        region.extend(vec![0..0; shape.len() - 2]);
        return region;
    }
    region.extend(operator.measurement_region(&part[2..]));
    if let (Some(columns), Some(&side)) = (region.last_mut(), shape.last()) {
        let aligned = |cut: usize| cut.next_multiple_of(RUN).min(side);
        *columns = aligned(columns.start)..aligned(columns.end);
    }
    region
}

fn with_planes(planes: &[usize], window: Vec<Range<isize>>) -> Vec<Range<isize>> {
    planes.iter().map(|planes| 0..*planes as isize).chain(window).collect()
}

/// Whether the normal equations of an operator can be solved pixel by pixel, tried on one pixel.
pub(crate) fn has_pointwise_solution(operator: &dyn WindowPhysics) -> bool {
    let channels = operator.image_shape()[0];
    let pixel = vec![0..1; operator.image_shape().len() - 1];
    let mut solution = vec![0.0; channels];
    operator.solve_normal_window(1, &pixel, &vec![0.0; channels], 1.0, &mut solution).is_some()
}
