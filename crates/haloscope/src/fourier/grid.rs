//! The finer grid of a transform: how fine it is, how wide the kernel, and how long its sides.
//!
//! A coarser grid has shorter transforms and needs a wider kernel; which of them is faster depends on the number of samples.

use super::kernel::Kernel;

/// How much finer than the image the grid may be.
const OVERSAMPLINGS: [f64; 3] = [2.0, 1.5, 1.25];

/// The grid and the kernel of a transform.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    /// The sides, in the order of the image's axes.
    pub(super) sides: Vec<usize>,
    pub(super) kernel: Kernel,
}

impl Grid {
    /// The fastest one with an accuracy for images of these sides, where numbers are rounded by about `rounding`; `None` if no
    /// kernel has the accuracy.
    pub(super) fn fastest(
        sides: &[usize],
        samples: usize,
        accuracy: f64,
        rounding: f64,
    ) -> Option<Self> {
        let grids = OVERSAMPLINGS.iter().filter_map(|&oversampling| {
            let kernel = Kernel::for_accuracy(accuracy, oversampling, sides.len())?;
            // Coarse grids have wide kernels, and what undoes these makes rounding errors larger.
            let rounded = kernel.amplification(oversampling).powi(sides.len() as i32) * rounding;
            if rounded > 0.5 * accuracy && oversampling < OVERSAMPLINGS[0] {
                return None;
            }
            let length = |side: usize| {
                good_length(((side as f64 * oversampling).ceil() as usize).max(2 * kernel.width))
            };
            let sides: Vec<usize> = sides.iter().map(|&side| length(side)).collect();
            Some(Self { sides, kernel })
        });
        grids.min_by(|a, b| a.cost(samples).total_cmp(&b.cost(samples)))
    }

    /// About how long a transform takes, in nanoseconds on one core. Only the ratio of the numbers counts; they are estimates that
    /// no benchmark has calibrated yet.
    pub(super) fn cost(&self, samples: usize) -> f64 {
        let cells = self.sides.iter().product::<usize>() as f64;
        let width = self.kernel.width;
        let lines = width.pow(self.sides.len() as u32 - 1) as f64;
        let sample = 12.0 + 0.25 * lines * padded(width) as f64;
        samples as f64 * sample + cells * (2.0 + 0.25 * cells.log2())
    }
}

/// The cells of a line that a kernel of a width reads: whole vectors of them.
pub(super) const fn padded(width: usize) -> usize {
    width.div_ceil(4) * 4
}

/// The least even length of at least `least` with fast transforms: its factors are 2, 3, 5 and 7.
fn good_length(least: usize) -> usize {
    let is_good = |length: usize| {
        let rest = [2, 3, 5, 7].iter().fold(length, |mut rest, factor| {
            while rest % factor == 0 {
                rest /= factor;
            }
            rest
        });
        rest == 1
    };
    (least.max(2).next_multiple_of(2)..).step_by(2).find(|&length| is_good(length)).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_take_a_coarser_grid_than_many() {
        let side =
            |samples| Grid::fastest(&[512, 512], samples, 1e-3, 1e-8).expect("a grid").sides[0];
        assert!(side(100) < side(10_000_000));
        assert_eq!(side(10_000_000), 1024);
    }

    #[test]
    fn rounding_keeps_grids_from_being_coarse() {
        let side =
            |rounding| Grid::fastest(&[40, 40], 10, 1e-6, rounding).expect("a grid").sides[0];
        assert_eq!((side(1e-8), side(1e-16)), (60, 50));
    }

    #[test]
    fn lengths_have_small_factors() {
        assert_eq!([1, 9, 11, 23, 1025].map(good_length), [2, 10, 12, 24, 1050]);
    }
}
