//! Direct convolution of up to six pixels of a row, sixteen output channels, all taps.

use super::lanes::Lanes;
use super::winograd::{Epilogue, OUTPUTS, finish};
use crate::engine::layout::BLOCK;

/// Pixels that one call computes at most: with sixteen outputs, twelve accumulators.
pub(crate) const PIXELS: usize = 6;

/// Taps of a convolution in memory: how far apart the values are that it sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps {
    /// Planes, rows and columns of the kernel that fall on the input.
    pub(crate) count: [usize; 3],
    /// Floats between taps along each axis.
    pub(crate) stride: [usize; 3],
    /// Floats between planes of weights, rows of weights, and blocks of input channels' weights.
    pub(crate) weight_stride: [usize; 3],
    pub(crate) blocks: usize,
    pub(crate) block_stride: usize,
    /// Channels of the last block that count.
    pub(crate) last_lanes: usize,
}

/// Where the pixels of a call are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pixels {
    pub(crate) input: *const f32,
    pub(crate) input_stride: usize,
    pub(crate) output: *mut f32,
    pub(crate) output_stride: usize,
    /// From the first block of eight outputs to the second; `None` where there is no second.
    pub(crate) second: Option<usize>,
}

/// Convolves `ROWS` pixels.
///
/// # Safety
/// `weights` (`[block][plane][row][column][BLOCK][OUTPUTS]`), `bias` (sixteen values) and the
/// pointers of `pixels` and `epilogue` are valid for the taps. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn convolve<L: Lanes, const ROWS: usize, const ADDS: u8, const ACTIVATION: u8>(
    taps: &Taps,
    weights: *const f32,
    bias: *const f32,
    pixels: &Pixels,
    epilogue: &Epilogue,
) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let mut sums = [[L::load(bias), L::load(bias.add(BLOCK))]; ROWS];
        for block in 0..taps.blocks {
            let lanes = if block + 1 == taps.blocks { taps.last_lanes } else { BLOCK };
            for plane in 0..taps.count[0] {
                for row in 0..taps.count[1] {
                    let mut input = pixels.input.add(
                        block * taps.block_stride + plane * taps.stride[0] + row * taps.stride[1],
                    );
                    let mut weights = weights.add(
                        block * taps.weight_stride[2]
                            + plane * taps.weight_stride[0]
                            + row * taps.weight_stride[1],
                    );
                    for _ in 0..taps.count[2] {
                        if lanes == BLOCK {
                            for k in 0..BLOCK {
                                step::<L, ROWS>(&mut sums, weights, input, pixels.input_stride, k);
                            }
                        } else {
                            for k in 0..lanes {
                                step::<L, ROWS>(&mut sums, weights, input, pixels.input_stride, k);
                            }
                        }
                        input = input.add(taps.stride[2]);
                        weights = weights.add(BLOCK * OUTPUTS);
                    }
                }
            }
        }
        for i in 0..ROWS {
            let offset = i * pixels.output_stride;
            finish::<L, ADDS, ACTIVATION>(sums[i][0], epilogue, offset)
                .store(pixels.output.add(offset));
        }
        if let Some(second) = pixels.second {
            for i in 0..ROWS {
                let offset = i * pixels.output_stride + second;
                finish::<L, ADDS, ACTIVATION>(sums[i][1], epilogue, offset)
                    .store(pixels.output.add(offset));
            }
        }
    }
}

/// Adds the products of one input channel.
///
/// # Safety
/// As for [`convolve`].
#[inline(always)]
unsafe fn step<L: Lanes, const ROWS: usize>(
    sums: &mut [[L; 2]; ROWS],
    weights: *const f32,
    input: *const f32,
    input_stride: usize,
    channel: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let first = L::load(weights.add(channel * OUTPUTS));
        let second = L::load(weights.add(channel * OUTPUTS + BLOCK));
        for i in 0..ROWS {
            let value = L::splat(*input.add(i * input_stride + channel));
            sums[i][0] = sums[i][0].plus_product(value, first);
            sums[i][1] = sums[i][1].plus_product(value, second);
        }
    }
}
