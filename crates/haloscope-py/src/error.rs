//! Errors of Rust as exceptions of Python, whose classes are in `haloscope/_errors.py`.

use haloscope::Error;
use haloscope_comm::Error as RanksError;
use haloscope_nn::Error as NetworkError;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

/// The exception for an error. One that Python code raised comes back as itself, with its traceback and a note of who called it.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    if let Error::Foreign { what, error } = &error
        && let Some(exception) = error.downcast_ref::<PyErr>()
    {
        let exception = exception.clone_ref(py);
        add_note(py, &exception, &format!("in the {what}"));
        return exception;
    }
    let class = match &error {
        Error::Interrupted => return PyKeyboardInterrupt::new_err(()),
        Error::Argument { .. } => "ArgumentError",
        Error::Shape { .. } => "ShapeError",
        Error::Numeric { .. } => "NumericError",
        Error::File { .. }
        | Error::Content { .. }
        | Error::Unsupported { .. }
        | Error::Limit { .. } => "FileError",
        Error::OnRank { .. } => "RankError",
        Error::Ranks(error) => of_ranks(error),
        Error::Network(error) => of_network(error),
        _ => "Error",
    };
    let rank = match &error {
        Error::OnRank { rank, .. } | Error::Ranks(RanksError::RankFailed { rank, .. }) => {
            Some(*rank)
        }
        Error::Ranks(RanksError::Timeout { ranks, .. } | RanksError::Stuck { ranks, .. }) => {
            ranks.first().copied()
        }
        _ => None,
    };
    new(py, class, &error.to_string(), rank)
        .unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
}

fn new(py: Python<'_>, class: &str, message: &str, rank: Option<usize>) -> PyResult<PyErr> {
    let exception = py.import("haloscope._errors")?.getattr(class)?.call1((message,))?;
    if class == "RankError" {
        exception.setattr("rank", rank)?;
    }
    Ok(PyErr::from_value(exception))
}

fn of_ranks(error: &RanksError) -> &'static str {
    match error {
        RanksError::Argument { .. } => "ArgumentError",
        RanksError::Setup(_) | RanksError::Unsupported(_) => "Error",
        _ => "RankError",
    }
}

fn of_network(error: &NetworkError) -> &'static str {
    match error {
        NetworkError::Node { .. } => "ShapeError",
        NetworkError::Argument { .. }
        | NetworkError::Weights { .. }
        | NetworkError::Unrecognized { .. } => "ArgumentError",
        NetworkError::Read { .. }
        | NetworkError::Content { .. }
        | NetworkError::Unsupported { .. }
        | NetworkError::Limit { .. } => "FileError",
        NetworkError::Halo { .. } => "RankError",
        _ => "Error",
    }
}

/// Says where an exception came up; before Python 3.11 there are no notes.
pub(crate) fn add_note(py: Python<'_>, exception: &PyErr, note: &str) {
    let value = exception.value(py);
    let notes: Vec<String> =
        value.getattr("__notes__").and_then(|notes| notes.extract()).unwrap_or_default();
    if !notes.iter().any(|known| known == note) {
        // Without notes the exception says what it said before.
        let _ = value.call_method1("add_note", (note,));
    }
}

/// An error as `Result`s of pyo3 take it.
pub(crate) trait Raised<T> {
    /// With its exception.
    fn raised(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Error>> Raised<T> for Result<T, E> {
    fn raised(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, error.into()))
    }
}
