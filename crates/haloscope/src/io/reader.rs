//! Files that are read by region, so that nobody needs to hold the whole.
//!
//! What a region costs depends on the format. Values that lie in a file as they are, are read where they lie. Of strips,
//! tiles and chunks, those that are needed are unpacked. Streams (pictures, gzip, NPZ) have to be unpacked from their start,
//! but only a band of them is held at a time.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::picture::{self, Picture};
use super::plain::Plain;
use super::{
    Format, Image, ReadOptions, Source, VisitBand, fits, needs_feature, nifti, npy, samples, tiff,
};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::region::{self, Region};

/// The values of rows that are looked at together: 4 MB; and 64 MB where chunks would be unpacked again for each row of theirs.
const ROWS: usize = 1 << 20;
const CHUNK_ROWS: usize = 1 << 24;

/// What reading a region costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The values of the region are read where they lie.
    Offsets,
    /// The strips, tiles or chunks that have values of the region are unpacked, each as a whole.
    Chunks,
    /// The file is unpacked from its start, band by band.
    Stream,
}

/// A file that is read by region, with the values that [`read`](super::read()) gives.
///
/// ```
/// use haloscope::io::{self, Access, ReadOptions, Reader, WriteOptions};
/// use ndarray::{ArrayD, s};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("volume.nii");
/// let volume = ArrayD::from_shape_fn(vec![1, 1, 4, 50, 60], |at| (at[2] * at[3] + at[4]) as f32);
/// io::write(&path, &volume, &WriteOptions::default())?;
///
/// let reader = Reader::open(&path, &ReadOptions::default())?;
/// assert_eq!((reader.shape(), reader.access()), (volume.shape(), Access::Offsets));
/// let part = reader.read_region(&[1..3, 10..20, 0..60])?;
/// assert_eq!(part, volume.slice(s![.., .., 1..3, 10..20, 0..60]).into_dyn());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    path: PathBuf,
    name: String,
    options: ReadOptions,
    shape: Vec<usize>,
    /// An image without values.
    about: Image,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Plain {
        plain: Plain,
        offset: u64,
    },
    Tiff(tiff::Stack),
    Picture(Picture),
    /// NPZ, and NIfTI in gzip.
    Packed(Plain),
    #[cfg(feature = "hdf5")]
    Hdf5 {
        axes: Vec<usize>,
    },
    #[cfg(feature = "zarr")]
    Zarr {
        stored: Box<super::zarr::Stored>,
        axes: Vec<usize>,
    },
}

impl Reader {
    /// Reads what a file says about its values, and checks it as [`read`](super::read()) does.
    ///
    /// # Errors
    /// As [`read`](super::read()).
    pub fn open(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        options.check()?;
        let reader = |about: Image, shape: Vec<usize>, kind| Self {
            path: path.to_owned(),
            name: name.clone(),
            options: options.clone(),
            shape,
            about,
            kind,
        };
        #[cfg(feature = "zarr")]
        if path.is_dir() && path.join("zarr.json").exists() {
            let stored = super::guarded(&name, || super::zarr::Stored::open(path, options))?;
            let (axes, shape) = stored.place(options)?;
            let about = stored.about(options);
            return Ok(reader(about, shape, Kind::Zarr { stored: Box::new(stored), axes }));
        }
        if path.is_dir() {
            return Err(super::read_folder(path, &name, options)
                .err()
                .unwrap_or_else(|| needs_feature(&name, Format::Zarr)));
        }
        with_source(path, &name, options, |source, format| {
            let values_at = |source: &mut Source| {
                source.reader.stream_position().map_err(|error| samples::failed_read(&name, &error))
            };
            Ok(match format {
                Format::Png | Format::Jpeg => {
                    let (_, picture) = Picture::open(source, format)?;
                    reader(picture.about(format), picture.shape(), Kind::Picture(picture))
                }
                Format::Tiff => {
                    let (stack, about) = tiff::Stack::open(source)?;
                    reader(about, stack.shape(), Kind::Tiff(stack))
                }
                Format::Npy | Format::Nifti | Format::Fits => {
                    let (plain, about) = match format {
                        Format::Npy => npy::open(source)?,
                        Format::Nifti => nifti::open(source)?,
                        _ => fits::open(source)?,
                    };
                    let offset = values_at(source)?;
                    reader(about, plain.shape.clone(), Kind::Plain { plain, offset })
                }
                Format::Npz | Format::NiftiGz => {
                    let length = source.length;
                    let (plain, about) = match format {
                        Format::Npz => npy::with_entry(source, |_, header, _| Ok(header))?,
                        _ => nifti::with_content(source, |_, header, _| Ok(header))?,
                    };
                    check_plausible(&name, &plain, length)?;
                    reader(about, plain.shape.clone(), Kind::Packed(plain))
                }
                #[cfg(feature = "hdf5")]
                Format::Hdf5 => {
                    let (about, axes, shape) = super::exchange::open_path(path, &name, options)?;
                    reader(about, shape, Kind::Hdf5 { axes })
                }
                #[allow(unreachable_patterns)]
                format => return Err(needs_feature(&name, format)),
            })
        })
    }

    /// The shape of the whole array: (batch, channel, spatial…), unless the options ask for the axes of the file.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// What reading a region costs.
    #[must_use]
    pub fn access(&self) -> Access {
        match &self.kind {
            Kind::Plain { .. } => Access::Offsets,
            Kind::Tiff(stack) if stack.is_plain => Access::Offsets,
            Kind::Tiff(_) => Access::Chunks,
            Kind::Picture(_) | Kind::Packed(_) => Access::Stream,
            #[cfg(feature = "hdf5")]
            Kind::Hdf5 { .. } => Access::Chunks,
            #[cfg(feature = "zarr")]
            Kind::Zarr { .. } => Access::Chunks,
        }
    }

    /// An image of these values, with what the file says about the whole.
    #[must_use]
    pub fn image(&self, array: Array) -> Image {
        Image { array, ..self.about.clone() }
    }

    /// Reads a range for each of the last axes, as a rule the spatial ones; of the axes before them, all.
    ///
    /// # Errors
    /// If the region is not within the array, and as [`read`](super::read()). What is damaged elsewhere in the file may go
    /// unnoticed.
    pub fn read_region(&self, region: &[Range<usize>]) -> Result<Array> {
        let region = region::complete(&self.shape, region)?;
        match &self.kind {
            Kind::Plain { plain, offset } => {
                let mut file = self.open_file()?;
                plain.read_region(&self.name, &mut file, [&plain.block(*offset)], &region)
            }
            Kind::Tiff(stack) => with_source(&self.path, &self.name, &self.options, |source, _| {
                stack.read_region(source, &region)
            }),
            Kind::Picture(_) | Kind::Packed(_) => {
                let mut array = Array::zeros(region::sides(&region));
                let mut left = array.len();
                self.stream(&mut |band, values| {
                    left -= region::copy(&values, band, &mut array, &region);
                    Ok(left > 0)
                })?;
                Ok(array)
            }
            #[cfg(feature = "hdf5")]
            Kind::Hdf5 { axes } => {
                let stored: Region = axes.iter().map(|&axis| region[axis].clone()).collect();
                super::exchange::read_region(&self.path, &self.name, &stored, &self.options)
            }
            #[cfg(feature = "zarr")]
            Kind::Zarr { stored, axes } => super::guarded(&self.name, || {
                let region: Region = axes.iter().map(|&axis| region[axis].clone()).collect();
                Ok(stored.read(Some(&region), &self.options)?.array)
            }),
        }
    }

    /// Gives `look` all values of an array (batch, channel, spatial…), band by band, so that nobody holds the whole: those of a
    /// stream as they are unpacked, and rows of other files.
    ///
    /// # Errors
    /// Those of `look`, and as [`read`](super::read()).
    pub fn for_each_band(&self, look: &mut dyn FnMut(&Array) -> Result<()>) -> Result<()> {
        let most = match self.access() {
            Access::Stream => {
                return self.stream(&mut |_, values| look(&values).map(|()| true));
            }
            Access::Offsets => ROWS,
            Access::Chunks => CHUNK_ROWS,
        };
        let mut region = region::whole(&self.shape);
        let axis = 2.min(region.len().saturating_sub(1));
        let Some(rows) = region.get(axis).map(|range| range.end) else { return Ok(()) };
        let step = (most * rows / self.shape.iter().product::<usize>().max(1)).max(1);
        for start in (0..rows).step_by(step) {
            region[axis] = start..rows.min(start + step);
            look(&self.read_region(&region)?)?;
        }
        Ok(())
    }

    /// The boxes that [`stream`](Self::stream) gives, in its order; none if the file is no stream.
    pub(super) fn bands(&self) -> Vec<Region> {
        match &self.kind {
            Kind::Picture(picture) => picture.bands(),
            Kind::Packed(plain) => region::bands(&plain.stored, region::BAND)
                .iter()
                .map(|band| plain.of_stored(band))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Unpacks the file band by band, until `visit` has enough.
    pub(super) fn stream(&self, visit: &mut VisitBand) -> Result<()> {
        with_source(&self.path, &self.name, &self.options, |source, format| match &self.kind {
            Kind::Picture(picture) => picture.stream(source, format, visit),
            Kind::Packed(plain) if format == Format::Npz => {
                npy::with_entry(source, |name, _, entry| unpack(name, plain, entry, visit))
            }
            Kind::Packed(plain) if format == Format::NiftiGz => {
                nifti::with_content(source, |name, _, content| unpack(name, plain, content, visit))
            }
            _ => Err(Error::File {
                file: self.name.clone(),
                reason: "it is another file now".into(),
            }),
        })
    }

    fn open_file(&self) -> Result<File> {
        File::open(&self.path)
            .map_err(|error| Error::File { file: self.name.clone(), reason: error.to_string() })
    }
}

fn unpack(name: &str, plain: &Plain, reader: &mut dyn Read, visit: &mut VisitBand) -> Result<()> {
    let bands = region::bands(&plain.stored, region::BAND);
    for (number, band) in bands.iter().enumerate() {
        let values = plain.read_stored(name, reader, &region::sides(band))?;
        // Behind the last one is a checksum.
        if !visit(&plain.of_stored(band), values)? && number + 1 < bands.len() {
            return Ok(());
        }
    }
    samples::finish(name, reader)
}

/// Opens a file, and finds out what it is.
pub(super) fn with_source<T>(
    path: &Path,
    name: &str,
    options: &ReadOptions,
    read: impl FnOnce(&mut Source, Format) -> Result<T>,
) -> Result<T> {
    let failed =
        |error: std::io::Error| Error::File { file: name.into(), reason: error.to_string() };
    let file = File::open(path).map_err(failed)?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (length, format) = super::begin(name, &mut reader, options)?;
    read(&mut Source { name, reader: &mut reader, length, options }, format)
}

/// Refuses values that cannot be in a compressed file of this length: room for a region is taken before they come.
fn check_plausible(name: &str, plain: &Plain, length: u64) -> Result<()> {
    let size = plain.encoded.sample.bytes() as u64;
    let bytes = plain.stored.iter().fold(size, |bytes, &side| bytes.saturating_mul(side as u64));
    if bytes / picture::MOST_SHRUNK <= length {
        return Ok(());
    }
    let reason = format!(
        "it is cut short: {bytes} bytes of values are announced, which cannot be in {length} bytes"
    );
    Err(Error::Content { file: name.into(), reason })
}
