//! What can go wrong in a reconstruction, split by who can do something about it.

/// The result of a step of a reconstruction.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a step of a reconstruction did not succeed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller passed something that cannot be right.
    #[error("{what}: {reason}")]
    Argument {
        /// The operator, function or parameter.
        what: &'static str,
        /// What was given and what would be accepted.
        reason: String,
    },

    /// An array has another shape than the operator or function takes.
    #[error("{what} has shape {found:?}; {expected}")]
    Shape {
        /// What the array is: `the image of blur`.
        what: String,
        /// What would be accepted.
        expected: String,
        /// The shape that was given.
        found: Vec<usize>,
    },

    /// A calculation left the numbers: the input holds infinities or NaNs, or a method diverged.
    #[error("{what}: {reason}")]
    Numeric {
        /// The method.
        what: &'static str,
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

    /// A file is what it claims to be, which this build does not know.
    #[error("{file}: {reason}")]
    Unsupported {
        /// The name of the file.
        file: String,
        /// What it is and what would be read.
        reason: String,
    },

    /// A file asks for more than the limits allow.
    #[error("{file}: {reason}")]
    Limit {
        /// The name of the file.
        file: String,
        /// What it asks for and what is allowed.
        reason: String,
    },

    /// Another rank could not do its part.
    #[error("rank {rank}: {reason}")]
    OnRank {
        /// The rank.
        rank: usize,
        /// What it says.
        reason: String,
    },

    /// Ranks did not get through a call together.
    #[error(transparent)]
    Ranks(#[from] haloscope_comm::Error),

    /// A network could not be built, loaded or run.
    #[error(transparent)]
    Network(#[from] haloscope_nn::Error),
}

impl Error {
    /// A parameter that is refused, with what was given and what would be accepted.
    pub fn argument(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Argument { what, reason: reason.into() }
    }
}
