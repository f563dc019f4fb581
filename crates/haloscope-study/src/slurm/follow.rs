//! Following jobs until they have ended: what changes in the queue, and what they print.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use super::error::{Error, Result};
use super::queue::{Ending, QueuedJob, State};

/// A controller that is restarted or busy may not answer for minutes, while jobs continue.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long the file of a job that nobody knows any more may take until it is seen from here.
const DELAY: Duration = Duration::from_secs(20);

/// How to follow.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// The time between two looks.
    pub pause: Duration,
    /// Whether the caller wants to stop following; the jobs continue.
    pub is_interrupted: fn() -> bool,
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
    jobs: &[QueuedJob],
    watch: Watch,
    on_event: &mut dyn FnMut(&QueuedJob, Event),
) -> Result<Option<Vec<Ending>>> {
    let mut trackers: Vec<Tracker> = jobs.iter().map(Tracker::new).collect();
    loop {
        for index in 0..trackers.len() {
            if let Err(error) = trackers[index].look(on_event) {
                return Err(with_jobs_left(error, &trackers));
            }
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

/// Nobody looks any more, but the jobs do not know.
fn with_jobs_left(error: Error, trackers: &[Tracker]) -> Error {
    let Error::Slurm { command, reason } = error else { return error };
    let left: Vec<String> = trackers
        .iter()
        .filter(|tracker| tracker.ending().is_none())
        .map(|tracker| {
            let job = tracker.job;
            let (cancel, output) = (job.cancel_command(), job.output());
            format!(
                "job {} goes on; `{cancel}` ends it, and its output is in {}",
                job.id,
                output.display()
            )
        })
        .collect();
    let minutes = PATIENCE.as_secs() / 60;
    let reason = format!("{reason} (no answer for {minutes} minutes; {})", left.join("; "));
    Error::Slurm { command, reason }
}

/// What is known of a job so far.
struct Tracker<'a> {
    job: &'a QueuedJob,
    state: Option<State>,
    /// How much of its output has been passed on.
    read: u64,
    /// Since when looks have given no answer.
    silent_since: Option<Instant>,
}

impl<'a> Tracker<'a> {
    fn new(job: &'a QueuedJob) -> Self {
        Self { job, state: None, read: 0, silent_since: None }
    }

    fn ending(&self) -> Option<&Ending> {
        match &self.state {
            Some(State::Ended(ending)) => Some(ending),
            _ => None,
        }
    }

    fn look(&mut self, on_event: &mut dyn FnMut(&QueuedJob, Event)) -> Result<()> {
        if self.ending().is_some() {
            return Ok(());
        }
        let Some(state) = self.believe(self.job.state(), Instant::now())? else { return Ok(()) };
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

    /// What an answer at some time says; nothing if a later one may say more.
    fn believe(&mut self, answer: Result<State>, now: Instant) -> Result<Option<State>> {
        let patience = match &answer {
            Err(_) => PATIENCE,
            // A job that nobody knows may have ended before its file is seen from here.
            Ok(State::Ended(ending)) if ending.word == "UNKNOWN" => DELAY,
            Ok(_) => {
                self.silent_since = None;
                return answer.map(Some);
            }
        };
        let since = *self.silent_since.get_or_insert(now);
        if now.duration_since(since) < patience { Ok(None) } else { answer.map(Some) }
    }

    /// Output that cannot be read now is there at the next look, or in the file.
    fn pass_output(&mut self, on_event: &mut dyn FnMut(&QueuedJob, Event)) {
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
        if (watch.is_interrupted)() {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(step);
        left = left.saturating_sub(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> QueuedJob {
        QueuedJob { id: 7, name: "denoise".into(), folder: "runs".into() }
    }

    fn silence() -> Result<State> {
        Err(Error::Slurm { command: "squeue", reason: "Unable to contact controller".into() })
    }

    #[test]
    fn a_silent_controller_is_given_minutes_and_each_answer_counts_anew() {
        let job = job();
        let mut tracker = Tracker::new(&job);
        let begin = Instant::now();
        for at in [begin, begin + PATIENCE / 2] {
            assert_eq!(tracker.believe(silence(), at).expect("patience"), None);
        }
        let answer = tracker.believe(Ok(State::Running), begin + PATIENCE).expect("an answer");
        assert_eq!(answer, Some(State::Running));
        let again = begin + 2 * PATIENCE;
        assert_eq!(tracker.believe(silence(), again).expect("patience"), None);
        let error = tracker.believe(silence(), again + PATIENCE).expect_err("silent for too long");
        let error = with_jobs_left(error, &[tracker]).to_string();
        assert!(error.starts_with("squeue: Unable to contact controller"), "{error}");
        assert!(error.contains("job 7 goes on; `scancel 7` ends it"), "{error}");
    }

    #[test]
    fn a_job_that_nobody_knows_may_still_leave_its_file() {
        let unknown = || {
            let ending = Ending { word: "UNKNOWN".into(), code: None };
            State::Ended(ending)
        };
        let job = job();
        let mut tracker = Tracker::new(&job);
        let begin = Instant::now();
        assert_eq!(tracker.believe(Ok(unknown()), begin).expect("patience"), None);
        let later = tracker.believe(Ok(unknown()), begin + DELAY).expect("an answer");
        assert_eq!(later, Some(unknown()));
    }
}
