//! The transforms between an image and its finer grid, axis by axis.
//!
//! Frequencies of the finer grid that the image has not are 0, or are not needed: they are never transformed. Each pass reads
//! blocks of columns and writes whole lines, so that threads write parts of their own. The grid's axes are those of the image
//! in reverse; its lines are padded, because lines a power of two apart would fall into the same sets of the cache.

use std::sync::Arc;

use rayon::prelude::*;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::Real;
use super::grid::Grid;

/// Lines that are transformed together: a cache line of columns in single precision.
const BLOCK: usize = 8;

/// One axis: its transforms, and what undoes the kernel.
struct Axis<T> {
    side: usize,
    length: usize,
    forward: Arc<dyn Fft<T>>,
    inverse: Arc<dyn Fft<T>>,
    /// For every pixel, what its values are multiplied with.
    correction: Vec<T>,
}

impl<T: Real> Axis<T> {
    /// The frequency on the grid of a pixel: 0 is that of the middle.
    fn frequency(&self, pixel: usize) -> usize {
        let middle = self.side / 2;
        if pixel < middle { self.length + pixel - middle } else { pixel - middle }
    }

    /// Frequencies between those of the last pixel and the first, which the image has not.
    fn gap(&self) -> std::ops::Range<usize> {
        self.side.div_ceil(2)..self.length - self.side / 2
    }
}

/// The passes for one shape of images.
pub(super) struct Passes<T> {
    axes: Vec<Axis<T>>,
    /// From a line of the grid to the next.
    pitch: usize,
}

impl<T: Real> Passes<T> {
    pub(super) fn new(sides: &[usize], grid: &Grid) -> Self {
        let mut planner = FftPlanner::new();
        let axes: Vec<Axis<T>> = (sides.iter().zip(&grid.sides))
            .map(|(&side, &length)| {
                let turns = |pixel: usize| (pixel as f64 - (side / 2) as f64) / length as f64;
                let correction = |pixel| T::rounded(1.0 / grid.kernel.transform(turns(pixel)));
                Axis {
                    side,
                    length,
                    forward: planner.plan_fft_forward(length),
                    inverse: planner.plan_fft_inverse(length),
                    correction: (0..side).map(correction).collect(),
                }
            })
            .collect();
        let pitch = axes[0].length.next_multiple_of(BLOCK) + BLOCK;
        Self { axes, pitch }
    }

    /// The values of the grid and of the memory between passes, before they are planned.
    pub(super) fn values(sides: &[usize], grid: &Grid) -> usize {
        let padded = |length: usize| length.next_multiple_of(BLOCK) + BLOCK;
        let lines: usize = grid.sides[1..].iter().product();
        lines * padded(grid.sides[0]) + sides[0] * padded(lines)
    }

    /// From a line of the grid to the next.
    pub(super) fn pitch(&self) -> usize {
        self.pitch
    }

    /// The lines of the grid.
    pub(super) fn lines(&self) -> usize {
        self.axes[1..].iter().map(|axis| axis.length).product()
    }

    /// From the lines of one row of the image to those of the next, in the memory between passes.
    fn between(&self) -> usize {
        self.lines().next_multiple_of(BLOCK) + BLOCK
    }

    /// Values of memory that [`forward`](Self::forward) needs beside the grid.
    pub(super) fn scratch(&self) -> usize {
        self.axes[0].side * self.between()
    }

    /// From an image to the grid.
    pub(super) fn forward(
        &self,
        image: &[Complex<T>],
        scratch: &mut [Complex<T>],
        grid: &mut [Complex<T>],
    ) {
        let first = &self.axes[0];
        let row = image.len() / first.side;
        let between = self.between();
        let rows = image.par_chunks(row).zip(scratch.par_chunks_mut(between)).enumerate();
        rows.for_each_init(Room::default, |room, (pixel, (from, to))| {
            self.forward_row(first.correction[pixel], from, &mut to[..self.lines()], room);
        });
        let scratch = &*scratch;
        let blocks = grid.par_chunks_mut(self.pitch * BLOCK).enumerate();
        blocks.for_each_init(Room::default, |room, (block, lines)| {
            let columns = block * BLOCK;
            for pixel in 0..first.side {
                let at = first.frequency(pixel);
                let from = &scratch[pixel * between + columns..];
                for (line, value) in lines.chunks_mut(self.pitch).zip(from) {
                    line[at] = *value;
                }
            }
            for line in lines.chunks_mut(self.pitch) {
                line[first.gap()].fill(Complex::default());
                transform(&*first.forward, &mut line[..first.length], &mut room.scratch);
            }
        });
    }

    /// One row of an image, of one or two axes, to its part of the memory between passes.
    fn forward_row(
        &self,
        factor: T,
        from: &[Complex<T>],
        to: &mut [Complex<T>],
        room: &mut Room<T>,
    ) {
        let last = &self.axes[self.axes.len() - 1];
        let line = |factor: T, from: &[Complex<T>], to: &mut [Complex<T>], scratch: &mut Vec<_>| {
            to[last.gap()].fill(Complex::default());
            let (low, high) = from.split_at(last.side / 2);
            let (low_factors, high_factors) = last.correction.split_at(last.side / 2);
            scale(&mut to[last.length - low.len()..], low, low_factors, factor);
            scale(&mut to[..high.len()], high, high_factors, factor);
            transform(&*last.forward, to, scratch);
        };
        let [_, middle, _] = &self.axes[..] else {
            return line(factor, from, to, &mut room.scratch);
        };
        let plane = &mut room.plane;
        plane.resize(middle.side * last.length, Complex::default());
        let pairs = from.chunks(last.side).zip(plane.chunks_mut(last.length));
        for ((from, to), correction) in pairs.zip(&middle.correction) {
            line(factor * *correction, from, to, &mut room.scratch);
        }
        for (block, lines) in to.chunks_mut(BLOCK * middle.length).enumerate() {
            for pixel in 0..middle.side {
                let at = middle.frequency(pixel);
                let from = &plane[pixel * last.length + block * BLOCK..];
                for (line, value) in lines.chunks_mut(middle.length).zip(from) {
                    line[at] = *value;
                }
            }
            for line in lines.chunks_mut(middle.length) {
                line[middle.gap()].fill(Complex::default());
                transform(&*middle.forward, line, &mut room.scratch);
            }
        }
    }

    /// From the grid, which it overwrites, to an image: the adjoint of [`forward`](Self::forward).
    pub(super) fn adjoint(&self, grid: &mut [Complex<T>], image: &mut [Complex<T>]) {
        let first = &self.axes[0];
        grid.par_chunks_mut(self.pitch * BLOCK).for_each_init(Room::default, |room, lines| {
            for line in lines.chunks_mut(self.pitch) {
                transform(&*first.inverse, &mut line[..first.length], &mut room.scratch);
            }
        });
        let grid = &*grid;
        let row = image.len() / first.side;
        let blocks = image.par_chunks_mut(BLOCK * row).enumerate();
        blocks.for_each_init(Room::default, |room, (block, rows)| {
            let count = rows.len() / row;
            let mut columns = std::mem::take(&mut room.columns);
            columns.resize(count * self.lines(), Complex::default());
            let at: Vec<usize> =
                (0..count).map(|index| first.frequency(block * BLOCK + index)).collect();
            for (line, values) in grid.chunks(self.pitch).enumerate() {
                for (index, &at) in at.iter().enumerate() {
                    columns[index * self.lines() + line] = values[at];
                }
            }
            let pairs = columns.chunks_mut(self.lines()).zip(rows.chunks_mut(row));
            for (index, (from, to)) in pairs.enumerate() {
                let factor = first.correction[block * BLOCK + index];
                self.adjoint_row(factor, from, to, room);
            }
            room.columns = columns;
        });
    }

    /// One row of an image, of one or two axes, from its columns of the grid.
    fn adjoint_row(
        &self,
        factor: T,
        from: &mut [Complex<T>],
        to: &mut [Complex<T>],
        room: &mut Room<T>,
    ) {
        let last = &self.axes[self.axes.len() - 1];
        let line =
            |factor: T, from: &mut [Complex<T>], to: &mut [Complex<T>], scratch: &mut Vec<_>| {
                transform(&*last.inverse, from, scratch);
                let (low, high) = to.split_at_mut(last.side / 2);
                let (low_factors, high_factors) = last.correction.split_at(last.side / 2);
                scale(low, &from[last.length - low.len()..], low_factors, factor);
                scale(high, from, high_factors, factor);
            };
        let [_, middle, _] = &self.axes[..] else {
            return line(factor, from, to, &mut room.scratch);
        };
        for line in from.chunks_mut(middle.length) {
            transform(&*middle.inverse, line, &mut room.scratch);
        }
        let plane = &mut room.plane;
        plane.resize(BLOCK * last.length, Complex::default());
        for (block, rows) in to.chunks_mut(BLOCK * last.side).enumerate() {
            let count = rows.len() / last.side;
            for (at, values) in from.chunks(middle.length).enumerate() {
                for index in 0..count {
                    plane[index * last.length + at] =
                        values[middle.frequency(block * BLOCK + index)];
                }
            }
            for (index, row) in rows.chunks_mut(last.side).enumerate() {
                let factor = factor * middle.correction[block * BLOCK + index];
                let from = &mut plane[index * last.length..][..last.length];
                line(factor, from, row, &mut room.scratch);
            }
        }
    }
}

/// Memory of one thread.
struct Room<T> {
    scratch: Vec<Complex<T>>,
    plane: Vec<Complex<T>>,
    columns: Vec<Complex<T>>,
}

impl<T> Default for Room<T> {
    fn default() -> Self {
        Self { scratch: Vec::new(), plane: Vec::new(), columns: Vec::new() }
    }
}

fn transform<T: Real>(fft: &dyn Fft<T>, line: &mut [Complex<T>], scratch: &mut Vec<Complex<T>>) {
    scratch.resize(scratch.len().max(fft.get_inplace_scratch_len()), Complex::default());
    fft.process_with_scratch(line, scratch);
}

/// Values times a factor and factors of their own.
fn scale<T: Real>(to: &mut [Complex<T>], from: &[Complex<T>], factors: &[T], factor: T) {
    for ((to, from), each) in to.iter_mut().zip(from).zip(factors) {
        *to = *from * (factor * *each);
    }
}
