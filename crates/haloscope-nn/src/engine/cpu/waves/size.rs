//! How much memory the waves of a program take for a band of some height.

use super::flow::Flow;
use super::ring::Ring;
use crate::engine::Waves;
use crate::engine::cpu::layout::Layout;
use crate::engine::cpu::memory::{Demand, assign};
use crate::engine::cpu::operation::Value;
use crate::engine::cpu::place::pad;

/// Where everything lies that the waves of one flow hold.
#[derive(Default)]
pub(super) struct Places {
    /// The windows of the program's values, then those that far inputs are fetched to, in the order of the steps.
    pub(super) windows: Vec<Value>,
    /// For each value what outlives a wave of it.
    pub(super) rings: Vec<Ring>,
    /// Floats of all that, without the rings that are kept apart, and those of these.
    pub(super) activations: usize,
    pub(super) apart: usize,
    /// The most rows that a wave reads of the image, and the most rows that it makes of the output.
    pub(super) bands: [usize; 2],
    pub(super) waves: Waves,
}

impl Places {
    /// Follows all waves, and finds room for what they hold. The rows of values have so many ghosts before and after them.
    pub(super) fn of(
        flow: &Flow,
        layouts: &[Layout],
        ghosts: &[[usize; 2]],
        output: usize,
    ) -> Self {
        let steps = flow.steps();
        let count = layouts.len();
        let mut rows: Vec<usize> = vec![0; count];
        let mut kept = vec![0; count];
        let mut far: Vec<Vec<usize>> =
            steps.iter().map(|step| vec![0; step.inputs.len()]).collect();
        let mut delays = vec![0; steps.len()];
        let (mut bands, mut waves) = ([0; 2], 0);
        let mut wave = flow.start();
        while flow.advance(&mut wave) {
            waves += 1;
            bands[0] = bands[0].max(flow.rows_of(&wave.fresh[0]).len());
            bands[1] = bands[1].max(wave.fresh[output].len());
            for value in 0..count {
                let end = wave.fresh[value].end;
                rows[value] = rows[value].max(end - wave.first[value]);
                kept[value] = kept[value].max(end - wave.keep[value]);
            }
            for ((step, far), delay) in steps.iter().zip(&mut far).zip(&mut delays) {
                for (position, rows) in far.iter_mut().enumerate() {
                    *rows = (*rows).max(flow.read(step, position, &wave).len());
                }
                let heights = flow.heights();
                let done = wave.fresh[step.output].end * heights[0] / heights[step.output];
                *delay = (*delay).max(wave.fresh[0].end.saturating_sub(done));
            }
        }
        // Slot 0 loads the input; slot i + 1 is the step i; the last one stores the output.
        let mut alive = vec![(0, 0); count];
        for (index, step) in steps.iter().enumerate() {
            alive[step.output] = (index + 1, index + 1);
            for input in step.inputs.iter().filter(|input| !input.is_far) {
                alive[input.value].1 = index + 1;
            }
        }
        alive[output].1 = steps.len() + 1;
        let mut windows: Vec<Layout> =
            layouts.iter().zip(&rows).map(|(layout, &rows)| layout.window(rows)).collect();
        let mut in_place = Vec::new();
        for (index, (step, far)) in steps.iter().zip(&far).enumerate() {
            for (position, (input, &rows)) in step.inputs.iter().zip(far).enumerate() {
                if step.reads_in_place(position) {
                    in_place.push((windows.len(), input.value));
                }
                if input.is_far {
                    let layout = layouts[input.value].window(rows);
                    let is_empty = step.reads_in_place(position);
                    windows.push(if is_empty { Layout { stored: 0, ..layout } } else { layout });
                    alive.push((index + 1, index + 1));
                }
            }
        }
        let demands: Vec<Demand> = (windows.iter().zip(alive))
            .map(|(layout, (first, last))| Demand {
                len: pad(layout.len()),
                alive: first..=last,
                overwrites: None,
            })
            .collect();
        let (offsets, mut activations) = assign(&demands);
        let windows = windows.into_iter().zip(offsets);
        let mut windows: Vec<Value> =
            windows.map(|(layout, offset)| Value { layout, offset, first: 0 }).collect();
        let longest = layouts.iter().map(Layout::row_stride).max().unwrap_or(0);
        let mut apart = 0;
        let rings: Vec<Ring> = (layouts.iter().zip(ghosts).zip(kept).enumerate())
            .map(|(value, ((layout, &ghosts), rows))| {
                let is_apart = flow.is_apart(value);
                let end = if is_apart { &mut apart } else { &mut activations };
                *end = (*end).max(longest);
                let mut ring = Ring::new(layout, rows, ghosts, *end);
                ring.is_apart = is_apart;
                *end += pad(ring.len());
                ring
            })
            .collect();
        // Tiles that reach over the lower edge read beyond a ring, and drop what they read.
        activations += pad(8 * longest);
        for (window, value) in in_place {
            windows[window] = rings[value].value(&(0..0));
        }
        let waves = Waves { band: flow.band(), count: waves, delays };
        Self { windows, rings, activations, apart, bands, waves }
    }
}
