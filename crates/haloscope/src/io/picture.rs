//! PNG and JPEG, by the crates `image` and `png`: read whole or in bands of rows, and written in bands.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::metadata::Orientation;
use image::{
    ColorType, GenericImageView, ImageDecoder, ImageError, Luma, Pixel, PixelWithColorType, Rgb,
};
use ndarray::{Axis, IxDyn};

use super::samples::{Encoded, Order, failed_read, reserve};
use super::{Format, Image, NextBand, Sample, Scaling, Source, Target, VisitBand};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::region::{self, Region};

/// Deflate shrinks to one in 1032 at most, and JPEG needs a bit for each block of a component.
pub(super) const MOST_SHRUNK: u64 = 1100;

/// Chunks of PNG that are not pixels may hold what they like within this.
const MOST_CHUNKS: u64 = 64 << 20;

/// The rows of a block of JPEG.
pub(super) const JPEG_ROWS: usize = 8;

/// The order of this machine, in which the crate `image` gives and takes words.
const NATIVE: Order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };

pub(super) fn read(source: &mut Source, format: Format) -> Result<Image> {
    let name = source.name;
    let (decoder, picture) = Picture::open(source, format)?;
    let values = picture.convert(name, &picture.decode(name, decoder)?, NATIVE)?;
    let array = picture.arrange(name, &values)?;
    Ok(Image { array, ..picture.about(format) })
}

/// How a picture is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture {
    /// The values of a pixel.
    stored: usize,
    /// Those of them that are not transparency.
    channels: usize,
    /// Height and width.
    sides: [usize; 2],
    orientation: u32,
    sample: Sample,
    scaling: Scaling,
}

impl Picture {
    /// Reads up to the pixels.
    pub(super) fn open<'a>(
        source: &'a mut Source,
        format: Format,
    ) -> Result<(Box<dyn ImageDecoder + 'a>, Self)> {
        if format == Format::Jpeg {
            check_whole(source)?;
        }
        let (name, options, length) = (source.name, source.options, source.length);
        let mut limits = image::Limits::default();
        limits.max_alloc = Some(MOST_CHUNKS);
        let reader = BufReader::new(&mut *source.reader);
        let mut decoder: Box<dyn ImageDecoder> = match format {
            Format::Png => {
                Box::new(PngDecoder::with_limits(reader, limits).map_err(|e| refused(name, &e))?)
            }
            _ => Box::new(JpegDecoder::new(reader).map_err(|e| refused(name, &e))?),
        };
        let (width, height) = decoder.dimensions();
        let (sample, stored, channels) = match decoder.color_type() {
            ColorType::L8 => (Sample::U8, 1, 1),
            ColorType::La8 => (Sample::U8, 2, 1),
            ColorType::Rgb8 => (Sample::U8, 3, 3),
            ColorType::Rgba8 => (Sample::U8, 4, 3),
            ColorType::L16 => (Sample::U16, 1, 1),
            ColorType::La16 => (Sample::U16, 2, 1),
            ColorType::Rgb16 => (Sample::U16, 3, 3),
            ColorType::Rgba16 => (Sample::U16, 4, 3),
            other => {
                let reason =
                    format!("pixels of type {other:?}; gray and RGB of 8 or 16 bits are read");
                return Err(Error::Unsupported { file: name.into(), reason });
            }
        };
        let shape = [stored as u64, u64::from(height), u64::from(width)];
        let count = options.limits.check(name, &shape)?;
        if (count * sample.bytes()) as u64 / MOST_SHRUNK > length {
            let reason = format!("it is cut short: {width}×{height} pixels are announced");
            return Err(Error::Content { file: name.into(), reason });
        }
        // A note on it that cannot be understood says nothing.
        let orientation = decoder.orientation().map_or(1, Orientation::to_exif).into();
        let scaling = Scaling::of_picture(sample, options);
        let sides = [height as usize, width as usize];
        Ok((decoder, Self { stored, channels, sides, orientation, sample, scaling }))
    }

    pub(super) fn about(&self, format: Format) -> Image {
        Image::about(format, self.sample, self.scaling)
    }

    /// (1, channel, height, width), upright.
    pub(super) fn shape(&self) -> Vec<usize> {
        let [height, width] = upright_sides(self.sides, self.orientation);
        vec![1, self.channels, height, width]
    }

    /// The boxes of the upright picture that [`stream`](Self::stream) gives, in its order.
    pub(super) fn bands(&self) -> Vec<Region> {
        let upright = |band: Region| {
            let [rows, columns] =
                upright_region([band[2].clone(), band[3].clone()], self.sides, self.orientation);
            vec![0..1, 0..self.channels, rows, columns]
        };
        self.stored_bands().into_iter().map(upright).collect()
    }

    fn stored_bands(&self) -> Vec<Region> {
        region::rows(&[1, self.stored, self.sides[0], self.sides[1]], 1)
    }

    /// Decodes the picture band by band, until `visit` has enough. PNG comes row by row; of interlaced PNG and of JPEG the
    /// bytes of all pixels are there at once.
    pub(super) fn stream(
        &self,
        source: &mut Source,
        format: Format,
        visit: &mut VisitBand,
    ) -> Result<()> {
        let name = source.name;
        if format == Format::Png {
            let reader = BufReader::new(&mut *source.reader);
            let limits = png::Limits { bytes: MOST_CHUNKS as usize };
            let mut decoder = png::Decoder::new_with_limits(reader, limits);
            decoder.set_transformations(png::Transformations::EXPAND);
            let mut reader = decoder.read_info().map_err(|error| refused_png(name, error))?;
            if !reader.info().interlaced {
                let mut rows = 0;
                self.visit_bands(name, Order::Big, visit, |size, bytes| {
                    while bytes.len() < size {
                        let row = reader.next_row().map_err(|error| refused_png(name, error))?;
                        // Frames of animations may be smaller.
                        let length = self.stored * self.sides[1] * self.sample.bytes();
                        let Some(row) = row.filter(|row| row.data().len() == length) else {
                            let reason = format!("it is cut short: row {rows} is missing");
                            return Err(Error::Content { file: name.into(), reason });
                        };
                        bytes.extend_from_slice(row.data());
                        rows += 1;
                    }
                    Ok(())
                })?;
                if rows == self.sides[0] {
                    // Behind the last one is a checksum.
                    reader.next_row().map_err(|error| refused_png(name, error))?;
                }
                return Ok(());
            }
            drop(reader);
            source.reader.rewind().map_err(|error| failed_read(name, &error))?;
        }
        let (decoder, _) = Self::open(source, format)?;
        let all = self.decode(name, decoder)?;
        let mut rest = &all[..];
        self.visit_bands(name, NATIVE, visit, |size, bytes| {
            let (band, after) = rest.split_at(size);
            bytes.extend_from_slice(band);
            rest = after;
            Ok(())
        })
    }

    /// `fill` appends the bytes of the next band.
    fn visit_bands(
        &self,
        name: &str,
        order: Order,
        visit: &mut VisitBand,
        mut fill: impl FnMut(usize, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        for (stored, band) in self.stored_bands().into_iter().zip(self.bands()) {
            bytes.clear();
            fill(region::volume(&stored) * self.sample.bytes(), &mut bytes)?;
            let values = self.convert(name, &bytes, order)?;
            if !visit(&band, self.arrange(name, &values)?)? {
                break;
            }
        }
        Ok(())
    }

    /// The bytes of all pixels.
    fn decode(&self, name: &str, decoder: Box<dyn ImageDecoder + '_>) -> Result<Vec<u8>> {
        let size = self.stored * self.sides[0] * self.sides[1] * self.sample.bytes();
        let mut bytes = Vec::new();
        reserve(name, &mut bytes, size)?;
        bytes.resize(size, 0);
        decoder.read_image(&mut bytes).map_err(|e| refused(name, &e))?;
        Ok(bytes)
    }

    fn convert(&self, name: &str, bytes: &[u8], order: Order) -> Result<Vec<f32>> {
        let Self { sample, scaling, .. } = *self;
        let encoded = Encoded { sample, order, scaling, blank: None, available: None };
        encoded.read(name, &mut &bytes[..], bytes.len() / sample.bytes())
    }

    /// Whole rows of pixels as an upright array.
    fn arrange(&self, name: &str, interleaved: &[f32]) -> Result<Array> {
        let white = (self.sample.white().unwrap_or(1.0) * self.scaling.slope) as f32;
        let planes = separate(name, interleaved, self.stored, self.channels, white)?;
        let width = self.sides[1];
        let rows = interleaved.len() / (self.stored * width);
        let array = Array::from_shape_vec(IxDyn(&[1, self.channels, rows, width]), planes)
            .map_err(|error| Error::Content { file: name.into(), reason: error.to_string() })?;
        Ok(upright(array, self.orientation))
    }
}

/// A picture (…, height, width) that was stored as this orientation of TIFF and EXIF says: turned in steps of
/// 90 degrees (3, 6, 8), mirrored (2, 4), or both (5, 7). Any other number is upright.
pub(super) fn upright(mut array: Array, orientation: u32) -> Array {
    let (height, width) = (array.ndim() - 2, array.ndim() - 1);
    if matches!(orientation, 3 | 4 | 6 | 7) {
        array.invert_axis(Axis(height));
    }
    if matches!(orientation, 2 | 3 | 7 | 8) {
        array.invert_axis(Axis(width));
    }
    if matches!(orientation, 5..=8) {
        array.swap_axes(height, width);
    }
    if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() }
}

/// Whether an orientation exchanges rows and columns.
fn is_turned(orientation: u32) -> bool {
    matches!(orientation, 5..=8)
}

/// The sides of an upright picture whose stored height and width are these.
pub(super) fn upright_sides([height, width]: [usize; 2], orientation: u32) -> [usize; 2] {
    if is_turned(orientation) { [width, height] } else { [height, width] }
}

/// The upright rows and columns of stored ones.
fn upright_region(
    stored: [Range<usize>; 2],
    sides: [usize; 2],
    orientation: u32,
) -> [Range<usize>; 2] {
    let [rows, columns] = mirrored(stored, sides, orientation);
    if is_turned(orientation) { [columns, rows] } else { [rows, columns] }
}

/// The stored rows and columns of upright ones.
pub(super) fn stored_region(
    [rows, columns]: [Range<usize>; 2],
    sides: [usize; 2],
    orientation: u32,
) -> [Range<usize>; 2] {
    let stored = if is_turned(orientation) { [columns, rows] } else { [rows, columns] };
    mirrored(stored, sides, orientation)
}

/// Stored rows and columns counted from where the upright picture begins, or the other way round.
fn mirrored(
    [rows, columns]: [Range<usize>; 2],
    [height, width]: [usize; 2],
    orientation: u32,
) -> [Range<usize>; 2] {
    let mirror = |range: Range<usize>, side: usize, is_mirrored: bool| {
        if is_mirrored { side - range.end..side - range.start } else { range }
    };
    [
        mirror(rows, height, matches!(orientation, 3 | 4 | 6 | 7)),
        mirror(columns, width, matches!(orientation, 2 | 3 | 7 | 8)),
    ]
}

/// Refuses a JPEG file that is cut short, which the decoder would fill up with gray. Segments are
/// passed by their lengths, because one with a small picture for previews has an end of its own.
fn check_whole(source: &mut Source) -> Result<()> {
    const END: u8 = 0xd9;
    let mut reader = BufReader::new(&mut *source.reader);
    let mut find_end = || -> std::io::Result<()> {
        loop {
            reader.skip_until(0xff)?;
            let mut marker = [0xff];
            while marker == [0xff] {
                reader.read_exact(&mut marker)?;
            }
            match marker {
                [END] => return Ok(()),
                // An escaped byte of the values, and marks that have no length.
                [0x00 | 0x01 | 0xd0..=0xd8] => {}
                _ => {
                    let mut length = [0; 2];
                    reader.read_exact(&mut length)?;
                    let rest = u16::from_be_bytes(length).saturating_sub(2);
                    reader.seek_relative(rest.into())?;
                }
            }
        }
    };
    find_end().map_err(|error| failed_read(source.name, &error))?;
    source.reader.rewind().map_err(|error| failed_read(source.name, &error))
}

/// Channels one after the other. What is stored behind them is transparency, which must be `opaque`.
pub(super) fn separate(
    name: &str,
    interleaved: &[f32],
    stored: usize,
    channels: usize,
    opaque: f32,
) -> Result<Vec<f32>> {
    if stored > channels && interleaved.chunks(stored).any(|pixel| pixel[channels] != opaque) {
        return Err(transparent(name));
    }
    let mut planes = Vec::new();
    reserve(name, &mut planes, interleaved.len() / stored * channels)?;
    for channel in 0..channels {
        planes.extend(interleaved.iter().skip(channel).step_by(stored));
    }
    Ok(planes)
}

/// The first `channels` of an array (1, value, …). What is stored behind them is transparency, which must be `opaque`.
pub(super) fn drop_opaque(
    name: &str,
    mut array: Array,
    channels: usize,
    opaque: f32,
) -> Result<Array> {
    if array.shape()[1] == channels {
        return Ok(array);
    }
    if array.index_axis(Axis(1), channels).iter().any(|&value| value != opaque) {
        return Err(transparent(name));
    }
    array.slice_axis_inplace(Axis(1), (..channels).into());
    Ok(array)
}

fn transparent(name: &str) -> Error {
    Error::Unsupported {
        file: name.into(),
        reason: "parts of it are transparent, and what is behind them is not in the file; \
                 flatten it onto a background first"
            .into(),
    }
}

/// The values of a picture or a slice, pixel by pixel; `planes` has its channels one after the other.
pub(super) fn interleave(planes: &[&[f32]]) -> impl Iterator<Item = f32> {
    let pixels = planes.first().map_or(0, |plane| plane.len());
    (0..pixels).flat_map(move |pixel| planes.iter().map(move |plane| plane[pixel]))
}

/// Writes a picture (1, 1 or 3, height, width) in bands of rows.
pub(super) fn write(
    target: &Target,
    shape: &[usize],
    path: &Path,
    format: Format,
    next: &mut NextBand,
) -> Result<()> {
    let &[1, channels @ (1 | 3), height, width] = shape else {
        return Err(target.refuse(shape, "(1, 1 or 3, height, width)"));
    };
    let most = if format == Format::Jpeg { 65_535 } else { i32::MAX as usize };
    if width > most || height > most {
        return Err(target.refuse(shape, &format!("sides of up to {most}")));
    }
    let size = (width as u32, height as u32);
    let (sample, scale) = (target.sample, target.scale_of_picture());
    let rows = &mut |band: &[Range<usize>], order| -> std::io::Result<Vec<u8>> {
        let array = next(band)?;
        let array = array.as_standard_layout();
        let values = array.as_slice().unwrap_or_default();
        let planes: Vec<&[f32]> = values.chunks(values.len() / channels).collect();
        let mut bytes = Vec::with_capacity(values.len() * sample.bytes());
        super::samples::write(&mut bytes, interleave(&planes), sample, order, scale)?;
        Ok(bytes)
    };
    let quality = target.options.quality.clamp(1, 100);
    super::write_atomically(path, |file| match (format, channels) {
        (Format::Png, _) => write_png(file, size, channels, sample, shape, rows),
        (_, 1) => write_jpeg::<Luma<u8>>(file, size, quality, shape, rows),
        (_, _) => write_jpeg::<Rgb<u8>>(file, size, quality, shape, rows),
    })
}

/// The bytes of a band of rows, in this order.
type Rows<'a> = dyn FnMut(&[Range<usize>], Order) -> std::io::Result<Vec<u8>> + 'a;

fn write_png(
    file: &mut dyn Write,
    (width, height): (u32, u32),
    channels: usize,
    sample: Sample,
    shape: &[usize],
    rows: &mut Rows,
) -> std::io::Result<()> {
    let mut encoder = png::Encoder::new(file, width, height);
    encoder.set_color(if channels == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
    let depth = if sample == Sample::U8 { png::BitDepth::Eight } else { png::BitDepth::Sixteen };
    encoder.set_depth(depth);
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Adaptive);
    let mut writer = encoder.write_header()?;
    let mut stream = writer.stream_writer_with_size(1 << 16)?;
    for band in region::rows(shape, 1) {
        stream.write_all(&rows(&band, Order::Big)?)?;
    }
    stream.finish()?;
    Ok(writer.finish()?)
}

/// Blocks of 8 rows are encoded one after the other, so that the encoder never goes back behind a band.
fn write_jpeg<P: Pixel<Subpixel = u8> + PixelWithColorType>(
    file: &mut dyn Write,
    size: (u32, u32),
    quality: u8,
    shape: &[usize],
    rows: &mut Rows,
) -> std::io::Result<()> {
    let bands = region::rows(shape, JPEG_ROWS).into_iter();
    let lines = Lines { rows, bands, held: 0..0, bytes: Ok(Vec::new()) };
    let picture = Scanned::<P> { size, lines: RefCell::new(lines), pixel: PhantomData };
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(file, quality);
    let done = encoder.encode_image(&picture);
    picture.lines.into_inner().bytes?;
    done.map_err(|error| match error {
        ImageError::IoError(error) => error,
        other => std::io::Error::other(other),
    })
}

/// A picture of which one band is there: the one that was asked for last.
struct Scanned<'a, P> {
    size: (u32, u32),
    lines: RefCell<Lines<'a>>,
    pixel: PhantomData<P>,
}

struct Lines<'a> {
    rows: &'a mut Rows<'a>,
    bands: std::vec::IntoIter<Region>,
    held: Range<usize>,
    /// Of the rows that are held; an error once there was one.
    bytes: std::io::Result<Vec<u8>>,
}

impl<P: Pixel<Subpixel = u8>> GenericImageView for Scanned<'_, P> {
    type Pixel = P;

    fn dimensions(&self) -> (u32, u32) {
        self.size
    }

    fn get_pixel(&self, column: u32, row: u32) -> P {
        let lines = &mut *self.lines.borrow_mut();
        let row = row as usize;
        while lines.bytes.is_ok() && row >= lines.held.end {
            let Some(band) = lines.bands.next() else { break };
            lines.held = band[2].clone();
            // Before the next band comes.
            lines.bytes = Ok(Vec::new());
            lines.bytes = (lines.rows)(&band, NATIVE);
        }
        let channels = usize::from(P::CHANNEL_COUNT);
        let bytes = lines.bytes.as_deref().unwrap_or_default();
        let at = row.saturating_sub(lines.held.start) * self.size.0 as usize + column as usize;
        // After an error, what is encoded does not matter.
        *P::from_slice(bytes.get(at * channels..(at + 1) * channels).unwrap_or(&[0; 3][..channels]))
    }
}

fn refused_png(name: &str, error: png::DecodingError) -> Error {
    let (file, reason) = (name.to_owned(), error.to_string());
    match error {
        png::DecodingError::IoError(error) => failed_read(name, &error),
        png::DecodingError::LimitsExceeded => Error::Limit { file, reason },
        _ => Error::Content { file, reason },
    }
}

fn refused(name: &str, error: &ImageError) -> Error {
    let (file, reason) = (name.to_owned(), error.to_string());
    match error {
        ImageError::Unsupported(_) => Error::Unsupported { file, reason },
        ImageError::Limits(_) => Error::Limit { file, reason },
        ImageError::IoError(error) => failed_read(name, error),
        _ => Error::Content { file, reason },
    }
}
