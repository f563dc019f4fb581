//! Errors of a reconstruction, divided by who can fix them.

use std::fmt;
use std::sync::Arc;

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
    Network(haloscope_nn::Error),

    /// Somebody asked for an end: see [`Stop`](haloscope_nn::Stop).
    #[error("interrupted")]
    Interrupted,

    /// An operator or denoiser of the caller's failed in a way of its own.
    #[error("{what}: {error}")]
    Foreign {
        /// The operator or denoiser.
        what: String,
        /// Its error.
        error: ForeignError,
    },
}

/// The error of an operator or denoiser that is the caller's, as the caller made it.
///
/// ```
/// use haloscope::denoise::{Denoiser, denoiser_fn};
/// use haloscope::{Array, Error};
///
/// let picky = denoiser_fn("picky", |_, _| Err(Error::foreign("picky", "one".parse::<u32>().unwrap_err())));
/// let Err(Error::Foreign { error, .. }) = picky.denoise(&Array::zeros(vec![1, 1, 2]), &0.1.into()) else {
///     panic!("it fails");
/// };
/// assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());
/// ```
#[derive(Clone, Debug)]
pub struct ForeignError(Arc<dyn std::error::Error + Send + Sync>);

impl ForeignError {
    /// The error, if it is of this type.
    #[must_use]
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Errors of others need not be comparable: one equals its copies.
impl PartialEq for ForeignError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<haloscope_nn::Error> for Error {
    fn from(error: haloscope_nn::Error) -> Self {
        match error {
            haloscope_nn::Error::Interrupted => Self::Interrupted,
            error => Self::Network(error),
        }
    }
}

impl Error {
    /// An invalid parameter, with what was given and what would be accepted.
    pub fn argument(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Argument { what: what.into(), reason: reason.into() }
    }

    /// What an operator or denoiser of the caller's fails with.
    pub fn foreign(
        what: impl Into<String>,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Foreign { what: what.into(), error: ForeignError(Arc::new(error)) }
    }
}
