//! The orthonormal Fourier transform of a whole image with frequency 0 in the middle: `fftshift ∘ fft ∘ ifftshift`.
//!
//! Lines along the last axis are transformed, and that axis then becomes the first; after all axes they are in order again.
//! Threads write lines of their own.

use std::sync::Arc;

use rayon::prelude::*;
use rustfft::{Fft, FftPlanner};

use crate::fourier::Complex;

/// Transforms planned for images of some sides.
#[derive(Clone)]
pub(crate) struct Centred {
    sides: Vec<usize>,
    /// Forward and inverse along each axis.
    transforms: Vec<[Arc<dyn Fft<f32>>; 2]>,
}

/// Lines that are written together, a cache line of them.
const BLOCK: usize = 8;

impl Centred {
    pub(crate) fn new(sides: &[usize]) -> Self {
        let mut planner = FftPlanner::new();
        let transforms = sides
            .iter()
            .map(|&side| [planner.plan_fft_forward(side), planner.plan_fft_inverse(side)])
            .collect();
        Self { sides: sides.to_vec(), transforms }
    }

    /// Transforms an image in its place; `adjoint` is the inverse, too.
    pub(crate) fn run(&self, adjoint: bool, image: &mut Vec<Complex<f32>>) {
        let mut turned = vec![Complex::default(); image.len()];
        for axis in (0..self.sides.len()).rev() {
            let side = self.sides[axis];
            let transform = &self.transforms[axis][usize::from(adjoint)];
            let scale = 1.0 / (side as f32).sqrt();
            image.par_chunks_mut(side).for_each_init(
                || vec![Complex::default(); transform.get_inplace_scratch_len()],
                |scratch, line| {
                    // The middle comes first for the transform, and goes back.
                    line.rotate_left(side / 2);
                    transform.process_with_scratch(line, scratch);
                    line.rotate_right(side / 2);
                    for value in line.iter_mut() {
                        *value *= scale;
                    }
                },
            );
            let lines = image.len() / side;
            turned.par_chunks_mut(lines * BLOCK).enumerate().for_each(|(block, to)| {
                let count = to.len() / lines;
                for (line, from) in image.chunks(side).enumerate() {
                    for index in 0..count {
                        to[index * lines + line] = from[block * BLOCK + index];
                    }
                }
            });
            std::mem::swap(image, &mut turned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_the_sum_that_defines_it_and_the_adjoint_its_inverse() {
        for sides in [&[4, 5][..], &[3, 2, 5]] {
            let count = sides.iter().product::<usize>();
            let mut random = fastrand::Rng::with_seed(1);
            let mut value = || random.f32() - 0.5;
            let image: Vec<_> = (0..count).map(|_| Complex::new(value(), value())).collect();
            let mut found = image.clone();
            let centred = Centred::new(sides);
            centred.run(false, &mut found);
            let place = |index: usize, axis: usize| {
                let inner: usize = sides[axis + 1..].iter().product();
                ((index / inner % sides[axis]) as f64) - (sides[axis] / 2) as f64
            };
            for (frequency, found) in found.iter().enumerate() {
                let mut sum = Complex::<f64>::default();
                for (pixel, value) in image.iter().enumerate() {
                    let turns: f64 = (0..sides.len())
                        .map(|axis| {
                            place(frequency, axis) * place(pixel, axis) / sides[axis] as f64
                        })
                        .sum();
                    let wave = Complex::from_polar(1.0, -std::f64::consts::TAU * turns);
                    sum += wave * Complex::new(f64::from(value.re), f64::from(value.im));
                }
                sum /= (count as f64).sqrt();
                assert!((sum.re - f64::from(found.re)).abs() < 1e-6, "{sides:?} {frequency}");
                assert!((sum.im - f64::from(found.im)).abs() < 1e-6, "{sides:?} {frequency}");
            }
            centred.run(true, &mut found);
            let worst = found.iter().zip(&image).map(|(a, b)| (a - b).norm()).fold(0.0, f32::max);
            assert!(worst < 1e-6);
        }
    }
}
