//! Jobs for measured data: shapes, angles, units, the level of the noise and the rotation centre are taken from the files
//! or estimated, and comments in the job say which.

mod image;
#[cfg(feature = "hdf5")]
mod mri;
mod scan;
pub(crate) mod sinogram;

use std::path::{Path, PathBuf};

use haloscope::io::{self, ReadOptions, WriteOptions};
use haloscope::{Array, Error, Result};

use crate::Job;
use crate::document::{numbers, paths};
use crate::sections::measurements::Source;
use crate::template::{self, Draft, Problem};

/// Data to write a job for.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Files, folders, and patterns such as `views/*.tif`.
    pub paths: &'a [PathBuf],
    /// The array in NPZ, HDF5 and Zarr files, where there are several.
    pub entry: Option<&'a str>,
    /// A file with the angle of each view of a scan, where the data do not say them.
    pub angles: Option<&'a Path>,
    /// The slice of an MRI scan, counted from 0; the first if there is none.
    pub slice: Option<usize>,
}

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
/// a sinogram whose axes were exchanged) is written beside it, over existing files only with `force`.
pub fn draft(
    problem: Problem,
    input: &Input<'_>,
    job: &Path,
    model: Option<&str>,
    force: bool,
) -> Result<Drafted> {
    let is_scan = matches!(problem, Problem::Tomography2d | Problem::Tomography3d);
    if let Some(angles) = input.angles.filter(|_| !is_scan) {
        return Err(Error::argument(
            "angles",
            format!("{} is given for {problem}; only scans have angles", angles.display()),
        ));
    }
    if let Some(slice) = input.slice.filter(|_| problem != Problem::Mri) {
        let reason = format!("{slice} is given for {problem}; only mri has slices to choose from");
        return Err(Error::argument("slice", reason));
    }
    if let Some(angles) = input.angles {
        // Before anything is written beside the job.
        numbers::read(angles)?;
    }
    let (mut present, mut filled) = (None, None);
    if let (Problem::Inpainting, [path]) = (problem, input.paths)
        && let Some((image, mask)) = image::without_gaps(path)?
    {
        // Jobs take numbers only.
        filled = Some([write_beside(job, "data.npy", &image, force)?]);
        present = Some(mask);
    }
    let paths = filled.as_ref().map_or(input.paths, |filled| &filled[..]);
    let mut data = Data::new(problem, &Input { paths, ..*input }, job, force)?;
    data.present = present;
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
        #[cfg(feature = "hdf5")]
        Problem::Mri => mri::scan(&mut data, input.slice),
        #[cfg(not(feature = "hdf5"))]
        Problem::Mri => Err(unsuitable(
            data.single()?,
            "jobs for mri are written from HDF5 files, and this build is without the feature hdf5",
        )),
        Problem::Radio => Err(Error::argument(
            "from",
            format!(
                "jobs for {problem} are not written from data; `haloscope init {problem}` without data writes one whose \
                 comments say where files go"
            ),
        )),
    }?;
    let name = job.file_stem().unwrap_or_default().display().to_string();
    let model = template::model(model, draft.network);
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
    /// What was given: files, folders, patterns.
    given: &'a [PathBuf],
    /// The files that it stands for.
    paths: Vec<PathBuf>,
    /// The array in them, if it has to be named.
    entry: Option<String>,
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

/// More files than this are named by a pattern, where there is one.
const MOST_NAMED: usize = 3;

impl<'a> Data<'a> {
    fn new(problem: Problem, input: &Input<'a>, job: &'a Path, force: bool) -> Result<Self> {
        let mut files = Vec::new();
        for path in input.paths {
            match path.to_str() {
                Some(path) => files.extend(paths::expand(Path::new(""), path)?),
                None => files.push(path.clone()),
            }
        }
        if files.is_empty() {
            return Err(Error::argument("data", "no files are given; one or more are expected"));
        }
        let entry = match input.entry {
            Some(entry) => Some(entry.to_owned()),
            // Its arrays are in records.
            None if problem == Problem::Mri => None,
            None => entry_of(&files[0])?,
        };
        let findings = Vec::new();
        let (given, angles) = (input.paths, input.angles);
        let present = None;
        Ok(Self { given, paths: files, entry, job, problem, angles, present, force, findings })
    }

    /// The only file.
    fn single(&self) -> Result<&Path> {
        match &self.paths[..] {
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

    /// How a file is read before there is a job.
    fn options(&self) -> ReadOptions {
        ReadOptions { entry: self.entry.clone(), ..ReadOptions::default() }
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
        let failed = |error: std::io::Error| Error::File {
            file: path.display().to_string(),
            reason: error.to_string(),
        };
        let path = match path.to_str() {
            _ if is_here => path.to_owned(),
            Some(pattern) if paths::is_pattern(Path::new(""), pattern) => {
                paths::below(&std::env::current_dir().map_err(failed)?, pattern).into()
            }
            _ => std::path::absolute(path).map_err(failed)?,
        };
        Ok(template::literal(&path.display().to_string()))
    }

    /// `files = …` as they were given, and `entry` if it is needed.
    fn files(&self) -> Result<String> {
        self.naming(self.given)
    }

    /// The same for a scan: many files that a shell made of a pattern are the pattern again.
    fn views(&self) -> Result<String> {
        let is_list = self.given.len() > MOST_NAMED && self.given.len() == self.paths.len();
        match paths::pattern_of(&self.paths).filter(|_| is_list) {
            Some(pattern) => self.naming(&[pattern.into()]),
            None => self.files(),
        }
    }

    fn naming(&self, paths: &[PathBuf]) -> Result<String> {
        let names: Vec<String> =
            paths.iter().map(|path| self.named(path)).collect::<Result<_>>()?;
        let mut lines = match &names[..] {
            [name] => format!("files = {name}\n"),
            names => format!("files = [{}]\n", names.join(", ")),
        };
        if let Some(entry) = &self.entry {
            lines.extend(["entry = ", &template::literal(entry), "\n"]);
        }
        Ok(lines)
    }

    /// What a job with such measurements reads from one of its files.
    fn loaded(&self, measurements: &str, file: usize) -> Result<Array> {
        self.measured(measurements, "identity'", file)
    }

    /// What a job of a scan with such measurements makes of all of its files.
    fn stacked(&self, measurements: &str) -> Result<Array> {
        self.measured(measurements, "parallel-beam'\nangles = 1", 0)
    }

    fn measured(&self, measurements: &str, operator: &str, index: usize) -> Result<Array> {
        let text = format!(
            "{measurements}\n[[operators]]\nkind = '{operator}\n[solver]\nmethod = 'cg'\n[output]\nfolder = '-'\n"
        );
        let folder = self.job.parent().unwrap_or(Path::new(""));
        let loaded = match Job::parse(&self.job.display().to_string(), &text, folder)?.measurements
        {
            Source::Files(files) => files.load(index),
            _ => Err(Error::argument("data", "measurements that are no files")),
        };
        // The data are at fault, and the job is not there yet.
        loaded.map_err(|error| match error {
            Error::Content { reason, .. } => {
                let path = self.paths.get(index).unwrap_or(&self.paths[0]);
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

/// The array of a file that has to be named though it is the only one: that of an HDF5 file without `/exchange/data`.
#[cfg(feature = "hdf5")]
fn entry_of(path: &Path) -> Result<Option<String>> {
    if !is_hdf5(path) {
        return Ok(None);
    }
    let mut arrays = io::exchange::arrays(path, &io::Limits::default())?;
    if arrays.iter().any(|array| array == EXCHANGE) {
        return Ok(None);
    }
    match arrays.len() {
        0 => Err(unsuitable(path, "it has no array of two or more axes")),
        1 => Ok(arrays.pop()),
        count => {
            arrays.truncate(20);
            Err(unsuitable(
                path,
                format!("one of its {count} arrays must be chosen by `entry`: {arrays:?}"),
            ))
        }
    }
}

#[cfg(not(feature = "hdf5"))]
fn entry_of(_: &Path) -> Result<Option<String>> {
    Ok(None)
}

/// Where a Data Exchange file has its projections.
#[cfg(feature = "hdf5")]
const EXCHANGE: &str = "exchange/data";

#[cfg(feature = "hdf5")]
fn is_hdf5(path: &Path) -> bool {
    let read = || -> std::io::Result<[u8; 8]> {
        let mut start = [0; 8];
        std::io::Read::read_exact(&mut std::fs::File::open(path)?, &mut start)?;
        Ok(start)
    };
    path.is_file() && read().is_ok_and(|start| &start == b"\x89HDF\r\n\x1a\n")
}

/// Writes an array beside a job file, as `NAME-what`.
fn write_beside(job: &Path, what: &str, array: &Array, force: bool) -> Result<PathBuf> {
    let path = beside(job, what, force)?;
    io::write(&path, array, &WriteOptions::default())?;
    Ok(path)
}

/// The path of `NAME-what` beside a job file, unless there is such a file.
fn beside(job: &Path, what: &str, force: bool) -> Result<PathBuf> {
    let stem = job.file_stem().unwrap_or_default().display();
    let path = job.with_file_name(format!("{stem}-{what}"));
    if path.exists() && !force {
        return Err(unsuitable(&path, "it already exists; --force overwrites it"));
    }
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
