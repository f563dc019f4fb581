//! The nodes of a network as nodes of ONNX: one for one, but for padding that is not of zeros and for shuffles.
//!
//! Names of nodes stay; what is beside them begins with their name and a slash.

use haloscope_nn::{
    Activation, Conv, ConvTranspose, Network, Node, Op, PaddingMode, PoolKind, Tensor, UpsampleMode,
};

use super::graph::{Attribute, Graph};

/// The nodes of a network on their way into a graph.
pub(crate) struct Operations<'a> {
    pub(crate) network: &'a Network,
    pub(crate) graph: &'a mut Graph,
}

impl Operations<'_> {
    /// Adds all nodes for this input, and returns the name of the result.
    pub(crate) fn push_all(mut self, input: &str) -> String {
        let network = self.network;
        let mut names: Vec<String> = Vec::with_capacity(network.nodes().len());
        for node in network.nodes() {
            let inputs: Vec<&str> =
                node.inputs().iter().map(|input| &*names[input.index()]).collect();
            let name = match node.op() {
                Op::Input { .. } => input.to_owned(),
                _ => self.push(node, &inputs),
            };
            names.push(name);
        }
        names.swap_remove(network.output().index())
    }

    fn push(&mut self, node: &Node, inputs: &[&str]) -> String {
        // A name of its own: the network may have a node that is called like an input of the graph.
        let name = format!("network/{}", node.name());
        match node.op() {
            Op::Input { .. } | Op::Foreign(_) => {
                unreachable!("the input has no node, and foreign networks are refused before")
            }
            Op::Conv(conv) => self.conv(&name, conv, inputs[0]),
            Op::ConvTranspose(conv) => self.conv_transpose(&name, conv, inputs[0]),
            Op::Activation(activation) => self.activation(&name, *activation, inputs[0]),
            Op::Add => self.graph.node("Sum", name, inputs, &[]),
            Op::Concat => {
                self.graph.node("Concat", name, inputs, &[("axis", Attribute::Integer(1))])
            }
            Op::Pool(pool) => {
                let kind = match pool.kind {
                    PoolKind::Average => "AveragePool",
                    PoolKind::Max => "MaxPool",
                };
                let attributes = [
                    ("kernel_shape", Attribute::Integers(&pool.size)),
                    ("strides", Attribute::Integers(&pool.stride)),
                ];
                self.graph.node(kind, name, inputs, &attributes)
            }
            Op::Upsample { factor, mode } => self.upsample(&name, *factor, *mode, inputs[0]),
            Op::PixelShuffle(factor) => {
                self.shuffle("ConvTranspose", &name, *factor, node.channels(), inputs[0])
            }
            Op::PixelUnshuffle(factor) => {
                let channels = self.network.node(node.inputs()[0]).channels();
                self.shuffle("Conv", &name, *factor, channels, inputs[0])
            }
            Op::Affine { scale, shift } => {
                let [scale, shift] = [("scale", scale), ("shift", shift)].map(|(part, tensor)| {
                    let mut sizes = vec![1; 2 + self.network.rank()];
                    sizes[1] = tensor.values().len();
                    self.graph.weights(format!("{name}/{part}"), &sizes, tensor.values())
                });
                let scaled =
                    self.graph.node("Mul", format!("{name}/scaled"), &[inputs[0], &scale], &[]);
                self.graph.node("Add", name, &[&scaled, &shift], &[])
            }
            Op::Scale(factor) => {
                let factor = self.graph.weights(format!("{name}/factor"), &[], &[*factor]);
                self.graph.node("Mul", name, &[inputs[0], &factor], &[])
            }
        }
    }

    fn conv(&mut self, name: &str, conv: &Conv, input: &str) -> String {
        let padding = both_ends(&conv.padding);
        let (input, padding) = match mode_name(conv.mode) {
            Some(mode) if padding.iter().any(|&pixels| pixels > 0) => {
                (self.pad(name, &conv.padding, mode, input), vec![0; padding.len()])
            }
            _ => (input.to_owned(), padding),
        };
        let inputs = self.with_weights(name, input, &conv.weight, conv.bias.as_ref());
        let attributes = [
            ("kernel_shape", Attribute::Integers(conv.kernel())),
            ("strides", Attribute::Integers(&conv.stride)),
            ("pads", Attribute::Integers(&padding)),
        ];
        self.node_of("Conv", name, &inputs, &attributes)
    }

    fn conv_transpose(&mut self, name: &str, conv: &ConvTranspose, input: &str) -> String {
        let inputs = self.with_weights(name, input.to_owned(), &conv.weight, conv.bias.as_ref());
        let attributes = [
            ("kernel_shape", Attribute::Integers(conv.kernel())),
            ("strides", Attribute::Integers(&conv.stride)),
            ("pads", Attribute::Integers(&both_ends(&conv.padding))),
        ];
        self.node_of("ConvTranspose", name, &inputs, &attributes)
    }

    /// The input, the weights and the bias of a convolution by name.
    fn with_weights(
        &mut self,
        name: &str,
        input: String,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Vec<String> {
        let parts = [("weight", Some(weight)), ("bias", bias)];
        let constants = parts.into_iter().filter_map(|(part, tensor)| Some((part, tensor?)));
        let mut inputs = vec![input];
        for (part, tensor) in constants {
            let (sizes, values) = (tensor.shape().sizes(), tensor.values());
            inputs.push(self.graph.weights(format!("{name}/{part}"), sizes, values));
        }
        inputs
    }

    fn node_of(
        &mut self,
        kind: &str,
        name: &str,
        inputs: &[String],
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let inputs: Vec<&str> = inputs.iter().map(|input| &**input).collect();
        self.graph.node(kind, name, &inputs, attributes)
    }

    /// The input with a margin on all sides.
    fn pad(&mut self, name: &str, padding: &[usize], mode: &str, input: &str) -> String {
        let margin: Vec<usize> = [0, 0].into_iter().chain(padding.iter().copied()).collect();
        let margin: Vec<i64> = both_ends(&margin).iter().map(|&pixels| pixels as i64).collect();
        let margin = self.graph.integers(format!("{name}/margin"), &margin);
        let mode = [("mode", Attribute::Text(mode))];
        self.graph.node("Pad", format!("{name}/padded"), &[input, &margin], &mode)
    }

    fn activation(&mut self, name: &str, activation: Activation, input: &str) -> String {
        let alpha = |value| vec![("alpha", Attribute::Float(value))];
        let (kind, attributes) = match activation {
            Activation::Relu => ("Relu", vec![]),
            Activation::LeakyRelu(slope) => ("LeakyRelu", alpha(slope)),
            Activation::Elu(scale) => ("Elu", alpha(scale)),
            Activation::Softplus => ("Softplus", vec![]),
        };
        self.graph.node(kind, name, &[input], &attributes)
    }

    fn upsample(&mut self, name: &str, factor: usize, mode: UpsampleMode, input: &str) -> String {
        let rank = self.network.rank();
        let scales: Vec<f32> =
            [1.0; 2].into_iter().chain(std::iter::repeat_n(factor as f32, rank)).collect();
        let scales = self.graph.floats(format!("{name}/scales"), &[2 + rank], &scales);
        let (mode, coordinates) = match mode {
            UpsampleMode::Nearest => ("nearest", "asymmetric"),
            UpsampleMode::Linear => ("linear", "half_pixel"),
        };
        let attributes = [
            ("mode", Attribute::Text(mode)),
            ("coordinate_transformation_mode", Attribute::Text(coordinates)),
            ("nearest_mode", Attribute::Text("floor")),
        ];
        // The second input is for a mode that is not used.
        self.graph.node("Resize", name, &[input, "", &scales], &attributes)
    }

    /// Space to channels, or back with the transposed convolution, as a convolution in which every weight but one of each
    /// block is zero: ONNX has no such operation for volumes, and none for pictures in this order of channels.
    fn shuffle(
        &mut self,
        kind: &str,
        name: &str,
        factor: usize,
        groups: usize,
        input: &str,
    ) -> String {
        let rank = self.network.rank();
        let block = factor.pow(rank as u32);
        let mut weights = vec![0.0; groups * block * block];
        for (channel, kernel) in weights.chunks_exact_mut(block).enumerate() {
            kernel[channel % block] = 1.0;
        }
        let kernel = vec![factor; rank];
        let sizes: Vec<usize> =
            [groups * block, 1].into_iter().chain(kernel.iter().copied()).collect();
        let weights = self.graph.weights(format!("{name}/weight"), &sizes, &weights);
        let attributes = [
            ("group", Attribute::Integer(groups as i64)),
            ("kernel_shape", Attribute::Integers(&kernel)),
            ("strides", Attribute::Integers(&kernel)),
        ];
        self.graph.node(kind, name, &[input, &weights], &attributes)
    }
}

/// ONNX's name of a padding that is not of zeros.
fn mode_name(mode: PaddingMode) -> Option<&'static str> {
    match mode {
        PaddingMode::Zero => None,
        PaddingMode::Reflect => Some("reflect"),
        PaddingMode::Replicate => Some("edge"),
        PaddingMode::Circular => Some("wrap"),
    }
}

/// What is added before all axes, then what is added behind them.
fn both_ends(padding: &[usize]) -> Vec<usize> {
    [padding, padding].concat()
}
