//! How far a run is, on standard error of rank 0: a bar on a terminal, a line every few seconds elsewhere, and with `-v`
//! a line for each iteration.
//!
//! Neither has colours, so that `NO_COLOR` asks for nothing more.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use haloscope::solve::{Record, Seconds};
use haloscope_comm::Context;
use indicatif::{ProgressBar, ProgressStyle};

use crate::log;

/// Between two lines.
const PAUSE: Duration = Duration::from_secs(5);

/// What shows the progress.
pub(super) enum Progress {
    Bar(ProgressBar),
    Lines {
        begin: Instant,
        last: Instant,
        first: usize,
        iterations: usize,
    },
    /// Every iteration, with where its time went.
    Each {
        iterations: usize,
    },
    Silent,
}

impl Progress {
    /// For a run that has done some iterations already.
    pub(super) fn new(ctx: &Context, quiet: bool, done: usize, iterations: usize) -> Self {
        if quiet || !ctx.is_root() || log::is_json() {
            return Self::Silent;
        }
        if ::log::log_enabled!(::log::Level::Info) {
            return Self::Each { iterations };
        }
        let begin = Instant::now();
        if !std::io::stderr().is_terminal() {
            return Self::Lines { begin, last: begin, first: done, iterations };
        }
        let bar = ProgressBar::new(iterations as u64).with_position(done as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left");
        bar.set_style(style.expect("a template that was tried"));
        bar.reset_eta();
        Self::Bar(bar)
    }

    /// An iteration is done; `facts` are words on it.
    pub(super) fn show(&mut self, record: &Record, facts: &str) {
        let iteration = record.iteration;
        match self {
            Self::Silent => (),
            Self::Each { iterations } => {
                let line =
                    format!("iteration {iteration} of {iterations}, {facts}, {}", times(record));
                log::message(::log::Level::Info, &line);
            }
            Self::Bar(bar) => {
                bar.set_message(facts.to_owned());
                bar.set_position(iteration as u64);
            }
            Self::Lines { begin, last, first, iterations } => {
                if last.elapsed() < PAUSE {
                    return;
                }
                *last = Instant::now();
                let each = begin.elapsed().as_secs_f64() / (iteration - *first).max(1) as f64;
                let left = each * iterations.saturating_sub(iteration) as f64;
                let line =
                    format!("iteration {iteration} of {iterations}, {facts}, {left:.0} s left\n");
                // Nobody may be there to read it.
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        }
    }

    /// Leaves the terminal as it was.
    pub(super) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Where the time of an iteration went on this rank; with `-vv` also what it waited for, and its memory.
fn times(record: &Record) -> String {
    let Seconds { total, data, prior, communication, waiting } = record.seconds;
    let change = match record.data_term {
        Some(_) => format!("change {:.1e}, ", record.relative_change),
        None => String::new(),
    };
    let mut parts = vec![format!("{change}{total:.3} s (data {data:.3} s, prior {prior:.3} s)")];
    if ::log::log_enabled!(::log::Level::Debug) {
        parts.push(format!("messages {communication:.3} s, waiting {waiting:.3} s"));
        parts.extend(record.peak_bytes.map(|bytes| format!("peak {:.0} MB", bytes as f64 / 1e6)));
    }
    parts.join(", ")
}
