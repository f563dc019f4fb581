//! One axis of the periodic grid on which Fourier transforms work.
//!
//! A circular blur is a product of transforms on the image's own grid. Any other padding is extended
//! first (see [`Axis`]) and convolved on a grid that is at least as long as the extension, so that what
//! wraps around lands where no output is read.

use super::Padding;
use super::axis::Axis;

/// An axis of the image and where its samples, outputs and kernel lie on a periodic grid.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub axis: Axis,
    pub len: usize,
    /// The grid position of output 0.
    pub offset: usize,
    /// The grid position of the kernel's first sample, which puts its centre at 0.
    kernel: usize,
}

impl Grid {
    /// The cheapest grid for a padding; `None` as for [`Axis::new`].
    pub(super) fn new(input: usize, kernel: usize, padding: Padding) -> Option<Self> {
        if padding == Padding::Circular && greatest_factor(input) <= 13 {
            return Some(Self::periodic(input, kernel));
        }
        let axis = Axis::new(input, kernel, padding)?;
        let len = fast_length(axis.extended());
        let centre = kernel / 2;
        Some(Self { axis, len, offset: kernel - 1 - centre, kernel: (len - centre) % len })
    }

    /// The image's own grid, on which a circular blur is diagonal.
    pub(super) fn periodic(input: usize, kernel: usize) -> Self {
        let sources = (0..input).map(Some).collect();
        let (begin, first, circular) = (0, 0, true);
        let axis = Axis { input, kernel, output: input, sources, begin, circular, first };
        let shift = (kernel / 2) % input;
        Self { axis, len: input, offset: 0, kernel: (input - shift) % input }
    }

    /// Whether the grid is the image's own.
    pub(super) fn is_periodic(&self) -> bool {
        let Axis { input, output, .. } = self.axis;
        [input, output, self.axis.extended()] == [self.len; 3] && self.offset == 0
    }

    /// Where sample `i` of the kernel lies; several coincide if the kernel is longer than the grid.
    pub(super) fn kernel_position(&self, i: usize) -> usize {
        (self.kernel + i) % self.len
    }

    /// The input sample at a grid position.
    pub(super) fn source(&self, position: usize) -> Option<usize> {
        self.axis.sources.get(position).copied().flatten()
    }

    /// The output at a grid position.
    pub(super) fn output(&self, position: usize) -> Option<usize> {
        position.checked_sub(self.offset).filter(|&output| output < self.axis.output)
    }
}

/// The shortest length from `len` on whose transform is fast: no prime factor above 5.
pub(super) fn fast_length(len: usize) -> usize {
    (len..=len.next_power_of_two()).find(|&len| greatest_factor(len) <= 5).unwrap_or(len)
}

/// The greatest prime factor; 1 for 1.
fn greatest_factor(mut n: usize) -> usize {
    let mut factor = 2;
    while factor * factor <= n {
        if n.is_multiple_of(factor) {
            n /= factor;
        } else {
            factor += 1;
        }
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prime_length_is_extended_to_a_fast_one_except_for_closed_forms() {
        let grid = Grid::new(2039, 9, Padding::Circular).expect("a grid");
        assert_eq!((grid.len, grid.is_periodic()), (2048, false));
        assert!(Grid::periodic(2039, 9).is_periodic());
        assert!(Grid::new(2048, 9, Padding::Circular).expect("a grid").is_periodic());
    }

    #[test]
    fn a_grid_with_fewer_outputs_is_not_the_images_own() {
        assert!(!Grid::new(8, 2, Padding::Valid).expect("a grid").is_periodic());
        assert!(Grid::new(8, 1, Padding::Valid).expect("a grid").is_periodic());
    }

    #[test]
    fn greatest_factors() {
        let numbers = [1, 2, 12, 49, 97, 2 * 97];
        assert_eq!(numbers.map(greatest_factor), [1, 2, 3, 7, 97, 97]);
    }
}
