//! The matrix products in the transformed domain: 6 tiles × 16 output channels in registers.
//!
//! Twelve accumulators, two registers of weights and one broadcast input fill the sixteen registers
//! of AVX2. Meanwhile the kernel prefetches what comes next: the following weight panel, and lines
//! from a list that the caller made (output rows about to be written, input rows of the next block).

use super::lanes::Lanes;
use super::winograd::{OUTPUTS, PANEL};
use crate::engine::layout::BLOCK;

/// One column of panels: the same sixteen outputs for `panels` panels of tiles.
pub(crate) struct Product {
    pub(crate) panels: usize,
    /// Planes of depth to sum over; 1 for images.
    pub(crate) parts: usize,
    /// Blocks of input channels in each part.
    pub(crate) blocks: usize,
    /// `[part](part_stride)[panel](panel_stride)[block][PANEL][BLOCK]`.
    pub(crate) input: *const f32,
    pub(crate) part_stride: usize,
    pub(crate) panel_stride: usize,
    /// `[part][channel][OUTPUTS]`.
    pub(crate) weights: *const f32,
    /// Sixteen values to start the sums from.
    pub(crate) start: *const f32,
    /// `[panel](PANEL · OUTPUTS)[tile][OUTPUTS]`.
    pub(crate) output: *mut f32,
    /// Weights to prefetch, a share for each panel.
    pub(crate) next_weights: *const f32,
    pub(crate) next_share: usize,
    /// One address for each panel, from which as many lines as there are blocks are prefetched.
    pub(crate) lines: *const *const f32,
}

/// Multiplies panels of which the first `ROWS` tiles count.
///
/// # Safety
/// The pointers of `product` are valid for what their comments say; the prefetched addresses may be
/// anything. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn multiply<L: Lanes, const ROWS: usize>(product: &Product) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let start = [L::load(product.start), L::load(product.start.add(BLOCK))];
        for panel in 0..product.panels {
            let mut sums = [start; ROWS];
            let mut weights = product.weights;
            let mut near = product.next_weights.wrapping_add(panel * product.next_share);
            let mut far = *product.lines.add(panel);
            for part in 0..product.parts {
                let mut input =
                    product.input.add(part * product.part_stride + panel * product.panel_stride);
                for _ in 0..product.blocks {
                    L::prefetch_near(near);
                    L::prefetch_far(far);
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
                    far = far.wrapping_add(16);
                }
            }
            let output = product.output.add(panel * PANEL * OUTPUTS);
            for i in 0..ROWS {
                sums[i][0].store(output.add(i * OUTPUTS));
                sums[i][1].store(output.add(i * OUTPUTS + BLOCK));
            }
        }
    }
}
