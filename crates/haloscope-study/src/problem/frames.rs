//! `super-resolution`: frames of half the size, each shifted by fractions of a pixel of its own.
//!
//! Decimation keeps whole pixels, so the shift is in the blur before it: a Gaussian whose middle is off the
//! kernel's.

use haloscope::physics::{Downsampling, DownsamplingFilter, Padding, kernels};
use haloscope::{Array, Result};

/// The factor of decimation.
const FACTOR: usize = 2;
/// The standard deviation of the blur, in pixels of the image.
const SIGMA: f64 = 1.0;
/// How far the kernel reaches: four standard deviations beyond the largest shift.
pub const RADIUS: usize = 5;

/// Frame `index`.
pub fn frame(shape: &[usize], index: usize, seed: u64) -> Result<Downsampling> {
    let kernel = shifted_gaussian(shift(index, seed))?;
    Downsampling::new(shape, FACTOR, &DownsamplingFilter::Kernel(kernel), Padding::Circular)
}

/// Where frame `index` is, within ±1 pixel of the image: Roberts' sequence, which fills the square evenly however
/// many frames there are. The seed says where it begins.
fn shift(index: usize, seed: u64) -> [f64; 2] {
    const STEPS: [f64; 2] = [0.754_877_666_246_692_8, 0.569_840_290_998_053_2];
    let place = (seed % 1000) as f64 * 0.618 + index as f64;
    STEPS.map(|step| 2.0 * (place * step).fract() - 1.0)
}

/// A Gaussian whose middle is `shift` from that of the kernel.
fn shifted_gaussian(shift: [f64; 2]) -> Result<Array> {
    let side = 2 * RADIUS + 1;
    let kernel = Array::from_shape_fn(vec![1, 1, side, side], |at| {
        let distance = |axis: usize| at[2 + axis] as f64 - RADIUS as f64 - shift[axis];
        (-0.5 * (distance(0).powi(2) + distance(1).powi(2)) / SIGMA.powi(2)).exp() as f32
    });
    kernels::normalised(&kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_kernel_is_moved_by_the_shift() {
        for index in 0..4 {
            let shift = shift(index, 3);
            assert!(shift.iter().all(|part| (-1.0..1.0).contains(part)), "{shift:?}");
            let kernel = shifted_gaussian(shift).expect("a kernel");
            for axis in 0..2 {
                let middle: f64 = kernel
                    .indexed_iter()
                    .map(|(at, &value)| (at[2 + axis] as f64 - RADIUS as f64) * f64::from(value))
                    .sum();
                assert!((middle - shift[axis]).abs() < 1e-3, "{middle} for {shift:?}");
            }
        }
    }
}
