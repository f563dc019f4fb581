//! Arrays of numpy: NPY files, and NPZ archives of them.
//!
//! An NPY file is a line of Python (`{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`)
//! and then the values. Complex numbers become two channels, the real and the imaginary parts; all axes are then spatial.

use std::io::{BufReader, Read, Write};
use std::path::Path;

use ndarray::{ArrayD, IxDyn};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::plain::Plain;
use super::samples::{self, Encoded, Order, failed_read};
use super::{Axes, Format, Image, NextBand, ReadOptions, Sample, Scaling, Source, Target};
use crate::array::View;
use crate::error::{Error, Result};
use crate::region;

/// Longer headers than this are those of arrays of records, which are not read.
const MOST_HEADER: usize = 1 << 16;

/// numpy's own most.
const MOST_AXES: usize = 64;

pub(super) fn read(source: &mut Source) -> Result<Image> {
    let (plain, about) = open(source)?;
    Ok(Image { array: plain.read(source.name, source.reader)?, ..about })
}

/// Reads up to the values.
pub(super) fn open(source: &mut Source) -> Result<(Plain, Image)> {
    let length = source.length;
    read_header(source.name, source.reader, Some(length), source.options, Format::Npy)
}

/// Reads one array of an archive.
pub(super) fn read_archive(source: &mut Source) -> Result<Image> {
    with_entry(source, |name, (plain, about), entry| {
        let array = plain.read(name, entry)?;
        samples::finish(name, entry)?;
        Ok(Image { array, ..about })
    })
}

/// The numbers of an array in double precision; complex ones have a last axis of two.
pub(super) fn numbers(source: &mut Source) -> Result<ArrayD<f64>> {
    let (plain, _) = open(source)?;
    let numbers = plain.encoded.read(source.name, source.reader, plain.stored.iter().product())?;
    arranged(source.name, &plain, numbers)
}

/// The same of an array of an archive.
pub(super) fn numbers_of_archive(source: &mut Source) -> Result<ArrayD<f64>> {
    with_entry(source, |name, (plain, _), entry| {
        let numbers = plain.encoded.read(name, entry, plain.stored.iter().product())?;
        samples::finish(name, entry)?;
        arranged(name, &plain, numbers)
    })
}

/// Numbers in the order of the file as the array that they are.
fn arranged(name: &str, plain: &Plain, numbers: Vec<f64>) -> Result<ArrayD<f64>> {
    let stored = ArrayD::from_shape_vec(IxDyn(&plain.stored), numbers)
        .map_err(|error| Error::Content { file: name.into(), reason: error.to_string() })?;
    let mut order = vec![0; plain.axes.len()];
    plain.axes.iter().enumerate().for_each(|(stored, axis)| order[*axis] = stored);
    Ok(stored.permuted_axes(IxDyn(&order)).as_standard_layout().into_owned())
}

/// Does something with an array of an archive whose header has been read.
pub(super) fn with_entry<T>(
    source: &mut Source,
    read: impl FnOnce(&str, (Plain, Image), &mut dyn Read) -> Result<T>,
) -> Result<T> {
    let name = source.name;
    let damaged = |error: zip::result::ZipError| Error::Content {
        file: name.into(),
        reason: format!("it is no archive of arrays: {error}"),
    };
    let mut archive = ZipArchive::new(BufReader::new(&mut *source.reader)).map_err(damaged)?;
    let arrays: Vec<String> = archive
        .file_names()
        .filter_map(|file| Some(file.ok()?.strip_suffix(".npy")?.to_owned()))
        .collect();
    let wanted = match (&source.options.entry, &arrays[..]) {
        (Some(entry), _) if arrays.contains(entry) => entry,
        (None, [only]) => only,
        (wanted, _) => {
            let which = wanted.as_ref().map_or_else(
                || "one of its arrays must be chosen by `entry`".into(),
                |wanted| format!("it has no array {wanted}"),
            );
            let mut shown = arrays.clone();
            shown.truncate(20);
            return Err(Error::Content {
                file: name.into(),
                reason: format!("{which}; there are {} arrays: {shown:?}", arrays.len()),
            });
        }
    };
    let mut entry = archive.by_name(&format!("{wanted}.npy")).map_err(damaged)?;
    // The archive's own word for the length is not believed: values are counted as they come.
    let header = read_header(name, &mut entry, None, source.options, Format::Npz)?;
    read(name, header, &mut entry)
}

fn read_header(
    name: &str,
    reader: &mut dyn Read,
    length: Option<u64>,
    options: &ReadOptions,
    format: Format,
) -> Result<(Plain, Image)> {
    let damaged = |reason: String| Error::Content { file: name.into(), reason };
    let failed = |error: std::io::Error| failed_read(name, &error);
    let mut start = [0; 8];
    reader.read_exact(&mut start).map_err(failed)?;
    let (prefix, header) = match start {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _] => {
            let mut size = [0; 2];
            reader.read_exact(&mut size).map_err(failed)?;
            (10, usize::from(u16::from_le_bytes(size)))
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _] => {
            let mut size = [0; 4];
            reader.read_exact(&mut size).map_err(failed)?;
            (12, u32::from_le_bytes(size) as usize)
        }
        _ => return Err(damaged("it does not begin like an NPY file of version 1, 2 or 3".into())),
    };
    if header > MOST_HEADER {
        return Err(damaged(format!("a header of {header} bytes; up to {MOST_HEADER} are read")));
    }
    let mut text = vec![0; header];
    reader.read_exact(&mut text).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let header_end = (prefix + header) as u64;
    let Some(header) = Header::parse(&text) else {
        return Err(damaged(format!("its header cannot be understood: {:.200}", text.trim())));
    };
    let (descr, is_complex) = match header.descr.split_once('c') {
        Some((order, "8")) => (format!("{order}f4"), true),
        Some((order, "16")) => (format!("{order}f8"), true),
        _ => (header.descr.clone(), false),
    };
    let Some((sample, order)) = sample_of(&descr) else {
        return Err(Error::Unsupported {
            file: name.into(),
            reason: format!(
                "values of type {}; real numbers of 8 to 64 bits, complex ones and booleans are read",
                header.descr
            ),
        });
    };
    // An array without axes is one number.
    let count = options.limits.check(name, &header.shape)? * (1 + usize::from(is_complex));
    let available = length.map(|length| length.saturating_sub(header_end));
    let scaling = Scaling::NONE.and(options);
    let encoded = Encoded { sample, order, scaling, blank: None, available };
    encoded.check_available(name, count)?;
    let mut stored: Vec<usize> = header.shape.iter().map(|&side| side as usize).collect();
    let (mut axes, mut shape) = match options.axes {
        Axes::AsStored => options.axes.place(name, &stored)?,
        _ if is_complex && matches!(stored.len(), 1..=3) => {
            ((2..stored.len() + 2).collect(), [&[1, 1], &stored[..]].concat())
        }
        _ if is_complex => {
            return Err(Error::Unsupported {
                file: name.into(),
                reason: format!(
                    "complex numbers of shape {stored:?}; one to three axes, which are those of one channel, are read"
                ),
            });
        }
        axes => axes.place(name, &stored)?,
    };
    if header.is_fortran {
        stored.reverse();
        axes.reverse();
    }
    // The two parts of a number are together, whatever the order of the axes.
    if is_complex {
        stored.push(2);
        if options.axes == Axes::AsStored {
            axes.push(shape.len());
            shape.push(2);
        } else {
            axes.push(1);
            shape[1] = 2;
        }
    }
    let about = Image::about(format, sample, scaling);
    Ok((Plain { encoded, stored, axes, shape }, about))
}

/// The line of Python.
#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    is_fortran: bool,
    shape: Vec<u64>,
}

impl Header {
    fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim().strip_prefix('{')?;
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            if let Some(end) = rest.strip_prefix('}') {
                return end.trim().is_empty().then_some(()).and(Some(Self {
                    descr: descr?,
                    is_fortran: is_fortran?,
                    shape: shape?,
                }));
            }
            let (key, after) = quoted(rest)?;
            rest = after.trim_start().strip_prefix(':')?.trim_start();
            match key {
                "descr" => {
                    // A list stands for records, and is kept as it is for the message.
                    let (value, after) = match quoted(rest) {
                        Some(value) => value,
                        None => rest.split_at(rest.rfind(']')? + 1),
                    };
                    (descr, rest) = (Some(value.to_owned()), after);
                }
                "fortran_order" => {
                    let value =
                        ["True", "False"].into_iter().find(|value| rest.starts_with(value))?;
                    (is_fortran, rest) = (Some(value == "True"), &rest[value.len()..]);
                }
                "shape" => {
                    let (inside, after) = rest.strip_prefix('(')?.split_once(')')?;
                    let sides = inside.split(',').map(str::trim).filter(|side| !side.is_empty());
                    let sides: Vec<u64> = sides
                        .map(|side| side.trim_end_matches('L').parse().ok())
                        .collect::<Option<_>>()?;
                    if sides.len() > MOST_AXES {
                        return None;
                    }
                    (shape, rest) = (Some(sides), after);
                }
                _ => return None,
            }
        }
    }
}

/// A string of Python without escapes, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|&quote| quote == '\'' || quote == '"')?;
    text[1..].split_once(quote)
}

fn sample_of(descr: &str) -> Option<(Sample, Order)> {
    let mut letters = descr.chars();
    let order = match letters.next()? {
        '>' => Order::Big,
        '<' | '|' | '=' => Order::Little,
        _ => return None,
    };
    let sample = match letters.as_str() {
        "b1" | "u1" => Sample::U8,
        "i1" => Sample::I8,
        "u2" => Sample::U16,
        "i2" => Sample::I16,
        "u4" => Sample::U32,
        "i4" => Sample::I32,
        "u8" => Sample::U64,
        "i8" => Sample::I64,
        "f2" => Sample::F16,
        "f4" => Sample::F32,
        "f8" => Sample::F64,
        _ => return None,
    };
    Some((sample, order))
}

pub(super) fn write(path: &Path, array: &View, sample: Sample) -> Result<()> {
    super::write_atomically(path, |file| {
        file.write_all(&make_header(array.shape(), sample))?;
        samples::write(file, array.iter().copied(), sample, Order::Little, 1.0)
    })
}

/// Writes complex numbers from their parts, (2, …), as numpy does.
pub(super) fn write_complex(path: &Path, parts: &View) -> Result<()> {
    let standard = parts.as_standard_layout();
    let values = standard.as_slice().unwrap_or_default();
    let (real, imaginary) = values.split_at(values.len() / 2);
    super::write_atomically(path, |file| {
        file.write_all(&header_of("<c8", &parts.shape()[1..]))?;
        let numbers = real.iter().zip(imaginary).flat_map(|(re, im)| [*re, *im]);
        samples::write(file, numbers, Sample::F32, Order::Little, 1.0)
    })
}

/// Writes numbers in double precision.
pub(super) fn write_numbers(path: &Path, sides: &[usize], numbers: &[f64]) -> Result<()> {
    super::write_atomically(path, |file| {
        file.write_all(&header_of("<f8", sides))?;
        numbers.iter().try_for_each(|number| file.write_all(&number.to_le_bytes()))
    })
}

/// Writes an archive of one array, called `array` unless the options say otherwise, in bands.
pub(super) fn write_archive(
    target: &Target,
    shape: &[usize],
    path: &Path,
    next: &mut NextBand,
) -> Result<()> {
    let entry = target.options.entry.as_deref().unwrap_or("array");
    super::write_seekable(path, |file| {
        let mut archive = ZipWriter::new(file);
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .large_file(shape.iter().product::<usize>() > 1 << 28);
        let mut write = || {
            archive.start_file(format!("{entry}.npy"), options).map_err(std::io::Error::other)?;
            archive.write_all(&make_header(shape, target.sample))?;
            for band in region::bands(shape, region::BAND) {
                let values = next(&band)?;
                let values = values.iter().copied();
                samples::write(&mut archive, values, target.sample, Order::Little, 1.0)?;
            }
            Ok(())
        };
        if let Err(error) = write() {
            // An archive that is dropped tries to write its end, and prints that it cannot.
            std::mem::forget(archive);
            return Err(error);
        }
        archive.finish().map_err(std::io::Error::other)?;
        Ok(())
    })
}

/// What is before the values of an array of this shape.
pub(super) fn make_header(shape: &[usize], sample: Sample) -> Vec<u8> {
    let kind = match sample {
        Sample::U8 => "|u1",
        Sample::I8 => "|i1",
        Sample::U16 => "<u2",
        Sample::I16 => "<i2",
        Sample::U32 => "<u4",
        Sample::I32 => "<i4",
        Sample::U64 => "<u8",
        Sample::I64 => "<i8",
        Sample::F16 => "<f2",
        Sample::F32 => "<f4",
        Sample::F64 => "<f8",
    };
    header_of(kind, super::without_ones(shape))
}

fn header_of(kind: &str, sides: &[usize]) -> Vec<u8> {
    let mut shape = sides.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if sides.len() == 1 {
        shape.push(',');
    }
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Values begin at a multiple of 64.
    let unpadded = 10 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_all_writers_are_understood() {
        let header = |descr: &str, is_fortran, shape: &[u64]| {
            Some(Header { descr: descr.into(), is_fortran, shape: shape.to_vec() })
        };
        for (text, expected) in [
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n",
                header("<f4", false, &[3, 4]),
            ),
            (
                "{\"shape\":(5,),\"descr\":\"|u1\",\"fortran_order\":True}",
                header("|u1", true, &[5]),
            ),
            ("{'descr': '>i8', 'fortran_order': False, 'shape': ()}", header(">i8", false, &[])),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3L,)}",
                header("<f4", false, &[3]),
            ),
            ("{'descr': '<f4', 'shape': (3,)}", None),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", None),
            ("{'descr': '<f4', 'fortran_order': 1, 'shape': (3,)}", None),
            ("{", None),
            ("", None),
        ] {
            assert_eq!(Header::parse(text), expected, "{text}");
        }
    }

    /// An array of numpy with these bytes.
    fn array(descr: &str, is_fortran: &str, shape: &str, bytes: &[u8]) -> std::io::Cursor<Vec<u8>> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': {is_fortran}, 'shape': {shape}}}\n");
        let length = (header.len() as u16).to_le_bytes();
        let start = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat();
        std::io::Cursor::new([start, bytes.to_vec()].concat())
    }

    #[test]
    fn complex_numbers_are_two_channels() -> Result<()> {
        let bytes: Vec<u8> = (0..12_u8).flat_map(|value| f64::from(value).to_be_bytes()).collect();
        for (is_fortran, expected) in [
            ("False", [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0]),
            ("True", [0.0, 4.0, 8.0, 2.0, 6.0, 10.0, 1.0, 5.0, 9.0, 3.0, 7.0, 11.0]),
        ] {
            for axes in [Axes::Automatic, Axes::ChannelFirst] {
                let options = ReadOptions { axes, ..ReadOptions::default() };
                let file = array(">c16", is_fortran, "(2, 3)", &bytes);
                let read = crate::io::decode("a.npy", file, &options)?.array;
                assert_eq!(read.shape(), [1, 2, 2, 3]);
                assert_eq!(read.iter().copied().collect::<Vec<f32>>(), expected);
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("complex.npy");
        let parts = crate::Array::from_shape_fn(vec![2, 3, 4], |at| {
            (at[0] * 100 + at[1] * 4 + at[2]) as f32
        });
        write_complex(&path, &parts)?;
        let back = super::super::read(&path, &ReadOptions::default())?.array;
        assert_eq!(back, parts.insert_axis(ndarray::Axis(0)));
        let list = array("<c8", "False", "(6,)", &bytes[..48]);
        let read = crate::io::decode("a.npy", list, &ReadOptions::default())?.array;
        assert_eq!(read.shape(), [1, 2, 6]);
        let cut = array("<c8", "False", "(6,)", &bytes[..40]);
        let error = crate::io::decode("a.npy", cut, &ReadOptions::default()).expect_err("cut");
        assert!(error.to_string().contains("48 bytes"), "{error}");
        let many = array("<c8", "False", "(1, 1, 1, 6)", &bytes[..48]);
        let error = crate::io::decode("a.npy", many, &ReadOptions::default()).expect_err("four");
        assert!(error.to_string().contains("one to three axes"), "{error}");
        Ok(())
    }

    #[test]
    fn numbers_keep_their_double_precision() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.npy");
        let values = [1.0 / 3.0, 1e-40, 123_456_789.125, -2.0];
        let bytes: Vec<u8> = values.iter().flat_map(|value: &f64| value.to_le_bytes()).collect();
        std::fs::write(&path, array("<f8", "False", "(2, 2)", &bytes).into_inner())
            .expect("it is written");
        let read = |path: &Path| crate::io::read_numbers(path, &ReadOptions::default());
        assert_eq!(
            read(&path)?,
            ndarray::arr2(&[[values[0], values[1]], [values[2], values[3]]]).into_dyn()
        );
        // Columns first, as numpy writes a transposed array.
        let turned = folder.path().join("b.npy");
        let stored = [values[0], values[2], values[1], values[3]];
        let bytes: Vec<u8> = stored.iter().flat_map(|value: &f64| value.to_le_bytes()).collect();
        std::fs::write(&turned, array("<f8", "True", "(2, 2)", &bytes).into_inner())
            .expect("it is written");
        assert_eq!(read(&turned)?, read(&path)?);
        let two = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/files/two.npz");
        let entry = ReadOptions { entry: Some("b".into()), ..ReadOptions::default() };
        assert_eq!(crate::io::read_numbers(two, &entry)?.len(), 4);
        assert!(crate::io::read_numbers(two, &ReadOptions::default()).is_err());
        Ok(())
    }
}
