//! The lanes of NEON, which every 64-bit ARM CPU has: two registers of four.

use std::arch::aarch64::{
    float32x4_t, vaddq_f32, vdupq_n_f32, vfmaq_f32, vfmsq_f32, vld1q_f32, vmaxnmq_f32, vmulq_f32,
    vst1q_f32, vsubq_f32,
};
use std::arch::asm;

use super::Lanes;

/// NEON with fused multiply-add.
#[derive(Clone, Copy)]
pub(crate) struct Neon([float32x4_t; 2]);

impl Neon {
    /// Applies an operation to both halves.
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> Self {
        Self([f(self.0[0], other.0[0]), f(self.0[1], other.0[1])])
    }
}

impl Lanes for Neon {
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract, here and below: the CPU has NEON.
        Self(unsafe { [vdupq_n_f32(value); 2] })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above; eight floats.
        Self(unsafe { [vld1q_f32(from), vld1q_f32(from.add(4))] })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above; eight floats.
        unsafe {
            vst1q_f32(to, self.0[0]);
            vst1q_f32(to.add(4), self.0[1]);
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        self.zip(other, |a, b| unsafe { vaddq_f32(a, b) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        self.zip(other, |a, b| unsafe { vsubq_f32(a, b) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        self.zip(other, |a, b| unsafe { vmulq_f32(a, b) })
    }

    /// As the others do, the second where the first is not a number.
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        self.zip(other, |a, b| unsafe { vmaxnmq_f32(a, b) })
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            [vfmaq_f32(self.0[0], a.0[0], b.0[0]), vfmaq_f32(self.0[1], a.0[1], b.0[1])]
        })
    }

    #[inline(always)]
    unsafe fn minus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            [vfmsq_f32(self.0[0], a.0[0], b.0[0]), vfmsq_f32(self.0[1], a.0[1], b.0[1])]
        })
    }

    #[inline(always)]
    unsafe fn prefetch_near(line: *const f32) {
        // SAFETY: a prefetch never faults and changes nothing that a program sees.
        unsafe {
            asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
    }

    #[inline(always)]
    unsafe fn prefetch_far(line: *const f32) {
        // SAFETY: as above.
        unsafe {
            asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
    }
}
