//! The acquisitions of an ISMRMRD file: records of a header, points of a trajectory, and samples.

use std::path::Path;

use hdf5_pure::{Datatype, DatatypeByteOrder, File};

use super::super::Limits;
use super::super::exchange::{check_plausible, refused};
use super::heap::{Heap, REFERENCE};
use crate::error::{Error, Result};
use crate::fourier::Complex;

/// What the header of a line says, as far as it counts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) flags: u64,
    pub(super) samples: usize,
    pub(super) coils: usize,
    /// Samples at both ends that do not count.
    pub(super) discard: [usize; 2],
    /// The sample at frequency 0.
    pub(super) centre: usize,
    pub(super) encoding: usize,
    /// Numbers of the trajectory for each sample.
    pub(super) axes: usize,
    /// Counters of the first and the second phase direction.
    pub(super) steps: [usize; 2],
    /// Slice, contrast, phase, repetition and set.
    pub(super) counters: [usize; 5],
}

/// Flags of lines, of which the format counts bits from 1.
pub(super) mod flags {
    const fn bit(number: u32) -> u64 {
        1 << (number - 1)
    }

    pub(in super::super) const NOISE: u64 = bit(19);
    pub(in super::super) const CALIBRATION: u64 = bit(20);
    pub(in super::super) const CALIBRATION_AND_IMAGE: u64 = bit(21);
    pub(in super::super) const REVERSE: u64 = bit(22);
    /// Navigators, corrections, feedback, dummies and references, none of which is a line of the image.
    pub(in super::super) const OTHERS: u64 =
        bit(23) | bit(24) | bit(26) | bit(27) | bit(28) | bit(29) | bit(30) | bit(31);
}

/// All lines of a file: their headers, and references to their numbers.
pub(super) struct Lines {
    name: String,
    pub(super) heads: Vec<Head>,
    records: Vec<u8>,
    record: usize,
    /// Where a record has its references to points and samples.
    points: usize,
    samples: usize,
    heap: Heap,
    /// The length of the file.
    pub(super) file_bytes: u64,
}

/// The members of a line's header that are read, and those of its counters.
const MEMBERS: [&str; 8] = [
    "flags",
    "number_of_samples",
    "active_channels",
    "discard_pre",
    "discard_post",
    "center_sample",
    "encoding_space_ref",
    "trajectory_dimensions",
];
const COUNTERS: [&str; 7] = [
    "kspace_encode_step_1",
    "kspace_encode_step_2",
    "slice",
    "contrast",
    "phase",
    "repetition",
    "set",
];

impl Lines {
    /// Reads the headers of the dataset `entry`.
    pub(super) fn read(
        path: &Path,
        name: &str,
        file: &File,
        entry: &str,
        limits: &Limits,
    ) -> Result<Self> {
        let damaged = |reason: String| Error::Content { file: name.into(), reason };
        let failed = |error: hdf5_pure::Error| refused(name, &error);
        let dataset = file.dataset(entry).map_err(|_| {
            damaged(format!("it has no dataset /{entry} of lines; `entry` names another group"))
        })?;
        let superblock = file.superblock();
        if (superblock.offset_size, superblock.length_size) != (8, 8) {
            let reason = format!(
                "addresses of {} and lengths of {} bytes; 8 of each are read",
                superblock.offset_size, superblock.length_size
            );
            return Err(Error::Unsupported { file: name.into(), reason });
        }
        let datatype = dataset.datatype().map_err(failed)?;
        let record = dataset.element_size().map_err(failed)? as usize;
        let count = limits.check(name, &dataset.shape().map_err(failed)?)?;
        let bytes = (count as u64).saturating_mul(record as u64);
        check_plausible(
            name,
            bytes,
            file.file_size(),
            if dataset.filters().is_empty() { 1 } else { 1100 },
        )?;
        if bytes > limits.elements.saturating_mul(4) {
            let reason =
                format!("{bytes} bytes of headers; the limit is {} values", limits.elements);
            return Err(Error::Limit { file: name.into(), reason });
        }
        let layout = Layout::of(&datatype, record)
            .ok_or_else(|| damaged(format!("/{entry} does not hold lines as ISMRMRD has them")))?;
        let records = dataset.read_raw().map_err(failed)?;
        let heads = records.chunks_exact(record).map(|record| layout.head(record)).collect();
        let read =
            |error: std::io::Error| Error::File { file: name.into(), reason: error.to_string() };
        let base = superblock.base_address.get();
        let heap =
            Heap::new(name, std::fs::File::open(path).map_err(read)?, file.file_size(), base);
        let Layout { points, samples, .. } = layout;
        let (name, file_bytes) = (name.into(), file.file_size());
        Ok(Self { name, heads, records, record, points, samples, heap, file_bytes })
    }

    /// The samples of a line that count, coil after coil.
    pub(super) fn samples(&mut self, line: usize) -> Result<Vec<Complex<f32>>> {
        let head = self.heads[line];
        let values = self.list(line, self.samples)?;
        if values.len() != 2 * head.samples * head.coils {
            return Err(self.damaged(
                line,
                format!(
                    "{} values for {} samples of {} coils",
                    values.len(),
                    head.samples,
                    head.coils
                ),
            ));
        }
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(
                self.damaged(line, format!("a sample of {value}; finite numbers are expected"))
            );
        }
        let kept = self.kept(line)?;
        let of_coil = |coil: &[f32]| -> Vec<Complex<f32>> {
            coil.chunks_exact(2).map(|parts| Complex::new(parts[0], parts[1])).collect()
        };
        let mut all = Vec::with_capacity(kept.len() * head.coils);
        for coil in values.chunks_exact((2 * head.samples).max(1)) {
            let mut samples = of_coil(coil)[kept.clone()].to_vec();
            if head.flags & flags::REVERSE != 0 {
                samples.reverse();
            }
            all.extend(samples);
        }
        Ok(all)
    }

    /// The points of a line's samples that count: as many numbers for each as its header says.
    pub(super) fn points(&mut self, line: usize) -> Result<Vec<f32>> {
        let head = self.heads[line];
        let values = self.list(line, self.points)?;
        if values.len() != head.samples * head.axes {
            return Err(self.damaged(
                line,
                format!(
                    "{} numbers for {} points of {} axes",
                    values.len(),
                    head.samples,
                    head.axes
                ),
            ));
        }
        let kept = self.kept(line)?;
        Ok(values[kept.start * head.axes..kept.end * head.axes].to_vec())
    }

    /// The samples of a line that count, of all.
    pub(super) fn kept(&self, line: usize) -> Result<std::ops::Range<usize>> {
        let Head { samples, discard: [before, after], .. } = self.heads[line];
        if before + after < samples {
            return Ok(before..samples - after);
        }
        Err(self.damaged(line, format!("{before} and {after} of {samples} samples are discarded")))
    }

    /// An error in a line.
    pub(super) fn damaged(&self, line: usize, reason: impl std::fmt::Display) -> Error {
        Error::Content { file: self.name.clone(), reason: format!("line {line}: {reason}") }
    }

    fn list(&mut self, line: usize, at: usize) -> Result<Vec<f32>> {
        let at = line * self.record + at;
        let reference = self.records.get(at..at + REFERENCE).unwrap_or_default();
        self.heap.floats(reference)
    }
}

/// Where a record has what is read.
struct Layout {
    /// Offset and bytes of [`MEMBERS`], then of [`COUNTERS`].
    numbers: Vec<(usize, usize)>,
    points: usize,
    samples: usize,
}

impl Layout {
    fn of(datatype: &Datatype, record: usize) -> Option<Self> {
        let (at, head) = member(datatype, "head")?;
        let (counters_at, counters) = member(head, "idx")?;
        let whole = |base: usize, all: &Datatype, name: &str| match member(all, name)? {
            (offset, Datatype::FixedPoint { size, byte_order, .. })
                if *byte_order == DatatypeByteOrder::LittleEndian && *size <= 8 =>
            {
                let (at, size) = (base.checked_add(offset)?, *size as usize);
                (at.checked_add(size)? <= record).then_some((at, size))
            }
            _ => None,
        };
        let mut numbers = Vec::new();
        for name in MEMBERS {
            numbers.push(whole(at, head, name)?);
        }
        for name in COUNTERS {
            numbers.push(whole(at.checked_add(counters_at)?, counters, name)?);
        }
        let list = |name: &str| match member(datatype, name)? {
            (at, Datatype::VariableLength { is_string: false, base_type, .. })
                if matches!(
                    **base_type,
                    Datatype::FloatingPoint {
                        size: 4,
                        byte_order: DatatypeByteOrder::LittleEndian,
                        ..
                    }
                ) && at.checked_add(REFERENCE)? <= record =>
            {
                Some(at)
            }
            _ => None,
        };
        Some(Self { numbers, points: list("traj")?, samples: list("data")? })
    }

    fn head(&self, record: &[u8]) -> Head {
        let number = |index: usize| {
            let (at, size) = self.numbers[index];
            record[at..at + size]
                .iter()
                .rev()
                .fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
        };
        let count = |index: usize| number(index).min(u64::from(u32::MAX)) as usize;
        let counter = |index: usize| count(MEMBERS.len() + index);
        Head {
            flags: number(0),
            samples: count(1),
            coils: count(2),
            discard: [count(3), count(4)],
            centre: count(5),
            encoding: count(6),
            axes: count(7),
            steps: [counter(0), counter(1)],
            counters: [counter(2), counter(3), counter(4), counter(5), counter(6)],
        }
    }
}

/// Offset and type of a member of a record.
fn member<'a>(datatype: &'a Datatype, name: &str) -> Option<(usize, &'a Datatype)> {
    let Datatype::Compound { members, .. } = datatype else { return None };
    let found = members.iter().find(|member| member.name == name)?;
    Some((usize::try_from(found.byte_offset).ok()?, &found.datatype))
}
