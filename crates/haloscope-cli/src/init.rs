//! `haloscope init`: a commented job file to start from, which runs as it is.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::exit::{Code, Misuse};
use crate::problem::{Choices, Problem};

/// The options of `haloscope init`.
#[derive(clap::Args, Clone)]
pub struct Arguments {
    /// What to reconstruct
    #[arg(value_enum)]
    problem: Problem,

    /// Where to write it; PROBLEM.toml by default
    file: Option<PathBuf>,

    /// Pixels along each side of the simulated image
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=16_384))]
    size: Option<u32>,

    /// The prior: `tv` for total variation, `builtin:color`, `builtin:gray` or a file for a denoising network; by default
    /// what suits the problem
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Write over a file that is there
    #[arg(long)]
    force: bool,
}

/// Writes the file.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let problem = arguments.problem;
    let path =
        arguments.file.clone().unwrap_or_else(|| PathBuf::from(format!("{}.toml", problem.name())));
    let name = path.file_stem().context("the name of a file is needed")?.display().to_string();
    let size = arguments.size.map_or(problem.default_size(), |size| size as usize);
    let model = problem.model(arguments.model.as_deref());
    let text = problem.job(&Choices { name, size, model, iterations: None });
    let mut options = std::fs::OpenOptions::new();
    let file =
        options.write(true).create(true).create_new(!arguments.force).truncate(true).open(&path);
    let mut file = match file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Misuse::error(format!(
                "{} is there already; --force writes over it",
                path.display()
            )));
        }
        file => file.with_context(|| path.display().to_string())?,
    };
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    let path = path.display();
    crate::print(&format!(
        "written   {path}\nnext      haloscope check {path}; haloscope reconstruct {path}\n"
    ))?;
    Ok(Code::Success)
}
