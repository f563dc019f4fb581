//! The file format of a checkpoint: a state bit for bit, with its length and a checksum.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `HALOCKPT` |
//! | 4 | version of the format |
//! | 8 | length of the file |
//! | 8 | length of the header |
//! | … | header: version of this crate, job, iteration, numbers, names and shapes of arrays |
//! | … | elements of the image and of the arrays, in the header's order |
//! | 4 | CRC-32 of everything before |
//!
//! Everything is little-endian, and texts are preceded by their length. Future versions keep the first three fields and
//! the last, so that a file of another version can be distinguished from a damaged one.

use std::io::{self, Read, Write};

use flate2::Crc;
use ndarray::IxDyn;

use super::JobId;
use crate::array::{Array, slice};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::solve::State;

const MAGIC: [u8; 8] = *b"HALOCKPT";
const VERSION: u32 = 1;
/// The bytes before the header and after the elements.
const FRAME: u64 = 8 + 4 + 8 + 8 + 4;
/// What a header may take: names and shapes, which are a few hundred bytes in fact.
const MOST_HEADER: u64 = 1 << 20;
const MOST_AXES: u32 = 32;
/// The elements that are converted at a time.
const CHUNK: usize = 1 << 16;

/// What a whole file holds.
#[derive(Debug)]
pub(super) struct Content {
    pub state: State,
    /// The job, as it was when the file was saved.
    pub job: JobId,
}

/// Everything of a state but the elements.
pub(super) fn outline(state: &State) -> Vec<u8> {
    header(state, &JobId { hash: 0, description: String::new(), versions: String::new() })
}

/// The state of an outline, with zeros for elements.
pub(super) fn blank(outline: &[u8]) -> Option<State> {
    let parts = Header(outline).parts()?;
    let mut arrays = parts.arrays.into_iter().map(|(name, shape)| {
        let sides: Vec<usize> = shape.iter().map(|&side| side as usize).collect();
        (name, Array::zeros(sides))
    });
    let (_, image) = arrays.next()?;
    let numbers = parts.numbers.into_iter().collect();
    let arrays = arrays.map(|(name, array)| (name, array.into())).collect();
    Some(State { iteration: parts.iteration, image: image.into(), arrays, numbers })
}

/// The bytes that the file of a state has.
pub(super) fn length(state: &State, job: &JobId) -> u64 {
    FRAME + header(state, job).len() as u64 + 4 * elements(state)
}

pub(super) fn write(file: &mut dyn Write, state: &State, job: &JobId) -> io::Result<()> {
    let header = header(state, job);
    let mut out = Summed { inner: file, crc: Crc::new() };
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&(FRAME + header.len() as u64 + 4 * elements(state)).to_le_bytes())?;
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    let mut bytes = Vec::with_capacity(4 * CHUNK);
    for array in arrays(state) {
        for chunk in slice(array).chunks(CHUNK) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
            out.write_all(&bytes)?;
        }
    }
    let sum = out.crc.sum().to_le_bytes();
    out.inner.write_all(&sum)
}

/// Reads a file of `length` bytes. Memory is taken for no more than these, and for nothing if it is of another job
/// than `expected`.
pub(super) fn read(
    name: &str,
    file: &mut dyn Read,
    length: u64,
    expected: &JobId,
) -> Result<Content> {
    let damaged = |reason: String| Error::Content { file: name.into(), reason };
    let failed = |error: io::Error| Error::File { file: name.into(), reason: error.to_string() };
    if length < FRAME {
        return Err(damaged(format!("it has {length} bytes, which is less than any checkpoint")));
    }
    let mut file = Summed { inner: file.take(length - 4), crc: Crc::new() };
    let parsed = parse(&mut file, name, length, expected);
    if let Err(Refusal::AtOnce(reason)) = parsed {
        return Err(damaged(reason));
    }
    let mut rest = [0; 1 << 13];
    while file.read(&mut rest).map_err(failed)? > 0 {}
    let mut stored = [0; 4];
    file.inner.set_limit(4);
    file.inner.read_exact(&mut stored).map_err(failed)?;
    let (sum, stored) = (file.crc.sum(), u32::from_le_bytes(stored));
    match parsed {
        _ if sum != stored => Err(damaged(format!(
            "it is damaged: its checksum is {stored:08x}, and what it holds gives {sum:08x}"
        ))),
        Err(Refusal::AtOnce(reason)) => Err(damaged(reason)),
        Err(Refusal::IfIntact(error)) => Err(error),
        Ok(content) => Ok(content),
    }
}

/// Why a file is not taken.
enum Refusal {
    /// Whatever else it holds.
    AtOnce(String),
    /// A damaged file may look like anything: what it says counts only if the checksum is right.
    IfIntact(Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::AtOnce(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it became shorter while it was read".into(),
            _ => format!("cannot read it: {error}"),
        })
    }
}

fn parse(
    file: &mut dyn Read,
    name: &str,
    length: u64,
    expected: &JobId,
) -> std::result::Result<Content, Refusal> {
    let content = |reason: String| Refusal::IfIntact(Error::Content { file: name.into(), reason });
    if array_of::<8>(file)? != MAGIC {
        return Err(Refusal::AtOnce("it is no checkpoint, by its first bytes".into()));
    }
    let version = u32::from_le_bytes(array_of(file)?);
    let stated = u64::from_le_bytes(array_of(file)?);
    if stated != length {
        return Err(Refusal::AtOnce(format!(
            "it has {length} bytes and was written with {stated}: it was cut short or changed"
        )));
    }
    if version != VERSION {
        return Err(Refusal::IfIntact(Error::Unsupported {
            file: name.into(),
            reason: format!(
                "a checkpoint of format {version}; this version of haloscope reads format {VERSION}"
            ),
        }));
    }
    let room = length - FRAME;
    let header_length = u64::from_le_bytes(array_of(file)?);
    if header_length > room.min(MOST_HEADER) {
        return Err(content(format!("its header claims {header_length} bytes")));
    }
    let mut header = vec![0; header_length as usize];
    file.read_exact(&mut header)?;
    let mut header = Header(&header);
    let parts = header.parts().ok_or_else(|| content("its header makes no sense".into()))?;
    if parts.job.hash != expected.hash {
        return Err(Refusal::IfIntact(Error::argument(
            "checkpoint",
            format!(
                "{name} belongs to another job: {} there, {} here; choose another folder, or start \
                 over",
                parts.job, expected
            ),
        )));
    }
    // The elements take all of the rest and no more, which also limits what is allocated.
    let mut left = Some(room - header_length);
    for (_, shape) in &parts.arrays {
        let bytes = shape.iter().try_fold(4_u64, |bytes, &side| bytes.checked_mul(side));
        left = left.zip(bytes).and_then(|(left, bytes)| left.checked_sub(bytes));
    }
    if left != Some(0) {
        return Err(content(format!("its arrays, {:?}, do not fill it", parts.arrays)));
    }
    let mut arrays = Vec::new();
    for (array_name, shape) in parts.arrays {
        let array = read_array(file, &shape)?;
        arrays.push((array_name, array));
    }
    let mut arrays = arrays.into_iter();
    let (_, image) = arrays.next().ok_or_else(|| content("it holds no image".into()))?;
    let state = State {
        iteration: parts.iteration,
        image: image.into(),
        arrays: arrays.map(|(name, array)| (name, array.into())).collect(),
        numbers: parts.numbers.into_iter().collect(),
    };
    Ok(Content { state, job: parts.job })
}

fn read_array(file: &mut dyn Read, shape: &[u64]) -> std::result::Result<Array, Refusal> {
    let too_large =
        || Refusal::AtOnce(format!("its array of shape {shape:?} does not fit in memory"));
    let sides: Option<Vec<usize>> = shape.iter().map(|&side| usize::try_from(side).ok()).collect();
    let sides = sides.ok_or_else(too_large)?;
    let count: usize = sides.iter().product();
    let mut values: Vec<f32> = Vec::new();
    values.try_reserve_exact(count).map_err(|_| too_large())?;
    let mut bytes = vec![0; 4 * CHUNK.min(count)];
    while values.len() < count {
        let bytes = &mut bytes[..4 * CHUNK.min(count - values.len())];
        file.read_exact(bytes)?;
        let (chunks, _) = bytes.as_chunks();
        values.extend(chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    }
    Array::from_shape_vec(IxDyn(&sides), values).map_err(|_| too_large())
}

fn array_of<const N: usize>(file: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The image, and the other arrays in the order of their names.
fn arrays(state: &State) -> impl Iterator<Item = &Array> {
    std::iter::once(&state.image).chain(state.arrays.values()).map(Image::local)
}

fn elements(state: &State) -> u64 {
    arrays(state).map(|array| array.len() as u64).sum()
}

fn header(state: &State, job: &JobId) -> Vec<u8> {
    let mut out = Vec::new();
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    let shape = |out: &mut Vec<u8>, array: &Array| {
        out.extend((array.ndim() as u32).to_le_bytes());
        out.extend(array.shape().iter().flat_map(|&side| (side as u64).to_le_bytes()));
    };
    out.extend(job.hash.to_le_bytes());
    text(&mut out, &job.description);
    text(&mut out, &job.versions);
    out.extend((state.iteration as u64).to_le_bytes());
    out.extend((state.numbers.len() as u32).to_le_bytes());
    for (name, number) in &state.numbers {
        text(&mut out, name);
        out.extend(number.to_bits().to_le_bytes());
    }
    out.extend((state.arrays.len() as u32).to_le_bytes());
    shape(&mut out, state.image.local());
    for (name, array) in &state.arrays {
        text(&mut out, name);
        shape(&mut out, array.local());
    }
    out
}

/// What is left of a header.
struct Header<'a>(&'a [u8]);

struct Parts {
    job: JobId,
    iteration: usize,
    numbers: Vec<(String, f64)>,
    /// Names and shapes; the image is first.
    arrays: Vec<(String, Vec<u64>)>,
}

impl Header<'_> {
    /// All of it; `None` if it does not end where it should. Lists grow as their entries are found, so that a count
    /// alone takes no memory.
    fn parts(&mut self) -> Option<Parts> {
        let job = JobId { hash: self.u64()?, description: self.text()?, versions: self.text()? };
        let iteration = usize::try_from(self.u64()?).ok()?;
        let mut numbers = Vec::new();
        for _ in 0..self.u32()? {
            numbers.push((self.text()?, f64::from_bits(self.u64()?)));
        }
        let count = self.u32()?;
        let mut arrays = vec![(String::new(), self.shape()?)];
        for _ in 0..count {
            arrays.push((self.text()?, self.shape()?));
        }
        self.0.is_empty().then_some(Parts { job, iteration, numbers, arrays })
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (start, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(start)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.u64()?).ok()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn shape(&mut self) -> Option<Vec<u64>> {
        let axes = self.u32()?;
        (axes <= MOST_AXES).then_some(())?;
        (0..axes).map(|_| self.u64()).collect()
    }
}

/// A stream with the checksum of what went through.
struct Summed<T> {
    inner: T,
    crc: Crc,
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.crc.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.crc.update(&bytes[..count]);
        Ok(count)
    }
}
