//! Sixteen lanes of plain Rust of which the last is off by the least amount there is: what a check of
//! kernels has to find.

use super::{Pair, Portable, Wide};

/// Wrong on purpose.
#[derive(Clone, Copy)]
pub(crate) struct Wrong(Pair<Portable>);

impl Wide for Wrong {
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract, here and below.
        Self(unsafe { Pair::splat(value) })
    }

    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        Self(unsafe { Pair::load(from) })
    }

    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe {
            self.0.store(to);
            let last = to.add(15);
            *last = f32::from_bits((*last).to_bits() ^ 1);
        }
    }

    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { self.0.plus_product(a.0, b.0) })
    }

    unsafe fn prefetch_near(_: *const f32) {}

    unsafe fn prefetch_far(_: *const f32) {}
}
