//! The problems of a study, as arguments.

use std::str::FromStr;

use haloscope_study::problem::{Problem, named};
use log::Level;

use crate::log::message;

/// A problem by its name, or by what it was called before.
#[derive(Clone, Debug)]
pub(super) struct StudiedProblem {
    problem: Problem,
    /// What was typed.
    name: String,
}

impl FromStr for StudiedProblem {
    type Err = haloscope_study::Error;

    fn from_str(name: &str) -> haloscope_study::Result<Self> {
        Ok(Self { problem: named(name)?, name: name.to_owned() })
    }
}

/// The problems that are asked for, with a hint where one has another name now.
pub(super) fn chosen(arguments: &[StudiedProblem]) -> Vec<Problem> {
    for StudiedProblem { problem, name } in arguments {
        if problem.name() != name {
            message(Level::Warn, &format!("the problem `{name}` is called `{problem}` now"));
        }
    }
    arguments.iter().map(|argument| argument.problem).collect()
}
