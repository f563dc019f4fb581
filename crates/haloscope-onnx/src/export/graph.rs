//! A graph in ONNX's terms: nodes, constants, inputs and outputs. The numbers are the fields of `onnx.proto`.

use half::f16;

use super::protobuf::Message;

/// The number of the type `f32`.
const FLOAT: i64 = 1;
/// The number of the type `f16`.
const FLOAT16: i64 = 10;
/// The number of the type `i64`.
const INT64: i64 = 7;

/// A graph in the making. Values are known by their names.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Whether weights are in half precision.
    is_half: bool,
    nodes: Vec<Message>,
    constants: Vec<Message>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
}

/// A size of a value: known, or known by name only.
#[derive(Clone, Debug)]
pub(crate) enum Dimension {
    Fixed(usize),
    Named(String),
}

/// An attribute of a node.
#[derive(Debug)]
pub(crate) enum Attribute<'a> {
    Integer(i64),
    Integers(&'a [usize]),
    Float(f32),
    Text(&'a str),
}

impl Graph {
    /// A graph whose weights are in half precision, or in single precision.
    pub(crate) fn new(is_half: bool) -> Self {
        Self { is_half, ..Self::default() }
    }

    /// Adds a node with one output, whose name the node has too, and returns that.
    pub(crate) fn node(
        &mut self,
        kind: &str,
        output: impl Into<String>,
        inputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let output = output.into();
        let mut node = Message::default();
        for input in inputs {
            node = node.text(1, input);
        }
        let attributes = attributes.iter().map(|(name, attribute)| attribute.encode(name));
        let node = node.text(2, &output).text(3, &output).text(4, kind).messages(5, attributes);
        self.nodes.push(node);
        output
    }

    /// Adds constant numbers in single precision, and returns their name.
    pub(crate) fn floats(
        &mut self,
        name: impl Into<String>,
        sizes: &[usize],
        values: &[f32],
    ) -> String {
        let name = name.into();
        let tensor = tensor(&name, sizes, FLOAT).raw_floats(9, values);
        self.constants.push(tensor);
        name
    }

    /// Adds weights in the precision of the network, and returns their name.
    pub(crate) fn weights(
        &mut self,
        name: impl Into<String>,
        sizes: &[usize],
        values: &[f32],
    ) -> String {
        if !self.is_half {
            return self.floats(name, sizes, values);
        }
        let name = name.into();
        let bytes: Vec<u8> =
            values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
        self.constants.push(tensor(&name, sizes, FLOAT16).bytes(9, &bytes));
        name
    }

    /// Adds a change to the precision of the network, or back to single precision.
    pub(crate) fn cast(&mut self, name: &str, value: &str, to_half: bool) -> String {
        let kind = if to_half { FLOAT16 } else { FLOAT };
        self.node("Cast", name, &[value], &[("to", Attribute::Integer(kind))])
    }

    /// Adds a list of constant integers, and returns its name.
    pub(crate) fn integers(&mut self, name: impl Into<String>, values: &[i64]) -> String {
        let name = name.into();
        self.push_integers(&name, &[values.len()], values);
        name
    }

    /// Adds one constant integer, and returns its name.
    pub(crate) fn integer(&mut self, name: impl Into<String>, value: i64) -> String {
        let name = name.into();
        self.push_integers(&name, &[], &[value]);
        name
    }

    /// Adds an input of the graph.
    pub(crate) fn input(&mut self, name: &str, sizes: &[Dimension]) {
        self.inputs.push(value(name, sizes));
    }

    /// Adds an output of the graph.
    pub(crate) fn output(&mut self, name: &str, sizes: &[Dimension]) {
        self.outputs.push(value(name, sizes));
    }

    /// The message of the whole graph.
    pub(crate) fn finish(self, name: &str) -> Message {
        Message::default()
            .messages(1, self.nodes)
            .text(2, name)
            .messages(5, self.constants)
            .messages(11, self.inputs)
            .messages(12, self.outputs)
    }

    fn push_integers(&mut self, name: &str, sizes: &[usize], values: &[i64]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constants.push(tensor(name, sizes, INT64).bytes(9, &bytes));
    }
}

impl Attribute<'_> {
    fn encode(&self, name: &str) -> Message {
        let message = Message::default().text(1, name);
        match self {
            Self::Float(value) => message.float(2, *value).integer(20, 1),
            Self::Integer(value) => message.integer(3, *value).integer(20, 2),
            Self::Text(text) => message.text(4, text).integer(20, 3),
            Self::Integers(values) => {
                let all = values.iter();
                all.fold(message, |message, &value| message.integer(8, value as i64)).integer(20, 7)
            }
        }
    }
}

/// A tensor without its values.
fn tensor(name: &str, sizes: &[usize], kind: i64) -> Message {
    let sizes = sizes.iter();
    let message = sizes.fold(Message::default(), |message, &size| message.integer(1, size as i64));
    message.integer(2, kind).text(8, name)
}

/// The name and the type of an input or an output.
fn value(name: &str, sizes: &[Dimension]) -> Message {
    let sizes = sizes.iter().map(|size| match size {
        Dimension::Fixed(size) => Message::default().integer(1, *size as i64),
        Dimension::Named(name) => Message::default().text(2, name),
    });
    let shape = Message::default().messages(1, sizes);
    let tensor = Message::default().integer(1, FLOAT).message(2, &shape);
    let kind = Message::default().message(1, &tensor);
    Message::default().text(1, name).message(2, &kind)
}
