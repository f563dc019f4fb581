//! Runs a network by the definitions of its operations, slowly and in any precision: the oracle
//! that engines and models are tested against. Use it for small images only.
//!
//! Two dimensions are three with a depth of 1, so each operation is written once.

use crate::error::Result;
use crate::foreign::Foreign;
use crate::network::{Network, Node};
use crate::op::{Conv, ConvTranspose, Op, PaddingMode, Pool, PoolKind, UpsampleMode};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The network's value for `input`, computed in `f64` throughout and rounded once at the end.
///
/// ```
/// use haloscope_nn::{Conv, NetworkBuilder, Shape, Tensor, run_reference};
///
/// let mut builder = NetworkBuilder::new("sums", 2)?;
/// let input = builder.input(1)?;
/// let ones = Tensor::filled(Shape::new([1, 1, 3, 3])?, 1.0);
/// let sums = builder.conv("sums", Conv::new(ones).padding(1), input)?;
/// let network = builder.finish(sums)?;
///
/// let output = run_reference(&network, &Tensor::filled(Shape::new([1, 1, 2, 3])?, 1.0))?;
/// assert_eq!(output.values(), [4.0, 6.0, 4.0, 4.0, 6.0, 4.0]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
pub fn run_reference(network: &Network, input: &Tensor) -> Result<Tensor> {
    let (shape, values) = run_reference_as::<f64>(network, input)?;
    let values: Vec<f32> = values.into_iter().map(Accumulate::to_f32).collect();
    Tensor::new(shape, values)
}

/// As [`run_reference`], with every value and sum in `T`.
pub fn run_reference_as<T: Accumulate>(
    network: &Network,
    input: &Tensor,
) -> Result<(Shape, Vec<T>)> {
    Foreign::check_none(network, "reference")?;
    let shapes = network.infer(input.shape())?;
    let mut readers = network.uses();
    let mut values: Vec<Vec<T>> = Vec::with_capacity(shapes.len());
    for id in network.ids() {
        let node = network.node(id);
        let value = if node.inputs().is_empty() {
            input.values().iter().map(|&value| T::from_f32(value)).collect()
        } else {
            let from: Vec<Image<'_, T>> = (node.inputs().iter())
                .map(|input| Image::new(&shapes[input.index()], &values[input.index()]))
                .collect();
            run_node(node, &from, &shapes[id.index()])
        };
        values.push(value);
        for read in node.inputs() {
            readers[read.index()] -= 1;
            if readers[read.index()] == 0 {
                values[read.index()] = Vec::new();
            }
        }
    }
    let output = network.output().index();
    Ok((shapes[output].clone(), std::mem::take(&mut values[output])))
}

/// A number that the reference computes in: `f32` or `f64`.
pub trait Accumulate:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::AddAssign
    + sealed::Sealed
{
    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
    /// The number, exactly.
    fn to_f64(self) -> f64;
    /// The number, exactly.
    #[must_use]
    fn from_f32(value: f32) -> Self {
        Self::from_f64(f64::from(value))
    }
    /// The nearest `f32`.
    #[allow(clippy::cast_possible_truncation)] // the rounding is the purpose
    fn to_f32(self) -> f32 {
        self.to_f64() as f32
    }
}

impl Accumulate for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
    fn to_f64(self) -> f64 {
        self
    }
}

impl Accumulate for f32 {
    #[allow(clippy::cast_possible_truncation)] // the rounding is the purpose
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Three sizes of which the first is 1 in two dimensions.
type Sizes = [usize; 3];

/// A batch of volumes.
#[derive(Clone, Copy)]
struct Image<'a, T> {
    batch: usize,
    channels: usize,
    size: Sizes,
    values: &'a [T],
}

impl<'a, T: Accumulate> Image<'a, T> {
    fn new(shape: &Shape, values: &'a [T]) -> Self {
        let size = three(shape.spatial(), 1);
        Self { batch: shape.batch(), channels: shape.channels(), size, values }
    }

    /// The pixels of one channel of one member of the batch.
    fn plane(&self, batch: usize, channel: usize) -> &'a [T] {
        let pixels = count(self.size);
        &self.values[(batch * self.channels + channel) * pixels..][..pixels]
    }
}

/// Pads a list of two with `missing` in front.
fn three(list: &[usize], missing: usize) -> Sizes {
    match *list {
        [depth, height, width] => [depth, height, width],
        [height, width] => [missing, height, width],
        _ => unreachable!("networks have two or three spatial axes"),
    }
}

fn count(size: Sizes) -> usize {
    size.iter().product()
}

/// All positions in a box, last axis fastest.
fn positions(size: Sizes) -> impl Iterator<Item = Sizes> {
    (0..size[0]).flat_map(move |depth| {
        (0..size[1]).flat_map(move |row| (0..size[2]).map(move |column| [depth, row, column]))
    })
}

fn offset(size: Sizes, at: Sizes) -> usize {
    (at[0] * size[1] + at[1]) * size[2] + at[2]
}

fn run_node<T: Accumulate>(node: &Node, from: &[Image<'_, T>], to: &Shape) -> Vec<T> {
    let first = &from[0];
    let size = three(to.spatial(), 1);
    let each = |map: &dyn Fn(T) -> T| first.values.iter().map(|&value| map(value)).collect();
    let planes = |make: &dyn Fn(usize, usize) -> Vec<T>| {
        (0..to.batch())
            .flat_map(|batch| (0..to.channels()).map(move |channel| (batch, channel)))
            .flat_map(|(batch, channel)| make(batch, channel))
            .collect()
    };
    match node.op() {
        Op::Input { .. } => first.values.to_vec(),
        Op::Conv(conv) => planes(&|batch, output| conv_plane(conv, first, size, batch, output)),
        Op::ConvTranspose(conv) => {
            planes(&|batch, output| transpose_plane(conv, first, size, batch, output))
        }
        Op::Activation(activation) => each(&|x| T::from_f64(activation.apply(x.to_f64()))),
        Op::Foreign(_) => unreachable!("refused before"),
        Op::Scale(factor) => each(&|x| x * T::from_f32(*factor)),
        Op::Add => from[1..].iter().fold(first.values.to_vec(), |mut sum, other| {
            sum.iter_mut().zip(other.values).for_each(|(sum, &value)| *sum += value);
            sum
        }),
        Op::Concat => {
            let of_batch = |batch: usize| {
                from.iter().flat_map(move |image| {
                    (0..image.channels).flat_map(move |channel| image.plane(batch, channel))
                })
            };
            (0..first.batch).flat_map(of_batch).copied().collect()
        }
        Op::Affine { scale, shift } => planes(&|batch, channel| {
            let scale = T::from_f32(scale.values()[channel]);
            let shift = T::from_f32(shift.values()[channel]);
            first.plane(batch, channel).iter().map(|&x| x * scale + shift).collect()
        }),
        Op::Pool(pool) => planes(&|batch, channel| {
            pool_plane(pool, first.size, first.plane(batch, channel), size)
        }),
        Op::Upsample { factor, mode } => planes(&|batch, channel| {
            let plane = first.plane(batch, channel);
            let factor = three(&vec![*factor; to.spatial().len()], 1);
            positions(size).map(|at| interpolate(plane, first.size, factor, *mode, at)).collect()
        }),
        Op::PixelShuffle(factor) => {
            let block = three(&vec![*factor; to.spatial().len()], 1);
            planes(&|batch, channel| {
                let source = |at: Sizes| {
                    let within = [at[0] % block[0], at[1] % block[1], at[2] % block[2]];
                    let whole = [at[0] / block[0], at[1] / block[1], at[2] / block[2]];
                    let channel = channel * count(block) + offset(block, within);
                    first.plane(batch, channel)[offset(first.size, whole)]
                };
                positions(size).map(source).collect()
            })
        }
        Op::PixelUnshuffle(factor) => {
            let block = three(&vec![*factor; to.spatial().len()], 1);
            planes(&|batch, channel| {
                let plane = first.plane(batch, channel / count(block));
                let within = channel % count(block);
                let within = [
                    within / (block[1] * block[2]),
                    within / block[2] % block[1],
                    within % block[2],
                ];
                let source = |at: Sizes| {
                    let from: [usize; 3] =
                        std::array::from_fn(|axis| at[axis] * block[axis] + within[axis]);
                    plane[offset(first.size, from)]
                };
                positions(size).map(source).collect()
            })
        }
    }
}

/// One output channel: for each input channel and tap, the shifted input times one weight.
fn conv_plane<T: Accumulate>(
    conv: &Conv,
    from: &Image<'_, T>,
    size: Sizes,
    batch: usize,
    output: usize,
) -> Vec<T> {
    let window = Window::new(conv.kernel(), &conv.stride, &conv.padding);
    let kernel = window.kernel;
    let mut plane = constant(conv.bias.as_ref(), output, size);
    for tap in positions(kernel) {
        // For each axis, the output positions that see a pixel under this tap, and which.
        let [depths, rows, columns]: [Vec<(usize, usize)>; 3] = std::array::from_fn(|axis| {
            let pair = |at: usize| {
                let position = window.position(axis, at, tap);
                Some((at, conv.mode.source(position, from.size[axis])?))
            };
            (0..size[axis]).filter_map(pair).collect()
        });
        for input in 0..from.channels {
            let weight = (output * from.channels + input) * count(kernel) + offset(kernel, tap);
            let weight = T::from_f32(conv.weight.values()[weight]);
            let source = from.plane(batch, input);
            let lines = depths.iter().flat_map(|depth| rows.iter().map(move |row| (depth, row)));
            for ((depth, from_depth), (row, from_row)) in lines {
                let line = &mut plane[offset(size, [*depth, *row, 0])..][..size[2]];
                let source = &source[offset(from.size, [*from_depth, *from_row, 0])..];
                for (column, from_column) in &columns {
                    line[*column] += weight * source[*from_column];
                }
            }
        }
    }
    plane
}

/// One output channel: every input pixel adds a weighted kernel where it lands.
fn transpose_plane<T: Accumulate>(
    conv: &ConvTranspose,
    from: &Image<'_, T>,
    size: Sizes,
    batch: usize,
    output: usize,
) -> Vec<T> {
    let window = Window::new(conv.kernel(), &conv.stride, &conv.padding);
    let kernel = window.kernel;
    let mut plane = constant(conv.bias.as_ref(), output, size);
    for input in 0..from.channels {
        let source = from.plane(batch, input);
        let weights = &conv.weight.values()[(input * conv.outputs() + output) * count(kernel)..];
        for (tap, &weight) in positions(kernel).zip(weights) {
            let weight = T::from_f32(weight);
            for (at, &value) in positions(from.size).zip(source) {
                let target = |axis: usize| {
                    PaddingMode::Zero.source(window.position(axis, at[axis], tap), size[axis])
                };
                if let (Some(depth), Some(row), Some(column)) = (target(0), target(1), target(2)) {
                    plane[offset(size, [depth, row, column])] += weight * value;
                }
            }
        }
    }
    plane
}

/// Where the windows of a convolution are: in its input, or in the output of a transposed one.
struct Window {
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
}

impl Window {
    fn new(kernel: &[usize], stride: &[usize], padding: &[usize]) -> Self {
        Self { kernel: three(kernel, 1), stride: three(stride, 1), padding: three(padding, 0) }
    }

    /// The position on an axis of a tap of the window with number `at`; it may be outside.
    fn position(&self, axis: usize, at: usize, tap: Sizes) -> isize {
        let position = (at * self.stride[axis] + tap[axis]).cast_signed();
        position - self.padding[axis].cast_signed()
    }
}

/// An output channel before anything is added: its bias, or zero.
fn constant<T: Accumulate>(bias: Option<&Tensor>, output: usize, size: Sizes) -> Vec<T> {
    vec![T::from_f32(bias.map_or(0.0, |bias| bias.values()[output])); count(size)]
}

fn pool_plane<T: Accumulate>(pool: &Pool, from: Sizes, plane: &[T], size: Sizes) -> Vec<T> {
    let (window, stride) = (three(&pool.size, 1), three(&pool.stride, 1));
    let value = |at: Sizes| {
        let values = positions(window).map(|tap| {
            let position: Sizes = std::array::from_fn(|axis| at[axis] * stride[axis] + tap[axis]);
            plane[offset(from, position)]
        });
        match pool.kind {
            PoolKind::Average => {
                let share = T::from_f64(1.0 / count(window) as f64);
                values.fold(T::from_f64(0.0), |sum, value| sum + value) * share
            }
            PoolKind::Max => values.fold(T::from_f64(f64::NEG_INFINITY), |most, value| {
                if value > most || value.to_f64().is_nan() { value } else { most }
            }),
        }
    };
    positions(size).map(value).collect()
}

fn interpolate<T: Accumulate>(
    plane: &[T],
    from: Sizes,
    factor: Sizes,
    mode: UpsampleMode,
    at: Sizes,
) -> T {
    // On each axis, two input positions and how much the second counts.
    let neighbours: [(usize, usize, f64); 3] = std::array::from_fn(|axis| match mode {
        UpsampleMode::Nearest => (at[axis] / factor[axis], 0, 0.0),
        UpsampleMode::Linear => {
            // (2·at + 1 − factor) / (2·factor), not before the first pixel's centre
            let numerator = (2 * at[axis] + 1).saturating_sub(factor[axis]);
            let below = numerator / (2 * factor[axis]);
            let fraction = (numerator % (2 * factor[axis])) as f64 / (2 * factor[axis]) as f64;
            (below, (below + 1).min(from[axis] - 1), fraction)
        }
    });
    let mut sum = T::from_f64(0.0);
    for corner in positions([2; 3]) {
        let mut weight = 1.0;
        let position: Sizes = std::array::from_fn(|axis| {
            let (below, above, fraction) = neighbours[axis];
            weight *= if corner[axis] == 0 { 1.0 - fraction } else { fraction };
            if corner[axis] == 0 { below } else { above }
        });
        if weight > 0.0 {
            sum += T::from_f64(weight) * plane[offset(from, position)];
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::NetworkBuilder;
    use crate::op::Activation;

    fn tensor<const N: usize>(sizes: [usize; N], values: Vec<f32>) -> Tensor {
        Tensor::new(Shape::new(sizes).expect("small"), values).expect("as many as the shape says")
    }

    /// 0, 1, 2, … in the given shape.
    fn counting<const N: usize>(sizes: [usize; N]) -> Tensor {
        let count = sizes.iter().product::<usize>();
        tensor(sizes, (0u16..).take(count).map(f32::from).collect())
    }

    /// The value of a network of one operation.
    fn run(op: Op, input: &Tensor) -> Tensor {
        let mut builder = NetworkBuilder::new("one", input.shape().spatial().len()).expect("rank");
        let from = builder.input(input.shape().channels()).expect("first");
        let output = builder.push("op", op, &[from]).expect("fits");
        run_reference(&builder.finish(output).expect("used"), input).expect("runs")
    }

    #[test]
    fn strided_convolution_sums_its_windows() {
        let weight = tensor([1, 2, 2, 2], vec![1.0, 0.0, 0.0, 2.0, 0.0, 10.0, 0.0, 0.0]);
        let conv = Conv::new(weight).stride(2).bias(tensor([1], vec![0.5]));
        let output = run(Op::Conv(conv), &counting([1, 2, 2, 4]));
        assert_eq!(output.values(), [0.0 + 2.0 * 5.0 + 90.0 + 0.5, 2.0 + 14.0 + 110.0 + 0.5]);
    }

    #[test]
    fn padding_mode_decides_what_the_border_sees() {
        let border = |mode| {
            let weight = tensor([1, 1, 1, 3], vec![1.0, 0.0, 0.0]);
            let conv = Conv { padding: vec![0, 1], mode, ..Conv::new(weight) };
            run(Op::Conv(conv), &tensor([1, 1, 1, 3], vec![1.0, 2.0, 3.0])).values().to_vec()
        };
        assert_eq!(border(PaddingMode::Zero), [0.0, 1.0, 2.0]);
        assert_eq!(border(PaddingMode::Reflect), [2.0, 1.0, 2.0]);
        assert_eq!(border(PaddingMode::Replicate), [1.0, 1.0, 2.0]);
        assert_eq!(border(PaddingMode::Circular), [3.0, 1.0, 2.0]);
    }

    /// `<conv(x), y> = <x, transpose(y)>` with the same weights, in both dimensions.
    #[test]
    fn transposed_convolution_is_the_adjoint_of_the_convolution() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut any = |shape: &Shape| {
            let values: Vec<f32> = (0..shape.count()).map(|_| random.f32() - 0.5).collect();
            Tensor::new(shape.clone(), values).expect("as many as the shape says")
        };
        let shape = |sizes: &[usize]| Shape::new(sizes).expect("small");
        let dot = |a: &Tensor, b: &Tensor| -> f64 {
            a.values().iter().zip(b.values()).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        for (input, weight, stride, padding) in [
            ([2, 3, 8, 6].as_slice(), [4, 3, 2, 2].as_slice(), 2, 0),
            (&[1, 2, 8, 6], &[3, 2, 4, 4], 2, 1),
            (&[1, 2, 4, 6, 2], &[3, 2, 2, 2, 2], 2, 0),
            (&[1, 1, 5, 5], &[1, 1, 3, 3], 1, 1),
        ] {
            let weight = any(&shape(weight));
            let x = any(&shape(input));
            let forward = Conv::new(weight.clone()).stride(stride).padding(padding);
            let image = run(Op::Conv(forward), &x);
            let y = any(image.shape());
            let back = ConvTranspose::new(weight).stride(stride).padding(padding);
            let back = run(Op::ConvTranspose(back), &y);
            let (left, right) = (dot(&image, &y), dot(&x, &back));
            assert!((left - right).abs() < 1e-6, "{input:?}: {left} and {right}");
        }
    }

    #[test]
    fn shuffles_move_blocks_between_channels_and_space() {
        let input = counting([1, 4, 1, 2]);
        let shuffled = run(Op::PixelShuffle(2), &input);
        assert_eq!(shuffled.shape().sizes(), [1, 1, 2, 4]);
        assert_eq!(shuffled.values(), [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
        assert_eq!(run(Op::PixelUnshuffle(2), &shuffled), input);
        let volume = counting([2, 16, 1, 2, 3]);
        let there = run(Op::PixelShuffle(2), &volume);
        assert_eq!(run(Op::PixelUnshuffle(2), &there), volume);
    }

    #[test]
    fn pools_take_the_mean_or_the_maximum() {
        let input = counting([1, 1, 2, 4]);
        let pool = |kind| run(Op::Pool(Pool::new(kind, 2, 2)), &input).values().to_vec();
        assert_eq!(pool(PoolKind::Average), [2.5, 4.5]);
        assert_eq!(pool(PoolKind::Max), [5.0, 7.0]);
    }

    #[test]
    fn upsampling_repeats_or_interpolates() {
        let input = tensor([1, 1, 1, 2], vec![0.0, 4.0]);
        let row = |mode| run(Op::Upsample { factor: 2, mode }, &input).values()[..4].to_vec();
        assert_eq!(row(UpsampleMode::Nearest), [0.0, 0.0, 4.0, 4.0]);
        assert_eq!(row(UpsampleMode::Linear), [0.0, 1.0, 3.0, 4.0]);
    }

    #[test]
    fn single_precision_differs_only_by_rounding() {
        let mut builder = NetworkBuilder::new("two", 2).expect("rank 2");
        let input = builder.input(1).expect("first");
        let conv = Conv::new(Tensor::filled(Shape::new([8, 1, 3, 3]).expect("small"), 0.3));
        let conv = builder.conv("conv", conv.padding(1), input).expect("fits");
        let elu = builder.activation("elu", Activation::Elu(1.0), conv).expect("fits");
        let network = builder.finish(elu).expect("used");
        let input = counting([1, 1, 4, 4]);
        let (_, single) = run_reference_as::<f32>(&network, &input).expect("runs");
        let double = run_reference(&network, &input).expect("runs");
        for (single, double) in single.iter().zip(double.values()) {
            assert!((single - double).abs() <= 1e-5 * double.abs(), "{single} {double}");
        }
    }
}
