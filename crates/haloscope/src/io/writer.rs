//! Files that are written by region, and streams that are written in bands.
//!
//! A file has another name until all of its values are there, and takes its own then.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::plain::{Block, Plain};
use super::samples::{Encoded, Order};
use super::{
    Format, NextBand, Scaling, Target, WriteOptions, atomic, fits, nifti, npy, picture, tiff,
};
use crate::array::View;
use crate::error::{Error, Result};
use crate::region::{self, Region};

/// A file whose values are written at their offsets, in any order and by any number of ranks: NPY, FITS, NIfTI without
/// compression, TIFF.
///
/// ```
/// use haloscope::io::{self, ReadOptions, WriteOptions, Writer};
/// use ndarray::ArrayD;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("picture.tif");
/// let mut writer = Writer::create(&path, &[1, 1, 20, 30], &WriteOptions::default())?;
/// writer.write_region(&[10..20, 0..30], &ArrayD::from_elem(vec![1, 1, 10, 30], 2.0))?;
/// writer.write_region(&[0..10, 0..30], &ArrayD::from_elem(vec![1, 1, 10, 30], 1.0))?;
/// assert!(!path.exists());
/// writer.finish()?;
/// assert_eq!(io::read(&path, &ReadOptions::default())?.array[[0, 0, 10, 0]], 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    name: String,
    shape: Vec<usize>,
    file: File,
    layout: Placement,
    /// What gives the file its name; only with whoever made it.
    unfinished: Option<atomic::Unfinished>,
}

/// Where values are.
#[derive(Debug)]
enum Placement {
    Plain(Plain, Block),
    Tiff(tiff::Placed),
}

impl Writer {
    /// Makes a file for an array of this shape, in the format of its name. It gets that name from
    /// [`finish`](Self::finish), and is removed if it is dropped before.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the format of the name cannot be written by region, [`Error::Shape`] if it has no such
    /// arrays, [`Error::File`] if the system does not allow it.
    pub fn create(path: impl AsRef<Path>, shape: &[usize], options: &WriteOptions) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        super::with_target(path, shape, options, |target, format| {
            if !is_written_by_region(format) {
                return Err(Error::Unsupported {
                    file: name.clone(),
                    reason: format!(
                        "{} files are not written by region; .npy, .fits, .nii and .tif are",
                        format.name()
                    ),
                });
            }
            let mut unfinished = atomic::Unfinished::create(path)?;
            let file = unfinished.file();
            if format == Format::Tiff {
                tiff::Placed::create(target, shape, file)?;
            } else {
                let (header, length) = header(target, format, shape)?;
                let mut write = || {
                    std::io::Write::write_all(file, &header)?;
                    file.set_len(length)
                };
                write().map_err(|error| target.failed(error))?;
            }
            let file = File::options().read(true).write(true).open(unfinished.path());
            let file = file.map_err(|error| target.failed(error))?;
            let layout = Placement::find(target, format, shape, &file)?;
            let shape = shape.to_vec();
            Ok(Self { name: name.clone(), shape, file, layout, unfinished: Some(unfinished) })
        })
    }

    /// The file as it is called until it is whole, for [`join`](Self::join).
    #[must_use]
    pub fn unfinished(&self) -> Option<&Path> {
        self.unfinished.as_ref().map(atomic::Unfinished::path)
    }

    /// Writes, too, to a file that another rank made with the same arguments and calls `unfinished`. That rank finishes it,
    /// after all others have called [`sync`](Self::sync).
    pub fn join(
        path: impl AsRef<Path>,
        shape: &[usize],
        options: &WriteOptions,
        unfinished: &Path,
    ) -> Result<Self> {
        let path = path.as_ref();
        super::with_target(path, shape, options, |target, format| {
            let file = File::options().read(true).write(true).open(unfinished);
            let file = file.map_err(|error| target.failed(error))?;
            let layout = Placement::find(target, format, shape, &file)?;
            let (name, shape) = (target.name.to_owned(), shape.to_vec());
            Ok(Self { name, shape, file, layout, unfinished: None })
        })
    }

    /// Writes a range for each of the last axes, as a rule the spatial ones, and all of the axes before them.
    pub fn write_region(&mut self, region: &[Range<usize>], values: &View) -> Result<()> {
        let region = region::complete(&self.shape, region)?;
        check_part(&self.name, &region, values)?;
        let written = match &self.layout {
            Placement::Plain(plain, block) => {
                plain.write_region(&mut self.file, [block], &region, values)
            }
            Placement::Tiff(placed) => placed.write_region(&mut self.file, &region, values),
        };
        written.map_err(|error| failed(&self.name, &error))
    }

    /// Brings what was written to the disk.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| failed(&self.name, &error))
    }

    /// Gives the file its name. What has that name stays until then. Of several ranks, only the one that made the file does
    /// anything here.
    pub fn finish(self) -> Result<()> {
        self.sync()?;
        match self.unfinished {
            Some(unfinished) => unfinished.finish(),
            None => Ok(()),
        }
    }
}

impl Placement {
    fn find(target: &Target, format: Format, shape: &[usize], file: &File) -> Result<Self> {
        if format == Format::Tiff {
            return Ok(Self::Tiff(tiff::Placed::open(target, shape, file)?));
        }
        let (header, _) = header(target, format, shape)?;
        let order = if format == Format::Fits { Order::Big } else { Order::Little };
        let (sample, scaling) = (target.sample, Scaling::NONE);
        let encoded = Encoded { sample, order, scaling, blank: None, available: None };
        let (stored, axes) = (shape.to_vec(), (0..shape.len()).collect());
        let plain = Plain { encoded, stored, axes, shape: shape.to_vec() };
        let block = plain.block(header.len() as u64);
        Ok(Self::Plain(plain, block))
    }
}

/// Whether a [`Writer`] writes files of a format: their values lie at offsets that are known before there are any.
#[must_use]
pub fn is_written_by_region(format: Format) -> bool {
    matches!(format, Format::Npy | Format::Fits | Format::Nifti | Format::Tiff)
}

/// What is before the values, and the length of the file.
fn header(target: &Target, format: Format, shape: &[usize]) -> Result<(Vec<u8>, u64)> {
    let header = match format {
        Format::Npy => npy::make_header(shape, target.sample),
        Format::Nifti => nifti::make_header(target, shape)?,
        _ => fits::make_header(target, shape)?,
    };
    let size = header.len() + shape.iter().product::<usize>() * target.sample.bytes();
    let size = if format == Format::Fits { size.next_multiple_of(fits::BLOCK) } else { size };
    Ok((header, size as u64))
}

/// The boxes in which a stream is written, in order; none if the format is no stream.
pub(super) fn stream_bands(format: Format, shape: &[usize]) -> Vec<Region> {
    match format {
        Format::Png => region::rows(shape, 1),
        Format::Jpeg => region::rows(shape, picture::JPEG_ROWS),
        Format::Npz | Format::NiftiGz => region::bands(shape, region::BAND),
        _ => Vec::new(),
    }
}

/// Writes a stream: `next` gives the values of each of [`stream_bands`], in order.
pub(super) fn write_stream(
    target: &Target,
    format: Format,
    shape: &[usize],
    path: &Path,
    next: &mut dyn FnMut(&[Range<usize>]) -> Result<crate::array::Array>,
) -> Result<()> {
    let mut failure = None;
    let next: &mut NextBand = &mut |band| {
        next(band).map_err(|error| {
            let text = std::io::Error::other(error.to_string());
            failure.get_or_insert(error);
            text
        })
    };
    let written = match format {
        Format::Png | Format::Jpeg => picture::write(target, shape, path, format, next),
        Format::Npz => npy::write_archive(target, shape, path, next),
        _ => nifti::write_compressed(target, shape, path, next),
    };
    match failure {
        Some(error) => Err(error),
        None => written,
    }
}

/// Refuses values that do not fill their region.
pub(super) fn check_part(name: &str, region: &[Range<usize>], values: &View) -> Result<()> {
    if values.shape() == region::sides(region) {
        return Ok(());
    }
    Err(Error::Shape {
        what: format!("{name}: the values of a part"),
        expected: format!("{region:?} has shape {:?}", region::sides(region)),
        found: values.shape().to_vec(),
    })
}

fn failed(name: &str, error: &std::io::Error) -> Error {
    Error::File { file: name.into(), reason: format!("cannot write it: {error}") }
}

/// A path as text that other ranks can open; names that are no text are refused.
pub(super) fn path_text(name: &str, path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| Error::Unsupported {
        file: name.into(),
        reason: "the name of its folder is no UTF-8, which several ranks cannot write to".into(),
    })
}

/// The path that [`path_text`] made.
pub(super) fn path_of(text: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(text).into_owned())
}
