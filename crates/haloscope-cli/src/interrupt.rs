//! Ctrl-C, and the signal that queues send before a job's time is up.
//!
//! The first signal is a request, which a run looks for after every iteration and a study while it waits for the process
//! that measures; the second ends the process at once.
//! Nothing happens in the handlers themselves but the setting of flags.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(u8);

impl Signal {
    /// The request with this number, if it is one.
    pub fn from_number(number: u8) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    pub fn number(self) -> u8 {
        self.0
    }

    /// What a process that is ended by it returns, by the custom of shells.
    pub fn exit_code(self) -> u8 {
        128 + self.0
    }

    pub fn name(self) -> &'static str {
        if i32::from(self.0) == SIGINT { "Ctrl-C" } else { "SIGTERM" }
    }
}

static LATEST: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From now on, the first signal is a request. Called once, before there are ranks.
pub(crate) fn watch() -> Result<()> {
    let latest = LATEST.get_or_init(Arc::default);
    let requested = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Handlers run in this order, so that this one sees what an earlier signal has set.
        flag::register_conditional_shutdown(signal, 128 + signal, requested.clone())
            .and_then(|_| flag::register(signal, requested.clone()))
            .and_then(|_| flag::register_usize(signal, latest.clone(), signal as usize))
            .context("cannot watch for Ctrl-C")?;
    }
    Ok(())
}

/// The request, if there is one.
pub(crate) fn requested() -> Option<Signal> {
    Signal::from_number(LATEST.get()?.load(Ordering::Relaxed) as u8)
}
