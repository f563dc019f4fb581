//! PNG and JPEG, by the crate `image`.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::metadata::Orientation;
use image::{ColorType, ExtendedColorType, ImageDecoder, ImageEncoder, ImageError};
use ndarray::{Axis, IxDyn};

use super::samples::{Encoded, Order, failed_read, reserve};
use super::{Format, Image, Sample, Scaling, Source, Target};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// Deflate shrinks to one in 1032 at most, and JPEG needs a bit for each block of a component.
const MOST_SHRUNK: u64 = 1100;

pub(super) fn read(source: &mut Source, format: Format) -> Result<Image> {
    if format == Format::Jpeg {
        check_whole(source)?;
    }
    // Chunks that are not pixels may hold what they like within this.
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(64 << 20);
    let reader = BufReader::new(&mut *source.reader);
    let name = source.name;
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
            let reason = format!("pixels of type {other:?}; gray and RGB of 8 or 16 bits are read");
            return Err(Error::Unsupported { file: name.into(), reason });
        }
    };
    let shape = [stored as u64, u64::from(height), u64::from(width)];
    let count = source.options.limits.check(name, &shape)?;
    let size = count * sample.bytes();
    if size as u64 / MOST_SHRUNK > source.length {
        let reason = format!("it is cut short: {width}×{height} pixels are announced");
        return Err(Error::Content { file: name.into(), reason });
    }
    // A note on it that cannot be understood says nothing.
    let orientation = decoder.orientation().map_or(1, Orientation::to_exif);
    let mut bytes = Vec::new();
    reserve(name, &mut bytes, size)?;
    bytes.resize(size, 0);
    decoder.read_image(&mut bytes).map_err(|e| refused(name, &e))?;

    let scaling = Scaling::of_picture(sample, source.options);
    // The crate gives words in the order of this machine.
    let order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };
    let encoded = Encoded { sample, order, scaling, blank: None, available: None };
    let interleaved = encoded.read(name, &mut &bytes[..], count)?;
    drop(bytes);
    let white = (sample.white().unwrap_or(1.0) * scaling.slope) as f32;
    let planes = separate(name, &interleaved, stored, channels, white)?;
    let shape = IxDyn(&[1, channels, height as usize, width as usize]);
    let array =
        Array::from_shape_vec(shape, planes).map_err(|error| source.damaged(error.to_string()))?;
    let array = upright(array, orientation.into());
    Ok(Image::new(array, format, sample, scaling))
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
        return Err(Error::Unsupported {
            file: name.into(),
            reason: "parts of it are transparent, and what is behind them is not in the file; \
                     flatten it onto a background first"
                .into(),
        });
    }
    let mut planes = Vec::new();
    reserve(name, &mut planes, interleaved.len() / stored * channels)?;
    for channel in 0..channels {
        planes.extend(interleaved.iter().skip(channel).step_by(stored));
    }
    Ok(planes)
}

/// The values of a picture or a slice, pixel by pixel; `planes` has its channels one after the other.
pub(super) fn interleave(planes: &[&[f32]]) -> impl Iterator<Item = f32> {
    let pixels = planes.first().map_or(0, |plane| plane.len());
    (0..pixels).flat_map(move |pixel| planes.iter().map(move |plane| plane[pixel]))
}

pub(super) fn write(target: &Target, path: &Path, array: &View, format: Format) -> Result<()> {
    let &[1, channels @ (1 | 3), height, width] = array.shape() else {
        return Err(target.refuse(array, "(1, 1 or 3, height, width)"));
    };
    let most = if format == Format::Jpeg { 65_535 } else { i32::MAX as usize };
    if width > most || height > most {
        return Err(target.refuse(array, &format!("sides of up to {most}")));
    }
    let standard = array.as_standard_layout();
    let values = standard.as_slice().unwrap_or_default();
    let planes: Vec<&[f32]> = values.chunks(height * width).collect();
    let mut bytes = Vec::new();
    reserve(target.name, &mut bytes, array.len() * target.sample.bytes())?;
    let order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };
    let (sample, scale) = (target.sample, target.scale_of_picture());
    super::samples::write(&mut bytes, interleave(&planes), sample, order, scale)
        .map_err(|error| target.failed(error))?;
    let colour = match (channels, target.sample) {
        (1, Sample::U8) => ExtendedColorType::L8,
        (1, _) => ExtendedColorType::L16,
        (_, Sample::U8) => ExtendedColorType::Rgb8,
        (_, _) => ExtendedColorType::Rgb16,
    };
    let quality = target.options.quality.clamp(1, 100);
    super::write_atomically(path, |file| {
        let done = match format {
            Format::Png => image::codecs::png::PngEncoder::new(file).write_image(
                &bytes,
                width as u32,
                height as u32,
                colour,
            ),
            _ => image::codecs::jpeg::JpegEncoder::new_with_quality(file, quality).write_image(
                &bytes,
                width as u32,
                height as u32,
                colour,
            ),
        };
        done.map_err(|error| match error {
            ImageError::IoError(error) => error,
            other => std::io::Error::other(other),
        })
    })
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
