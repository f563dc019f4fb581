//! NIfTI-1 volumes, as single files: a header of 348 bytes and the values, x fastest.
//!
//! Memory stays as the file has it, so that the array's axes are (1, t, z, y, x). An image of two axes
//! is (1, 1, y, x), and one of several channels whose z is 1 is (1, t, y, x).

use std::io::{BufReader, Read, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::plain::Plain;
use super::samples::{self, Encoded, Order, failed_read};
use super::{
    Format, Image, LengthUnit, Metadata, NextBand, ReadOptions, Sample, Scaling, Source, Target,
};
use crate::array::View;
use crate::error::{Error, Result};
use crate::region;

/// The bytes of a header.
pub(super) const HEADER: usize = 348;

/// Extensions of a header may take this much.
const MOST_OFFSET: f32 = 16_777_216.0;

/// Three bytes for each value.
const RGB24: i16 = 128;

/// Whether a file begins like NIfTI, or like a kind of it that is refused by name.
pub(super) fn is_header(start: &[u8]) -> bool {
    let size = start.first_chunk().map(|size| u32::from_le_bytes(*size));
    let known = |size: u32| size == HEADER as u32 || size == 540;
    start.len() >= HEADER && size.is_some_and(|size| known(size) || known(size.swap_bytes()))
}

pub(super) fn read(source: &mut Source) -> Result<Image> {
    let (plain, about) = open(source)?;
    Ok(Image { array: plain.read(source.name, source.reader)?, ..about })
}

/// Reads up to the values.
pub(super) fn open(source: &mut Source) -> Result<(Plain, Image)> {
    let name = source.name;
    let mut start = [0; HEADER];
    source.reader.read_exact(&mut start).map_err(|error| failed_read(name, &error))?;
    let header = Header::parse(name, &start)?;
    let offset = header.offset;
    source.reader.seek(SeekFrom::Start(offset)).map_err(|error| failed_read(name, &error))?;
    let available = source.length.saturating_sub(offset);
    header.understand(name, Some(available), source.options, Format::Nifti)
}

pub(super) fn read_compressed(source: &mut Source) -> Result<Image> {
    with_content(source, |name, (plain, about), reader| {
        let array = plain.read(name, reader)?;
        samples::finish(name, reader)?;
        Ok(Image { array, ..about })
    })
}

/// Does something with the unpacked values of a compressed file.
pub(super) fn with_content<T>(
    source: &mut Source,
    read: impl FnOnce(&str, (Plain, Image), &mut dyn Read) -> Result<T>,
) -> Result<T> {
    let name = source.name;
    let failed = |error: std::io::Error| failed_read(name, &error);
    let mut reader = MultiGzDecoder::new(BufReader::new(&mut *source.reader));
    let mut start = [0; HEADER];
    reader.read_exact(&mut start).map_err(failed)?;
    if !is_header(&start) {
        let reason = "it is compressed by gzip, but no NIfTI file is inside";
        return Err(Error::Content { file: name.into(), reason: reason.into() });
    }
    let header = Header::parse(name, &start)?;
    let mut extensions = (&mut reader).take(header.offset - HEADER as u64);
    std::io::copy(&mut extensions, &mut std::io::sink()).map_err(failed)?;
    let header = header.understand(name, None, source.options, Format::NiftiGz)?;
    read(name, header, &mut reader)
}

/// What a header says.
struct Header {
    order: Order,
    /// From the slowest axis to the fastest: channels, and two or three sides.
    shape: Vec<u64>,
    sample: Sample,
    is_colour: bool,
    offset: u64,
    scaling: Scaling,
    spacing: Vec<f64>,
    unit: Option<LengthUnit>,
    affine: Option<[[f64; 4]; 3]>,
}

impl Header {
    fn parse(name: &str, bytes: &[u8; HEADER]) -> Result<Self> {
        let damaged = |reason: String| Error::Content { file: name.into(), reason };
        let unsupported = |reason: String| Error::Unsupported { file: name.into(), reason };
        let size = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let order = if size == HEADER as u32 { Order::Little } else { Order::Big };
        if size == 540 || size.swap_bytes() == 540 {
            return Err(unsupported("it is NIfTI-2; NIfTI-1 is read".into()));
        }
        match &bytes[344..348] {
            b"n+1\0" => {}
            b"ni1\0" => {
                return Err(unsupported("its values are in a file of their own (.img)".into()));
            }
            _ => return Err(damaged("its header does not end like that of NIfTI-1".into())),
        }
        let fields = Fields { bytes, order };
        let axes = fields.short(40);
        if !(1..=7).contains(&axes) {
            return Err(damaged(format!("{axes} axes; NIfTI has 1 to 7")));
        }
        let mut sides = [1_u64; 7];
        for (axis, side) in sides.iter_mut().enumerate().take(axes as usize) {
            let stored = fields.short(42 + 2 * axis);
            *side =
                u64::try_from(stored).map_err(|_| damaged(format!("a side of {stored} values")))?;
        }
        let [x, y, z, later @ ..] = sides;
        let channels = later.iter().fold(1_u64, |product, &side| product.saturating_mul(side));
        let is_flat = axes <= 2 || axes > 3 && z == 1;
        let shape = if is_flat { vec![channels, y, x] } else { vec![channels, z, y, x] };
        let code = fields.short(70);
        let sample = match code {
            2 | RGB24 => Sample::U8,
            4 => Sample::I16,
            8 => Sample::I32,
            16 => Sample::F32,
            64 => Sample::F64,
            256 => Sample::I8,
            512 => Sample::U16,
            768 => Sample::U32,
            1024 => Sample::I64,
            1280 => Sample::U64,
            other => {
                let reason = format!("values of type {other}; real numbers and RGB24 are read");
                return Err(unsupported(reason));
            }
        };
        let is_colour = code == RGB24;
        if is_colour && channels != 1 {
            return Err(unsupported("colour that changes with time".into()));
        }
        let offset = fields.float(108);
        if !(HEADER as f32..=MOST_OFFSET).contains(&offset) {
            return Err(damaged(format!("values that begin at byte {offset}")));
        }
        let (slope, intercept) = (fields.float(112), fields.float(116));
        // A slope of 0 says that there is none.
        let is_scaled = slope != 0.0 && slope.is_finite() && intercept.is_finite() && !is_colour;
        let scaling = if is_scaled {
            Scaling { slope: f64::from(slope), offset: f64::from(intercept) }
        } else {
            Scaling::NONE
        };
        let spatial = shape.len() - 1;
        let spacing =
            (1..=spatial).rev().map(|axis| f64::from(fields.float(76 + 4 * axis)).abs()).collect();
        // The three lowest bits; the others are of time.
        let unit = match bytes[123] & 7 {
            1 => Some(LengthUnit::Metre),
            2 => Some(LengthUnit::Millimetre),
            3 => Some(LengthUnit::Micrometre),
            _ => None,
        };
        let affine = fields.affine();
        let offset = offset as u64;
        Ok(Self { order, shape, sample, is_colour, offset, scaling, spacing, unit, affine })
    }

    /// Where the values are, and all else that the header says.
    fn understand(
        self,
        name: &str,
        available: Option<u64>,
        options: &ReadOptions,
        format: Format,
    ) -> Result<(Plain, Image)> {
        let colours = if self.is_colour { 3 } else { 1 };
        let stored: Vec<u64> = std::iter::once(colours).chain(self.shape.iter().copied()).collect();
        let count = options.limits.check(name, &stored)?;
        let scaling = self.scaling.and(options);
        let encoded =
            Encoded { sample: self.sample, order: self.order, scaling, blank: None, available };
        encoded.check_available(name, count)?;
        let sides: Vec<usize> = self.shape.iter().map(|&side| side as usize).collect();
        let mut shape = [&[1], &sides[..]].concat();
        let (mut stored, mut axes) = (sides, (1..shape.len()).collect::<Vec<_>>());
        if self.is_colour {
            // One channel of three values for each pixel.
            shape[1] = 3;
            stored = [&stored[1..], &[3]].concat();
            axes.rotate_left(1);
        }
        let about = Image {
            spacing: Some(self.spacing),
            affine: self.affine,
            metadata: Metadata { unit: self.unit, ..Metadata::default() },
            ..Image::about(format, self.sample, scaling)
        };
        Ok((Plain { encoded, stored, axes, shape }, about))
    }
}

/// Numbers in a header.
struct Fields<'a> {
    bytes: &'a [u8; HEADER],
    order: Order,
}

impl Fields<'_> {
    fn short(&self, at: usize) -> i16 {
        let bytes = [self.bytes[at], self.bytes[at + 1]];
        match self.order {
            Order::Little => i16::from_le_bytes(bytes),
            Order::Big => i16::from_be_bytes(bytes),
        }
    }

    fn float(&self, at: usize) -> f32 {
        let bytes = [self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]];
        match self.order {
            Order::Little => f32::from_le_bytes(bytes),
            Order::Big => f32::from_be_bytes(bytes),
        }
    }

    /// The place of the voxels: the sform, else the qform's rotation, spacing and offset.
    fn affine(&self) -> Option<[[f64; 4]; 3]> {
        let float = |at| f64::from(self.float(at));
        if self.short(254) > 0 {
            return Some(
                [280, 296, 312].map(|row| [0, 4, 8, 12].map(|column| float(row + column))),
            );
        }
        if self.short(252) <= 0 {
            return None;
        }
        let [b, c, d] = [256, 260, 264].map(float);
        let a = (1.0 - b * b - c * c - d * d).max(0.0).sqrt();
        let rotation = [
            [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
            [2.0 * (b * c + a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d - a * b)],
            [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ];
        // The sign of the z axis is where the spacing of time would have its place.
        let sign = if self.float(76) < 0.0 { -1.0 } else { 1.0 };
        let spacing = [float(80), float(84), float(88) * sign];
        let offset = [268, 272, 276].map(float);
        Some(std::array::from_fn(|row| {
            std::array::from_fn(|column| match column {
                3 => offset[row],
                _ => rotation[row][column] * spacing[column],
            })
        }))
    }
}

pub(super) fn write(target: &Target, path: &Path, array: &View) -> Result<()> {
    let header = make_header(target, array.shape())?;
    super::write_atomically(path, |file| {
        file.write_all(&header)?;
        samples::write(file, array.iter().copied(), target.sample, Order::Little, 1.0)
    })
}

/// Writes a compressed file in bands.
pub(super) fn write_compressed(
    target: &Target,
    shape: &[usize],
    path: &Path,
    next: &mut NextBand,
) -> Result<()> {
    let header = make_header(target, shape)?;
    super::write_atomically(path, |file| {
        let mut encoder = GzEncoder::new(file, Compression::default());
        encoder.write_all(&header)?;
        for band in region::bands(shape, region::BAND) {
            let values = next(&band)?;
            let values = values.iter().copied();
            samples::write(&mut encoder, values, target.sample, Order::Little, 1.0)?;
        }
        encoder.finish().map(drop)
    })
}

/// What is before the values of an array of this shape.
pub(super) fn make_header(target: &Target, shape: &[usize]) -> Result<Vec<u8>> {
    let (channels, sides) = match shape {
        [1, channels, sides @ ..] if (2..=3).contains(&sides.len()) => (*channels, sides),
        _ => {
            let expected = "(1, channel, y, x) and (1, channel, z, y, x)";
            return Err(target.refuse(shape, expected));
        }
    };
    let mut dimensions = [1; 7];
    for (dimension, &side) in dimensions.iter_mut().zip(sides.iter().rev()) {
        *dimension = side;
    }
    dimensions[3] = channels;
    let axes = if channels > 1 { 4 } else { sides.len() };
    if dimensions.iter().any(|&side| side > i16::MAX as usize) {
        return Err(target.refuse(shape, "sides of up to 32767"));
    }
    let spacing = target.options.spacing.clone().unwrap_or_else(|| vec![1.0; sides.len()]);
    if spacing.len() != sides.len() || spacing.iter().any(|s| !(s.is_finite() && *s >= 0.0)) {
        return Err(Error::argument(
            "spacing",
            format!(
                "{spacing:?} for {} spatial axes; one positive number each is needed",
                sides.len()
            ),
        ));
    }
    let (code, bits) = match target.sample {
        Sample::U8 => (2, 8),
        Sample::I16 => (4, 16),
        Sample::I32 => (8, 32),
        Sample::F32 => (16, 32),
        Sample::F64 => (64, 64),
        Sample::I8 => (256, 8),
        Sample::U16 => (512, 16),
        Sample::U32 => (768, 32),
        Sample::I64 => (1024, 64),
        Sample::U64 => (1280, 64_i16),
        Sample::F16 => return Err(target.failed("NIfTI has no floats of 16 bits")),
    };
    // Four bytes behind the header say that no extension follows.
    let mut header = vec![0; HEADER + 4];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(HEADER as i32).to_le_bytes());
    put(40, &(axes as i16).to_le_bytes());
    for (axis, &side) in dimensions.iter().enumerate() {
        put(42 + 2 * axis, &(side as i16).to_le_bytes());
    }
    put(70, &(code as i16).to_le_bytes());
    put(72, &bits.to_le_bytes());
    for axis in 0..8 {
        put(76 + 4 * axis, &1_f32.to_le_bytes());
    }
    for (axis, &step) in spacing.iter().rev().enumerate() {
        put(80 + 4 * axis, &(step as f32).to_le_bytes());
    }
    put(108, &((HEADER + 4) as f32).to_le_bytes());
    put(112, &1_f32.to_le_bytes());
    put(
        123,
        &[match target.options.metadata.unit {
            Some(LengthUnit::Metre) => 1,
            Some(LengthUnit::Millimetre) | None => 2,
            Some(LengthUnit::Micrometre) => 3,
        }],
    );
    if let Some(affine) = target.options.affine {
        put(254, &1_i16.to_le_bytes());
        for (at, value) in affine.iter().flatten().enumerate() {
            put(280 + 4 * at, &(*value as f32).to_le_bytes());
        }
    }
    put(344, b"n+1\0");
    Ok(header)
}
