#![doc = include_str!("../README.md")]

mod call;
mod collectives;
mod common;
mod communicator;
mod context;
mod element;
mod error;
mod host;
mod intercept;
mod launcher;
mod link;
pub mod partition;
mod ranks;
mod root;
mod session;
mod statistics;
mod trace;

pub use call::{Call, Contribution, Incoming, Operation, Outgoing};
pub use collectives::traffic;
pub use communicator::{Collectives, Communicator};
pub use context::{Context, ContextOptions};
pub use element::{Element, ElementKind, Reduction, View, ViewMut};
pub use error::{CallSite, Cause, Error, Result};
pub use launcher::{CHOICE_VARIABLE, Choice, Launch, Launcher};
#[cfg(feature = "mpi")]
pub use link::mpi::{Mpi, MpiLink};
pub use link::solo::{Solo, SoloLink};
pub use link::threads::{ThreadLink, Threads};
pub use ranks::{DEFAULT_DEADLINE, MAX_DEADLINE, MIN_DEADLINE, Ranks};
pub use statistics::{CallCost, Statistics};
pub use trace::{Event, Span, Trace};
