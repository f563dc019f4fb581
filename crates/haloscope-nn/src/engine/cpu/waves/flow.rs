//! How far each value gets in each wave, which follows from what its step reads.
//!
//! A wave takes a band of the input. Then each step in turn computes whatever its inputs have the rows for, in whole tiles
//! and at most as many rows as a band is worth, so each layer stays some rows behind the one before. Nothing else fixes the
//! delays. When the input has ended, waves go on until the output is complete.

use std::ops::Range;

use crate::engine::cpu::cost::Method;
use crate::engine::cpu::lower::{Program, Work};
use crate::engine::cpu::rows::RowsRead;

/// A program as far as rows are concerned.
#[derive(Debug)]
pub(super) struct Flow {
    steps: Vec<Step>,
    /// Rows of each value. The input's are those on which the network runs.
    heights: Vec<usize>,
    output: usize,
    /// Rows of the input that the caller has.
    input_rows: usize,
    /// Rows of the input that a wave takes.
    band: usize,
}

/// A step as far as rows are concerned.
#[derive(Debug)]
pub(super) struct Step {
    reads: RowsRead,
    pub(super) inputs: Vec<Input>,
    pub(super) output: usize,
    /// The rows of a tile.
    tile: usize,
    /// The most rows that it computes in a wave.
    pub(super) most: usize,
}

/// An input of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) value: usize,
    /// Whether it is so far ahead that the rows are fetched for this step alone, instead of being held together with new
    /// ones for all who read the value.
    pub(super) is_far: bool,
}

/// Where a run is.
#[derive(Clone, Debug)]
pub(super) struct Wave {
    /// The rows of each value that this wave makes.
    pub(super) fresh: Vec<Range<usize>>,
    /// The first row of each value that steps of this wave read together with the fresh ones.
    pub(super) first: Vec<usize>,
    /// The first row of each value that is read later on, or fetched in this wave.
    pub(super) keep: Vec<usize>,
}

impl Wave {
    /// Goes back to where every run begins.
    pub(super) fn restart(&mut self) {
        self.fresh.fill(0..0);
    }
}

impl Step {
    /// Whether an input is read where it is kept: it is far, and just the rows that the step computes are read of it.
    pub(super) fn reads_in_place(&self, position: usize) -> bool {
        self.inputs[position].is_far && (position > 0 || matches!(self.reads, RowsRead::Same))
    }
}

impl Flow {
    /// The flow of a program whose convolutions have these methods, for an image of so many rows.
    pub(super) fn new(program: &Program, methods: &[Method], input_rows: usize) -> Self {
        let mut methods = methods.iter();
        let steps = program.steps.iter().map(|draft| {
            let method = if matches!(draft.work, Work::Conv(_)) { methods.next() } else { None };
            let tile = match method {
                Some(Method::Winograd { tile, .. }) => *tile,
                _ => 1,
            };
            let inputs = draft.inputs.iter().map(|&value| Input { value, is_far: false });
            let (reads, output) = (draft.reads, draft.output);
            Step { reads, inputs: inputs.collect(), output, tile, most: 0 }
        });
        let steps = steps.collect();
        let heights = program.layouts.iter().map(|layout| layout.height).collect();
        Self { steps, heights, output: program.output, input_rows, band: 0 }
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn heights(&self) -> &[usize] {
        &self.heights
    }

    pub(super) fn band(&self) -> usize {
        self.band
    }

    /// Rows of the input that are whole tiles of every step, if that is not many; bands of other heights are possible, but
    /// waves differ in length.
    pub(super) fn unit(&self) -> usize {
        const MOST: usize = 192;
        let rows = self.heights[0];
        let unit = self.steps.iter().try_fold(1usize, |unit, step| {
            let (tile, height) = (step.tile * rows, self.heights[step.output]);
            let own = tile / gcd(tile, height);
            Some(unit / gcd(unit, own) * own).filter(|&unit| unit <= MOST)
        });
        unit.unwrap_or(48)
    }

    /// Chooses the rows of a band, and with it which inputs are far.
    pub(super) fn set_band(&mut self, band: usize) {
        self.band = band;
        for step in &mut self.steps {
            let share = (band * self.heights[step.output]).div_ceil(self.heights[0]);
            step.most = share.max(1).next_multiple_of(step.tile);
            step.inputs.iter_mut().for_each(|input| input.is_far = false);
        }
        // An input is far if it would mean to hold more old rows than the step needs at all.
        let mut far: Vec<Vec<bool>> =
            self.steps.iter().map(|step| vec![false; step.inputs.len()]).collect();
        let mut wave = self.start();
        while self.advance(&mut wave) {
            for (step, far) in self.steps.iter().zip(&mut far) {
                for (position, far) in far.iter_mut().enumerate() {
                    let read = self.read(step, position, &wave);
                    let old =
                        wave.fresh[step.inputs[position].value].start.saturating_sub(read.start);
                    *far |= old > read.len();
                }
            }
        }
        for (step, far) in self.steps.iter_mut().zip(far) {
            for (input, is_far) in step.inputs.iter_mut().zip(far) {
                input.is_far = is_far;
            }
        }
    }

    /// Where every run begins: before the first wave.
    pub(super) fn start(&self) -> Wave {
        let zeros = || vec![0; self.heights.len()];
        Wave { fresh: vec![0..0; self.heights.len()], first: zeros(), keep: zeros() }
    }

    /// The next wave, unless the output is complete.
    pub(super) fn advance(&self, wave: &mut Wave) -> bool {
        if wave.fresh[self.output].end == self.heights[self.output] {
            return false;
        }
        wave.fresh[0] = self.next_band(wave.fresh[0].end);
        for step in &self.steps {
            let done = wave.fresh[step.output].end;
            wave.fresh[step.output] = done..self.ready(step, done, wave);
        }
        for (value, fresh) in wave.fresh.iter().enumerate() {
            wave.first[value] = fresh.start;
            wave.keep[value] = fresh.end;
        }
        for step in &self.steps {
            let Range { start, end } = wave.fresh[step.output];
            for (position, input) in step.inputs.iter().enumerate() {
                let value = input.value;
                if !input.is_far && start < end {
                    let read = self.read(step, position, wave);
                    wave.first[value] = wave.first[value].min(read.start);
                }
                let left = if input.is_far { start } else { end }..self.heights[step.output];
                if !left.is_empty() {
                    let later = self.reads(step, position, &left);
                    wave.keep[value] = wave.keep[value].min(later.start);
                }
            }
        }
        true
    }

    /// The rows of an input that a step reads in this wave.
    pub(super) fn read(&self, step: &Step, position: usize, wave: &Wave) -> Range<usize> {
        let fresh = &wave.fresh[step.output];
        if fresh.is_empty() {
            let at = wave.fresh[step.inputs[position].value].end;
            return at..at;
        }
        self.reads(step, position, fresh)
    }

    /// The rows of the caller's image in a band of the input; rows after the last are made from it.
    pub(super) fn rows_of(&self, band: &Range<usize>) -> Range<usize> {
        let most = self.input_rows;
        let end = if band.end == self.heights[0] { most } else { band.end };
        band.start.min(most)..end.min(most)
    }

    /// The band after so many rows.
    fn next_band(&self, done: usize) -> Range<usize> {
        let rows = self.heights[0];
        // The rows that extend the image mirror as many of its last ones, which have to be in the same band.
        let last = rows - self.input_rows + 1;
        let end = done + self.band;
        let end = if end + last > self.input_rows { rows } else { end };
        done..end
    }

    /// The rows of an output for which all inputs are there, as far as a wave goes.
    fn ready(&self, step: &Step, done: usize, wave: &Wave) -> usize {
        let height = self.heights[step.output];
        let is_ready = |end: usize| {
            (0..step.inputs.len()).all(|position| {
                let there = wave.fresh[step.inputs[position].value].end;
                self.reads(step, position, &(done..end)).end <= there
            })
        };
        let (mut ready, mut beyond) = (done, height.min(done + step.most) + 1);
        while beyond - ready > 1 {
            let middle = ready.midpoint(beyond);
            if is_ready(middle) { ready = middle } else { beyond = middle }
        }
        if ready == height { ready } else { ready / step.tile * step.tile }
    }

    fn reads(&self, step: &Step, position: usize, rows: &Range<usize>) -> Range<usize> {
        let height = self.heights[step.inputs[position].value];
        let reads = if position == 0 { &step.reads } else { &RowsRead::Same };
        reads.of(rows, height)
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
