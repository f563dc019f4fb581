//! A stack of operators on an image in shards: every rank applies all operators to its part.
//!
//! The measurements are in parts, too, so a gradient sends two messages to each neighbour: what the operators read of the image
//! beyond the part, and what their adjoints read of the residuals, those of all operators together. The sum over the operators
//! is the rank's own, in their order: the bits of a replicated image, except for blurs by Fourier transforms of the whole image,
//! which shards compute in blocks.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Context, traffic};

use super::{Workers, agree};
use crate::array::{Array, View, add_scaled, row_of, slice, slice_mut};
use crate::error::{Error, Result};
use crate::image::{
    Image, Layout, Needed, RUN, Region, Space, WindowPlan, is_empty, sum_of, totals,
};
use crate::least_squares::{self, LinearMap, NormOptions, SquaredNorm};
use crate::measurements::Measurements;
use crate::physics::{Physics, Stack, WindowPhysics, region};
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
    operators: Vec<Arc<dyn Physics>>,
    space: Arc<Space>,
    /// Of each measurement.
    measured: Vec<Arc<Space>>,
    /// What the operators read of the image, all together, and what their adjoints read of the measurements.
    image_reads: Reads,
    data_reads: Reads,
    /// Whether the normal equations of a single operator have a solution pixel by pixel.
    is_pointwise: bool,
}

/// Arrays of which this rank reads windows.
#[derive(Clone, Debug)]
struct Reads {
    needed: Vec<Needed>,
    plan: WindowPlan,
}

impl ShardedStack {
    /// The operators of a stack, for images of a space. All ranks call it.
    ///
    /// # Errors
    /// If an operator sees the whole image, or has images of another shape.
    pub fn new(stack: Stack, space: &Arc<Space>) -> Result<Self> {
        let workers = agree(space.context(), Workers::new(space.context()))?;
        Self::with(stack.into_iter().collect(), space, workers)
    }

    fn with(
        operators: Vec<Arc<dyn Physics>>,
        space: &Arc<Space>,
        workers: Workers,
    ) -> Result<Self> {
        let (ctx, batch) = (space.context(), space.whole()[0]);
        for (index, operator) in operators.iter().enumerate() {
            windowed(index, &**operator)?;
            if operator.image_shape() != &space.whole()[1..] {
                return Err(Error::Shape {
                    what: format!("the image of operator {index}"),
                    expected: format!("{:?} is in shards", &space.whole()[1..]),
                    found: operator.image_shape().to_vec(),
                });
            }
        }
        let windows = || operators.iter().filter_map(|operator| operator.as_window());
        let measured: Vec<Arc<Space>> = windows()
            .map(|operator| {
                let shape = [&[batch], operator.measurement_shape()].concat();
                let of_rank = |part: &Region| measured_region(operator, &shape, part);
                let regions = space.regions().iter().map(of_rank).collect();
                Ok(Arc::new(Space::of_regions(ctx, &shape, regions)?))
            })
            .collect::<Result<_>>()?;
        let (of_image, of_data) = needed(&operators, space, &measured);
        let (image_reads, data_reads) = (Reads::new(ctx, of_image), Reads::new(ctx, of_data));
        let is_pointwise = match &operators[..] {
            [one] => one.as_window().is_some_and(has_pointwise_solution),
            _ => false,
        };
        let space = space.clone();
        Ok(Self { workers, operators, space, measured, image_reads, data_reads, is_pointwise })
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
        bytes_sent(&self.image_reads.needed, rank, self.context().size())
    }

    /// The bytes that a rank sends for an adjoint of all operators.
    #[must_use]
    pub fn adjoint_bytes(&self, rank: usize) -> u64 {
        bytes_sent(&self.data_reads.needed, rank, self.context().size())
    }

    /// The bytes that each of so many ranks sends for a forward and for an adjoint of these operators on an image in these shards:
    /// what [`forward_bytes`](Self::forward_bytes) and [`adjoint_bytes`](Self::adjoint_bytes) are there, without the ranks.
    ///
    /// # Errors
    /// If an operator sees the whole image.
    pub fn messages(
        operators: &[Arc<dyn Physics>],
        shards: &ShardPlan,
        ranks: usize,
    ) -> Result<Vec<(u64, u64)>> {
        let (ctx, whole) = (Context::solo(), shards.image_shape());
        let part = |rank: usize| {
            let nothing = || vec![0..0; whole.len() - 2];
            let spatial = if rank < shards.count() { shards.region(rank) } else { nothing() };
            [0..whole[0], 0..whole[1]].into_iter().chain(spatial).collect::<Region>()
        };
        let space = Arc::new(Space::unaligned(&ctx, whole, (0..ranks).map(part).collect()));
        let mut measured = Vec::new();
        for (index, operator) in operators.iter().enumerate() {
            let operator = windowed(index, &**operator)?;
            let shape = [&whole[..1], operator.measurement_shape()].concat();
            let parts = space.regions().iter();
            let regions = parts.map(|part| measured_region(operator, &shape, part)).collect();
            measured.push(Arc::new(Space::unaligned(&ctx, &shape, regions)));
        }
        let (of_image, of_data) = needed(operators, &space, &measured);
        let sent = |needed: &[Needed], rank| bytes_sent(needed, rank, ranks);
        Ok((0..ranks).map(|rank| (sent(&of_image, rank), sent(&of_data, rank))).collect())
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

    /// `‖A‖²` by power iteration, with the bits of one rank.
    pub fn squared_norm(&self, options: &NormOptions) -> Result<SquaredNorm> {
        if self.space.whole()[0] == 1 {
            return least_squares::squared_norm(self, options);
        }
        // One image is enough.
        let one = Arc::new(self.space.with_batch(1)?);
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
        let rank = self.context().rank();
        let window = self.image_reads.plan.gather(&[image])?.remove(0);
        let of_window = &self.image_reads.needed[0].windows[rank][2..];
        let (planes, sides) = (image.shape()[0] * image.shape()[1], &self.space.whole()[2..]);
        let batch = image.shape()[0];
        let operators = self.operators.iter().zip(&self.measured).enumerate();
        let results = operators.map(|(index, (operator, measured))| {
            let _span = self.context().span("forward").with("operator", index as f64);
            let operator = windowed(index, &**operator)?;
            let part = &measured.own()[2..];
            let mut result = Array::zeros(measured.own_shape());
            if result.is_empty() {
                return Ok((index, result));
            }
            let reads = operator.image_reads(part);
            if reads == of_window {
                operator.forward_window(batch, part, &slice(&window), slice_mut(&mut result))?;
            } else {
                let mut read = vec![0.0; planes * region::positions(&reads)];
                let (from, to) = ((of_window, &*slice(&window)), (&reads[..], &mut read[..]));
                region::copy(planes, sides, from, to);
                operator.forward_window(batch, part, &read, slice_mut(&mut result))?;
            }
            Ok((index, result))
        });
        let results = self.workers.run(|| results.collect::<Result<Vec<_>>>());
        Measurements::partial(self.len(), agree(self.context(), results)?)
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
        let (own, batch) = (&self.space.own()[2..], self.space.whole()[0]);
        let mut sum: Option<Array> = None;
        let outcome = self.workers.run(|| {
            for (index, (operator, window)) in self.operators.iter().zip(windows).enumerate() {
                let _span = self.context().span("adjoint").with("operator", index as f64);
                let operator = windowed(index, &**operator)?;
                let mut term = Array::zeros(self.space.own_shape());
                if term.is_empty() {
                    continue;
                }
                operator.adjoint_window(batch, own, &slice(&window), slice_mut(&mut term))?;
                match &mut sum {
                    None => sum = Some(term),
                    Some(sum) => add_scaled(slice_mut(sum), 1.0, &slice(&term)),
                }
            }
            Ok::<_, Error>(())
        });
        agree(self.context(), outcome)?;
        Ok(sum.unwrap_or_else(|| Array::zeros(self.space.own_shape())))
    }
}

/// What the operators read of the image, all together, and what their adjoints read of each measurement.
fn needed(
    operators: &[Arc<dyn Physics>],
    space: &Arc<Space>,
    measured: &[Arc<Space>],
) -> (Vec<Needed>, Vec<Needed>) {
    let windows = || operators.iter().filter_map(|operator| operator.as_window());
    let sides = &space.whole()[2..];
    let of_rank = |rank: usize| {
        let read = windows().zip(measured).map(|(operator, measured)| {
            let part = &measured.regions()[rank][2..];
            if is_empty(part) { region::nothing(sides.len()) } else { operator.image_reads(part) }
        });
        let nothing = region::nothing(sides.len());
        let read = read.fold(nothing, |all, next| region::around(all, next, sides));
        with_planes(&space.whole()[..2], read)
    };
    let windows_of_image = (0..space.regions().len()).map(of_rank).collect();
    let of_data = windows().zip(measured).map(|(operator, measured)| {
        let of_part = |part: &Region| {
            let read = if is_empty(part) {
                region::nothing(measured.whole().len() - 2)
            } else {
                operator.measurement_reads(&part[2..])
            };
            with_planes(&measured.whole()[..2], read)
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

    fn data_add_scaled(
        &self,
        to: &mut Measurements,
        factor: f32,
        data: &Measurements,
    ) -> Result<()> {
        to.add_scaled(factor, data)
    }

    fn data_scale(&self, data: &mut Measurements, factor: f32) -> Result<()> {
        data.scale(factor);
        Ok(())
    }

    fn image_dot(&self, a: &Array, b: &Array) -> Result<f64> {
        let product = |[a, b]: [f32; 2]| f64::from(a) * f64::from(b);
        let share = sum_of([&slice(a), &slice(b)], row_of(a), product);
        let [total] = totals(self.context(), [share])?;
        Ok(total)
    }

    fn solve_normal(&self, b: &Array, shift: f64) -> Option<Result<Array>> {
        if !self.is_pointwise {
            return None;
        }
        let operator = self.operators.first()?.as_window()?;
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
pub(crate) fn windowed(index: usize, operator: &dyn Physics) -> Result<&dyn WindowPhysics> {
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
