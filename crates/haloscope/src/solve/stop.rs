//! When to stop.

use std::fmt;
use std::time::Duration;

use super::record::Record;
use crate::error::{Error, Result};

/// The stopping rules; the run ends when the first of them holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopping {
    /// After this many iterations, including those before a resumed run.
    pub iterations: usize,
    /// When an iteration changes the image by less than this, relative to its norm; 0 for never.
    pub relative_change: f64,
    /// When the data term is at most this. With the data term of the noise, this is Morozov's discrepancy principle.
    pub data_term: Option<f64>,
    /// After this much time in this run.
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
    /// All iterations were completed.
    Iterations,
    /// The image hardly changes any more.
    RelativeChange,
    /// The data term is as small as requested.
    DataTerm,
    /// The time is up.
    TimeLimit,
    /// The watcher requested it.
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
