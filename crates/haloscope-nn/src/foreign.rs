//! Networks that are no graph of this crate: files of other formats, which an engine runs as a whole.
//!
//! A [`Network`](crate::Network) with such a node is denoised, tiled and forecast like any other; only its own engine can plan
//! it. What the rest of the program has to know of it is [`ForeignNetwork`].

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;

/// What is known of a network that only its own engine can run. Its output is as large as its input.
pub trait ForeignNetwork: Any + Send + Sync + fmt::Debug {
    /// The name of the engine that runs it.
    fn engine(&self) -> &'static str;

    /// The channels that it takes, the noise map's included.
    fn input_channels(&self) -> usize;

    /// The channels that it gives.
    fn output_channels(&self) -> usize;

    /// What the sides of images are multiples of inside; at least 1.
    fn alignment(&self) -> usize;

    /// The sides of the only images that it takes, if it takes no others. Its engine covers larger ones with several.
    fn fixed_sides(&self) -> Option<&[usize]> {
        None
    }

    /// The number of weights.
    fn parameters(&self) -> usize;

    /// About how many multiplications with a weight a run on an input of this shape takes.
    fn multiply_adds(&self, input: &Shape) -> u64;

    /// About how many bytes its values take at most in a run on an input of this shape, input and output aside.
    fn value_bytes(&self, input: &Shape) -> u64;
}

/// A shared [`ForeignNetwork`]. It equals its clones.
#[derive(Clone, Debug)]
pub struct Foreign(Arc<dyn ForeignNetwork>);

impl Foreign {
    /// Wraps the network.
    #[must_use]
    pub fn new(network: impl ForeignNetwork) -> Self {
        Self(Arc::new(network))
    }

    /// The network as the type that its engine made, if it is that engine's.
    #[must_use]
    pub fn downcast<T: ForeignNetwork>(&self) -> Option<&T> {
        let network: &dyn Any = &*self.0;
        network.downcast_ref()
    }

    /// Refuses networks that only another engine can run.
    pub(crate) fn check_none(network: &Network, engine: &'static str) -> Result<()> {
        let Some(foreign) = network.foreign() else { return Ok(()) };
        let reason = format!("{} runs on {} only", network.name(), foreign.engine());
        Err(Error::Engine { engine, reason })
    }
}

impl Deref for Foreign {
    type Target = dyn ForeignNetwork;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for Foreign {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
