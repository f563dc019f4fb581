//! The inner loops, compiled for each instruction set and chosen at run time.
//!
//! `lanes.rs` knows the instructions; the other files are written over it. Here are the functions
//! that carry the target features, and the tables from which plans pick.

// Loops over small constant ranges are unrolled into registers; iterators hide the indices that
// the formulas have.
#![expect(clippy::needless_range_loop)]
// Without this, vectors would be passed through memory between the layers of a kernel.
#![expect(clippy::inline_always)]

mod depth;
mod direct;
mod filter;
mod gemm;
mod instructions;
mod lanes;
mod transform;
mod winograd;

pub(crate) use depth::{DepthInput, depth_filter};
pub(crate) use direct::{PIXELS, Pixels, Taps};
pub(crate) use filter::{Filters, pack_filters};
pub(crate) use gemm::{Depth, FAR_STEP, Product, Strided};
pub use instructions::InstructionSet;
pub(crate) use winograd::{Epilogue, OUTPUTS, PANEL};

/// Transforms the input of a run of tiles: source, row stride, tiles, target, plane stride.
pub(crate) type InputKernel = unsafe fn(*const f32, usize, usize, *mut f32, usize);
/// Transforms a window of planes along depth: input, target, plane stride.
pub(crate) type DepthKernel = unsafe fn(&DepthInput, *mut f32, usize);
/// Transforms products back along depth, in place: products, stride, floats.
pub(crate) type FoldKernel = unsafe fn(*mut f32, usize, usize);
/// Transforms products back: source, plane stride, tiles, target, row stride, epilogue.
pub(crate) type OutputKernel = unsafe fn(*const f32, usize, usize, *mut f32, usize, &Epilogue);
/// Transforms packed weights: source, channels, target, plane stride.
pub(crate) type WeightKernel = unsafe fn(*const f32, usize, *mut f32, usize);
/// Transforms filters in f64: filters, first output, target, plane stride.
pub(crate) type FilterKernel = unsafe fn(&Filters<'_>, usize, *mut f32, usize);
/// Forms the products of a chunk.
pub(crate) type ProductKernel = unsafe fn(&Product);
/// Convolves pixels: taps, weights, bias, pixels, epilogue.
pub(crate) type DirectKernel = unsafe fn(&Taps, *const f32, *const f32, &Pixels, &Epilogue);

/// An activation that epilogues apply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fused {
    /// None.
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, slope · x)`, for slopes of at most 1.
    Leaky(f32),
}

impl Fused {
    /// The slope below zero.
    pub(crate) fn slope(self) -> f32 {
        match self {
            Self::Identity => 1.0,
            Self::Relu => 0.0,
            Self::Leaky(slope) => slope,
        }
    }
}

/// Forwards a choice to the module of the instruction set.
macro_rules! choose {
    ($($(#[$comment:meta])* $name:ident($($argument:ident: $type:ty),*) -> $kernel:ty;)*) => {
        impl InstructionSet {
            $($(#[$comment])*
            pub(crate) fn $name(self, $($argument: $type),*) -> $kernel {
                match self {
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx2 => avx2::$name($($argument),*),
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx512 => avx512::$name($($argument),*),
                    #[cfg(target_arch = "aarch64")]
                    Self::Neon => neon::$name($($argument),*),
                    #[cfg(test)]
                    Self::Wrong => wrong::$name($($argument),*),
                    _ => portable::$name($($argument),*),
                }
            })*
        }
    };
}

choose! {
    /// The input transform for tiles of this size.
    input_kernel(tile: usize) -> InputKernel;
    /// The input transform along depth for tiles of two planes.
    depth_kernel() -> DepthKernel;
    /// The output transform along depth for tiles of two planes.
    fold_kernel() -> FoldKernel;
    /// The output transform for tiles of this size.
    output_kernel(tile: usize, adds: usize, activation: Fused) -> OutputKernel;
    /// The weight transform for tiles of this size.
    weight_kernel(tile: usize) -> WeightKernel;
    /// The exact weight transform for tiles of this size.
    filter_kernel(tile: usize) -> FilterKernel;
    /// The products in the transformed domain.
    product_kernel() -> ProductKernel;
    /// The direct convolution for this many pixels whose inputs are this many floats apart.
    direct_kernel(pixels: usize, step: usize) -> DirectKernel;
}

/// Compiles all kernels for one kind of lanes; the products for one kind of sixteen lanes, and the
/// panels of tiles and of weights that its registers hold.
macro_rules! instantiate {
    ($module:ident, $lanes:ty, $wide:ty, $panels:literal, $columns:literal $(, $features:literal)?) => {
        mod $module {
            use super::*;
            use super::depth::{DepthInput, fold_depth, transform_depth};
            use super::direct::convolve;
            use super::filter::transform_filters;
            use super::gemm::multiply;
            use super::transform::{F2, F4, F6, Transform};
            use super::winograd::{
                LEAKY, NO_ACTIVATION, RELU, transform_input, transform_output, transform_weights,
            };
            use super::{
                DepthKernel, DirectKernel, Epilogue, FilterKernel, Filters, FoldKernel, Fused,
                InputKernel, OutputKernel, Pixels, Product, ProductKernel, Taps, WeightKernel,
            };

            $(#[target_feature(enable = $features)])?
            unsafe fn input<T: Transform<M, A>, const M: usize, const A: usize>(
                source: *const f32, row_stride: usize, tiles: usize, target: *mut f32,
                plane_stride: usize,
            ) {
                // SAFETY: this function's contract is that of what it forwards to; here and below.
                unsafe {
                    transform_input::<$lanes, T, M, A>(source, row_stride, tiles, target, plane_stride);
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn depth<T: Transform<M, A>, const M: usize, const A: usize>(
                input: &DepthInput, target: *mut f32, plane_stride: usize,
            ) {
                // SAFETY: as above.
                unsafe { transform_depth::<$lanes, T, M, A>(input, target, plane_stride) };
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn fold<T: Transform<M, A>, const M: usize, const A: usize>(
                products: *mut f32, stride: usize, len: usize,
            ) {
                // SAFETY: as above.
                unsafe { fold_depth::<$lanes, T, M, A>(products, stride, len) };
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn output<
                T: Transform<M, A>, const M: usize, const A: usize, const ADDS: u8,
                const ACTIVATION: u8,
            >(
                source: *const f32, plane_stride: usize, tiles: usize, target: *mut f32,
                row_stride: usize, epilogue: &Epilogue,
            ) {
                // SAFETY: as above.
                unsafe {
                    transform_output::<$lanes, T, M, A, ADDS, ACTIVATION>(
                        source, plane_stride, tiles, target, row_stride, epilogue,
                    );
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn weights<T: Transform<M, A>, const M: usize, const A: usize>(
                source: *const f32, channels: usize, target: *mut f32, plane_stride: usize,
            ) {
                // SAFETY: as above.
                unsafe {
                    transform_weights::<$lanes, T, M, A>(source, channels, target, plane_stride);
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn filters<T: Transform<M, A>, const M: usize, const A: usize>(
                filters: &Filters<'_>, first_output: usize, target: *mut f32, plane_stride: usize,
            ) {
                // SAFETY: as above.
                unsafe { transform_filters::<T, M, A>(filters, first_output, target, plane_stride) };
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn product(product: &Product) {
                // SAFETY: as above.
                unsafe { multiply::<$wide, $panels, $columns>(product) };
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn direct<const ROWS: usize, const STEP: usize>(
                taps: &Taps, weights: *const f32, bias: *const f32, pixels: &Pixels,
                epilogue: &Epilogue,
            ) {
                // SAFETY: as above.
                unsafe {
                    convolve::<$lanes, ROWS, STEP>(taps, weights, bias, pixels, epilogue);
                }
            }

            pub(super) fn input_kernel(tile: usize) -> InputKernel {
                match tile {
                    2 => input::<F2, 2, 4>,
                    4 => input::<F4, 4, 6>,
                    _ => input::<F6, 6, 8>,
                }
            }

            pub(super) fn depth_kernel() -> DepthKernel {
                depth::<F2, 2, 4>
            }

            pub(super) fn fold_kernel() -> FoldKernel {
                fold::<F2, 2, 4>
            }

            pub(super) fn output_kernel(tile: usize, adds: usize, activation: Fused) -> OutputKernel {
                fn by_adds<T: Transform<M, A>, const M: usize, const A: usize, const ACTIVATION: u8>(
                    adds: usize,
                ) -> OutputKernel {
                    match adds {
                        0 => output::<T, M, A, 0, ACTIVATION>,
                        1 => output::<T, M, A, 1, ACTIVATION>,
                        _ => output::<T, M, A, 2, ACTIVATION>,
                    }
                }
                fn by_activation<T: Transform<M, A>, const M: usize, const A: usize>(
                    adds: usize, activation: Fused,
                ) -> OutputKernel {
                    match activation {
                        Fused::Identity => by_adds::<T, M, A, NO_ACTIVATION>(adds),
                        Fused::Relu => by_adds::<T, M, A, RELU>(adds),
                        Fused::Leaky(_) => by_adds::<T, M, A, LEAKY>(adds),
                    }
                }
                match tile {
                    2 => by_activation::<F2, 2, 4>(adds, activation),
                    4 => by_activation::<F4, 4, 6>(adds, activation),
                    _ => by_activation::<F6, 6, 8>(adds, activation),
                }
            }

            pub(super) fn weight_kernel(tile: usize) -> WeightKernel {
                match tile {
                    2 => weights::<F2, 2, 4>,
                    4 => weights::<F4, 4, 6>,
                    _ => weights::<F6, 6, 8>,
                }
            }

            pub(super) fn filter_kernel(tile: usize) -> FilterKernel {
                match tile {
                    2 => filters::<F2, 2, 4>,
                    4 => filters::<F4, 4, 6>,
                    _ => filters::<F6, 6, 8>,
                }
            }

            pub(super) fn product_kernel() -> ProductKernel {
                product
            }

            pub(super) fn direct_kernel(pixels: usize, step: usize) -> DirectKernel {
                fn by_step<const ROWS: usize>(step: usize) -> DirectKernel {
                    match step {
                        8 => direct::<ROWS, 8>,
                        16 => direct::<ROWS, 16>,
                        _ => direct::<ROWS, 0>,
                    }
                }
                match pixels {
                    1 => by_step::<1>(step),
                    2 => by_step::<2>(step),
                    3 => by_step::<3>(step),
                    4 => by_step::<4>(step),
                    5 => by_step::<5>(step),
                    _ => by_step::<6>(step),
                }
            }
        }
    };
}

use lanes::{Pair, Portable};
instantiate!(portable, Portable, Pair<Portable>, 1, 1);
#[cfg(target_arch = "x86_64")]
use lanes::{Avx2, Avx512};
#[cfg(target_arch = "x86_64")]
instantiate!(avx2, Avx2, Pair<Avx2>, 1, 1, "avx2,fma");
#[cfg(target_arch = "x86_64")]
instantiate!(avx512, Avx2, Avx512, 2, 2, "avx2,fma,avx512f,avx512vl");
#[cfg(target_arch = "aarch64")]
use lanes::Neon;
#[cfg(target_arch = "aarch64")]
instantiate!(neon, Neon, Pair<Neon>, 1, 1, "neon");
#[cfg(test)]
use lanes::Wrong;
#[cfg(test)]
instantiate!(wrong, Portable, Wrong, 1, 1);

/// Splits a row of work into groups of six; the last two groups share what is left over evenly,
/// because a group of fewer than four costs as much as one of four.
///
/// Returns the number of groups of six and the sizes of up to two more, zero where there is none.
pub(crate) fn sixes(count: usize) -> (usize, [usize; 2]) {
    let (full, rest) = (count / PANEL, count % PANEL);
    match rest {
        0 => (full, [0, 0]),
        1..=3 if full > 0 => {
            let small = usize::midpoint(PANEL, rest);
            (full - 1, [PANEL + rest - small, small])
        }
        _ => (full, [rest, 0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixes_cover_everything_with_few_small_groups() {
        for count in 0..100 {
            let (full, tail) = sixes(count);
            assert_eq!(full * PANEL + tail[0] + tail[1], count);
            assert!(tail.iter().all(|&size| size <= PANEL));
            assert!(count < 7 || tail.iter().all(|&size| size == 0 || size >= 3));
        }
    }
}
