//! What all studies share: options, where rows go, how measuring processes are started, and what is said meanwhile.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use haloscope_study::figures::summarise;
use haloscope_study::model::{Validation, write_validation};
use haloscope_study::provenance::{Provenance, Run};
use haloscope_study::results::{Results, read_rows};
use haloscope_study::row::{Backend, Row, Study};
use haloscope_study::runner::{Launcher, Progress};
use haloscope_study::slurm::quote;
use haloscope_study::tables;
use haloscope_study::trial::{Settings, Trial};
use indicatif::{ProgressBar, ProgressStyle};
use log::Level;

use crate::exit::{Code, Preparation};
use crate::log::{is_json, message};
use crate::{interrupt, invocation};
use haloscope_job::Machine;
use haloscope_job::words::count;

/// The options that all studies have.
#[derive(clap::Args)]
pub(super) struct RunArguments {
    /// Folder for the results; a stopped run resumes from there
    #[arg(long, value_name = "DIR", default_value = "haloscope-bench")]
    pub out: PathBuf,

    /// Number of times that each configuration is measured
    #[arg(long, value_name = "N", default_value = "3")]
    pub repetitions: usize,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Measure the large grid of sizes, which takes hours instead of minutes
    #[arg(long)]
    pub full: bool,
}

/// Opens the folder of a study; one with other rows is not for it.
pub(super) fn open(arguments: &RunArguments, study: Study, settings: &Settings) -> Result<Results> {
    let machine = serde_json::to_value(Machine::detect()).context("the machine")?;
    let origin = Provenance::new(env!("CARGO_PKG_VERSION"), commit(), machine);
    let run = Run::new(study, settings.clone(), command_line());
    Results::open(&arguments.out, &origin, &run).or_misuse()
}

/// What was typed; where this program is says nothing to others.
fn command_line() -> Vec<String> {
    std::iter::once("haloscope".to_owned()).chain(invocation::arguments()).collect()
}

/// Measures what is missing of `trials` and does what follows, until a signal comes; then says what there is and how to
/// resume.
pub(super) fn carry_out(
    arguments: &RunArguments,
    launcher: &Launcher,
    trials: &[Trial],
    mut results: Results,
    then: impl FnOnce(&mut Results) -> Result<()>,
) -> Result<Code> {
    announce(arguments, trials);
    interrupt::watch()?;
    let measured = measure(launcher, trials, &mut results).and_then(|()| then(&mut results));
    let error = match measured {
        Ok(()) => return Ok(Code::Success),
        Err(error) => error,
    };
    let is_interruption = matches!(error.downcast_ref(), Some(haloscope_study::Error::Interrupted));
    let Some(signal) = interrupt::requested().filter(|_| is_interruption) else {
        return Err(error);
    };
    let rows = read_rows(&arguments.out)?.len();
    let words: Vec<String> = command_line().iter().map(|word| quote(word)).collect();
    let said = format!(
        "ended by {}; {} {} in {}, and `{}` resumes with the rest",
        signal.name(),
        count(rows, "row"),
        if rows == 1 { "is" } else { "are" },
        arguments.out.display(),
        words.join(" ")
    );
    crate::log::error(&said, signal.exit_code());
    Ok(Code::Interrupted(signal))
}

/// An error if a signal came.
pub(super) fn heed_interruption() -> Result<()> {
    match interrupt::requested() {
        None => Ok(()),
        Some(_) => Err(haloscope_study::Error::Interrupted.into()),
    }
}

/// The commit of the sources, where they are still where they were built.
fn commit() -> Option<String> {
    if let Some(commit) = option_env!("HALOSCOPE_COMMIT") {
        return Some(commit.to_owned());
    }
    let sources = env!("CARGO_MANIFEST_DIR");
    let git = Command::new("git")
        .args(["-C", sources, "describe", "--always", "--dirty", "--abbrev=40", "--match", ""])
        .output();
    let output = git.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
}

/// Starts this program again to measure, under `mpi` where ranks are processes.
pub(super) fn launcher(mpi: &str) -> Result<Launcher> {
    let mut words = invocation::program()?;
    words.extend(["bench".into(), "worker".into()]);
    let mut words = words.into_iter();
    Ok(Launcher {
        program: words.next().context("the path of this program")?.into(),
        arguments: words.collect(),
        mpi: mpi.split_whitespace().map(String::from).collect(),
        is_interrupted: || interrupt::requested().is_some(),
    })
}

/// Measures what is missing of `trials`, with a line for each and a bar below if there is a terminal.
pub(super) fn measure(launcher: &Launcher, trials: &[Trial], results: &mut Results) -> Result<()> {
    let repetitions = trials.iter().map(|trial| trial.repetitions.len() as u64).sum();
    let bar = if is_json() { ProgressBar::hidden() } else { ProgressBar::new(repetitions) };
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left")?);
    let say = |line: String| bar.suspend(|| message(Level::Info, &line));
    let mut rows = Vec::new();
    let mut current = (0, 0, String::new());
    let measured = launcher.run(trials, results, &mut |progress| match progress {
        Progress::WasThere(index, count, trial) => {
            bar.inc(trial.repetitions.len() as u64);
            say(format!("[{}/{count}] {}: was there", index + 1, trial.configuration));
        }
        Progress::Begins(index, count, trial) => {
            rows.clear();
            current = (index + 1, count, trial.configuration.to_string());
            let all = trials[index].repetitions.len();
            bar.inc((all - trial.repetitions.len()) as u64);
            bar.set_message(current.2.clone());
            bar.tick();
        }
        Progress::Repetition(new) => {
            rows.extend_from_slice(new);
            bar.inc(1);
            let (number, count, configuration) = &current;
            let is_counted = |row: &Row| row.configuration.study == Study::Counts;
            if rows.first().is_some_and(is_counted) {
                say(format!("[{number}/{count}] {configuration}: counted"));
            } else if let Some(summary) = summarise(&rows).first() {
                let part =
                    if summary.configuration.problem.is_some() { " per iteration" } else { "" };
                let seconds = summary.total.value;
                say(format!("[{number}/{count}] {configuration}: {seconds:.4} s{part}"));
            }
        }
    });
    bar.finish_and_clear();
    Ok(measured?)
}

/// Prints the job files of trials, each once, and measures nothing.
pub(super) fn show_jobs(trials: &[Trial]) -> Result<Code> {
    let mut files: Vec<(String, Vec<&Trial>)> = Vec::new();
    for trial in trials {
        let text = trial.job_text().or_misuse()?;
        match files.iter_mut().find(|(known, _)| *known == text) {
            Some((_, same)) => same.push(trial),
            None => files.push((text, vec![trial])),
        }
    }
    let file = |(text, trials): &(String, Vec<&Trial>)| {
        let mut comment = String::new();
        for trial in trials {
            let _ = writeln!(comment, "# {}", trial.configuration);
        }
        let name = trials.first().map_or_else(String::new, |trial| trial.configuration.job_name());
        let ranks = trials.iter().map(|trial| trial.configuration.ranks).max().unwrap_or(1);
        format!("{comment}#   haloscope reconstruct {name}.toml --ranks {ranks}\n\n{text}")
    };
    crate::print(&files.iter().map(file).collect::<Vec<_>>().join("\n"))?;
    Ok(Code::Success)
}

/// Says where rows go before they come.
fn announce(arguments: &RunArguments, trials: &[Trial]) {
    let words = format!(
        "{} configuration{}; rows go to {}, Ctrl-C keeps them, and the same command resumes",
        trials.len(),
        if trials.len() == 1 { "" } else { "s" },
        arguments.out.display()
    );
    message(Level::Info, &words);
}

/// Compares the model with the measured rows, on the machine that they were measured on, and keeps the errors beside them.
pub(super) fn validate(results: &Results) -> Result<Vec<Validation>> {
    let provenance = results.provenance();
    let link = |backend: Backend| provenance.links.get(&backend.to_string()).copied();
    let cores = cores(provenance);
    let validations = haloscope_study::model::validate(results.rows(), cores, link)?;
    write_validation(results.folder(), &validations)?;
    Ok(validations)
}

/// The cores of the machine that rows were measured on.
pub(super) fn cores(provenance: &Provenance) -> usize {
    provenance.machine["cores"].as_u64().map_or(usize::MAX, |cores| cores as usize)
}

/// Prints the tables of a study's rows.
pub(super) fn conclude(arguments: &RunArguments, results: &Results, study: Study) -> Result<()> {
    let rows: Vec<_> =
        results.rows().iter().filter(|row| row.configuration.study == study).cloned().collect();
    let text = tables::describe(&rows);
    crate::print(&format!("{text}rows      {}\n", arguments.out.join("rows.csv").display()))
}
