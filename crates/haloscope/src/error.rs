//! Errors of a reconstruction, divided by who can fix them.

/// The result of a step of a reconstruction.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a step of a reconstruction did not succeed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller passed an invalid argument.
    #[error("{what}: {reason}")]
    Argument {
        /// The operator, function or parameter.
        what: String,
        /// What was given and what would be accepted.
        reason: String,
    },

    /// An array has a shape that the operator or function does not accept.
    #[error("{what} has shape {found:?}; {expected}")]
    Shape {
        /// What the array is: `the image of blur`.
        what: String,
        /// What would be accepted.
        expected: String,
        /// The shape that was given.
        found: Vec<usize>,
    },

    /// A calculation is not finite: the input holds infinities or NaNs, or a method diverged.
    #[error("{what}: {reason}")]
    Numeric {
        /// The method.
        what: String,
        /// What happened, and what may help.
        reason: String,
    },

    /// A file could not be read or written.
    #[error("{file}: {reason}")]
    File {
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

    /// A file has a valid format that this build does not support.
    #[error("{file}: {reason}")]
    Unsupported {
        /// The name of the file.
        file: String,
        /// What it is and what is supported.
        reason: String,
    },

    /// A file requests more than the limits allow.
    #[error("{file}: {reason}")]
    Limit {
        /// The name of the file.
        file: String,
        /// What it requests and what is allowed.
        reason: String,
    },

    /// Another rank failed.
    #[error("rank {rank}: {reason}")]
    OnRank {
        /// The rank.
        rank: usize,
        /// Its error.
        reason: String,
    },

    /// A call between ranks failed.
    #[error(transparent)]
    Ranks(#[from] haloscope_comm::Error),

    /// A network could not be built, loaded or run.
    #[error(transparent)]
    Network(#[from] haloscope_nn::Error),
}

impl Error {
    /// An invalid parameter, with what was given and what would be accepted.
    pub fn argument(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Argument { what: what.into(), reason: reason.into() }
    }
}
