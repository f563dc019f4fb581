//! Runs the trials of a study, each in a process of its own, and keeps the rows as they come.
//!
//! An interrupted study stops its measuring process and keeps what was measured so far. The caller supplies the check for
//! an interruption.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::results::Results;
use crate::row::{Backend, Row};
use crate::trial::{Answer, Question, Trial};

/// The program that measures deepinv, for `python -c`.
pub const DEEPINV: &str = include_str!("deepinv.py");

/// How measuring processes are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program that measures; it gets the arguments below and a JSON document.
    pub program: PathBuf,
    /// Its arguments before the document.
    pub arguments: Vec<String>,
    /// What starts it on ranks of MPI, as words; the number of ranks follows: `mpirun -n`.
    pub mpi: Vec<String>,
    /// Whether the study is to end with [`Error::Interrupted`].
    pub is_interrupted: fn() -> bool,
}

/// How long an interruption may go unnoticed.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a process that is asked to end may take: what starts ranks ends them first, also those of other nodes.
const GRACE: Duration = Duration::from_secs(5);

/// Progress reports of a study.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A configuration begins: its number, of how many, and what it is.
    Begins(usize, usize, &'a Trial),
    /// It was there already.
    WasThere(usize, usize, &'a Trial),
    /// A repetition is done, and these are its rows.
    Repetition(&'a [Row]),
}

impl Launcher {
    /// Measures all that is missing of `trials`, in order.
    pub fn run(
        &self,
        trials: &[Trial],
        results: &mut Results,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        for (index, trial) in trials.iter().enumerate() {
            let repetitions = results.missing(trial)?;
            if repetitions.is_empty() {
                report(Progress::WasThere(index, trials.len(), trial));
                continue;
            }
            let trial = Trial { repetitions, ..trial.clone() };
            report(Progress::Begins(index, trials.len(), &trial));
            let measured = self.measure(&trial, results, report);
            // Also what was measured before something went wrong.
            results.save()?;
            measured?;
        }
        results.save()
    }

    /// Measures what messages between two ranks cost, unless that is known.
    pub fn measure_link(&self, backend: Backend, results: &mut Results) -> Result<()> {
        if results.provenance().links.contains_key(&backend.to_string()) {
            return Ok(());
        }
        let what = format!("messages between two ranks ({backend})");
        let mut found = None;
        self.ask(backend, 2, &Question::Link(backend), &what, |answer| {
            if let Answer::Link(speed) = answer {
                found = Some(speed);
            }
            Ok(())
        })?;
        let Some(speed) = found else {
            let reason = "it ended without an answer".into();
            return Err(Error::Process { configuration: what, reason });
        };
        results.note_link(backend, speed);
        results.save()
    }

    fn measure(
        &self,
        trial: &Trial,
        results: &mut Results,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let configuration = &trial.configuration;
        let what = configuration.to_string();
        let question = Question::Trial(Box::new(trial.clone()));
        let mut done = 0;
        self.ask(configuration.backend, configuration.ranks, &question, &what, |answer| {
            match answer {
                Answer::Data(digest) => results.note_data(trial, &digest)?,
                Answer::Repetition { rows, image } => {
                    if let Some(image) = image {
                        results.note_image(trial, &image)?;
                    }
                    results.append(rows.clone())?;
                    report(Progress::Repetition(&rows));
                    done += 1;
                }
                Answer::Peer(settings) => results.note_peer(trial, settings),
                Answer::Link(_) => (),
            }
            Ok(())
        })?;
        if done == trial.repetitions.len() {
            return Ok(());
        }
        let reason = format!("it measured {done} of {} repetitions", trial.repetitions.len());
        Err(Error::Process { configuration: what, reason })
    }

    /// Starts a process, and gives each of its answers to `take`.
    fn ask(
        &self,
        backend: Backend,
        ranks: usize,
        question: &Question,
        what: &str,
        mut take: impl FnMut(Answer) -> Result<()>,
    ) -> Result<()> {
        let failed = |reason: String| Error::Process { configuration: what.to_owned(), reason };
        let question =
            serde_json::to_string(question).map_err(|error| failed(error.to_string()))?;
        let mut command = match (backend, self.mpi.split_first()) {
            (Backend::Mpi | Backend::Torchrun, Some((launcher, words))) => {
                let mut command = Command::new(launcher);
                command.args(words).arg(ranks.to_string()).arg(&self.program);
                command
            }
            _ => Command::new(&self.program),
        };
        command.args(&self.arguments).arg(question).stdin(Stdio::null()).stdout(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = Measuring(
            command.spawn().map_err(|error| failed(format!("{name} does not start: {error}")))?,
        );
        let lines = child.lines();
        loop {
            if (self.is_interrupted)() {
                return Err(Error::Interrupted);
            }
            let line = match lines.recv_timeout(PAUSE) {
                Ok(line) => line.map_err(|error| failed(error.to_string()))?,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            // Launchers may say things of their own.
            if !line.starts_with('{') {
                continue;
            }
            let answer = serde_json::from_str(&line)
                .map_err(|error| failed(format!("it said `{line}`: {error}")))?;
            take(answer)?;
        }
        let status = child.0.wait().map_err(|error| failed(error.to_string()))?;
        match status.success() {
            true => Ok(()),
            // A terminal sends its Ctrl-C to the measuring process, too.
            false if (self.is_interrupted)() => Err(Error::Interrupted),
            false => Err(failed(format!("{name} ended with {status}"))),
        }
    }
}

/// A process that is ended with the study.
struct Measuring(Child);

impl Measuring {
    /// What it prints, line by line as it comes. Reading is left to a thread, because nothing else ends a wait for a
    /// line.
    fn lines(&mut self) -> Receiver<std::io::Result<String>> {
        let (sender, receiver) = mpsc::channel();
        if let Some(output) = self.0.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    // Nobody listens to the end of a study that is interrupted.
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        receiver
    }

    fn has_ended(&mut self) -> bool {
        // One that cannot be asked is no child any more.
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end, as a queue does: the launcher must be notified, or its ranks would continue.
    #[cfg(unix)]
    fn ask_to_end(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        // It may have ended just now.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
    }

    #[cfg(not(unix))]
    fn ask_to_end(&mut self) {
        let _ = self.0.kill();
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        self.ask_to_end();
        let begin = Instant::now();
        while !self.has_ended() && begin.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
