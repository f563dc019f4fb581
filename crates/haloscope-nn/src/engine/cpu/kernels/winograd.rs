//! Two-dimensional Winograd transforms of runs of tiles, eight channels at a time.

use std::mem::MaybeUninit;

use super::lanes::Lanes;
use super::transform::Transform;
use crate::engine::cpu::layout::BLOCK;

/// Tiles in a panel of the matrix product, and the longest run of an input transform.
pub(crate) const PANEL: usize = 6;
/// Output channels in a panel of weights: two registers.
pub(crate) const OUTPUTS: usize = 16;
/// Columns under the longest run of the largest tiles.
const COLUMNS: usize = PANEL * 6 + 2;

/// Transforms the input of up to [`PANEL`] horizontally adjacent tiles, one block of channels.
///
/// `target` receives `[a·a planes](plane_stride)[tile](BLOCK)`. The vertical transform of a column
/// is shared by the two tiles that overlap in it.
///
/// # Safety
/// `source` is the top left corner of the run's input: `A` rows of `tiles·M + 2` pixels are valid;
/// `target` is valid for all planes. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn transform_input<
    L: Lanes,
    T: Transform<M, A>,
    const M: usize,
    const A: usize,
>(
    source: *const f32,
    row_stride: usize,
    tiles: usize,
    target: *mut f32,
    plane_stride: usize,
) {
    debug_assert!(tiles <= PANEL);
    let mut columns = MaybeUninit::<[[L; A]; COLUMNS]>::uninit();
    let columns = columns.as_mut_ptr().cast::<[L; A]>();
    // SAFETY: the caller vouches for source and target; columns below tiles·M + 2 are written by the
    // first loop before the second reads them.
    unsafe {
        for column in 0..tiles * M + 2 {
            let source = source.add(column * BLOCK);
            let mut d = [L::splat(0.0); A];
            for i in 0..A {
                d[i] = L::load(source.add(i * row_stride));
            }
            columns.add(column).write(T::input(d));
        }
        for i in 0..A {
            let target = target.add(i * A * plane_stride);
            for tile in 0..tiles {
                let mut d = [L::splat(0.0); A];
                for j in 0..A {
                    d[j] = (*columns.add(tile * M + j))[i];
                }
                let d = T::input(d);
                let target = target.add(tile * BLOCK);
                for j in 0..A {
                    d[j].store(target.add(j * plane_stride));
                }
            }
        }
    }
}

/// What happens to a convolution's result before it is stored: up to two tensors of the same
/// layout are added, then an activation is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epilogue {
    /// Null where there is nothing to add; the second only with the first.
    pub(crate) adds: [*const f32; 2],
    /// From the first block of eight outputs of each to the second, where a kernel computes two.
    pub(crate) second: [usize; 2],
    /// Values below zero are multiplied by this: 1 changes nothing, 0 is ReLU.
    pub(crate) slope: f32,
}

/// No activation.
pub(crate) const NO_ACTIVATION: u8 = 0;
/// ReLU.
pub(crate) const RELU: u8 = 1;
/// Leaky ReLU, with the epilogue's slope.
pub(crate) const LEAKY: u8 = 2;

/// Applies an epilogue to the value whose offset from the epilogue's pointers is `offset`.
///
/// # Safety
/// The pointers that `ADDS` counts are valid at `offset`. The CPU has the instructions of `L`.
#[inline(always)]
unsafe fn finish<L: Lanes, const ADDS: u8, const ACTIVATION: u8>(
    mut value: L,
    epilogue: &Epilogue,
    offset: usize,
) -> L {
    // SAFETY: the caller's contract.
    unsafe {
        if ADDS >= 1 {
            value = value.add(L::load(epilogue.adds[0].add(offset)));
        }
        if ADDS >= 2 {
            value = value.add(L::load(epilogue.adds[1].add(offset)));
        }
        match ACTIVATION {
            RELU => value.max(L::splat(0.0)),
            LEAKY => value.max(value.mul(L::splat(epilogue.slope))),
            _ => value,
        }
    }
}

/// Transforms the products of a run of tiles back, one block of channels, and stores the pixels.
///
/// `source` holds `[a·a planes](plane_stride)[tile](OUTPUTS)`.
///
/// # Safety
/// `source` is valid for all planes and tiles; `target` and what the epilogue adds for `M` rows of
/// `tiles·M` pixels. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn transform_output<
    L: Lanes,
    T: Transform<M, A>,
    const M: usize,
    const A: usize,
    const ADDS: u8,
    const ACTIVATION: u8,
>(
    source: *const f32,
    plane_stride: usize,
    tiles: usize,
    target: *mut f32,
    row_stride: usize,
    epilogue: &Epilogue,
) {
    // SAFETY: the caller vouches for source, target and the epilogue; `rows` is written whole by
    // the first loop before the second reads it.
    unsafe {
        for tile in 0..tiles {
            let source = source.add(tile * OUTPUTS);
            let pixels = tile * M * BLOCK;
            // Not initialised: zeros would be written to memory for every tile.
            let mut rows = MaybeUninit::<[[L; A]; M]>::uninit();
            let rows = rows.as_mut_ptr().cast::<L>();
            for j in 0..A {
                let mut m = [L::splat(0.0); A];
                for i in 0..A {
                    m[i] = L::load(source.add((i * A + j) * plane_stride));
                }
                let m = T::output(m);
                for i in 0..M {
                    rows.add(i * A + j).write(m[i]);
                }
            }
            for i in 0..M {
                let m = T::output(rows.add(i * A).cast::<[L; A]>().read());
                for j in 0..M {
                    let offset = pixels + i * row_stride + j * BLOCK;
                    finish::<L, ADDS, ACTIVATION>(m[j], epilogue, offset).store(target.add(offset));
                }
            }
        }
    }
}

/// Transforms the weights of sixteen outputs for some input channels in f32, when they are not kept.
///
/// `source` holds `[channel][9](OUTPUTS)`, `target` receives `[a·a planes](plane_stride)[channel](OUTPUTS)`.
///
/// # Safety
/// Both are valid for `channels`. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn transform_weights<
    L: Lanes,
    T: Transform<M, A>,
    const M: usize,
    const A: usize,
>(
    source: *const f32,
    channels: usize,
    target: *mut f32,
    plane_stride: usize,
) {
    /// `G w`, skipping the filter's zeros.
    #[inline(always)]
    unsafe fn filter<L: Lanes, const A: usize>(rows: &[[f64; 3]; A], w: [L; 3]) -> [L; A] {
        // SAFETY: the caller's contract.
        unsafe {
            let mut result = [w[0]; A];
            for i in 0..A {
                #[expect(clippy::cast_possible_truncation, reason = "f32 arithmetic is meant")]
                let row = [rows[i][0] as f32, rows[i][1] as f32, rows[i][2] as f32];
                result[i] = if i == 0 {
                    w[0].mul(L::splat(row[0]))
                } else if i == A - 1 {
                    w[2]
                } else {
                    w[0].mul(L::splat(row[0]))
                        .plus_product(w[1], L::splat(row[1]))
                        .plus_product(w[2], L::splat(row[2]))
                };
            }
            result
        }
    }
    // SAFETY: the caller vouches for both pointers.
    unsafe {
        for half in 0..channels * 2 {
            let source = source.add(half / 2 * 9 * OUTPUTS + half % 2 * BLOCK);
            let target = target.add(half * BLOCK);
            let mut columns = [[L::splat(0.0); A]; 3];
            for x in 0..3 {
                let w = [
                    L::load(source.add(x * OUTPUTS)),
                    L::load(source.add((3 + x) * OUTPUTS)),
                    L::load(source.add((6 + x) * OUTPUTS)),
                ];
                columns[x] = filter(&T::FILTER, w);
            }
            for i in 0..A {
                let row = filter(&T::FILTER, [columns[0][i], columns[1][i], columns[2][i]]);
                for j in 0..A {
                    row[j].store(target.add((i * A + j) * plane_stride));
                }
            }
        }
    }
}
