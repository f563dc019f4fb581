//! A network as data: an immutable list of nodes, each after the nodes that it reads.
//!
//! Nothing here runs a network; it computes the shapes of its values. A
//! [`NetworkBuilder`](crate::NetworkBuilder) builds it and checks everything that does not depend on
//! the size of the image.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::foreign::Foreign;
use crate::op::Op;
use crate::shape::Shape;

/// A convolutional network with its weights. Cloning it shares both.
///
/// ```
/// use haloscope_nn::{Activation, Conv, NetworkBuilder, Op, Shape, Tensor};
///
/// let mut builder = NetworkBuilder::new("small", 2)?;
/// let input = builder.push("input", Op::Input { channels: 1 }, &[])?;
/// let weight = Tensor::filled(Shape::new([8, 1, 3, 3])?, 0.1);
/// let conv = builder.push("conv", Op::Conv(Conv::new(weight).padding(1)), &[input])?;
/// let relu = builder.push("relu", Op::Activation(Activation::Relu), &[conv])?;
/// let network = builder.finish(relu)?;
///
/// let shapes = network.infer(&Shape::new([2, 1, 5, 7])?)?;
/// assert_eq!(shapes[relu.index()].to_string(), "2×8×5×7");
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) name: Arc<str>,
    pub(crate) rank: usize,
    pub(crate) nodes: Arc<[Node]>,
    pub(crate) output: NodeId,
}

/// One operation of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(crate) name: String,
    pub(crate) op: Op,
    pub(crate) inputs: Vec<NodeId>,
    pub(crate) channels: usize,
}

/// The place of a node in [`Network::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// The index into [`Network::nodes`] and into what [`Network::infer`] returns.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

impl Node {
    /// The node's name: that of the layer in the model it comes from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the node does.
    #[must_use]
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// The nodes it reads, all of them before it.
    #[must_use]
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// The channels that come out.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }
}

impl Network {
    /// The name, as it appears in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of spatial axes: 2 or 3.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// All nodes, each after those that it reads. The first is the input.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The ids of all nodes, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// The node whose value is the network's.
    #[must_use]
    pub fn output(&self) -> NodeId {
        self.output
    }

    /// The channels that the network takes, the noise map's included.
    #[must_use]
    pub fn input_channels(&self) -> usize {
        self.nodes[0].channels
    }

    /// The channels that the network gives.
    #[must_use]
    pub fn output_channels(&self) -> usize {
        self.node(self.output).channels
    }

    /// The number of weights, biases included.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let tensors = self.nodes.iter().flat_map(|node| node.op.tensors());
        let foreign = self.nodes.iter().filter_map(|node| node.op.foreign());
        tensors.map(|tensor| tensor.shape().count()).sum::<usize>()
            + foreign.map(|foreign| foreign.parameters()).sum::<usize>()
    }

    /// The network of another file format that this one is, if it is one.
    #[must_use]
    pub fn foreign(&self) -> Option<&Foreign> {
        self.nodes.iter().find_map(|node| node.op.foreign())
    }

    /// How many nodes read each node; the output counts as read once more.
    #[must_use]
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        uses[self.output.0] += 1;
        for input in self.nodes.iter().flat_map(|node| &node.inputs) {
            uses[input.0] += 1;
        }
        uses
    }

    /// The shape of every node's value for an input of this shape.
    ///
    /// The sizes need not be multiples of the alignment as far as each node can cope: strides
    /// round down as in PyTorch.
    pub fn infer(&self, input: &Shape) -> Result<Vec<Shape>> {
        if input.rank() != 2 + self.rank || input.channels() != self.input_channels() {
            return Err(self.fault(
                NodeId(0),
                format!(
                    "the input has the shape {input}; batch×{}×{} is needed",
                    self.input_channels(),
                    ["height×width", "depth×height×width"][self.rank - 2]
                ),
            ));
        }
        if input.count() == 0 {
            return Err(self.fault(NodeId(0), format!("the input of shape {input} is empty")));
        }
        let axes: Vec<Vec<usize>> = (0..self.rank)
            .map(|axis| self.infer_axis(axis, input.spatial()[axis]))
            .collect::<Result<_>>()?;
        let shape = |id: NodeId| {
            let spatial: Vec<usize> = axes.iter().map(|sizes| sizes[id.0]).collect();
            Shape::image(input.batch(), self.node(id).channels, &spatial)
                .map_err(|error| self.fault(id, error.to_string()))
        };
        self.ids().map(shape).collect()
    }

    /// The size of every node's value along one spatial axis. Axes do not influence each other.
    pub(crate) fn infer_axis(&self, axis: usize, size: usize) -> Result<Vec<usize>> {
        let mut sizes: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for id in self.ids() {
            let node = self.node(id);
            let incoming = match node.inputs.first() {
                None => size,
                Some(first) => sizes[first.0],
            };
            if let Some(other) = node.inputs.iter().find(|other| sizes[other.0] != incoming) {
                return Err(self.fault(
                    id,
                    format!(
                        "its inputs differ on axis {axis}: `{}` has the size {incoming}, `{}` has \
                         {}; they must be equal",
                        self.node(node.inputs[0]).name,
                        self.node(*other).name,
                        sizes[other.0]
                    ),
                ));
            }
            let size =
                node.op.output_size(axis, incoming).map_err(|reason| self.fault(id, reason))?;
            sizes.push(size);
        }
        Ok(sizes)
    }

    pub(crate) fn fault(&self, id: NodeId, reason: String) -> Error {
        let node = self.node(id).name.clone();
        Error::Node { network: self.name.to_string(), node, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::NetworkBuilder;
    use crate::op::{Conv, ConvTranspose, PaddingMode};
    use crate::tensor::Tensor;

    fn filled<const N: usize>(sizes: [usize; N]) -> Tensor {
        Tensor::filled(Shape::new(sizes).expect("small"), 0.1)
    }

    /// Down by a strided convolution, up by a transposed one, and the skip added.
    fn hourglass() -> Network {
        let mut builder = NetworkBuilder::new("hourglass", 2).expect("rank 2");
        let mut push = |name: &str, op, inputs: &[NodeId]| {
            builder.push(name, op, inputs).expect("the nodes fit")
        };
        let input = push("input", Op::Input { channels: 1 }, &[]);
        let down = push("down", Op::Conv(Conv::new(filled([4, 1, 2, 2])).stride(2)), &[input]);
        let up = ConvTranspose::new(filled([4, 1, 2, 2])).stride(2);
        let up = push("up", Op::ConvTranspose(up), &[down]);
        let sum = push("sum", Op::Add, &[up, input]);
        builder.finish(sum).expect("all nodes are used")
    }

    fn inferred(network: &Network, sizes: [usize; 4]) -> Result<Vec<String>> {
        let shapes = network.infer(&Shape::new(sizes)?)?;
        Ok(shapes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn shapes_follow_strides_down_and_up() {
        let shapes = inferred(&hourglass(), [3, 1, 8, 6]).expect("even sizes");
        assert_eq!(shapes, ["3×1×8×6", "3×4×4×3", "3×1×8×6", "3×1×8×6"]);
    }

    #[test]
    fn sizes_that_do_not_meet_again_name_the_node_and_both_inputs() {
        let error = inferred(&hourglass(), [1, 1, 8, 7]).expect_err("7 is odd");
        assert_eq!(
            error.to_string(),
            "hourglass: node `sum`: its inputs differ on axis 1: `up` has the size 6, `input` has \
             7; they must be equal"
        );
    }

    #[test]
    fn wrong_channels_name_what_is_needed() {
        let error = inferred(&hourglass(), [1, 3, 8, 8]).expect_err("3 channels");
        assert!(error.to_string().contains("batch×1×height×width is needed"), "{error}");
    }

    #[test]
    fn reflection_wider_than_the_image_is_refused() {
        let mut builder = NetworkBuilder::new("mirror", 2).expect("rank 2");
        let input = builder.push("input", Op::Input { channels: 1 }, &[]).expect("first");
        let conv = Conv::new(filled([1, 1, 5, 5])).padding(2).mode(PaddingMode::Reflect);
        let conv = builder.push("conv", Op::Conv(conv), &[input]).expect("fits");
        let network = builder.finish(conv).expect("all used");
        assert!(inferred(&network, [1, 1, 3, 3]).is_ok());
        let error = inferred(&network, [1, 1, 2, 3]).expect_err("2 cannot mirror 2");
        assert!(error.to_string().contains("at most 1 is possible"), "{error}");
    }

    #[test]
    fn clones_share_their_weights() {
        let network = hourglass();
        assert!(Arc::ptr_eq(&network.nodes, &network.clone().nodes));
    }
}
