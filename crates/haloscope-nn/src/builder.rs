//! Builds networks node by node, checks each, and folds batch normalizations into convolutions.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::network::{Network, Node, NodeId};
use crate::op::{Activation, Conv, ConvTranspose, Op};
use crate::tensor::Tensor;

/// A value, or what is wrong with a node and what would be right.
type Check<T> = std::result::Result<T, String>;

/// A network in the making: [`push`](Self::push) nodes, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct NetworkBuilder {
    name: String,
    rank: usize,
    nodes: Vec<Node>,
    names: HashSet<String>,
}

impl NetworkBuilder {
    /// An empty network over `rank` spatial axes (2 or 3).
    pub fn new(name: impl Into<String>, rank: usize) -> Result<Self> {
        if !(2..=3).contains(&rank) {
            return Err(Error::Argument {
                what: "network",
                reason: format!("{rank} spatial axes; 2 and 3 are possible"),
            });
        }
        Ok(Self { name: name.into(), rank, nodes: Vec::new(), names: HashSet::new() })
    }

    /// The number of spatial axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The channels that come out of a node.
    #[must_use]
    pub fn channels(&self, id: NodeId) -> usize {
        self.nodes[id.0].channels
    }

    /// Adds a node that reads `inputs`. The first node must be the input.
    pub fn push(&mut self, name: impl Into<String>, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let name = name.into();
        match self.check(&name, &op, inputs) {
            Ok(channels) => {
                self.names.insert(name.clone());
                self.nodes.push(Node { name, op, inputs: inputs.to_vec(), channels });
                Ok(NodeId(self.nodes.len() - 1))
            }
            Err(reason) => Err(Error::Node { network: self.name.clone(), node: name, reason }),
        }
    }

    /// Adds the input.
    pub fn input(&mut self, channels: usize) -> Result<NodeId> {
        self.push("input", Op::Input { channels }, &[])
    }

    /// Adds a convolution.
    pub fn conv(&mut self, name: impl Into<String>, conv: Conv, input: NodeId) -> Result<NodeId> {
        self.push(name, Op::Conv(conv), &[input])
    }

    /// Adds a transposed convolution.
    pub fn conv_transpose(
        &mut self,
        name: impl Into<String>,
        conv: ConvTranspose,
        input: NodeId,
    ) -> Result<NodeId> {
        self.push(name, Op::ConvTranspose(conv), &[input])
    }

    /// Adds an activation.
    pub fn activation(
        &mut self,
        name: impl Into<String>,
        activation: Activation,
        input: NodeId,
    ) -> Result<NodeId> {
        self.push(name, Op::Activation(activation), &[input])
    }

    /// The network whose value is that of `output`.
    ///
    /// An [`Op::Affine`] right after a convolution that nothing else reads becomes part of the
    /// convolution, which keeps its own name. Ids of the finished network differ from the builder's
    /// after that; names do not.
    pub fn finish(self, output: NodeId) -> Result<Network> {
        let network =
            Network { name: self.name.into(), rank: self.rank, nodes: self.nodes.into(), output };
        if network.nodes.is_empty() {
            return Err(Error::Argument {
                what: "network",
                reason: format!("{} has no nodes; it needs an input at least", network.name),
            });
        }
        if let Some(id) = network.ids().find(|id| network.uses()[id.0] == 0) {
            return Err(network.fault(
                id,
                format!("nothing reads it; the output is `{}`", network.node(output).name),
            ));
        }
        Ok(fold_affine(network))
    }

    /// The channels that come out of a node, or why it cannot be one.
    fn check(&self, name: &str, op: &Op, inputs: &[NodeId]) -> Check<usize> {
        if self.names.contains(name) {
            return Err("a node of this name exists; names must differ".into());
        }
        if self.nodes.is_empty() != matches!(op, Op::Input { .. }) {
            return Err("the first node, and no other, must be the input".into());
        }
        if inputs.iter().any(|input| input.0 >= self.nodes.len()) {
            return Err("it reads a node that is not in this network".into());
        }
        let wanted = match op {
            Op::Input { .. } => 0..=0,
            Op::Add | Op::Concat => 2..=usize::MAX,
            _ => 1..=1,
        };
        if !wanted.contains(&inputs.len()) {
            return Err(format!(
                "{} inputs; {} takes {}",
                inputs.len(),
                op.kind(),
                ["none", "one", "two or more"][(*wanted.start()).min(2)]
            ));
        }
        let incoming: Vec<usize> = inputs.iter().map(|&input| self.channels(input)).collect();
        let channels = self.check_op(op, &incoming)?;
        if channels == 0 {
            return Err("0 channels come out; at least 1 is needed".into());
        }
        Ok(channels)
    }

    fn check_op(&self, op: &Op, incoming: &[usize]) -> Check<usize> {
        let first = incoming.first().copied().unwrap_or(0);
        match op {
            Op::Input { channels } => Ok(*channels),
            Op::Conv(conv) => {
                let lists = [&conv.stride[..], &conv.padding[..]];
                self.check_kernel(&conv.weight, conv.bias.as_ref(), conv.outputs(), lists)?;
                same_channels(first, conv.inputs())?;
                Ok(conv.outputs())
            }
            Op::ConvTranspose(conv) => {
                let lists = [&conv.stride[..], &conv.padding[..]];
                self.check_kernel(&conv.weight, conv.bias.as_ref(), conv.outputs(), lists)?;
                same_channels(first, conv.inputs())?;
                Ok(conv.outputs())
            }
            Op::Activation(_) | Op::Scale(_) => Ok(first),
            Op::Foreign(foreign) => {
                same_channels(first, foreign.input_channels())?;
                Ok(foreign.output_channels())
            }
            Op::Add => {
                incoming.iter().try_for_each(|&channels| same_channels(channels, first))?;
                Ok(first)
            }
            Op::Concat => incoming
                .iter()
                .try_fold(0, |sum: usize, &channels| sum.checked_add(channels))
                .ok_or_else(|| "the number of channels overflows".into()),
            Op::Pool(pool) => {
                self.check_axes("pool size", &pool.size, 1)?;
                self.check_axes("pool stride", &pool.stride, 1)?;
                Ok(first)
            }
            Op::Upsample { factor, .. } => {
                self.block(*factor)?;
                Ok(first)
            }
            Op::PixelShuffle(factor) => {
                let block = self.block(*factor)?;
                if !first.is_multiple_of(block) {
                    return Err(format!(
                        "{first} channels; a multiple of {block} is needed to shuffle by {factor}"
                    ));
                }
                Ok(first / block)
            }
            Op::PixelUnshuffle(factor) => first
                .checked_mul(self.block(*factor)?)
                .ok_or_else(|| "the number of channels overflows".into()),
            Op::Affine { scale, shift } => {
                for tensor in [scale, shift] {
                    if tensor.shape().sizes() != [first] {
                        return Err(format!(
                            "a scale or shift of shape {} for {first} channels",
                            tensor.shape()
                        ));
                    }
                }
                Ok(first)
            }
        }
    }

    /// How many pixels a block of `factor` on each axis has.
    fn block(&self, factor: usize) -> Check<usize> {
        let block = u32::try_from(self.rank).ok().and_then(|rank| factor.checked_pow(rank));
        match block {
            Some(block) if factor > 0 => Ok(block),
            _ => Err(format!("a factor of {factor}; it must be at least 1 and reasonably small")),
        }
    }

    fn check_kernel(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        outputs: usize,
        [stride, padding]: [&[usize]; 2],
    ) -> Check<()> {
        let shape = weight.shape();
        if shape.rank() != 2 + self.rank || shape.count() == 0 {
            return Err(format!(
                "a weight of shape {shape}; {} sizes are needed, none of them 0",
                2 + self.rank
            ));
        }
        if let Some(bias) = bias
            && bias.shape().sizes() != [outputs]
        {
            return Err(format!("a bias of shape {} for {outputs} channels", bias.shape()));
        }
        self.check_axes("stride", stride, 1)?;
        self.check_axes("padding", padding, 0)
    }

    fn check_axes(&self, what: &str, list: &[usize], least: usize) -> Check<()> {
        // Far beyond any use, and small enough that no sum of them overflows.
        const MOST: usize = 1 << 20;
        if list.len() == self.rank && list.iter().all(|value| (least..=MOST).contains(value)) {
            return Ok(());
        }
        Err(format!("{what} {list:?}; {} values of {least} to {MOST} are needed", self.rank))
    }
}

fn same_channels(given: usize, needed: usize) -> Check<()> {
    if given == needed {
        return Ok(());
    }
    Err(format!("{given} channels come in, {needed} are needed"))
}

/// Makes every affine that alone reads a convolution a part of it.
fn fold_affine(network: Network) -> Network {
    let uses = network.uses();
    let mut nodes: Vec<Node> = Vec::with_capacity(network.nodes.len());
    let mut moved: Vec<NodeId> = Vec::with_capacity(network.nodes.len());
    for node in network.nodes.iter() {
        let folded = match (&node.op, node.inputs.first()) {
            (Op::Affine { scale, shift }, Some(input)) if uses[input.0] == 1 => {
                fold(&nodes[moved[input.0].0].op, scale, shift).map(|op| (moved[input.0], op))
            }
            _ => None,
        };
        if let Some((id, op)) = folded {
            nodes[id.0].op = op;
            moved.push(id);
        } else {
            let inputs = node.inputs.iter().map(|input| moved[input.0]).collect();
            moved.push(NodeId(nodes.len()));
            nodes.push(Node { inputs, ..node.clone() });
        }
    }
    Network { output: moved[network.output.0], nodes: nodes.into(), ..network }
}

/// The operation `op` followed by a scale and a shift, if it can be one operation.
fn fold(op: &Op, scale: &Tensor, shift: &Tensor) -> Option<Op> {
    if scale.is_hollow() || shift.is_hollow() {
        return None;
    }
    let (scale, shift) = (scale.values(), shift.values());
    match op {
        Op::Conv(conv) => {
            let weight = conv.weight.map_by_first_axis(|output, value| value * scale[output]);
            let bias = fold_bias(conv.bias.as_ref(), scale, shift);
            Some(Op::Conv(Conv { weight, bias, ..conv.clone() }))
        }
        Op::ConvTranspose(conv) => {
            let taps: usize = conv.kernel().iter().product();
            let values: Vec<f32> = (conv.weight.values().iter().enumerate())
                .map(|(at, &value)| value * scale[at / taps % conv.outputs()])
                .collect();
            let weight = Tensor::new(conv.weight.shape().clone(), values).ok()?;
            let bias = fold_bias(conv.bias.as_ref(), scale, shift);
            Some(Op::ConvTranspose(ConvTranspose { weight, bias, ..conv.clone() }))
        }
        _ => None,
    }
}

/// `scale · bias + shift`; none stays none if the shift is zero throughout.
fn fold_bias(bias: Option<&Tensor>, scale: &[f32], shift: &[f32]) -> Option<Tensor> {
    let folded: Vec<f32> = match bias {
        Some(bias) => {
            let values = bias.values().iter().zip(scale).zip(shift);
            values.map(|((bias, scale), shift)| bias.mul_add(*scale, *shift)).collect()
        }
        None if shift.iter().all(|value| *value == 0.0) => return None,
        None => shift.to_vec(),
    };
    Some(Tensor::vector(folded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    fn tensor<const N: usize>(sizes: [usize; N], values: Vec<f32>) -> Tensor {
        Tensor::new(Shape::new(sizes).expect("small"), values).expect("as many as the shape says")
    }

    fn affine(scale: Vec<f32>, shift: Vec<f32>) -> Op {
        Op::Affine { scale: tensor([scale.len()], scale), shift: tensor([shift.len()], shift) }
    }

    #[test]
    fn affine_after_a_convolution_becomes_part_of_it() {
        let mut builder = NetworkBuilder::new("fold", 2).expect("rank 2");
        let input = builder.input(1).expect("first");
        let conv = Conv::new(tensor([2, 1, 1, 1], vec![3.0, 5.0]));
        let conv = conv.bias(tensor([2], vec![1.0, 2.0]));
        let conv = builder.conv("conv", conv, input).expect("fits");
        let norm = builder.push("norm", affine(vec![2.0, 10.0], vec![0.5, -1.0]), &[conv]);
        let relu = builder.activation("relu", Activation::Relu, norm.expect("fits"));
        let network = builder.finish(relu.expect("fits")).expect("all used");
        let names: Vec<&str> = network.nodes().iter().map(Node::name).collect();
        assert_eq!(names, ["input", "conv", "relu"]);
        let Op::Conv(conv) = network.nodes()[1].op() else { panic!("a convolution") };
        assert_eq!(conv.weight.values(), [6.0, 50.0]);
        assert_eq!(conv.bias.as_ref().expect("a bias").values(), [2.5, 19.0]);
    }

    #[test]
    fn affine_stays_when_something_else_reads_the_convolution() {
        let mut builder = NetworkBuilder::new("stay", 2).expect("rank 2");
        let input = builder.input(1).expect("first");
        let conv = Conv::new(tensor([1, 1, 1, 1], vec![3.0]));
        let conv = builder.conv("conv", conv, input).expect("fits");
        let norm = builder.push("norm", affine(vec![2.0], vec![0.5]), &[conv]).expect("fits");
        let sum = builder.push("sum", Op::Add, &[conv, norm]).expect("fits");
        let network = builder.finish(sum).expect("all used");
        assert_eq!(network.nodes().len(), 4);
    }

    #[test]
    fn channels_that_do_not_fit_name_the_node() {
        let mut builder = NetworkBuilder::new("misfit", 2).expect("rank 2");
        let input = builder.input(4).expect("first");
        let conv = Conv::new(tensor([1, 3, 1, 1], vec![0.0; 3]));
        let error = builder.conv("head", conv, input).expect_err("3 is not 4");
        assert_eq!(error.to_string(), "misfit: node `head`: 4 channels come in, 3 are needed");
    }

    #[test]
    fn node_that_nothing_reads_is_refused() {
        let mut builder = NetworkBuilder::new("loose", 2).expect("rank 2");
        let input = builder.input(4).expect("first");
        let relu = builder.activation("a", Activation::Relu, input).expect("fits");
        builder.activation("b", Activation::Relu, input).expect("fits");
        let error = builder.finish(relu).expect_err("b is loose");
        assert!(error.to_string().contains("`b`: nothing reads it"), "{error}");
    }

    #[test]
    fn shuffle_needs_channels_for_whole_blocks() {
        let mut builder = NetworkBuilder::new("shuffle", 3).expect("rank 3");
        let input = builder.input(12).expect("first");
        let error = builder.push("up", Op::PixelShuffle(2), &[input]).expect_err("12 is not 8·n");
        assert!(error.to_string().contains("a multiple of 8 is needed"), "{error}");
    }
}
