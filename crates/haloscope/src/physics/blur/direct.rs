//! Convolution by its definition, for small kernels.
//!
//! Every row of the result is a sum of rows of the input, each correlated with a row of the kernel; the
//! padding across rows only says which rows. A kernel that is a column times a row (a Gaussian along the
//! axes, a box) takes the sum over rows first and one correlation after it. The adjoint has the same
//! form, so it is the same code with other lists.
//!
//! Scratch is a copy of the plane with its rows extended (a few rows per thread if the kernel is a
//! product).

use rayon::prelude::*;

use super::axis::Axis;
use super::correlate::{Term, correlate};

/// A kernel of (depth, height, width) samples, ready for both directions.
pub(super) struct Taps {
    /// What each row of the kernel is multiplied with; 1 unless the kernel is a product.
    columns: Option<[Vec<f32>; 2]>,
    /// The rows, or the one row of a product. Forwards (a convolution) everything is reversed.
    rows: [Vec<f32>; 2],
}

impl Taps {
    pub(super) fn new(kernel: &[f32], width: usize) -> Self {
        match factors(kernel, width) {
            Some((columns, row)) => {
                Self { columns: Some(both_directions(columns)), rows: both_directions(row) }
            }
            None => Self { columns: None, rows: both_directions(kernel.to_vec()) },
        }
    }

    /// Multiplications per sample of the result.
    pub(super) fn work(&self) -> usize {
        self.columns.as_ref().map_or(0, |columns| columns[0].len()) + self.rows[0].len()
    }

    pub(super) fn is_product(&self) -> bool {
        self.columns.is_some()
    }
}

/// Reversed for the convolution, as it is for its adjoint.
fn both_directions(taps: Vec<f32>) -> [Vec<f32>; 2] {
    [taps.iter().rev().copied().collect(), taps]
}

/// The column and the row whose product is the kernel, if there are such: the error of the product is
/// at most 1e-6 of the kernel in the sum of magnitudes, and so in the norm of the convolution.
fn factors(kernel: &[f32], width: usize) -> Option<(Vec<f32>, Vec<f32>)> {
    let height = kernel.len() / width;
    if width == 1 || height == 1 {
        return None;
    }
    let peak = (0..kernel.len()).max_by(|&a, &b| kernel[a].abs().total_cmp(&kernel[b].abs()))?;
    let value = f64::from(kernel[peak]);
    if value == 0.0 {
        return None;
    }
    let (y, x) = (peak / width, peak % width);
    let row: Vec<f32> = kernel[y * width..][..width].to_vec();
    let columns: Vec<f32> =
        (0..height).map(|y| (f64::from(kernel[y * width + x]) / value) as f32).collect();
    let mut error = 0.0;
    for (kernel, &column) in kernel.chunks(width).zip(&columns) {
        for (&kernel, &row) in kernel.iter().zip(&row) {
            error += (f64::from(kernel) - f64::from(column) * f64::from(row)).abs();
        }
    }
    let total: f64 = kernel.iter().map(|&kernel| f64::from(kernel).abs()).sum();
    (error <= 1e-6 * total).then_some((columns, row))
}

/// Direct convolution for one shape of image and kernel.
pub(super) struct Direct {
    axes: [Axis; 3],
    copies: [Vec<Vec<usize>>; 2],
}

impl Direct {
    pub(super) fn new(axes: [Axis; 3]) -> Self {
        let copies = [axes[0].copies(), axes[1].copies()];
        Self { axes, copies }
    }

    /// Convolves one plane or volume, or applies the adjoint.
    pub(super) fn run(&self, adjoint: bool, taps: &Taps, input: &[f32], output: &mut [f32]) {
        let [depth, height, width] = &self.axes;
        let way = usize::from(adjoint);
        let (input_len, output_len, rows_of_slab) = if adjoint {
            (width.output, width.input, height.input)
        } else {
            (width.input, width.output, height.output)
        };
        // The length of a row of the input with its extension, and of the correlation with it.
        let zeros = width.kernel - 1;
        let extended = if adjoint { width.output + 2 * zeros } else { width.extended() };
        let correlated = extended - zeros;
        let extend = |row: &[f32], to: &mut [f32]| {
            if adjoint {
                to[..zeros].fill(0.0);
                to[zeros..][..row.len()].copy_from_slice(row);
                to[zeros + row.len()..].fill(0.0);
            } else {
                width.extend(row, to);
            }
        };

        let mut rows = Vec::new();
        if !taps.is_product() {
            rows = vec![0.0; depth_rows(adjoint, depth, height) * extended];
            let pairs = rows.par_chunks_mut(extended).zip(input.par_chunks(input_len));
            pairs.for_each(|(to, row)| extend(row, to));
        }
        let buffers =
            || (Vec::new(), vec![0.0; input_len], vec![0.0; extended], vec![0.0; correlated]);
        output.par_chunks_mut(output_len).enumerate().for_each_init(
            buffers,
            |(terms, sum, extension, correlation), (i, output)| {
                let (z, y) = (i / rows_of_slab, i % rows_of_slab);
                let target: &mut [f32] = if adjoint { correlation } else { output };
                if let Some(columns) = &taps.columns {
                    self.terms(adjoint, z, y, input_len, 1, terms);
                    correlate(sum, input, terms, &columns[way], 1);
                    extend(sum, extension);
                    correlate(target, extension, &[Term::default()], &taps.rows[way], width.kernel);
                } else {
                    self.terms(adjoint, z, y, extended, width.kernel, terms);
                    correlate(target, &rows, terms, &taps.rows[way], width.kernel);
                }
                if adjoint {
                    output.fill(0.0);
                    width.fold(correlation, output);
                }
            },
        );
    }

    /// Which rows of the input meet which rows of the kernel in row (z, y) of the result.
    fn terms(
        &self,
        adjoint: bool,
        z: usize,
        y: usize,
        len: usize,
        taps: usize,
        terms: &mut Vec<Term>,
    ) {
        let [depth, height, _] = &self.axes;
        terms.clear();
        let mut add = |row: usize, kernel: usize| {
            terms.push(Term { source: row * len, taps: kernel * taps });
        };
        if adjoint {
            for &z in &self.copies[0][z] {
                for &y in &self.copies[1][y] {
                    for (dz, z) in measured(z, depth) {
                        for (dy, y) in measured(y, height) {
                            add(z * height.output + y, dz * height.kernel + dy);
                        }
                    }
                }
            }
        } else {
            for dz in 0..depth.kernel {
                let Some(z) = depth.sources[z + dz] else { continue };
                for dy in 0..height.kernel {
                    let Some(y) = height.sources[y + dy] else { continue };
                    add(z * height.input + y, dz * height.kernel + dy);
                }
            }
        }
    }
}

fn depth_rows(adjoint: bool, depth: &Axis, height: &Axis) -> usize {
    if adjoint { depth.output * height.output } else { depth.input * height.input }
}

/// The kernel samples that take the extended sample `i` to an output, and that output.
fn measured(i: usize, axis: &Axis) -> impl Iterator<Item = (usize, usize)> {
    let reach = axis.kernel - 1;
    let first = reach.saturating_sub(i);
    let end = (axis.output + reach).saturating_sub(i).min(axis.kernel);
    (first..end).map(move |tap| (tap, i + tap - reach))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_a_column_and_a_row_is_recognised() {
        let (column, row) = ([0.5_f32, -1.0, 0.25], [0.1_f32, 0.7, 0.2, 0.3]);
        let mut kernel: Vec<f32> =
            column.iter().flat_map(|c| row.iter().map(move |r| c * r)).collect();
        assert!(Taps::new(&kernel, 4).is_product());
        kernel[0] += 1e-4;
        assert!(!Taps::new(&kernel, 4).is_product());
        assert_eq!(Taps::new(&kernel, 4).work(), 12);
    }

    #[test]
    fn a_kernel_of_zeros_is_not_a_product() {
        assert!(!Taps::new(&[0.0; 9], 3).is_product());
    }
}
