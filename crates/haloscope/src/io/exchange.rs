//! HDF5: any dataset as an image, and tomographic scans in the layout of Data Exchange.
//!
//! A scan has projections, flat and dark frames and angles under `/exchange`; [`Scan`] holds them and
//! makes line integrals of them, and [`ScanReader`] reads as much of them as is needed. Files are read by a library in pure Rust.

use std::ops::Range;
use std::path::Path;

use hdf5_pure::{AttrValue, DType, Dataset, File, FileBuilder};
use ndarray::IxDyn;

use super::{Format, Image, Limits, ReadOptions, Sample, Scaling, Target, frames, guarded};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::region;

/// Deflate shrinks to one in 1032 at most.
const MOST_SHRUNK: u64 = 1100;

/// The dataset that is read and written if none is named.
const STANDARD: &str = "exchange/data";

/// A scan: projections of an object and what is needed to make sense of them.
///
/// ```
/// use haloscope::io::exchange::Scan;
/// use ndarray::ArrayD;
///
/// let scan = Scan {
///     projections: ArrayD::from_elem(vec![4, 1, 8], 110.0),
///     white: Some(ArrayD::from_elem(vec![2, 1, 8], 210.0)),
///     dark: Some(ArrayD::from_elem(vec![2, 1, 8], 10.0)),
///     angles: vec![0.0, 0.8, 1.6, 2.4],
/// };
/// let sinograms = scan.line_integrals()?;
/// assert_eq!(sinograms.shape(), [1, 1, 4, 8]);
/// assert!((sinograms[[0, 0, 0, 0]] - 2_f32.ln()).abs() < 1e-6);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// What the detector counted: (angle, row, column).
    pub projections: Array,
    /// Counts without the object: (frame, row, column).
    pub white: Option<Array>,
    /// Counts without the beam: (frame, row, column).
    pub dark: Option<Array>,
    /// The angle of each projection, in radians.
    pub angles: Vec<f64>,
}

impl Scan {
    /// Reads `/exchange/data`, `data_white`, `data_dark` and `theta`.
    ///
    /// Angles are in degrees unless the attribute `units` of `theta` says radians; without `theta` they
    /// are spread evenly from 0 to 180 degrees, the last one left out.
    pub fn read(path: impl AsRef<Path>, limits: &Limits) -> Result<Self> {
        let reader = ScanReader::open(path, limits)?;
        let [views, rows, _] = reader.shape;
        let all: Vec<usize> = (0..views).collect();
        Ok(Self {
            projections: reader.projections(&[&all], 0..rows)?.remove(0),
            white: reader.frames(WHITE, 0..rows)?,
            dark: reader.frames(DARK, 0..rows)?,
            angles: reader.angles,
        })
    }

    /// What part of the beam arrives: (counts − dark) / (white − dark), with the means of the frames.
    /// Axes stay (angle, row, column).
    pub fn transmission(&self) -> Result<Array> {
        let (white, dark) = means(self.white.as_ref(), self.dark.as_ref())?;
        frames::transmission(self.projections.clone(), &white, dark.as_deref())
    }

    /// The integrals of the attenuation along each ray, −ln of the transmission, as a batch of
    /// sinograms: (row, 1, angle, column). Counts at or below the dark level count as one in 10⁶.
    pub fn line_integrals(&self) -> Result<Array> {
        let transmission = self.transmission()?;
        let integrals = frames::line_integrals(transmission);
        let sinograms = integrals.permuted_axes(vec![1, 0, 2]).insert_axis(ndarray::Axis(1));
        Ok(sinograms.as_standard_layout().into_owned())
    }
}

/// The datasets of frames without the object, and without the beam.
const WHITE: &str = "exchange/data_white";
const DARK: &str = "exchange/data_dark";

/// A scan in a file, of which projections are read when they are needed and only those: for scans that are larger than
/// memory, and for ranks that have some of the views each.
///
/// Of a projection all rows are read, whichever are kept, and of a compressed one all that was compressed with it.
#[derive(Debug)]
pub struct ScanReader {
    name: String,
    file: File,
    limits: Limits,
    shape: [usize; 3],
    angles: Vec<f64>,
}

impl ScanReader {
    /// Opens a file and reads its angles, as [`Scan::read`] does.
    pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        guarded(&name, || {
            let file = open(path.as_ref(), &name, limits)?;
            let damaged = |reason: String| Error::Content { file: name.clone(), reason };
            let data = file
                .dataset(STANDARD)
                .map_err(|_| damaged("it has no dataset /exchange/data".into()))?;
            let (shape, _) = check_dataset(&name, &data, file.file_size(), limits)?;
            let &[count, rows, columns] = &shape[..] else {
                return Err(damaged(format!(
                    "/exchange/data has shape {shape:?} instead of (angle, row, column)"
                )));
            };
            let angles = match file.dataset("exchange/theta") {
                Ok(theta) => angles_of(&name, &theta, count)?,
                Err(_) => {
                    (0..count).map(|i| i as f64 * std::f64::consts::PI / count as f64).collect()
                }
            };
            let (name, limits) = (name.clone(), limits.clone());
            Ok(Self { name, file, limits, shape: [count, rows, columns], angles })
        })
    }

    /// The sides of all projections, (angle, row, column).
    #[must_use]
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The angle of each projection, in radians.
    #[must_use]
    pub fn angles(&self) -> &[f64] {
        &self.angles
    }

    /// The counts of some projections in some rows, (angle, row, column).
    fn projections(&self, views: &[&[usize]], rows: Range<usize>) -> Result<Vec<Array>> {
        let refused = |error: hdf5_pure::Error| refused(&self.name, &error);
        guarded(&self.name, || {
            let data = self.file.dataset(STANDARD).map_err(refused)?;
            self.read(&data, self.shape[0], views, rows)
        })
    }

    /// The line integrals of some projections in some rows, (angle, row, column), as [`Scan::line_integrals`] has them: for
    /// each list of views, which ascend in it.
    pub fn line_integrals(&self, views: &[&[usize]], rows: Range<usize>) -> Result<Vec<Array>> {
        let [white, dark] = [WHITE, DARK].map(|entry| self.frames(entry, rows.clone()));
        let (white, dark) = means(white?.as_ref(), dark?.as_ref())?;
        let counts = self.projections(views, rows)?;
        let integrals = counts.into_iter().map(|counts| {
            Ok(frames::line_integrals(frames::transmission(counts, &white, dark.as_deref())?))
        });
        integrals.collect()
    }

    /// Frames in some rows, (frame, row, column), if there are any.
    fn frames(&self, entry: &str, rows: Range<usize>) -> Result<Option<Array>> {
        guarded(&self.name, || {
            let Ok(frames) = self.file.dataset(entry) else { return Ok(None) };
            let (shape, _) =
                check_dataset(&self.name, &frames, self.file.file_size(), &self.limits)?;
            let [_, height, width] = self.shape;
            match shape[..] {
                [count, h, w] if (h, w) == (height, width) => {
                    let all: Vec<usize> = (0..count).collect();
                    Ok(self.read(&frames, count, &[&all], rows)?.pop())
                }
                _ => Err(Error::Content {
                    file: self.name.clone(),
                    reason: format!(
                        "/{entry} has shape {shape:?}, and the projections have {height} rows of {width}"
                    ),
                }),
            }
        })
    }

    /// Some of the `count` frames of a dataset, in some rows, for each list: in blocks that are stored together, each of
    /// which is read once.
    fn read(
        &self,
        data: &Dataset,
        count: usize,
        lists: &[&[usize]],
        rows: Range<usize>,
    ) -> Result<Vec<Array>> {
        let refused = |error: hdf5_pure::Error| refused(&self.name, &error);
        let [_, height, width] = self.shape;
        let are_there =
            |list: &&[usize]| list.is_sorted() && list.last().is_none_or(|last| *last < count);
        if rows.end > height || !lists.iter().all(are_there) {
            let reason = format!(
                "frames {lists:?} and rows {rows:?} of {count} frames of {height} rows; frames in ascending order are \
                 expected"
            );
            return Err(Error::argument("scan", reason));
        }
        if let ([list], true) = (lists, rows.len() == height)
            && list.len() == count
        {
            let values = data.read_f32().map_err(refused)?;
            return Ok(vec![self.array(&[count, height, width], values)?]);
        }
        let chunk = data.chunk_shape().map_err(refused)?;
        let block = chunk.and_then(|chunk| chunk.first().copied()).unwrap_or(1).max(1) as usize;
        let mut wanted: Vec<(usize, usize)> = (lists.iter().enumerate())
            .flat_map(|(index, list)| list.iter().map(move |frame| (*frame, index)))
            .collect();
        wanted.sort_unstable();
        let mut values: Vec<Vec<f32>> = (lists.iter())
            .map(|list| Vec::with_capacity(list.len() * rows.len() * width))
            .collect();
        let (mut held, mut begin) = (Vec::new(), usize::MAX);
        for (frame, index) in wanted {
            if frame / block * block != begin {
                begin = frame / block * block;
                held = data.read_f32_rows(begin as u64, block as u64).map_err(refused)?;
            }
            let at = ((frame - begin) * height + rows.start) * width;
            let kept = held.get(at..at + rows.len() * width).ok_or_else(|| Error::Content {
                file: self.name.clone(),
                reason: format!("frame {frame} is not there"),
            })?;
            values[index].extend_from_slice(kept);
        }
        let shaped = lists.iter().zip(values);
        shaped.map(|(list, values)| self.array(&[list.len(), rows.len(), width], values)).collect()
    }

    fn array(&self, shape: &[usize], values: Vec<f32>) -> Result<Array> {
        Array::from_shape_vec(IxDyn(shape), values)
            .map_err(|error| Error::Content { file: self.name.clone(), reason: error.to_string() })
    }
}

/// The means of the frames without the object and, if there are some, of those without the beam.
fn means(white: Option<&Array>, dark: Option<&Array>) -> Result<(Array, Option<Array>)> {
    let Some(white) = white else {
        return Err(Error::argument("scan", "there are no frames without the object (data_white)"));
    };
    let mean = |frames: &Array| {
        let mean = frames.mean_axis(ndarray::Axis(0));
        mean.ok_or_else(|| Error::argument("scan", "data_white or data_dark has no frames"))
    };
    Ok((mean(white)?, dark.map(mean).transpose()?))
}

/// The arrays of numbers of two axes or more in a file, by the names that [`ReadOptions::entry`] has for them.
pub fn arrays(path: impl AsRef<Path>, limits: &Limits) -> Result<Vec<String>> {
    let name = path.as_ref().display().to_string();
    guarded(&name, || {
        let file = open(path.as_ref(), &name, limits)?;
        arrays_of(&file).map_err(|error| refused(&name, &error))
    })
}

fn arrays_of(file: &File) -> std::result::Result<Vec<String>, hdf5_pure::Error> {
    /// Groups may contain each other.
    const DEEPEST: usize = 8;
    const MOST: usize = 10_000;
    let mut arrays = Vec::new();
    let mut groups = vec![(file.root(), String::new(), 0)];
    while let Some((group, path, depth)) = groups.pop() {
        for name in group.datasets()? {
            let dataset = group.dataset(&name)?;
            if dataset.shape()?.len() >= 2 && sample_of(&dataset.dtype()?).is_some() {
                arrays.push(format!("{path}{name}"));
            }
        }
        if depth < DEEPEST && groups.len() + arrays.len() < MOST {
            for name in group.groups()? {
                groups.push((group.group(&name)?, format!("{path}{name}/"), depth + 1));
            }
        }
    }
    arrays.sort_unstable();
    Ok(arrays)
}

/// Reads the dataset that the options name from a file that may be larger than memory.
pub(super) fn read_path(path: &Path, name: &str, options: &ReadOptions) -> Result<Image> {
    guarded(name, || read_file(name, &open(path, name, &options.limits)?, options))
}

/// Reads a file that is in memory.
pub(super) fn read_bytes(name: &str, bytes: Vec<u8>, options: &ReadOptions) -> Result<Image> {
    guarded(name, || {
        let file = File::from_bytes(bytes).map_err(|error| refused(name, &error))?;
        read_file(name, &file, options)
    })
}

pub(super) fn open(path: &Path, name: &str, limits: &Limits) -> Result<File> {
    let failed =
        |error: std::io::Error| Error::File { file: name.into(), reason: error.to_string() };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > limits.file_bytes {
        let reason = format!("it has {length} bytes; the limit is {}", limits.file_bytes);
        return Err(Error::Limit { file: name.into(), reason });
    }
    File::open_streaming(path).map_err(|error| refused(name, &error))
}

fn read_file(name: &str, file: &File, options: &ReadOptions) -> Result<Image> {
    image_of(name, &find(name, file, options)?, file.file_size(), options)
}

/// The dataset that the options name.
fn find(name: &str, file: &File, options: &ReadOptions) -> Result<Dataset> {
    let entry = options.entry.as_deref().unwrap_or(STANDARD).trim_start_matches('/');
    file.dataset(entry).map_err(|error| {
        let mut arrays = arrays_of(file).unwrap_or_default();
        arrays.truncate(20);
        let there = match &arrays[..] {
            [] => String::new(),
            arrays => format!("; it has {arrays:?}"),
        };
        Error::Content {
            file: name.into(),
            reason: format!("it has no dataset /{entry}: {error}; `entry` names another{there}"),
        }
    })
}

fn image_of(name: &str, dataset: &Dataset, length: u64, options: &ReadOptions) -> Result<Image> {
    let (about, shape) = check(name, dataset, length, options)?;
    let values = dataset.read_f32().map_err(|error| refused(name, &error))?;
    let array = Array::from_shape_vec(IxDyn(&shape), values)
        .map_err(|error| Error::Content { file: name.into(), reason: error.to_string() })?;
    let array = options.axes.arrange(name, about.scaling.apply(array))?;
    Ok(Image { array, ..about })
}

/// The shape and the type of a dataset of real numbers that a file of this length can hold.
fn check_dataset(
    name: &str,
    dataset: &Dataset,
    length: u64,
    limits: &Limits,
) -> Result<(Vec<usize>, Sample)> {
    let refused = |error: hdf5_pure::Error| refused(name, &error);
    let dtype = dataset.dtype().map_err(refused)?;
    let Some(sample) = sample_of(&dtype) else {
        let reason = format!("values of type {dtype}; real numbers of 8 to 64 bits are read");
        return Err(Error::Unsupported { file: name.into(), reason });
    };
    let shape = dataset.shape().map_err(refused)?;
    let count = limits.check(name, &shape)?;
    let ratio = if dataset.filters().is_empty() { 1 } else { MOST_SHRUNK };
    check_plausible(name, count as u64 * sample.bytes() as u64, length, ratio)?;
    if let Some(chunk) = dataset.chunk_shape().map_err(refused)? {
        let count = limits.check(name, &chunk)?;
        check_plausible(name, count as u64 * sample.bytes() as u64, length, ratio)?;
    }
    Ok((shape.iter().map(|&side| side as usize).collect(), sample))
}

/// What a dataset holds, and its shape, if the file can have that much.
fn check(
    name: &str,
    dataset: &Dataset,
    length: u64,
    options: &ReadOptions,
) -> Result<(Image, Vec<usize>)> {
    let (shape, sample) = check_dataset(name, dataset, length, &options.limits)?;
    Ok((Image::about(Format::Hdf5, sample, Scaling::NONE.and(options)), shape))
}

/// What the dataset that the options name holds, the axis of the array that each of its axes is, and the array's shape.
pub(super) fn open_path(
    path: &Path,
    name: &str,
    options: &ReadOptions,
) -> Result<(Image, Vec<usize>, Vec<usize>)> {
    guarded(name, || {
        let file = open(path, name, &options.limits)?;
        let (about, stored) = check(name, &find(name, &file, options)?, file.file_size(), options)?;
        let (axes, shape) = options.axes.place(name, &stored)?;
        Ok((about, axes, shape))
    })
}

/// Reads a box of the dataset's own axes, a band of its first axis at a time: more than one entry of that axis only if they
/// are small.
pub(super) fn read_region(
    path: &Path,
    name: &str,
    region: &[Range<usize>],
    options: &ReadOptions,
) -> Result<Array> {
    guarded(name, || {
        let file = open(path, name, &options.limits)?;
        let dataset = find(name, &file, options)?;
        let (about, shape) = check(name, &dataset, file.file_size(), options)?;
        let Some(rows) = region.first() else {
            return Ok(image_of(name, &dataset, file.file_size(), options)?.array);
        };
        let row: usize = shape[1..].iter().product();
        let step = (region::BAND / row).max(1);
        let mut array = Array::zeros(region::sides(region));
        for start in rows.clone().step_by(step) {
            let count = step.min(rows.end - start);
            let values = dataset.read_f32_rows(start as u64, count as u64);
            let values = values.map_err(|error| refused(name, &error))?;
            let mut covered = region::whole(&shape);
            covered[0] = start..start + count;
            let values = Array::from_shape_vec(region::sides(&covered), values)
                .map_err(|error| Error::Content { file: name.into(), reason: error.to_string() })?;
            region::copy(&about.scaling.apply(values), &covered, &mut array, region);
        }
        options.axes.arrange(name, array)
    })
}

/// How real numbers are stored; `None` for all else.
fn sample_of(dtype: &DType) -> Option<Sample> {
    Some(match dtype {
        DType::U8 => Sample::U8,
        DType::I8 => Sample::I8,
        DType::U16 => Sample::U16,
        DType::I16 => Sample::I16,
        DType::U32 => Sample::U32,
        DType::I32 => Sample::I32,
        DType::U64 => Sample::U64,
        DType::I64 => Sample::I64,
        DType::F32 => Sample::F32,
        DType::F64 => Sample::F64,
        _ => return None,
    })
}

/// Refuses what no file of this length can hold. Data that was never written takes no place in a file,
/// and is no measurement.
pub(super) fn check_plausible(name: &str, bytes: u64, length: u64, ratio: u64) -> Result<()> {
    if bytes / ratio <= length {
        return Ok(());
    }
    Err(Error::Content {
        file: name.into(),
        reason: format!("{bytes} bytes of values are announced, which cannot be in {length} bytes"),
    })
}

fn angles_of(name: &str, theta: &Dataset, count: usize) -> Result<Vec<f64>> {
    let refused = |error: hdf5_pure::Error| refused(name, &error);
    let shape = theta.shape().map_err(refused)?;
    if shape != [count as u64] {
        return Err(Error::Content {
            file: name.into(),
            reason: format!("/exchange/theta has shape {shape:?} for {count} projections"),
        });
    }
    let units = theta.attrs().map_err(refused)?.remove("units");
    let is_radians = match units {
        Some(
            AttrValue::String(units)
            | AttrValue::AsciiString(units)
            | AttrValue::VarLenAsciiString(units),
        ) => units.starts_with("rad"),
        _ => false,
    };
    let angles = theta.read_f64().map_err(refused)?;
    Ok(if is_radians { angles } else { angles.into_iter().map(f64::to_radians).collect() })
}

/// Writes one dataset, under the name of the options.
pub(super) fn write_dataset(target: &Target, path: &Path, array: &View) -> Result<()> {
    let entry = target.options.entry.as_deref().unwrap_or(STANDARD).trim_matches('/');
    let standard = array.as_standard_layout();
    let values = standard.as_slice().unwrap_or_default();
    let sides = super::without_ones(array.shape());
    let shape: Vec<u64> = sides.iter().map(|&side| side as u64).collect();
    let mut builder = FileBuilder::new();
    match entry.split('/').collect::<Vec<_>>()[..] {
        [name] if !name.is_empty() => {
            builder.create_dataset(name).with_f32_data(values).with_shape(&shape);
        }
        [group, name] if !group.is_empty() && !name.is_empty() => {
            let mut group = builder.create_group(group);
            group.create_dataset(name).with_f32_data(values).with_shape(&shape);
            builder.add_group(group.finish());
        }
        _ => {
            let reason = format!("{entry:?} names no dataset; `name` and `group/name` do");
            return Err(Error::argument("entry", reason));
        }
    }
    let bytes = builder.finish().map_err(|error| target.failed(error))?;
    super::write_atomically(path, |file| file.write_all(&bytes))
}

pub(super) fn refused(name: &str, error: &hdf5_pure::Error) -> Error {
    let (file, reason) = (name.to_owned(), error.to_string());
    match error {
        hdf5_pure::Error::Io(_) => Error::File { file, reason },
        _ => Error::Content { file, reason },
    }
}
