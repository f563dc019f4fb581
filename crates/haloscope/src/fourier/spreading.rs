//! From samples to a tile of the grid and back: the inner loops.
//!
//! They are compiled for every width of the kernel, and once more for wide vectors. A line of a tile is taken as real numbers,
//! two for each cell, in whole vectors; cells beyond the width have the weight 0.

use rustfft::num_complex::Complex;

use super::Real;
use super::samples::Samples;

/// The polynomials of a kernel in the precision of the transform, and its loops.
pub(super) struct Spreading<T> {
    /// From the highest power down, the coefficients of all cells that the kernel touches, and zeros up to whole vectors.
    powers: Vec<T>,
    width: usize,
    planes: usize,
}

/// What the loops read beside the tile.
struct Inputs<'a, T> {
    powers: &'a [T],
    planes: usize,
    /// Real numbers from a line, and from a plane, of the tile to the next.
    strides: [usize; 2],
    starts: &'a [u32],
    fractions: &'a [[T; 3]],
}

impl<T: Real> Spreading<T> {
    /// The loops for a kernel's polynomials on grids of two or three axes.
    pub(super) fn new(polynomials: &[Vec<f64>], axes: usize) -> Self {
        let width = polynomials[0].len();
        let lanes = super::grid::padded(width);
        let mut powers = Vec::with_capacity(polynomials.len() * lanes);
        for power in polynomials {
            powers.extend(power.iter().map(|value| T::rounded(*value)));
            powers.resize(powers.len().next_multiple_of(lanes), T::zero());
        }
        Self { powers, width, planes: if axes == 3 { width } else { 1 } }
    }

    /// Adds sorted samples with given values to their tile.
    pub(super) fn spread(
        &self,
        samples: &Samples<T>,
        range: std::ops::Range<usize>,
        values: &[Complex<T>],
        tile: &mut [T],
    ) {
        let inputs = self.inputs(samples, range.clone());
        self.run(&inputs, Job::Spread { values: &values[range], tile });
    }

    /// Writes the values of sorted samples of a tile.
    pub(super) fn interpolate(
        &self,
        samples: &Samples<T>,
        range: std::ops::Range<usize>,
        tile: &[T],
        values: &mut [Complex<T>],
    ) {
        let inputs = self.inputs(samples, range);
        self.run(&inputs, Job::Interpolate { tile, values });
    }

    fn inputs<'a>(
        &'a self,
        samples: &'a Samples<T>,
        range: std::ops::Range<usize>,
    ) -> Inputs<'a, T> {
        let [_, lines, cells] = samples.room;
        Inputs {
            powers: &self.powers,
            planes: self.planes,
            strides: [2 * cells, 2 * cells * lines],
            starts: &samples.starts[range.clone()],
            fractions: &samples.fractions[range],
        }
    }

    fn run(&self, inputs: &Inputs<T>, job: Job<T>) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the features are there.
            return unsafe { run_wide(self.width, inputs, job) };
        }
        run_width::<T, false>(self.width, inputs, job);
    }
}

/// One of the two directions.
enum Job<'a, T> {
    Spread { values: &'a [Complex<T>], tile: &'a mut [T] },
    Interpolate { tile: &'a [T], values: &'a mut [Complex<T>] },
}

/// The same, compiled for wider vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_wide<T: Real>(width: usize, inputs: &Inputs<T>, job: Job<T>) {
    run_width::<T, true>(width, inputs, job);
}

// It is compiled for several instruction sets, as are those below.
#[inline(always)]
fn run_width<T: Real, const FUSED: bool>(width: usize, inputs: &Inputs<T>, job: Job<T>) {
    macro_rules! widths {
        ($($width:literal, $lanes:literal, $reals:literal;)*) => {
            match width {
                $($width => match job {
                    Job::Spread { values, tile } => {
                        spread::<T, $width, $lanes, $reals, FUSED>(inputs, values, tile);
                    }
                    Job::Interpolate { tile, values } => {
                        interpolate::<T, $width, $lanes, $reals, FUSED>(inputs, tile, values);
                    }
                },)*
                _ => unreachable!("kernels are 2 to 16 cells wide"),
            }
        };
    }
    widths! {
        2, 4, 8; 3, 4, 8; 4, 4, 8; 5, 8, 16; 6, 8, 16; 7, 8, 16; 8, 8, 16;
        9, 12, 24; 10, 12, 24; 11, 12, 24; 12, 12, 24; 13, 16, 32; 14, 16, 32; 15, 16, 32; 16, 16, 32;
    }
}

#[inline(always)]
fn spread<
    T: Real,
    const WIDTH: usize,
    const LANES: usize,
    const REALS: usize,
    const FUSED: bool,
>(
    inputs: &Inputs<T>,
    values: &[Complex<T>],
    tile: &mut [T],
) {
    for ((&start, fraction), value) in inputs.starts.iter().zip(inputs.fractions).zip(values) {
        let along = kernel::<T, LANES, FUSED>(inputs.powers, fraction[2]);
        let across = kernel::<T, LANES, FUSED>(inputs.powers, fraction[1]);
        let deep = depth::<T, LANES, FUSED>(inputs, fraction[0]);
        let mut row = [T::zero(); REALS];
        for lane in 0..LANES {
            row[2 * lane] = along[lane] * value.re;
            row[2 * lane + 1] = along[lane] * value.im;
        }
        for (plane, &deep) in deep[..inputs.planes].iter().enumerate() {
            let start = 2 * start as usize + plane * inputs.strides[1];
            for line in 0..WIDTH {
                let start = start + line * inputs.strides[0];
                let cells = &mut tile[start..start + REALS];
                let cells: &mut [T; REALS] = cells.try_into().expect("whole vectors");
                let weight = deep * across[line];
                let mut sums = *cells;
                for lane in 0..REALS {
                    sums[lane] = sum::<T, FUSED>(weight, row[lane], sums[lane]);
                }
                *cells = sums;
            }
        }
    }
}

#[inline(always)]
fn interpolate<
    T: Real,
    const WIDTH: usize,
    const LANES: usize,
    const REALS: usize,
    const FUSED: bool,
>(
    inputs: &Inputs<T>,
    tile: &[T],
    values: &mut [Complex<T>],
) {
    for ((&start, fraction), value) in inputs.starts.iter().zip(inputs.fractions).zip(values) {
        let along = kernel::<T, LANES, FUSED>(inputs.powers, fraction[2]);
        let across = kernel::<T, LANES, FUSED>(inputs.powers, fraction[1]);
        let deep = depth::<T, LANES, FUSED>(inputs, fraction[0]);
        let mut row = [T::zero(); REALS];
        for (plane, &deep) in deep[..inputs.planes].iter().enumerate() {
            let start = 2 * start as usize + plane * inputs.strides[1];
            for line in 0..WIDTH {
                let start = start + line * inputs.strides[0];
                let cells = &tile[start..start + REALS];
                let cells: &[T; REALS] = cells.try_into().expect("whole vectors");
                let weight = deep * across[line];
                for lane in 0..REALS {
                    row[lane] = sum::<T, FUSED>(weight, cells[lane], row[lane]);
                }
            }
        }
        // Eight sums at once, and then one of each part.
        let mut sums = [T::zero(); 8];
        for chunk in 0..REALS / 8 {
            for lane in 0..8 {
                let at = 8 * chunk + lane;
                sums[lane] = sum::<T, FUSED>(along[at / 2], row[at], sums[lane]);
            }
        }
        value.re = (sums[0] + sums[4]) + (sums[2] + sums[6]);
        value.im = (sums[1] + sums[5]) + (sums[3] + sums[7]);
    }
}

/// The kernel at all cells along an axis.
#[inline(always)]
fn kernel<T: Real, const LANES: usize, const FUSED: bool>(powers: &[T], u: T) -> [T; LANES] {
    let mut values = [T::zero(); LANES];
    for power in powers.chunks_exact(LANES) {
        for lane in 0..LANES {
            values[lane] = sum::<T, FUSED>(values[lane], u, power[lane]);
        }
    }
    values
}

/// The kernel along the slowest axis, where there are three.
#[inline(always)]
fn depth<T: Real, const LANES: usize, const FUSED: bool>(inputs: &Inputs<T>, u: T) -> [T; LANES] {
    if inputs.planes > 1 { kernel::<T, LANES, FUSED>(inputs.powers, u) } else { [T::one(); LANES] }
}

/// `a b + c`, rounded once if the machine does so.
#[inline(always)]
fn sum<T: Real, const FUSED: bool>(a: T, b: T, c: T) -> T {
    if FUSED { a.fused(b, c) } else { a * b + c }
}
