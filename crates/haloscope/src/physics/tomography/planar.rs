//! The line integrals of an image, in parallel or fan beams, and their exact transpose.
//!
//! Joseph's projector, see `strip.rs`. Forward, a task owns some views and reads the image in bands
//! of lines that stay in cache; for the adjoint, a task owns a band of lines and takes from all
//! views, so that no two tasks write to the same place and the order of every sum is fixed. Rays
//! that are nearer to columns work on the transposed image, where they run like the others.

use std::ops::Range;
use std::sync::Arc;

use haloscope_nn::Stop;
use rayon::prelude::*;

use super::geometry::{Grouping, Rays, Scan2d, check_finite, check_lengths, middle_of};
use super::norm::unit_factor;
use super::resample::{MARGIN, SLACK};
use super::strip::{Crossings, FRONT, Grid, Reader, Strip, strips};
use crate::error::{Error, Result};
use crate::physics::window::check_restriction;
use crate::physics::{LinearPhysics, Physics};

/// Views that one task measures together, sharing the lines that it has in cache.
const VIEWS: usize = 8;

/// Lines that are worked on together: their pixels stay in cache while views take turns.
const BAND: usize = 16;

/// The line integrals of images (channel, height, width): sinograms (channel, view, bin).
///
/// ```
/// use haloscope::physics::{LinearPhysics, Physics};
/// use haloscope::physics::tomography::{ParallelBeam, Tomography2d, evenly_spaced};
///
/// let scan = ParallelBeam::new(evenly_spaced(90, std::f64::consts::PI), 96);
/// let operator = Tomography2d::new(&[1, 64, 64], scan)?;
/// let sinogram = operator.forward(&ndarray::ArrayD::ones(vec![1, 1, 64, 64]))?;
/// assert_eq!(sinogram.shape(), [1, 1, 90, 96]);
/// // A ray straight through the middle crosses 64 pixels of size 1.
/// assert!((sinogram[[0, 0, 0, 48]] - 64.0).abs() < 1e-4);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tomography2d {
    shape: [usize; 3],
    measurement: [usize; 3],
    pixel: [f64; 2],
    scan: Scan2d,
    factor: f64,
    /// Strips that step over rows and over columns, in the order of their views.
    strips: [Vec<Strip>; 2],
}

impl Tomography2d {
    /// For images of a shape (channel, height, width) with pixels of size 1.
    pub fn new(shape: &[usize], scan: impl Into<Scan2d>) -> Result<Self> {
        Self::with_pixels(shape, [1.0; 2], scan)
    }

    /// For pixels of a height and width, in the unit of the scan.
    pub fn with_pixels(shape: &[usize], pixel: [f64; 2], scan: impl Into<Scan2d>) -> Result<Self> {
        let scan = scan.into();
        let &[channels, height, width] = shape else {
            return Err(Error::argument(
                "tomography",
                format!("images of shape {shape:?}; (channel, height, width) is accepted"),
            ));
        };
        check_lengths("the size of pixels", &pixel)?;
        match &scan {
            Scan2d::Parallel(scan) => check_lengths("the spacing of bins", &[scan.spacing])?,
            Scan2d::Fan(scan) => check_lengths(
                "a distance of the scan",
                &[
                    scan.spacing,
                    scan.source_distance,
                    scan.source_distance + scan.detector_distance,
                ],
            )?,
            Scan2d::Views { .. } => {}
        }
        let (views, bins) = (scan.views(), scan.bins());
        let counts = [channels, height, width, views.len(), bins];
        if counts.contains(&0) || counts.iter().any(|&count| count > 1 << 24) {
            return Err(Error::argument(
                "tomography",
                format!(
                    "images of shape {shape:?}, {} views of {bins} bins; each of these is at \
                     least 1 and at most 2^24",
                    views.len()
                ),
            ));
        }
        let grid = Grid { size: [height, width], pixel };
        let mut all = [Vec::new(), Vec::new()];
        for (i, view) in views.iter().enumerate() {
            let (Rays::Along(rays) | Rays::From(rays)) = view.rays;
            check_finite("a vector of a view", &[rays, view.centre, view.u].concat())?;
            for (all, new) in all.iter_mut().zip(strips(i, view, bins, &grid)) {
                if new.iter().any(Strip::is_degenerate) {
                    return Err(Error::argument(
                        "tomography",
                        format!(
                            "the rays of view {i} lie in its detector, or it is too far away: its middle is \
                             at {:?}",
                            view.centre
                        ),
                    ));
                }
                all.extend(new);
            }
        }
        let shape = [channels, height, width];
        let measurement = [channels, views.len(), bins];
        Ok(Self { shape, measurement, pixel, scan, factor: 1.0, strips: all })
    }

    /// The same operator times a factor: integrals in other units, for example.
    pub fn scaled(mut self, factor: f64) -> Result<Self> {
        check_lengths("the factor", &[factor])?;
        self.factor *= factor;
        Ok(self)
    }

    /// The same operator with a norm of 1, to about 1e-4.
    pub fn normalised(self) -> Result<Self> {
        let factor = unit_factor(&self)?;
        self.scaled(factor)
    }

    /// What line integrals are multiplied with.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// How the image is scanned.
    #[must_use]
    pub fn scan(&self) -> &Scan2d {
        &self.scan
    }

    /// The height and width of a pixel.
    #[must_use]
    pub fn pixel(&self) -> [f64; 2] {
        self.pixel
    }

    /// Operators that have some of the views each, and all of them together.
    pub fn split(&self, groups: usize, grouping: Grouping) -> Result<Vec<Self>> {
        let places = grouping.places(self.measurement[1], groups)?;
        places
            .iter()
            .map(|places| {
                let part = Self::with_pixels(&self.shape, self.pixel, self.scan.select(places))?;
                part.scaled(self.factor)
            })
            .collect()
    }

    fn forward_plane(&self, image: &[f32], sinogram: &mut [f32]) {
        let [_, height, width] = self.shape;
        let bins = self.measurement[2];
        // Each kind of line is there if a strip steps over it.
        let rows = self.lines(0, height, width, |line| image[line * width..][..width].into());
        let columns = self
            .lines(1, width, height, |line| image[line..].iter().step_by(width).copied().collect());
        let stop = Stop::current();
        // Few views leave no thread without a task.
        let views = self.measurement[1];
        let together = views.div_ceil(rayon::current_num_threads()).clamp(1, VIEWS);
        sinogram.par_chunks_mut(together * bins).enumerate().for_each(|(task, sinogram)| {
            if stop.is_requested() {
                return;
            }
            let first = task * together;
            let mut crossings = Crossings::default();
            for (strips, (lines, length)) in
                self.strips.iter().zip([(&rows, width), (&columns, height)])
            {
                let begin = strips.partition_point(|strip| strip.view < first);
                let end = strips.partition_point(|strip| strip.view < first + together);
                let mut readers: Vec<Reader> =
                    strips[begin..end].iter().map(Strip::reader).collect();
                let stride = length + 2 * MARGIN;
                for (band, lines) in lines.chunks(BAND * stride).enumerate() {
                    for reader in &mut readers {
                        for (i, line) in lines.chunks_exact(stride).enumerate() {
                            reader.read(band * BAND + i, line, &mut crossings);
                        }
                    }
                }
                for reader in readers {
                    let at = (reader.strip.view - first) * bins;
                    reader.finish(self.factor, &mut sinogram[at..at + bins]);
                }
            }
        });
    }

    /// The lines that strips step over, with zeros around each of them.
    fn lines<'a>(
        &self,
        axis: usize,
        count: usize,
        length: usize,
        line: impl Fn(usize) -> std::borrow::Cow<'a, [f32]> + Sync,
    ) -> Vec<f32> {
        if self.strips[axis].is_empty() {
            return Vec::new();
        }
        let stride = length + 2 * MARGIN;
        let mut lines = vec![0.0; count * stride];
        lines.par_chunks_mut(stride).enumerate().for_each(|(i, to)| {
            to[MARGIN..MARGIN + length].copy_from_slice(&line(i));
        });
        lines
    }

    fn adjoint_plane(&self, sinogram: &[f32], image: &mut [f32]) {
        let [_, height, width] = self.shape;
        self.write_lines(0, sinogram, width, image);
        if self.strips[1].is_empty() {
            return;
        }
        let mut columns = vec![0.0; width * height];
        self.write_lines(1, sinogram, height, &mut columns);
        image.par_chunks_mut(width).enumerate().for_each(|(row, image)| {
            for (image, &value) in image.iter_mut().zip(columns[row..].iter().step_by(height)) {
                *image += value;
            }
        });
    }

    /// Writes what the strips of an axis give to the lines that they step over.
    fn write_lines(&self, axis: usize, sinogram: &[f32], length: usize, lines: &mut [f32]) {
        let bins = self.measurement[2];
        let writers: Vec<_> = self.strips[axis]
            .par_iter()
            .map(|strip| strip.writer(&sinogram[strip.view * bins..][..bins], self.factor))
            .collect();
        let stride = FRONT + length + SLACK;
        let stop = Stop::current();
        lines.par_chunks_mut(BAND * length).enumerate().for_each(|(band, lines)| {
            if stop.is_requested() {
                return;
            }
            let mut sums = vec![0.0; lines.len() / length * stride];
            let mut crossings = std::array::from_fn(|_| Crossings::default());
            for writer in &writers {
                writer.write(band * BAND, &mut sums, stride, &mut crossings);
            }
            for (line, sums) in lines.chunks_exact_mut(length).zip(sums.chunks_exact(stride)) {
                line.copy_from_slice(&sums[FRONT..FRONT + length]);
            }
        });
    }
}

impl Physics for Tomography2d {
    fn name(&self) -> &'static str {
        "tomography"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let image = image.chunks_exact(self.shape[1] * self.shape[2]);
        let sinogram = measurement.chunks_exact_mut(self.measurement[1] * self.measurement[2]);
        image.zip(sinogram).for_each(|(image, sinogram)| self.forward_plane(image, sinogram));
        Ok(Stop::check()?)
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        let rays: f64 = self.measurement.iter().map(|&count| count as f64).product();
        2.0 * rays * self.shape[1].max(self.shape[2]) as f64
    }
}

impl LinearPhysics for Tomography2d {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let sinogram = measurement.chunks_exact(self.measurement[1] * self.measurement[2]);
        let image = image.chunks_exact_mut(self.shape[1] * self.shape[2]);
        sinogram.zip(image).for_each(|(sinogram, image)| self.adjoint_plane(sinogram, image));
        Ok(Stop::check()?)
    }

    /// The same rays through the part alone, whose middle is the origin of their coordinates.
    fn restricted(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        let part = || {
            check_restriction(self.name(), &self.shape, image)?;
            let [channels, height, width] = self.shape;
            let (rows, columns) = (&image[0], &image[1]);
            // Rows are counted downwards, and y upwards.
            let y = -middle_of(rows, height) * self.pixel[0];
            let x = middle_of(columns, width) * self.pixel[1];
            let views = self.scan.views().iter().map(|view| view.seen_from([x, y])).collect();
            let scan = Scan2d::Views { views, bins: self.measurement[2] };
            let shape = [channels, rows.len(), columns.len()];
            Self::with_pixels(&shape, self.pixel, scan)?.scaled(self.factor)
        };
        Some(part().map(|part| Arc::new(part) as Arc<dyn Physics>))
    }
}
