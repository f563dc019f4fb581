//! Trained weights: names and tensors, from safetensors files and from what `torch.save` writes.
//!
//! Files are not trusted: nothing in them is executed, every length is checked before memory is
//! allocated for it, and [`Limits`] bound the rest. The reader is chosen by a file's content, not by
//! its name.

mod element;
mod fault;
mod limits;
mod pytorch;
mod safetensors;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;
use fault::{Fault, Outcome};
use limits::Budget;
pub use limits::Limits;

/// The tensors of a checkpoint by name. Numbers of other types are rounded to `f32`.
///
/// In a PyTorch file the name of a tensor is the path to it: the keys of dictionaries and the
/// positions in lists, joined by dots. Whatever is not a tensor is passed over.
///
/// ```no_run
/// use haloscope_nn::models::{Architecture, Drunet};
/// use haloscope_nn::weights::{Limits, StateDict};
///
/// let state = StateDict::open("drunet_color.pth", &Limits::default())?;
/// let model = Drunet::default().load(&state)?;
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateDict {
    tensors: BTreeMap<String, Tensor>,
}

impl StateDict {
    /// The tensors of the file at `path`.
    pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        match File::open(path) {
            Ok(file) => Self::read(BufReader::new(file), &name, limits),
            Err(error) => Err(Error::Read { file: name, reason: error.to_string() }),
        }
    }

    /// The tensors of a file that is open or in memory; `name` is for messages.
    pub fn read(mut source: impl Read + Seek, name: &str, limits: &Limits) -> Result<Self> {
        read(&mut source, limits).map_err(|fault| fault.of(name))
    }

    /// Adds a tensor, or replaces the one of this name.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) {
        self.tensors.insert(name.into(), tensor);
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// All tensors with their names, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// How many tensors there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensors whose names begin with `prefix` and a dot, without these: the model's part of a
    /// training checkpoint that keeps it under a key such as `state_dict`.
    #[must_use]
    pub fn section(&self, prefix: &str) -> Self {
        let tensors = self.tensors.iter().filter_map(|(name, tensor)| {
            let rest = name.strip_prefix(prefix)?.strip_prefix('.')?;
            Some((rest.to_owned(), tensor.clone()))
        });
        Self { tensors: tensors.collect() }
    }
}

impl FromIterator<(String, Tensor)> for StateDict {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        Self { tensors: tensors.into_iter().collect() }
    }
}

fn read(source: &mut (impl Read + Seek), limits: &Limits) -> Outcome<StateDict> {
    // Enough to see all the beginnings below.
    const HEAD: u64 = 512;
    let length = source.seek(SeekFrom::End(0))?;
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source.by_ref().take(HEAD).read_to_end(&mut head)?;
    let mut budget = Budget::new(limits, length)?;
    if head.starts_with(pytorch::ZIP) {
        return pytorch::read_archive(source, length, &mut budget);
    }
    if pytorch::is_legacy(&head) {
        return pytorch::read_legacy(source, length, &mut budget);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Err(Fault::Unsupported(
            "a tar archive, as the first versions of PyTorch wrote them, which is not read; \
             rewrite it with a current one: \
             torch.save(torch.load('old.pth', map_location='cpu'), 'new.pth')"
                .into(),
        ));
    }
    if safetensors::is_likely(&head) {
        return safetensors::read(source, length, &mut budget);
    }
    Err(Fault::content(match length {
        0 => "it is empty; safetensors files and what torch.save writes are read",
        _ => "not a file of weights; safetensors files and what torch.save writes are read",
    }))
}

/// The shape of a tensor of a file.
fn checked_shape(name: &str, sizes: Vec<usize>, limits: &Limits) -> Outcome<Shape> {
    if sizes.len() > limits.axes {
        return Err(Fault::Limit(format!(
            "tensor `{name}` has more than {} axes, which is what is allowed",
            limits.axes
        )));
    }
    Shape::new(sizes).map_err(|error| Fault::content(format!("tensor `{name}`: {error}")))
}
