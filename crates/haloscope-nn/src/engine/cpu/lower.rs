//! From a network's layers to a program: shapes become layouts, and values get numbers.

use super::convert::{layout_of, three};
use super::cost::Problem;
use super::kernels::Fused;
use super::layout::{BLOCK, BORDER, Layout};
use super::operation::Operation;
use super::operations::{Axis, Concat, Function, Pad, Pointwise, Pooling, Shuffle, Upsample};
use super::rows::RowsRead;
use crate::engine::graph::{Epilogues, Layer, fuse};
use crate::error::Result;
use crate::network::{Network, Node, NodeId};
use crate::op::{Activation, Op, PaddingMode, UpsampleMode};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// A network as a list of steps over values, before methods are chosen.
pub(crate) struct Program {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) steps: Vec<Draft>,
    /// The value of the network's output. That of its input is 0.
    pub(crate) output: usize,
}

impl Program {
    /// Gives values ghost planes, before methods are chosen or with those of the whole.
    pub(crate) fn set_ghosts(&mut self, ghosts: impl Fn(usize) -> [usize; 2]) {
        for (value, layout) in self.layouts.iter_mut().enumerate() {
            layout.ghosts = ghosts(value);
        }
        // Other operations count planes of the image only, and find them by the layout of the value in memory.
        for step in &mut self.steps {
            if let Work::Conv(conv) = &mut step.work {
                conv.problem.input = self.layouts[step.inputs[0]];
                conv.problem.output = self.layouts[step.output];
            }
        }
    }
}

/// A step whose values are known.
pub(crate) struct Draft {
    pub(crate) name: String,
    /// The node whose operation comes first.
    pub(crate) node: NodeId,
    pub(crate) work: Work,
    pub(crate) inputs: Vec<usize>,
    pub(crate) output: usize,
    /// The rows of the first input that are read.
    pub(crate) reads: RowsRead,
}

/// What a step does.
pub(crate) enum Work {
    /// An operation that can only be done in one way.
    Fixed(Box<dyn Operation>),
    /// A convolution.
    Conv(Box<ConvDraft>),
    /// Nothing any more: its operation has been made.
    Done,
}

/// A convolution for which a method is still to be chosen.
pub(crate) struct ConvDraft {
    pub(crate) problem: Problem,
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
    /// Tensors that the epilogue adds: the inputs after the first.
    pub(crate) adds: usize,
    pub(crate) activation: Fused,
}

/// What the kernels do at the end of a convolution.
const EPILOGUES: Epilogues =
    Epilogues { adds: 2, activation: |activation| fused(Some(activation)).is_some() };

/// The activation as epilogues apply it, if they can.
fn fused(activation: Option<Activation>) -> Option<Fused> {
    match activation {
        None => Some(Fused::Identity),
        Some(Activation::Relu) => Some(Fused::Relu),
        Some(Activation::LeakyRelu(slope)) if slope <= 1.0 => Some(Fused::Leaky(slope)),
        Some(_) => None,
    }
}

/// Lowers a network for an input of this shape, which it must accept.
pub(crate) fn lower(network: &Network, input: &Shape, threads: usize) -> Result<Program> {
    let shapes = network.infer(input)?;
    let mut lowering = Lowering {
        network,
        threads,
        shapes,
        values: vec![None; network.nodes().len()],
        program: Program { layouts: Vec::new(), steps: Vec::new(), output: 0 },
    };
    if let Some(id) = network.ids().find(|&id| !lowering.layout(id).is_possible()) {
        let shape = &lowering.shapes[id.index()];
        return Err(network.fault(id, format!("the shape {shape}, which no memory could hold")));
    }
    for layer in fuse(network, &EPILOGUES) {
        lowering.lower_layer(&layer);
    }
    lowering.program.output = lowering.value(network.output());
    Ok(lowering.program)
}

struct Lowering<'a> {
    network: &'a Network,
    threads: usize,
    shapes: Vec<Shape>,
    /// The value of each node that has been lowered.
    values: Vec<Option<usize>>,
    program: Program,
}

impl Lowering<'_> {
    fn lower_layer(&mut self, layer: &Layer) {
        let network = self.network;
        let node = network.node(layer.node);
        match node.op() {
            Op::Input { .. } => {
                let value = self.new_value(self.layout(layer.node));
                self.values[layer.node.index()] = Some(value);
            }
            Op::Conv(conv) => {
                let axes = self.axes(conv.kernel(), &conv.stride, &conv.padding, false);
                let bias = conv.bias.clone();
                self.lower_conv(layer, axes, conv.mode, conv.weight.clone(), bias);
            }
            Op::ConvTranspose(conv) => {
                let axes = self.axes(conv.kernel(), &conv.stride, &conv.padding, true);
                let bias = conv.bias.clone();
                self.lower_conv(layer, axes, PaddingMode::Zero, conv.weight.clone(), bias);
            }
            _ => {
                let work = self.fixed(layer.node, node);
                let (inputs, reads) = (self.inputs(node), rows_read(node.op()));
                self.push(layer, Work::Fixed(work), inputs, reads);
            }
        }
    }

    /// The operation of a node that is not a convolution.
    fn fixed(&self, id: NodeId, node: &Node) -> Box<dyn Operation> {
        let output = self.layout(id);
        let first = node.inputs().first().map_or(output, |&input| self.layout(input));
        let pointwise =
            |function| Pointwise { layout: output, inputs: node.inputs().len(), function };
        let affine = |scale: Vec<f32>, shift: Vec<f32>| {
            let [mut scale, mut shift] = [scale, shift];
            scale.resize(output.blocks() * BLOCK, 0.0);
            shift.resize(output.blocks() * BLOCK, 0.0);
            pointwise(Function::Affine { scale, shift })
        };
        match node.op() {
            Op::Input { .. } | Op::Conv(_) | Op::ConvTranspose(_) | Op::Foreign(_) => {
                unreachable!("lowered by themselves, or refused before")
            }
            Op::Activation(activation) => Box::new(pointwise(Function::Activation(*activation))),
            Op::Add => Box::new(pointwise(Function::Sum)),
            Op::Scale(scale) => {
                Box::new(affine(vec![*scale; output.channels], vec![0.0; output.channels]))
            }
            Op::Affine { scale, shift } => {
                Box::new(affine(scale.values().to_vec(), shift.values().to_vec()))
            }
            Op::Concat => {
                let channels: Vec<usize> =
                    node.inputs().iter().map(|&input| self.layout(input).channels).collect();
                Box::new(Concat::new(output, &channels))
            }
            Op::Pool(pool) => Box::new(Pooling {
                output,
                kind: pool.kind,
                size: three(&pool.size, 1),
                stride: three(&pool.stride, 1),
            }),
            Op::Upsample { factor, mode } => {
                let factor = self.factors(*factor);
                Box::new(Upsample { input: first, output, factor, mode: *mode })
            }
            Op::PixelShuffle(factor) => {
                Box::new(Shuffle { output, factor: self.factors(*factor), inverse: false })
            }
            Op::PixelUnshuffle(factor) => {
                Box::new(Shuffle { output, factor: self.factors(*factor), inverse: true })
            }
        }
    }

    fn lower_conv(
        &mut self,
        layer: &Layer,
        mut axes: [Axis; 3],
        mode: PaddingMode,
        weight: Tensor,
        bias: Option<Tensor>,
    ) {
        let node = self.network.node(layer.node);
        let output = self.layout(layer.node);
        let mut source = self.value(node.inputs()[0]);
        let mut input = self.program.layouts[source];
        if let Some((before, after)) = margin(&mut axes, mode, &input, &output) {
            let sizes: [usize; 3] = std::array::from_fn(|axis| {
                [input.depth, input.height, input.width][axis] + before[axis] + after[axis]
            });
            let padded = layout_of(input.batch, input.channels, &sizes);
            let pad = Pad { input, output: padded, before, mode };
            let value = self.new_value(padded);
            self.program.steps.push(Draft {
                name: format!("{}.padding", node.name()),
                node: layer.node,
                work: Work::Fixed(Box::new(pad)),
                inputs: vec![source],
                output: value,
                reads: RowsRead::Padded { before: before[1], mode },
            });
            (source, input) = (value, padded);
        }
        let problem = Problem { input, output, axes, threads: self.threads, rows: output.height };
        let activation = fused(layer.activation).expect("the epilogues were asked");
        let adds = layer.adds.len();
        let draft = ConvDraft { problem, weight, bias, adds, activation };
        let mut inputs = vec![source];
        inputs.extend(layer.adds.iter().map(|&add| self.value(add)));
        self.push(layer, Work::Conv(Box::new(draft)), inputs, RowsRead::Taps(axes[1]));
    }

    fn push(&mut self, layer: &Layer, work: Work, inputs: Vec<usize>, reads: RowsRead) {
        let output = self.new_value(self.layout(layer.output));
        self.values[layer.output.index()] = Some(output);
        let (node, name) = (layer.node, self.network.node(layer.node).name().to_owned());
        self.program.steps.push(Draft { name, node, work, inputs, output, reads });
    }

    fn new_value(&mut self, layout: Layout) -> usize {
        self.program.layouts.push(layout);
        self.program.layouts.len() - 1
    }

    fn value(&self, id: NodeId) -> usize {
        self.values[id.index()].expect("nodes come after those that they read")
    }

    fn inputs(&self, node: &Node) -> Vec<usize> {
        node.inputs().iter().map(|&input| self.value(input)).collect()
    }

    fn layout(&self, id: NodeId) -> Layout {
        let shape = &self.shapes[id.index()];
        layout_of(shape.batch(), shape.channels(), shape.spatial())
    }

    fn factors(&self, factor: usize) -> [usize; 3] {
        if self.network.rank() == 2 { [1, factor, factor] } else { [factor; 3] }
    }

    fn axes(
        &self,
        kernel: &[usize],
        stride: &[usize],
        padding: &[usize],
        transposed: bool,
    ) -> [Axis; 3] {
        let (kernel, stride, padding) = (three(kernel, 1), three(stride, 1), three(padding, 0));
        std::array::from_fn(|axis| Axis {
            kernel: kernel[axis],
            stride: stride[axis],
            padding: padding[axis],
            transposed: transposed && (axis > 0 || self.network.rank() == 3),
        })
    }
}

/// The rows that an operation reads that is not a convolution.
fn rows_read(op: &Op) -> RowsRead {
    match op {
        Op::Pool(pool) => {
            let rows = pool.size.len() - 2;
            RowsRead::windows(pool.size[rows], pool.stride[rows])
        }
        Op::PixelUnshuffle(factor) => RowsRead::windows(*factor, *factor),
        Op::PixelShuffle(factor) | Op::Upsample { factor, mode: UpsampleMode::Nearest } => {
            RowsRead::enlarged(*factor, 0)
        }
        Op::Upsample { factor, mode: UpsampleMode::Linear } => RowsRead::enlarged(*factor, 1),
        _ => RowsRead::Same,
    }
}

/// What must be added around the input so that no tap falls outside of its border, if anything;
/// the padding of the axes is lowered by it.
fn margin(
    axes: &mut [Axis; 3],
    mode: PaddingMode,
    input: &Layout,
    output: &Layout,
) -> Option<([usize; 3], [usize; 3])> {
    let inputs = [input.depth, input.height, input.width];
    let outputs = [output.depth, output.height, output.width];
    if mode != PaddingMode::Zero {
        let padding = axes.map(|axis| axis.padding);
        for axis in axes.iter_mut() {
            axis.padding = 0;
        }
        return (padding != [0; 3]).then_some((padding, padding));
    }
    let (mut before, mut after) = ([0; 3], [0; 3]);
    let room = [usize::MAX, input.rows_after() - input.height, input.columns_after() - input.width];
    // Planes outside are skipped by the kernels; rows and columns need the border.
    for axis in 1..3 {
        let [needed_before, needed_after] = axes[axis].reach(inputs[axis], outputs[axis]);
        if needed_before > BORDER || needed_after > room[axis] {
            (before[axis], after[axis]) = (needed_before, needed_after);
            // Transposed: tap k of input i reaches output i·stride + k − padding.
            if axes[axis].transposed {
                axes[axis].padding += needed_before * axes[axis].stride;
            } else {
                axes[axis].padding -= needed_before;
            }
        }
    }
    (before != [0; 3] || after != [0; 3]).then_some((before, after))
}
