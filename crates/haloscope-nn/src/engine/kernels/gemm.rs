//! The matrix products in the transformed domain: 6 tiles × 16 output channels in registers.
//!
//! Twelve accumulators, two registers of weights and one broadcast input fill the sixteen registers
//! of AVX2. Meanwhile the kernel prefetches what comes next: the following weight panel, and lines
//! from a list that the caller made (output rows about to be written, input rows of the next block).
//! One call computes a whole chunk: with few channels a panel takes some hundred cycles, and a call
//! for each would be felt.

use super::lanes::Lanes;
use super::winograd::{OUTPUTS, PANEL};
use crate::engine::layout::BLOCK;

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
    /// The first output plane.
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

/// What a panel of tiles is multiplied with, and where.
struct Panel<L> {
    parts: usize,
    blocks: usize,
    input: *const f32,
    part_stride: usize,
    weights: *const f32,
    start: [L; 2],
    output: *mut f32,
    near: *const f32,
    far: *const f32,
}

/// Forms all products of a chunk.
///
/// # Safety
/// The pointers of `product` are valid for what their comments say; the prefetched addresses may be
/// anything. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn multiply<L: Lanes>(product: &Product) {
    let channels = product.blocks * BLOCK;
    let mut lines = product.lines;
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        for point in 0..product.points {
            let input = product.input.start.add(point * product.input.point_stride);
            let output = product.output.start.add(point * product.output.point_stride);
            for panel in 0..product.weight_panels {
                let weights = product.weights.start.add(
                    point * product.weights.point_stride + panel * product.weights.slot_stride,
                );
                let mut near = weights.wrapping_add(product.weights.slot_stride);
                let mut start = [L::splat(0.0); 2];
                if point == product.bias_point {
                    let bias = product.bias.add(panel * OUTPUTS);
                    start = [L::load(bias), L::load(bias.add(BLOCK))];
                }
                for plane in 0..product.depth.planes {
                    let (first_tap, parts) = product.depth.taps_inside(plane);
                    let slot = panel * product.output_planes + plane;
                    let mut call = Panel {
                        parts,
                        blocks: product.blocks,
                        input: input.add((plane + first_tap) * product.input.slot_stride),
                        part_stride: product.input.slot_stride,
                        weights: weights.add(first_tap * channels * OUTPUTS),
                        start,
                        output: output.add(slot * product.output.slot_stride),
                        near,
                        far: *lines,
                    };
                    for _ in 0..product.full_panels {
                        call.far = *lines;
                        multiply_panel::<L, PANEL>(&call);
                        call.input = call.input.add(PANEL * channels);
                        call.output = call.output.add(PANEL * OUTPUTS);
                        call.near = call.near.wrapping_add(product.next_share);
                        lines = lines.add(1);
                    }
                    for rows in product.tail {
                        if rows == 0 {
                            break;
                        }
                        call.far = *lines;
                        match rows {
                            1 => multiply_panel::<L, 1>(&call),
                            2 => multiply_panel::<L, 2>(&call),
                            3 => multiply_panel::<L, 3>(&call),
                            4 => multiply_panel::<L, 4>(&call),
                            _ => multiply_panel::<L, 5>(&call),
                        }
                        call.input = call.input.add(PANEL * channels);
                        call.output = call.output.add(rows * OUTPUTS);
                        call.near = call.near.wrapping_add(product.next_share);
                        lines = lines.add(1);
                    }
                    near = call.near;
                }
            }
        }
    }
}

/// Multiplies the first `ROWS` tiles of a panel.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_panel<L: Lanes, const ROWS: usize>(panel: &Panel<L>) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let mut sums = [panel.start; ROWS];
        let (mut weights, mut near, mut far) = (panel.weights, panel.near, panel.far);
        for part in 0..panel.parts {
            let mut input = panel.input.add(part * panel.part_stride);
            for _ in 0..panel.blocks {
                L::prefetch_near(near);
                L::prefetch_far(far);
                L::prefetch_far(far.wrapping_add(16));
                for k in 0..BLOCK {
                    let first = L::load(weights.add(k * OUTPUTS));
                    let second = L::load(weights.add(k * OUTPUTS + BLOCK));
                    for i in 0..ROWS {
                        let value = L::splat(*input.add(i * BLOCK + k));
                        sums[i][0] = sums[i][0].plus_product(value, first);
                        sums[i][1] = sums[i][1].plus_product(value, second);
                    }
                }
                input = input.add(PANEL * BLOCK);
                weights = weights.add(BLOCK * OUTPUTS);
                near = near.wrapping_add(16);
                far = far.wrapping_add(FAR_STEP);
            }
        }
        for i in 0..ROWS {
            sums[i][0].store(panel.output.add(i * OUTPUTS));
            sums[i][1].store(panel.output.add(i * OUTPUTS + BLOCK));
        }
    }
}
