//! Convolution by Fourier transforms, one plane or volume at a time.
//!
//! Two rows of real samples make one row of complex ones, which halves the work along the width. The
//! spectrum is kept in tiles of 8 × 8 values, grouped by eight rows: the passes along the width then
//! read and write memory in order, and the others take whole cache lines. Along the last direction the
//! forward transform, the product with the kernel and the inverse transform are one visit of memory.
//!
//! Scratch is one spectrum (about 4 bytes per sample of the grid) per call, plus a few rows per thread.

use std::sync::Arc;

use rayon::prelude::*;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::grid::Grid;
use super::lines::{Action, Filter, Lines, Product, gather, scatter};
use super::pairs::{tangle, untangle};
use super::spectrum::Spectrum;

pub(super) type Value = Complex<f32>;

/// Rows, and columns, of a tile.
pub(super) const SIDE: usize = 8;
/// Values of a tile.
pub(super) const TILE: usize = SIDE * SIDE;

/// Transforms planned for one grid.
pub(super) struct Fourier {
    grids: [Grid; 3],
    /// Forward and inverse along (depth, height, width).
    transforms: [[Arc<dyn Fft<f32>>; 2]; 3],
    /// For each image row, the grid rows that the adjoint of the extension adds up there.
    copies: [Vec<Vec<usize>>; 2],
    /// Tiles beside each other. Odd, so that tiles above each other fall into different cache sets.
    blocks: usize,
    /// Whether the grid is the image's own, so that nothing is extended or added up.
    periodic: bool,
}

impl Fourier {
    pub(super) fn new(grids: [Grid; 3]) -> Self {
        let mut planner = FftPlanner::new();
        let transforms = grids
            .each_ref()
            .map(|grid| [planner.plan_fft_forward(grid.len), planner.plan_fft_inverse(grid.len)]);
        let copies = [grids[0].axis.copies(), grids[1].axis.copies()];
        let blocks = (grids[2].len / 2 + 1).div_ceil(SIDE) | 1;
        let periodic = grids.iter().all(Grid::is_periodic);
        Self { grids, transforms, copies, blocks, periodic }
    }

    /// Whether the grid is the image's own.
    pub(super) fn is_periodic(&self) -> bool {
        self.periodic
    }

    pub(super) fn grids(&self) -> &[Grid; 3] {
        &self.grids
    }

    /// The values of scratch that [`run`](Self::run) needs.
    pub(super) fn scratch(&self) -> usize {
        let [depth, height, _] = self.lengths();
        depth * height.div_ceil(SIDE) * self.blocks * TILE
    }

    /// Filters one plane or volume of `input` into `output`.
    pub(super) fn run(
        &self,
        filter: Filter,
        kernel: &Spectrum,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut [Value],
    ) {
        // On the image's own grid both directions take and give whole rows.
        let adjoint = matches!(filter, Filter::Adjoint) && !self.periodic;
        self.rows_to_spectrum(adjoint, input, scratch);
        let [depth, height, width] = self.lengths();
        // The factor of the inverse transforms, and of taking two rows as one.
        let scale = 0.5 / (depth as f32 * height as f32 * width as f32);
        let product = Product { filter, kernel, scale };
        let along_height =
            |action| Lines { transforms: &self.transforms[1], length: height, action };
        if depth == 1 {
            self.along_height(scratch, &along_height(Action::Product(&product)));
        } else {
            self.along_height(scratch, &along_height(Action::Forward));
            self.along_depth(scratch, &product);
            self.along_height(scratch, &along_height(Action::Inverse));
        }
        self.spectrum_to_rows(adjoint, scratch, output);
    }

    fn lengths(&self) -> [usize; 3] {
        self.grids.each_ref().map(|grid| grid.len)
    }

    /// Transforms pairs of rows along the width and writes the halves of their spectra as tiles.
    fn rows_to_spectrum(&self, adjoint: bool, input: &[f32], spectrum: &mut [Value]) {
        let [_, height, width] = self.lengths();
        let groups = height.div_ceil(SIDE);
        let fft = &self.transforms[2][0];
        let rows = || Rows::new(width, fft.get_inplace_scratch_len());
        spectrum.par_chunks_mut(self.blocks * TILE).enumerate().for_each_init(
            rows,
            |rows, (i, group)| {
                let (z, first) = (i / groups, i % groups * SIDE);
                for pair in (0..SIDE.min(height - first)).step_by(2) {
                    let two = [0, 1].map(|k| self.input_row(adjoint, z, first + pair + k, input));
                    if two == [None, None] {
                        for tile in group.chunks_mut(TILE) {
                            tile[pair * SIDE..][..2 * SIDE].fill(Value::default());
                        }
                        continue;
                    }
                    let [a, b] = &mut rows.real;
                    let a = self.place_row(adjoint, two[0], a);
                    let b = self.place_row(adjoint, two[1], b);
                    for ((to, &a), &b) in rows.complex.iter_mut().zip(a).zip(b) {
                        *to = Value::new(a, b);
                    }
                    fft.process_with_scratch(&mut rows.complex, &mut rows.scratch);
                    untangle(&rows.complex, pair, group);
                }
            },
        );
    }

    /// The row of the image, or of the measurement for the adjoint, at a place of the grid.
    fn input_row<'a>(
        &self,
        adjoint: bool,
        z: usize,
        y: usize,
        input: &'a [f32],
    ) -> Option<&'a [f32]> {
        let [depth, height, width] = &self.grids;
        let (row, len) = if adjoint {
            (depth.output(z)? * height.axis.output + height.output(y)?, width.axis.output)
        } else {
            (depth.source(z)? * height.axis.input + height.source(y)?, width.axis.input)
        };
        Some(&input[row * len..][..len])
    }

    /// A row as it lies on the grid: itself, or written to `real`.
    fn place_row<'a>(
        &self,
        adjoint: bool,
        row: Option<&'a [f32]>,
        real: &'a mut [f32],
    ) -> &'a [f32] {
        let width = &self.grids[2];
        let Some(row) = row else {
            real.fill(0.0);
            return real;
        };
        if width.is_periodic() {
            return row;
        }
        if adjoint {
            let end = width.offset + row.len();
            real[..width.offset].fill(0.0);
            real[width.offset..end].copy_from_slice(row);
            real[end..].fill(0.0);
        } else {
            width.axis.extend(row, real);
            real[width.axis.extended()..].fill(0.0);
        }
        real
    }

    /// Works on all lines along the height: those of a block of columns at a time.
    fn along_height(&self, spectrum: &mut [Value], lines: &Lines<'_>) {
        let [depth, height, width] = self.lengths();
        let groups = height.div_ceil(SIDE);
        let mut blocks: Vec<Vec<&mut [Value; TILE]>> = Vec::new();
        blocks.resize_with(depth * self.blocks, || Vec::with_capacity(groups));
        for (i, tile) in spectrum.as_chunks_mut().0.iter_mut().enumerate() {
            blocks[i / (groups * self.blocks) * self.blocks + i % self.blocks].push(tile);
        }
        blocks.par_iter_mut().enumerate().for_each_init(
            || lines.buffers(SIDE),
            |buffers, (i, tiles)| {
                let first = i % self.blocks * SIDE;
                let columns = (width / 2 + 1).saturating_sub(first).min(SIDE);
                // Lines have room for the rows of a last tile that is not full.
                for (tile, y) in tiles.iter().zip((0..).step_by(SIDE)) {
                    gather(tile, &mut buffers.values[y..], buffers.stride);
                }
                for column in 0..columns {
                    lines.run(buffers, column, first + column);
                }
                for (tile, y) in tiles.iter_mut().zip((0..).step_by(SIDE)) {
                    scatter(&buffers.values[y..], buffers.stride, tile);
                }
            },
        );
    }

    /// Works on all lines along the depth: those of a tile at a time.
    fn along_depth(&self, spectrum: &mut [Value], product: &Product<'_>) {
        let [depth, height, width] = self.lengths();
        let lines = Lines {
            transforms: &self.transforms[0],
            length: depth,
            action: Action::Product(product),
        };
        let tiles_of_slab = height.div_ceil(SIDE) * self.blocks;
        let mut stacks: Vec<Vec<&mut [Value]>> = Vec::new();
        stacks.resize_with(tiles_of_slab, || Vec::with_capacity(depth));
        for (i, tile) in spectrum.chunks_mut(TILE).enumerate() {
            stacks[i % tiles_of_slab].push(tile);
        }
        stacks.par_iter_mut().enumerate().for_each_init(
            || lines.buffers(TILE),
            |buffers, (i, tiles)| {
                let (first_y, first_x) = (i / self.blocks * SIDE, i % self.blocks * SIDE);
                for (z, tile) in tiles.iter().enumerate() {
                    for (line, value) in tile.iter().enumerate() {
                        buffers.values[line * buffers.stride + z] = *value;
                    }
                }
                for line in 0..TILE {
                    let (y, x) = (first_y + line / SIDE, first_x + line % SIDE);
                    if y < height && x <= width / 2 {
                        lines.run(buffers, line, x * height + y);
                    }
                }
                for (z, tile) in tiles.iter_mut().enumerate() {
                    for (line, value) in tile.iter_mut().enumerate() {
                        *value = buffers.values[line * buffers.stride + z];
                    }
                }
            },
        );
    }

    /// Transforms pairs of rows back and writes the measurement, or adds up the image for the adjoint.
    fn spectrum_to_rows(&self, adjoint: bool, spectrum: &[Value], output: &mut [f32]) {
        let [depth, height, width] = &self.grids;
        let (rows_of_slab, len) = if adjoint {
            (height.axis.input, width.axis.input)
        } else {
            (height.axis.output, width.axis.output)
        };
        let group = height.len.div_ceil(SIDE) * self.blocks * TILE;
        let fft = &self.transforms[2][1];
        let rows = || Rows::new(width.len, fft.get_inplace_scratch_len());
        output.par_chunks_mut(SIDE * len).enumerate().for_each_init(rows, |rows, (i, output)| {
            // Which rows of the grid go to which rows of the output; any two can be transformed together.
            let mut jobs = Vec::with_capacity(SIDE);
            for row in 0..output.len() / len {
                let (z, y) = ((i * SIDE + row) / rows_of_slab, (i * SIDE + row) % rows_of_slab);
                if adjoint {
                    let [along_depth, along_height] = &self.copies;
                    let places = along_depth[z]
                        .iter()
                        .flat_map(|z| along_height[y].iter().map(move |y| (*z, *y)));
                    jobs.extend(places.map(|place| (row, place)));
                } else {
                    jobs.push((row, (z + depth.offset, y + height.offset)));
                }
            }
            if adjoint {
                output.fill(0.0);
            }
            for pair in jobs.chunks(2) {
                let tiles = |(z, y): (usize, usize)| {
                    let group = &spectrum[z * group + y / SIDE * self.blocks * TILE..]
                        [..self.blocks * TILE];
                    group.chunks_exact(TILE).map(move |tile| &tile[y % SIDE * SIDE..][..SIDE])
                };
                let (first, second) = (pair[0].1, pair.last().map_or(pair[0].1, |job| job.1));
                tangle(tiles(first), tiles(second), &mut rows.complex);
                fft.process_with_scratch(&mut rows.complex, &mut rows.scratch);
                if adjoint {
                    for (k, &(row, _)) in pair.iter().enumerate() {
                        let real = &mut rows.real[0];
                        for (to, value) in real.iter_mut().zip(&rows.complex) {
                            *to = if k == 0 { value.re } else { value.im };
                        }
                        width.axis.fold(real, &mut output[row * len..][..len]);
                    }
                    continue;
                }
                // Without an adjoint the rows of a pair are neighbours.
                let values = &rows.complex[width.offset..][..len];
                let (first, second) = output[pair[0].0 * len..].split_at_mut(len);
                if pair.len() == 2 {
                    for ((a, b), value) in first.iter_mut().zip(second).zip(values) {
                        (*a, *b) = (value.re, value.im);
                    }
                } else {
                    first.iter_mut().zip(values).for_each(|(to, value)| *to = value.re);
                }
            }
        });
    }
}

/// Two rows on the grid, as real and as complex numbers.
struct Rows {
    real: [Vec<f32>; 2],
    complex: Vec<Value>,
    scratch: Vec<Value>,
}

impl Rows {
    fn new(width: usize, scratch: usize) -> Self {
        let real = [vec![0.0; width], vec![0.0; width]];
        Self {
            real,
            complex: vec![Value::default(); width],
            scratch: vec![Value::default(); scratch],
        }
    }
}
