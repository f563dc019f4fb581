//! Jobs for measured data: shapes, angles, units, the level of the noise and the rotation centre are taken from the files
//! or estimated, and comments in the job say which.

mod image;
mod scan;
pub(crate) mod sinogram;

use std::path::{Path, PathBuf};

use haloscope::io::{self, WriteOptions};
use haloscope::{Array, Error, Result};

use crate::Job;
use crate::sections::measurements::Source;
use crate::template::{self, Draft, Problem};

/// A job that was written for data.
#[derive(Clone, Debug)]
pub struct Drafted {
    /// The text of the job file.
    pub text: String,
    /// What was found in the data: a word and the finding.
    pub findings: Vec<(&'static str, String)>,
}

/// Writes a job for measured data, with the network that is named, the built-in one, or `tv`.
///
/// `job` is the file that the text is meant for: paths in it are relative to its folder, and what has to be prepared (a mask,
/// a sinogram whose axes were exchanged) is written beside it, over existing files only with `force`. `angles` is a file
/// with the angle of each view of a scan.
pub fn draft(
    problem: Problem,
    paths: &[PathBuf],
    job: &Path,
    model: Option<&str>,
    angles: Option<&Path>,
    force: bool,
) -> Result<Drafted> {
    let is_scan = matches!(problem, Problem::Tomography2d | Problem::Tomography3d);
    if let Some(angles) = angles.filter(|_| !is_scan) {
        return Err(Error::argument(
            "angles",
            format!("{} is given for {problem}; only scans have angles", angles.display()),
        ));
    }
    let (mut present, mut filled) = (None, None);
    if let (Problem::Inpainting, [path]) = (problem, paths)
        && let Some((image, mask)) = image::without_gaps(path)?
    {
        // Jobs take numbers only.
        filled = Some([write_beside(job, "data.npy", &image, force)?]);
        present = Some(mask);
    }
    let paths = filled.as_ref().map_or(paths, |filled| &filled[..]);
    let mut data = Data { paths, job, problem, angles, present, force, findings: Vec::new() };
    if let Some([file]) = &filled {
        data.note("data", format!("pixels that are no numbers are 0 in {}", file.display()));
    }
    let draft: Draft = match problem {
        Problem::Tomography2d => scan::slice(&mut data),
        Problem::Tomography3d => scan::volume(&mut data),
        Problem::Deblur => image::deblur(&mut data),
        Problem::SuperResolution => image::super_resolution(&mut data),
        Problem::Denoise => image::denoise(&mut data),
        Problem::Inpainting => image::inpainting(&mut data),
    }?;
    let name = job.file_stem().unwrap_or_default().display().to_string();
    let model = template::model(model, draft.is_colour);
    // A result must not be written over data that are called as the job is.
    let same = |path: &PathBuf, result: &str| {
        let result = job.with_file_name(result).canonicalize();
        result.is_ok_and(|result| path.canonicalize().is_ok_and(|path| path == result))
    };
    let mut result = format!("{name}{}", draft.ending);
    if data.paths.iter().any(|path| same(path, &result)) {
        result = format!("{name}-result{}", draft.ending);
    }
    Ok(Drafted { text: draft.job(&name, &result, model.as_deref()), findings: data.findings })
}

/// The data that a job is written for.
struct Data<'a> {
    paths: &'a [PathBuf],
    /// The job file.
    job: &'a Path,
    problem: Problem,
    /// The file with the angles of a scan.
    angles: Option<&'a Path>,
    /// Where the data had numbers, if they had others.
    present: Option<Array>,
    force: bool,
    /// What was found, to be printed: a word and the finding.
    findings: Vec<(&'static str, String)>,
}

impl<'a> Data<'a> {
    /// The only file.
    fn single(&self) -> Result<&'a Path> {
        match self.paths {
            [path] => Ok(path),
            paths => Err(Error::argument(
                "data",
                format!("{} files are given; one is expected for {}", paths.len(), self.problem),
            )),
        }
    }

    /// Notes something for who wants the job.
    fn note(&mut self, word: &'static str, finding: impl Into<String>) {
        self.findings.push((word, finding.into()));
    }

    /// Replaces what was noted.
    fn correct(&mut self, word: &'static str, finding: String) {
        match self.findings.iter_mut().find(|(noted, _)| *noted == word) {
            Some(noted) => noted.1 = finding,
            None => self.findings.push((word, finding)),
        }
    }

    /// A path as the job file has it: relative to its folder if that is this one, else absolute.
    fn named(&self, path: &Path) -> Result<String> {
        let is_here = self.job.parent().is_none_or(|folder| folder.as_os_str().is_empty());
        let path = if is_here {
            path.to_owned()
        } else {
            std::path::absolute(path).map_err(|error| Error::File {
                file: path.display().to_string(),
                reason: error.to_string(),
            })?
        };
        Ok(template::literal(&path.display().to_string()))
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
    fn loaded(&self, measurements: &str, file: usize) -> Result<Array> {
        let text = format!(
            "{measurements}\n[[operators]]\nkind = 'identity'\n[solver]\nmethod = 'cg'\n[output]\nfolder = '-'\n"
        );
        let folder = self.job.parent().unwrap_or(Path::new(""));
        let loaded = match Job::parse(&self.job.display().to_string(), &text, folder)?.measurements
        {
            Source::Files(files) => files.load(file),
            _ => Err(Error::argument("data", "measurements that are no files")),
        };
        // The data are at fault, and the job is not there yet.
        loaded.map_err(|error| match error {
            Error::Content { reason, .. } => {
                let path = self.paths.get(file).unwrap_or(&self.paths[0]);
                let name = format!("{}: ", path.display());
                unsuitable(path, reason.strip_prefix(&name).unwrap_or(&reason))
            }
            error => error,
        })
    }

    /// Writes an array beside the job file, as `NAME-what`, and says how the job file calls it.
    fn write_beside(&self, what: &str, array: &Array) -> Result<String> {
        write_beside(self.job, what, array, self.force)?;
        Ok(format!("{}-{what}", self.job.file_stem().unwrap_or_default().display()))
    }
}

/// Writes an array beside a job file, as `NAME-what`.
fn write_beside(job: &Path, what: &str, array: &Array, force: bool) -> Result<PathBuf> {
    let stem = job.file_stem().unwrap_or_default().display();
    let path = job.with_file_name(format!("{stem}-{what}"));
    if path.exists() && !force {
        return Err(unsuitable(&path, "it already exists; --force overwrites it"));
    }
    io::write(&path, array, &WriteOptions::default())?;
    Ok(path)
}

/// A file that cannot be used, and why.
fn unsuitable(path: &Path, reason: impl Into<String>) -> Error {
    Error::Content { file: path.display().to_string(), reason: reason.into() }
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
