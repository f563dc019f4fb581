//! The Kaiser–Bessel kernel that carries samples to the grid and back: its width, its values and its Fourier transform.
//!
//! `φ(t) = I₀(β √(1 − t²)) / I₀(β)` on `|t| ≤ 1`, over `width` cells of the grid. Values come from one polynomial for each
//! cell that the kernel covers, so that all of them are evaluated at once; the transform is known exactly.

use std::f64::consts::PI;

/// The widest kernel, in cells.
pub(super) const WIDEST: usize = 16;
/// The narrowest kernel, in cells.
const NARROWEST: usize = 2;

/// A kernel of a width for grids that are finer than the image by a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kernel {
    pub(super) width: usize,
    beta: f64,
}

impl Kernel {
    /// The narrowest kernel with an error of at most `accuracy` on images of so many axes, if there is one.
    pub(super) fn for_accuracy(accuracy: f64, oversampling: f64, axes: usize) -> Option<Self> {
        (NARROWEST..=WIDEST)
            .map(|width| Self::new(width, oversampling))
            .find(|kernel| kernel.error(oversampling) * (axes as f64).sqrt() <= accuracy)
    }

    /// The shape is Beatty's, IEEE Transactions on Medical Imaging 24 (2005) 799, equation 5.
    fn new(width: usize, oversampling: f64) -> Self {
        let half = width as f64 * (1.0 - 0.5 / oversampling);
        Self { width, beta: PI * (half * half - 0.8).max(0.25).sqrt() }
    }

    /// The value at `t`, from −1 to 1 over the width.
    pub(super) fn value(&self, t: f64) -> f64 {
        bessel(self.beta * (1.0 - t * t).max(0.0).sqrt()) / bessel(self.beta)
    }

    /// The Fourier transform at `turns` per cell.
    pub(super) fn transform(&self, turns: f64) -> f64 {
        let width = self.width as f64;
        let square = self.beta * self.beta - (PI * width * turns).powi(2);
        let root = square.abs().sqrt();
        let ratio = match root {
            root if root < 1e-6 => 1.0,
            root if square > 0.0 => root.sinh() / root,
            root => root.sin() / root,
        };
        width * ratio / bessel(self.beta)
    }

    /// The root mean square, over the frequencies of an image, of what the copies of the spectrum add to it.
    fn error(&self, oversampling: f64) -> f64 {
        const FREQUENCIES: i32 = 24;
        const COPIES: i32 = 24;
        let squares = (0..=FREQUENCIES).map(|step| {
            let turns = 0.5 * f64::from(step) / (f64::from(FREQUENCIES) * oversampling);
            let copies = (1..=COPIES).flat_map(|copy| [f64::from(copy), f64::from(-copy)]);
            let aliased: f64 = copies.map(|copy| self.transform(turns + copy).powi(2)).sum();
            aliased / self.transform(turns).powi(2)
        });
        (squares.sum::<f64>() / f64::from(FREQUENCIES + 1)).sqrt()
    }

    /// How much larger rounding errors become, along an axis, when the kernel is undone: the root mean square of its transform times
    /// that of the inverse.
    pub(super) fn amplification(&self, oversampling: f64) -> f64 {
        const FREQUENCIES: i32 = 24;
        let squares = (0..=FREQUENCIES).map(|step| {
            self.transform(0.5 * f64::from(step) / (f64::from(FREQUENCIES) * oversampling)).powi(2)
        });
        let (sum, inverse) = squares
            .fold((0.0, 0.0), |(sum, inverse), square| (sum + square, inverse + 1.0 / square));
        (sum * inverse).sqrt() / f64::from(FREQUENCIES + 1)
    }

    /// Coefficients of `width` polynomials, from the highest power down: the `j`-th polynomial at `u` from −1 to 1 is the
    /// kernel at the `j`-th cell, which is `j + (u + 1) / 2` cells from the kernel's lower end.
    ///
    /// Their error is below `accuracy`.
    pub(super) fn polynomials(&self, accuracy: f64) -> Vec<Vec<f64>> {
        let mut degree = 3;
        loop {
            let cells: Vec<Vec<f64>> = (0..self.width).map(|cell| self.fit(cell, degree)).collect();
            let worst = cells.iter().enumerate().map(|(cell, fit)| self.worst(cell, fit));
            if degree >= 24 || worst.fold(0.0, f64::max) <= accuracy {
                return (0..=degree)
                    .rev()
                    .map(|power| cells.iter().map(|fit| fit[power]).collect())
                    .collect();
            }
            degree += 1;
        }
    }

    /// The polynomial through the kernel at Chebyshev's points, from the lowest power up.
    fn fit(&self, cell: usize, degree: usize) -> Vec<f64> {
        let count = degree + 1;
        let node = |index: usize| (PI * (index as f64 + 0.5) / count as f64).cos();
        let values: Vec<f64> = (0..count).map(|index| self.at(cell, node(index))).collect();
        let coefficient = |order: usize| {
            let cosine =
                |index: usize| (PI * order as f64 * (index as f64 + 0.5) / count as f64).cos();
            let sum: f64 = values.iter().enumerate().map(|(index, v)| v * cosine(index)).sum();
            sum * if order == 0 { 1.0 } else { 2.0 } / count as f64
        };
        // Chebyshev's polynomials in powers, one after the other.
        let (mut before, mut current) = (vec![0.0; count], vec![0.0; count]);
        current[0] = 1.0;
        let mut powers = vec![0.0; count];
        for order in 0..count {
            let scale = coefficient(order);
            powers.iter_mut().zip(&current).for_each(|(power, value)| *power += scale * value);
            let factor = if order == 0 { 1.0 } else { 2.0 };
            let mut next: Vec<f64> = before.iter().map(|value| -value).collect();
            (1..count).for_each(|power| next[power] += factor * current[power - 1]);
            before = std::mem::replace(&mut current, next);
        }
        powers
    }

    /// How far a polynomial is from the kernel at the most.
    fn worst(&self, cell: usize, fit: &[f64]) -> f64 {
        const POINTS: i32 = 40;
        let points = (0..=POINTS).map(|step| 2.0 * f64::from(step) / f64::from(POINTS) - 1.0);
        let polynomial = |u: f64| fit.iter().rev().fold(0.0, |sum, power| sum * u + power);
        points.map(|u| (polynomial(u) - self.at(cell, u)).abs()).fold(0.0, f64::max)
    }

    /// The kernel at a cell, where a polynomial has its variable `u`.
    fn at(&self, cell: usize, u: f64) -> f64 {
        self.value(2.0 * (cell as f64 + 0.5 * (u + 1.0)) / self.width as f64 - 1.0)
    }
}

/// The modified Bessel function `I₀`, by its series, all terms of which are positive.
fn bessel(x: f64) -> f64 {
    let square = 0.25 * x * x;
    let (mut sum, mut term, mut order) = (1.0, 1.0, 1.0);
    while term > 1e-17 * sum {
        term *= square / (order * order);
        sum += term;
        order += 1.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_grow_with_the_accuracy_and_with_a_coarser_grid() {
        let width = |accuracy, fine| Kernel::for_accuracy(accuracy, fine, 2).map(|k| k.width);
        assert_eq!(width(1e-3, 2.0), Some(4));
        assert_eq!(width(1e-6, 2.0), Some(7));
        assert_eq!(width(1e-12, 2.0), Some(14));
        assert!(width(1e-6, 1.25) > width(1e-6, 1.5) && width(1e-6, 1.5) > width(1e-6, 2.0));
        assert_eq!(width(1e-30, 2.0), None);
    }

    #[test]
    fn the_bessel_function_has_known_values() {
        for (x, expected) in
            [(0.0, 1.0), (1.0, 1.266_065_877_752_008_4), (20.0, 43_558_282.559_553_53)]
        {
            assert!((bessel(x) / expected - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn the_transform_is_that_of_the_values() {
        let kernel = Kernel::new(6, 2.0);
        for turns in [0.0, 0.1, 0.25, 0.4, 0.77] {
            let steps = 4000;
            // Simpson's rule over the width.
            let sum: f64 = (0..=steps)
                .map(|step| {
                    let t = 2.0 * f64::from(step) / f64::from(steps) - 1.0;
                    let weight = match step {
                        0 => 1.0,
                        step if step == steps => 1.0,
                        step => f64::from(2 + 2 * (step % 2)),
                    };
                    weight * kernel.value(t) * (2.0 * PI * turns * 3.0 * t).cos()
                })
                .sum();
            let integral = sum * 6.0 / (3.0 * f64::from(steps));
            assert!((integral - kernel.transform(turns)).abs() < 1e-9, "{turns}");
        }
    }

    #[test]
    fn polynomials_are_the_kernel_at_every_cell() {
        for width in [2, 5, 8, 13, 16] {
            let kernel = Kernel::new(width, 2.0);
            let powers = kernel.polynomials(1e-10);
            for cell in 0..width {
                for u in [-1.0, -0.3, 0.0, 0.77, 1.0] {
                    let value = powers.iter().fold(0.0, |sum, power| sum * u + power[cell]);
                    assert!((value - kernel.at(cell, u)).abs() < 2e-10, "{width} {cell} {u}");
                }
            }
        }
    }
}
