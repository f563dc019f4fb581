//! `haloscope init`: a commented job file to start from, which runs as it is.
//!
//! Without data it simulates them. With `--from`, the job is one for these data: shapes, angles, units, the level of the
//! noise and the rotation centre are taken from the files or estimated, and comments say which.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use haloscope_job::Choices;
use haloscope_job::draft::{Drafted, Input, draft};

use crate::exit::{Code, Misuse};
use crate::problem::ProblemArgument;

/// The options of `haloscope init`.
#[derive(clap::Args, Clone)]
pub(crate) struct Arguments {
    /// Problem to start from
    #[arg(value_enum)]
    problem: ProblemArgument,

    /// File to write; by default PROBLEM.toml
    file: Option<PathBuf>,

    /// Measured data to write the job for: an image, frames, a sinogram, projections (in one file, one file for each view, a
    /// folder or a pattern), an HDF5 scan, or for mri a file of ISMRMRD. Shapes, angles, units, noise and rotation centre are filled in from the data
    #[arg(long, value_name = "DATA", num_args = 1.., conflicts_with = "size")]
    from: Vec<PathBuf>,

    /// Name of the array in NPZ, HDF5 or Zarr files of --from
    #[arg(long, value_name = "NAME", requires = "from")]
    entry: Option<String>,

    /// File with the angle of each view of a scan, in degrees, as text or as an array; by default they are taken from the
    /// data or guessed
    #[arg(long, value_name = "FILE", requires = "from")]
    angles: Option<PathBuf>,

    /// Slice of an MRI scan, counted from 0
    #[arg(long, value_name = "N", requires = "from")]
    slice: Option<usize>,

    /// Number of pixels along each side of the simulated image
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=16_384))]
    size: Option<u32>,

    /// Prior: `tv` for total variation, or `builtin:color`, `builtin:gray`, `builtin:volume` or a file with weights for a denoising network;
    /// the default depends on the problem
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// Writes the file.
pub(crate) fn run(arguments: &Arguments) -> Result<Code> {
    let ProblemArgument(problem) = arguments.problem;
    let path =
        arguments.file.clone().unwrap_or_else(|| PathBuf::from(format!("{}.toml", problem.name())));
    let name = path.file_stem().context("the name of a file is needed")?.display().to_string();
    let mut findings = Vec::new();
    let text = if arguments.from.is_empty() {
        let size = arguments.size.map_or(problem.default_size(), |size| size as usize);
        let model = problem.model(arguments.model.as_deref());
        let sides = problem.sides(size);
        problem.job(&Choices { name, sides, operators: None, model, iterations: None })
    } else {
        // What would not be written is better known before the data are looked at.
        if path.exists() && !arguments.force {
            return Err(there_already(&path));
        }
        let model = arguments.model.as_deref();
        let input = Input {
            paths: &arguments.from,
            entry: arguments.entry.as_deref(),
            angles: arguments.angles.as_deref(),
            slice: arguments.slice,
        };
        let drafted = draft(problem, &input, &path, model, arguments.force);
        // What a job file calls `entry` is an option here.
        let Drafted { text, findings: found } = drafted
            .map_err(|error| Misuse::error(error.to_string().replace("`entry`", "--entry")))?;
        findings = found;
        text
    };
    write_new(&path, text.as_bytes(), arguments.force)?;
    let path = path.display();
    let mut text = format!("written   {path}\n");
    for (word, finding) in findings {
        writeln!(text, "{word:<9} {finding}")?;
    }
    writeln!(text, "next      haloscope check {path}; haloscope reconstruct {path}")?;
    crate::print(&text)?;
    Ok(Code::Success)
}

fn there_already(path: &Path) -> anyhow::Error {
    Misuse::error(format!("{} already exists; --force overwrites it", path.display()))
}

fn write_new(path: &Path, bytes: &[u8], force: bool) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).create_new(!force).truncate(true).open(path);
    let mut file = match file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(there_already(path)),
        file => file.with_context(|| path.display().to_string())?,
    };
    file.write_all(bytes).with_context(|| path.display().to_string())
}
