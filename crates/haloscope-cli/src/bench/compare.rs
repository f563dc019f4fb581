//! `haloscope bench compare`: the same reconstructions in haloscope and in deepinv.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use haloscope_nn::models::ModelName;
use haloscope_study::plan::{CompareStudy, Cutting};
use haloscope_study::results::Results;
use haloscope_study::row::Study;
use haloscope_study::runner::{DEEPINV, Launcher};
use haloscope_study::truth::save_truths;

use super::run::{self, RunArguments};
use super::scaling::ReconstructionArguments;
use crate::exit::{Code, Preparation};
use crate::threads::{self, parse_threads};

/// The options of `haloscope bench compare`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    run: RunArguments,

    #[command(flatten)]
    reconstruction: ReconstructionArguments,

    /// Python interpreter with deepinv; by default .venv/bin/python or python3, whichever has it
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,

    /// Numbers of ranks, and of deepinv's processes, which torchrun starts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    ranks: Vec<usize>,

    /// How images are cut: whole (one piece, or exact parts on several ranks), tiles (of the usual lengths)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "whole")]
    cut: Vec<Cutting>,

    /// Number of threads of all ranks together; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

/// Runs the study.
pub(super) fn run(arguments: &Arguments) -> Result<Code> {
    let reconstruction = &arguments.reconstruction;
    let settings = reconstruction.settings(&arguments.run);
    let problems = reconstruction.problems();
    reconstruction.announce_model(&problems);
    let ours = CompareStudy {
        systems: vec!["haloscope".into()],
        problems,
        sizes: reconstruction.sizes.clone(),
        ranks: arguments.ranks.clone(),
        cuts: arguments.cut.clone(),
        model: reconstruction.model.clone(),
        operators: reconstruction.operators,
        threads: threads::or_all_cores(arguments.threads),
        repetitions: arguments.run.repetitions,
        full: arguments.run.full,
        settings: settings.clone(),
    };
    let trials = ours.trials().or_misuse()?;
    if reconstruction.show_jobs {
        return run::show_jobs(&trials);
    }
    // What deepinv does not have is better known before the first measurement than after the last.
    if can_be_compared(ours.model.as_ref()) {
        in_deepinv(&ours).trials().or_misuse()?;
    }
    let launcher = run::launcher("")?;
    let results = run::open(&arguments.run, Study::Compare, &settings)?;
    run::carry_out(&arguments.run, &launcher, &trials, results, |results| {
        measure_deepinv(arguments, &launcher, &ours, results)?;
        run::conclude(&arguments.run, results, Study::Compare)
    })
}

/// Whether deepinv has the network.
fn can_be_compared(model: Option<&ModelName>) -> bool {
    !matches!(model, Some(ModelName::Builtin(_)))
}

/// The same study in deepinv.
fn in_deepinv(ours: &CompareStudy) -> CompareStudy {
    CompareStudy { systems: vec!["deepinv".into()], ..ours.clone() }
}

/// Measures deepinv, where there is a Python for it.
fn measure_deepinv(
    arguments: &Arguments,
    launcher: &Launcher,
    ours: &CompareStudy,
    results: &mut Results,
) -> Result<()> {
    let python = match &ours.model {
        Some(model) if !can_be_compared(Some(model)) => {
            Err(format!("it has no {model}; a file with weights is for both"))
        }
        _ => find_python(arguments.python.as_deref()),
    };
    // A Ctrl-C ends the search, too, whose result is then not to be believed.
    run::heed_interruption()?;
    match python {
        Err(reason) => {
            let words = format!("skipped: deepinv, because {reason}");
            crate::log::message(log::Level::Warn, &words);
        }
        Ok(python) => {
            let mut trials = in_deepinv(ours).trials()?;
            save_truths(&arguments.run.out, &mut trials)?;
            let torchrun = ["-m", "torch.distributed.run", "--standalone", "--no-python"];
            let mpi = std::iter::once(python.display().to_string())
                .chain(torchrun.map(String::from))
                .chain(["--nproc-per-node".into()]);
            let words = vec!["-W".into(), "ignore".into(), "-c".into(), DEEPINV.into()];
            let launcher = Launcher {
                program: python,
                arguments: words,
                mpi: mpi.collect(),
                ..launcher.clone()
            };
            run::measure(&launcher, &trials, results)?;
        }
    }
    Ok(())
}

/// A Python that has deepinv, or why there is none.
fn find_python(given: Option<&Path>) -> std::result::Result<PathBuf, String> {
    let candidates = match given {
        Some(python) => vec![python.to_owned()],
        None => vec![".venv/bin/python".into(), "python3".into()],
    };
    let has_deepinv = |python: &PathBuf| {
        let found = Command::new(python)
            .args(["-c", "import deepinv"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        found.is_ok_and(|status| status.success())
    };
    let names: Vec<String> = candidates.iter().map(|python| python.display().to_string()).collect();
    candidates.into_iter().find(has_deepinv).ok_or_else(|| {
        format!(
            "no Python with it was found ({}); give one with --python, after `pip install deepinv`",
            names.join(", ")
        )
    })
}
