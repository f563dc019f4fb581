//! The Winograd transform of weights in f64, sixteen outputs at a time, when a plan is made.

use super::transform::Transform;
use super::winograd::OUTPUTS;
use crate::engine::cpu::layout::BLOCK;

/// The 3×3 planes of a kernel: `[output][input][depth tap][3][3]`.
#[derive(Clone, Copy)]
pub(crate) struct Filters<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) depth_taps: usize,
}

impl Filters<'_> {
    /// Input channels with those that fill the last block up.
    pub(crate) fn padded_inputs(&self) -> usize {
        self.inputs.next_multiple_of(BLOCK)
    }

    /// The nine weights of sixteen outputs for one input; those beyond the last are zero.
    #[inline(always)]
    fn gather<V: Copy + Default>(
        &self,
        first_output: usize,
        input: usize,
        depth_tap: usize,
        convert: impl Fn(f32) -> V,
    ) -> [[V; OUTPUTS]; 9] {
        let mut gathered = [[V::default(); OUTPUTS]; 9];
        if input < self.inputs {
            for k in 0..OUTPUTS.min(self.outputs - first_output) {
                let start =
                    ((first_output + k) * self.inputs + input) * self.depth_taps + depth_tap;
                let filter = &self.values[start * 9..start * 9 + 9];
                for tap in 0..9 {
                    gathered[tap][k] = convert(filter[tap]);
                }
            }
        }
        gathered
    }
}

/// Transforms the filters of sixteen outputs.
///
/// `target` receives `[a·a planes](plane_stride)[depth tap][channel][OUTPUTS]`.
///
/// # Safety
/// `target` is valid for all of that and used by nobody else. The CPU has the features that the
/// caller is compiled for.
#[inline(always)]
pub(crate) unsafe fn transform_filters<T: Transform<M, A>, const M: usize, const A: usize>(
    filters: &Filters<'_>,
    first_output: usize,
    target: *mut f32,
    plane_stride: usize,
) {
    let channels = filters.padded_inputs();
    for depth_tap in 0..filters.depth_taps {
        for channel in 0..channels {
            let w = filters.gather(first_output, channel, depth_tap, f64::from);
            let mut columns = [[[0.0; OUTPUTS]; A]; 3];
            for x in 0..3 {
                for i in 0..A {
                    let row = T::FILTER[i];
                    for k in 0..OUTPUTS {
                        columns[x][i][k] =
                            row[0] * w[x][k] + row[1] * w[3 + x][k] + row[2] * w[6 + x][k];
                    }
                }
            }
            let target = target.wrapping_add((depth_tap * channels + channel) * OUTPUTS);
            for i in 0..A {
                for j in 0..A {
                    let row = T::FILTER[j];
                    let mut result = [0.0f32; OUTPUTS];
                    for k in 0..OUTPUTS {
                        let value = row[0] * columns[0][i][k]
                            + row[1] * columns[1][i][k]
                            + row[2] * columns[2][i][k];
                        #[expect(clippy::cast_possible_truncation, reason = "stored as f32")]
                        {
                            result[k] = value as f32;
                        }
                    }
                    // SAFETY: the caller vouches for the target.
                    unsafe {
                        target
                            .add((i * A + j) * plane_stride)
                            .cast::<[f32; OUTPUTS]>()
                            .write(result);
                    }
                }
            }
        }
    }
}

/// Packs the filters of sixteen outputs as they are: `[depth tap][channel][9](OUTPUTS)`.
///
/// # Safety
/// `target` is valid for all of that and used by nobody else.
pub(crate) unsafe fn pack_filters(filters: &Filters<'_>, first_output: usize, target: *mut f32) {
    let channels = filters.padded_inputs();
    for depth_tap in 0..filters.depth_taps {
        for channel in 0..channels {
            let gathered = filters.gather(first_output, channel, depth_tap, |value| value);
            // SAFETY: the caller vouches for the target.
            unsafe {
                target
                    .add((depth_tap * channels + channel) * 9 * OUTPUTS)
                    .cast::<[[f32; OUTPUTS]; 9]>()
                    .write(gathered);
            }
        }
    }
}
