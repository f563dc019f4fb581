//! Eight floats at once: the only place that knows an instruction set.
//!
//! Kernels are written once over [`Lanes`] and compiled for each implementation inside a function
//! with the right target features, into which everything is inlined. [`Portable`] is the scalar
//! twin that tests compare the others to.

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

/// Plain Rust, for every CPU.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; 8]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut result = self;
        for (value, other) in result.0.iter_mut().zip(other.0) {
            *value = f(*value, other);
        }
        result
    }
}

impl Lanes for Portable {
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { from.cast::<[f32; 8]>().read() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { to.cast::<[f32; 8]>().write(self.0) };
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        self.zip(a.zip(b, |a, b| a * b), |sum, product| sum + product)
    }

    #[inline(always)]
    unsafe fn minus_product(self, a: Self, b: Self) -> Self {
        self.zip(a.zip(b, |a, b| a * b), |sum, product| sum - product)
    }

    #[inline(always)]
    unsafe fn prefetch_near(_line: *const f32) {}

    #[inline(always)]
    unsafe fn prefetch_far(_line: *const f32) {}
}

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm256_add_ps, _mm256_fmadd_ps,
        _mm256_fnmadd_ps, _mm256_load_ps, _mm256_max_ps, _mm256_mul_ps, _mm256_set1_ps,
        _mm256_store_ps, _mm256_sub_ps,
    };

    use super::Lanes;

    /// AVX2 with fused multiply-add.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256);

    impl Lanes for Avx2 {
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: the trait's contract, here and below: the CPU has AVX2 and FMA.
            Self(unsafe { _mm256_set1_ps(value) })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: as above; eight aligned floats.
            Self(unsafe { _mm256_load_ps(from) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as above; eight aligned floats.
            unsafe { _mm256_store_ps(to, self.0) };
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm256_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm256_sub_ps(self.0, other.0) })
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm256_mul_ps(self.0, other.0) })
        }

        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm256_max_ps(self.0, other.0) })
        }

        #[inline(always)]
        unsafe fn plus_product(self, a: Self, b: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm256_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        unsafe fn minus_product(self, a: Self, b: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm256_fnmadd_ps(a.0, b.0, self.0) })
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
}
