//! OME-Zarr images of one scale, written shard by shard and, within a shard, chunk by chunk.
//!
//! A shard is a file: its chunks, each compressed by gzip, in the order of their places, and at the end where each of them
//! is. A chunk of zeros is left out, and so is a shard of nothing else. Shards do not depend on each other, so that several
//! ranks can write them, and none needs more of the image than a chunk.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use zarrs::array::{ArrayBuilder, codec::GzipCodec, data_type};
use zarrs::filesystem::FilesystemStore;
use zarrs::group::GroupBuilder;

use super::Layout;
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::region::{self, Region};

/// How hard gzip tries.
const LEVEL: u32 = 4;

/// Writes an OME-Zarr image of one scale, at `0` of a group, compressed by gzip.
///
/// The folder appears when it is whole; one that was there stays until then.
pub fn write(path: &Path, array: &View, layout: &Layout) -> Result<()> {
    let name = path.display().to_string();
    let grid = Grid::new(&name, array.shape(), layout)?;
    let folder = Folder::create(path, &grid, layout)?;
    for number in 0..grid.shards() {
        let mut shard = Shard::new(folder.path(), &grid, number);
        let chunks = grid.chunks(number);
        let write = || -> std::io::Result<()> {
            for chunk in chunks {
                let values = region::cut(array, &chunk.region);
                shard.add(chunk.place, &values.as_standard_layout().into_owned())?;
            }
            shard.finish()
        };
        write().map_err(|error| folder.failed(&error))?;
    }
    folder.finish()
}

/// How an array is cut into shards, and these into chunks.
#[derive(Clone, Debug)]
pub(in crate::io) struct Grid {
    shape: Vec<usize>,
    shard: Vec<usize>,
    chunk: Vec<usize>,
}

/// A chunk of a shard that has values.
#[derive(Clone, Debug)]
pub(in crate::io) struct Chunk {
    /// Its number within the shard.
    pub(in crate::io) place: usize,
    /// Its values, without what reaches beyond the array.
    pub(in crate::io) region: Region,
}

impl Grid {
    pub(in crate::io) fn new(name: &str, shape: &[usize], layout: &Layout) -> Result<Self> {
        if !(4..=5).contains(&shape.len()) || shape.contains(&0) {
            return Err(Error::Shape {
                what: format!("{name}: the array"),
                expected: "Zarr takes (batch, channel, spatial…) of two or three sides".into(),
                found: shape.to_vec(),
            });
        }
        let Layout { chunk, shard, .. } = *layout;
        if chunk == 0 || shard == 0 || !shard.is_multiple_of(chunk) {
            let reason = format!("chunks of {chunk} in shards of {shard}; a multiple is needed");
            return Err(Error::argument("layout", reason));
        }
        // A shard is no larger than the image needs, in whole chunks.
        let sides = |most: usize, whole: usize| -> Vec<usize> {
            let spatial = shape[2..].iter().map(|&side| most.min(side.next_multiple_of(whole)));
            [1, 1].into_iter().chain(spatial).collect()
        };
        let (shard, chunk) = (sides(shard, chunk), sides(chunk, 1));
        let chunk = chunk.iter().zip(&shard);
        let chunk = chunk
            .map(|(&chunk, &shard)| if shard.is_multiple_of(chunk) { chunk } else { shard })
            .collect();
        Ok(Self { shape: shape.to_vec(), shard, chunk })
    }

    /// How many shards there are.
    pub(in crate::io) fn shards(&self) -> usize {
        counts(&self.shape, &self.shard).iter().product()
    }

    /// The chunks of a shard that have values, in order.
    pub(in crate::io) fn chunks(&self, shard: usize) -> Vec<Chunk> {
        let origin = place_of(shard, &counts(&self.shape, &self.shard));
        let inside = self.chunks_per_shard();
        let chunk = |place| {
            let at = place_of(place, &inside);
            let range = |axis: usize| {
                let start = origin[axis] * self.shard[axis] + at[axis] * self.chunk[axis];
                start..(start + self.chunk[axis]).min(self.shape[axis])
            };
            let region: Region = (0..self.shape.len()).map(range).collect();
            (!region.iter().any(Range::is_empty)).then_some(Chunk { place, region })
        };
        (0..inside.iter().product()).filter_map(chunk).collect()
    }

    fn chunks_per_shard(&self) -> Vec<usize> {
        counts(&self.shard, &self.chunk)
    }
}

fn counts(sides: &[usize], of: &[usize]) -> Vec<usize> {
    sides.iter().zip(of).map(|(side, of)| side.div_ceil(*of)).collect()
}

/// Where a number is in a grid of so many along each axis.
fn place_of(mut number: usize, counts: &[usize]) -> Vec<usize> {
    let mut place = vec![0; counts.len()];
    for (at, count) in place.iter_mut().zip(counts).rev() {
        *at = number % count;
        number /= count;
    }
    place
}

/// A folder that has another name until it is whole.
#[derive(Debug)]
pub(in crate::io) struct Folder {
    name: String,
    target: PathBuf,
    temporary: tempfile::TempDir,
    new: PathBuf,
}

impl Folder {
    /// Makes the folder, with the descriptions of the image and its array.
    pub(in crate::io) fn create(path: &Path, grid: &Grid, layout: &Layout) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |error: &dyn std::fmt::Display| failed(&name, error);
        let temporary = tempfile::Builder::new()
            .prefix(".haloscope-")
            .tempdir_in(crate::io::atomic::folder_of(path))
            .map_err(|error| failed(&error))?;
        let new = temporary.path().join("new");
        describe(&new, grid, layout).map_err(|error| failed(&error))?;
        Ok(Self { name, target: path.to_owned(), temporary, new })
    }

    /// Where shards are written.
    pub(in crate::io) fn path(&self) -> &Path {
        &self.new
    }

    pub(in crate::io) fn failed(&self, error: &dyn std::fmt::Display) -> Error {
        failed(&self.name, error)
    }

    /// Gives the folder its name.
    pub(in crate::io) fn finish(self) -> Result<()> {
        let Self { name, target, temporary, new } = self;
        let failed = |error: &dyn std::fmt::Display| failed(&name, error);
        let old = temporary.path().join("old");
        let exists = target.exists();
        if exists && !target.join("zarr.json").exists() {
            return Err(failed(&"something that is no Zarr image has this name"));
        }
        if exists {
            std::fs::rename(&target, &old).map_err(|error| failed(&error))?;
        }
        if let Err(error) = std::fs::rename(&new, &target) {
            // If this fails, too, the old image is lost with the temporary folder: keep both.
            if exists && std::fs::rename(&old, &target).is_err() {
                let _ = temporary.keep();
            }
            return Err(failed(&error));
        }
        Ok(())
    }
}

fn failed(name: &str, error: &dyn std::fmt::Display) -> Error {
    Error::File { file: name.into(), reason: format!("cannot write it: {error}") }
}

type Failure = Box<dyn std::error::Error>;

fn describe(folder: &Path, grid: &Grid, layout: &Layout) -> std::result::Result<(), Failure> {
    std::fs::create_dir(folder)?;
    let store = Arc::new(FilesystemStore::new(folder)?);
    let names = &["b", "c", "z", "y", "x"][..];
    let names: Vec<&str> = match grid.shape.len() {
        5 => names.to_vec(),
        _ => [&names[..2], &names[3..]].concat(),
    };
    let spatial = grid.shape.len() - 2;
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
    let sides = |sides: &[usize]| -> Vec<u64> { sides.iter().map(|&side| side as u64).collect() };
    ArrayBuilder::new(sides(&grid.shape), sides(&grid.shard), data_type::float32(), 0.0_f32)
        .subchunk_shape(sides(&grid.chunk))
        .bytes_to_bytes_codecs(vec![Arc::new(GzipCodec::new(LEVEL)?)])
        .dimension_names(names.into())
        .build(store, "/0")?
        .store_metadata()?;
    Ok(())
}

/// A shard that is being written.
#[derive(Debug)]
pub(in crate::io) struct Shard {
    path: PathBuf,
    chunk: Vec<usize>,
    /// There is none until there is a chunk.
    file: Option<BufWriter<File>>,
    offset: u64,
    /// Offset and length of each chunk; the largest numbers for those that are left out.
    index: Vec<u64>,
}

impl Shard {
    /// A shard in a folder that [`Folder`] made.
    pub(in crate::io) fn new(folder: &Path, grid: &Grid, number: usize) -> Self {
        let place = place_of(number, &counts(&grid.shape, &grid.shard));
        let mut path = folder.join("0").join("c");
        path.extend(place.iter().map(ToString::to_string));
        let chunks: usize = grid.chunks_per_shard().iter().product();
        let (chunk, index) = (grid.chunk.clone(), vec![u64::MAX; 2 * chunks]);
        Self { path, chunk, file: None, offset: 0, index }
    }

    /// Adds a chunk behind those that were added before; what it lacks of a whole one is filled up with zeros.
    pub(in crate::io) fn add(&mut self, place: usize, values: &Array) -> std::io::Result<()> {
        if values.iter().all(|value| value.to_bits() == 0) {
            return Ok(());
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        let covered = region::whole(values.shape());
        let whole = region::whole(&self.chunk);
        let mut row = Vec::new();
        for line in region::bands(&self.chunk, self.chunk[self.chunk.len() - 1]) {
            row.clear();
            row.resize(4 * region::volume(&line), 0);
            if let Some(common) = region::overlap(&line, &covered) {
                let values = region::cut(values, &region::within(&common, &whole));
                for (bytes, value) in row.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                    *bytes = value.to_le_bytes();
                }
            }
            encoder.write_all(&row)?;
        }
        let bytes = encoder.finish()?;
        let file = if let Some(file) = &mut self.file {
            file
        } else {
            std::fs::create_dir_all(self.path.parent().unwrap_or(&self.path))?;
            self.file.insert(BufWriter::new(File::create(&self.path)?))
        };
        file.write_all(&bytes)?;
        self.index[2 * place] = self.offset;
        self.index[2 * place + 1] = bytes.len() as u64;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes where the chunks are, and brings the file to the disk.
    pub(in crate::io) fn finish(self) -> std::io::Result<()> {
        let Some(mut file) = self.file else {
            return Ok(());
        };
        let index: Vec<u8> = self.index.iter().flat_map(|number| number.to_le_bytes()).collect();
        file.write_all(&index)?;
        file.write_all(&crc32c(&index).to_le_bytes())?;
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    }
}

/// Castagnoli's CRC-32, of the index that ends a shard.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_the_published_one() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }
}
