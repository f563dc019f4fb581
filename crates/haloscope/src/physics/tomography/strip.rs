//! The rays of one view that cross the image row by row, or column by column.
//!
//! Joseph's projector steps along the axis that a ray is nearest to and interpolates across it. A
//! strip is a run of neighbouring rays of a view with the same axis, in units of pixels: `along`
//! counts the lines (rows or columns) that are stepped over, `across` the pixels within a line. The
//! length of a step depends on the ray only, so that it is a factor on the measurement.
//! Parallel rays cross a line at equal distances, which is the fast case; rays from a point do not.

use super::geometry::{Rays, View2d};
use super::resample::{MARGIN, Points, SLACK, interpolate, spread};
use super::space::FARTHEST;

/// Elements in front of the first pixel of a line that is written to.
pub(super) const FRONT: usize = 8;

/// Lines that a fan writes to in turn, so that no write waits for the one before.
const INTERLEAVED: usize = 4;

/// A point or vector in units of pixels: (across lines, along lines).
#[derive(Clone, Copy, Debug)]
struct Place {
    across: f64,
    along: f64,
}

/// Rays of one view that step over the same lines.
#[derive(Clone, Debug)]
pub(super) struct Strip {
    /// The view that they belong to.
    pub(super) view: usize,
    /// The first of their bins.
    pub(super) first: usize,
    /// The number of their bins.
    pub(super) count: usize,
    course: Course,
}

/// Where the rays cross the lines.
#[derive(Clone, Debug)]
enum Course {
    /// Point `k` of line `j` is at `start + slope·j + step·k`, the bins in reversed order if the
    /// step was negative.
    Parallel { start: f64, slope: f64, step: f64, reversed: bool, weight: f64 },
    /// Ray `k` goes from the source through `bin + k·u`.
    Fan { source: Place, bin: Place, u: Place, pixel: Place },
}

/// The image as the geometry sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Rows and columns.
    pub(super) size: [usize; 2],
    /// The height and width of a pixel.
    pub(super) pixel: [f64; 2],
}

impl Grid {
    /// A point in (row, column).
    fn point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let middle = self.size.map(|size| (size as f64 - 1.0) / 2.0);
        [middle[0] - y / self.pixel[0], middle[1] + x / self.pixel[1]]
    }

    /// A vector in (rows, columns).
    fn vector(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [-y / self.pixel[0], x / self.pixel[1]]
    }
}

/// The strips of a view that step over rows, and those that step over columns.
pub(super) fn strips(view: usize, geometry: &View2d, bins: usize, grid: &Grid) -> [Vec<Strip>; 2] {
    let u = grid.vector(geometry.u);
    let centre = grid.point(geometry.centre);
    let half = (bins as f64 - 1.0) / 2.0;
    let bin: [f64; 2] = std::array::from_fn(|i| centre[i] - half * u[i]);
    // Axis 0 steps over rows: along is the row, across is the column.
    let place = |axis: usize, p: [f64; 2]| Place { along: p[axis], across: p[1 - axis] };
    let mut result = [Vec::new(), Vec::new()];
    match geometry.rays {
        Rays::Along(direction) => {
            let d = grid.vector(direction);
            let axis = usize::from(d[0].abs() < d[1].abs());
            let length = direction[0].hypot(direction[1]);
            let [d, u, bin] = [d, u, bin].map(|p| place(axis, p));
            let slope = d.across / d.along;
            let mut step = u.across - u.along * slope;
            let mut start = bin.across - bin.along * slope;
            let reversed = step < 0.0;
            if reversed {
                start += (bins as f64 - 1.0) * step;
                step = -step;
            }
            let weight = length / d.along.abs();
            let course = Course::Parallel { start, slope, step, reversed, weight };
            result[axis].push(Strip { view, first: 0, count: bins, course });
        }
        Rays::From(source) => {
            let source = grid.point(source);
            // Which axis the ray of a bin is nearest to, and which way it goes.
            let heading = |k: usize| {
                let d: [f64; 2] = std::array::from_fn(|i| bin[i] + k as f64 * u[i] - source[i]);
                let axis = usize::from(d[0].abs() < d[1].abs());
                (axis, d[axis] > 0.0)
            };
            let mut first = 0;
            for end in 1..=bins {
                let (axis, side) = heading(first);
                if end < bins && heading(end) == (axis, side) {
                    continue;
                }
                let [source, u, bin] = [source, u, bin].map(|p| place(axis, p));
                let bin = Place {
                    along: bin.along + first as f64 * u.along,
                    across: bin.across + first as f64 * u.across,
                };
                let course = Course::Fan { source, bin, u, pixel: place(axis, grid.pixel) };
                result[axis].push(Strip { view, first, count: end - first, course });
                first = end;
            }
        }
    }
    result
}

impl Strip {
    /// Whether the rays lie in the detector, or anything is further away than positions can be told
    /// apart.
    pub(super) fn is_degenerate(&self) -> bool {
        let (apart, extent) = match self.course {
            Course::Parallel { start, step, .. } => (step > 1e-6, start.abs().max(step)),
            Course::Fan { source, bin, u, .. } => {
                let d = (bin.across - source.across, bin.along - source.along);
                let area = (d.0 * u.along - d.1 * u.across).abs();
                let apart = area > 1e-9 * d.0.hypot(d.1) * u.across.hypot(u.along);
                let places = [source, bin, u].map(|p| p.across.abs().max(p.along.abs()));
                (apart, places.into_iter().fold(0.0, f64::max))
            }
        };
        !(apart && extent < FARTHEST)
    }

    /// Sums of one strip that grow line by line.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { strip: self, slopes: self.slopes(), sums: vec![0.0; self.count + SLACK] }
    }

    /// The measurements of one strip, ready to be spread over lines.
    pub(super) fn writer(&self, measurement: &[f32], factor: f64) -> Writer<'_> {
        let mut values = vec![0.0; self.count + 2 * MARGIN];
        let inner = &mut values[MARGIN..MARGIN + self.count];
        for (k, value) in inner.iter_mut().enumerate() {
            *value = (self.weight(k) * factor) as f32 * measurement[self.first + k];
        }
        if let Course::Parallel { reversed: true, .. } = self.course {
            inner.reverse();
        }
        Writer { strip: self, slopes: self.slopes(), values }
    }

    /// The length of ray `k` between two lines.
    fn weight(&self, k: usize) -> f64 {
        match self.course {
            Course::Parallel { weight, .. } => weight,
            Course::Fan { source, bin, u, pixel } => {
                let k = k as f64;
                let across = bin.across + k * u.across - source.across;
                let along = bin.along + k * u.along - source.along;
                (across * pixel.across).hypot(along * pixel.along) / along.abs()
            }
        }
    }

    /// Pixels across for each line along, by ray.
    fn slopes(&self) -> Vec<f64> {
        match self.course {
            Course::Parallel { .. } => Vec::new(),
            Course::Fan { source, bin, u, .. } => (0..self.count)
                .map(|k| {
                    let k = k as f64;
                    (bin.across + k * u.across - source.across)
                        / (bin.along + k * u.along - source.along)
                })
                .collect(),
        }
    }

    /// The crossings of parallel rays with a line.
    fn points(&self, line: usize, start: f64, slope: f64, step: f64) -> Points {
        Points { start: start + slope * line as f64, step, count: self.count }
    }
}

/// From the source of a fan to a line, if the line is on the side that the rays go to.
fn distance(line: usize, source: Place, bin: Place) -> Option<f64> {
    let distance = line as f64 - source.along;
    (distance * (bin.along - source.along) > 0.0).then_some(distance)
}

/// Sums along the rays of a strip.
pub(super) struct Reader<'a> {
    pub(super) strip: &'a Strip,
    slopes: Vec<f64>,
    sums: Vec<f32>,
}

impl Reader<'_> {
    /// Adds what the rays see of a line, which has [`MARGIN`] zeros on both sides.
    pub(super) fn read(&mut self, number: usize, line: &[f32], crossings: &mut Crossings) {
        match self.strip.course {
            Course::Parallel { start, slope, step, .. } => {
                interpolate(line, self.strip.points(number, start, slope, step), &mut self.sums);
            }
            Course::Fan { source, bin, .. } => {
                let Some(distance) = distance(number, source, bin) else { return };
                let pixels = line.len() - 2 * MARGIN;
                crossings.find(&self.slopes, source.across, distance, pixels);
                let places = crossings.below.iter().zip(&crossings.fraction);
                for (sum, (&below, &fraction)) in self.sums.iter_mut().zip(places) {
                    let i = below.wrapping_add(MARGIN as i32) as usize;
                    let pixels = &line[i..i + 2];
                    *sum += pixels[0] + fraction * (pixels[1] - pixels[0]);
                }
            }
        }
    }

    /// Writes the integrals into their bins of a view.
    pub(super) fn finish(self, factor: f64, measurement: &mut [f32]) {
        let strip = self.strip;
        let bins = &mut measurement[strip.first..strip.first + strip.count];
        for (k, (bin, sum)) in bins.iter_mut().zip(self.sums).enumerate() {
            *bin = (strip.weight(k) * factor) as f32 * sum;
        }
        if let Course::Parallel { reversed: true, .. } = strip.course {
            bins.reverse();
        }
    }
}

/// Measurements of a strip that are spread over lines.
pub(super) struct Writer<'a> {
    strip: &'a Strip,
    slopes: Vec<f64>,
    values: Vec<f32>,
}

impl Writer<'_> {
    /// Spreads over neighbouring lines, which have [`FRONT`] elements in front and [`SLACK`] behind.
    pub(super) fn write(
        &self,
        first: usize,
        lines: &mut [f32],
        stride: usize,
        crossings: &mut [Crossings; INTERLEAVED],
    ) {
        match self.strip.course {
            Course::Parallel { start, slope, step, .. } => {
                for (number, line) in (first..).zip(lines.chunks_exact_mut(stride)) {
                    let points = self.strip.points(number, start, slope, step);
                    spread(&self.values, points, &mut line[FRONT..]);
                }
            }
            Course::Fan { source, bin, .. } => {
                let values = &self.values[MARGIN..MARGIN + self.strip.count];
                let pixels = stride - FRONT - SLACK;
                let mut first = first;
                for group in lines.chunks_mut(INTERLEAVED * stride) {
                    for (number, crossings) in (first..).zip(crossings.iter_mut()) {
                        match distance(number, source, bin) {
                            Some(d) => crossings.find(&self.slopes, source.across, d, pixels),
                            None => crossings.clear(),
                        }
                    }
                    write_group(values, group, stride, crossings);
                    first += INTERLEAVED;
                }
            }
        }
    }
}

/// Adds the values of rays to where they cross some lines, ray by ray.
fn write_group(
    values: &[f32],
    group: &mut [f32],
    stride: usize,
    crossings: &[Crossings; INTERLEAVED],
) {
    let add = |line: &mut [f32], below: i32, fraction: f32, value: f32| {
        let i = below.wrapping_add(FRONT as i32) as usize;
        let pixels = &mut line[i..i + 2];
        pixels[0] += (1.0 - fraction) * value;
        pixels[1] += fraction * value;
    };
    let rays = values.len();
    let full = crossings.iter().all(|crossings| crossings.below.len() == rays);
    let mut lines = group.chunks_exact_mut(stride);
    let four = (lines.next(), lines.next(), lines.next(), lines.next());
    if let (true, (Some(a), Some(b), Some(c), Some(d))) = (full, four) {
        // Slices of one known length need no checks in the loop.
        let below: [&[i32]; INTERLEAVED] = std::array::from_fn(|i| &crossings[i].below[..rays]);
        let fraction: [&[f32]; INTERLEAVED] =
            std::array::from_fn(|i| &crossings[i].fraction[..rays]);
        for k in 0..rays {
            add(a, below[0][k], fraction[0][k], values[k]);
            add(b, below[1][k], fraction[1][k], values[k]);
            add(c, below[2][k], fraction[2][k], values[k]);
            add(d, below[3][k], fraction[3][k], values[k]);
        }
        return;
    }
    for (line, crossings) in group.chunks_exact_mut(stride).zip(crossings) {
        let places = crossings.below.iter().zip(&crossings.fraction);
        for ((&below, &fraction), &value) in places.zip(values) {
            add(line, below, fraction, value);
        }
    }
}

/// Where the rays of a fan cross one line: the pixel below, and the fraction towards the next.
#[derive(Default)]
pub(super) struct Crossings {
    below: Vec<i32>,
    fraction: Vec<f32>,
}

impl Crossings {
    fn clear(&mut self) {
        self.below.clear();
        self.fraction.clear();
    }

    /// Rays that miss the line are taken to cross it just beside its pixels.
    fn find(&mut self, slopes: &[f64], source: f64, distance: f64, pixels: usize) {
        self.below.resize(slopes.len(), 0);
        self.fraction.resize(slopes.len(), 0.0);
        let limits = (-1.0, pixels as f64);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            /// The same, compiled for wider vectors.
            #[target_feature(enable = "avx2,fma")]
            fn wide(
                slopes: &[f64],
                line: (f64, f64),
                limits: (f64, f64),
                below: &mut [i32],
                fraction: &mut [f32],
            ) {
                cross(slopes, line, limits, below, fraction);
            }
            let line = (source, distance);
            // SAFETY: the features are there.
            return unsafe { wide(slopes, line, limits, &mut self.below, &mut self.fraction) };
        }
        cross(slopes, (source, distance), limits, &mut self.below, &mut self.fraction);
    }
}

// It is compiled for several instruction sets.
#[inline(always)]
fn cross(
    slopes: &[f64],
    (source, distance): (f64, f64),
    limits: (f64, f64),
    below: &mut [i32],
    fraction: &mut [f32],
) {
    /// Adding it leaves whole numbers in the low bits, which vectorises as conversions do not.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    for ((slope, below), fraction) in slopes.iter().zip(below).zip(fraction) {
        let position = (source + distance * slope).max(limits.0).min(limits.1);
        let rounded = position - 0.5 + WHOLE;
        *below = rounded.to_bits() as i32;
        *fraction = (position - (rounded - WHOLE)) as f32;
    }
}
