//! Convolutions take over the sums and the activation behind them.

use crate::network::{Network, NodeId};
use crate::op::{Activation, Op};

/// What an engine can do at the end of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Epilogues {
    /// Values that it can add, at most.
    pub adds: usize,
    /// Whether it can apply an activation.
    pub activation: fn(Activation) -> bool,
}

/// A node with the nodes behind it that are computed together with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The node whose operation comes first. The layer has its name and its inputs.
    pub node: NodeId,
    /// Values that are added to the result, all of earlier layers.
    pub adds: Vec<NodeId>,
    /// What is applied after that.
    pub activation: Option<Activation>,
    /// The node whose value the layer computes.
    pub output: NodeId,
}

/// The layers of a network in the order of its nodes.
///
/// A convolution takes over the nodes behind it as long as nobody else reads what is between them: sums with values that
/// exist already, then one activation.
///
/// ```
/// use haloscope_nn::engine::graph::{Epilogues, fuse};
/// use haloscope_nn::models::{Architecture, Dncnn};
///
/// let model = Dncnn { depth: 4, channels: 8, ..Dncnn::default() }.random(0)?;
/// let layers = fuse(model.network(), &Epilogues { adds: 1, activation: |_| true });
/// // The input and four convolutions; the last adds the image.
/// assert_eq!(layers.len(), 5);
/// assert!(layers[1].activation.is_some() && layers[4].adds.len() == 1);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[must_use]
pub fn fuse(network: &Network, epilogues: &Epilogues) -> Vec<Layer> {
    let readers = readers(network);
    let mut computed = vec![false; network.nodes().len()];
    let mut absorbed = computed.clone();
    let mut layers = Vec::new();
    for id in network.ids() {
        if absorbed[id.index()] {
            continue;
        }
        let mut layer = Layer { node: id, adds: Vec::new(), activation: None, output: id };
        if let Op::Conv(_) | Op::ConvTranspose(_) = network.node(id).op() {
            while let [reader] = readers[layer.output.index()][..]
                && layer.output != network.output()
                && layer.activation.is_none()
                && absorb(&mut layer, network, reader, &computed, epilogues)
            {
                absorbed[reader.index()] = true;
                layer.output = reader;
            }
        }
        computed[layer.output.index()] = true;
        layers.push(layer);
    }
    layers
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

/// Adds the work of `reader` to the layer, if its epilogue can do it.
fn absorb(
    layer: &mut Layer,
    network: &Network,
    reader: NodeId,
    computed: &[bool],
    epilogues: &Epilogues,
) -> bool {
    let node = network.node(reader);
    match node.op() {
        Op::Add => {
            let others = node.inputs().iter().copied().filter(|input| *input != layer.output);
            let others: Vec<NodeId> = others.collect();
            let fits = others.iter().all(|other| computed[other.index()])
                && layer.adds.len() + others.len() <= epilogues.adds;
            if fits {
                layer.adds.extend(others);
            }
            fits
        }
        Op::Activation(activation) if (epilogues.activation)(*activation) => {
            layer.activation = Some(*activation);
            true
        }
        _ => false,
    }
}
