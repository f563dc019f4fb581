//! How the command ends: exit codes, and errors that all ranks have.

use std::fmt;

use haloscope_comm::Context;

use crate::interrupt::Signal;

/// What `--help` says about exit codes.
pub(crate) const HELP: &str = "\
Exit codes:
  0    the command succeeded
  1    the command failed: a file cannot be written, a rank is gone, a method diverged, or no plan fits
  2    the command line, the job file or a file that it names is wrong; nothing was run
  130  Ctrl-C ended the run; a checkpoint or the rows so far are saved if it has any; a second Ctrl-C ends it at once
  134  the disk of a scratch folder filled up or failed during an iteration
  143  the same for SIGTERM, which queues send when the time is up";

/// How the command ended, if not by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Success,
    Interrupted(Signal),
}

impl Code {
    /// As the system takes it.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Interrupted(signal) => signal.exit_code(),
        }
    }
}

/// An error of who uses the command, on one rank.
#[derive(Debug)]
pub(crate) struct Misuse(String);

impl Misuse {
    pub(crate) fn error(reason: impl fmt::Display) -> anyhow::Error {
        Self(reason.to_string()).into()
    }

    /// Of a step of the library that says itself who is at fault.
    pub(crate) fn or_failure(error: haloscope_job::Error) -> anyhow::Error {
        match error {
            haloscope_job::Error::Refused(error) => Self::error(error),
            haloscope_job::Error::Failed(error) => error.into(),
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// The outcome of a step before anything is run, in which only what was asked for can be wrong.
pub(crate) trait Preparation<T> {
    /// Makes its error one of who uses the command.
    fn or_misuse(self) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Preparation<T> for Result<T, E> {
    fn or_misuse(self) -> anyhow::Result<T> {
        self.map_err(|error| Misuse::error(format!("{:#}", error.into())))
    }
}

/// An error that all ranks have and know that all have: no rank waits for another, and the first speaks for all.
#[derive(Debug)]
pub(crate) struct Agreed {
    error: haloscope::Error,
    pub code: u8,
    pub speaks: bool,
}

impl Agreed {
    /// What was asked for is wrong.
    pub(crate) fn misuse(ctx: &Context, error: haloscope::Error) -> anyhow::Error {
        Self::with_code(ctx, error, 2)
    }

    /// It was right and did not work out.
    pub(crate) fn failure(ctx: &Context, error: haloscope::Error) -> anyhow::Error {
        Self::with_code(ctx, error, 1)
    }

    /// The error of whichever rank, where one process speaks for all of them.
    pub(crate) fn aloud(error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<Self>() {
            Ok(agreed) => Self { speaks: true, ..agreed }.into(),
            Err(error) => error,
        }
    }

    fn with_code(ctx: &Context, error: haloscope::Error, code: u8) -> anyhow::Error {
        match error {
            // This one is the communicator's own, which it has told the others of.
            haloscope::Error::Ranks(error) => error.into(),
            error => Self { error, code, speaks: ctx.is_root() }.into(),
        }
    }
}

impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Agreed {}
