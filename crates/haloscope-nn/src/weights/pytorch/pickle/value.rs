//! What a pickle can make: plain values, containers, and the storages and tensors of `PyTorch`.
//!
//! Containers refer to each other by their place in an arena, so that a pickle can tie knots but not
//! leak or exhaust the call stack.

use std::sync::Arc;

use crate::weights::element::Element;

/// The raw numbers that tensors are views of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// The name that the file has for it.
    pub key: Arc<str>,
    pub element: Element,
    /// How many numbers it has.
    pub count: usize,
}

/// A tensor: a view of a storage.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub storage: Storage,
    pub offset: usize,
    pub sizes: Vec<usize>,
    pub strides: Vec<usize>,
}

/// What a pickle says about the bytes of a storage when it first names it, also of one that holds
/// numbers that are not read.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub class: Arc<str>,
    pub count: u64,
}

/// What the stack of the machine holds.
#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool,
    Int(i64),
    Text(Arc<str>),
    /// A class or function, by module and name.
    Global(Arc<str>),
    /// A list, tuple or dictionary, by its place in the arena.
    Container(usize),
    /// A storage, and the place in it where a part of it begins that stands for the whole.
    Storage(Storage, usize),
    Tensor(Arc<Layout>),
    /// Anything else.
    Opaque,
}

/// A value that holds others.
#[derive(Debug)]
pub(super) enum Container {
    /// A list or a tuple.
    Sequence(Vec<Value>),
    Dictionary(Vec<(Value, Value)>),
}

/// The numbers in a storage of this class, if they are read.
pub(super) fn element(class: &str) -> Option<Element> {
    Some(match class {
        "torch.DoubleStorage" => Element::F64,
        "torch.FloatStorage" => Element::F32,
        "torch.HalfStorage" => Element::F16,
        "torch.BFloat16Storage" => Element::Bf16,
        "torch.LongStorage" => Element::I64,
        "torch.IntStorage" => Element::I32,
        "torch.ShortStorage" => Element::I16,
        "torch.CharStorage" => Element::I8,
        "torch.ByteStorage" => Element::U8,
        "torch.BoolStorage" => Element::Bool,
        _ => return None,
    })
}

/// The bytes of each number in a storage of this class, also of some that are not read.
pub(crate) fn element_bytes(class: &str) -> Option<usize> {
    element(class).map(Element::bytes).or(match class {
        "torch.ComplexDoubleStorage" => Some(16),
        "torch.ComplexFloatStorage" => Some(8),
        "torch.QInt32Storage" => Some(4),
        "torch.QInt8Storage" | "torch.QUInt8Storage" => Some(1),
        _ => None,
    })
}
