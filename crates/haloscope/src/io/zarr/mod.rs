//! Zarr v3 arrays and OME-Zarr images, by the crate `zarrs`.
//!
//! A volume that is larger than memory is read by regions and written in shards: files that hold many
//! small chunks, so that a region costs little to read and a volume does not become a million files.

mod write;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ndarray::IxDyn;
use serde_json::Value;
use zarrs::array::{ArrayBytes, ArraySubset};
use zarrs::filesystem::FilesystemStore;

pub use write::write;
pub(super) use write::{Folder, Grid, Shard};

use super::samples::{Encoded, Order};
use super::{
    Axes, Format, Image, LengthUnit, Metadata, ReadOptions, Sample, Scaling, WriteOptions, guarded,
};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// Larger descriptions than this are not those of an image.
const MOST_METADATA: u64 = 16 << 20;

/// How an image is cut into files.
///
/// ```
/// use haloscope::io::{LengthUnit, ReadOptions, zarr};
/// use ndarray::ArrayD;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("volume.zarr");
/// let volume = ArrayD::from_shape_fn(vec![1, 1, 20, 30, 40], |at| (at[2] + at[4]) as f32);
/// let (spacing, unit) = (Some(vec![2.0, 1.0, 1.0]), LengthUnit::Micrometre);
/// let layout = zarr::Layout { chunk: 8, shard: 16, spacing, unit };
/// zarr::write(&path, &volume, &layout)?;
///
/// let region = [0..1, 0..1, 5..6, 10..20, 0..40];
/// let part = zarr::read_region(&path, &region, &ReadOptions::default())?;
/// assert_eq!(part.array.shape(), [1, 1, 1, 10, 40]);
/// assert_eq!(part.array[[0, 0, 0, 0, 3]], 8.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The side of a chunk along the spatial axes: what is read and unpacked at once.
    pub chunk: usize,
    /// The side of a shard, a multiple of that of a chunk: one file.
    pub shard: usize,
    /// The distance of neighbouring values along each spatial axis.
    pub spacing: Option<Vec<f64>>,
    /// The unit of that.
    pub unit: LengthUnit,
}

impl Layout {
    /// Chunks of 64³ or 512² values (about a megabyte) in shards of 8³ or 8² of them.
    #[must_use]
    pub fn of(array: &View, options: &WriteOptions) -> Self {
        Self::of_axes(array.ndim(), options)
    }

    pub(super) fn of_axes(axes: usize, options: &WriteOptions) -> Self {
        let chunk = if axes >= 5 { 64 } else { 512 };
        let unit = options.metadata.unit.unwrap_or(LengthUnit::Millimetre);
        Self { chunk, shard: 8 * chunk, spacing: options.spacing.clone(), unit }
    }
}

/// Reads a whole array, or the first (largest) scale of an OME-Zarr image.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Image> {
    let name = path.display().to_string();
    guarded(&name, || Stored::open(path, options)?.read(None, options))
}

/// Reads a region: a range for each axis of the array **as it is stored**.
pub fn read_region(path: &Path, region: &[Range<usize>], options: &ReadOptions) -> Result<Image> {
    let name = path.display().to_string();
    guarded(&name, || Stored::open(path, options)?.read(Some(region), options))
}

/// An array that is in a folder.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    name: String,
    folder: std::path::PathBuf,
    shape: Vec<u64>,
    sample: Sample,
    /// Of the spatial axes, if an image says it.
    spacing: Option<Vec<f64>>,
    unit: Option<LengthUnit>,
    /// What the axes of an image are, if it says so in the order (…, channel, spatial…).
    has_channel: Option<bool>,
}

impl Stored {
    pub(super) fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let name = path.display().to_string();
        let damaged = |reason: String| Error::Content { file: name.clone(), reason };
        let mut folder = path.to_owned();
        let (mut spacing, mut unit, mut has_channel) = (None, None, None);
        let mut metadata = description(&folder, &name)?;
        if metadata["node_type"] == "group" {
            let scale = &metadata["attributes"]["ome"]["multiscales"][0];
            let dataset = &scale["datasets"][0];
            let entry = options.entry.as_deref().or(dataset["path"].as_str());
            let Some(entry) = entry else {
                return Err(damaged(
                    "it is a group and no image; `entry` names an array in it".into(),
                ));
            };
            let is_inside = Path::new(entry)
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
            if !is_inside {
                return Err(damaged(format!("{entry:?} is no array in this folder")));
            }
            folder.push(entry);
            if options.entry.is_none() {
                (spacing, has_channel) = axes_of(scale);
                unit = unit_of(scale);
            }
            metadata = description(&folder, &name)?;
        }
        let shape: Option<Vec<u64>> = metadata["shape"]
            .as_array()
            .map(|sides| sides.iter().filter_map(Value::as_u64).collect());
        let (Some(shape), "array") = (shape, metadata["node_type"].as_str().unwrap_or("")) else {
            return Err(damaged("its description is not that of an array".into()));
        };
        let sample = match metadata["data_type"].as_str() {
            Some("uint8" | "bool") => Sample::U8,
            Some("int8") => Sample::I8,
            Some("uint16") => Sample::U16,
            Some("int16") => Sample::I16,
            Some("uint32") => Sample::U32,
            Some("int32") => Sample::I32,
            Some("uint64") => Sample::U64,
            Some("int64") => Sample::I64,
            Some("float16") => Sample::F16,
            Some("float32") => Sample::F32,
            Some("float64") => Sample::F64,
            Some(other) => {
                let reason = format!("values of type {other}; real numbers are read");
                return Err(Error::Unsupported { file: name, reason });
            }
            None => return Err(damaged("its description does not name the type of values".into())),
        };
        // A chunk is unpacked as a whole, whatever part of it is wanted.
        let chunk = &metadata["chunk_grid"]["configuration"]["chunk_shape"];
        let chunk: Vec<u64> =
            chunk.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        let elements = options.limits.elements;
        if chunk
            .iter()
            .try_fold(1_u64, |all, &side| all.checked_mul(side))
            .is_none_or(|all| all > elements)
        {
            let reason = format!("chunks of shape {chunk:?}; the limit is {elements} elements");
            return Err(Error::Limit { file: name, reason });
        }
        Ok(Self { name, folder, shape, sample, spacing, unit, has_channel })
    }

    /// What its axes mean.
    fn meaning(&self, options: &ReadOptions) -> Axes {
        match (options.axes, self.has_channel, self.shape.len()) {
            (Axes::Automatic, Some(true), 3..=4) => Axes::ChannelFirst,
            (Axes::Automatic, Some(false), 2..=3) => Axes::Spatial,
            (axes, ..) => axes,
        }
    }

    /// The axis of the array that each stored axis is, and the shape of the array.
    pub(super) fn place(&self, options: &ReadOptions) -> Result<(Vec<usize>, Vec<usize>)> {
        options.limits.check_sides(&self.name, &self.shape)?;
        let shape: Vec<usize> = self.shape.iter().map(|&side| side as usize).collect();
        self.meaning(options).place(&self.name, &shape)
    }

    /// All but the values.
    pub(super) fn about(&self, options: &ReadOptions) -> Image {
        Image {
            spacing: self.spacing.clone(),
            metadata: Metadata { unit: self.unit, ..Metadata::default() },
            ..Image::about(Format::Zarr, self.sample, Scaling::NONE.and(options))
        }
    }

    /// Reads all of it, or a range of each stored axis.
    pub(super) fn read(
        &self,
        region: Option<&[Range<usize>]>,
        options: &ReadOptions,
    ) -> Result<Image> {
        let damaged = |reason: String| Error::Content { file: self.name.clone(), reason };
        let whole: Vec<Range<u64>> = self.shape.iter().map(|&side| 0..side).collect();
        let ranges = match region {
            None => whole,
            Some(region) => region.iter().map(|r| r.start as u64..r.end as u64).collect(),
        };
        let fits = region.is_none()
            || ranges.len() == self.shape.len()
                && ranges
                    .iter()
                    .zip(&self.shape)
                    .all(|(r, &side)| r.start < r.end && r.end <= side);
        if !fits {
            let reason = format!("{ranges:?} is no part of the array's shape {:?}", self.shape);
            return Err(Error::argument("region", reason));
        }
        let shape: Vec<u64> = ranges.iter().map(|range| range.end - range.start).collect();
        let count = options.limits.check(&self.name, &shape)?;
        let store =
            FilesystemStore::new(&self.folder).map_err(|error| damaged(error.to_string()))?;
        let stored = zarrs::array::Array::open(Arc::new(store), "/")
            .map_err(|error| damaged(error.to_string()))?;
        let bytes: ArrayBytes = stored
            .retrieve_array_subset(&ArraySubset::new_with_ranges(&ranges))
            .map_err(|error| damaged(error.to_string()))?;
        let bytes = bytes.into_fixed().map_err(|error| damaged(error.to_string()))?;
        let order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };
        let (sample, scaling) = (self.sample, Scaling::NONE.and(options));
        let available = Some(bytes.len() as u64);
        let encoded = Encoded { sample, order, scaling, blank: None, available };
        let values = encoded.read(&self.name, &mut &bytes[..], count)?;
        let shape: Vec<usize> = shape.iter().map(|&side| side as usize).collect();
        let array = Array::from_shape_vec(IxDyn(&shape), values)
            .map_err(|error| damaged(error.to_string()))?;
        let array = self.meaning(options).arrange(&self.name, array)?;
        Ok(Image { array, ..self.about(options) })
    }
}

/// The contents of `zarr.json`.
fn description(folder: &Path, name: &str) -> Result<Value> {
    let path = folder.join("zarr.json");
    let failed = |error: std::io::Error| Error::File {
        file: name.into(),
        reason: format!("{}: {error}", path.display()),
    };
    let length = std::fs::metadata(&path).map_err(failed)?.len();
    if length > MOST_METADATA {
        let reason = format!("a description of {length} bytes; the limit is {MOST_METADATA}");
        return Err(Error::Limit { file: name.into(), reason });
    }
    let text = std::fs::read(&path).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| Error::Content {
        file: name.into(),
        reason: format!("its zarr.json cannot be understood: {error}"),
    })
}

/// The unit of the spatial axes of an OME-Zarr image, if they have one.
fn unit_of(scale: &Value) -> Option<LengthUnit> {
    let axes = scale["axes"].as_array().into_iter().flatten();
    let units = axes.filter(|axis| axis["type"] == "space").map(|axis| axis["unit"].as_str());
    let mut units = units.map(|name| name.and_then(LengthUnit::of_ome));
    let first = units.next()??;
    units.all(|unit| unit == Some(first)).then_some(first)
}

/// The spacing of the spatial axes of an OME-Zarr image, and whether it has one axis of channels
/// before them and nothing else.
fn axes_of(scale: &Value) -> (Option<Vec<f64>>, Option<bool>) {
    let kinds: Vec<&str> = scale["axes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|axis| axis["type"].as_str())
        .collect();
    let steps: Vec<f64> = scale["datasets"][0]["coordinateTransformations"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|step| step["type"] == "scale")
        .and_then(|step| step["scale"].as_array())
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    let spacing = (steps.len() == kinds.len()).then(|| {
        let spatial = steps.iter().zip(&kinds).filter(|(_, kind)| **kind == "space");
        spatial.map(|(&step, _)| step).collect::<Vec<f64>>()
    });
    let has_channel = match &kinds[..] {
        ["channel", rest @ ..] if rest.iter().all(|kind| *kind == "space") => Some(true),
        all if all.iter().all(|kind| *kind == "space") => Some(false),
        _ => None,
    };
    (spacing.filter(|spacing| !spacing.is_empty()), has_channel)
}
