//! The inverse of `AᵀA + shift` for downsampling after a circular blur, after Zhao et al. (2016).
//!
//! Leaving out samples adds up frequencies that are a multiple of `size / factor` apart. Within such a
//! group of n frequencies `AᵀA` is the matrix `k̄ kᵀ / n` of rank one, whose inverse with a shift is known.
//! The transforms are whole complex ones; two planes with the same kernel share one.

use std::sync::Arc;

use rayon::prelude::*;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::physics::Blur;

type Value = Complex<f32>;

/// Transforms and the kernels' spectra, with the phase of the downsampling.
pub(super) struct Aliases {
    sides: [usize; 3],
    factors: [usize; 3],
    transforms: [[Arc<dyn Fft<f32>>; 2]; 3],
    spectra: Vec<Vec<Value>>,
    /// For each spectrum, the one eigenvalue of each group that may not be 0.
    eigenvalues: Vec<Vec<f32>>,
}

impl std::fmt::Debug for Aliases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aliases of {:?} by {:?}", self.sides, self.factors)
    }
}

impl Aliases {
    /// `None` if the blur is not circular.
    pub(super) fn new(
        blur: &Blur,
        sides: [usize; 3],
        factors: [usize; 3],
        phases: [usize; 3],
    ) -> Option<Self> {
        let mut planner = FftPlanner::new();
        let transforms =
            sides.map(|side| [planner.plan_fft_forward(side), planner.plan_fft_inverse(side)]);
        let mut spectra = blur.spectra()?;
        // Keeping the samples from `phase` on is shifting the image by it, then keeping those from 0 on.
        let turns = [0, 1, 2].map(|i| {
            let angle = |k| {
                2.0 * std::f64::consts::PI * ((k * phases[i]) % sides[i]) as f64 / sides[i] as f64
            };
            (0..sides[i]).map(|k| Complex::cis(angle(k))).collect::<Vec<_>>()
        });
        for spectrum in &mut spectra {
            for (i, value) in spectrum.iter_mut().enumerate() {
                let [z, y, x] = place(i, sides);
                let turn = turns[0][z] * turns[1][y] * turns[2][x];
                *value *= Value::new(turn.re as f32, turn.im as f32);
            }
        }
        let mut aliases = Self { sides, factors, transforms, spectra, eigenvalues: Vec::new() };
        aliases.eigenvalues = (aliases.spectra.iter())
            .map(|spectrum| {
                aliases.over_groups(|group| {
                    let sum: f64 = group.map(|i| f64::from(spectrum[i].norm_sqr())).sum();
                    (sum / aliases.group_size() as f64) as f32
                })
            })
            .collect();
        Some(aliases)
    }

    pub(super) fn squared_norm(&self) -> f64 {
        self.eigenvalues.iter().flatten().fold(0.0, |most, &value| most.max(f64::from(value)))
    }

    /// Solves in place for planes or volumes of which `kernel` gives the number of the kernel.
    pub(super) fn solve(&self, planes: &mut [f32], kernel: impl Fn(usize) -> usize, shift: f64) {
        let samples = self.sides.iter().product();
        let mut pair = vec![Value::default(); samples];
        let mut scratch = pair.clone();
        let mut planes = planes.chunks_mut(samples).enumerate().peekable();
        while let Some((number, first)) = planes.next() {
            let kernel_number = kernel(number);
            let second = planes.next_if(|(number, _)| kernel(*number) == kernel_number);
            match &second {
                Some((_, second)) => {
                    for ((to, &a), &b) in pair.iter_mut().zip(&*first).zip(&**second) {
                        *to = Value::new(a, b);
                    }
                }
                None => pair.iter_mut().zip(&*first).for_each(|(to, &a)| *to = Value::new(a, 0.0)),
            }
            self.transform(0, &mut pair, &mut scratch);
            self.solve_groups(kernel_number, shift, &mut pair);
            self.transform(1, &mut pair, &mut scratch);
            let scale = 1.0 / samples as f32;
            first.iter_mut().zip(&pair).for_each(|(to, value)| *to = value.re * scale);
            if let Some((_, second)) = second {
                second.iter_mut().zip(&pair).for_each(|(to, value)| *to = value.im * scale);
            }
        }
    }

    fn solve_groups(&self, kernel: usize, shift: f64, values: &mut [Value]) {
        let (spectrum, eigenvalues) = (&self.spectra[kernel], &self.eigenvalues[kernel]);
        let sums = self.over_groups(|group| group.map(|i| spectrum[i] * values[i]).sum::<Value>());
        let size = self.group_size() as f64;
        let floor = 1e-6 * self.squared_norm();
        // With the eigenvalue μ, the part of b along k̄ is k̄ (kᵀ b) / (n μ); it is divided by μ + shift and
        // the rest by the shift.
        let inverse = |value: f64, least: f64| if value > least { 1.0 / value } else { 0.0 };
        let across = inverse(shift, 0.0);
        let factor = |eigenvalue: f32| {
            let eigenvalue = f64::from(eigenvalue);
            if shift > 0.0 {
                -across / (eigenvalue + shift) / size
            } else {
                inverse(eigenvalue, floor).powi(2) / size
            }
        };
        let sums: Vec<Value> =
            sums.iter().zip(eigenvalues).map(|(sum, &value)| sum * factor(value) as f32).collect();
        let across = across as f32;
        values.par_chunks_mut(self.sides[2]).enumerate().for_each(|(row, values)| {
            let first = row * self.sides[2];
            for (i, value) in values.iter_mut().enumerate() {
                let sum = sums[self.group_of(first + i)];
                *value = *value * across + spectrum[first + i].conj() * sum;
            }
        });
    }

    fn group_size(&self) -> usize {
        self.factors.iter().product()
    }

    fn groups(&self) -> [usize; 3] {
        [0, 1, 2].map(|i| self.sides[i] / self.factors[i])
    }

    fn group_of(&self, i: usize) -> usize {
        let [_, height, width] = self.groups();
        let [z, y, x] = place(i, self.sides);
        ((z % self.groups()[0]) * height + y % height) * width + x % width
    }

    /// A value for each group of frequencies, from their places.
    fn over_groups<T: Send>(
        &self,
        value: impl Fn(&mut dyn Iterator<Item = usize>) -> T + Sync,
    ) -> Vec<T> {
        let groups = self.groups();
        let [_, height, width] = self.sides;
        let [fz, fy, fx] = self.factors;
        (0..groups.iter().product())
            .into_par_iter()
            .map(|group| {
                let [z, y, x] = place(group, groups);
                let mut members = (0..fz * fy * fx).map(|i| {
                    let [dz, dy, dx] = place(i, [fz, fy, fx]);
                    let (z, y) = (z + dz * groups[0], y + dy * groups[1]);
                    (z * height + y) * width + x + dx * groups[2]
                });
                value(&mut members)
            })
            .collect()
    }

    /// Transforms along each side in turn: along the last one, which then becomes the first.
    fn transform(&self, way: usize, values: &mut Vec<Value>, scratch: &mut Vec<Value>) {
        for axis in [2, 1, 0] {
            let side = self.sides[axis];
            let fft = &self.transforms[axis][way];
            let room = || vec![Value::default(); fft.get_inplace_scratch_len()];
            values
                .par_chunks_mut(side)
                .for_each_init(room, |room, row| fft.process_with_scratch(row, room));
            let rows = values.len() / side;
            // Eight columns at a time, so that whole cache lines are read.
            scratch.par_chunks_mut(8 * rows).enumerate().for_each(|(block, columns)| {
                for (row, values) in values.chunks_exact(side).enumerate() {
                    for (column, value) in columns.chunks_exact_mut(rows).zip(&values[8 * block..])
                    {
                        column[row] = *value;
                    }
                }
            });
            std::mem::swap(values, scratch);
        }
    }
}

/// The coordinates of an index.
fn place(i: usize, [_, height, width]: [usize; 3]) -> [usize; 3] {
    [i / (height * width), i / width % height, i % width]
}
