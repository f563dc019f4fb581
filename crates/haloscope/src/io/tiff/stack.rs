//! TIFF by region: of each page, only the strips or tiles that are needed.
//!
//! Those that are not compressed are read by their offsets, so that a page in one strip costs no more than the rows that
//! are wanted. Of the others, a strip or tile is unpacked as a whole.

use std::io::{Read, Seek};
use std::ops::Range;

use ndarray::Axis;
use tiff::TiffError;
use tiff::decoder::{ChunkType, Decoder};
use tiff::tags::{ByteOrder, Tag};

use super::{PageLayout, Pages, convert, refused, unsupported};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::io::picture::{drop_opaque, stored_region, upright, upright_sides};
use crate::io::plain::{Block, Plain};
use crate::io::samples::{Encoded, Order};
use crate::io::{Format, Image, ReadOptions, Sample, Scaling, Source};
use crate::region::{self, Region};

/// The pages of a file.
#[derive(Clone, Debug)]
pub(in crate::io) struct Stack {
    /// All pages with transparency, as they are stored: (1, value, page, height, width).
    plain: Plain,
    channels: usize,
    orientation: u32,
    /// Whether all values can be read by their offsets.
    pub(in crate::io) is_plain: bool,
}

impl Stack {
    /// Checks all pages.
    pub(in crate::io) fn open(source: &mut Source) -> Result<(Self, Image)> {
        let (name, options, length) = (source.name, source.options, source.length);
        let refused = |error: TiffError| refused(name, &error);
        let mut decoder = Decoder::new(&mut *source.reader).map_err(refused)?;
        let mut pages = Pages::default();
        let scaling = Scaling::NONE.and(options);
        let mut is_plain = true;
        loop {
            let mut page;
            (decoder, page) = pages.begin(decoder, name, length, options)?;
            let sample = sample_of(&mut decoder, name, page.bits)?;
            pages.store(name, sample, scaling)?;
            page.is_planar = is_planar(&mut decoder, name, page)?;
            is_plain &= has_offsets(&mut decoder, name, page)?;
            if decoder.more_images() {
                decoder.next_image().map_err(refused)?;
                continue;
            }
            let order = match decoder.byte_order() {
                ByteOrder::LittleEndian => Order::Little,
                ByteOrder::BigEndian => Order::Big,
            };
            let encoded = Encoded { sample, order, scaling, blank: None, available: None };
            let ([_, height, width], count, stored) = (pages.shape, pages.count, page.stored);
            let shape = vec![1, stored, count, height, width];
            let (stored, axes) = if page.is_planar {
                (vec![count, stored, height, width], vec![2, 1, 3, 4])
            } else {
                (vec![count, height, width, stored], vec![2, 3, 4, 1])
            };
            let plain = Plain { encoded, stored, axes, shape };
            let (channels, orientation) = (page.channels, pages.orientation);
            let about = Image::about(Format::Tiff, sample, scaling);
            return Ok((Self { plain, channels, orientation, is_plain }, about));
        }
    }

    /// (1, channel, height, width), or (1, channel, depth, height, width) of several pages.
    pub(in crate::io) fn shape(&self) -> Vec<usize> {
        let [_, _, count, height, width] = self.plain.shape[..] else {
            return Vec::new();
        };
        let [height, width] = upright_sides([height, width], self.orientation);
        match count {
            1 => vec![1, self.channels, height, width],
            _ => vec![1, self.channels, count, height, width],
        }
    }

    /// Reads a box of an array of that shape.
    pub(in crate::io) fn read_region(
        &self,
        source: &mut Source,
        region: &[Range<usize>],
    ) -> Result<Array> {
        let (name, options, length) = (source.name, source.options, source.length);
        let refused = |error: TiffError| refused(name, &error);
        let wanted = self.stored_region(region);
        let mut array = Array::zeros(region::sides(&wanted));
        let mut decoder = Decoder::new(&mut *source.reader).map_err(refused)?;
        let mut pages = Pages::default();
        for number in 0..wanted[2].end {
            if number > 0 {
                decoder.next_image().map_err(refused)?;
            }
            let mut page;
            (decoder, page) = pages.begin(decoder, name, length, options)?;
            page.is_planar = is_planar(&mut decoder, name, page)?;
            let stored = self.plain.stored.len() == 4 && pages.count <= self.plain.shape[2];
            if !stored {
                return Err(unsupported(name, "it changed while it was read".into()));
            }
            if !wanted[2].contains(&number) {
                continue;
            }
            let mut region = wanted.clone();
            region[2] = number..number + 1;
            let part = if has_offsets(&mut decoder, name, page)? {
                let blocks = blocks(&mut decoder, name, page, number)?;
                self.plain.read_region(name, decoder.inner(), &blocks, &region)?
            } else {
                self.decode(&mut decoder, name, (page, number), &region)?
            };
            region::copy(&part, &region, &mut array, &wanted);
        }
        let Encoded { sample, scaling, .. } = self.plain.encoded;
        let opaque = (sample.white().unwrap_or(1.0) * scaling.slope) as f32;
        let mut array = drop_opaque(name, array, self.channels, opaque)?;
        if region.len() == 4 {
            array = array.index_axis_move(Axis(2), 0);
        }
        Ok(upright(array, self.orientation))
    }

    /// Unpacks the strips or tiles of a page that a region needs.
    fn decode<R: Read + Seek>(
        &self,
        decoder: &mut Decoder<R>,
        name: &str,
        (page, number): (PageLayout, usize),
        region: &[Range<usize>],
    ) -> Result<Array> {
        let mut array = Array::zeros(region::sides(region));
        let wanted = self.plain.to_stored(region);
        for (index, chunk) in chunks(decoder, name, page, number)?.iter().enumerate() {
            let inside = region::overlap(chunk, &region::whole(&self.plain.stored));
            let Some(inside) = inside.filter(|chunk| region::overlap(chunk, &wanted).is_some())
            else {
                continue;
            };
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let result = decoder.read_chunk(index).map_err(|error| refused(name, &error))?;
            let scaling = self.plain.encoded.scaling;
            let (values, _) = convert(name, result, region::volume(&inside), scaling)?;
            let part = self.plain.arrange(name, values, &region::sides(&inside))?;
            region::copy(&part, &self.plain.of_stored(&inside), &mut array, region);
        }
        Ok(array)
    }

    /// A box of the upright channels as one of the stored pages with transparency.
    fn stored_region(&self, region: &[Range<usize>]) -> Region {
        let sides = [self.plain.shape[3], self.plain.shape[4]];
        let axes = region.len();
        let [rows, columns] = [region[axes - 2].clone(), region[axes - 1].clone()];
        let [rows, columns] = stored_region([rows, columns], sides, self.orientation);
        let pages = if axes == 4 { 0..1 } else { region[2].clone() };
        vec![0..1, 0..self.plain.shape[1], pages, rows, columns]
    }
}

/// The strips of all pages of a file that was written by this program: (page, height, width, channel).
pub(super) fn all_blocks<R: Read + Seek>(name: &str, reader: R, length: u64) -> Result<Vec<Block>> {
    let refused = |error: TiffError| refused(name, &error);
    let options = ReadOptions { limits: crate::io::Limits::NONE, ..ReadOptions::default() };
    let mut decoder = Decoder::new(reader).map_err(refused)?;
    let mut pages = Pages::default();
    let mut all = Vec::new();
    loop {
        let page;
        (decoder, page) = pages.begin(decoder, name, length, &options)?;
        all.extend(blocks(&mut decoder, name, page, pages.count - 1)?);
        if !decoder.more_images() {
            return Ok(all);
        }
        decoder.next_image().map_err(refused)?;
    }
}

/// The boxes of the stored array that the strips or tiles of a page are, by their numbers. They may reach beyond it.
fn chunks<R: Read + Seek>(
    decoder: &mut Decoder<R>,
    name: &str,
    page: PageLayout,
    number: usize,
) -> Result<Vec<Region>> {
    let (width, height) = decoder.dimensions().map_err(|error| refused(name, &error))?;
    let (across, down) = decoder.chunk_dimensions();
    if across == 0 || down == 0 {
        let reason = "its strips or tiles have no pixels".into();
        return Err(Error::Content { file: name.into(), reason });
    }
    let [width, height, across] = [width, height, across].map(|side| side as usize);
    let down = (down as usize).min(if is_tiled(decoder) { usize::MAX } else { height });
    let planes = if page.is_planar { page.stored } else { 1 };
    let mut chunks = Vec::new();
    for plane in 0..planes {
        for row in (0..height).step_by(down) {
            for column in (0..width).step_by(across) {
                let (rows, columns) = (row..row + down, column..column + across);
                let page_at = number..number + 1;
                chunks.push(if page.is_planar {
                    vec![page_at, plane..plane + 1, rows, columns]
                } else {
                    vec![page_at, rows, columns, 0..page.stored]
                });
            }
        }
    }
    Ok(chunks)
}

/// The strips or tiles of a page that is not packed.
fn blocks<R: Read + Seek>(
    decoder: &mut Decoder<R>,
    name: &str,
    page: PageLayout,
    number: usize,
) -> Result<Vec<Block>> {
    let tag = if is_tiled(decoder) { Tag::TileOffsets } else { Tag::StripOffsets };
    let offsets = decoder.find_tag_unsigned_vec::<u64>(tag);
    let offsets = offsets.map_err(|error| refused(name, &error))?.unwrap_or_default();
    let chunks = chunks(decoder, name, page, number)?;
    if offsets.len() < chunks.len() {
        let reason = format!("{} places for {} strips or tiles", offsets.len(), chunks.len());
        return Err(Error::Content { file: name.into(), reason });
    }
    let block = |(offset, region)| Block { offset, region };
    Ok(offsets.into_iter().zip(chunks).map(block).collect())
}

fn is_tiled<R: Read + Seek>(decoder: &Decoder<R>) -> bool {
    decoder.get_chunk_type() == ChunkType::Tile
}

/// Whether the values of a page lie in the file as they are.
fn has_offsets<R: Read + Seek>(
    decoder: &mut Decoder<R>,
    name: &str,
    page: PageLayout,
) -> Result<bool> {
    let mut tag = |tag| -> Result<Option<u16>> {
        decoder.find_tag_unsigned(tag).map_err(|error| refused(name, &error))
    };
    let (predictor, photometric) = (tag(Tag::Predictor)?, tag(Tag::PhotometricInterpretation)?);
    // A photometric interpretation of 0 says that white is 0, which the library turns round.
    Ok(!page.is_packed && predictor.unwrap_or(1) == 1 && photometric != Some(0))
}

fn is_planar<R: Read + Seek>(
    decoder: &mut Decoder<R>,
    name: &str,
    page: PageLayout,
) -> Result<bool> {
    let planar: Option<u16> = decoder
        .find_tag_unsigned(Tag::PlanarConfiguration)
        .map_err(|error| refused(name, &error))?;
    let is_planar = planar == Some(2) && page.stored > 1;
    if is_planar && page.stored > page.channels {
        return Err(unsupported(name, "transparency in a plane of its own".into()));
    }
    Ok(is_planar)
}

fn sample_of<R: Read + Seek>(decoder: &mut Decoder<R>, name: &str, bits: u8) -> Result<Sample> {
    let format = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat);
    let format = format.map_err(|error| refused(name, &error))?;
    let format = format.and_then(|formats| formats.first().copied()).unwrap_or(1);
    Ok(match (format, bits) {
        (1, 8) => Sample::U8,
        (1, 16) => Sample::U16,
        (1, 32) => Sample::U32,
        (1, 64) => Sample::U64,
        (2, 8) => Sample::I8,
        (2, 16) => Sample::I16,
        (2, 32) => Sample::I32,
        (2, 64) => Sample::I64,
        (3, 16) => Sample::F16,
        (3, 32) => Sample::F32,
        (3, 64) => Sample::F64,
        _ => {
            let reason =
                format!("values of {bits} bits in format {format}; integers and floats are read");
            return Err(unsupported(name, reason));
        }
    })
}
