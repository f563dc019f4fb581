//! What is wrong with a file, before its name is known.

use std::fmt::Display;

use crate::error::Error;

/// The result of reading a part of a file.
pub(super) type Outcome<T> = Result<T, Fault>;

/// The part of an [`Error`] that a reader of bytes can tell.
#[derive(Debug)]
pub(super) enum Fault {
    Read(String),
    Content(String),
    Unsupported(String),
    Limit(String),
}

impl Fault {
    /// The content is wrong.
    pub(super) fn content(reason: impl Display) -> Self {
        Self::Content(reason.to_string())
    }

    /// The file has this name.
    pub(super) fn of(self, file: &str) -> Error {
        let file = file.to_owned();
        match self {
            Self::Read(reason) => Error::Read { file, reason },
            Self::Content(reason) => Error::Content { file, reason },
            Self::Unsupported(reason) => Error::Unsupported { file, reason },
            Self::Limit(reason) => Error::Limit { file, reason },
        }
    }
}

/// A file that ends too early is at fault itself; anything else is the system's.
impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        match error.kind() {
            UnexpectedEof => Self::content(format!("it is cut short ({error})")),
            InvalidData => Self::content(format!("it is damaged ({error})")),
            _ => Self::Read(error.to_string()),
        }
    }
}
