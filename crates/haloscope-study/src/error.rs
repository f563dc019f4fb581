//! Errors of a study, divided by who can fix them.

/// The result of a step of a study.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a step of a study did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller passed something that cannot be right.
    #[error("{what}: {reason}")]
    Argument {
        /// The parameter.
        what: &'static str,
        /// What was given and what would be accepted.
        reason: String,
    },

    /// A file could not be read or written, or does not hold what it should.
    #[error("{file}: {reason}")]
    File {
        /// The name of the file.
        file: String,
        /// What is wrong.
        reason: String,
    },

    /// A process that measures could not be started, failed, or said something unexpected.
    #[error("{configuration}: {reason}")]
    Process {
        /// What it was to measure.
        configuration: String,
        /// What happened.
        reason: String,
    },

    /// The study was asked to end; the rows so far are in its folder.
    #[error("the study was interrupted")]
    Interrupted,

    /// A reconstruction failed.
    #[error(transparent)]
    Reconstruction(#[from] haloscope::Error),
}

impl Error {
    /// A parameter that is refused, with what was given and what would be accepted.
    pub fn argument(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Argument { what, reason: reason.into() }
    }

    // Errors of the system come by value, and words as they are.
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn file(path: &std::path::Path, reason: impl ToString) -> Self {
        Self::File { file: path.display().to_string(), reason: reason.to_string() }
    }
}

impl From<haloscope_comm::Error> for Error {
    fn from(error: haloscope_comm::Error) -> Self {
        Self::Reconstruction(error.into())
    }
}

impl From<haloscope_nn::Error> for Error {
    fn from(error: haloscope_nn::Error) -> Self {
        Self::Reconstruction(error.into())
    }
}
