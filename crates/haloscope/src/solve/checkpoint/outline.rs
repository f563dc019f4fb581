//! Where the elements of a checkpoint are: in its own file, or in parts that ranks wrote beside it.
//!
//! A checkpoint in parts is a manifest: the header of a checkpoint, and for each part its length and the boxes of arrays that
//! it holds, each with its place and a checksum. Whoever resumes reads the boxes that it needs, and checks these.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::Crc;

use super::format::{self, Header};
use super::{JobId, State, Wanted};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::region::{self, Region};

/// The bytes that are read at a time.
const CHUNK: usize = 1 << 18;

/// Everything of a checkpoint but the elements.
#[derive(Debug)]
pub(super) struct Outline {
    pub(super) job: JobId,
    iteration: usize,
    numbers: Vec<(String, f64)>,
    /// The image, and the other arrays in the order of their names.
    arrays: Vec<Stored>,
}

#[derive(Debug)]
struct Stored {
    name: String,
    shape: Vec<usize>,
    pieces: Vec<Piece>,
}

/// A box of an array, whose elements lie one after the other.
#[derive(Debug)]
struct Piece {
    file: PathBuf,
    offset: u64,
    region: Region,
    /// `None` if the whole file has one.
    sum: Option<u32>,
}

/// What a manifest says about a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The number of its array; the image is 0.
    pub(super) array: usize,
    pub(super) region: Region,
    pub(super) sum: u32,
}

/// The name of a part of the checkpoint at a path.
pub(super) fn part_path(checkpoint: &Path, token: u64, rank: usize) -> PathBuf {
    checkpoint.with_extension(format!("{token:016x}.{rank}.part"))
}

/// The checkpoint that a part belongs to, by its name, and its token.
pub(super) fn of_part(part: &Path) -> Option<(PathBuf, u64)> {
    let name = part.file_name()?.to_str()?.strip_suffix(".part")?;
    let mut words = name.splitn(3, '.');
    let (iteration, token, rank) = (words.next()?, words.next()?, words.next()?);
    iteration.strip_prefix("iteration-")?.parse::<usize>().ok()?;
    rank.parse::<usize>().ok()?;
    let token = u64::from_str_radix(token, 16).ok()?;
    Some((part.with_file_name(format!("{iteration}.checkpoint")), token))
}

impl Outline {
    /// Reads all but the elements. Of a checkpoint in one file, the checksum is not looked at; see [`format::verify`].
    pub(super) fn open(path: &Path, most_bytes: u64, expected: &JobId) -> Result<Self> {
        let name = path.display().to_string();
        let frame = format::read_frame(path, most_bytes)?;
        let damaged = |reason: String| Error::Content { file: name.clone(), reason };
        let senseless = || damaged("its header makes no sense".into());
        let mut header = Header(&frame.header);
        let token = match frame.version {
            format::IN_PARTS => Some(header.u64().ok_or_else(senseless)?),
            _ => None,
        };
        let parts = header.parts().ok_or_else(senseless)?;
        let arrays = parts.arrays.into_iter().map(|(name, shape)| {
            let sides = shape.iter().map(|&side| usize::try_from(side).ok());
            let shape = sides.collect::<Option<Vec<usize>>>()?;
            // Their bytes can be counted.
            shape.iter().try_fold(4_usize, |bytes, &side| bytes.checked_mul(side))?;
            Some(Stored { name, shape, pieces: Vec::new() })
        });
        let arrays = arrays.collect::<Option<Vec<_>>>().ok_or_else(senseless)?;
        let (iteration, numbers) = (parts.iteration, parts.numbers);
        let mut outline = Self { job: parts.job, iteration, numbers, arrays };
        if let Some(token) = token {
            let files = header.manifest().ok_or_else(senseless)?;
            outline.add_parts(path, token, files)?;
        } else if header.0.is_empty() {
            let mut offset = frame.end;
            for array in &mut outline.arrays {
                let region = region::whole(&array.shape);
                let bytes = 4 * region::volume(&region) as u64;
                array.pieces = vec![Piece { file: path.to_owned(), offset, region, sum: None }];
                offset = offset.saturating_add(bytes);
            }
            if offset != frame.length - 4 {
                return Err(damaged("its arrays do not fill it".into()));
            }
        } else {
            return Err(senseless());
        }
        if outline.job.hash != expected.hash {
            return Err(format::of_another_job(&name, &outline.job, expected));
        }
        Ok(outline)
    }

    /// Finds the boxes of each part, all of whose lengths must be right, and which cover all arrays: what they say that they
    /// hold is on the disk.
    fn add_parts(&mut self, path: &Path, token: u64, files: Vec<(u64, Vec<Entry>)>) -> Result<()> {
        for (rank, (length, entries)) in files.into_iter().enumerate() {
            if entries.is_empty() {
                continue;
            }
            let file = part_path(path, token, rank);
            let damaged =
                |reason: String| Err(Error::Content { file: file.display().to_string(), reason });
            let found = match std::fs::metadata(&file) {
                Ok(metadata) => metadata.len(),
                Err(error) => return damaged(format!("a part of the checkpoint: {error}")),
            };
            if found != length {
                return damaged(format!(
                    "a part of the checkpoint has {found} bytes and was written with {length}"
                ));
            }
            let mut offset = 0_u64;
            for Entry { array, region, sum } in entries {
                let bytes = 4 * region::volume(&region) as u64;
                match self.arrays.get_mut(array) {
                    Some(stored) if stored.shape.len() == region.len() => {
                        let file = file.clone();
                        stored.pieces.push(Piece { file, offset, region, sum: Some(sum) });
                    }
                    _ => {
                        return damaged(format!("{region:?} of array {array}, which there is not"));
                    }
                }
                offset = offset.saturating_add(bytes);
            }
            if offset != length {
                return damaged(format!("its boxes take {offset} of its {length} bytes"));
            }
        }
        for array in &self.arrays {
            let regions: Vec<Region> = array.pieces.iter().map(|p| p.region.clone()).collect();
            region::check_cover(&array.shape, &regions).map_err(|error| Error::Content {
                file: path.display().to_string(),
                reason: format!("array {:?}: {error}", array.name),
            })?;
        }
        Ok(())
    }

    /// The state, of whose arrays each is all, a box, or not there.
    pub(super) fn read(&self, wanted: &Wanted<'_>) -> Result<State> {
        let mut arrays = Vec::new();
        for (number, stored) in self.arrays.iter().enumerate() {
            let name = (number > 0).then_some(&stored.name[..]);
            if let Some(region) = wanted(name, &stored.shape) {
                arrays.push((number, stored.read(&region)?));
            }
        }
        let mut state = State::new(Array::zeros(vec![0]));
        for (number, array) in arrays {
            match number {
                0 => state.image = array.into(),
                _ => drop(state.arrays.insert(self.arrays[number].name.clone(), array.into())),
            }
        }
        state.iteration = self.iteration;
        state.numbers = self.numbers.iter().cloned().collect();
        Ok(state)
    }
}

impl Stored {
    fn read(&self, region: &[Range<usize>]) -> Result<Array> {
        let fits = region.len() == self.shape.len()
            && region.iter().zip(&self.shape).all(|(range, &side)| range.end <= side);
        if !fits {
            let reason = format!("{region:?} is no part of an array of shape {:?}", self.shape);
            return Err(Error::argument("region", reason));
        }
        let mut array = Array::zeros(region::sides(region));
        if array.is_empty() {
            return Ok(array);
        }
        if self.shape.is_empty() {
            // A single number, which has no rows.
            return self.pieces.first().map_or(Ok(array), Piece::read_number);
        }
        for piece in &self.pieces {
            if let Some(common) = region::overlap(region, &piece.region) {
                piece.read(&common, &mut array, region)?;
            }
        }
        Ok(array)
    }
}

impl Piece {
    /// Checks the box, and copies a part of it to an array that covers `covered`.
    fn read(
        &self,
        part: &[Range<usize>],
        array: &mut Array,
        covered: &[Range<usize>],
    ) -> Result<()> {
        let mut file = self.open()?;
        self.verify(&mut file)?;
        let sides = region::sides(&self.region);
        let row = part[part.len() - 1].len();
        let mut bytes = vec![0; 4 * row];
        let mut next = self.offset;
        file.seek(SeekFrom::Start(next)).map_err(|error| self.failed(&error))?;
        for line in region::bands(&region::sides(part), row) {
            let line: Region = line
                .iter()
                .zip(part)
                .map(|(line, part)| part.start + line.start..part.start + line.end)
                .collect();
            let inside = region::within(&line, &self.region);
            let index =
                inside.iter().zip(&sides).fold(0, |at, (range, side)| at * side + range.start);
            let at = self.offset + 4 * index as u64;
            // Rows follow each other, and what is read ahead has many of them if they are short.
            let skipped = file.seek_relative((at - next) as i64);
            let read = skipped.and_then(|()| file.read_exact(&mut bytes));
            read.map_err(|error| self.failed(&error))?;
            next = at + bytes.len() as u64;
            let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            let values = Array::from_shape_vec(region::sides(&line), values.collect());
            let values = values.map_err(|error| self.failed(&std::io::Error::other(error)))?;
            region::copy(&values, &line, array, covered);
        }
        Ok(())
    }

    fn read_number(&self) -> Result<Array> {
        let mut file = self.open()?;
        self.verify(&mut file)?;
        let mut bytes = [0; 4];
        let read =
            file.seek(SeekFrom::Start(self.offset)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|error| self.failed(&error))?;
        Ok(Array::from_elem(vec![], f32::from_le_bytes(bytes)))
    }

    fn open(&self) -> Result<BufReader<File>> {
        let file = File::open(&self.file).map_err(|error| self.failed(&error))?;
        Ok(BufReader::with_capacity(1 << 16, file))
    }

    /// Compares the checksum of the whole box, of which a chunk is held at a time.
    fn verify(&self, file: &mut BufReader<File>) -> Result<()> {
        let Some(stored) = self.sum else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(self.offset)).map_err(|error| self.failed(&error))?;
        let sum = checksum(file, 4 * region::volume(&self.region) as u64);
        let sum = sum.map_err(|error| self.failed(&error))?;
        if sum == stored {
            return Ok(());
        }
        Err(Error::Content {
            file: self.file.display().to_string(),
            reason: format!(
                "it is damaged: the checksum of {:?} is {stored:08x}, and what is there gives {sum:08x}",
                self.region
            ),
        })
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        let (file, reason) = (self.file.display().to_string(), error.to_string());
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::Content { file, reason },
            _ => Error::File { file, reason },
        }
    }
}

/// The CRC-32 of the next bytes.
pub(super) fn checksum(file: &mut dyn Read, length: u64) -> std::io::Result<u32> {
    let mut crc = Crc::new();
    let mut bytes = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK))];
    let mut left = length;
    while left > 0 {
        let piece = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_exact(&mut bytes[..piece])?;
        crc.update(&bytes[..piece]);
        left -= piece as u64;
    }
    Ok(crc.sum())
}
