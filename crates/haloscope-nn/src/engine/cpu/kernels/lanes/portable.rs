//! The lanes in plain Rust: the scalar twin of all others, and what other CPUs run.

use super::Lanes;

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
