#![doc = include_str!("../README.md")]

mod builder;
pub mod engine;
mod error;
mod footprint;
mod foreign;
pub mod models;
mod network;
mod op;
mod reference;
mod shape;
mod stop;
mod tensor;
pub mod weights;

pub use builder::NetworkBuilder;
pub use error::{Error, Result};
pub use footprint::{Footprint, NetworkCost};
pub use foreign::{Foreign, ForeignNetwork};
pub use network::{Network, Node, NodeId};
pub use op::{Activation, Conv, ConvTranspose, Op, PaddingMode, Pool, PoolKind, UpsampleMode};
pub use reference::{Accumulate, run_reference, run_reference_as};
pub use shape::Shape;
pub use stop::Stop;
pub use tensor::Tensor;
pub use weights::StateDict;
