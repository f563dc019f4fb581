//! TIFF files of strips that are not compressed: written at once, or by region.
//!
//! Where the strips lie does not depend on the values. To write by region, the file is made with strips of zeros, which
//! take no place on the disk until they are written to.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use ndarray::Axis;
use tiff::TiffError;
use tiff::encoder::{TiffEncoder, TiffKind, TiffValue, colortype};

use super::stack::all_blocks;
use crate::array::View;
use crate::error::Result;
use crate::io::picture::interleave;
use crate::io::plain::{Block, Plain};
use crate::io::samples::{Encoded, Order};
use crate::io::{Sample, Scaling, Target};

/// Files of more bytes than this are written as big TIFF, whose offsets have 64 bits.
const MOST_SMALL: usize = 4_000_000_000;

/// Zeros of at least so many bytes are left out of a file.
const HOLE: usize = 1 << 12;

/// (channel, depth, height, width).
type Sides = [usize; 4];

pub(in crate::io) fn write(target: &Target, path: &Path, array: &View) -> Result<()> {
    let sides = sides_of(target, array.shape())?;
    let [channels, depth, height, width] = sides;
    let standard = array.as_standard_layout();
    let values = standard.as_slice().unwrap_or_default();
    let plane = height * width;
    let strip = |page: usize, pixels: Range<usize>| -> Vec<f32> {
        let at = |channel: usize| (channel * depth + page) * plane;
        let part = |channel| &values[at(channel) + pixels.start..at(channel) + pixels.end];
        interleave(&(0..channels).map(part).collect::<Vec<_>>()).collect()
    };
    crate::io::write_seekable(path, |file| write_pages(file, sides, target.sample, strip))
}

/// A file that is written by region.
#[derive(Debug)]
pub(in crate::io) struct Placed {
    plain: Plain,
    blocks: Vec<Block>,
}

impl Placed {
    /// Makes a file of zeros.
    pub(in crate::io) fn create(target: &Target, shape: &[usize], file: &mut File) -> Result<()> {
        let sides = sides_of(target, shape)?;
        let failed = |error: std::io::Error| target.failed(error);
        let mut holes = BufWriter::with_capacity(1 << 16, Holes(file));
        let strip = |_, pixels: Range<usize>| vec![0.0; pixels.len() * sides[0]];
        write_pages(&mut holes, sides, target.sample, strip).map_err(failed)?;
        holes.flush().map_err(failed)
    }

    /// Finds the strips of a file that was made so.
    pub(in crate::io) fn open(target: &Target, shape: &[usize], file: &File) -> Result<Self> {
        let [channels, depth, height, width] = sides_of(target, shape)?;
        let length = file.metadata().map_err(|error| target.failed(error))?.len();
        let blocks = all_blocks(target.name, std::io::BufReader::new(file), length)?;
        // The encoder writes numbers as this machine has them.
        let order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };
        let (sample, scaling) = (target.sample, Scaling::NONE);
        let encoded = Encoded { sample, order, scaling, blank: None, available: None };
        let (stored, axes) = (vec![depth, height, width, channels], vec![2, 3, 4, 1]);
        let plain = Plain { encoded, stored, axes, shape: vec![1, channels, depth, height, width] };
        Ok(Self { plain, blocks })
    }

    pub(in crate::io) fn write_region(
        &self,
        file: &mut File,
        region: &[Range<usize>],
        values: &View,
    ) -> std::io::Result<()> {
        let mut region = region.to_vec();
        let mut values = values.view();
        if region.len() == 4 {
            region.insert(2, 0..1);
            values = values.insert_axis(Axis(2));
        }
        self.plain.write_region(file, &self.blocks, &region, &values)
    }
}

fn sides_of(target: &Target, shape: &[usize]) -> Result<Sides> {
    let sides = match *shape {
        [1, channels @ (1 | 3), height, width] => [channels, 1, height, width],
        [1, channels @ (1 | 3), depth, height, width] => [channels, depth, height, width],
        _ => {
            let expected = "(1, 1 or 3, height, width) and (1, 1 or 3, depth, height, width)";
            return Err(target.refuse(shape, expected));
        }
    };
    if sides[2..].iter().any(|&side| u32::try_from(side).is_err()) {
        return Err(target.refuse(shape, "sides that fit 32 bits"));
    }
    Ok(sides)
}

/// Writes the strips of all pages; `strip` gives the values of some pixels of a page.
fn write_pages(
    file: &mut (impl Write + Seek),
    sides: Sides,
    sample: Sample,
    strip: impl Fn(usize, Range<usize>) -> Vec<f32>,
) -> std::io::Result<()> {
    let bytes = sides.iter().product::<usize>() * sample.bytes() + sides[1] * 1024;
    let done = if bytes > MOST_SMALL {
        TiffEncoder::new_big(file).and_then(|encoder| write_kind(encoder, sides, sample, strip))
    } else {
        TiffEncoder::new(file).and_then(|encoder| write_kind(encoder, sides, sample, strip))
    };
    done.map_err(|error| match error {
        TiffError::IoError(error) => error,
        other => std::io::Error::other(other),
    })
}

fn write_kind<W: Write + Seek, K: TiffKind>(
    mut encoder: TiffEncoder<W, K>,
    sides: Sides,
    sample: Sample,
    strip: impl Fn(usize, Range<usize>) -> Vec<f32>,
) -> tiff::TiffResult<()> {
    for page in 0..sides[1] {
        let strip = |pixels| strip(page, pixels);
        // `as` clamps to the range of the type.
        let (u8s, u16s) = (|v: f32| v.round() as u8, |v: f32| v.round() as u16);
        match (sample, sides[0]) {
            (Sample::U8, 1) => {
                write_page::<colortype::Gray8, _, _>(&mut encoder, sides, strip, u8s)
            }
            (Sample::U8, _) => write_page::<colortype::RGB8, _, _>(&mut encoder, sides, strip, u8s),
            (Sample::U16, 1) => {
                write_page::<colortype::Gray16, _, _>(&mut encoder, sides, strip, u16s)
            }
            (Sample::U16, _) => {
                write_page::<colortype::RGB16, _, _>(&mut encoder, sides, strip, u16s)
            }
            (_, 1) => write_page::<colortype::Gray32Float, _, _>(&mut encoder, sides, strip, |v| v),
            (_, _) => write_page::<colortype::RGB32Float, _, _>(&mut encoder, sides, strip, |v| v),
        }?;
    }
    Ok(())
}

fn write_page<C: colortype::ColorType, W: Write + Seek, K: TiffKind>(
    encoder: &mut TiffEncoder<W, K>,
    [channels, _, height, width]: Sides,
    strip: impl Fn(Range<usize>) -> Vec<f32>,
    convert: impl Fn(f32) -> C::Inner,
) -> tiff::TiffResult<()>
where
    [C::Inner]: TiffValue,
{
    let (width, height) = (u32::try_from(width)?, u32::try_from(height)?);
    let mut image = encoder.new_image::<C>(width, height)?;
    let mut start = 0;
    while image.next_strip_sample_count() > 0 {
        let end = start + usize::try_from(image.next_strip_sample_count())? / channels;
        let values: Vec<C::Inner> = strip(start..end).into_iter().map(&convert).collect();
        image.write_strip(&values)?;
        start = end;
    }
    image.finish()
}

/// Passes over long runs of zeros, which the file has wherever nothing was written.
struct Holes<'a>(&'a mut File);

impl Write for Holes<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() < HOLE || bytes.iter().any(|&byte| byte != 0) {
            return self.0.write(bytes);
        }
        self.0.seek(SeekFrom::Current(bytes.len() as i64))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Seek for Holes<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}
