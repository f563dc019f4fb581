//! Fourier transforms at any frequencies: between images and samples that are on no grid.
//!
//! A [`Nufft`] is planned once for a shape and a list of points, and then runs in both directions, which are exact adjoints
//! of each other. `README.md` beside this file describes the method.

mod grid;
mod kernel;
mod nufft;
mod passes;
mod samples;
mod spreader;
#[expect(
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "the loops are compiled for several instruction sets, and indices are what becomes vectors"
)]
mod spreading;

use std::fmt;

use rustfft::FftNum;
use rustfft::num_traits::{One, Zero};

pub use nufft::{Nufft, Scratch};
pub use rustfft::num_complex::Complex;
pub(crate) use spreader::Spreader;

/// The precision of a transform: `f32` or `f64`.
pub trait Real: FftNum + Zero + One + Default + fmt::Debug + sealed::Real {}

impl Real for f32 {}
impl Real for f64 {}

#[expect(clippy::inline_always, reason = "it is compiled into loops for several instruction sets")]
mod sealed {
    /// What the loops need of a number.
    pub trait Real {
        /// The sides of tiles on grids of two and of three axes, in cells, the slowest first: they fit into a core's cache.
        const TILES: [[usize; 3]; 2];
        /// The best accuracy that rounding allows.
        const BEST: f64;
        /// What rounding adds to the relative error of a transform whose kernel is flat, as measured by its tests.
        const ROUNDING: f64;
        /// The nearest number of this precision.
        fn rounded(value: f64) -> Self;
        /// The same number in double precision.
        fn wide(self) -> f64;
        /// The nearest number in single precision.
        fn single(self) -> f32;
        /// The same number in this precision.
        fn of_single(value: f32) -> Self;
        /// `self · factor + term`, rounded once.
        #[must_use]
        fn fused(self, factor: Self, term: Self) -> Self;
    }

    impl Real for f32 {
        const TILES: [[usize; 3]; 2] = [[1, 32, 64], [16, 16, 16]];
        const BEST: f64 = 1e-6;
        const ROUNDING: f64 = 1.5e-8;

        fn rounded(value: f64) -> Self {
            value as Self
        }

        fn wide(self) -> f64 {
            self.into()
        }

        fn single(self) -> f32 {
            self
        }

        fn of_single(value: f32) -> Self {
            value
        }

        #[inline(always)]
        fn fused(self, factor: Self, term: Self) -> Self {
            self.mul_add(factor, term)
        }
    }

    impl Real for f64 {
        const TILES: [[usize; 3]; 2] = [[1, 32, 32], [8, 8, 16]];
        const BEST: f64 = 1e-14;
        const ROUNDING: f64 = 3e-17;

        fn rounded(value: f64) -> Self {
            value
        }

        fn wide(self) -> f64 {
            self
        }

        fn single(self) -> f32 {
            self as f32
        }

        fn of_single(value: f32) -> Self {
            value.into()
        }

        #[inline(always)]
        fn fused(self, factor: Self, term: Self) -> Self {
            self.mul_add(factor, term)
        }
    }
}
