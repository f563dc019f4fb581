//! Errors of networks and their weights, divided by who can fix them.

use std::fmt;

/// The result of building, loading or running a network.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a network could not be built, loaded or run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller passed something that no network accepts.
    #[error("{what}: {reason}")]
    Argument {
        /// The function or the parameter.
        what: &'static str,
        /// What was given and what would be accepted.
        reason: String,
    },

    /// A node of the network does not fit the nodes before it, or the shape of the input.
    #[error("{network}: node `{node}`: {reason}")]
    Node {
        /// The name of the network.
        network: String,
        /// The name of the node.
        node: String,
        /// What it was given and what it would accept.
        reason: String,
    },

    /// A file could not be read.
    #[error("{file}: {reason}")]
    Read {
        /// The name of the file.
        file: String,
        /// What the system said.
        reason: String,
    },

    /// A file is damaged, or is not what it claims to be.
    #[error("{file}: {reason}")]
    Content {
        /// The name of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A file has a valid format that this reader does not support.
    #[error("{file}: {reason}")]
    Unsupported {
        /// The name of the file.
        file: String,
        /// What it is and what would be read.
        reason: String,
    },

    /// A file asks for more than the [`Limits`](crate::weights::Limits) allow.
    #[error("{file}: {reason}")]
    Limit {
        /// The name of the file.
        file: String,
        /// What it asks for and what is allowed.
        reason: String,
    },

    /// The names or shapes of the weights are not those of the model.
    #[error("the weights do not fit the model{}", Faults(missing, unexpected, wrong_shape))]
    Weights {
        /// Parameters of the model that are not among the weights.
        missing: Vec<String>,
        /// Weights that the model does not have.
        unexpected: Vec<String>,
        /// Weights of another shape, with both shapes.
        wrong_shape: Vec<String>,
    },

    /// The parts of an image could not tell each other what a step reads.
    #[error("{network}: before `{step}`: {reason}")]
    Halo {
        /// The name of the network.
        network: String,
        /// The step that was to come.
        step: String,
        /// What the [`Halo`](crate::engine::Halo) said.
        reason: String,
    },

    /// An engine, its library or its device is missing or failed.
    #[error("{engine}: {reason}")]
    Engine {
        /// The name of the engine.
        engine: &'static str,
        /// What happened, and what to install or change.
        reason: String,
    },

    /// A band of the image could not be read or written.
    #[error("{0}")]
    Band(
        /// What the [`BandSource`](crate::engine::BandSource) or the [`BandSink`](crate::engine::BandSink) said.
        String,
    ),

    /// Somebody asked for an end: see [`Stop`](crate::Stop).
    #[error("interrupted")]
    Interrupted,

    /// The names and shapes of the weights are of no architecture that is known.
    #[error("no known architecture has these weights: {reason}")]
    Unrecognized {
        /// What was found and what is known.
        reason: String,
    },
}

/// The lists that are not empty.
struct Faults<'a>(&'a [String], &'a [String], &'a [String]);

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("missing", self.0), ("unexpected", self.1), ("wrong shape", self.2)];
        for (title, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, "; {title}: {}", list.join(", "))?;
        }
        Ok(())
    }
}
