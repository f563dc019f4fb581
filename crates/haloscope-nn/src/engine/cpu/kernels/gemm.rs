//! The matrix products in the transformed domain: 6 tiles × 16 output channels in registers.
//!
//! Twelve accumulators, two registers of weights and one broadcast input fill the sixteen registers
//! of AVX2. The 32 registers of AVX-512 hold two panels of tiles and two of weights at once. Meanwhile
//! the kernel prefetches what comes next: the following weight panel, and lines from a list that the
//! caller made (output rows about to be written, input rows of the next block). One call computes a
//! whole chunk: with few channels a panel takes some hundred cycles, and a call for each would be
//! felt.

use std::ops::Range;

use super::lanes::Wide;
use super::winograd::{OUTPUTS, PANEL};
use crate::engine::cpu::layout::BLOCK;

/// Floats that are prefetched from the caller's list for each block of input channels: two lines.
pub(crate) const FAR_STEP: usize = 32;

/// The products of a block of tiles, a slab of planes and a chunk of output channels.
pub(crate) struct Product {
    /// Points of the transformed domain: as many products of matrices.
    pub(crate) points: usize,
    /// Panels of sixteen output channels.
    pub(crate) weight_panels: usize,
    /// Panels of six tiles, and the sizes of up to two smaller ones after them.
    pub(crate) full_panels: usize,
    pub(crate) tail: [usize; 2],
    /// Blocks of input channels.
    pub(crate) blocks: usize,
    pub(crate) depth: Depth,
    /// `[point](point_stride)[slot](slot_stride)[panel][block][PANEL][BLOCK]`.
    pub(crate) input: Strided<*const f32>,
    /// `[point](point_stride)[panel](slot_stride)[depth tap][channel][OUTPUTS]`.
    pub(crate) weights: Strided<*const f32>,
    /// `[point](point_stride)[panel][plane](slot_stride)[tile][OUTPUTS]`.
    pub(crate) output: Strided<*mut f32>,
    /// Planes that a panel of the output has room for.
    pub(crate) output_planes: usize,
    /// What the sums start from at `bias_point`: `[panel][OUTPUTS]`. Elsewhere it is zero.
    pub(crate) bias: *const f32,
    pub(crate) bias_point: usize,
    /// Floats of the next weight panel that each panel of tiles prefetches.
    pub(crate) next_share: usize,
    /// One address for each panel of tiles and of weights, plane and point, from which
    /// [`FAR_STEP`] floats are prefetched for each block and depth tap.
    pub(crate) lines: *const *const f32,
}

/// The planes of depth that are summed; all ones for images.
#[derive(Clone, Copy)]
pub(crate) struct Depth {
    /// The first output plane, counted as the input planes are.
    pub(crate) first: usize,
    /// Output planes.
    pub(crate) planes: usize,
    /// Input planes in all.
    pub(crate) inputs: usize,
    pub(crate) taps: usize,
    pub(crate) padding: usize,
}

impl Depth {
    /// The depth taps of an output plane that fall on input planes: the first and their number.
    #[inline(always)]
    fn taps_inside(&self, plane: usize) -> (usize, usize) {
        let at = self.first + plane;
        let first = self.padding.saturating_sub(at);
        let end = self.taps.min((self.inputs + self.padding).saturating_sub(at));
        (first, end.saturating_sub(first))
    }
}

/// A pointer, and the floats to the next point and within a point.
#[derive(Clone, Copy)]
pub(crate) struct Strided<P> {
    pub(crate) start: P,
    pub(crate) point_stride: usize,
    pub(crate) slot_stride: usize,
}

/// What some panels of tiles are multiplied with, and where.
struct Panels<W, const COLUMNS: usize> {
    parts: usize,
    blocks: usize,
    input: *const f32,
    part_stride: usize,
    weights: *const f32,
    /// Floats between the panels of weights.
    weight_stride: usize,
    start: [W; COLUMNS],
    output: *mut f32,
    /// Floats between the outputs of the panels of weights.
    output_stride: usize,
    /// What to prefetch: each pair of a panel of tiles and one of weights has a share of
    /// `next_share` floats here and an address in the list.
    near: *const f32,
    next_share: usize,
}

/// Forms all products of a chunk, `PANELS` panels of tiles and `COLUMNS` of weights at a time as
/// long as there are so many.
///
/// # Safety
/// The pointers of `product` are valid for what their comments say; the prefetched addresses may be
/// anything. The CPU has the instructions of `W`.
#[inline(always)]
pub(crate) unsafe fn multiply<W: Wide, const PANELS: usize, const COLUMNS: usize>(
    product: &Product,
) {
    let mut lines = product.lines;
    let grouped = product.weight_panels / COLUMNS * COLUMNS;
    for point in 0..product.points {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            lines = multiply_columns::<W, PANELS, COLUMNS>(product, point, 0..grouped, lines);
            if COLUMNS > 1 {
                let rest = grouped..product.weight_panels;
                lines = multiply_columns::<W, PANELS, 1>(product, point, rest, lines);
            }
        }
    }
}

/// Multiplies all tiles with some panels of weights at one point, `COLUMNS` at a time; returns the rest
/// of the list.
///
/// One nest of loops, with the list apart from [`Panels`]: cut otherwise, the compiler runs out of the
/// sixteen registers of AVX2 and moves a weight through memory in the innermost loop, which costs 2 %
/// of DRUNet in `bench_networks`.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_columns<W: Wide, const PANELS: usize, const COLUMNS: usize>(
    product: &Product,
    point: usize,
    panels: Range<usize>,
    mut lines: *const *const f32,
) -> *const *const f32 {
    let channels = product.blocks * BLOCK;
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let input = product.input.start.add(point * product.input.point_stride);
        let output = product.output.start.add(point * product.output.point_stride);
        for panel in panels.step_by(COLUMNS) {
            let weights = product
                .weights
                .start
                .add(point * product.weights.point_stride + panel * product.weights.slot_stride);
            let mut near = weights.wrapping_add(COLUMNS * product.weights.slot_stride);
            let mut start = [W::splat(0.0); COLUMNS];
            if point == product.bias_point {
                for column in 0..COLUMNS {
                    start[column] = W::load(product.bias.add((panel + column) * OUTPUTS));
                }
            }
            for plane in 0..product.depth.planes {
                let (first_tap, parts) = product.depth.taps_inside(plane);
                let slot = panel * product.output_planes + plane;
                let mut call = Panels {
                    parts,
                    blocks: product.blocks,
                    input: input.add((plane + first_tap) * product.input.slot_stride),
                    part_stride: product.input.slot_stride,
                    weights: weights.add(first_tap * channels * OUTPUTS),
                    weight_stride: product.weights.slot_stride,
                    start,
                    output: output.add(slot * product.output.slot_stride),
                    output_stride: product.output_planes * product.output.slot_stride,
                    near,
                    next_share: product.next_share,
                };
                for _ in 0..product.full_panels / PANELS {
                    multiply_panels::<W, PANELS, PANEL, COLUMNS>(&call, lines);
                    call.input = call.input.add(PANELS * PANEL * channels);
                    call.output = call.output.add(PANELS * PANEL * OUTPUTS);
                    call.near = call.near.wrapping_add(PANELS * COLUMNS * product.next_share);
                    lines = lines.add(PANELS * COLUMNS);
                }
                for _ in 0..product.full_panels % PANELS {
                    multiply_panels::<W, 1, PANEL, COLUMNS>(&call, lines);
                    call.input = call.input.add(PANEL * channels);
                    call.output = call.output.add(PANEL * OUTPUTS);
                    call.near = call.near.wrapping_add(COLUMNS * product.next_share);
                    lines = lines.add(COLUMNS);
                }
                for rows in product.tail {
                    match rows {
                        0 => break,
                        1 => multiply_panels::<W, 1, 1, COLUMNS>(&call, lines),
                        2 => multiply_panels::<W, 1, 2, COLUMNS>(&call, lines),
                        3 => multiply_panels::<W, 1, 3, COLUMNS>(&call, lines),
                        4 => multiply_panels::<W, 1, 4, COLUMNS>(&call, lines),
                        _ => multiply_panels::<W, 1, 5, COLUMNS>(&call, lines),
                    }
                    call.input = call.input.add(PANEL * channels);
                    call.output = call.output.add(rows * OUTPUTS);
                    call.near = call.near.wrapping_add(COLUMNS * product.next_share);
                    lines = lines.add(COLUMNS);
                }
                near = call.near;
            }
        }
        lines
    }
}

/// Multiplies the first `ROWS` tiles of `PANELS` panels, which have the addresses at `lines`.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_panels<W: Wide, const PANELS: usize, const ROWS: usize, const COLUMNS: usize>(
    call: &Panels<W, COLUMNS>,
    lines: *const *const f32,
) {
    let panel_len = call.blocks * PANEL * BLOCK;
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let mut sums = [[call.start; ROWS]; PANELS];
        let mut far = [[std::ptr::null(); COLUMNS]; PANELS];
        for panel in 0..PANELS {
            for column in 0..COLUMNS {
                far[panel][column] = *lines.add(panel * COLUMNS + column);
            }
        }
        let (mut weights, mut near) = (call.weights, call.near);
        for part in 0..call.parts {
            let mut input = call.input.add(part * call.part_stride);
            for _ in 0..call.blocks {
                for panel in 0..PANELS {
                    for column in 0..COLUMNS {
                        let share = (panel * COLUMNS + column) * call.next_share;
                        W::prefetch_near(near.wrapping_add(share));
                        W::prefetch_far(far[panel][column]);
                        W::prefetch_far(far[panel][column].wrapping_add(16));
                    }
                }
                for k in 0..BLOCK {
                    let mut w = [W::splat(0.0); COLUMNS];
                    for column in 0..COLUMNS {
                        w[column] = W::load(weights.add(column * call.weight_stride + k * OUTPUTS));
                    }
                    for panel in 0..PANELS {
                        for i in 0..ROWS {
                            let value = W::splat(*input.add(panel * panel_len + i * BLOCK + k));
                            for column in 0..COLUMNS {
                                let sum = &mut sums[panel][i][column];
                                *sum = sum.plus_product(value, w[column]);
                            }
                        }
                    }
                }
                input = input.add(PANEL * BLOCK);
                weights = weights.add(BLOCK * OUTPUTS);
                near = near.wrapping_add(16);
                for panel in 0..PANELS {
                    for column in 0..COLUMNS {
                        far[panel][column] = far[panel][column].wrapping_add(FAR_STEP);
                    }
                }
            }
        }
        for panel in 0..PANELS {
            for i in 0..ROWS {
                for column in 0..COLUMNS {
                    let at = column * call.output_stride + (panel * ROWS + i) * OUTPUTS;
                    sums[panel][i][column].store(call.output.add(at));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::{Pair, Portable};
    use super::*;
    use crate::engine::cpu::buffer::AlignedBuffer;

    /// Random values, the same for the same seed.
    fn random(len: usize, seed: u64) -> AlignedBuffer {
        let buffer = AlignedBuffer::zeroed(len);
        let mut random = fastrand::Rng::with_seed(seed);
        for index in 0..len {
            // SAFETY: below the buffer's length, and nobody else uses it.
            unsafe { buffer.as_ptr().add(index).write(random.f32() - 0.5) };
        }
        buffer
    }

    /// The products of a chunk by some kernel.
    fn products(
        kernel: unsafe fn(&Product),
        (full_panels, tail): (usize, [usize; 2]),
        weight_panels: usize,
        depth: Depth,
    ) -> Vec<f32> {
        let (points, blocks) = (3, 2);
        let channels = blocks * BLOCK;
        let panels = full_panels + 2;
        let slot = panels * PANEL * channels;
        let slots = depth.planes + depth.taps - 1;
        let panel_len = depth.taps * channels * OUTPUTS;
        let input = random(points * slots * slot, 1);
        let weights = random(points * weight_panels * panel_len, 2);
        let bias = random(weight_panels * OUTPUTS, 3);
        let out_slot = panels * PANEL * OUTPUTS;
        let out_point = weight_panels * depth.planes * out_slot;
        let output = AlignedBuffer::zeroed(points * out_point);
        let lines = vec![std::ptr::null(); points * weight_panels * depth.planes * panels];
        let product = Product {
            points,
            weight_panels,
            full_panels,
            tail,
            blocks,
            depth,
            input: Strided { start: input.as_ptr(), point_stride: slots * slot, slot_stride: slot },
            weights: Strided {
                start: weights.as_ptr(),
                point_stride: weight_panels * panel_len,
                slot_stride: panel_len,
            },
            output: Strided {
                start: output.as_ptr(),
                point_stride: out_point,
                slot_stride: out_slot,
            },
            output_planes: depth.planes,
            bias: bias.as_ptr(),
            bias_point: 1,
            next_share: 16,
            lines: lines.as_ptr(),
        };
        // SAFETY: all buffers have the lengths that the fields say.
        unsafe {
            kernel(&product);
            std::slice::from_raw_parts(output.as_ptr(), points * out_point).to_vec()
        }
    }

    const DEPTHS: [Depth; 2] = [
        Depth { first: 0, planes: 1, inputs: 1, taps: 1, padding: 0 },
        Depth { first: 0, planes: 2, inputs: 4, taps: 3, padding: 1 },
    ];
    const TILES: [(usize, [usize; 2]); 5] =
        [(0, [5, 0]), (1, [0, 0]), (2, [4, 3]), (3, [2, 0]), (4, [1, 0])];

    #[test]
    fn larger_register_tiles_give_the_same_bits() {
        for depth in DEPTHS {
            for tiles in TILES {
                for weight_panels in 1..4 {
                    let one =
                        products(multiply::<Pair<Portable>, 1, 1>, tiles, weight_panels, depth);
                    assert!(one.iter().any(|&value| value != 0.0));
                    let four =
                        products(multiply::<Pair<Portable>, 2, 2>, tiles, weight_panels, depth);
                    assert_eq!(one, four, "{tiles:?}, {weight_panels} panels of weights");
                }
            }
        }
    }

    /// The kernel of an instruction set against plain Rust, which rounds between product and sum.
    fn agrees_with_plain_rust(kernel: unsafe fn(&Product)) {
        for depth in DEPTHS {
            for tiles in TILES {
                for weight_panels in 1..4 {
                    let plain =
                        products(multiply::<Pair<Portable>, 1, 1>, tiles, weight_panels, depth);
                    let other = products(kernel, tiles, weight_panels, depth);
                    for (a, b) in plain.iter().zip(other) {
                        assert!((a - b).abs() < 1e-5, "{a} and {b}: {tiles:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_every_instruction_set_agree_with_plain_rust() {
        use super::super::InstructionSet;
        for set in InstructionSet::ALL {
            if set.is_available() {
                agrees_with_plain_rust(set.product_kernel());
            } else {
                eprintln!("skipped: {set:?}, which this CPU does not have");
            }
        }
    }
}
