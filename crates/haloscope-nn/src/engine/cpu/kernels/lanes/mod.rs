//! Eight floats at once, and sixteen: the only place that knows an instruction set.
//!
//! Kernels are written once over [`Lanes`], the product over [`Wide`], and compiled for each
//! implementation inside a function with the right target features, into which everything is
//! inlined. [`Portable`] is the scalar twin that tests compare the others to.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod wrong;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;
#[cfg(test)]
pub(crate) use wrong::Wrong;

/// Eight `f32`, one for each channel of a block.
///
/// # Safety
/// All functions may be called only where the CPU has the implementation's instructions; pointers
/// must be valid for eight floats and aligned to 32 bytes, except for the two prefetches, whose
/// address may be anything.
pub(crate) trait Lanes: Copy {
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
    /// `self + a · b`.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
    /// `self − a · b`.
    unsafe fn minus_product(self, a: Self, b: Self) -> Self;
    /// Asks for a cache line in the first-level cache.
    unsafe fn prefetch_near(line: *const f32);
    /// Asks for a cache line in the second-level cache.
    unsafe fn prefetch_far(line: *const f32);
}

/// Sixteen `f32`, one for each output of a panel of weights.
///
/// # Safety
/// As for [`Lanes`], with twice as many floats, aligned to a cache line.
pub(crate) trait Wide: Copy {
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// `self + a · b`.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
    /// Asks for a cache line in the first-level cache.
    unsafe fn prefetch_near(line: *const f32);
    /// Asks for a cache line in the second-level cache.
    unsafe fn prefetch_far(line: *const f32);
}

/// Sixteen floats in two registers of eight.
#[derive(Clone, Copy)]
pub(crate) struct Pair<L>([L; 2]);

impl<L: Lanes> Wide for Pair<L> {
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract, here and below.
        Self(unsafe { [L::splat(value); 2] })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        Self(unsafe { [L::load(from), L::load(from.add(8))] })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe {
            self.0[0].store(to);
            self.0[1].store(to.add(8));
        }
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        let ([first, second], [a0, a1], [b0, b1]) = (self.0, a.0, b.0);
        // SAFETY: as above.
        Self(unsafe { [first.plus_product(a0, b0), second.plus_product(a1, b1)] })
    }

    #[inline(always)]
    unsafe fn prefetch_near(line: *const f32) {
        // SAFETY: as above.
        unsafe { L::prefetch_near(line) };
    }

    #[inline(always)]
    unsafe fn prefetch_far(line: *const f32) {
        // SAFETY: as above.
        unsafe { L::prefetch_far(line) };
    }
}
