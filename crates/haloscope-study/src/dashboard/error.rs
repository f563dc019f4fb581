//! Why a dashboard could not be made.

use std::path::{Path, PathBuf};

/// The result of a step towards a dashboard.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a dashboard could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said; the message has it, so that it is no source of its own.
        reason: std::io::Error,
    },

    /// A table is not one that a study writes.
    #[error("{}, line {line}{}: {reason}", file.display(), in_column(column.as_deref()))]
    Table {
        /// The file.
        file: PathBuf,
        /// Its line, counted from 1.
        line: u64,
        /// The column's name, where one is to blame.
        column: Option<String>,
        /// What is wrong, and what would be accepted.
        reason: String,
    },

    /// A description of a run is not JSON.
    #[error("{}, line {line}, column {column}: {reason}", file.display())]
    Provenance {
        /// The file.
        file: PathBuf,
        /// Its line, counted from 1.
        line: usize,
        /// The character in the line, counted from 1.
        column: usize,
        /// What the parser said.
        reason: String,
    },

    /// The caller gave something that cannot be right.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    pub(super) fn file(file: &Path, reason: std::io::Error) -> Self {
        Self::File { file: file.to_owned(), reason }
    }
}

fn in_column(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(", column {name}"))
}
