//! Zarr v3 arrays and OME-Zarr images, by the crate `zarrs`.
//!
//! A volume that is larger than memory is read by regions and written in shards: files that hold many
//! small chunks, so that a region costs little to read and a volume does not become a million files.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ndarray::IxDyn;
use serde_json::{Value, json};
use zarrs::array::{ArrayBuilder, ArrayBytes, ArraySubset, codec::GzipCodec, data_type};
use zarrs::filesystem::FilesystemStore;
use zarrs::group::GroupBuilder;

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
        let chunk = if array.ndim() >= 5 { 64 } else { 512 };
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

/// Writes an OME-Zarr image of one scale, at `0` of a group, compressed by gzip.
///
/// The folder appears when it is whole; one that was there stays until then.
pub fn write(path: &Path, array: &View, layout: &Layout) -> Result<()> {
    let name = path.display().to_string();
    if !(4..=5).contains(&array.ndim()) || array.is_empty() {
        return Err(Error::Shape {
            what: format!("{name}: the array"),
            expected: "Zarr takes (batch, channel, spatial…) of two or three sides".into(),
            found: array.shape().to_vec(),
        });
    }
    if layout.chunk == 0 || layout.shard == 0 || !layout.shard.is_multiple_of(layout.chunk) {
        return Err(Error::argument(
            "layout",
            format!(
                "chunks of {} in shards of {}; a multiple is needed",
                layout.chunk, layout.shard
            ),
        ));
    }
    let failed = |reason: String| Error::File {
        file: name.clone(),
        reason: format!("cannot write it: {reason}"),
    };
    let folder = super::atomic::folder_of(path);
    let temporary = tempfile::Builder::new()
        .prefix(".haloscope-")
        .tempdir_in(&folder)
        .map_err(|error| failed(error.to_string()))?;
    fill(&temporary.path().join("new"), array, layout)
        .map_err(|error| failed(error.to_string()))?;
    let old = temporary.path().join("old");
    let exists = path.exists();
    if exists && !path.join("zarr.json").exists() {
        return Err(failed("something that is no Zarr image has this name".into()));
    }
    if exists {
        std::fs::rename(path, &old).map_err(|error| failed(error.to_string()))?;
    }
    if let Err(error) = std::fs::rename(temporary.path().join("new"), path) {
        if exists {
            // If this fails, too, the old image is lost with the temporary folder: keep both.
            if std::fs::rename(&old, path).is_err() {
                let _ = temporary.keep();
            }
        }
        return Err(failed(error.to_string()));
    }
    Ok(())
}

type Failure = Box<dyn std::error::Error>;

fn fill(folder: &Path, array: &View, layout: &Layout) -> std::result::Result<(), Failure> {
    std::fs::create_dir(folder)?;
    let store = Arc::new(FilesystemStore::new(folder)?);
    let names = &["b", "c", "z", "y", "x"][..];
    let names: Vec<&str> = match array.ndim() {
        5 => names.to_vec(),
        _ => [&names[..2], &names[3..]].concat(),
    };
    let spatial = array.ndim() - 2;
    let spacing = layout.spacing.clone().unwrap_or_else(|| vec![1.0; spatial]);
    if spacing.len() != spatial {
        return Err(format!("{} spacings for {spatial} spatial axes", spacing.len()).into());
    }
    let kind = |name: &str| match name {
        "b" => json!({"name": "b", "type": "batch"}),
        "c" => json!({"name": "c", "type": "channel"}),
        axis => json!({"name": axis, "type": "space", "unit": layout.unit.ome()}),
    };
    let scale: Vec<f64> = [1.0, 1.0].into_iter().chain(spacing).collect();
    let mut group = GroupBuilder::new().build(store.clone(), "/")?;
    group.attributes_mut().insert(
        "ome".into(),
        json!({"version": "0.5", "multiscales": [{
            "name": "image",
            "axes": names.iter().map(|name| kind(name)).collect::<Vec<_>>(),
            "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": scale}]}],
        }]}),
    );
    group.store_metadata()?;

    let shape: Vec<u64> = array.shape().iter().map(|&side| side as u64).collect();
    // A shard is no larger than the image needs, in whole chunks.
    let sides = |most: usize, whole: usize| -> Vec<u64> {
        let spatial = array.shape()[2..].iter().map(|&side| most.min(side.next_multiple_of(whole)));
        [1, 1].into_iter().chain(spatial).map(|side| side as u64).collect()
    };
    let (shard, chunk) = (sides(layout.shard, layout.chunk), sides(layout.chunk, 1));
    let chunk: Vec<u64> = chunk
        .iter()
        .zip(&shard)
        .map(|(&chunk, &shard)| if shard.is_multiple_of(chunk) { chunk } else { shard })
        .collect();
    let stored = ArrayBuilder::new(shape, shard.clone(), data_type::float32(), 0.0_f32)
        .subchunk_shape(chunk)
        .bytes_to_bytes_codecs(vec![Arc::new(GzipCodec::new(4)?)])
        .dimension_names(names.into())
        .build(store, "/0")?;
    stored.store_metadata()?;
    for at in
        ndarray::indices(stored.chunk_grid_shape().iter().map(|&n| n as usize).collect::<Vec<_>>())
    {
        let begin: Vec<usize> =
            (0..array.ndim()).map(|axis| at[axis] * shard[axis] as usize).collect();
        let mut part = array.view();
        for (axis, &begin) in begin.iter().enumerate() {
            let end = (begin + shard[axis] as usize).min(array.shape()[axis]);
            part.slice_axis_inplace(ndarray::Axis(axis), (begin..end).into());
        }
        let ranges: Vec<Range<u64>> = begin
            .iter()
            .zip(part.shape())
            .map(|(&begin, &side)| begin as u64..(begin + side) as u64)
            .collect();
        let values: Vec<f32> = part.iter().copied().collect();
        stored.store_array_subset(&ArraySubset::new_with_ranges(&ranges), &values[..])?;
    }
    Ok(())
}

/// An array that is in a folder.
struct Stored {
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
    fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
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

    fn read(&self, region: Option<&[Range<usize>]>, options: &ReadOptions) -> Result<Image> {
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
        let axes = match (options.axes, self.has_channel, array.ndim()) {
            (Axes::Automatic, Some(true), 3..=4) => Axes::ChannelFirst,
            (Axes::Automatic, Some(false), 2..=3) => Axes::Spatial,
            (axes, ..) => axes,
        };
        let array = axes.arrange(&self.name, array)?;
        Ok(Image {
            spacing: self.spacing.clone(),
            metadata: Metadata { unit: self.unit, ..Metadata::default() },
            ..Image::new(array, Format::Zarr, sample, scaling)
        })
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
