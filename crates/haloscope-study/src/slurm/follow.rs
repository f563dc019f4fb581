//! Following jobs until they have ended: what changes in the queue, and what they print.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::Result;
use super::queue::{Ending, Job, State};

/// The controller of a busy cluster does not answer every time.
const PATIENCE: u32 = 10;

/// How to follow.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    /// The time between two looks.
    pub pause: Duration,
    /// Becomes true when the caller has enough; the jobs go on.
    pub is_interrupted: &'a AtomicBool,
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Its state is another one.
    State(&'a State),
    /// It has printed this.
    Output(&'a [u8]),
}

/// Looks at the jobs until all have ended; `None` if the caller had enough before.
pub fn follow(
    jobs: &[Job],
    watch: Watch,
    on_event: &mut dyn FnMut(&Job, Event),
) -> Result<Option<Vec<Ending>>> {
    let mut trackers: Vec<Tracker> = jobs.iter().map(Tracker::new).collect();
    loop {
        for tracker in &mut trackers {
            tracker.look(on_event)?;
        }
        let endings: Option<Vec<Ending>> =
            trackers.iter().map(|tracker| tracker.ending().cloned()).collect();
        if endings.is_some() {
            return Ok(endings);
        }
        if is_interrupted_while(watch) {
            return Ok(None);
        }
    }
}

/// What is known of a job so far.
struct Tracker<'a> {
    job: &'a Job,
    state: Option<State>,
    /// How much of its output has been passed on.
    read: u64,
    /// Looks in a row that gave no answer.
    missed: u32,
}

impl<'a> Tracker<'a> {
    fn new(job: &'a Job) -> Self {
        Self { job, state: None, read: 0, missed: 0 }
    }

    fn ending(&self) -> Option<&Ending> {
        match &self.state {
            Some(State::Ended(ending)) => Some(ending),
            _ => None,
        }
    }

    fn look(&mut self, on_event: &mut dyn FnMut(&Job, Event)) -> Result<()> {
        if self.ending().is_some() {
            return Ok(());
        }
        let state = match self.job.state() {
            Err(_) if self.missed < PATIENCE => {
                self.missed += 1;
                return Ok(());
            }
            // A job that nobody knows may have ended before its file is seen from here.
            Ok(State::Ended(ending)) if ending.word == "UNKNOWN" && self.missed < PATIENCE => {
                self.missed += 1;
                return Ok(());
            }
            state => state?,
        };
        self.missed = 0;
        // Output comes before the news that the job has ended, and after the news that it runs.
        let is_end = matches!(state, State::Ended(_));
        if is_end {
            self.pass_output(on_event);
        }
        if self.state.as_ref() != Some(&state) {
            on_event(self.job, Event::State(&state));
            self.state = Some(state);
        }
        if !is_end {
            self.pass_output(on_event);
        }
        Ok(())
    }

    /// Output that cannot be read now is there at the next look, or in the file.
    fn pass_output(&mut self, on_event: &mut dyn FnMut(&Job, Event)) {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(self.job.output())?;
            file.seek(SeekFrom::Start(self.read))?;
            let mut fresh = Vec::new();
            file.read_to_end(&mut fresh)?;
            Ok(fresh)
        };
        if let Ok(fresh) = read()
            && !fresh.is_empty()
        {
            self.read += fresh.len() as u64;
            on_event(self.job, Event::Output(&fresh));
        }
    }
}

/// Pauses, but not for longer than it takes to notice an interruption.
fn is_interrupted_while(watch: Watch) -> bool {
    let step = Duration::from_millis(50).min(watch.pause);
    let mut left = watch.pause;
    loop {
        if watch.is_interrupted.load(Ordering::Relaxed) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(step);
        left = left.saturating_sub(step);
    }
}
