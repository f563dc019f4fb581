//! Sixteen lanes in one register of AVX-512, for the products. Everything else uses the eight lanes of
//! AVX2, compiled for the 32 registers of AVX-512VL.

use std::arch::x86_64::{
    __m512, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm512_fmadd_ps, _mm512_load_ps,
    _mm512_set1_ps, _mm512_store_ps,
};

use super::Wide;

/// AVX-512F.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

impl Wide for Avx512 {
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract, here and below: the CPU has AVX-512F.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above; sixteen aligned floats.
        Self(unsafe { _mm512_load_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above; sixteen aligned floats.
        unsafe { _mm512_store_ps(to, self.0) };
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
    }

    #[inline(always)]
    unsafe fn prefetch_near(line: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }

    #[inline(always)]
    unsafe fn prefetch_far(line: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
    }
}
