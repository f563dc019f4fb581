//! The transform of a kernel on a grid, computed in f64 and kept in f32.
//!
//! Only the half that determines the rest is kept: `width / 2 + 1` frequencies along the last axis. The
//! order is (width, height, depth) with depth, or height in two dimensions, contiguous, because that is
//! the direction in which the product with an image is taken.

use rayon::prelude::*;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::grid::Grid;

/// A kernel in the Fourier domain.
pub(super) struct Spectrum {
    /// Lines of values along depth (or height, if the depth is 1) for each (width, height).
    pub values: Values,
    /// The greatest squared magnitude: on a periodic grid, the squared norm of the convolution.
    pub greatest: f64,
}

/// A kernel that is the same from its centre in opposite directions has a real spectrum, half as long to read.
pub(super) enum Values {
    Real(Vec<f32>),
    Complex(Vec<Complex<f32>>),
}

impl Spectrum {
    /// Of a kernel of (depth, height, width) samples.
    pub(super) fn new(kernel: &[f32], grids: &[Grid; 3]) -> Self {
        let [depth, height, width] = grids.each_ref().map(|grid| grid.len);
        let half = width / 2 + 1;
        let rows = transformed_rows(kernel, grids);
        let kernel_height = grids[1].axis.kernel;
        let mut planner = FftPlanner::new();
        let along_height = planner.plan_fft_forward(height);
        let along_depth = planner.plan_fft_forward(depth);
        let mut values = vec![Complex::default(); half * height * depth];
        // One frequency along the width at a time: (depth, height) of it, transformed along both.
        let greatest: Vec<f64> = values
            .par_chunks_mut(height * depth)
            .enumerate()
            .map(|(frequency, values)| {
                let mut plane = vec![Complex::<f64>::default(); depth * height];
                for (i, row) in rows.iter().enumerate() {
                    let z = grids[0].kernel_position(i / kernel_height);
                    let y = grids[1].kernel_position(i % kernel_height);
                    plane[z * height + y] += row[frequency];
                }
                along_height.process(&mut plane);
                if depth > 1 {
                    transpose_and_transform(&mut plane, height, &*along_depth);
                }
                for (to, value) in values.iter_mut().zip(&plane) {
                    *to = Complex::new(value.re as f32, value.im as f32);
                }
                plane.iter().map(Complex::norm_sqr).fold(0.0, f64::max)
            })
            .collect();
        let odd = grids.iter().all(|grid| !grid.axis.kernel.is_multiple_of(2));
        let values = if odd && kernel.iter().eq(kernel.iter().rev()) {
            Values::Real(values.iter().map(|value| value.re).collect())
        } else {
            Values::Complex(values)
        };
        Self { values, greatest: greatest.into_iter().fold(0.0, f64::max) }
    }

    /// All frequencies of a grid of (depth, height, width), in that order.
    pub(super) fn whole(&self, [depth, height, width]: [usize; 3]) -> Vec<Complex<f32>> {
        let known = |z: usize, y: usize, x: usize| {
            let at = (x * height + y) * depth + z;
            match &self.values {
                Values::Real(values) => values[at].into(),
                Values::Complex(values) => values[at],
            }
        };
        let places = (0..depth).flat_map(|z| (0..height).map(move |y| (z, y)));
        let rows = places.flat_map(|(z, y)| (0..width).map(move |x| (z, y, x)));
        rows.map(|(z, y, x)| {
            if x <= width / 2 {
                return known(z, y, x);
            }
            // The transform of real numbers is conjugate at opposite frequencies.
            known((depth - z) % depth, (height - y) % height, width - x).conj()
        })
        .collect()
    }
}

/// The kernel's rows, transformed along the width.
fn transformed_rows(kernel: &[f32], grids: &[Grid; 3]) -> Vec<Vec<Complex<f64>>> {
    let grid = &grids[2];
    let fft = FftPlanner::new().plan_fft_forward(grid.len);
    let rows = kernel.chunks(grid.axis.kernel).map(|taps| {
        let mut row = vec![Complex::default(); grid.len];
        for (i, &tap) in taps.iter().enumerate() {
            row[grid.kernel_position(i)].re += f64::from(tap);
        }
        fft.process(&mut row);
        row.truncate(grid.len / 2 + 1);
        row
    });
    rows.collect()
}

/// (depth, height) becomes (height, depth), transformed along the depth.
fn transpose_and_transform(plane: &mut Vec<Complex<f64>>, height: usize, fft: &dyn Fft<f64>) {
    let depth = plane.len() / height;
    let mut turned = vec![Complex::default(); plane.len()];
    for (i, &value) in plane.iter().enumerate() {
        turned[i % height * depth + i / height] = value;
    }
    fft.process(&mut turned);
    *plane = turned;
}
