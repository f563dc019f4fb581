//! The alignment, receptive radius and smallest size of a network, and the cost of a run. They are
//! derived from the graph, so they hold for any model.
//!
//! Every spatial axis is treated separately. The size of a node's value is `ratio · n + offset`
//! for an input of `n` pixels; the denominators of the ratios give the alignment. The radius comes
//! from following one output pixel backwards as an interval of pixels of each node, for each of
//! the output pixels within one period of the alignment.

use crate::error::{Error, Result};
use crate::network::{Network, NodeId};
use crate::op::{Op, UpsampleMode};
use crate::shape::Shape;

/// The geometry of a network whose output is as large as its input. Lists have one entry per
/// spatial axis.
///
/// ```
/// use haloscope_nn::models::{Architecture, Drunet};
/// use haloscope_nn::Footprint;
///
/// let small = Drunet { channels: [4, 4, 4, 4], blocks: 1, ..Drunet::default() };
/// let footprint = Footprint::of(small.random(0)?.network())?;
/// assert_eq!(footprint.alignment, [8, 8]);
/// assert_eq!(footprint.minimum, [8, 8]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Sizes must be multiples of this, or pixels are lost to strides that round down.
    pub alignment: Vec<usize>,
    /// An output pixel depends on no input pixel further away than this, and on one this far when
    /// the layers mix all channels and no weight is zero. A [foreign](Op::Foreign) network counts as 0: nobody knows.
    pub radius: Vec<usize>,
    /// The smallest multiple of the alignment that the network can run on.
    pub minimum: Vec<usize>,
}

impl Footprint {
    /// The footprint of a network.
    pub fn of(network: &Network) -> Result<Self> {
        let mut footprint = Self { alignment: vec![], radius: vec![], minimum: vec![] };
        for axis in 0..network.rank() {
            let alignment = alignment(network, axis)?;
            footprint.alignment.push(alignment);
            footprint.radius.push(radius(network, axis, alignment));
            footprint.minimum.push(minimum(network, axis, alignment)?);
        }
        Ok(footprint)
    }

    /// The smallest sizes, at least `spatial`, that are aligned and not below the minimum.
    #[must_use]
    pub fn aligned(&self, spatial: &[usize]) -> Vec<usize> {
        let axes = spatial.iter().zip(&self.alignment).zip(&self.minimum);
        axes.map(|((size, alignment), minimum)| size.next_multiple_of(*alignment).max(*minimum))
            .collect()
    }
}

/// What running a network once on an input of some shape takes, by the definition of its
/// operations; an engine may need fewer multiplications and other buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCost {
    /// Multiplications with a weight, each followed by an addition.
    pub multiply_adds: u64,
    /// Bytes of weights and biases.
    pub weight_bytes: u64,
    /// Bytes of all nodes' values together, the input's included.
    pub value_bytes: u64,
    /// The most bytes of values alive at once when nodes run in order, each writes memory of its
    /// own, and memory is given back after its last reader.
    pub peak_value_bytes: u64,
}

impl NetworkCost {
    /// The cost of running `network` on an input of shape `input`.
    pub fn of(network: &Network, input: &Shape) -> Result<Self> {
        let shapes = network.infer(input)?;
        let bytes = |id: NodeId| (shapes[id.index()].count() as u64) * 4;
        let mut readers = network.uses();
        let mut alive: u64 = 0;
        let mut cost = Self { weight_bytes: (network.parameters() as u64) * 4, ..Self::default() };
        for id in network.ids() {
            let node = network.node(id);
            let from = node.inputs().first().map_or(input, |first| &shapes[first.index()]);
            cost.multiply_adds = cost.multiply_adds.saturating_add(multiply_adds(
                node.op(),
                from,
                &shapes[id.index()],
            ));
            cost.value_bytes = cost.value_bytes.saturating_add(bytes(id));
            alive = alive.saturating_add(bytes(id));
            let inside = match node.op() {
                Op::Foreign(foreign) => foreign.value_bytes(from),
                _ => 0,
            };
            cost.peak_value_bytes = cost.peak_value_bytes.max(alive.saturating_add(inside));
            for read in node.inputs() {
                readers[read.index()] -= 1;
                if readers[read.index()] == 0 {
                    alive = alive.saturating_sub(bytes(*read));
                }
            }
        }
        Ok(cost)
    }
}

fn multiply_adds(op: &Op, from: &Shape, to: &Shape) -> u64 {
    let taps = |kernel: &[usize]| kernel.iter().map(|&size| size as u64).product::<u64>();
    match op {
        Op::Conv(conv) => {
            (to.count() as u64).saturating_mul(taps(conv.kernel()) * conv.inputs() as u64)
        }
        Op::ConvTranspose(conv) => {
            (from.count() as u64).saturating_mul(taps(conv.kernel()) * conv.outputs() as u64)
        }
        Op::Foreign(foreign) => foreign.multiply_adds(from),
        _ => 0,
    }
}

/// The size of a node's value: `numerator · n / denominator + offset`, in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SizeLaw {
    numerator: i128,
    denominator: i128,
    offset: i128,
}

impl SizeLaw {
    const SAME: Self = Self { numerator: 1, denominator: 1, offset: 0 };

    fn grown(self, factor: usize, offset: i128) -> Self {
        Self::reduced(self.numerator * factor as i128, self.denominator, offset)
    }

    fn shrunk(self, factor: usize, offset: i128) -> Self {
        Self::reduced(self.numerator, self.denominator * factor as i128, offset)
    }

    fn reduced(numerator: i128, denominator: i128, offset: i128) -> Self {
        let common = gcd(numerator, denominator);
        Self { numerator: numerator / common, denominator: denominator / common, offset }
    }

    /// The law after `op`, for inputs that are multiples of the new denominator.
    fn after(self, op: &Op, axis: usize) -> Self {
        let offset = self.offset;
        let windows = |kernel: usize, stride: usize, padding: usize| {
            let first = offset + 2 * padding as i128 - kernel as i128;
            self.shrunk(stride, first.div_euclid(stride as i128) + 1)
        };
        match op {
            Op::Conv(conv) => windows(conv.kernel()[axis], conv.stride[axis], conv.padding[axis]),
            Op::Pool(pool) => windows(pool.size[axis], pool.stride[axis], 0),
            Op::ConvTranspose(conv) => {
                let stride = conv.stride[axis];
                let rest = conv.kernel()[axis] as i128 - 2 * conv.padding[axis] as i128;
                self.grown(stride, (offset - 1) * stride as i128 + rest)
            }
            Op::Upsample { factor, .. } | Op::PixelShuffle(factor) => {
                self.grown(*factor, offset * *factor as i128)
            }
            Op::PixelUnshuffle(factor) => self.shrunk(*factor, offset.div_euclid(*factor as i128)),
            Op::Input { .. }
            | Op::Activation(_)
            | Op::Add
            | Op::Concat
            | Op::Affine { .. }
            | Op::Scale(_)
            | Op::Foreign(_) => self,
        }
    }
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The law of every node's size, and the least common multiple of what all strides need.
fn laws(network: &Network, axis: usize) -> Result<(Vec<SizeLaw>, i128)> {
    // Far beyond any model; it keeps the products below from overflowing.
    const MOST: i128 = 1 << 24;
    let mut laws: Vec<SizeLaw> = Vec::with_capacity(network.nodes().len());
    let mut alignment: i128 = 1;
    for id in network.ids() {
        let node = network.node(id);
        let incoming = node.inputs().first().map_or(SizeLaw::SAME, |first| laws[first.index()]);
        if let Some(other) = node.inputs().iter().find(|other| laws[other.index()] != incoming) {
            return Err(network.fault(
                id,
                format!(
                    "its inputs `{}` and `{}` have different sizes on axis {axis}, whatever the \
                     size of the image",
                    network.node(node.inputs()[0]).name(),
                    network.node(*other).name()
                ),
            ));
        }
        let law = incoming.after(node.op(), axis);
        let own = match node.op() {
            Op::Foreign(foreign) => foreign.alignment() as i128,
            _ => law.denominator,
        };
        alignment = alignment / gcd(alignment, own) * own;
        if alignment > MOST || law.numerator > MOST {
            return Err(network.fault(
                id,
                format!("strides up to here multiply to more than {MOST} on axis {axis}"),
            ));
        }
        laws.push(law);
    }
    Ok((laws, alignment))
}

/// The least common multiple of what all strides need.
fn alignment(network: &Network, axis: usize) -> Result<usize> {
    let (laws, alignment) = laws(network, axis)?;
    let output = network.output();
    if laws[output.index()] != SizeLaw::SAME {
        let law = laws[output.index()];
        return Err(network.fault(
            output,
            format!(
                "the output has {}/{}·n{:+} pixels on axis {axis} for an input of n; a footprint \
                 needs an output as large as the input",
                law.numerator, law.denominator, law.offset
            ),
        ));
    }
    usize::try_from(alignment).map_err(|_| Error::Argument {
        what: "footprint",
        reason: format!("alignment {alignment} is out of range"),
    })
}

/// The smallest aligned size on which every node can run.
fn minimum(network: &Network, axis: usize, alignment: usize) -> Result<usize> {
    // Each failed attempt is a padding or kernel larger than some level, so this ends soon.
    const ATTEMPTS: usize = 1 << 16;
    let mut last = None;
    for multiple in 1..=ATTEMPTS {
        match network.infer_axis(axis, multiple * alignment) {
            Ok(_) => return Ok(multiple * alignment),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("there was an attempt"))
}

/// For every node, how many of its pixels belong to how many of the input's; nothing for nodes that lose or gain pixels at
/// the edges, whose parts cannot be told apart by that.
pub(crate) fn scales(network: &Network, axis: usize) -> Result<Vec<Option<(usize, usize)>>> {
    let scale = |law: SizeLaw| {
        let pair = (usize::try_from(law.numerator), usize::try_from(law.denominator));
        if let (0, (Ok(numerator), Ok(denominator))) = (law.offset, pair) {
            return Some((numerator, denominator));
        }
        None
    };
    Ok(laws(network, axis)?.0.into_iter().map(scale).collect())
}

/// How many pixels before the first and beyond the last of its input an operation reads on an axis.
pub(crate) fn reach(op: &Op, axis: usize, inputs: usize, outputs: usize) -> [usize; 2] {
    let [Ok(inputs), Ok(outputs)] = [inputs, outputs].map(i64::try_from) else { return [0; 2] };
    let Some((first, last)) = needed_by(op, axis, (0, outputs - 1)) else { return [0; 2] };
    [-first, last + 1 - inputs].map(|pixels| usize::try_from(pixels).unwrap_or(0))
}

/// The pixels of a node between two positions, both included.
type Interval = (i64, i64);

/// The largest distance from an output pixel to an input pixel that it depends on.
fn radius(network: &Network, axis: usize, alignment: usize) -> usize {
    let period = i64::try_from(alignment).unwrap_or(i64::MAX);
    let reach = (0..period).filter_map(|pixel| {
        let (low, high) = dependence(network, axis, pixel)?;
        Some((pixel - low).max(high - pixel).max(0))
    });
    usize::try_from(reach.max().unwrap_or(0)).unwrap_or(usize::MAX)
}

/// The input pixels that `pixel` of the output depends on, in an image without borders.
fn dependence(network: &Network, axis: usize, pixel: i64) -> Option<Interval> {
    let mut needed: Vec<Option<Interval>> = vec![None; network.nodes().len()];
    needed[network.output().index()] = Some((pixel, pixel));
    for id in network.ids().rev() {
        let node = network.node(id);
        let Some(interval) = needed[id.index()] else { continue };
        let Some((low, high)) = needed_by(node.op(), axis, interval) else { continue };
        for input in node.inputs() {
            let hull =
                needed[input.index()].map_or((low, high), |(l, h)| (l.min(low), h.max(high)));
            needed[input.index()] = Some(hull);
        }
    }
    needed[0]
}

/// The pixels of its input that an operation reads to make `low..=high`.
#[allow(clippy::cast_possible_wrap)] // kernels, strides and factors are small
fn needed_by(op: &Op, axis: usize, (low, high): Interval) -> Option<Interval> {
    let windows = |kernel: usize, stride: usize, padding: usize| {
        let (kernel, stride, padding) = (kernel as i64, stride as i64, padding as i64);
        (low * stride - padding, high * stride - padding + kernel - 1)
    };
    Some(match op {
        Op::Conv(conv) => windows(conv.kernel()[axis], conv.stride[axis], conv.padding[axis]),
        Op::Pool(pool) => windows(pool.size[axis], pool.stride[axis], 0),
        Op::ConvTranspose(conv) => {
            // Output o gets input i where o = i·stride − padding + tap.
            let (kernel, stride) = (conv.kernel()[axis] as i64, conv.stride[axis] as i64);
            let padding = conv.padding[axis] as i64;
            let first = -(-(low + padding - (kernel - 1))).div_euclid(stride);
            let last = (high + padding).div_euclid(stride);
            if first > last {
                return None;
            }
            (first, last)
        }
        Op::Upsample { factor, mode: UpsampleMode::Linear } => {
            // The position in the input is (2·o + 1 − factor) / (2·factor); an exact hit reads one
            // pixel, anything else the two around it.
            let factor = *factor as i64;
            let (first, last) = (2 * low + 1 - factor, 2 * high + 1 - factor);
            (first.div_euclid(2 * factor), -(-last).div_euclid(2 * factor))
        }
        Op::Upsample { factor, mode: UpsampleMode::Nearest } | Op::PixelShuffle(factor) => {
            let factor = *factor as i64;
            (low.div_euclid(factor), high.div_euclid(factor))
        }
        Op::PixelUnshuffle(factor) => {
            let factor = *factor as i64;
            (low * factor, high * factor + factor - 1)
        }
        Op::Input { .. }
        | Op::Activation(_)
        | Op::Add
        | Op::Concat
        | Op::Affine { .. }
        | Op::Scale(_)
        | Op::Foreign(_) => (low, high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::NetworkBuilder;
    use crate::op::{Conv, ConvTranspose, Pool, PoolKind};
    use crate::reference::run_reference;
    use crate::tensor::Tensor;

    fn ones<const N: usize>(sizes: [usize; N]) -> Tensor {
        Tensor::filled(Shape::new(sizes).expect("small"), 1.0)
    }

    fn conv(kernel: usize, stride: usize, padding: usize) -> Op {
        Op::Conv(Conv::new(ones([1, 1, kernel, kernel])).stride(stride).padding(padding))
    }

    fn transpose(kernel: usize, stride: usize, padding: usize) -> Op {
        let weight = ones([1, 1, kernel, kernel]);
        Op::ConvTranspose(ConvTranspose::new(weight).stride(stride).padding(padding))
    }

    /// The operations one after the other, and the input added to the last.
    fn chain(ops: Vec<Op>) -> Network {
        let mut builder = NetworkBuilder::new("chain", 2).expect("rank 2");
        let input = builder.input(1).expect("first");
        let mut last = input;
        for (index, op) in ops.into_iter().enumerate() {
            last = builder.push(format!("op{index}"), op, &[last]).expect("fits");
        }
        let sum = builder.push("sum", Op::Add, &[last, input]).expect("fits");
        builder.finish(sum).expect("used")
    }

    /// The largest distance at which a single bright pixel lights up an output pixel.
    fn measured_radius(network: &Network, footprint: &Footprint) -> usize {
        let height = footprint.minimum[0];
        let width = footprint.aligned(&[0, 2 * footprint.radius[1] + 1])[1];
        let width = width + 2 * footprint.alignment[1];
        let shape = Shape::new([1, 1, height, width]).expect("small");
        let mut radius = 0;
        for bright in 0..width {
            for row in 0..height {
                let mut values = vec![0.0; shape.count()];
                values[row * width + bright] = 1.0;
                let input = Tensor::new(shape.clone(), values).expect("fits");
                let output = run_reference(network, &input).expect("runs");
                for (at, value) in output.values().iter().enumerate() {
                    if *value != 0.0 {
                        radius = radius.max((at % width).abs_diff(bright));
                    }
                }
            }
        }
        radius
    }

    #[test]
    fn radius_is_exactly_how_far_a_pixel_reaches() {
        let up = |mode| Op::Upsample { factor: 2, mode };
        let pool = |kind| Op::Pool(Pool::new(kind, 2, 2));
        let mix = Op::Conv(Conv::new(ones([9, 9, 1, 1])));
        let cases = [
            (vec![conv(3, 1, 1), conv(5, 1, 2)], 1),
            (vec![conv(2, 2, 0), conv(3, 1, 1), transpose(2, 2, 0)], 2),
            (vec![conv(2, 2, 0), conv(2, 2, 0), transpose(2, 2, 0), transpose(2, 2, 0)], 4),
            (vec![conv(3, 2, 1), transpose(4, 2, 1)], 2),
            (vec![pool(PoolKind::Max), up(UpsampleMode::Nearest), conv(3, 1, 1)], 2),
            (vec![pool(PoolKind::Average), up(UpsampleMode::Linear)], 2),
            (vec![Op::PixelUnshuffle(3), mix, Op::PixelShuffle(3), conv(3, 1, 1)], 3),
            (vec![transpose(2, 2, 0), conv(3, 1, 1), conv(2, 2, 0)], 1),
        ];
        for (index, (ops, alignment)) in cases.into_iter().enumerate() {
            let network = chain(ops);
            let footprint = Footprint::of(&network).expect("same size");
            assert_eq!(footprint.alignment, [alignment; 2], "case {index}");
            let radius = measured_radius(&network, &footprint);
            assert_eq!(footprint.radius, [radius; 2], "case {index}");
        }
    }

    #[test]
    fn minimum_is_where_every_level_still_fits() {
        let mut builder = NetworkBuilder::new("deep", 2).expect("rank 2");
        let input = builder.input(1).expect("first");
        let down = builder.push("down", conv(2, 2, 0), &[input]).expect("fits");
        let wide = Conv::new(ones([1, 1, 7, 7])).padding(3).mode(crate::PaddingMode::Reflect);
        let wide = builder.conv("wide", wide, down).expect("fits");
        let up = builder.push("up", transpose(2, 2, 0), &[wide]).expect("fits");
        let footprint = Footprint::of(&builder.finish(up).expect("used")).expect("same size");
        assert_eq!((footprint.alignment[0], footprint.minimum[0]), (2, 8));
        assert_eq!(footprint.aligned(&[3, 9]), [8, 10]);
    }

    #[test]
    fn output_of_another_size_has_no_footprint() {
        let mut builder = NetworkBuilder::new("shrinking", 2).expect("rank 2");
        let input = builder.input(1).expect("first");
        let valid = builder.push("valid", conv(3, 1, 0), &[input]).expect("fits");
        let error = Footprint::of(&builder.finish(valid).expect("used")).expect_err("shrinks");
        assert!(error.to_string().contains("1/1·n-2 pixels on axis 0"), "{error}");
    }

    #[test]
    fn cost_counts_what_the_definition_multiplies_and_holds() {
        let network = chain(vec![conv(2, 2, 0), conv(3, 1, 1), transpose(2, 2, 0)]);
        let shape = Shape::new([2, 1, 8, 8]).expect("small");
        let cost = NetworkCost::of(&network, &shape).expect("fits");
        // Per image: 16 windows of 4, 16 of 9, and 16 pixels spread over 4.
        assert_eq!(cost.multiply_adds, 2 * (16 * 4 + 16 * 9 + 16 * 4));
        assert_eq!(cost.weight_bytes, 4 * (4 + 9 + 4));
        assert_eq!(cost.value_bytes, 4 * 2 * (64 + 16 + 16 + 64 + 64));
        // The last sum holds the input, the upsampled image and itself.
        assert_eq!(cost.peak_value_bytes, 4 * 2 * 3 * 64);
    }
}
