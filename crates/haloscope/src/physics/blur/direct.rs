//! Convolution by its definition, for small kernels.
//!
//! Every row of the result is a sum of rows of the input, each correlated with a row of the kernel; the
//! padding across rows only says which rows. A kernel that is a column times a row (a Gaussian along the
//! axes, a box) takes the sum over rows first and one correlation after it. The adjoint has the same
//! form, so it is the same code with other lists. A part of the image is computed like the whole, from a window: its
//! lists say where in the window the same samples are.
//!
//! Scratch is a copy of the plane with its rows extended (a few rows per thread if the kernel is a
//! product).

use std::ops::Range;

use rayon::prelude::*;

use super::axis::Axis;
use super::correlate::{Term, correlate, exact};
use crate::physics::region::{Run, pieces, place};

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
    /// The whole measurement, and the whole image.
    whole: [Part; 2],
}

/// A part of the measurement, or of the image for the adjoint, and how it is computed from the window that is read for it.
pub(super) struct Part {
    adjoint: bool,
    /// (depth, height, width), in the whole.
    region: [Range<usize>; 3],
    /// The depth and the height of the window at which each slab and row of the input is; those that are not read are at 0.
    places: [Vec<usize>; 2],
    rows_of_slab: usize,
    rows: Rows,
}

/// How rows of the window become rows of the part.
struct Rows {
    /// The length of a row of the window.
    input: usize,
    /// The pieces of such a row that are neighbours in the whole row.
    input_pieces: Vec<Piece>,
    /// Where samples of the window lie in the row that is correlated, whose others are 0, and its length.
    extension: Vec<Run>,
    extended: usize,
    /// What is correlated.
    pieces: Vec<Piece>,
    correlated: usize,
    /// The sums of the adjoint of the extension.
    folds: Vec<Run>,
}

/// Neighbouring results.
struct Piece {
    /// Where their input begins.
    from: usize,
    to: Range<usize>,
    /// How many of them, at the end, are computed in f64.
    exact: usize,
}

impl Direct {
    pub(super) fn new(axes: [Axis; 3]) -> Self {
        let copies = [axes[0].copies(), axes[1].copies()];
        let outputs = axes.each_ref().map(|axis| 0..axis.output);
        let inputs = axes.each_ref().map(|axis| 0..axis.input);
        let whole = [Part::new(&axes, false, outputs), Part::new(&axes, true, inputs)];
        Self { axes, copies, whole }
    }

    /// The whole measurement, or for the adjoint the whole image.
    pub(super) fn whole(&self, adjoint: bool) -> &Part {
        &self.whole[usize::from(adjoint)]
    }

    /// A part that is not empty.
    pub(super) fn part(&self, adjoint: bool, part: [Range<usize>; 3]) -> Part {
        Part::new(&self.axes, adjoint, part)
    }

    /// Writes a part of the convolution of one plane or volume, or of its adjoint, from the window that is read for it.
    pub(super) fn run(&self, part: &Part, taps: &Taps, input: &[f32], output: &mut [f32]) {
        let Part { adjoint, rows, .. } = part;
        let way = usize::from(*adjoint);
        let width = self.axes[2].kernel;
        let mut extended = Vec::new();
        if !taps.is_product() {
            extended = vec![0.0; input.len() / rows.input * rows.extended];
            let pairs = extended.par_chunks_mut(rows.extended).zip(input.par_chunks(rows.input));
            pairs.for_each(|(to, row)| rows.extend(row, to));
        }
        let buffers = || {
            let [sum, extension] = [rows.input, rows.extended].map(|len| vec![0.0; len]);
            (Vec::new(), sum, extension, vec![0.0; rows.correlated])
        };
        output.par_chunks_mut(part.region[2].len()).enumerate().for_each_init(
            buffers,
            |(terms, sum, extension, correlation), (i, output)| {
                let target: &mut [f32] = if *adjoint { correlation } else { output };
                if let Some(columns) = &taps.columns {
                    self.terms(part, i, rows.input, 1, terms);
                    correlate_pieces(&rows.input_pieces, sum, input, terms, &columns[way], 1);
                    rows.extend(sum, extension);
                    terms.clear();
                    terms.push(Term::default());
                    let taps = &taps.rows[way];
                    correlate_pieces(&rows.pieces, target, extension, terms, taps, width);
                } else {
                    self.terms(part, i, rows.extended, width, terms);
                    let taps = &taps.rows[way];
                    correlate_pieces(&rows.pieces, target, &extended, terms, taps, width);
                }
                if *adjoint {
                    output.fill(0.0);
                    rows.fold(correlation, output);
                }
            },
        );
    }

    /// Which rows of the window meet which rows of the kernel in a row of the part.
    fn terms(&self, part: &Part, row: usize, len: usize, taps: usize, terms: &mut Vec<Term>) {
        let [depth, height, _] = &self.axes;
        let rows = part.region[1].len();
        let (z, y) = (part.region[0].start + row / rows, part.region[1].start + row % rows);
        terms.clear();
        let mut add = |z: usize, y: usize, kernel: usize| {
            let row = part.places[0][z] * part.rows_of_slab + part.places[1][y];
            terms.push(Term { source: row * len, taps: kernel * taps });
        };
        if part.adjoint {
            for &z in &self.copies[0][z] {
                for &y in &self.copies[1][y] {
                    for (dz, z) in measured(z, depth) {
                        for (dy, y) in measured(y, height) {
                            add(z, y, dz * height.kernel + dy);
                        }
                    }
                }
            }
        } else {
            for dz in 0..depth.kernel {
                let Some(z) = depth.sources[z + dz] else { continue };
                for dy in 0..height.kernel {
                    let Some(y) = height.sources[y + dy] else { continue };
                    add(z, y, dz * height.kernel + dy);
                }
            }
        }
    }
}

impl Part {
    fn new(axes: &[Axis; 3], adjoint: bool, part: [Range<usize>; 3]) -> Self {
        let window = [0, 1, 2].map(|i| reads(&axes[i], adjoint, &part[i]));
        let places = [0, 1].map(|i| {
            let mut places = vec![0; side(&axes[i], adjoint)];
            for (range, place) in pieces(&window[i], places.len()) {
                let begin = (place.start - window[i].start) as usize;
                places[range].iter_mut().enumerate().for_each(|(k, to)| *to = begin + k);
            }
            places
        });
        let rows = if adjoint {
            Rows::of_adjoint(&axes[2], &part[2], &window[2])
        } else {
            Rows::of_forward(&axes[2], &part[2], &window[2])
        };
        Self { adjoint, region: part, places, rows_of_slab: window[1].len(), rows }
    }
}

/// What a part of an axis is computed from.
fn reads(axis: &Axis, adjoint: bool, part: &Range<usize>) -> Range<isize> {
    if adjoint { axis.output_reads(part) } else { axis.input_reads(part) }
}

/// The length of the axis that is read.
fn side(axis: &Axis, adjoint: bool) -> usize {
    if adjoint { axis.output } else { axis.input }
}

impl Rows {
    fn of_forward(axis: &Axis, outputs: &Range<usize>, window: &Range<isize>) -> Self {
        let extended = outputs.start..outputs.end + axis.kernel - 1;
        let mut extension = Vec::new();
        for (to, source) in axis.sources[extended.clone()].iter().enumerate() {
            if let Some(source) = *source {
                Run::push(&mut extension, place(source, window, axis.input), to);
            }
        }
        let exact = exact(outputs, axis.output);
        let pieces = vec![Piece { from: 0, to: 0..outputs.len(), exact }];
        Self {
            input: window.len(),
            input_pieces: input_pieces(window, axis.input),
            extension,
            extended: extended.len(),
            pieces,
            correlated: 0,
            folds: Vec::new(),
        }
    }

    /// The extended samples that are added up in the part are in ranges, each of which is correlated on its own.
    fn of_adjoint(axis: &Axis, inputs: &Range<usize>, window: &Range<isize>) -> Self {
        let reach = axis.kernel - 1;
        let (mut extension, mut pieces) = (Vec::new(), Vec::<Piece>::new());
        let (mut extended, mut correlated) = (0, 0);
        let copying = axis.copying(inputs);
        let mut begins = Vec::with_capacity(copying.len());
        for range in &copying {
            let row = range.start..range.end + reach;
            for (to, at) in row.clone().enumerate() {
                if let Some(output) = at.checked_sub(reach).filter(|&at| at < axis.output) {
                    Run::push(&mut extension, place(output, window, axis.output), extended + to);
                }
            }
            let to = correlated..correlated + range.len();
            pieces.push(Piece { from: extended, to, exact: exact(range, axis.extended()) });
            begins.push(correlated);
            extended += row.len();
            correlated += range.len();
        }
        let mut folds = Vec::new();
        for (sample, input) in axis.folds(inputs) {
            let number = copying.partition_point(|range| range.end <= sample);
            let from = begins[number] + sample - copying[number].start;
            Run::push(&mut folds, from, input - inputs.start);
        }
        let input_pieces = input_pieces(window, axis.output);
        Self { input: window.len(), input_pieces, extension, extended, pieces, correlated, folds }
    }

    fn extend(&self, row: &[f32], to: &mut [f32]) {
        for run in &self.extension {
            to[run.to..][..run.len].copy_from_slice(&row[run.from..][..run.len]);
        }
    }

    fn fold(&self, correlation: &[f32], to: &mut [f32]) {
        for run in &self.folds {
            let values = &correlation[run.from..][..run.len];
            to[run.to..][..run.len].iter_mut().zip(values).for_each(|(to, value)| *to += value);
        }
    }
}

fn correlate_pieces(
    pieces: &[Piece],
    output: &mut [f32],
    source: &[f32],
    terms: &mut [Term],
    taps: &[f32],
    width: usize,
) {
    let mut moved = 0;
    for piece in pieces {
        for term in &mut *terms {
            term.source = term.source - moved + piece.from;
        }
        moved = piece.from;
        correlate(&mut output[piece.to.clone()], piece.exact, source, terms, taps, width);
    }
}

/// The pieces of a window of a row, of which those at the end of the row are computed in f64.
fn input_pieces(window: &Range<isize>, side: usize) -> Vec<Piece> {
    let piece = |(range, place): (Range<usize>, Range<isize>)| {
        let from = (place.start - window.start) as usize;
        Piece { from, to: from..from + range.len(), exact: exact(&range, side) }
    };
    pieces(window, side).into_iter().map(piece).collect()
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
