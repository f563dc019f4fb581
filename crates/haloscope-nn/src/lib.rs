#![doc = include_str!("../README.md")]

mod builder;
mod error;
mod network;
mod op;
mod shape;
mod tensor;

pub use builder::NetworkBuilder;
pub use error::{Error, Result};
pub use network::{Network, Node, NodeId};
pub use op::{Activation, Conv, ConvTranspose, Op, PaddingMode, Pool, PoolKind, UpsampleMode};
pub use shape::Shape;
pub use tensor::Tensor;
