//! Files of images that are spread over ranks, none of which holds the whole.
//!
//! Every rank names the regions of all ranks. Files with random access are read and written by every rank for itself, so all
//! ranks need to see the same file system. Streams go through rank 0, band by band, and a band is the most that it holds of
//! what others have, except of JPEG and interlaced PNG, whose decoders hold all pixels. The written file has the same bytes for any number of ranks.

use std::ops::Range;
use std::path::Path;

use haloscope_comm::{Collectives, Context};

use super::reader::{Access, Reader};
use super::writer::{self, Writer};
use super::{Format, ReadOptions, WriteOptions};
use crate::array::{Array, View};
use crate::distribute::{agree, agree_on_root};
use crate::error::{Error, Result};
use crate::region::{self, Region};

/// Rank 0's word before each band.
const MORE: [u8; 1] = [1];
const FAILED: [u8; 1] = [0];

/// Reads this rank's region of a file; all ranks call it, with the regions of all ranks. `regions[rank]` has a range for each
/// spatial axis; a rank that has no region, or an empty list, gets `None`. If one rank fails, all do.
///
/// ```
/// use haloscope::Error;
/// use haloscope::io::{self, ReadOptions, WriteOptions};
/// use haloscope_comm::Context;
/// use ndarray::ArrayD;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("picture.png");
/// let picture = ArrayD::from_elem(vec![1, 3, 40, 30], 0.25);
/// io::write(&path, &picture, &WriteOptions::default())?;
///
/// let shapes = Context::threads(3, move |ctx| {
///     let regions = [vec![0..25, 0..30], vec![25..40, 0..30]];
///     let (_, part) = io::read_sharded(ctx, &path, &ReadOptions::default(), &regions)?;
///     Ok::<_, Error>(part.map(|part| part.shape().to_vec()))
/// })?;
/// assert_eq!(shapes, [Some(vec![1, 3, 25, 30]), Some(vec![1, 3, 15, 30]), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_sharded(
    ctx: &Context,
    path: impl AsRef<Path>,
    options: &ReadOptions,
    regions: &[Vec<Range<usize>>],
) -> Result<(Reader, Option<Array>)> {
    let reader = Reader::open_on_all(ctx, path, options)?;
    let part = reader.read_sharded(ctx, regions)?;
    Ok((reader, part))
}

impl Reader {
    /// [`open`](Self::open) on all ranks; if one fails, all do.
    pub fn open_on_all(
        ctx: &Context,
        path: impl AsRef<Path>,
        options: &ReadOptions,
    ) -> Result<Self> {
        agree(ctx, Self::open(path, options))
    }

    /// Reads this rank's region, as [`read_sharded`] does.
    pub fn read_sharded(
        &self,
        ctx: &Context,
        regions: &[Vec<Range<usize>>],
    ) -> Result<Option<Array>> {
        let regions = agree(ctx, complete(ctx, self.shape(), regions))?;
        if self.access() == Access::Stream && ctx.size() > 1 {
            return self.scatter(ctx, &regions);
        }
        let mine = regions[ctx.rank()].as_ref();
        agree(ctx, mine.map(|region| self.read_region(region)).transpose())
    }

    /// Rank 0 unpacks the file and sends each band to those who have a part of it.
    fn scatter(&self, ctx: &Context, regions: &[Option<Region>]) -> Result<Option<Array>> {
        let mine = regions[ctx.rank()].as_ref();
        let mut array = mine.map(|region| Array::zeros(region::sides(region)));
        let bands = self.bands();
        let mut put = |values: &View, covered: &[Range<usize>]| {
            if let Some((array, region)) = array.as_mut().zip(mine) {
                region::copy(values, covered, array, region);
            }
        };
        let outcome = if ctx.is_root() {
            let mut sent = 0;
            let outcome = self.stream(&mut |band, values| {
                ctx.comm().broadcast(0, &mut MORE.clone())?;
                send_band(ctx, regions, band, &values)?;
                put(&values, band);
                sent += 1;
                Ok(true)
            });
            if outcome.is_err() && sent < bands.len() && !is_of_ranks(&outcome) {
                ctx.comm().broadcast(0, &mut FAILED.clone())?;
            }
            outcome
        } else {
            for band in &bands {
                let mut word = FAILED;
                ctx.comm().broadcast(0, &mut word)?;
                if word == FAILED {
                    break;
                }
                let common = mine.and_then(|region| region::overlap(region, band));
                let mut values = common.as_ref().map(|common| Array::zeros(region::sides(common)));
                let receives = values.as_mut().and_then(|values| values.as_slice_mut());
                let mut receives: Vec<_> = receives.map(|values| (0, values)).into_iter().collect();
                ctx.comm().exchange::<f32>(&[], &mut receives)?;
                if let Some((values, common)) = values.zip(common) {
                    put(&values, &common);
                }
            }
            Ok(())
        };
        agree(ctx, outcome)?;
        Ok(array)
    }
}

/// Sends each other rank what it has of a band.
fn send_band(
    ctx: &Context,
    regions: &[Option<Region>],
    band: &[Range<usize>],
    values: &View,
) -> Result<()> {
    let part = |region: &Option<Region>| {
        let common = region::overlap(region.as_ref()?, band)?;
        Some(region::cut(values, &region::within(&common, band)).iter().copied().collect())
    };
    let parts: Vec<(usize, Vec<f32>)> = (regions.iter().enumerate().skip(1))
        .filter_map(|(rank, region)| Some((rank, part(region)?)))
        .collect();
    let sends: Vec<(usize, &[f32])> = parts.iter().map(|(rank, part)| (*rank, &part[..])).collect();
    Ok(ctx.comm().exchange(&sends, &mut [])?)
}

/// Writes an image of shape `whole` that is spread over ranks; all ranks call it, with the regions of all ranks and the
/// values of their own. The regions cover the image once. If one rank fails, all do, and no file has the name.
///
/// ```
/// use haloscope::Error;
/// use haloscope::io::{self, ReadOptions, WriteOptions};
/// use haloscope_comm::Context;
/// use ndarray::ArrayD;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("result.npy");
/// let file = path.clone();
/// Context::threads(2, move |ctx| {
///     let regions = [vec![0..25, 0..30], vec![25..40, 0..30]];
///     let rows = regions[ctx.rank()][0].len();
///     let part = ArrayD::from_elem(vec![1, 3, rows, 30], ctx.rank() as f32);
///     let options = WriteOptions::default();
///     io::write_sharded(ctx, &file, &[1, 3, 40, 30], &options, &regions, Some(&part))?;
///     Ok::<_, Error>(())
/// })?;
/// assert_eq!(io::read(&path, &ReadOptions::default())?.array[[0, 2, 25, 0]], 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_sharded(
    ctx: &Context,
    path: impl AsRef<Path>,
    whole: &[usize],
    options: &WriteOptions,
    regions: &[Vec<Range<usize>>],
    part: Option<&View>,
) -> Result<()> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let checked = super::with_target(path, whole, options, |_, format| {
        let regions = complete(ctx, whole, regions)?;
        region::check_cover(whole, &regions.iter().flatten().cloned().collect::<Vec<_>>())?;
        match (&regions[ctx.rank()], part) {
            (Some(region), Some(part)) => writer::check_part(&name, region, part)?,
            (None, _) => (),
            (Some(region), None) => {
                let reason = format!("{region:?} is this rank's, and no values are given");
                return Err(Error::argument("part", reason));
            }
        }
        Ok((regions, format))
    });
    let (regions, format) = agree(ctx, checked)?;
    let parts = Parts { ctx, regions: &regions, mine: part };
    match format {
        format if writer::is_written_by_region(format) => {
            write_placed(path, whole, options, &parts)
        }
        Format::Png | Format::Jpeg | Format::Npz | Format::NiftiGz => {
            write_stream(path, whole, options, &parts)
        }
        #[cfg(feature = "zarr")]
        Format::Zarr => write_zarr(path, whole, options, &parts),
        _ => Err(Error::Unsupported {
            file: name,
            reason: format!(
                "{} files are not written by several ranks; .zarr, .npy, .nii, .fits, .tif, .nii.gz, .npz, .png and .jpg \
                 are",
                format.name()
            ),
        }),
    }
}

/// An image that is spread over ranks.
struct Parts<'a> {
    ctx: &'a Context,
    regions: &'a [Option<Region>],
    mine: Option<&'a View>,
}

impl Parts<'_> {
    fn region(&self) -> Option<&Region> {
        self.regions[self.ctx.rank()].as_ref()
    }

    /// Brings to each rank the box that it wants; all ranks call it, with what all want.
    fn gather(&self, wanted: &[Option<Region>]) -> Result<Option<Array>> {
        let me = self.ctx.rank();
        let common = |region: &Option<Region>, wanted: &Option<Region>| {
            region::overlap(region.as_ref()?, wanted.as_ref()?)
        };
        let mut sent: Vec<(usize, Vec<f32>)> = Vec::new();
        if let Some((values, region)) = self.mine.zip(self.region()) {
            for (rank, wanted) in wanted.iter().enumerate().filter(|(rank, _)| *rank != me) {
                if let Some(common) = common(&self.regions[me], wanted) {
                    let part = region::cut(values, &region::within(&common, region));
                    sent.push((rank, part.iter().copied().collect()));
                }
            }
        }
        let expected = self.regions.iter().enumerate().filter(|(rank, _)| *rank != me);
        let mut received: Vec<(usize, Region, Array)> = expected
            .filter_map(|(rank, region)| {
                let common = common(region, &wanted[me])?;
                let values = Array::zeros(region::sides(&common));
                Some((rank, common, values))
            })
            .collect();
        let sends: Vec<(usize, &[f32])> =
            sent.iter().map(|(rank, values)| (*rank, &values[..])).collect();
        let mut receives: Vec<(usize, &mut [f32])> = received
            .iter_mut()
            .filter_map(|(rank, _, values)| Some((*rank, values.as_slice_mut()?)))
            .collect();
        self.ctx.comm().exchange(&sends, &mut receives)?;
        let Some(wanted) = &wanted[me] else {
            return Ok(None);
        };
        let mut array = Array::zeros(region::sides(wanted));
        if let Some((values, region)) = self.mine.zip(self.region()) {
            region::copy(values, region, &mut array, wanted);
        }
        for (_, covered, values) in &received {
            region::copy(values, covered, &mut array, wanted);
        }
        Ok(Some(array))
    }
}

/// Each rank writes its values where they belong.
fn write_placed(path: &Path, whole: &[usize], options: &WriteOptions, parts: &Parts) -> Result<()> {
    let ctx = parts.ctx;
    let name = path.display().to_string();
    let made = agree_on_root(ctx, || {
        let made = Writer::create(path, whole, options)?;
        let unfinished = writer::path_text(&name, made.unfinished().unwrap_or(path))?;
        Ok((made, unfinished))
    })?;
    let (made, unfinished) = made.map_or((None, String::new()), |(made, path)| (Some(made), path));
    let mut unfinished = unfinished.into_bytes();
    ctx.comm().broadcast_list(0, &mut unfinished)?;
    let write = || -> Result<Option<Writer>> {
        let mut writer = match made {
            Some(writer) => writer,
            None if parts.mine.is_none() => return Ok(None),
            None => Writer::join(path, whole, options, &writer::path_of(&unfinished))?,
        };
        if let Some((values, region)) = parts.mine.zip(parts.region()) {
            writer.write_region(region, values)?;
        }
        writer.sync()?;
        Ok(Some(writer))
    };
    let writer = agree(ctx, write())?;
    agree_on_root(ctx, || writer.map_or(Ok(()), Writer::finish)).map(drop)
}

/// Rank 0 writes the bands that it gathers.
fn write_stream(path: &Path, whole: &[usize], options: &WriteOptions, parts: &Parts) -> Result<()> {
    let ctx = parts.ctx;
    let to_root = |band: &[Range<usize>]| -> Vec<Option<Region>> {
        (0..ctx.size()).map(|rank| (rank == 0).then(|| band.to_vec())).collect()
    };
    let outcome = super::with_target(path, whole, options, |target, format| {
        let bands = writer::stream_bands(format, whole);
        if !ctx.is_root() {
            for band in &bands {
                let mut word = FAILED;
                ctx.comm().broadcast(0, &mut word)?;
                if word == FAILED {
                    break;
                }
                parts.gather(&to_root(band))?;
            }
            return Ok(());
        }
        let mut taken = 0;
        let outcome = writer::write_stream(target, format, whole, path, &mut |band| {
            ctx.comm().broadcast(0, &mut MORE.clone())?;
            taken += 1;
            Ok(parts.gather(&to_root(band))?.unwrap_or_default())
        });
        if taken < bands.len() && !is_of_ranks(&outcome) {
            ctx.comm().broadcast(0, &mut FAILED.clone())?;
        }
        outcome
    });
    agree(ctx, outcome)
}

/// Shards are dealt to ranks, which gather their chunks one by one.
#[cfg(feature = "zarr")]
fn write_zarr(path: &Path, whole: &[usize], options: &WriteOptions, parts: &Parts) -> Result<()> {
    use super::zarr::{Folder, Grid, Layout, Shard};

    let (ctx, name) = (parts.ctx, path.display().to_string());
    let layout = Layout::of_axes(whole.len(), options);
    let grid = agree(ctx, Grid::new(&name, whole, &layout))?;
    let folder = agree_on_root(ctx, || {
        let folder = Folder::create(path, &grid, &layout)?;
        Ok((writer::path_text(&name, folder.path())?, folder))
    })?;
    let (inside, folder) = folder.map_or((String::new(), None), |(path, made)| (path, Some(made)));
    let mut inside = inside.into_bytes();
    ctx.comm().broadcast_list(0, &mut inside)?;
    let inside = writer::path_of(&inside);

    let chunks_of = |rank: usize| {
        let shards = (rank..grid.shards()).step_by(ctx.size());
        shards.flat_map(|shard| grid.chunks(shard).into_iter().map(move |chunk| (shard, chunk)))
    };
    let mut all: Vec<_> = (0..ctx.size()).map(chunks_of).collect();
    let mut outcome: std::io::Result<()> = Ok(());
    let mut open: Option<(usize, Shard)> = None;
    loop {
        let step: Vec<_> = all.iter_mut().map(Iterator::next).collect();
        if step.iter().all(Option::is_none) {
            break;
        }
        let wanted: Vec<Option<Region>> =
            step.iter().map(|step| step.as_ref().map(|(_, chunk)| chunk.region.clone())).collect();
        let values = parts.gather(&wanted)?;
        let Some(((number, chunk), values)) = step[ctx.rank()].as_ref().zip(values) else {
            continue;
        };
        // After an error the others are still given what they want.
        if outcome.is_ok() {
            outcome = (|| {
                if open.as_ref().is_none_or(|(shard, _)| shard != number) {
                    let next = Shard::new(&inside, &grid, *number);
                    if let Some((_, done)) = open.replace((*number, next)) {
                        done.finish()?;
                    }
                }
                open.as_mut().map_or(Ok(()), |(_, shard)| shard.add(chunk.place, &values))
            })();
        }
    }
    let outcome = outcome.and_then(|()| open.map_or(Ok(()), |(_, shard)| shard.finish()));
    let outcome = outcome.map_err(|error| Error::File {
        file: name.clone(),
        reason: format!("cannot write it: {error}"),
    });
    agree(ctx, outcome)?;
    agree_on_root(ctx, || folder.map_or(Ok(()), Folder::finish)).map(drop)
}

/// The boxes of all ranks; none for those that have no region.
fn complete(
    ctx: &Context,
    shape: &[usize],
    regions: &[Vec<Range<usize>>],
) -> Result<Vec<Option<Region>>> {
    if regions.len() > ctx.size() {
        let reason = format!("{} regions for {} ranks", regions.len(), ctx.size());
        return Err(Error::argument("regions", reason));
    }
    let region = |rank: usize| match regions.get(rank) {
        Some(region) if !region.is_empty() && !region.iter().any(Range::is_empty) => {
            region::complete(shape, region).map(Some)
        }
        _ => Ok(None),
    };
    (0..ctx.size()).map(region).collect()
}

/// Whether it is known to all ranks already.
fn is_of_ranks<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Ranks(_)))
}
