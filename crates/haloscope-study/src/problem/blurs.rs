//! `highres-color`: circular Gaussian blurs whose standard deviations are a hundredth and a two-hundredth of the
//! rows of the image, in directions spread over half a turn.

use haloscope::Result;
use haloscope::physics::{Blur, Padding, kernels};

/// Standard deviations along both directions, relative to the image's rows.
const SPREAD: [f64; 2] = [0.01, 0.005];

/// Blur `index` of `count`.
pub fn blur(shape: &[usize], index: usize, count: usize) -> Result<Blur> {
    let sigma = SPREAD.map(|spread| spread * shape[1] as f64);
    let angle = 180.0 * index as f64 / count as f64;
    Blur::new(shape, &kernels::gaussian(&sigma, angle)?, Padding::Circular)
}

/// How far a blur reaches: half the side of [`kernels::gaussian`].
pub fn radius(shape: &[usize]) -> usize {
    (SPREAD[0] * shape[1] as f64 / 0.3 + 1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_radius_is_that_of_the_kernel() {
        for size in [16, 100, 1024] {
            let sigma = SPREAD.map(|spread| spread * f64::from(size));
            let side = kernels::gaussian(&sigma, 0.0).expect("a kernel").shape()[2];
            assert_eq!(2 * radius(&[3, size as usize, size as usize]) + 1, side);
        }
    }
}
