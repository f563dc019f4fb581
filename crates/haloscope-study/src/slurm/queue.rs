//! Slurm's commands: submits a script and queries the state of a job.
//!
//! A job that has left the queue is looked for in the accounts (`sacct`), in the controller's memory (`scontrol`) and
//! at last in the file that the script itself leaves, because clusters differ in which of these they keep.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{Error, Result};
use super::script::{OUTPUT, STATUS, Script};

/// A job that was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Where its script, its output and its exit code are.
    pub folder: PathBuf,
}

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is in the queue, for the reason that Slurm gives: `Resources`, `Priority`.
    Waiting(String),
    /// It runs.
    Running,
    /// It has ended.
    Ended(Ending),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Slurm's word: `COMPLETED`, `FAILED`, `TIMEOUT`, `CANCELLED`, …
    pub word: String,
    /// The exit code of the script, where it is known.
    pub code: Option<i32>,
}

impl Ending {
    /// Whether all went well.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.word == "COMPLETED" && self.code.unwrap_or(0) == 0
    }
}

impl QueuedJob {
    /// Writes the script into `folder` and submits it from there.
    pub fn submit(script: &Script, folder: &Path) -> Result<Self> {
        let file = script.write(folder)?;
        let folder = folder.canonicalize().map_err(|error| Error::file(folder, error))?;
        // What an earlier job left would be taken for this one's.
        for name in [OUTPUT, STATUS] {
            let old = folder.join(name);
            match std::fs::remove_file(&old) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::file(&old, error));
                }
                _ => (),
            }
        }
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut command = Command::new("sbatch");
        command.arg("--parsable").args(name).current_dir(&folder);
        let answer = run("sbatch", &mut command)?;
        let id = parse_id(&answer).ok_or_else(|| Error::Slurm {
            command: "sbatch",
            reason: format!("{answer:?} is not the number of a job"),
        })?;
        Ok(Self { id, name: script.name().into(), folder })
    }

    /// What it does now.
    pub fn state(&self) -> Result<State> {
        let id = self.id.to_string();
        let mut queue = Command::new("squeue");
        queue.args(["--noheader", "--format=%T|%r", "--jobs", &id]);
        // Jobs that have left the queue for long are an error of squeue's.
        let listed = run("squeue", &mut queue);
        if let Err(error @ Error::Slurm { .. }) = &listed
            && !error.to_string().contains("Invalid job id")
            && self.code().is_none()
        {
            return listed.map(|_| State::Running);
        }
        if let Some(state) = listed.ok().as_deref().and_then(parse_queue) {
            return Ok(self.complete(state));
        }
        let mut accounts = Command::new("sacct");
        accounts.args(["--noheader", "--parsable2", "--allocations", "--format=State,ExitCode"]);
        accounts.args(["--jobs", &id]);
        if let Some(state) = run("sacct", &mut accounts).ok().as_deref().and_then(parse_accounts) {
            return Ok(self.complete(state));
        }
        let mut controller = Command::new("scontrol");
        controller.args(["--oneliner", "show", "job", &id]);
        let shown = run("scontrol", &mut controller).ok();
        if let Some(state) = shown.as_deref().and_then(parse_controller) {
            return Ok(self.complete(state));
        }
        Ok(State::Ended(match self.code() {
            Some(0) => Ending { word: "COMPLETED".into(), code: Some(0) },
            Some(code) => Ending { word: "FAILED".into(), code: Some(code) },
            None => Ending { word: "UNKNOWN".into(), code: None },
        }))
    }

    /// The command that ends it.
    #[must_use]
    pub fn cancel_command(&self) -> String {
        format!("scancel {}", self.id)
    }

    /// The file that gets what the job prints.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.folder.join(OUTPUT)
    }

    /// The exit code that the script left.
    fn code(&self) -> Option<i32> {
        std::fs::read_to_string(self.folder.join(STATUS)).ok()?.trim().parse().ok()
    }

    fn complete(&self, state: State) -> State {
        match state {
            State::Ended(Ending { word, code: None }) => {
                State::Ended(Ending { word, code: self.code() })
            }
            state => state,
        }
    }
}

/// What a command prints, or what it complains about.
fn run(name: &'static str, command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| Error::Slurm {
        command: name,
        reason: match error.kind() {
            ErrorKind::NotFound => "the command was not found; jobs are submitted where Slurm is \
                                    installed, and --dry-run shows the script anywhere"
                .into(),
            _ => error.to_string(),
        },
    })?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let reason = complaint.trim().lines().collect::<Vec<_>>().join("; ");
        return Err(Error::Slurm { command: name, reason });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `1234`, or `1234;cluster` where there are several clusters.
fn parse_id(answer: &str) -> Option<u64> {
    answer.lines().last()?.split(';').next()?.trim().parse().ok()
}

/// `PENDING|Resources`; nothing if the job is not in the queue.
fn parse_queue(answer: &str) -> Option<State> {
    let (word, reason) = answer.lines().next()?.split_once('|')?;
    Some(state_of(word, reason, None))
}

/// `COMPLETED|0:0`.
fn parse_accounts(answer: &str) -> Option<State> {
    let (word, code) = answer.lines().next()?.split_once('|')?;
    Some(state_of(word, "", parse_code(code)))
}

/// `JobId=7 … JobState=FAILED Reason=NonZeroExitCode … ExitCode=1:0 …`
fn parse_controller(answer: &str) -> Option<State> {
    let field = |name: &str| answer.split_whitespace().find_map(|word| word.strip_prefix(name));
    let code = field("ExitCode=").and_then(parse_code);
    Some(state_of(field("JobState=")?, field("Reason=").unwrap_or_default(), code))
}

/// `1:0`: the exit code and the signal.
fn parse_code(text: &str) -> Option<i32> {
    let (code, signal) = text.trim().split_once(':')?;
    match (code.parse().ok()?, signal.parse::<i32>().ok()?) {
        (0, signal) if signal > 0 => Some(128 + signal),
        (code, _) => Some(code),
    }
}

fn state_of(word: &str, reason: &str, code: Option<i32>) -> State {
    // `CANCELLED by 1000`, and a plus where Slurm has cut the word.
    let word = word.split_whitespace().next().unwrap_or_default().trim_end_matches('+');
    match word {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "SPECIAL_EXIT"
        | "RESV_DEL_HOLD" => State::Waiting(reason.trim().into()),
        "RUNNING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING"
        | "STAGE_OUT" => State::Running,
        _ => State::Ended(Ending { word: word.into(), code }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(word: &str, code: Option<i32>) -> State {
        State::Ended(Ending { word: word.into(), code })
    }

    #[test]
    fn answers_of_slurm_are_understood() {
        assert_eq!(parse_id("1234\n"), Some(1234));
        assert_eq!(parse_id("1234;east\n"), Some(1234));
        assert_eq!(parse_id("sbatch: a greeting\n77\n"), Some(77));
        assert_eq!(parse_id("Submitted"), None);
        assert_eq!(parse_queue("PENDING|Resources\n"), Some(State::Waiting("Resources".into())));
        assert_eq!(parse_queue("RUNNING|None\n"), Some(State::Running));
        assert_eq!(parse_queue("COMPLETED|None\n"), Some(ended("COMPLETED", None)));
        assert_eq!(parse_queue(""), None);
        assert_eq!(parse_accounts("CANCELLED by 1000|0:15\n"), Some(ended("CANCELLED", Some(143))));
        assert_eq!(parse_accounts("TIMEOUT|0:0\n"), Some(ended("TIMEOUT", Some(0))));
        let shown = "JobId=7 JobName=a JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0 Nodes=1";
        assert_eq!(parse_controller(shown), Some(ended("FAILED", Some(3))));
    }

    #[test]
    fn only_a_completed_job_with_code_0_is_a_success() {
        let ending = |word: &str, code| Ending { word: word.into(), code };
        assert!(ending("COMPLETED", Some(0)).is_success());
        assert!(ending("COMPLETED", None).is_success());
        assert!(!ending("COMPLETED", Some(1)).is_success());
        assert!(!ending("TIMEOUT", Some(0)).is_success());
        assert!(!ending("UNKNOWN", None).is_success());
    }
}
