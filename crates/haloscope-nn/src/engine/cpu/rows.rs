//! `Operation::rows_read` holds in fact: rows that a step does not name can be anything, and those at the ends of what it names
//! matter.
//!
//! The steps of a plan run one after the other, so what is seen is the chain of them: the rows of the network's input that
//! rows of its output depend on. Networks of one operation have a chain of one step, or of two where a copy is padded first.
//! Where a convolution runs by Winograd's method, a row that does not count still takes part in the rounding of its tile; there,
//! values are compared instead of bits.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::kernels::InstructionSet;
use super::plan::CpuPlan;
use super::stock::Shelf;
use crate::engine::{Accuracy, Options, Plan};
use crate::models::{Architecture, Dncnn, Drunet, Unet};
use crate::{
    Activation, Conv, ConvTranspose, Network, NetworkBuilder, Op, PaddingMode, Pool, PoolKind,
    Shape, Tensor, UpsampleMode,
};

/// The largest effect of rounding, in units of the largest value.
const ROUNDING: f32 = 1e-4;

fn random_tensor(random: &mut fastrand::Rng, sizes: &[usize]) -> Tensor {
    let shape = Shape::new(sizes).expect("small");
    let values: Vec<f32> = (0..shape.count()).map(|_| random.f32() * 2.0 - 1.0).collect();
    Tensor::new(shape, values).expect("as many as the shape says")
}

/// A plan with its input and what it makes of it.
struct Case<'a> {
    name: &'a str,
    plan: CpuPlan,
    /// How copies are padded.
    mode: PaddingMode,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl<'a> Case<'a> {
    fn new(
        name: &'a str,
        network: &Network,
        sizes: &[usize],
        mode: PaddingMode,
        accuracy: Accuracy,
    ) -> Self {
        let mut random = fastrand::Rng::with_seed(5);
        let input = random_tensor(&mut random, sizes).values().to_vec();
        let options = Options { accuracy, threads: 2, ..Options::default() };
        let shape = Shape::new(sizes).expect("small");
        let instructions = InstructionSet::detect();
        let shelf = Shelf::default();
        let plan = CpuPlan::new(Cow::Borrowed(network), &shape, &options, instructions, &shelf)
            .expect("the network can be planned");
        let output = run(&plan, &input);
        Self { name, plan, mode, input, output }
    }

    /// Whether values outside what is read cannot even change the rounding.
    fn is_exact(&self) -> bool {
        self.plan.steps().iter().all(|step| !step.method().contains("F("))
    }

    fn rounding(&self) -> f32 {
        ROUNDING * self.output.iter().fold(1.0_f32, |most, value| most.max(value.abs()))
    }

    fn output_height(&self) -> usize {
        height(self.plan.output_shape())
    }

    /// The rows of the network's input that a row of its output depends on, as the steps say.
    fn reads(&self, row: usize) -> BTreeSet<usize> {
        let stages = self.plan.stages();
        let last = stages.last().expect("there are steps").output;
        let mut needed = BTreeMap::from([(last, BTreeSet::from([row]))]);
        for (step, stage) in self.plan.steps().iter().zip(stages).rev() {
            let Some(rows) = needed.remove(&stage.output) else { continue };
            let pads = step.method().ends_with("padding");
            for (index, value) in stage.inputs.iter().enumerate() {
                let read = needed.entry(*value).or_default();
                for row in &rows {
                    for position in stage.operation.rows_read(index, *row..row + 1) {
                        let size = height(self.plan.input_shape());
                        // Only the network's own input is padded by something else than zeros here.
                        let source = if pads { self.mode.source(position, size) } else { None };
                        read.extend(source.or_else(|| usize::try_from(position).ok()));
                    }
                }
            }
        }
        let size = height(self.plan.input_shape());
        needed.remove(&0).unwrap_or_default().into_iter().filter(|row| *row < size).collect()
    }

    /// The largest change of a row of the output, and whether any bit of it changes, when `change` is made to these rows of the
    /// input.
    fn effect(
        &self,
        row: usize,
        rows: &BTreeSet<usize>,
        change: impl Fn(f32) -> f32,
    ) -> (f32, bool) {
        let mut input = self.input.clone();
        for_rows(self.plan.input_shape(), |at, row| {
            if rows.contains(&row) {
                input[at] = change(input[at]);
            }
        });
        let output = run(&self.plan, &input);
        let (mut largest, mut differs) = (0.0_f32, false);
        for_rows(self.plan.output_shape(), |at, of| {
            if of == row {
                largest = largest.max((output[at] - self.output[at]).abs());
                differs |= output[at].to_bits() != self.output[at].to_bits();
            }
        });
        (largest, differs)
    }

    /// Rows that are not read can be anything.
    fn check_outside(&self, row: usize) {
        let read = self.reads(row);
        let outside: BTreeSet<usize> =
            (0..height(self.plan.input_shape())).filter(|row| !read.contains(row)).collect();
        assert!(!outside.is_empty(), "{}: row {row} depends on everything", self.name);
        let (change, differs) = self.effect(row, &outside, |value| 3.0 - 2.0 * value);
        if self.is_exact() {
            assert!(!differs, "{}: row {row} reads more than {read:?}: {change}", self.name);
        } else {
            assert!(change <= self.rounding(), "{}: row {row}, {read:?}: {change}", self.name);
        }
    }

    /// The first and the last row that are read matter.
    fn check_inside(&self, row: usize) {
        let read = self.reads(row);
        for end in [read.first(), read.last()] {
            let end = *end.unwrap_or_else(|| panic!("{}: row {row} reads nothing", self.name));
            let (change, differs) = self.effect(row, &BTreeSet::from([end]), |value| value + 5.0);
            assert!(
                differs && change > 20.0 * self.rounding(),
                "{}: row {row} does not read row {end} of {read:?}: {change}",
                self.name
            );
        }
    }

    /// What is said of several rows is what is said of each of them.
    fn check_ranges(&self) {
        let rows = self.output_height();
        let [stage] = self.plan.stages() else { return };
        for range in [0..rows, 1..rows, rows / 3..rows / 3 + 3] {
            for input in 0..stage.inputs.len() {
                let each = range.clone().map(|row| stage.operation.rows_read(input, row..row + 1));
                let hull = |all: Range<isize>, one: Range<isize>| {
                    all.start.min(one.start)..all.end.max(one.end)
                };
                let expected = each.reduce(hull).expect("some rows");
                assert_eq!(
                    stage.operation.rows_read(input, range.clone()),
                    expected,
                    "{}",
                    self.name
                );
            }
        }
    }
}

fn height(shape: &Shape) -> usize {
    let spatial = shape.spatial();
    spatial[spatial.len() - 2]
}

/// Calls `f` with the place and the row of each element.
fn for_rows(shape: &Shape, mut f: impl FnMut(usize, usize)) {
    let (rows, width) = (height(shape), shape.spatial()[shape.spatial().len() - 1]);
    (0..shape.count()).for_each(|at| f(at, at / width % rows));
}

fn run(plan: &CpuPlan, input: &[f32]) -> Vec<f32> {
    let mut output = vec![f32::NAN; plan.output_shape().count()];
    plan.run(input, &mut output, &mut plan.scratch()).expect("lengths fit");
    output
}

/// A network of one operation after the input.
fn single(channels: usize, rank: usize, op: Op) -> Network {
    let mut builder = NetworkBuilder::new("single", rank).expect("rank");
    let input = builder.input(channels).expect("first");
    let node = builder.push("node", op, &[input]).expect("fits");
    builder.finish(node).expect("all used")
}

/// One of two values: the input, and the input times a constant.
fn of_two(op: Op) -> Network {
    let mut builder = NetworkBuilder::new("two", 2).expect("rank");
    let input = builder.input(9).expect("first");
    let scaled = builder.push("scaled", Op::Scale(-0.7), &[input]).expect("fits");
    let node = builder.push("node", op, &[input, scaled]).expect("fits");
    builder.finish(node).expect("all used")
}

#[test]
fn every_operation_reads_the_rows_that_it_says_and_no_others() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut conv = |kernel: usize| Conv::new(random_tensor(&mut random, &[10, 9, kernel, kernel]));
    let zero = PaddingMode::Zero;
    let mut cases: Vec<(&str, Network, PaddingMode)> = vec![
        ("conv 3×3", single(9, 2, Op::Conv(conv(3).padding(1))), zero),
        ("conv 3×3, no padding", single(9, 2, Op::Conv(conv(3))), zero),
        ("conv 1×1", single(9, 2, Op::Conv(conv(1))), zero),
        ("conv 5×5", single(9, 2, Op::Conv(conv(5).padding(2))), zero),
        ("conv 2×2 in steps", single(9, 2, Op::Conv(conv(2).stride(2))), zero),
        ("conv 3×3 in steps", single(9, 2, Op::Conv(conv(3).stride(2).padding(1))), zero),
    ];
    for mode in [PaddingMode::Reflect, PaddingMode::Replicate, PaddingMode::Circular] {
        let padded = single(9, 2, Op::Conv(conv(3).padding(1).mode(mode)));
        cases.push((mode.name(), padded, mode));
    }
    let mut transposed = |kernel: usize, padding: usize| {
        let weight = random_tensor(&mut random, &[9, 10, kernel, kernel]);
        single(9, 2, Op::ConvTranspose(ConvTranspose::new(weight).stride(2).padding(padding)))
    };
    cases.extend([
        ("transposed 2×2", transposed(2, 0), zero),
        ("transposed 4×4", transposed(4, 1), zero),
        ("transposed 3×3", transposed(3, 1), zero),
    ]);
    let pool =
        |kind, size, stride| Op::Pool(Pool { kind, size: vec![size; 2], stride: vec![stride; 2] });
    let upsample = |factor, mode| Op::Upsample { factor, mode };
    cases.extend([
        ("average pool", single(9, 2, pool(PoolKind::Average, 2, 2)), zero),
        ("max pool", single(9, 2, pool(PoolKind::Max, 3, 2)), zero),
        ("nearest", single(9, 2, upsample(3, UpsampleMode::Nearest)), zero),
        ("linear", single(9, 2, upsample(2, UpsampleMode::Linear)), zero),
        ("shuffle", single(12, 2, Op::PixelShuffle(2)), zero),
        ("unshuffle", single(9, 2, Op::PixelUnshuffle(2)), zero),
        ("activation", single(9, 2, Op::Activation(Activation::LeakyRelu(0.1))), zero),
        ("sum", of_two(Op::Add), zero),
        ("concatenation", of_two(Op::Concat), zero),
    ]);
    for (name, network, mode) in cases {
        let channels = if name == "shuffle" { 12 } else { 9 };
        for accuracy in [Accuracy::Fast, Accuracy::Strict] {
            let case = Case::new(name, &network, &[2, channels, 24, 14], mode, accuracy);
            let rows = case.output_height();
            for row in [0, 1, rows / 2, rows / 2 + 1, rows - 2, rows - 1] {
                case.check_outside(row);
            }
            // At the edges, rows that are named may have no weight.
            for row in [rows / 2, rows / 2 + 1] {
                case.check_inside(row);
            }
            case.check_ranges();
        }
    }
}

#[test]
fn convolutions_of_volumes_read_the_rows_that_they_say() {
    let mut random = fastrand::Rng::with_seed(4);
    for (kernel, padding) in [(3, 1), (1, 0), (5, 2)] {
        let weight = random_tensor(&mut random, &[8, 4, kernel, kernel, kernel]);
        let network = single(4, 3, Op::Conv(Conv::new(weight).padding(padding)));
        let sizes = [1, 4, 5, 18, 9];
        let case = Case::new("volume", &network, &sizes, PaddingMode::Zero, Accuracy::Fast);
        for row in [0, 8, 9, 17] {
            case.check_outside(row);
            case.check_inside(row);
        }
    }
}

#[test]
fn whole_networks_read_the_rows_that_their_steps_add_up_to() {
    let dncnn = Dncnn { depth: 4, channels: 8, ..Dncnn::default() };
    let unet = Unet { channels: vec![8, 16], ..Unet::default() };
    let drunet = Drunet { channels: [8, 8, 16, 16], blocks: 1, ..Drunet::default() };
    let zero = PaddingMode::Zero;
    let models = [
        ("dncnn", dncnn.random(1), 40),
        ("unet", unet.random(1), 96),
        ("drunet", drunet.random(1), 192),
    ];
    for (name, model, rows) in models {
        let model = model.expect("valid");
        let sizes = [1, model.network().input_channels(), rows, 16];
        let case = Case::new(name, model.network(), &sizes, zero, Accuracy::Fast);
        for row in [rows / 2, rows / 2 + 1] {
            let read = case.reads(row);
            // Far from the edges, where nothing is padded.
            assert!(!read.contains(&0) && !read.contains(&(rows - 1)), "{name}: {read:?}");
            case.check_outside(row);
        }
        if name == "dncnn" {
            // Four layers of three rows each. Further networks see their last rows too little to tell them from rounding.
            assert!(case.reads(20).into_iter().eq(16..25));
            case.check_inside(20);
        }
    }
}
