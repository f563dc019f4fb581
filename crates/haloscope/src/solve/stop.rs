//! When to stop.

use std::fmt;
use std::time::Duration;

use super::record::Record;
use crate::error::{Error, Result};

/// The rules; the first that holds ends the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopping {
    /// So many iterations, those before a continuation included.
    pub iterations: usize,
    /// An iteration that moves the image by less than this, relative to its norm; 0 for never.
    pub relative_change: f64,
    /// A data term of this or less: Morozov's discrepancy principle, where it is that of the noise.
    pub data_term: Option<f64>,
    /// So much time in this run.
    pub time_limit: Option<Duration>,
}

impl Default for Stopping {
    fn default() -> Self {
        Self { iterations: 100, relative_change: 0.0, data_term: None, time_limit: None }
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// All iterations are done.
    Iterations,
    /// The image hardly moves any more.
    RelativeChange,
    /// The data term is as small as asked for.
    DataTerm,
    /// The time is up.
    TimeLimit,
    /// The watcher said so.
    Watcher,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iterations => "all iterations are done",
            Self::RelativeChange => "the image hardly changes any more",
            Self::DataTerm => "the data are matched as well as asked for",
            Self::TimeLimit => "the time is up",
            Self::Watcher => "it was stopped",
        })
    }
}

impl Stopping {
    pub(super) fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(Error::argument("stopping", reason));
        if self.relative_change.is_nan() || self.relative_change < 0.0 {
            return bad(format!("a relative change of {}; it is at least 0", self.relative_change));
        }
        if self.data_term.is_some_and(f64::is_nan) {
            return bad("a data term that is not a number".into());
        }
        Ok(())
    }

    pub(super) fn reason(&self, record: &Record) -> Option<Reason> {
        if record.relative_change < self.relative_change {
            return Some(Reason::RelativeChange);
        }
        let matched =
            record.data_term.zip(self.data_term).is_some_and(|(term, target)| term <= target);
        matched.then_some(Reason::DataTerm)
    }
}
