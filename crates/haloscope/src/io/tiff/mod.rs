//! TIFF, by the crate `tiff`: one page is a picture, several pages of one size are a volume.
//!
//! Microscopes and scanners write counts as TIFF, so that values are as stored, whatever their type.

mod stack;
mod write;

use std::io::{Read, Seek};

use ndarray::IxDyn;
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;
use tiff::{ColorType, TiffError};

pub(super) use stack::Stack;
pub(super) use write::{Placed, write};

use super::picture::{separate, upright};
use super::samples::reserve;
use super::{Format, Image, ReadOptions, Sample, Scaling, Source};
use crate::array::Array;
use crate::error::{Error, Result};

/// How a file begins: either byte order, small and big files.
pub(super) const MAGICS: [[u8; 4]; 4] = [*b"II*\0", *b"MM\0*", *b"II+\0", *b"MM\0+"];

/// LZW codes of 12 bits stand for strings of up to some thousand bytes.
const MOST_SHRUNK: u64 = 4096;

pub(super) fn read(source: &mut Source) -> Result<Image> {
    let (name, options, length) = (source.name, source.options, source.length);
    let refused = |error: TiffError| refused(name, &error);
    let mut decoder = Decoder::new(&mut *source.reader).map_err(refused)?;
    let mut pages = Pages::default();
    loop {
        let page;
        (decoder, page) = pages.begin(decoder, name, length, options)?;
        let mut result = DecodingResult::U8(Vec::new());
        let layout = decoder.read_image_to_buffer(&mut result).map_err(refused)?;
        let is_planar = layout.planes > 1;
        pages.add(name, result, PageLayout { is_planar, ..page }, options)?;
        if !decoder.more_images() {
            break;
        }
        decoder.next_image().map_err(refused)?;
    }
    pages.into_image(name)
}

/// How the values of a page lie.
#[derive(Clone, Copy)]
struct PageLayout {
    /// The values of a pixel.
    stored: usize,
    /// Those of them that are not transparency.
    channels: usize,
    count: usize,
    bits: u8,
    is_packed: bool,
    is_planar: bool,
}

/// What has been read.
#[derive(Default)]
struct Pages {
    /// (channel, height, width) of each.
    shape: [usize; 3],
    count: usize,
    /// What they take when unpacked.
    bytes: u64,
    sample: Option<(Sample, Scaling)>,
    /// How they were stored, as the tag of that name says.
    orientation: u32,
    /// Page by page, channel by channel.
    values: Vec<f32>,
}

impl Pages {
    /// Checks the next page of a file of `length` bytes, and tells the decoder what it may take.
    fn begin<R: Read + Seek>(
        &mut self,
        mut decoder: Decoder<R>,
        name: &str,
        length: u64,
        options: &ReadOptions,
    ) -> Result<(Decoder<R>, PageLayout)> {
        let refused = |error: TiffError| refused(name, &error);
        let (width, height) = decoder.dimensions().map_err(refused)?;
        let (stored, channels, bits) = match decoder.colortype().map_err(refused)? {
            ColorType::Gray(bits) => (1, 1, bits),
            ColorType::GrayA(bits) => (2, 1, bits),
            ColorType::RGB(bits) => (3, 3, bits),
            ColorType::RGBA(bits) => (4, 3, bits),
            ColorType::Multiband { bit_depth, num_samples } => {
                (usize::from(num_samples), usize::from(num_samples), bit_depth)
            }
            other => {
                let reason =
                    format!("pixels of type {other:?}; gray, RGB and several bands are read");
                return Err(unsupported(name, reason));
            }
        };
        if ![8, 16, 32, 64].contains(&bits) {
            return Err(unsupported(
                name,
                format!("{bits} bits per value; 8, 16, 32 and 64 are read"),
            ));
        }
        let page = [stored as u64, u64::from(height), u64::from(width)];
        let count = options.limits.check(name, &page)?;
        self.next([channels, height as usize, width as usize], name)?;
        let all = [page[0], self.count as u64, page[1], page[2]];
        options.limits.check(name, &all)?;
        let size = count as u64 * u64::from(bits / 8);
        let turned: Option<u32> = decoder.find_tag_unsigned(Tag::Orientation).map_err(refused)?;
        self.turn(turned.unwrap_or(1), name)?;
        let packing: Option<u16> = decoder.find_tag_unsigned(Tag::Compression).map_err(refused)?;
        let is_packed = packing.unwrap_or(1) != 1;
        let most_shrunk = if is_packed { MOST_SHRUNK } else { 1 };
        // All pages so far: pages that point to each other would never end.
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes / most_shrunk > length {
            let reason = format!(
                "it is cut short: {} pages of {width}×{height} pixels are announced in {length} bytes",
                self.count
            );
            return Err(Error::Content { file: name.into(), reason });
        }
        let mut limits = Limits::default();
        limits.decoding_buffer_size = size as usize;
        // Nothing that is packed can be larger than the file; what is unpacked is at most the page.
        limits.intermediate_buffer_size = (length.max(size)).saturating_add(4096) as usize;
        // Enough for the places of half a million strips. The library makes some hundred bytes of each.
        limits.ifd_value_size = length.min(4 << 20) as usize;
        let layout = PageLayout { stored, channels, count, bits, is_packed, is_planar: false };
        Ok((decoder.with_limits(limits), layout))
    }

    fn next(&mut self, shape: [usize; 3], name: &str) -> Result<()> {
        if self.count > 0 && shape != self.shape {
            return Err(unsupported(
                name,
                format!(
                    "its pages differ: (channel, height, width) is {:?} and then {shape:?}; pages of \
                     one size make a volume",
                    self.shape
                ),
            ));
        }
        self.shape = shape;
        self.count += 1;
        Ok(())
    }

    fn turn(&mut self, orientation: u32, name: &str) -> Result<()> {
        if self.count > 1 && orientation != self.orientation {
            return Err(unsupported(
                name,
                format!(
                    "its pages differ: the orientation is {} and then {orientation}; pages of one \
                     orientation make a volume",
                    self.orientation
                ),
            ));
        }
        self.orientation = orientation;
        Ok(())
    }

    fn add(
        &mut self,
        name: &str,
        result: DecodingResult,
        page: PageLayout,
        options: &ReadOptions,
    ) -> Result<()> {
        let scaling = Scaling::NONE.and(options);
        let (values, sample) = convert(name, result, page.count, scaling)?;
        self.store(name, sample, scaling)?;
        let sample = (sample, scaling);
        let opaque = (sample.0.white().unwrap_or(1.0) * sample.1.slope) as f32;
        let PageLayout { stored, channels, .. } = page;
        if page.is_planar && stored == channels {
            self.append(name, values)
        } else if page.is_planar {
            Err(unsupported(name, "transparency in a plane of its own".into()))
        } else {
            self.append(name, separate(name, &values, stored, channels, opaque)?)
        }
    }

    /// Refuses pages of different types.
    fn store(&mut self, name: &str, sample: Sample, scaling: Scaling) -> Result<()> {
        let sample = (sample, scaling);
        if self.sample.replace(sample).is_some_and(|before| before != sample) {
            return Err(unsupported(name, "its pages store values of different types".into()));
        }
        Ok(())
    }

    fn append(&mut self, name: &str, page: Vec<f32>) -> Result<()> {
        if self.values.is_empty() {
            self.values = page;
            return Ok(());
        }
        if self.values.capacity() - self.values.len() < page.len() {
            let more = self.values.len().max(page.len());
            reserve(name, &mut self.values, more)?;
        }
        self.values.extend(page);
        Ok(())
    }

    fn into_image(self, name: &str) -> Result<Image> {
        let damaged = |reason: String| Error::Content { file: name.into(), reason };
        let [channels, height, width] = self.shape;
        let Some((sample, scaling)) = self.sample else {
            return Err(damaged("it has no pages".into()));
        };
        let array = if self.count == 1 {
            Array::from_shape_vec(IxDyn(&[1, channels, height, width]), self.values)
        } else {
            Array::from_shape_vec(IxDyn(&[1, self.count, channels, height, width]), self.values)
        };
        let mut array = array.map_err(|error| damaged(error.to_string()))?;
        if self.count > 1 {
            array = array.permuted_axes(vec![0, 2, 1, 3, 4]);
            if !array.is_standard_layout() {
                array = array.as_standard_layout().into_owned();
            }
        }
        let array = upright(array, self.orientation);
        Ok(Image { array, ..Image::about(Format::Tiff, sample, scaling) })
    }
}

/// Decoded values of any type, scaled.
fn convert(
    name: &str,
    result: DecodingResult,
    count: usize,
    scaling: Scaling,
) -> Result<(Vec<f32>, Sample)> {
    let mut values = Vec::new();
    reserve(name, &mut values, count)?;
    macro_rules! take {
        ($sample:ident, $stored:expr, $widen:expr) => {{
            let value = |stored: f64| (stored * scaling.slope + scaling.offset) as f32;
            values.extend($stored.into_iter().map(|v| value($widen(v))));
            Sample::$sample
        }};
    }
    let sample = match result {
        DecodingResult::U8(v) => take!(U8, v, f64::from),
        DecodingResult::U16(v) => take!(U16, v, f64::from),
        DecodingResult::U32(v) => take!(U32, v, f64::from),
        DecodingResult::U64(v) => take!(U64, v, |v| v as f64),
        DecodingResult::I8(v) => take!(I8, v, f64::from),
        DecodingResult::I16(v) => take!(I16, v, f64::from),
        DecodingResult::I32(v) => take!(I32, v, f64::from),
        DecodingResult::I64(v) => take!(I64, v, |v| v as f64),
        DecodingResult::F32(v) => take!(F32, v, f64::from),
        DecodingResult::F64(v) => take!(F64, v, |v: f64| v),
        DecodingResult::F16(v) => take!(F16, v, |v: half::f16| f64::from(v)),
    };
    if values.len() != count {
        let reason =
            format!("a page or a part of it has {} values instead of {count}", values.len());
        return Err(Error::Content { file: name.into(), reason });
    }
    Ok((values, sample))
}

fn unsupported(name: &str, reason: String) -> Error {
    Error::Unsupported { file: name.into(), reason }
}

fn refused(name: &str, error: &TiffError) -> Error {
    let (file, reason) = (name.to_owned(), error.to_string());
    match error {
        TiffError::UnsupportedError(_) => Error::Unsupported { file, reason },
        TiffError::LimitsExceeded | TiffError::IntSizeError => Error::Limit { file, reason },
        TiffError::IoError(error) => super::samples::failed_read(name, error),
        _ => Error::Content { file, reason },
    }
}
