//! From a network's nodes to a program: shapes become layouts, and activations and sums become part
//! of the convolutions before them.

use super::convert::{layout_of, three};
use super::cost::Problem;
use super::kernels::Fused;
use super::layout::{BLOCK, BORDER, Layout};
use super::operation::Operation;
use super::operations::{Axis, Concat, Function, Pad, Pointwise, Pooling, Shuffle, Upsample};
use crate::error::Result;
use crate::network::{Network, Node, NodeId};
use crate::op::{Activation, Op, PaddingMode};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// A network as a list of steps over values, before methods are chosen.
pub(crate) struct Program {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) steps: Vec<Draft>,
    /// The value of the network's output. That of its input is 0.
    pub(crate) output: usize,
}

/// A step whose values are known.
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) inputs: Vec<usize>,
    pub(crate) output: usize,
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

/// Lowers a network for an input of this shape, which it must accept.
pub(crate) fn lower(network: &Network, input: &Shape, threads: usize) -> Result<Program> {
    let shapes = network.infer(input)?;
    let mut lowering = Lowering {
        network,
        threads,
        shapes,
        readers: readers(network),
        values: vec![None; network.nodes().len()],
        absorbed: vec![false; network.nodes().len()],
        program: Program { layouts: Vec::new(), steps: Vec::new(), output: 0 },
    };
    if let Some(id) = network.ids().find(|&id| !lowering.layout(id).is_possible()) {
        let shape = &lowering.shapes[id.index()];
        return Err(network.fault(id, format!("the shape {shape}, which no memory could hold")));
    }
    for id in network.ids() {
        if !lowering.absorbed[id.index()] {
            lowering.lower_node(id);
        }
    }
    lowering.program.output = lowering.value(network.output());
    Ok(lowering.program)
}

/// The nodes that read each node; the output's reader outside is not listed.
fn readers(network: &Network) -> Vec<Vec<NodeId>> {
    let mut readers = vec![Vec::new(); network.nodes().len()];
    for id in network.ids() {
        for input in network.node(id).inputs() {
            readers[input.index()].push(id);
        }
    }
    readers
}

struct Lowering<'a> {
    network: &'a Network,
    threads: usize,
    shapes: Vec<Shape>,
    readers: Vec<Vec<NodeId>>,
    /// The value of each node that has been lowered.
    values: Vec<Option<usize>>,
    /// Nodes whose work a convolution before them does.
    absorbed: Vec<bool>,
    program: Program,
}

/// What a convolution takes over from the nodes behind it.
struct Tail {
    /// The node whose value the convolution computes.
    last: NodeId,
    adds: Vec<usize>,
    activation: Fused,
}

impl Lowering<'_> {
    fn lower_node(&mut self, id: NodeId) {
        let network = self.network;
        let node = network.node(id);
        match node.op() {
            Op::Input { .. } => {
                let value = self.new_value(self.layout(id));
                self.values[id.index()] = Some(value);
            }
            Op::Conv(conv) => {
                let axes = self.axes(conv.kernel(), &conv.stride, &conv.padding, false);
                let bias = conv.bias.clone();
                self.lower_conv(id, axes, conv.mode, conv.weight.clone(), bias);
            }
            Op::ConvTranspose(conv) => {
                let axes = self.axes(conv.kernel(), &conv.stride, &conv.padding, true);
                let bias = conv.bias.clone();
                self.lower_conv(id, axes, PaddingMode::Zero, conv.weight.clone(), bias);
            }
            _ => {
                let work = self.fixed(id, node);
                let inputs = self.inputs(node);
                self.push(node.name(), Work::Fixed(work), inputs, id);
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
            Op::Input { .. } | Op::Conv(_) | Op::ConvTranspose(_) => {
                unreachable!("lowered by themselves")
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
        id: NodeId,
        mut axes: [Axis; 3],
        mode: PaddingMode,
        weight: Tensor,
        bias: Option<Tensor>,
    ) {
        let node = self.network.node(id);
        let output = self.layout(id);
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
                work: Work::Fixed(Box::new(pad)),
                inputs: vec![source],
                output: value,
            });
            (source, input) = (value, padded);
        }
        let tail = self.tail(id);
        let problem = Problem { input, output, axes, threads: self.threads };
        let work = Work::Conv(Box::new(ConvDraft {
            problem,
            weight,
            bias,
            adds: tail.adds.len(),
            activation: tail.activation,
        }));
        let mut inputs = vec![source];
        inputs.extend(tail.adds);
        self.push(node.name(), work, inputs, tail.last);
    }

    /// Follows the nodes behind a convolution as long as it can do their work: sums with up to two
    /// values that exist already, then one activation.
    fn tail(&mut self, conv: NodeId) -> Tail {
        let mut tail = Tail { last: conv, adds: Vec::new(), activation: Fused::Identity };
        let network = self.network;
        while let [reader] = self.readers[tail.last.index()][..]
            && tail.last != network.output()
        {
            let node = network.node(reader);
            match node.op() {
                Op::Add => {
                    let others = node.inputs().iter().filter(|&&input| input != tail.last);
                    let known: Option<Vec<usize>> =
                        others.map(|input| self.values[input.index()]).collect();
                    match known {
                        Some(known) if tail.adds.len() + known.len() <= 2 => {
                            tail.adds.extend(known);
                        }
                        _ => break,
                    }
                    self.absorbed[reader.index()] = true;
                    tail.last = reader;
                }
                Op::Activation(Activation::Relu) => {
                    self.absorbed[reader.index()] = true;
                    return Tail { last: reader, activation: Fused::Relu, ..tail };
                }
                Op::Activation(Activation::LeakyRelu(slope)) if *slope <= 1.0 => {
                    self.absorbed[reader.index()] = true;
                    return Tail { last: reader, activation: Fused::Leaky(*slope), ..tail };
                }
                _ => break,
            }
        }
        tail
    }

    fn push(&mut self, name: &str, work: Work, inputs: Vec<usize>, computes: NodeId) {
        let output = self.new_value(self.layout(computes));
        self.values[computes.index()] = Some(output);
        self.program.steps.push(Draft { name: name.into(), work, inputs, output });
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
