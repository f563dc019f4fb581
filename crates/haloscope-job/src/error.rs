//! Why there is no result: the job is wrong, or it did not work out.

use thiserror::Error;

/// Why there is no result. All ranks of a run have the same one.
#[derive(Debug, Error)]
pub enum Error {
    /// The job, its files or the machine do not allow it; nothing was computed.
    #[error(transparent)]
    Refused(haloscope::Error),
    /// It was right and did not work out: a file cannot be written, a rank is gone, a method diverged.
    #[error(transparent)]
    Failed(haloscope::Error),
}

impl Error {
    /// The error itself, whoever is at fault.
    #[must_use]
    pub fn into_inner(self) -> haloscope::Error {
        match self {
            Self::Refused(error) | Self::Failed(error) => error,
        }
    }
}

/// What a run returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Ranks that cannot be made or are gone.
impl From<haloscope_comm::Error> for Error {
    fn from(error: haloscope_comm::Error) -> Self {
        Self::Failed(error.into())
    }
}
