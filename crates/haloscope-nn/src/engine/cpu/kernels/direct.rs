//! Direct convolution of up to six pixels of a row, sixteen output channels, all taps.

use super::lanes::Lanes;
use super::winograd::{Epilogue, OUTPUTS};
use crate::engine::cpu::layout::BLOCK;

/// Pixels that one call computes at most: with sixteen outputs, twelve accumulators.
pub(crate) const PIXELS: usize = 6;

/// Taps of a convolution in memory: how far apart the values are that it sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps {
    /// Planes, rows and columns of the kernel that fall on the input.
    pub(crate) count: [usize; 3],
    /// Floats between taps along each axis.
    pub(crate) stride: [usize; 3],
    /// Blocks of input channels, and the floats between them.
    pub(crate) blocks: usize,
    pub(crate) block_stride: usize,
    /// Channels of the last block that count.
    pub(crate) last_lanes: usize,
    /// Floats of weights of each block that belong to planes outside the input.
    pub(crate) skipped_weights: usize,
}

/// Where the pixels of a call are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pixels {
    pub(crate) input: *const f32,
    /// Floats between the inputs of neighbouring pixels.
    pub(crate) input_stride: usize,
    pub(crate) output: *mut f32,
    pub(crate) output_stride: usize,
    /// From the first block of eight outputs to the second; `None` where there is no second.
    pub(crate) second: Option<usize>,
}

/// Convolves `ROWS` pixels. `STEP` is the pixels' input stride where it is known when compiling,
/// and 0 where it is not.
///
/// # Safety
/// `weights` (`[block][plane][row][column][BLOCK][OUTPUTS]`), `bias` (sixteen values) and the
/// pointers of `pixels` and `epilogue` are valid for the taps. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn convolve<L: Lanes, const ROWS: usize, const STEP: usize>(
    taps: &Taps,
    weights: *const f32,
    bias: *const f32,
    pixels: &Pixels,
    epilogue: &Epilogue,
) {
    debug_assert!(STEP == 0 || STEP == pixels.input_stride);
    let step = if STEP > 0 { STEP } else { pixels.input_stride };
    let [planes, rows, columns] = taps.count;
    let mut weights = weights;
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let mut sums = [[L::load(bias), L::load(bias.add(BLOCK))]; ROWS];
        let mut block_input = pixels.input;
        for block in 0..taps.blocks {
            let lanes = if block + 1 == taps.blocks { taps.last_lanes } else { BLOCK };
            let mut plane_input = block_input;
            for _ in 0..planes {
                let mut row_input = plane_input;
                for _ in 0..rows {
                    let mut input = row_input;
                    for _ in 0..columns {
                        if lanes == BLOCK {
                            for k in 0..BLOCK {
                                add_channel::<L, ROWS>(&mut sums, weights, input, step, k);
                            }
                        } else {
                            for k in 0..lanes {
                                add_channel::<L, ROWS>(&mut sums, weights, input, step, k);
                            }
                        }
                        input = input.wrapping_add(taps.stride[2]);
                        weights = weights.wrapping_add(BLOCK * OUTPUTS);
                    }
                    row_input = row_input.wrapping_add(taps.stride[1]);
                }
                plane_input = plane_input.wrapping_add(taps.stride[0]);
            }
            block_input = block_input.wrapping_add(taps.block_stride);
            weights = weights.wrapping_add(taps.skipped_weights);
        }
        for i in 0..ROWS {
            let offset = i * pixels.output_stride;
            finish(sums[i][0], epilogue, [offset; 2]).store(pixels.output.add(offset));
        }
        if let Some(second) = pixels.second {
            for i in 0..ROWS {
                let offset = i * pixels.output_stride;
                let added = epilogue.second.map(|second| offset + second);
                finish(sums[i][1], epilogue, added).store(pixels.output.add(offset + second));
            }
        }
    }
}

/// Adds the products of one input channel.
///
/// # Safety
/// As for [`convolve`].
#[inline(always)]
unsafe fn add_channel<L: Lanes, const ROWS: usize>(
    sums: &mut [[L; 2]; ROWS],
    weights: *const f32,
    input: *const f32,
    step: usize,
    channel: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let first = L::load(weights.add(channel * OUTPUTS));
        let second = L::load(weights.add(channel * OUTPUTS + BLOCK));
        for i in 0..ROWS {
            let value = L::splat(*input.add(i * step + channel));
            sums[i][0] = sums[i][0].plus_product(value, first);
            sums[i][1] = sums[i][1].plus_product(value, second);
        }
    }
}

/// Applies an epilogue that is not known when compiling: the sums of all taps outweigh it.
///
/// # Safety
/// The pointers of the epilogue that are not null are valid at `offsets`.
#[inline(always)]
unsafe fn finish<L: Lanes>(mut value: L, epilogue: &Epilogue, offsets: [usize; 2]) -> L {
    // SAFETY: the caller's contract.
    unsafe {
        for (add, offset) in epilogue.adds.into_iter().zip(offsets) {
            if !add.is_null() {
                value = value.add(L::load(add.add(offset)));
            }
        }
        if epilogue.slope < 1.0 {
            value = value.max(value.mul(L::splat(epilogue.slope)));
        }
        value
    }
}
