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
//! In version 2 the elements are in parts of their own; see `outline.rs`. Its header begins with a token, which is in the
//! names of the parts, and ends with the boxes that each part holds.
//!
//! Everything is little-endian, and texts are preceded by their length. Future versions keep the first three fields and
//! the last, so that a file of another version can be distinguished from a damaged one.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use flate2::Crc;
use ndarray::IxDyn;

use super::JobId;
use super::outline::{Entry, checksum};
use crate::array::{Array, slice};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::region::Region;
use crate::solve::State;

const MAGIC: [u8; 8] = *b"HALOCKPT";
const VERSION: u32 = 1;
/// The version of a manifest.
pub(super) const IN_PARTS: u32 = 2;
/// The bytes before the header and after the elements.
const FRAME: u64 = 8 + 4 + 8 + 8 + 4;
/// What a header may take: names and shapes, which are a few hundred bytes in fact, and a hundred for each box of a part.
const MOST_HEADER: u64 = 1 << 26;
pub(super) const MOST_AXES: u32 = 32;
/// Where the token of a manifest ends, which its header begins with.
const TOKEN_END: usize = FRAME as usize - 4 + 8;
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
    let mut header = Header(outline);
    let parts = header.parts().filter(|_| header.0.is_empty())?;
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
        _ if sum != stored => Err(damaged(wrong_sum(stored, sum))),
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
                "a checkpoint of format {version}; this version of haloscope reads formats up to {IN_PARTS}"
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
    let parts = header.parts().filter(|_| header.0.is_empty());
    let parts = parts.ok_or_else(|| content("its header makes no sense".into()))?;
    if parts.job.hash != expected.hash {
        return Err(Refusal::IfIntact(of_another_job(name, &parts.job, expected)));
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
    let numbers = state.numbers.iter().map(|(name, number)| (&name[..], *number));
    let others = state.arrays.iter().map(|(name, array)| (&name[..], array.local().shape()));
    let arrays: Vec<_> = std::iter::once(("", state.image.local().shape())).chain(others).collect();
    put_header(&mut out, job, state.iteration, numbers, &arrays);
    out
}

/// Names and shapes; the image is first, and its name is not written.
pub(super) fn put_header<'a>(
    out: &mut Vec<u8>,
    job: &JobId,
    iteration: usize,
    numbers: impl ExactSizeIterator<Item = (&'a str, f64)>,
    arrays: &[(&str, &[usize])],
) {
    out.extend(job.hash.to_le_bytes());
    put_text(out, &job.description);
    put_text(out, &job.versions);
    out.extend((iteration as u64).to_le_bytes());
    out.extend((numbers.len() as u32).to_le_bytes());
    for (name, number) in numbers {
        put_text(out, name);
        out.extend(number.to_bits().to_le_bytes());
    }
    out.extend((arrays.len().saturating_sub(1) as u32).to_le_bytes());
    for (number, (name, shape)) in arrays.iter().enumerate() {
        if number > 0 {
            put_text(out, name);
        }
        put_shape(out, shape);
    }
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

pub(super) fn put_shape(out: &mut Vec<u8>, shape: &[usize]) {
    out.extend((shape.len() as u32).to_le_bytes());
    out.extend(shape.iter().flat_map(|&side| (side as u64).to_le_bytes()));
}

/// Starts, and then ends.
pub(super) fn put_region(out: &mut Vec<u8>, region: &[std::ops::Range<usize>]) {
    put_shape(out, &region.iter().map(|range| range.start).collect::<Vec<_>>());
    put_shape(out, &region.iter().map(|range| range.end).collect::<Vec<_>>());
}

/// Writes a file that has a header and no elements.
pub(super) fn write_manifest(file: &mut dyn Write, header: &[u8]) -> io::Result<()> {
    let mut out = Summed { inner: file, crc: Crc::new() };
    out.write_all(&MAGIC)?;
    out.write_all(&IN_PARTS.to_le_bytes())?;
    out.write_all(&(FRAME + header.len() as u64).to_le_bytes())?;
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header)?;
    let sum = out.crc.sum().to_le_bytes();
    out.inner.write_all(&sum)
}

/// What is before the elements.
pub(super) struct Frame {
    pub(super) version: u32,
    pub(super) header: Vec<u8>,
    /// Where the header ends.
    pub(super) end: u64,
    /// The bytes of the file.
    pub(super) length: u64,
}

/// Reads what is before the elements. That the file is not damaged is checked if there are none, or else by [`verify`].
pub(super) fn read_frame(path: &Path, most_bytes: u64) -> Result<Frame> {
    let name = path.display().to_string();
    let damaged = |reason: String| Error::Content { file: name.clone(), reason };
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it became shorter while it was read".into()),
        _ => Error::File { file: name.clone(), reason: error.to_string() },
    };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length > most_bytes {
        let reason = format!("it has {length} bytes; the limit is {most_bytes}");
        return Err(Error::Limit { file: name, reason });
    }
    if length < FRAME {
        return Err(damaged(format!("it has {length} bytes, which is less than any checkpoint")));
    }
    let mut file = BufReader::new(file);
    if array_of::<8>(&mut file).map_err(failed)? != MAGIC {
        return Err(damaged("it is no checkpoint, by its first bytes".into()));
    }
    let version = u32::from_le_bytes(array_of(&mut file).map_err(failed)?);
    let stated = u64::from_le_bytes(array_of(&mut file).map_err(failed)?);
    if stated != length {
        return Err(damaged(format!(
            "it has {length} bytes and was written with {stated}: it was cut short or changed"
        )));
    }
    let header = u64::from_le_bytes(array_of(&mut file).map_err(failed)?);
    let fits =
        if version == IN_PARTS { header == length - FRAME } else { header <= length - FRAME };
    if !fits || header > MOST_HEADER {
        return Err(damaged(format!("its header claims {header} bytes")));
    }
    if version != VERSION {
        verify(path)?;
    }
    if version != VERSION && version != IN_PARTS {
        let reason = format!(
            "a checkpoint of format {version}; this version of haloscope reads formats up to {IN_PARTS}"
        );
        return Err(Error::Unsupported { file: name, reason });
    }
    let mut bytes = vec![0; header as usize];
    file.read_exact(&mut bytes).map_err(failed)?;
    Ok(Frame { version, header: bytes, end: FRAME - 4 + header, length })
}

/// Compares the checksum of a file with what it holds, of which little is held at a time.
pub(super) fn verify(path: &Path) -> Result<()> {
    let name = path.display().to_string();
    let failed = |error: io::Error| Error::File { file: name.clone(), reason: error.to_string() };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut file = BufReader::new(file);
    let sum = checksum(&mut file, length.saturating_sub(4)).map_err(failed)?;
    let stored = u32::from_le_bytes(array_of(&mut file).map_err(failed)?);
    if sum == stored {
        return Ok(());
    }
    Err(Error::Content { file: name, reason: wrong_sum(stored, sum) })
}

/// The token of the manifest at a path, as far as its first bytes tell; `None` if it is none.
pub(super) fn token_of(path: &Path) -> io::Result<Option<u64>> {
    let mut start = Vec::new();
    File::open(path)?.take(TOKEN_END as u64).read_to_end(&mut start)?;
    Ok(token_in(&start))
}

/// The token of a manifest that begins so.
pub(super) fn token_in(start: &[u8]) -> Option<u64> {
    let is_manifest = start.starts_with(&MAGIC) && start.get(8..12)? == IN_PARTS.to_le_bytes();
    let token = start.get(..TOKEN_END)?.last_chunk().filter(|_| is_manifest)?;
    Some(u64::from_le_bytes(*token))
}

pub(super) fn of_another_job(name: &str, found: &JobId, expected: &JobId) -> Error {
    Error::argument(
        "checkpoint",
        format!(
            "{name} belongs to another job: {found} there, {expected} here; choose another folder, or start \
             over"
        ),
    )
}

fn wrong_sum(stored: u32, sum: u32) -> String {
    format!("it is damaged: its checksum is {stored:08x}, and what it holds gives {sum:08x}")
}

/// What is left of a header.
pub(super) struct Header<'a>(pub(super) &'a [u8]);

pub(super) struct Parts {
    pub(super) job: JobId,
    pub(super) iteration: usize,
    pub(super) numbers: Vec<(String, f64)>,
    /// Names and shapes; the image is first.
    pub(super) arrays: Vec<(String, Vec<u64>)>,
}

impl Header<'_> {
    /// All but what is about parts; `None` if it ends too early. Lists grow as their entries are found, so that a count
    /// alone takes no memory.
    pub(super) fn parts(&mut self) -> Option<Parts> {
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
        Some(Parts { job, iteration, numbers, arrays })
    }

    /// The length and the boxes of each part, to the end.
    pub(super) fn manifest(&mut self) -> Option<Vec<(u64, Vec<Entry>)>> {
        let mut files = Vec::new();
        for _ in 0..self.u32()? {
            let length = self.u64()?;
            let mut entries = Vec::new();
            for _ in 0..self.u32()? {
                let array = self.u32()? as usize;
                let region = self.region()?;
                entries.push(Entry { array, region, sum: self.u32()? });
            }
            files.push((length, entries));
        }
        self.0.is_empty().then_some(files)
    }

    /// The next part that a rank described: a name unless it is the image, the whole shape, and a region.
    pub(super) fn description(&mut self) -> Option<(Option<String>, Vec<usize>, Region)> {
        let is_named = self.take(1)? == [1];
        let name = self.text()?;
        let whole: Option<Vec<usize>> =
            self.shape()?.into_iter().map(|side| usize::try_from(side).ok()).collect();
        Some((is_named.then_some(name), whole?, self.region()?))
    }

    /// A box of fewer values than could be addressed.
    fn region(&mut self) -> Option<Region> {
        let (starts, ends) = (self.shape()?, self.shape()?);
        let range = |(start, end): (&u64, &u64)| {
            (start <= end).then_some(usize::try_from(*start).ok()?..usize::try_from(*end).ok()?)
        };
        let region: Region = starts.iter().zip(&ends).map(range).collect::<Option<_>>()?;
        let volume = region.iter().try_fold(4_usize, |all, range| all.checked_mul(range.len()));
        (starts.len() == ends.len()).then_some(())?;
        volume.map(|_| region)
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (start, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(start)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
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
