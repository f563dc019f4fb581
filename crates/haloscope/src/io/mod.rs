//! Images and volumes in files.
//!
//! [`read`] gives an array with the axes (batch, channel, spatial…) and what the file says about it;
//! [`write()`] makes a file of an array, whole or not at all. What a file *is* is decided by its first
//! bytes, whatever its name; what is written is decided by the name.
//!
//! | format | read | written | axes |
//! |---|---|---|---|
//! | PNG, JPEG | gray, colour; 8 or 16 bits | 8 bits, PNG also 16 | (1, 1 or 3, height, width) |
//! | TIFF | gray, colour; integers, floats; stacks | `U8`, `U16`, `F32` | (1, c, height, width); pages are (1, c, depth, height, width) |
//! | NPY, NPZ | all real numbers, booleans, both orders | all types | see [`Axes`]; one image of one channel is written without batch and channel |
//! | NIfTI-1 `.nii`, `.nii.gz` | all real types, RGB24 | all types | (1, t, z, y, x) |
//! | FITS | primary or first image extension | `F32` | last axis is NAXIS1; see [`Axes`] |
//! | UVFITS | visibilities in random groups, see [`read_uvfits`] | | (1, 2, visibility): real and imaginary parts |
//! | HDF5 (feature `hdf5`) | a dataset, `/exchange/data` by default | `F32` | see [`Axes`] |
//! | Zarr v3, OME-Zarr (feature `zarr`) | a whole array or a region | sharded `F32` | see [`Axes`] |
//!
//! **Regions.** A [`Reader`] reads a part of a file without holding the rest, and a [`Writer`] writes one. [`read_sharded`]
//! and [`write_sharded`] do so for an image that is spread over ranks.
//!
//! **Scaling.** PNG and JPEG are pictures: black is 0 and white, the largest value of the type, is 1.
//! All other formats hold measured values, and these are read as they are stored, integers or not, with
//! the slope and offset that FITS and NIfTI files may give. [`ReadOptions::white`] is the value that
//! becomes 1 instead, in every format; [`ReadOptions::raw`] leaves values as they are stored, without
//! slope and offset. On writing, PNG and JPEG map 0…1 to the range of the type; integers of other
//! formats are rounded and clamped to their type; NaN becomes 0. Arrays are f32, so that stored values
//! of more than 24 bits are rounded.
//!
//! **Transparency.** A picture with an alpha channel that is opaque everywhere is read without it; any
//! other is refused, because what is behind it is not in the file.
//!
//! **Orientation.** Pictures that a camera stored turned or mirrored, and says so in EXIF or TIFF, are
//! read upright. All else is in the order of the file: NIfTI and FITS count from the patient's or the
//! sky's side, and nothing is flipped.

mod atomic;
#[cfg(feature = "hdf5")]
pub mod exchange;
mod fits;
pub mod frames;
#[cfg(feature = "hdf5")]
pub mod ismrmrd;
mod metadata;
mod nifti;
mod npy;
mod options;
mod picture;
mod plain;
mod reader;
mod samples;
mod sharded;
mod tiff;
mod uvfits;
mod writer;
#[cfg(feature = "zarr")]
pub mod zarr;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

pub use atomic::write_atomically;
pub(crate) use atomic::{PART, write_atomically_as};
pub use metadata::{FitsHeader, LengthUnit, Metadata};
pub use options::{Axes, Limits, ReadOptions, Sample, Scaling, WriteOptions};
pub use reader::{Access, Reader};
pub use sharded::{read_sharded, write_sharded};
pub use uvfits::{UvFits, is_uvfits, read_uvfits, uvfits_centre};
pub use writer::{Writer, is_written_by_region};

use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::region;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Portable Network Graphics.
    Png,
    /// JPEG pictures; writing loses detail.
    Jpeg,
    /// Tagged image files, also of several pages.
    Tiff,
    /// One array of numpy.
    Npy,
    /// Named arrays of numpy.
    Npz,
    /// NIfTI-1, as it is.
    Nifti,
    /// NIfTI-1, compressed by gzip.
    NiftiGz,
    /// Flexible Image Transport System.
    Fits,
    /// Hierarchical Data Format 5, with feature `hdf5`.
    Hdf5,
    /// A folder of a Zarr array or an OME-Zarr image, with feature `zarr`.
    Zarr,
}

impl Format {
    /// What the name of a file says.
    ///
    /// ```
    /// use haloscope::io::Format;
    ///
    /// assert_eq!(Format::of_name("brain.NII.gz"), Some(Format::NiftiGz));
    /// assert_eq!(Format::of_name("notes.txt"), None);
    /// ```
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix('/').unwrap_or(&name);
        if name.ends_with(".nii.gz") {
            return Some(Self::NiftiGz);
        }
        Some(match name.rsplit_once('.')?.1 {
            "png" => Self::Png,
            "jpg" | "jpeg" => Self::Jpeg,
            "tif" | "tiff" => Self::Tiff,
            "npy" => Self::Npy,
            "npz" => Self::Npz,
            "nii" => Self::Nifti,
            "fits" | "fit" | "fts" | "uvfits" | "uvf" => Self::Fits,
            "h5" | "hdf5" => Self::Hdf5,
            "zarr" => Self::Zarr,
            _ => return None,
        })
    }

    /// What the first bytes of a file say.
    fn of_content(start: &[u8]) -> Option<Self> {
        let begins = |magic: &[u8]| start.starts_with(magic);
        Some(match () {
            () if begins(b"\x89PNG\r\n\x1a\n") => Self::Png,
            () if begins(b"\xff\xd8\xff") => Self::Jpeg,
            () if tiff::MAGICS.iter().any(|magic| begins(magic)) => Self::Tiff,
            () if begins(b"\x93NUMPY") => Self::Npy,
            () if begins(b"PK\x03\x04") || begins(b"PK\x05\x06") => Self::Npz,
            () if begins(b"\x1f\x8b") => Self::NiftiGz,
            () if begins(b"SIMPLE  =") => Self::Fits,
            () if begins(b"\x89HDF\r\n\x1a\n") => Self::Hdf5,
            () if nifti::is_header(start) => Self::Nifti,
            () => return None,
        })
    }

    /// The name to use in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Tiff => "TIFF",
            Self::Npy => "NPY",
            Self::Npz => "NPZ",
            Self::Nifti | Self::NiftiGz => "NIfTI",
            Self::Fits => "FITS",
            Self::Hdf5 => "HDF5",
            Self::Zarr => "Zarr",
        }
    }

    /// Whether values are from 0 to 1, black and white, of whatever type.
    #[must_use]
    pub fn is_picture(self) -> bool {
        matches!(self, Self::Png | Self::Jpeg)
    }

    /// How values can be stored; the first is what is taken by default.
    #[must_use]
    pub fn samples(self) -> &'static [Sample] {
        use Sample::{F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        match self {
            Self::Png => &[U8, U16],
            Self::Jpeg => &[U8],
            Self::Tiff => &[F32, U8, U16],
            Self::Npy | Self::Npz => &[F32, F16, F64, U8, I8, U16, I16, U32, I32, U64, I64],
            Self::Nifti | Self::NiftiGz => &[F32, F64, U8, I8, U16, I16, U32, I32, U64, I64],
            Self::Fits | Self::Hdf5 | Self::Zarr => &[F32],
        }
    }
}

/// An image or a volume, and what its file says about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The values, with the axes (batch, channel, spatial…).
    pub array: Array,
    /// What the file is.
    pub format: Format,
    /// How it stores values.
    pub sample: Sample,
    /// What was done to the stored values.
    pub scaling: Scaling,
    /// The distance of neighbouring values along each spatial axis, in the array's order: millimetres
    /// as a rule in NIfTI, the unit of the axis (degrees as a rule) in FITS.
    pub spacing: Option<Vec<f64>>,
    /// Where NIfTI puts the voxels: the rows give the world's x, y and z, as sums over the indices
    /// (x, y, z, 1), which are the array's spatial indices from the last to the first.
    pub affine: Option<[[f64; 4]; 3]>,
    /// What else the file says, to be passed on.
    pub metadata: Metadata,
}

impl Image {
    /// What is known of an image without its values.
    fn about(format: Format, sample: Sample, scaling: Scaling) -> Self {
        Self {
            array: Array::zeros(vec![0]),
            format,
            sample,
            scaling,
            spacing: None,
            affine: None,
            metadata: Metadata::default(),
        }
    }

    /// What the file holds and what was done to it: `TIFF, 16-bit unsigned, as stored`.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}, {}, {}", self.format.name(), self.sample, self.scaling)
    }

    /// Options to write an image like this one to a file of the given name: with the same type of
    /// floats, or of pictures, if the format of the file has it, spacing, place and metadata.
    #[must_use]
    pub fn write_options(&self, path: &Path) -> WriteOptions {
        let format = Format::of_name(&path.display().to_string());
        let samples = format.map_or(&[][..], Format::samples);
        // Integers would lose what lies between them, which only pictures can afford.
        let are_pictures = self.format.is_picture() && format.is_some_and(Format::is_picture);
        let fits = samples.contains(&self.sample) && (self.sample.is_float() || are_pictures);
        WriteOptions {
            sample: fits.then_some(self.sample),
            spacing: self.spacing.clone(),
            affine: self.affine,
            metadata: self.metadata.clone(),
            ..WriteOptions::default()
        }
    }
}

/// Reads a file.
///
/// ```
/// use haloscope::io::{self, ReadOptions, WriteOptions};
/// use ndarray::ArrayD;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("volume.nii.gz");
/// let volume = ArrayD::from_shape_fn(vec![1, 1, 4, 5, 6], |at| at[4] as f32);
/// let options = WriteOptions { spacing: Some(vec![2.0, 1.0, 1.0]), ..WriteOptions::default() };
/// io::write(&path, &volume, &options)?;
///
/// let image = io::read(&path, &ReadOptions::default())?;
/// assert_eq!(image.array, volume);
/// assert_eq!(image.spacing, options.spacing);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::File`] if the system does not give the file, [`Error::Content`] if it is damaged,
/// [`Error::Unsupported`] if it is of a kind or has a part that is not known, [`Error::Limit`] if it
/// asks for more than [`ReadOptions::limits`]. All name the file.
pub fn read(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Image> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let failed =
        |error: std::io::Error| Error::File { file: name.clone(), reason: error.to_string() };
    options.check()?;
    if path.is_dir() {
        return read_folder(path, &name, options);
    }
    let mut file = File::open(path).map_err(failed)?;
    #[cfg(feature = "hdf5")]
    {
        let mut start = Vec::new();
        (&mut file).take(8).read_to_end(&mut start).map_err(failed)?;
        if Format::of_content(&start) == Some(Format::Hdf5) {
            return exchange::read_path(path, &name, options);
        }
    }
    file.rewind().map_err(failed)?;
    decode(&name, BufReader::with_capacity(1 << 18, file), options)
}

/// The numbers of a file, in their order: in double precision from NPY and NPZ, and in single precision from all other formats.
///
/// For places and weights of samples, which are no images. Complex numbers have a last axis of two.
pub fn read_numbers(path: impl AsRef<Path>, options: &ReadOptions) -> Result<ndarray::ArrayD<f64>> {
    let path = path.as_ref();
    let options = ReadOptions { axes: Axes::AsStored, ..options.clone() };
    let name = path.display().to_string();
    if matches!(Format::of_name(&name), Some(Format::Npy | Format::Npz)) {
        let file = File::open(path)
            .map_err(|error| Error::File { file: name.clone(), reason: error.to_string() })?;
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let (length, format) = begin(&name, &mut reader, &options)?;
        let mut source = Source { name: &name, reader: &mut reader, length, options: &options };
        match format {
            Format::Npy => return npy::numbers(&mut source),
            Format::Npz => return npy::numbers_of_archive(&mut source),
            _ => (),
        }
    }
    Ok(read(path, &options)?.array.mapv(f64::from))
}

/// Reads a file that is in memory or comes from elsewhere; `name` is what errors call it.
///
/// ```
/// use haloscope::io::{self, ReadOptions};
///
/// let error = io::decode("upload", std::io::Cursor::new(b"hello"), &ReadOptions::default());
/// assert!(error.unwrap_err().to_string().starts_with("upload: it is not a PNG"));
/// ```
pub fn decode(name: &str, mut reader: impl Read + Seek, options: &ReadOptions) -> Result<Image> {
    options.check()?;
    let (length, format) = begin(name, &mut reader, options)?;
    let mut source = Source { name, reader: &mut reader, length, options };
    match format {
        Format::Png | Format::Jpeg => picture::read(&mut source, format),
        Format::Tiff => tiff::read(&mut source),
        Format::Npy => npy::read(&mut source),
        Format::Npz => npy::read_archive(&mut source),
        Format::Nifti => nifti::read(&mut source),
        Format::NiftiGz => nifti::read_compressed(&mut source),
        Format::Fits => fits::read(&mut source),
        #[cfg(feature = "hdf5")]
        Format::Hdf5 => {
            let mut bytes = Vec::new();
            let failed = |error| samples::failed_read(name, &error);
            source.reader.read_to_end(&mut bytes).map_err(failed)?;
            exchange::read_bytes(name, bytes, options)
        }
        #[allow(unreachable_patterns)]
        format => Err(needs_feature(name, format)),
    }
}

/// The length of a file and what it is; it is at its start then.
fn begin(
    name: &str,
    reader: &mut (impl Read + Seek),
    options: &ReadOptions,
) -> Result<(u64, Format)> {
    let failed = |error: std::io::Error| samples::failed_read(name, &error);
    let length = reader.seek(SeekFrom::End(0)).map_err(failed)?;
    reader.rewind().map_err(failed)?;
    if length > options.limits.file_bytes {
        let most = options.limits.file_bytes;
        let reason = format!("it has {length} bytes; the limit is {most}");
        return Err(Error::Limit { file: name.into(), reason });
    }
    let mut start = Vec::new();
    reader.by_ref().take(nifti::HEADER as u64).read_to_end(&mut start).map_err(failed)?;
    // Unlike `rewind`, this keeps what a reader has in its buffer.
    reader.seek_relative(-(start.len() as i64)).map_err(failed)?;
    let format = Format::of_content(&start).ok_or_else(|| Error::Content {
        file: name.into(),
        reason: "it is not a PNG, JPEG, TIFF, NPY, NPZ, NIfTI, FITS or HDF5 file, by its first \
                 bytes"
            .into(),
    })?;
    Ok((length, format))
}

/// Writes an array to a file, in the format of its name; what was there stays until the file is whole.
///
/// ```
/// use haloscope::io::{self, Sample, WriteOptions};
/// use ndarray::ArrayD;
///
/// let folder = tempfile::tempdir()?;
/// let picture = ArrayD::from_elem(vec![1, 3, 20, 30], 0.25);
/// let deep = WriteOptions { sample: Some(Sample::U16), ..WriteOptions::default() };
/// io::write(folder.path().join("deep.png"), &picture, &deep)?;
/// io::write(folder.path().join("small.jpg"), &picture, &WriteOptions::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(path: impl AsRef<Path>, array: &View, options: &WriteOptions) -> Result<()> {
    let path = path.as_ref();
    with_target(path, array.shape(), options, |target, format| match format {
        Format::Png | Format::Jpeg | Format::Npz | Format::NiftiGz => {
            writer::write_stream(target, format, array.shape(), path, &mut |band| {
                Ok(region::cut(array, band).to_owned())
            })
        }
        Format::Tiff => tiff::write(target, path, array),
        Format::Npy => npy::write(path, array, target.sample),
        Format::Nifti => nifti::write(target, path, array),
        Format::Fits => fits::write(target, path, array),
        #[cfg(feature = "hdf5")]
        Format::Hdf5 => exchange::write_dataset(target, path, array),
        #[cfg(feature = "zarr")]
        Format::Zarr => zarr::write(path, array, &zarr::Layout::of(array, options)),
        #[allow(unreachable_patterns)]
        format => Err(needs_feature(target.name, format)),
    })
}

/// Finds out what to write to a file of this name, and whether it can hold such an array.
fn with_target<T>(
    path: &Path,
    shape: &[usize],
    options: &WriteOptions,
    write: impl FnOnce(&Target, Format) -> Result<T>,
) -> Result<T> {
    let name = path.display().to_string();
    let Some(format) = Format::of_name(&name) else {
        return Err(Error::Unsupported {
            file: name,
            reason: "its name does not say what to write; the endings are .png, .jpg, .tif, .npy, .npz, \
                     .nii, .nii.gz, .fits, .h5 and .zarr"
                .into(),
        });
    };
    check_shape(path, shape)?;
    let sample = check_sample(&name, format, options)?;
    write(&Target { name: &name, options, sample }, format)
}

/// Refuses a shape that a file of this name cannot hold, so that it is known before there is an array. Names that do
/// not say what to write are refused later.
pub fn check_shape(path: impl AsRef<Path>, shape: &[usize]) -> Result<()> {
    let name = path.as_ref().display().to_string();
    let expected = match Format::of_name(&name) {
        _ if shape.contains(&0) => "this format takes arrays of at least one value",
        Some(Format::Png | Format::Jpeg) if !matches!(shape, [1, 1 | 3, _, _]) => {
            "pictures are (1, 1 or 3, height, width)"
        }
        Some(Format::Tiff) if !matches!(shape, [1, 1 | 3, _, _] | [1, 1 | 3, _, _, _]) => {
            "TIFF takes (1, 1 or 3, height, width) and (1, 1 or 3, depth, height, width)"
        }
        Some(Format::Nifti | Format::NiftiGz)
            if !matches!(shape, [1, _, _, _] | [1, _, _, _, _]) =>
        {
            "NIfTI takes (1, channel, y, x) and (1, channel, z, y, x)"
        }
        Some(Format::Fits | Format::Zarr) if !(4..=5).contains(&shape.len()) => {
            "this format takes (batch, channel, spatial…), of two or three sides"
        }
        _ => return Ok(()),
    };
    Err(Error::Shape {
        what: format!("{name}: the array"),
        expected: expected.into(),
        found: shape.to_vec(),
    })
}

/// The sides of an array without those of batch and channel, if there is one image of one channel: what other programs
/// take for an image or a volume.
fn without_ones(shape: &[usize]) -> &[usize] {
    match shape {
        [1, 1, sides @ ..] if (2..=3).contains(&sides.len()) => sides,
        all => all,
    }
}

/// Writes complex numbers, from their real and imaginary parts (2, …), to an NPY file of complex numbers in single precision.
pub fn write_complex(path: impl AsRef<Path>, parts: &View) -> Result<()> {
    match parts.shape() {
        [2, sides @ ..] if !sides.is_empty() => npy::write_complex(path.as_ref(), parts),
        shape => Err(Error::Shape {
            what: "an array of complex numbers".into(),
            expected: "(2, …) is expected, the real and the imaginary parts".into(),
            found: shape.to_vec(),
        }),
    }
}

/// Writes numbers in double precision to an NPY file.
pub fn write_numbers(path: impl AsRef<Path>, sides: &[usize], numbers: &[f64]) -> Result<()> {
    if sides.iter().product::<usize>() == numbers.len() {
        return npy::write_numbers(path.as_ref(), sides, numbers);
    }
    let (what, expected) = ("a list of numbers".into(), format!("{} of them", numbers.len()));
    Err(Error::Shape { what, expected, found: sides.to_vec() })
}

/// A file that is being read.
struct Source<'a> {
    name: &'a str,
    reader: &'a mut dyn Stream,
    length: u64,
    options: &'a ReadOptions,
}

impl Source<'_> {
    fn damaged(&self, reason: impl Into<String>) -> Error {
        Error::Content { file: self.name.into(), reason: reason.into() }
    }

    fn unsupported(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported { file: self.name.into(), reason: reason.into() }
    }
}

trait Stream: Read + Seek {}

impl<T: Read + Seek> Stream for T {}

/// Gives the values of a box of the array.
type NextBand<'a> = dyn FnMut(&[Range<usize>]) -> std::io::Result<Array> + 'a;

/// Takes a box of the array and its values, and says whether there is need of more.
type VisitBand<'a> = dyn FnMut(&[Range<usize>], Array) -> Result<bool> + 'a;

/// A file that is being written.
struct Target<'a> {
    name: &'a str,
    options: &'a WriteOptions,
    sample: Sample,
}

impl Target<'_> {
    /// What stored integers are to values from 0 to 1.
    fn scale_of_picture(&self) -> f64 {
        if self.options.raw { 1.0 } else { self.sample.white().unwrap_or(1.0) }
    }

    fn refuse(&self, shape: &[usize], expected: &str) -> Error {
        Error::Shape {
            what: format!("{}: the array", self.name),
            expected: format!("this format takes {expected}"),
            found: shape.to_vec(),
        }
    }

    fn failed(&self, error: impl std::fmt::Display) -> Error {
        Error::File { file: self.name.into(), reason: format!("cannot write it: {error}") }
    }
}

fn check_sample(name: &str, format: Format, options: &WriteOptions) -> Result<Sample> {
    let known = format.samples();
    let sample = options.sample.unwrap_or(known[0]);
    if known.contains(&sample) {
        return Ok(sample);
    }
    Err(Error::Unsupported {
        file: name.into(),
        reason: format!(
            "values are {sample}; {} files are written as {}",
            format.name(),
            known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ),
    })
}

fn needs_feature(name: &str, format: Format) -> Error {
    let feature = if format == Format::Zarr { "zarr" } else { "hdf5" };
    Error::Unsupported {
        file: name.into(),
        reason: format!("{} needs a build with the feature `{feature}`", format.name()),
    }
}

fn read_folder(path: &Path, name: &str, options: &ReadOptions) -> Result<Image> {
    if !path.join("zarr.json").exists() {
        return Err(Error::Content {
            file: name.into(),
            reason: "it is a folder without zarr.json, so no Zarr v3 array or group".into(),
        });
    }
    #[cfg(feature = "zarr")]
    return zarr::read(path, options);
    #[cfg(not(feature = "zarr"))]
    {
        let _ = options;
        Err(needs_feature(name, Format::Zarr))
    }
}

/// Runs a library's reader of a large format, whose arithmetic may fail on damaged files. What it was
/// reading is dropped then, so that nothing half done is seen.
#[cfg(any(feature = "hdf5", feature = "zarr"))]
fn guarded<T>(name: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    outcome.unwrap_or_else(|_| {
        let reason = "it is damaged in a way that its reader does not survive".into();
        Err(Error::Content { file: name.into(), reason })
    })
}

/// Runs an encoder that goes back in its file.
fn write_seekable(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>,
) -> Result<()> {
    atomic::write_file(path, |file| {
        let mut buffered = BufWriter::with_capacity(1 << 20, file);
        write(&mut buffered)?;
        buffered.flush()
    })
}
