//! The non-uniform Fourier transform: planned for points, run many times.

use std::fmt;

use rayon::prelude::*;
use rustfft::num_complex::Complex;

use super::Real;
use super::grid::Grid;
use super::passes::Passes;
use super::samples::{Samples, Task};
use super::spreading::Spreading;
use crate::error::{Error, Result};

/// The Fourier transform of images of two or three axes at points that are on no grid.
///
/// `forward` is `y_j = Σ_p x_p exp(−i p · ω_j)`, where the pixel `p` counts from the middle of the image, which is pixel
/// `side / 2` along each axis, and `ω_j` is in radians; `adjoint` is `x_p = Σ_j y_j exp(i p · ω_j)`. They are exact adjoints
/// of each other: both have the relative error that is asked for, and it is the same error.
///
/// Results have the same bits on any number of threads of the pool in which they are called.
///
/// ```
/// use haloscope::fourier::{Complex, Nufft};
///
/// // At frequency 0 the transform is the sum of all pixels.
/// let plan = Nufft::<f32>::new(&[16, 24], &[0.0, 0.0, 1.0, -2.5], 1e-5)?;
/// let mut scratch = plan.scratch();
/// let image = vec![Complex::new(1.0, 0.0); 16 * 24];
/// let mut samples = vec![Complex::default(); 2];
/// plan.forward(&image, &mut samples, &mut scratch)?;
/// assert!((samples[0].re - 384.0).abs() < 1e-2);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub struct Nufft<T> {
    sides: Vec<usize>,
    accuracy: f64,
    grid: Grid,
    samples: Samples<T>,
    spreading: Spreading<T>,
    passes: Passes<T>,
}

/// Memory that transforms work in, one after the other. Any plan may use that of another, which it enlarges if it has to.
pub struct Scratch<T> {
    grid: Vec<Complex<T>>,
    between: Vec<Complex<T>>,
    sorted: Vec<Complex<T>>,
    tiles: Vec<Vec<T>>,
}

/// Tiles that are held for each thread before they are added to the grid.
const TILES_PER_THREAD: usize = 4;

impl<T: Real> Nufft<T> {
    /// Plans transforms between images of two or three sides and samples at points, which are as many radians for each sample
    /// as the image has axes, with a relative error of about `accuracy`: up to 1e-6 in `f32`, up to 1e-14 in `f64`.
    ///
    /// Points that differ by 2π are the same.
    pub fn new(sides: &[usize], points: &[f64], accuracy: f64) -> Result<Self> {
        let refuse = |reason: String| Err(Error::argument("nufft", reason));
        if !matches!(sides.len(), 2 | 3) || sides.contains(&0) {
            return refuse(format!(
                "the image has sides {sides:?}; two or three that are not 0 are expected"
            ));
        }
        if !points.len().is_multiple_of(sides.len()) {
            return refuse(format!(
                "{} coordinates of points for images of {} axes; as many for each point are expected",
                points.len(),
                sides.len()
            ));
        }
        if let Some(index) = points.iter().position(|point| !point.is_finite()) {
            let (point, value) = (index / sides.len(), points[index]);
            return refuse(format!(
                "point {point} has the coordinate {value}; a finite number is expected"
            ));
        }
        if u32::try_from(points.len()).is_err() {
            return refuse(format!(
                "{} points; below 2³² coordinates are expected",
                points.len() / sides.len()
            ));
        }
        if !(T::BEST..=0.1).contains(&accuracy) {
            return refuse(format!(
                "an accuracy of {accuracy:e}; {:e} to 0.1 is expected",
                T::BEST
            ));
        }
        let Some(grid) = Grid::fastest(sides, points.len() / sides.len(), accuracy, T::ROUNDING)
        else {
            return refuse(format!("no kernel has an accuracy of {accuracy:e}"));
        };
        let samples = Samples::new(&grid, points);
        let spreading = Spreading::new(&grid.kernel.polynomials(0.1 * accuracy), sides.len());
        let passes = Passes::new(sides, &grid);
        Ok(Self { sides: sides.to_vec(), accuracy, grid, samples, spreading, passes })
    }

    /// The sides of the images.
    #[must_use]
    pub fn sides(&self) -> &[usize] {
        &self.sides
    }

    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples.places.len()
    }

    /// About how many multiply-adds a transform takes.
    #[must_use]
    pub fn cost(&self) -> f64 {
        16.0 * self.grid.cost(self.samples())
    }

    /// The bytes of a plan and of its [`Scratch`] on so many threads, before it is made; `None` if no kernel has the accuracy.
    #[must_use]
    pub fn bytes(
        sides: &[usize],
        samples: usize,
        accuracy: f64,
        threads: usize,
    ) -> Option<[usize; 2]> {
        let grid = Grid::fastest(sides, samples, accuracy, T::ROUNDING)?;
        let (plan, tile) = Samples::<T>::bytes(&grid, samples);
        let values = Passes::<T>::values(sides, &grid) + samples;
        let tiles = threads * TILES_PER_THREAD * tile;
        Some([plan, (values + tiles) * size_of::<Complex<T>>()])
    }

    /// The bytes of a [`Scratch`] on so many threads.
    #[must_use]
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        let values = self.grid_values() + self.passes.scratch() + self.samples();
        let tiles = threads * TILES_PER_THREAD * self.samples.cells_of_tile();
        (values + tiles) * size_of::<Complex<T>>()
    }

    /// Memory for transforms one after the other.
    #[must_use]
    pub fn scratch(&self) -> Scratch<T> {
        let mut scratch = Scratch::default();
        self.fit(&mut scratch);
        scratch
    }

    fn fit(&self, scratch: &mut Scratch<T>) {
        scratch.grid.resize(self.grid_values(), Complex::default());
        scratch.between.resize(self.passes.scratch(), Complex::default());
        scratch.sorted.resize(self.samples(), Complex::default());
    }

    /// Writes the samples of an image.
    pub fn forward(
        &self,
        image: &[Complex<T>],
        samples: &mut [Complex<T>],
        scratch: &mut Scratch<T>,
    ) -> Result<()> {
        self.check(image.len(), samples.len())?;
        self.fit(scratch);
        self.passes.forward(image, &mut scratch.between, &mut scratch.grid);
        let mut tasks = Vec::with_capacity(self.samples.tasks.len());
        let mut rest = &mut scratch.sorted[..];
        for task in &self.samples.tasks {
            let (values, others) = rest.split_at_mut(task.samples.len());
            tasks.push((task, values));
            rest = others;
        }
        let grid = &scratch.grid;
        tasks.into_par_iter().for_each_init(Vec::new, |tile, (task, values)| {
            tile.resize(2 * self.samples.cells_of_tile(), T::zero());
            self.read_tile(task, grid, tile);
            self.spreading.interpolate(&self.samples, task.samples.clone(), tile, values);
        });
        let sorted = &scratch.sorted;
        let pairs = samples.par_chunks_mut(4096).zip(self.samples.ranks.par_chunks(4096));
        pairs.for_each(|(samples, ranks)| {
            for (sample, rank) in samples.iter_mut().zip(ranks) {
                *sample = sorted[*rank as usize];
            }
        });
        Ok(())
    }

    /// Writes the image whose inner product with any other is that of the samples with the other's samples.
    pub fn adjoint(
        &self,
        samples: &[Complex<T>],
        image: &mut [Complex<T>],
        scratch: &mut Scratch<T>,
    ) -> Result<()> {
        self.check(image.len(), samples.len())?;
        self.fit(scratch);
        let Scratch { grid, tiles, sorted, .. } = scratch;
        let pairs = sorted.par_chunks_mut(4096).zip(self.samples.places.par_chunks(4096));
        pairs.for_each(|(sorted, places)| {
            for (sorted, place) in sorted.iter_mut().zip(places) {
                *sorted = samples[*place as usize];
            }
        });
        let sorted = &*sorted;
        let plane = self.samples.grid[1] * self.passes.pitch();
        let slab = if self.sides.len() == 2 { self.passes.pitch() } else { plane };
        grid.par_chunks_mut(slab).for_each(|slab| slab.fill(Complex::default()));
        let wave = TILES_PER_THREAD * rayon::current_num_threads();
        tiles.resize_with(tiles.len().max(wave), Vec::new);
        // Every cell of the grid takes its tiles in the order of the tasks, whatever the number of tasks in a wave.
        for tasks in self.samples.tasks.chunks(wave) {
            tasks.par_iter().zip(&mut *tiles).for_each(|(task, tile)| {
                tile.clear();
                tile.resize(2 * self.samples.cells_of_tile(), T::zero());
                self.spreading.spread(&self.samples, task.samples.clone(), sorted, tile);
            });
            let tiles = &*tiles;
            grid.par_chunks_mut(slab).enumerate().for_each(|(index, slab)| {
                for (task, tile) in tasks.iter().zip(tiles) {
                    self.add_tile(task, tile, index, slab);
                }
            });
        }
        self.passes.adjoint(grid, image);
        Ok(())
    }

    fn grid_values(&self) -> usize {
        self.passes.lines() * self.passes.pitch()
    }

    fn check(&self, pixels: usize, samples: usize) -> Result<()> {
        let expected = self.sides.iter().product::<usize>();
        if pixels == expected && samples == self.samples() {
            return Ok(());
        }
        let reason = format!(
            "an image of {pixels} pixels and {samples} samples; {expected} pixels and {} samples are expected",
            self.samples()
        );
        Err(Error::argument("nufft", reason))
    }

    /// Copies a tile and its margin from the grid.
    fn read_tile(&self, task: &Task, grid: &[Complex<T>], tile: &mut [T]) {
        let [_, height, width] = self.samples.grid;
        let [_, lines, cells] = self.samples.room;
        for (index, line) in tile.chunks_exact_mut(2 * cells).enumerate() {
            let plane = (task.corner[0] + index / lines) % self.samples.grid[0];
            let row = (task.corner[1] + index % lines) % height;
            let from = &grid[(plane * height + row) * self.passes.pitch()..][..width];
            let mut line = line;
            let mut start = task.corner[2];
            while !line.is_empty() {
                let count = (line.len() / 2).min(width - start);
                let (part, rest) = line.split_at_mut(2 * count);
                for (to, from) in part.chunks_exact_mut(2).zip(&from[start..]) {
                    to[0] = from.re;
                    to[1] = from.im;
                }
                (line, start) = (rest, 0);
            }
        }
    }

    /// Adds what of a tile and its margin falls into a slab of the grid: a line of two axes, or a plane of three.
    fn add_tile(&self, task: &Task, tile: &[T], index: usize, slab: &mut [Complex<T>]) {
        let [depth, height, width] = self.samples.grid;
        let [planes, lines, cells] = self.samples.room;
        let is_flat = self.sides.len() == 2;
        let (corner, side, room) =
            if is_flat { (task.corner[1], height, lines) } else { (task.corner[0], depth, planes) };
        let first = (index + side - corner) % side;
        for local in (first..room).step_by(side) {
            let rows = if is_flat { 1 } else { lines };
            for row in 0..rows {
                let from = &tile[2 * cells * (local * rows + row)..][..2 * cells];
                let at = if is_flat { 0 } else { (task.corner[1] + row) % height };
                let to = &mut slab[at * self.passes.pitch()..][..width];
                let mut from = from;
                let mut start = task.corner[2];
                while !from.is_empty() {
                    let count = (from.len() / 2).min(width - start);
                    let (part, rest) = from.split_at(2 * count);
                    for (to, from) in to[start..].iter_mut().zip(part.chunks_exact(2)) {
                        to.re = to.re + from[0];
                        to.im = to.im + from[1];
                    }
                    (from, start) = (rest, 0);
                }
            }
        }
    }
}

impl<T> fmt::Debug for Nufft<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nufft")
            .field("sides", &self.sides)
            .field("samples", &self.samples.places.len())
            .field("accuracy", &self.accuracy)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self { grid: Vec::new(), between: Vec::new(), sorted: Vec::new(), tiles: Vec::new() }
    }
}

impl<T> fmt::Debug for Scratch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").field("grid", &self.grid.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.f64() - 0.5).collect()
    }

    fn complex<T: Real>(count: usize, seed: u64) -> Vec<Complex<T>> {
        let part = |value: f64| T::rounded(value);
        let parts = numbers(2 * count, seed);
        parts.chunks(2).map(|pair| Complex::new(part(pair[0]), part(pair[1]))).collect()
    }

    fn wide<T: Real>(values: &[Complex<T>]) -> Vec<Complex<f64>> {
        let part = |value: T| value.wide();
        values.iter().map(|value| Complex::new(part(value.re), part(value.im))).collect()
    }

    /// Both directions by the sums that define them.
    fn direct(
        sides: &[usize],
        points: &[f64],
        image: &[Complex<f64>],
        samples: &[Complex<f64>],
    ) -> (Vec<Complex<f64>>, Vec<Complex<f64>>) {
        let mut forward = vec![Complex::default(); samples.len()];
        let mut adjoint = vec![Complex::default(); image.len()];
        for (sample, point) in points.chunks(sides.len()).enumerate() {
            for pixel in 0..image.len() {
                let (mut rest, mut phase) = (pixel, 0.0);
                for axis in (0..sides.len()).rev() {
                    let place = (rest % sides[axis]) as f64 - (sides[axis] / 2) as f64;
                    phase += place * point[axis];
                    rest /= sides[axis];
                }
                let turn = Complex::from_polar(1.0, phase);
                forward[sample] += image[pixel] * turn.conj();
                adjoint[pixel] += samples[sample] * turn;
            }
        }
        (forward, adjoint)
    }

    fn distance(found: &[Complex<f64>], expected: &[Complex<f64>]) -> f64 {
        let difference: f64 = found.iter().zip(expected).map(|(a, b)| (a - b).norm_sqr()).sum();
        (difference / expected.iter().map(Complex::norm_sqr).sum::<f64>()).sqrt()
    }

    /// The relative errors of both directions at points that lie up to three turns around.
    fn errors<T: Real>(sides: &[usize], count: usize, accuracy: f64) -> (f64, f64) {
        let points: Vec<f64> =
            numbers(count * sides.len(), 1).iter().map(|turns| turns * 20.0).collect();
        let plan = Nufft::<T>::new(sides, &points, accuracy).expect("a plan");
        let image = complex::<T>(sides.iter().product(), 2);
        let samples = complex::<T>(count, 3);
        let (mut forward, mut adjoint) = (samples.clone(), image.clone());
        let mut scratch = plan.scratch();
        plan.forward(&image, &mut forward, &mut scratch).expect("forward");
        plan.adjoint(&samples, &mut adjoint, &mut scratch).expect("adjoint");
        let expected = direct(sides, &points, &wide(&image), &wide(&samples));
        (distance(&wide(&forward), &expected.0), distance(&wide(&adjoint), &expected.1))
    }

    #[test]
    fn both_directions_are_the_sums_that_define_them_at_every_accuracy() {
        for sides in [&[20, 33][..], &[1, 18], &[7, 8, 9], &[14, 1, 5]] {
            // Few samples and many take grids of different fineness.
            for count in [30, 400] {
                for power in 1..=6 {
                    let accuracy = 10.0_f64.powi(-power);
                    let (forward, adjoint) = errors::<f32>(sides, count, accuracy);
                    assert!(forward < 2.0 * accuracy, "{sides:?} {accuracy} {forward}");
                    assert!(adjoint < 2.0 * accuracy, "{sides:?} {accuracy} {adjoint}");
                }
                for power in 2..=7 {
                    let accuracy = 100.0_f64.powi(-power);
                    let (forward, adjoint) = errors::<f64>(sides, count, accuracy);
                    assert!(forward < 2.0 * accuracy, "{sides:?} {accuracy} {forward}");
                    assert!(adjoint < 2.0 * accuracy, "{sides:?} {accuracy} {adjoint}");
                }
            }
        }
    }

    #[test]
    fn the_directions_are_exact_adjoints_at_any_accuracy() {
        for (sides, accuracy) in [(&[30, 40][..], 1e-2), (&[30, 40], 1e-10), (&[9, 12, 10], 1e-3)] {
            let points: Vec<f64> = numbers(900 * sides.len(), 4).iter().map(|x| x * 6.0).collect();
            let plan = Nufft::<f64>::new(sides, &points, accuracy).expect("a plan");
            let (image, samples) = (complex::<f64>(sides.iter().product(), 5), complex(900, 6));
            let (mut forward, mut adjoint) = (samples.clone(), image.clone());
            let mut scratch = plan.scratch();
            plan.forward(&image, &mut forward, &mut scratch).expect("forward");
            plan.adjoint(&samples, &mut adjoint, &mut scratch).expect("adjoint");
            let inner = |a: &[Complex<f64>], b: &[Complex<f64>]| {
                a.iter().zip(b).map(|(a, b)| a * b.conj()).sum::<Complex<f64>>()
            };
            let (left, right) = (inner(&forward, &samples), inner(&image, &adjoint));
            assert!((left - right).norm() < 1e-13 * 900.0 * left.norm().max(1.0), "{left} {right}");
        }
    }

    #[test]
    fn the_bits_are_the_same_on_any_number_of_threads() {
        // Most samples are in a few cells, so that their tile is several tasks.
        let mut points = numbers(2 * 60_000, 7);
        points
            .iter_mut()
            .enumerate()
            .for_each(|(index, x)| *x *= if index % 7 < 5 { 0.05 } else { 6.0 });
        let plan = Nufft::<f32>::new(&[120, 90], &points, 1e-4).expect("a plan");
        assert!(plan.samples.tasks.len() > 4);
        let (image, samples) = (complex::<f32>(120 * 90, 8), complex::<f32>(60_000, 9));
        let run = |threads: usize| {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let (mut forward, mut adjoint) = (samples.clone(), image.clone());
            pool.install(|| {
                let mut scratch = plan.scratch();
                plan.forward(&image, &mut forward, &mut scratch).expect("forward");
                plan.adjoint(&samples, &mut adjoint, &mut scratch).expect("adjoint");
            });
            (forward, adjoint)
        };
        let one = run(1);
        for threads in [2, 3, 5, 8] {
            assert!(run(threads) == one, "{threads} threads");
        }
    }

    #[test]
    fn wide_vectors_have_the_values_of_narrow_ones() {
        // Those of f64 agree to its rounding, whichever instructions ran.
        let (forward, adjoint) = errors::<f64>(&[40, 24], 700, 1e-13);
        assert!(forward < 1e-12 && adjoint < 1e-12, "{forward} {adjoint}");
    }

    #[test]
    fn no_samples_are_a_dark_image() {
        let plan = Nufft::<f32>::new(&[8, 8], &[], 1e-3).expect("a plan");
        let mut image = complex::<f32>(64, 1);
        plan.forward(&image, &mut [], &mut plan.scratch()).expect("forward");
        plan.adjoint(&[], &mut image, &mut plan.scratch()).expect("adjoint");
        assert!(image.iter().all(|value| value.norm_sqr() == 0.0));
    }

    #[test]
    fn what_cannot_be_planned_or_run_is_refused() {
        let message = |sides: &[usize], points: &[f64], accuracy: f64| {
            Nufft::<f32>::new(sides, points, accuracy).expect_err("refused").to_string()
        };
        assert!(message(&[8], &[0.0], 1e-3).contains("[8]"));
        assert!(message(&[8, 0], &[0.0, 0.0], 1e-3).contains("[8, 0]"));
        assert!(message(&[8, 8], &[0.0; 3], 1e-3).contains("3 coordinates"));
        assert!(message(&[8, 8], &[0.0, 0.0, 1.0, f64::NAN], 1e-3).contains("point 1"));
        assert!(message(&[8, 8], &[0.0, 0.0], 1e-9).contains("1e-9"));
        assert!(Nufft::<f64>::new(&[8, 8], &[0.0, 0.0], 1e-9).is_ok());
        let plan = Nufft::<f32>::new(&[8, 8], &[0.0, 0.0], 1e-3).expect("a plan");
        let (mut image, mut samples) = (complex::<f32>(64, 1), complex::<f32>(1, 1));
        assert!(plan.forward(&image[1..], &mut samples, &mut plan.scratch()).is_err());
        assert!(plan.adjoint(&[], &mut image, &mut plan.scratch()).is_err());
    }

    #[test]
    fn plans_of_different_sizes_share_their_memory() {
        let points = numbers(2 * 300, 1);
        let mut scratch = Scratch::default();
        for sides in [[40, 30], [9, 50], [40, 30]] {
            let plan = Nufft::<f32>::new(&sides, &points, 1e-4).expect("a plan");
            let (image, samples) = (complex::<f32>(sides[0] * sides[1], 2), complex::<f32>(300, 3));
            let run = |scratch: &mut Scratch<f32>| {
                let (mut forward, mut adjoint) = (samples.clone(), image.clone());
                plan.forward(&image, &mut forward, scratch).expect("forward");
                plan.adjoint(&samples, &mut adjoint, scratch).expect("adjoint");
                (forward, adjoint)
            };
            assert!(run(&mut scratch) == run(&mut plan.scratch()), "{sides:?}");
        }
    }
}
