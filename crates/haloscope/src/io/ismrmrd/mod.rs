//! MRI scans in files of ISMRMRD: lines of frequencies of all coils, in HDF5, with a header in XML.
//!
//! [`Scan::read`] sorts the lines of one slice or volume into a grid of frequencies for each coil, or lists them with their points
//! where they are on no grid. Lines that were measured several times are averaged. Scans of noise are told from the image, of which
//! the level is kept, and lines that are for calibration alone come separately. Everything else that is no line of the image
//! (navigators, corrections, feedback, dummies) is left out.

mod header;
mod heap;
mod lines;

use std::f64::consts::TAU;
use std::ops::Range;
use std::path::Path;

use hdf5_pure::VlenStringReadOptions;
use ndarray::IxDyn;

pub use header::{Header, Space};
use lines::{Head, Lines, flags};

use super::{Limits, exchange, guarded};
use crate::Array;
use crate::error::{Error, Result};
use crate::fourier::Complex;
use crate::physics::fourier::Centred;

/// A header of more bytes is none that a scanner wrote.
const MOST_HEADER: usize = 16 << 20;

/// The most frequencies of a grid for each that was measured: more than any scan leaves out.
const MOST_ACCELERATION: u64 = 256;

/// Which lines of a file are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The group of the file that has `xml` and `data`.
    pub group: String,
    /// The slice; of all other counters, the first that the slice has.
    pub slice: usize,
    /// Whether samples that only widen the field of view along the lines are kept.
    pub keeps_oversampling: bool,
}

impl Default for Selection {
    fn default() -> Self {
        Self { group: "dataset".into(), slice: 0, keeps_oversampling: false }
    }
}

/// One slice or volume of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// What the file says about grids.
    pub header: Header,
    /// What the coils measured.
    pub samples: Samples,
    /// Lines for calibration alone, if there are some: for each coil (2, ky, kx) or (2, kz, ky, kx), with zeros elsewhere.
    pub calibration: Option<Vec<Array>>,
    /// The standard deviation of the real and the imaginary parts in scans of noise, over all coils, if there are some.
    pub noise: Option<f64>,
    /// How many lines a frequency of the grid is the mean of: noise of the means has the variance of one line divided by this, in the
    /// mean over all that were measured. 1 for points anywhere.
    pub averages: f64,
    /// How many slices, contrasts, phases, repetitions and sets the file has: one of each was read.
    pub counts: [(&'static str, usize); 5],
    /// How many lines were read, and how many are neither of the image nor for calibration.
    pub lines: [usize; 2],
}

/// What coils measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Frequencies on a grid, with frequency 0 in the middle.
    Grid {
        /// For each coil (2, ky, kx), or (2, kz, ky, kx) of a volume, with zeros where nothing was measured.
        coils: Vec<Array>,
        /// 1 where something was measured: (1, ky, kx) or (1, kz, ky, kx).
        mask: Array,
    },
    /// Frequencies anywhere.
    Anywhere {
        /// For each coil (2, sample).
        coils: Vec<Array>,
        /// Radians for each pixel along each axis of the image, sample by sample: (y, x) or (z, y, x).
        points: Vec<f64>,
        /// The sides of the image, in the same order.
        sides: Vec<usize>,
        /// Whether the points of the file were taken as cycles for each pixel, and not as steps of the encoded grid.
        are_cycles: bool,
    },
}

/// What the counters of lines are called.
const COUNTERS: [&str; 5] = ["slices", "contrasts", "phases", "repetitions", "sets"];

impl Scan {
    /// Reads the lines that are selected.
    ///
    /// Points of trajectories are along x, y and z. ISMRMRD does not say their unit: those within ±0.5 are taken as cycles for each
    /// pixel of the image, others as steps of the grid that was measured.
    ///
    /// ```no_run
    /// use haloscope::io::Limits;
    /// use haloscope::io::ismrmrd::{Samples, Scan, Selection};
    ///
    /// let scan = Scan::read("scan.h5", &Selection::default(), &Limits::default())?;
    /// if let Samples::Grid { coils, mask } = scan.samples {
    ///     println!("{} coils of {:?}, {} frequencies", coils.len(), coils[0].shape(), mask.sum());
    /// }
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn read(path: impl AsRef<Path>, selection: &Selection, limits: &Limits) -> Result<Self> {
        let (path, name) = (path.as_ref(), path.as_ref().display().to_string());
        guarded(&name, || {
            let file = exchange::open(path, &name, limits)?;
            let group = selection.group.trim_matches('/');
            let failed = |error: hdf5_pure::Error| exchange::refused(&name, &error);
            let xml = file.dataset(&format!("{group}/xml")).map_err(|_| Error::Content {
                file: name.clone(),
                reason: format!(
                    "it has no header /{group}/xml as ISMRMRD has it; `entry` names another group"
                ),
            })?;
            let most = VlenStringReadOptions::new()
                .with_max_elements(1)
                .with_max_payload_bytes(MOST_HEADER);
            let xml = xml.read_vlen_strings(most).map_err(failed)?.pop().unwrap_or_default();
            let header = Header::parse(&name, &xml)?;
            let lines = Lines::read(path, &name, &file, &format!("{group}/data"), limits)?;
            Sorter { name: &name, header: &header, selection, limits, lines }.scan()
        })
    }

    /// The coils.
    #[must_use]
    pub fn coils(&self) -> &[Array] {
        match &self.samples {
            Samples::Grid { coils, .. } | Samples::Anywhere { coils, .. } => coils,
        }
    }
}

/// What sorts the lines of a file.
struct Sorter<'a> {
    name: &'a str,
    header: &'a Header,
    selection: &'a Selection,
    limits: &'a Limits,
    lines: Lines,
}

/// Sums of lines on a grid, and how many there were.
struct Grid {
    /// (ky, kx) or (kz, ky, kx).
    sides: Vec<usize>,
    sums: Vec<Vec<Complex<f32>>>,
    counts: Vec<u32>,
}

impl Sorter<'_> {
    fn scan(mut self) -> Result<Scan> {
        let refuse = |reason: String| Err(Error::Content { file: self.name.into(), reason });
        let is_line = |head: &Head| head.flags & (flags::NOISE | flags::OTHERS) == 0;
        let all: Vec<usize> = (0..self.lines.heads.len())
            .filter(|&line| {
                is_line(&self.lines.heads[line]) && self.lines.heads[line].encoding == 0
            })
            .collect();
        let mut most = [0; 5];
        for &line in &all {
            let counters = self.lines.heads[line].counters;
            most.iter_mut().zip(counters).for_each(|(most, counter)| *most = counter.max(*most));
        }
        let slice = self.selection.slice;
        let of_slice = |line: &&usize| self.lines.heads[**line].counters[0] == slice;
        let Some(first) = all.iter().find(of_slice).map(|&line| self.lines.heads[line]) else {
            return refuse(format!(
                "slice {slice} has no lines; it has {} lines in {} slices, counted from 0",
                all.len(),
                most[0] + 1
            ));
        };
        let chosen = |line: &&usize| self.lines.heads[**line].counters == first.counters;
        let chosen: Vec<usize> = all.iter().filter(chosen).copied().collect();
        if let Some(&line) = chosen.iter().find(|&&line| {
            let head = self.lines.heads[line];
            (head.coils, head.axes) != (first.coils, first.axes)
        }) {
            let head = self.lines.heads[line];
            let reason = format!(
                "{} coils and {} axes of points, and the first line has {} and {}",
                head.coils, head.axes, first.coils, first.axes
            );
            return Err(self.lines.damaged(line, reason));
        }
        if first.coils == 0 {
            return refuse("its lines are of no coil".into());
        }
        let is_calibration = |line: &&usize| {
            let flags = self.lines.heads[**line].flags;
            flags & flags::CALIBRATION != 0 && flags & flags::CALIBRATION_AND_IMAGE == 0
        };
        let (calibration, image): (Vec<usize>, Vec<usize>) =
            chosen.iter().partition(is_calibration);
        // A file with nothing but calibration is a scan of these lines.
        let (calibration, image) =
            if image.is_empty() { (Vec::new(), calibration) } else { (calibration, image) };
        let noise = self.noise()?;
        let lines = [image.len(), self.lines.heads.len() - all.len()];
        // Echoes of EPI without points are lines as others are, though nothing corrects them.
        let is_grid = match self.header.trajectory.as_str() {
            "cartesian" => true,
            "epi" => first.axes == 0,
            _ => false,
        };
        let (samples, calibration, averages) = if is_grid {
            let wide = self.wide(&image)?;
            let grid = self.grid(&image, first.coils, wide)?;
            let calibration = if calibration.is_empty() {
                None
            } else {
                Some(self.grid(&calibration, first.coils, wide)?.coils())
            };
            let (mask, averages) = (grid.mask(), grid.averages());
            (Samples::Grid { coils: grid.coils(), mask }, calibration, averages)
        } else {
            (self.anywhere(&image, first)?, None, 1.0)
        };
        let counts = std::array::from_fn(|index| (COUNTERS[index], most[index] + 1));
        let header = self.header.clone();
        Ok(Scan { header, samples, calibration, noise, averages, counts, lines })
    }

    /// The encoded samples of a line, if they are to be brought to those of the image. A line of which samples are missing cannot be.
    fn wide(&self, image: &[usize]) -> Result<Option<usize>> {
        let wide = self.header.encoded.matrix[0];
        for &line in image {
            if self.lines.kept(line)?.len() != wide {
                return Ok(None);
            }
        }
        let is_wanted = self.header.is_oversampled() && !self.selection.keeps_oversampling;
        Ok(is_wanted.then_some(wide))
    }

    fn grid(&mut self, lines: &[usize], coils: usize, wide: Option<usize>) -> Result<Grid> {
        let [x, y, z] = self.header.encoded.matrix;
        let columns = if wide.is_some() { self.header.recon.matrix[0] } else { x };
        let shape = [coils, 2, z, y, x.max(columns)];
        let values = self.limits.check(self.name, &shape.map(|side| side as u64))? as u64;
        exchange::check_plausible(self.name, 4 * values, self.lines.file_bytes, MOST_ACCELERATION)?;
        let sides: Vec<usize> = if z > 1 { vec![z, y, columns] } else { vec![y, columns] };
        let cells = sides.iter().product();
        let sums = vec![vec![Complex::default(); cells]; coils];
        let mut grid = Grid { sides, sums, counts: vec![0; cells] };
        let transforms = wide.map(|wide| [Centred::new(&[wide]), Centred::new(&[columns])]);
        for &line in lines {
            let head = self.lines.heads[line];
            let kept = self.lines.kept(line)?;
            // Samples at both ends of a whole line are all of the grid's.
            let begin = match kept.len() {
                count if count == x => Some(0),
                _ if head.flags & flags::REVERSE != 0 => {
                    (x / 2 + head.centre + 1).checked_sub(kept.end)
                }
                _ => (x / 2 + kept.start).checked_sub(head.centre),
            };
            let row = |axis: usize, side: usize| {
                let centre = self.header.centres[axis].unwrap_or(side / 2);
                (side / 2 + head.steps[axis]).checked_sub(centre).filter(|place| *place < side)
            };
            let (Some(begin), Some(row), Some(plane)) = (begin, row(0, y), row(1, z)) else {
                return Err(self.outside(line));
            };
            if begin + kept.len() > x {
                return Err(self.outside(line));
            }
            // Lines for calibration may be shorter than those of the image: then the frequencies that they reach are kept.
            let range = match wide {
                Some(wide) if kept.len() < wide => reached(begin, kept.len(), wide, columns),
                Some(_) => 0..columns,
                None => begin..begin + kept.len(),
            };
            let at = (plane * y + row) * columns;
            let samples = self.lines.samples(line)?;
            for (sum, samples) in grid.sums.iter_mut().zip(samples.chunks_exact(kept.len())) {
                if let Some(transforms) = &transforms {
                    let mut whole = vec![Complex::default(); x];
                    whole[begin..begin + kept.len()].copy_from_slice(samples);
                    let narrow = narrowed(&whole, transforms, columns);
                    let to = sum[at + range.start..at + range.end].iter_mut();
                    to.zip(&narrow[range.clone()]).for_each(|(sum, value)| *sum += value);
                } else {
                    let to = sum[at + begin..].iter_mut();
                    to.zip(samples).for_each(|(sum, value)| *sum += value);
                }
            }
            let counts = &mut grid.counts[at + range.start..at + range.end];
            for count in counts {
                *count += 1;
            }
        }
        Ok(grid)
    }

    fn outside(&self, line: usize) -> Error {
        let head = self.lines.heads[line];
        let reason = format!(
            "its {} samples around {} at the steps {:?} are not all on the grid of {:?}",
            head.samples, head.centre, head.steps, self.header.encoded.matrix
        );
        self.lines.damaged(line, reason)
    }

    fn anywhere(&mut self, lines: &[usize], first: Head) -> Result<Samples> {
        let unsupported =
            |reason: String| Err(Error::Unsupported { file: self.name.into(), reason });
        let [x, y, z] = self.header.recon.matrix;
        let sides = if z > 1 { vec![z, y, x] } else { vec![y, x] };
        if first.axes == 0 {
            return unsupported(format!(
                "its trajectory is `{}` and its lines have no points; cartesian scans, and others with points, are read",
                self.header.trajectory
            ));
        }
        if !(2..=3).contains(&first.axes) || first.axes < sides.len() {
            return unsupported(format!(
                "points of {} axes for an image of {}; as many, or a third that is 0, are read",
                first.axes,
                sides.len()
            ));
        }
        let mut count = 0;
        for &line in lines {
            count += self.lines.kept(line)?.len();
        }
        // A list is as long as it is; all sides are together as many as the limit of all elements.
        let limits = Limits { side: self.limits.elements, ..self.limits.clone() };
        limits.check(self.name, &[first.coils as u64, 2, count as u64])?;
        let mut values = vec![vec![0.0_f32; 2 * count]; first.coils];
        let (mut stored, mut at) = (Vec::with_capacity(count * first.axes), 0);
        for &line in lines {
            stored.extend(self.lines.points(line)?);
            let kept = self.lines.kept(line)?.len();
            let samples = self.lines.samples(line)?;
            for (coil, samples) in values.iter_mut().zip(samples.chunks_exact(kept)) {
                for (index, sample) in samples.iter().enumerate() {
                    (coil[at + index], coil[count + at + index]) = (sample.re, sample.im);
                }
            }
            at += kept;
        }
        let (points, are_cycles) = self.radians(&stored, first.axes, sides.len())?;
        let coil = |values| Array::from_shape_vec(IxDyn(&[2, count]), values);
        let coils = values.into_iter().map(coil).collect::<std::result::Result<_, _>>();
        let coils = coils.map_err(|error| self.lines.damaged(0, error.to_string()))?;
        Ok(Samples::Anywhere { coils, points, sides, are_cycles })
    }

    /// Points along (z,) y, x in radians for each pixel, and whether they were in cycles.
    fn radians(&self, stored: &[f32], axes: usize, wanted: usize) -> Result<(Vec<f64>, bool)> {
        let refuse = |reason: String| Err(Error::Content { file: self.name.into(), reason });
        if stored.iter().any(|point| !point.is_finite()) {
            return refuse("points of its trajectory are not finite".into());
        }
        if axes > wanted && stored.chunks_exact(axes).any(|point| point[wanted] != 0.0) {
            return refuse(format!(
                "points of {axes} axes, the last of which is not 0, for an image of {wanted}"
            ));
        }
        let places = || stored.chunks_exact(axes).flat_map(|point| &point[..wanted]);
        let farthest = places().fold(0.0_f32, |farthest, point| farthest.max(point.abs()));
        let is_cycles = f64::from(farthest) <= 0.5 * (1.0 + 1e-5);
        let steps = |axis: usize| self.header.encoded.matrix[axis].max(1) as f64;
        let step = |axis: usize| if is_cycles { TAU } else { TAU / steps(axis) };
        let mut points = Vec::with_capacity(stored.len() / axes * wanted);
        for point in stored.chunks_exact(axes) {
            points.extend((0..wanted).rev().map(|axis| f64::from(point[axis]) * step(axis)));
        }
        let limit = std::f64::consts::PI * (1.0 + 1e-5);
        if points.iter().any(|point| point.abs() > limit) {
            return refuse(format!(
                "points of its trajectory reach {farthest}; up to 0.5, or to half of the grid {:?}, is expected",
                self.header.encoded.matrix
            ));
        }
        let inside = |point: f64| point.clamp(-std::f64::consts::PI, std::f64::consts::PI);
        Ok((points.into_iter().map(inside).collect(), is_cycles))
    }

    /// The standard deviation of what was measured without a signal.
    fn noise(&mut self) -> Result<Option<f64>> {
        let (mut squares, mut count) = (0.0_f64, 0_u64);
        for line in 0..self.lines.heads.len() {
            if self.lines.heads[line].flags & flags::NOISE == 0 {
                continue;
            }
            for value in self.lines.samples(line)? {
                squares += f64::from(value.re).powi(2) + f64::from(value.im).powi(2);
                count += 2;
            }
        }
        Ok((count > 0).then(|| (squares / count as f64).sqrt()))
    }
}

/// The frequencies of a narrowed line that samples from `begin` on of the wide one reach.
fn reached(begin: usize, count: usize, wide: usize, columns: usize) -> Range<usize> {
    let step = wide as f64 / columns as f64;
    let place = |column: &usize| {
        (wide / 2) as f64 + (*column as f64 - (columns / 2) as f64) * step - begin as f64
    };
    let mut inside =
        (0..columns).filter(|column| (0.0..=count as f64 - 1.0).contains(&place(column)));
    inside.next().map_or(0..0, |first| first..inside.next_back().unwrap_or(first) + 1)
}

/// A line of fewer frequencies, whose image is the middle of the image of the line.
fn narrowed(
    line: &[Complex<f32>],
    [wide, narrow]: &[Centred; 2],
    columns: usize,
) -> Vec<Complex<f32>> {
    let mut values = line.to_vec();
    wide.run(true, &mut values);
    let begin = line.len() / 2 - columns / 2;
    let mut middle = values[begin..begin + columns].to_vec();
    narrow.run(false, &mut middle);
    middle
}

impl Grid {
    fn mask(&self) -> Array {
        let shape: Vec<usize> = std::iter::once(1).chain(self.sides.iter().copied()).collect();
        let values = self.counts.iter().map(|count| f32::from(*count > 0)).collect();
        Array::from_shape_vec(IxDyn(&shape), values).expect("a count for each frequency")
    }

    fn averages(&self) -> f64 {
        let parts =
            self.counts.iter().filter(|count| **count > 0).map(|count| 1.0 / f64::from(*count));
        let (sum, count) = parts.fold((0.0, 0.0), |(sum, count), part| (sum + part, count + 1.0));
        if sum > 0.0 { count / sum } else { 1.0 }
    }

    /// The means of the lines, (2, sides…) for each coil.
    fn coils(self) -> Vec<Array> {
        let shape: Vec<usize> = std::iter::once(2).chain(self.sides.iter().copied()).collect();
        let parts = |sums: Vec<Complex<f32>>| {
            let mean = |(sum, count): (&Complex<f32>, &u32)| sum / (*count).max(1) as f32;
            let means: Vec<Complex<f32>> = sums.iter().zip(&self.counts).map(mean).collect();
            let values = means.iter().map(|mean| mean.re).chain(means.iter().map(|mean| mean.im));
            Array::from_shape_vec(IxDyn(&shape), values.collect())
                .expect("a sum for each frequency")
        };
        self.sums.into_iter().map(parts).collect()
    }
}
