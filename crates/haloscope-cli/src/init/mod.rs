//! `haloscope init`: a commented job file to start from, which runs as it is.
//!
//! Without data it simulates them. With `--from`, the job is one for these data: shapes, angles, units, the level of the
//! noise and the rotation centre are taken from the files or estimated, and comments say which.

mod image;
mod scan;
mod sinogram;

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use haloscope::Array;
use haloscope::io::{self, WriteOptions};

use crate::exit::{Code, Misuse, Preparation};
use crate::job::Job;
use crate::job::measurements::Source;
use crate::problem::{self, Choices, Draft, Problem};

/// The options of `haloscope init`.
#[derive(clap::Args, Clone)]
pub struct Arguments {
    /// Problem to start from
    #[arg(value_enum)]
    problem: Problem,

    /// File to write; by default PROBLEM.toml
    file: Option<PathBuf>,

    /// Measured data to write the job for: an image, frames, a sinogram, projections, or an HDF5 scan. Shapes, angles,
    /// units, noise and rotation centre are filled in from the data
    #[arg(long, value_name = "DATA", num_args = 1.., conflicts_with = "size")]
    from: Vec<PathBuf>,

    /// Number of pixels along each side of the simulated image
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=16_384))]
    size: Option<u32>,

    /// Prior: `tv` for total variation, or `builtin:color`, `builtin:gray` or a file with weights for a denoising network;
    /// the default depends on the problem
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// Writes the file.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let problem = arguments.problem;
    let path =
        arguments.file.clone().unwrap_or_else(|| PathBuf::from(format!("{}.toml", problem.name())));
    let name = path.file_stem().context("the name of a file is needed")?.display().to_string();
    let mut findings = Vec::new();
    let text = if arguments.from.is_empty() {
        let size = arguments.size.map_or(problem.default_size(), |size| size as usize);
        let model = problem.model(arguments.model.as_deref());
        problem.job(&Choices { name, size, model, iterations: None })
    } else {
        // What would not be written is better known before the data are looked at.
        if path.exists() && !arguments.force {
            return Err(there_already(&path));
        }
        let mut data = Data { paths: &arguments.from, job: &path, arguments, findings };
        let draft = match problem {
            Problem::Tomography2d => scan::slice(&mut data),
            Problem::Tomography3d => scan::volume(&mut data),
            Problem::Deblur => image::deblur(&mut data),
            Problem::SuperResolution => image::super_resolution(&mut data),
            Problem::Denoise => image::denoise(&mut data),
            Problem::Inpainting => image::inpainting(&mut data),
        };
        let draft: Draft = draft.or_misuse()?;
        findings = data.findings;
        let model = problem::model(arguments.model.as_deref(), draft.is_colour);
        draft.job(&name, model.as_deref())
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

/// The data that a job is written for.
struct Data<'a> {
    paths: &'a [PathBuf],
    /// The job file.
    job: &'a Path,
    arguments: &'a Arguments,
    /// What was found, to be printed: a word and the finding.
    findings: Vec<(&'static str, String)>,
}

impl Data<'_> {
    /// The only file.
    fn single(&self) -> Result<&Path> {
        match self.paths {
            [path] => Ok(path),
            paths => Err(Misuse::error(format!(
                "--from has {} files; one is expected for {}",
                paths.len(),
                self.arguments.problem.name()
            ))),
        }
    }

    /// Notes something for who runs the command.
    fn note(&mut self, word: &'static str, finding: impl Into<String>) {
        self.findings.push((word, finding.into()));
    }

    /// A path as the job file has it: relative to its folder if that is this one, else absolute.
    fn named(&self, path: &Path) -> Result<String> {
        let is_here = self.job.parent().is_none_or(|folder| folder.as_os_str().is_empty());
        let path = if is_here { path.to_owned() } else { std::path::absolute(path)? };
        Ok(problem::literal(&path.display().to_string()))
    }

    /// `files = …`, for all paths.
    fn files(&self) -> Result<String> {
        let names: Vec<String> =
            self.paths.iter().map(|path| self.named(path)).collect::<Result<_>>()?;
        Ok(match &names[..] {
            [name] => format!("files = {name}"),
            names => format!("files = [{}]", names.join(", ")),
        })
    }

    /// What a job with such measurements reads from one of its files.
    fn loaded(&self, measurements: &str, file: usize) -> haloscope::Result<Array> {
        let text = format!(
            "{measurements}\n[[operators]]\nkind = 'identity'\n[solver]\nmethod = 'cg'\n[output]\nfolder = '-'\n"
        );
        let folder = self.job.parent().unwrap_or(Path::new(""));
        match Job::parse(&self.job.display().to_string(), &text, folder)?.measurements {
            Source::Files(files) => files.load(file),
            _ => Err(haloscope::Error::argument("init", "measurements that are no files")),
        }
    }

    /// Writes an array beside the job file, as `NAME-what`, and says how the job file calls it.
    fn write_beside(&self, what: &str, array: &Array) -> Result<String> {
        let stem = self.job.file_stem().unwrap_or_default().display();
        let path = self.job.with_file_name(format!("{stem}-{what}"));
        if path.exists() && !self.arguments.force {
            return Err(there_already(&path));
        }
        io::write(&path, array, &WriteOptions::default())?;
        Ok(format!("{stem}-{what}"))
    }
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

/// The value below which a part of all values lies.
fn quantile(values: impl Iterator<Item = f32>, part: f64) -> f64 {
    let mut values: Vec<f32> = values.filter(|value| value.is_finite()).collect();
    if values.is_empty() {
        return 0.0;
    }
    let index = ((values.len() - 1) as f64 * part).round() as usize;
    f64::from(*values.select_nth_unstable_by(index, f32::total_cmp).1)
}
