//! What can go wrong with networks and their weights, split by who can do something about it.

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
}
