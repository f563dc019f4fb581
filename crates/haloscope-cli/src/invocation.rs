//! How the command was called, and the words that start it again: ranks, measurements and jobs of a cluster are this program.
//!
//! A program that embeds the command ([`run_by`](crate::run_by)), as Python does, is not the command itself.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

static INVOCATION: Mutex<Invocation> =
    Mutex::new(Invocation { program: Vec::new(), arguments: Vec::new() });

struct Invocation {
    /// The program and the arguments that make it this command; this executable, if there are none.
    program: Vec<String>,
    /// The arguments behind the first.
    arguments: Vec<String>,
}

/// Notes how the command is called.
pub(crate) fn note(program: &[String], arguments: &[OsString]) {
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    let invocation = Invocation { program: program.to_vec(), arguments: words.collect() };
    *INVOCATION.lock().unwrap_or_else(PoisonError::into_inner) = invocation;
}

/// The words that start this command again, before its arguments.
pub(crate) fn program() -> Result<Vec<String>> {
    let given = INVOCATION.lock().unwrap_or_else(PoisonError::into_inner).program.clone();
    if !given.is_empty() {
        return Ok(given);
    }
    let own = std::env::current_exe().context("the path of this program")?;
    Ok(vec![own.display().to_string()])
}

/// The arguments that it was given.
pub(crate) fn arguments() -> Vec<String> {
    INVOCATION.lock().unwrap_or_else(PoisonError::into_inner).arguments.clone()
}
