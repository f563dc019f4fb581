//! How long each way to convolve takes and what it keeps in memory, and which to choose.
//!
//! Times are cycles of one core, estimated from the operations that the kernels execute; only
//! their order matters. The constants were fitted to `benches/networks.rs`.

use super::kernels::{OUTPUTS, PANEL};
use super::layout::{BLOCK, Layout};
use super::operations::{Axis, Blocking, tiles};
use super::tile::Tile;
use super::weights::{Form, WinogradWeights};
use crate::engine::options::Accuracy;

/// A way to convolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    /// By the definition.
    Direct,
    /// By Winograd's method with tiles of this size.
    Winograd { tile: Tile, form: Form },
}

impl Method {
    /// The outputs along an axis (planes, rows, columns) that are computed together, whose grid begins at the first of the image.
    pub(crate) fn tile(self, axis: usize) -> usize {
        match self {
            Self::Winograd { tile, .. } if axis > 0 => tile.side,
            Self::Winograd { tile, .. } => tile.depth,
            Self::Direct => 1,
        }
    }
}

/// A way to convolve with its estimated time and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) method: Method,
    pub(crate) cycles: f64,
    pub(crate) weight_bytes: usize,
    /// Per thread.
    pub(crate) scratch_bytes: usize,
}

/// A convolution to choose a method for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub(crate) input: Layout,
    pub(crate) output: Layout,
    pub(crate) axes: [Axis; 3],
    pub(crate) threads: usize,
    /// Rows of the output that are computed at a time.
    pub(crate) rows: usize,
}

impl Problem {
    /// All ways that the accuracy admits, the fastest for one image on one thread first: neither
    /// batches nor threads may change a result.
    pub(crate) fn choices(&self, accuracy: Accuracy) -> Vec<Choice> {
        let one = Self {
            input: Layout { batch: 1, ..self.input },
            output: Layout { batch: 1, ..self.output },
            threads: 1,
            ..*self
        };
        let mut choices = vec![self.direct()];
        choices[0].cycles = one.direct().cycles;
        if self.suits_winograd() {
            for &tile in sizes(accuracy).iter().filter(|&&tile| self.tiles_fit(tile)) {
                for form in [Form::Transformed, Form::Packed] {
                    // Packed weights are transformed in the plane only.
                    if tile.is_deep() && form == Form::Packed {
                        continue;
                    }
                    let cycles = one.winograd(tile, form).cycles;
                    choices.push(Choice { cycles, ..self.winograd(tile, form) });
                }
            }
        }
        choices.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
        choices
    }

    /// The time and memory of a method.
    pub(crate) fn choice(&self, method: Method) -> Choice {
        match method {
            Method::Direct => self.direct(),
            Method::Winograd { tile, form } => self.winograd(tile, form),
        }
    }

    /// Outputs, inputs and depth taps.
    pub(crate) fn kernel_shape(&self) -> [usize; 3] {
        [self.output.channels, self.input.channels, self.axes[0].kernel]
    }

    fn suits_winograd(&self) -> bool {
        let [depth, height, width] = &self.axes;
        let plane = [height, width].iter().all(|axis| axis.kernel == 3 && axis.padding <= 1);
        plane && [depth, height, width].iter().all(|axis| axis.stride == 1 && !axis.transposed)
    }

    /// Whether the input's border holds whole tiles. Deep ones need three taps, and at least four of them must lie behind each
    /// other, so that a volume can still be cut between planes.
    fn tiles_fit(&self, tile: Tile) -> bool {
        let [depth, height, width] = &self.axes;
        if tile.is_deep()
            && (depth.kernel != 3 || depth.padding > 1 || self.output.depth < 4 * tile.depth)
        {
            return false;
        }
        let needed = |size: usize, axis: &Axis| size.next_multiple_of(tile.side) + 2 - axis.padding;
        needed(self.output.height, height) <= self.input.rows_after()
            && needed(self.output.width, width) <= self.input.columns_after()
    }

    fn direct(&self) -> Choice {
        let taps: usize = self.axes.iter().map(|axis| axis.kernel).product();
        let outputs = self.output.channels.next_multiple_of(OUTPUTS);
        let pairs = (self.input.channels * outputs * taps) as f64;
        let layout = if self.axes[2].transposed { &self.input } else { &self.output };
        let pixels = (layout.batch * layout.depth * layout.height * layout.width) as f64;
        Choice {
            method: Method::Direct,
            // Sixteen products per cycle, and the sums' way to memory and back.
            cycles: pixels * (pairs / 15.0 + outputs as f64 / 2.0),
            weight_bytes: (self.input.channels.next_multiple_of(BLOCK) * taps + 1) * outputs * 4,
            scratch_bytes: 0,
        }
    }

    fn winograd(&self, tile: Tile, form: Form) -> Choice {
        let [outputs, inputs, depth_taps] = self.kernel_shape();
        let depth_taps = tile.summed_taps(depth_taps);
        let points = tile.points();
        let channels = inputs.next_multiple_of(BLOCK);
        let outputs = outputs.next_multiple_of(OUTPUTS);
        let blocking = self.blocking(tile, form);
        let tiles = tiles(&self.output, self.rows, tile);
        let planes = if tile.is_deep() { 1 } else { self.output.depth };
        let block_count = tiles.div_ceil(blocking.tiles) * planes.div_ceil(blocking.planes);
        let slots = blocking.planes + depth_taps - 1;
        let all_tiles = (tiles * planes) as f64;

        // A panel of six tiles and sixteen outputs: twelve products of eight lanes per channel at
        // two per cycle, and some cycles to start and to store.
        let panels = all_tiles / 6.0 * (outputs / OUTPUTS * points) as f64;
        let products = panels * ((channels * depth_taps) as f64 * 6.0 + 16.0);
        let input_share = slots as f64 / blocking.planes as f64;
        let transforms = all_tiles
            * points as f64
            * (channels as f64 * input_share + outputs.min(self.output.channels + 8) as f64)
            * if tile.is_deep() { 0.48 } else { 0.38 };
        let weight_len = outputs * channels * depth_taps;
        // Transformed weights come from memory once, and for each further block of tiles from the
        // third-level cache, which prefetching hides almost. Packed ones are transformed for each
        // block, whose transformed input is too large for the caches.
        let points_bytes = (weight_len * points * 4) as f64;
        let weights = match form {
            Form::Transformed => points_bytes / 40.0 + points_bytes * block_count as f64 / 500.0,
            Form::Packed => points_bytes * block_count as f64 / 12.0 + 0.07 * products,
        };
        let chunk = outputs.min(2 * OUTPUTS);
        let own_weights = match form {
            Form::Transformed => 0,
            Form::Packed => channels * depth_taps * chunk,
        };
        // Each point has some cache lines more, and a list of what to prefetch for each panel of the chunk.
        let lists = blocking.planes * (blocking.tiles / 6 + 1) * 4;
        let scratch = points
            * (blocking.tiles * (slots * channels + blocking.planes * chunk)
                + own_weights
                + lists
                + 64)
            + tile.depth_room(PANEL);
        Choice {
            method: Method::Winograd { tile, form },
            cycles: products + transforms + weights,
            // A bias for each output of a whole chunk.
            weight_bytes: WinogradWeights::bytes_of((tile, form), self.kernel_shape())
                + outputs.next_multiple_of(2 * OUTPUTS) * 4,
            scratch_bytes: scratch * 4,
        }
    }

    /// How the work of a Winograd convolution is cut.
    ///
    /// Large blocks read the weights less often, small ones keep their transformed input in the
    /// second-level cache; the more channels, the more the weights matter.
    pub(crate) fn blocking(&self, tile: Tile, form: Form) -> Blocking {
        let [outputs, inputs, depth_taps] = self.kernel_shape();
        let depth_taps = tile.summed_taps(depth_taps);
        let points = tile.points();
        let channels = inputs.next_multiple_of(BLOCK);
        let planes = if depth_taps > 1 { self.output.depth.min(4) } else { 1 };
        let slots = planes + depth_taps - 1;
        let cached = (220 << 10) / (points * channels * 4 * slots) / 6 * 6;
        let wanted = match form {
            Form::Packed if channels > 128 => 258,
            Form::Packed => 1026,
            Form::Transformed if tile.is_deep() && channels < 96 => 18,
            Form::Transformed if tile.is_deep() && channels < 192 => 36,
            Form::Transformed if slots > 1 => cached.max(if channels < 192 { 12 } else { 18 }),
            Form::Transformed if channels < 96 && tile.side == 6 => (3 * cached).clamp(36, 96),
            Form::Transformed if channels < 96 => cached.clamp(12, 96),
            Form::Transformed if channels < 192 => {
                if tile.side == 6 {
                    42
                } else {
                    18
                }
            }
            Form::Transformed => 66,
        };
        let tiles = tiles(&self.output, self.rows, tile);
        let slabs = if tile.is_deep() { 1 } else { self.output.depth.div_ceil(planes) };
        // Every thread should get its share: cut the tiles, or the outputs where tiles are few.
        let mut channel_groups = 1;
        let mut blocks = tiles.div_ceil(wanted);
        if self.threads > 1 && blocks * slabs < 8 * self.threads {
            let chunks = outputs.div_ceil(2 * OUTPUTS);
            if tiles < 100 && chunks >= self.threads {
                channel_groups = self.threads;
            } else if slabs == 1 {
                blocks = blocks.next_multiple_of(self.threads);
            }
        }
        let tiles = tiles.div_ceil(blocks).next_multiple_of(6);
        Blocking { tiles, planes, channel_groups }
    }
}

/// The tiles that an accuracy admits.
fn sizes(accuracy: Accuracy) -> &'static [Tile] {
    const fn deep(depth: usize, side: usize) -> Tile {
        Tile { side, depth }
    }
    // Tiles of four planes would be less accurate.
    const FAST: [Tile; 5] = [Tile::flat(6), Tile::flat(4), Tile::flat(2), deep(2, 4), deep(2, 6)];
    const STRICT: [Tile; 2] = [Tile::flat(2), deep(2, 2)];
    match accuracy {
        Accuracy::Fast => &FAST,
        Accuracy::Strict => &STRICT,
    }
}

/// Lowers choices until weights and scratch fit into `budget` bytes next to `fixed` ones.
///
/// `options` lists the choices of each convolution, the fastest first; the result holds an index
/// for each. Of all single changes the one that saves most bytes per cycle lost is made first. Where
/// nothing fits, the error is the least number of bytes that would.
pub(crate) fn choose(
    options: &[Vec<Choice>],
    threads: usize,
    fixed: usize,
    budget: Option<usize>,
) -> Result<Vec<usize>, usize> {
    let mut chosen = vec![0; options.len()];
    let Some(budget) = budget else { return Ok(chosen) };
    let total = |chosen: &[usize]| {
        let choices = || chosen.iter().zip(options).map(|(&index, list)| &list[index]);
        let weights: usize = choices().map(|choice| choice.weight_bytes).sum();
        let scratch = choices().map(|choice| choice.scratch_bytes).max().unwrap_or(0);
        fixed + weights + scratch * threads
    };
    let mut bytes = total(&chosen);
    while bytes > budget {
        let mut best: Option<(f64, usize, usize, usize)> = None;
        for at in 0..options.len() {
            let now = chosen[at];
            for index in now + 1..options[at].len() {
                chosen[at] = index;
                let after = total(&chosen);
                if after < bytes {
                    let lost = options[at][index].cycles - options[at][now].cycles;
                    let rate = (bytes - after) as f64 / lost.max(1.0);
                    if best.is_none_or(|(best_rate, ..)| rate > best_rate) {
                        best = Some((rate, at, index, after));
                    }
                }
            }
            chosen[at] = now;
        }
        let Some((_, at, index, after)) = best else { return Err(bytes) };
        chosen[at] = index;
        bytes = after;
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(channels: usize, side: usize) -> Problem {
        let layout = Layout::new(1, channels, [1, side, side]);
        let plane = Axis { kernel: 3, stride: 1, padding: 1, transposed: false };
        let depth = Axis { kernel: 1, padding: 0, ..plane };
        let axes = [depth, plane, plane];
        Problem { input: layout, output: layout, axes, threads: 1, rows: side }
    }

    #[test]
    fn large_tiles_win_where_the_image_is_large_and_small_ones_where_weights_dominate() {
        let best = |channels, side| problem(channels, side).choices(Accuracy::Fast)[0].method;
        let kept = |side| Method::Winograd { tile: Tile::flat(side), form: Form::Transformed };
        assert_eq!(best(64, 256), kept(6));
        assert_eq!(best(128, 128), kept(6));
        assert_eq!(best(256, 64), kept(6));
        assert_eq!(best(512, 32), kept(4));
    }

    #[test]
    fn deep_tiles_win_where_a_volume_has_four_of_them() {
        let best = |channels: usize, [depth, side]: [usize; 2]| {
            let layout = Layout::new(1, channels, [depth, side, side]);
            let axis = Axis { kernel: 3, stride: 1, padding: 1, transposed: false };
            let axes = [axis; 3];
            let problem = Problem { input: layout, output: layout, axes, threads: 1, rows: side };
            match problem.choices(Accuracy::Fast)[0].method {
                Method::Winograd { tile, form: Form::Transformed } => tile,
                other => panic!("{other:?}"),
            }
        };
        let cases = [(32, [64, 64]), (64, [32, 32]), (128, [16, 16]), (256, [8, 8])];
        assert!(cases.into_iter().all(|(channels, sides)| best(channels, sides).is_deep()));
        assert!([7, 3, 1].into_iter().all(|depth| !best(64, [depth, 64]).is_deep()));
    }

    #[test]
    fn strict_never_uses_tiles_above_two() {
        for choice in problem(64, 64).choices(Accuracy::Strict) {
            let tile = match choice.method {
                Method::Direct => 0,
                Method::Winograd { tile, .. } => tile.side.max(tile.depth),
            };
            assert!(tile <= 2);
        }
    }

    #[test]
    fn a_budget_is_met_or_the_least_possible_is_named() {
        let options: Vec<Vec<Choice>> =
            [64, 512].iter().map(|&c| problem(c, 32).choices(Accuracy::Fast)).collect();
        let free = choose(&options, 1, 0, None).expect("no budget");
        assert_eq!(free, [0, 0]);
        let bytes = |chosen: &[usize]| -> usize {
            let choices = || chosen.iter().zip(&options).map(|(&index, list)| list[index]);
            choices().map(|c| c.weight_bytes).sum::<usize>()
                + choices().map(|c| c.scratch_bytes).max().unwrap_or(0)
        };
        let half = bytes(&free) / 2;
        assert!(bytes(&choose(&options, 1, 0, Some(half)).expect("packed weights fit")) <= half);
        let least = choose(&options, 1, 0, Some(1000)).expect_err("far too little");
        assert!(choose(&options, 1, 0, Some(least)).is_ok());
    }
}
