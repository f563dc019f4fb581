//! Errors of submitting and following jobs, divided by who can fix them.

use std::path::{Path, PathBuf};

/// The result of a step with Slurm.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a job could not be written, submitted, followed or collected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be right.
    #[error("{what}: {reason}")]
    Argument {
        /// The option or field.
        what: String,
        /// What was given and what would be accepted.
        reason: String,
    },

    /// A file could not be read or written.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said; the message has it, so that it is no source of its own.
        reason: std::io::Error,
    },

    /// A file does not hold what it should.
    #[error("{}: {reason}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A command of Slurm could not be run, or refused.
    #[error("{command}: {reason}")]
    Slurm {
        /// `sbatch` and so on.
        command: &'static str,
        /// What it said.
        reason: String,
    },
}

impl Error {
    pub(super) fn argument(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Argument { what: what.into(), reason: reason.into() }
    }

    pub(super) fn file(file: &Path, reason: std::io::Error) -> Self {
        Self::File { file: file.to_owned(), reason }
    }
}
