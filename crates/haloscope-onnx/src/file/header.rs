//! What an ONNX file says of itself: inputs, outputs, weights and nodes, without running anything.
//!
//! Files are not trusted: lengths are checked against what is there, counts against [limits](MOST_NODES), and weights in files
//! of their own must lie beside the file. The numbers are the fields of `onnx.proto`.

use std::path::{Component, Path};

use super::protobuf::{Fields, Value};

/// More nodes than any network has.
const MOST_NODES: usize = 1 << 20;
/// More inputs or outputs than are worth looking at.
const MOST_PORTS: usize = 64;
/// More axes than tensors have.
const MOST_AXES: usize = 16;

/// What a file says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Header {
    /// Inputs that are no weights.
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    pub(crate) nodes: Vec<Node>,
    /// The number of weights.
    pub(crate) parameters: usize,
    /// Whether weights are in files beside it.
    pub(crate) has_files: bool,
    /// The version of the standard operations.
    pub(crate) operations: Option<u64>,
    /// Notes by their keys.
    pub(crate) notes: Vec<(String, String)>,
}

/// An input or an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// The number of its type.
    pub(crate) element: u64,
    pub(crate) sizes: Vec<Extent>,
}

/// A size: known, known by name, or not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Extent {
    Fixed(usize),
    Named(String),
    #[default]
    Unknown,
}

/// What a node reads and writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
}

type Read<T> = Result<T, String>;

impl Header {
    /// Reads the header of a file with these bytes.
    pub(crate) fn read(bytes: &[u8]) -> Read<Self> {
        let mut header = Self::default();
        let mut weights = Vec::new();
        let mut has_graph = false;
        for field in Fields::new(bytes) {
            match field? {
                (7, Value::Bytes(graph)) => {
                    has_graph = true;
                    header.read_graph(graph, &mut weights)?;
                }
                (8, Value::Bytes(set)) => header.read_operations(set)?,
                (14, Value::Bytes(note)) => header.notes.push(read_note(note)?),
                _ => (),
            }
        }
        if !has_graph {
            return Err("there is no graph in it; it is no ONNX file, or only part of one".into());
        }
        header.inputs.retain(|input| !weights.contains(&input.name));
        Ok(header)
    }

    fn read_graph(&mut self, graph: &[u8], weights: &mut Vec<String>) -> Read<()> {
        for field in Fields::new(graph) {
            match field? {
                (1, Value::Bytes(node)) => self.nodes.push(read_node(node)?),
                (5, Value::Bytes(tensor)) => weights.push(self.read_tensor(tensor)?),
                (11, Value::Bytes(port)) => self.inputs.push(read_port(port)?),
                (12, Value::Bytes(port)) => self.outputs.push(read_port(port)?),
                _ => (),
            }
            let ports = self.inputs.len().saturating_sub(weights.len()).max(self.outputs.len());
            for (what, count, most) in
                [("nodes", self.nodes.len(), MOST_NODES), ("inputs or outputs", ports, MOST_PORTS)]
            {
                if count > most {
                    return Err(format!("more than {most} {what}"));
                }
            }
        }
        Ok(())
    }

    fn read_operations(&mut self, set: &[u8]) -> Read<()> {
        let (mut domain, mut version) = ("", None);
        for field in Fields::new(set) {
            match field? {
                (1, Value::Bytes(bytes)) => domain = text(bytes)?,
                (2, Value::Number(number)) => version = Some(number),
                _ => (),
            }
        }
        if matches!(domain, "" | "ai.onnx") {
            self.operations = version.or(self.operations);
        }
        Ok(())
    }

    /// Counts a tensor's values, and returns its name.
    fn read_tensor(&mut self, tensor: &[u8]) -> Read<String> {
        let (mut sizes, mut name, mut is_outside) = (Vec::new(), String::new(), false);
        for field in Fields::new(tensor) {
            match field? {
                (1, Value::Number(size)) => sizes.push(size),
                (1, Value::Bytes(packed)) => sizes.extend(Fields::packed(packed)?),
                (8, Value::Bytes(bytes)) => text(bytes)?.clone_into(&mut name),
                (13, Value::Bytes(entry)) => check_place(entry)?,
                (14, Value::Number(location)) => is_outside = location == 1,
                _ => (),
            }
            if sizes.len() > MOST_AXES {
                return Err(format!("a tensor of more than {MOST_AXES} axes"));
            }
        }
        let count = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let count = count.and_then(|count| usize::try_from(count).ok());
        // The smallest types have two values in a byte.
        let most = if is_outside { 1 << 40 } else { 2 * tensor.len() };
        match count {
            Some(count) if count <= most => {
                self.parameters = self.parameters.saturating_add(count);
                self.has_files |= is_outside;
                Ok(name)
            }
            _ => Err(format!(
                "the tensor `{name}` claims the sizes {sizes:?}, more than are in the file"
            )),
        }
    }
}

/// Refuses weights that are not beside the file.
fn check_place(entry: &[u8]) -> Read<()> {
    let (key, value) = read_note(entry)?;
    let is_beside = Path::new(&value).components().all(|part| matches!(part, Component::Normal(_)));
    if key == "location" && !is_beside {
        return Err(format!("its weights are in `{value}`; they must be beside the file"));
    }
    Ok(())
}

fn read_note(note: &[u8]) -> Read<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    for field in Fields::new(note) {
        match field? {
            (1, Value::Bytes(bytes)) => text(bytes)?.clone_into(&mut key),
            (2, Value::Bytes(bytes)) => text(bytes)?.clone_into(&mut value),
            _ => (),
        }
    }
    Ok((key, value))
}

fn read_node(node: &[u8]) -> Read<Node> {
    let mut found = Node::default();
    for field in Fields::new(node) {
        match field? {
            (1, Value::Bytes(name)) => found.inputs.push(text(name)?.to_owned()),
            (2, Value::Bytes(name)) => found.outputs.push(text(name)?.to_owned()),
            _ => (),
        }
    }
    Ok(found)
}

fn read_port(port: &[u8]) -> Read<Port> {
    let mut found = Port::default();
    for field in Fields::new(port) {
        match field? {
            (1, Value::Bytes(name)) => text(name)?.clone_into(&mut found.name),
            (2, Value::Bytes(kind)) => {
                for field in Fields::new(kind) {
                    if let (1, Value::Bytes(tensor)) = field? {
                        read_type(tensor, &mut found)?;
                    }
                }
            }
            _ => (),
        }
    }
    Ok(found)
}

fn read_type(tensor: &[u8], port: &mut Port) -> Read<()> {
    for field in Fields::new(tensor) {
        match field? {
            (1, Value::Number(element)) => port.element = element,
            (2, Value::Bytes(shape)) => {
                for field in Fields::new(shape) {
                    if let (1, Value::Bytes(size)) = field? {
                        port.sizes.push(read_size(size)?);
                    }
                }
            }
            _ => (),
        }
        if port.sizes.len() > MOST_AXES {
            return Err(format!("`{}` has more than {MOST_AXES} axes", port.name));
        }
    }
    Ok(())
}

fn read_size(size: &[u8]) -> Read<Extent> {
    let mut found = Extent::Unknown;
    for field in Fields::new(size) {
        match field? {
            // Some writers have 0 or -1 for what is not known.
            (1, Value::Number(number)) => {
                let size = usize::try_from(number.cast_signed()).ok().filter(|size| *size > 0);
                found = size.map_or(Extent::Unknown, Extent::Fixed);
            }
            (2, Value::Bytes(name)) if !name.is_empty() => {
                found = Extent::Named(text(name)?.to_owned());
            }
            _ => (),
        }
    }
    Ok(found)
}

fn text(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|_| "a name in it is no text".into())
}
