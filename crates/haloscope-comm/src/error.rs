//! Errors between ranks, divided by who can fix them.

use std::fmt;

/// The result of a call between ranks.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call between ranks did not succeed. Ranks are numbered as in the world communicator.
///
/// [`Argument`](Self::Argument), [`Setup`](Self::Setup) and [`Unsupported`](Self::Unsupported) leave
/// the communicator as it was. The others are final: every later call on any communicator of the
/// job returns the same error, on all ranks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller passed an invalid argument, whatever the other ranks do.
    #[error("{operation}: {reason}")]
    Argument {
        /// The operation or function that was called.
        operation: &'static str,
        /// What was given and what would be accepted.
        reason: String,
    },

    /// The environment of the process does not allow ranks to be created.
    #[error("{0}")]
    Setup(String),

    /// This build does not support what the environment or the caller requests.
    #[error("{0}")]
    Unsupported(String),

    /// Two ranks made different calls at the same point of the program.
    #[error("ranks disagree: {first}, but {second}")]
    Mismatch {
        /// What one rank called.
        first: CallSite,
        /// What the other rank called.
        second: CallSite,
    },

    /// A rank is gone: it panicked, left before the others, or ended the job.
    #[error("rank {rank} {cause}")]
    RankFailed {
        /// The rank that is gone.
        rank: usize,
        /// How it ended.
        cause: Cause,
    },

    /// Ranks did not make a call before the deadline.
    #[error(
        "{} did not arrive within {seconds:.1} s: rank {} waited in {} (call {})",
        RankList(ranks), site.rank, site.call, site.number
    )]
    Timeout {
        /// The ranks that were missing.
        ranks: Vec<usize>,
        /// The call in which a rank noticed.
        site: CallSite,
        /// How long it waited without any progress.
        seconds: f64,
    },

    /// All ranks are in the call, but nothing moves: the connection is stuck.
    #[error(
        "no data moved for {seconds:.1} s between rank {} and {} in {} (call {}), \
         although all ranks are in the call",
        site.rank, RankList(ranks), site.call, site.number
    )]
    Stuck {
        /// The ranks that data was expected from or sent to.
        ranks: Vec<usize>,
        /// The call in which a rank noticed.
        site: CallSite,
        /// How long it waited without any progress.
        seconds: f64,
    },

    /// The MPI library reported an error.
    #[error("MPI: {0}")]
    Transport(String),
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It panicked, with this message.
    Panicked(String),
    /// It finished while other ranks still needed it.
    Left,
    /// It returned an error of its own.
    ReturnedError,
    /// Its process ended by itself in the middle of the job.
    Exited,
    /// It called [`abort`](crate::Communicator::abort), for this reason.
    Aborted(String),
}

/// A call as one rank made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The rank that made it.
    pub rank: usize,
    /// How many calls this rank had made on the communicator before.
    pub number: u64,
    /// The call, as it would be written.
    pub call: String,
}

impl Error {
    /// Whether the job is over: the error is final and known to all ranks.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Argument { .. } | Self::Setup(_) | Self::Unsupported(_))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Left => f.write_str("left while other ranks still needed it"),
            Self::ReturnedError => f.write_str("returned an error"),
            Self::Exited => f.write_str("exited in the middle of the job"),
            Self::Aborted(reason) => write!(f, "ended the job: {reason}"),
        }
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} called {} as call {}", self.rank, self.call, self.number)
    }
}

/// `rank 3`, or `ranks 0, 2 and 3`.
pub(crate) struct RankList<'a>(pub &'a [usize]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("no rank"),
            [rank] => write!(f, "rank {rank}"),
            [first, middle @ .., last] => {
                write!(f, "ranks {first}")?;
                middle.iter().try_for_each(|rank| write!(f, ", {rank}"))?;
                write!(f, " and {last}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_names_the_missing_ranks_and_the_waiting_one() {
        let error = Error::Timeout {
            ranks: vec![0, 2, 3],
            site: CallSite { rank: 1, number: 7, call: "barrier()".into() },
            seconds: 2.0,
        };
        assert_eq!(
            error.to_string(),
            "ranks 0, 2 and 3 did not arrive within 2.0 s: rank 1 waited in barrier() (call 7)"
        );
    }
}
