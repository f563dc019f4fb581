//! Convolution by Fourier transforms of blocks (overlap-save), for parts of an image.
//!
//! The results lie on a grid of blocks that begins at the origin and depends on the whole image only. A block is computed from
//! its own samples and those that the kernel reaches, whatever else is there, so it has the same bits in any part; blocks
//! that a part cuts through are computed whole. Extended borders of the adjoint are added up after that, in a fixed order.
//!
//! For whole images this takes 1.1 to 2 times as long as transforms of all of it (`bench_blur blocks`), which therefore remain
//! what is chosen for them.

use std::ops::Range;

use rayon::prelude::*;

use super::Kernels;
use super::axis::Axis;
use super::diagonal::Diagonal;
use super::grid::{Grid, fast_length};
use super::lines::Filter;
use crate::physics::region::{Copies, Run, copy_axes, place};

/// Results along the sides of a block are multiples of these: of the depth of a volume, and of the other sides. Networks cut images
/// between multiples of 48, and volumes into slabs of 8, 16 or 32 planes, so most parts consist of whole blocks; those that a cut
/// goes through are computed on both of its sides.
const STEPS: [usize; 3] = [32, 96, 96];

/// A convolution in blocks, for one shape of image and kernels.
pub(super) struct Blocks {
    axes: [Axis; 3],
    /// Results along each side of a block.
    sides: [usize; 3],
    diagonal: Diagonal,
}

impl Blocks {
    pub(super) fn new(kernels: &Kernels, axes: [Axis; 3]) -> Self {
        let sides = [0, 1, 2].map(|i| block_side(&axes[i], STEPS[i]));
        let grid = |i: usize| {
            let kernel = kernels.size[i];
            Grid::periodic(fast_length(sides[i] + kernel - 1), kernel)
        };
        let diagonal = Diagonal::new(kernels, [grid(0), grid(1), grid(2)]);
        Self { axes, sides, diagonal }
    }

    /// What a part of an axis of the measurement, or of the image for the adjoint, is computed from.
    pub(super) fn reads(&self, adjoint: bool, axis: usize, part: &Range<usize>) -> Range<isize> {
        reads(&self.axes[axis], adjoint, self.sides[axis], part)
    }

    /// A part that is not empty.
    pub(super) fn part(&self, adjoint: bool, part: &[Range<usize>; 3]) -> Part {
        let side = |i: usize| Side::new(&self.axes[i], adjoint, self.sides[i], &part[i]);
        Part { adjoint, sides: [side(0), side(1), side(2)] }
    }

    /// The grids of a block, and the number of blocks of the whole measurement.
    pub(super) fn work(&self) -> (&[Grid; 3], usize) {
        let blocks =
            self.axes.iter().zip(self.sides).map(|(axis, side)| axis.output.div_ceil(side));
        (self.diagonal.fourier.grids(), blocks.product())
    }

    /// Writes a part of the convolution of one plane or volume, or of its adjoint, from the window that is read for it.
    pub(super) fn run(&self, part: &Part, kernel: usize, input: &[f32], output: &mut [f32]) {
        let [depth, height, width] = &part.sides;
        let mut blocks = Vec::new();
        for z in &depth.blocks {
            for y in &height.blocks {
                blocks.extend(width.blocks.iter().map(|x| [z, y, x]));
            }
        }
        // Where no border is added up, results are what is asked for.
        if part.sides.iter().all(|side| side.results == side.part) {
            return self.run_blocks(part, &blocks, kernel, input, output);
        }
        let len = part.sides.iter().map(|side| side.results).product();
        let mut results = vec![0.0; len];
        self.run_blocks(part, &blocks, kernel, input, &mut results);
        part.fold(&results, output);
    }

    fn run_blocks(
        &self,
        part: &Part,
        blocks: &[[&Block; 3]],
        kernel: usize,
        input: &[f32],
        results: &mut [f32],
    ) {
        let lens = self.diagonal.fourier.grids().each_ref().map(|grid| grid.len);
        let filter = if part.adjoint { Filter::Adjoint } else { Filter::Forward };
        let filter_block = |block: &[&Block; 3]| {
            let mut samples = vec![0.0; lens.iter().product()];
            let axis = |i: usize| {
                let runs = block[i].inputs.clone();
                Copies { runs, from: part.sides[i].window, to: lens[i] }
            };
            copy_axes(&[axis(0), axis(1), axis(2)], input, &mut samples);
            let mut filtered = vec![0.0; samples.len()];
            let mut borrowed = self.diagonal.borrow_scratch();
            let (spectrum, scratch) = (&self.diagonal.spectra[kernel], &mut borrowed.scratch);
            self.diagonal.fourier.run(filter, spectrum, &samples, &mut filtered, scratch);
            filtered
        };
        // As many at a time as there are threads, which is all that is kept.
        for group in blocks.chunks(rayon::current_num_threads()) {
            let filtered: Vec<Vec<f32>> = group.par_iter().map(filter_block).collect();
            for (block, filtered) in group.iter().zip(&filtered) {
                let axis = |i: usize| {
                    let runs = block[i].outputs.clone();
                    Copies { runs, from: lens[i], to: part.sides[i].results }
                };
                copy_axes(&[axis(0), axis(1), axis(2)], filtered, results);
            }
        }
    }
}

/// A part of the measurement, or of the image for the adjoint.
pub(super) struct Part {
    adjoint: bool,
    sides: [Side; 3],
}

/// One axis of a part.
struct Side {
    /// The lengths of the window that is read, of the results before borders are added up, and of the part.
    window: usize,
    results: usize,
    part: usize,
    blocks: Vec<Block>,
    /// Which results are added to which samples of the part.
    folds: Vec<Run>,
}

/// One axis of a block.
struct Block {
    /// From the window to the block's samples.
    inputs: Vec<Run>,
    /// From the filtered samples to the results.
    outputs: Vec<Run>,
}

impl Part {
    /// Adds up the borders.
    fn fold(&self, results: &[f32], output: &mut [f32]) {
        let [depth, height, width] = &self.sides;
        output.fill(0.0);
        let pairs = |side: &Side| -> Vec<(usize, usize)> {
            let each = |run: &Run| {
                let run = *run;
                (0..run.len).map(move |i| (run.from + i, run.to + i))
            };
            side.folds.iter().flat_map(each).collect()
        };
        let rows = pairs(height);
        for (from_z, to_z) in pairs(depth) {
            for &(from_y, to_y) in &rows {
                let from = (from_z * height.results + from_y) * width.results;
                let to = (to_z * height.part + to_y) * width.part;
                for run in &width.folds {
                    let values = &results[from + run.from..][..run.len];
                    let sums = output[to + run.to..][..run.len].iter_mut();
                    sums.zip(values).for_each(|(sum, value)| *sum += value);
                }
            }
        }
    }
}

impl Side {
    fn new(axis: &Axis, adjoint: bool, side: usize, part: &Range<usize>) -> Self {
        let window = reads(axis, adjoint, side, part);
        let ranges = positions(axis, adjoint, part);
        let read = if adjoint { axis.output } else { axis.input };
        // The kernel's centre is at 0 on the grid of a block.
        let before = if adjoint { axis.kernel / 2 } else { axis.kernel - 1 - axis.kernel / 2 };
        let mut blocks = Vec::new();
        for number in numbers(&ranges, side) {
            let results = results(axis, adjoint, side, number);
            let mut inputs = Vec::new();
            for i in 0..results.len() + axis.kernel - 1 {
                if let Some(sample) = sample(axis, adjoint, results.start + i) {
                    Run::push(&mut inputs, place(sample, &window, read), i);
                }
            }
            let (mut outputs, mut passed) = (Vec::new(), 0);
            for range in &ranges {
                for position in range.start.max(results.start)..range.end.min(results.end) {
                    let from = before + position - results.start;
                    Run::push(&mut outputs, from, passed + position - range.start);
                }
                passed += range.len();
            }
            blocks.push(Block { inputs, outputs });
        }
        let mut folds = Vec::new();
        if adjoint && !axis.circular {
            for (position, input) in axis.folds(part) {
                let number = ranges.partition_point(|range| range.end <= position);
                let passed: usize = ranges[..number].iter().map(Range::len).sum();
                let from = passed + position - ranges[number].start;
                Run::push(&mut folds, from, input - part.start);
            }
        } else {
            folds.push(Run { from: 0, to: 0, len: part.len() });
        }
        let results = ranges.iter().map(Range::len).sum();
        Self { window: window.len(), results, part: part.len(), blocks, folds }
    }
}

/// About three times as many results as the kernel has samples, of which parts at cuts waste more and small ones transform more.
fn block_side(axis: &Axis, step: usize) -> usize {
    let results = if axis.circular { axis.output } else { axis.extended() };
    let steps = (3 * axis.kernel + step / 2) / step;
    (step * steps.max(1)).min(results)
}

/// The results that a part consists of: outputs; for the adjoint extended samples, or inputs if the axis begins again.
fn positions(axis: &Axis, adjoint: bool, part: &Range<usize>) -> Vec<Range<usize>> {
    if adjoint && !axis.circular { axis.copying(part) } else { vec![part.clone()] }
}

/// The blocks that hold these results.
fn numbers(ranges: &[Range<usize>], side: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> =
        ranges.iter().flat_map(|range| range.start / side..=(range.end - 1) / side).collect();
    numbers.dedup();
    numbers
}

/// The results of a block.
fn results(axis: &Axis, adjoint: bool, side: usize, number: usize) -> Range<usize> {
    let all = match (adjoint, axis.circular) {
        (false, _) => axis.output,
        (true, true) => axis.input,
        (true, false) => axis.extended(),
    };
    number * side..((number + 1) * side).min(all)
}

/// The sample that is read at a place: the first one for result i is at place i.
fn sample(axis: &Axis, adjoint: bool, place: usize) -> Option<usize> {
    match (adjoint, axis.circular) {
        (false, _) => axis.sources[place],
        (true, true) => {
            let output = place as isize - (axis.kernel / 2) as isize;
            Some(output.rem_euclid(axis.output as isize) as usize)
        }
        (true, false) => place.checked_sub(axis.kernel - 1).filter(|&output| output < axis.output),
    }
}

/// What whole blocks that hold a part are computed from.
fn reads(axis: &Axis, adjoint: bool, side: usize, part: &Range<usize>) -> Range<isize> {
    let numbers = numbers(&positions(axis, adjoint, part), side);
    let whole = |number: usize| results(axis, adjoint, side, number);
    match (adjoint, axis.circular) {
        (false, _) | (true, true) => {
            let results = whole(numbers[0]).start..whole(numbers[numbers.len() - 1]).end;
            if adjoint { axis.output_reads(&results) } else { axis.input_reads(&results) }
        }
        (true, false) => {
            let first = whole(numbers[0]).start.saturating_sub(axis.kernel - 1);
            let end = whole(numbers[numbers.len() - 1]).end.min(axis.output);
            first as isize..end as isize
        }
    }
}
