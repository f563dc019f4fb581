//! The element types that travel between ranks, and slices of them whose type is known at run time.
//!
//! [`Element`] is what generic code sees; [`View`] and [`ViewMut`] are what the object-safe
//! [`Communicator`](crate::Communicator) sees. To add a type, add a line to `elements!` and a
//! variant to [`ElementKind`].

use std::fmt;

use bytemuck::Pod;

/// The type of the elements of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ElementKind {
    /// 32-bit floating point.
    F32 = 1,
    /// 64-bit floating point.
    F64 = 2,
    /// 64-bit unsigned integer.
    U64 = 3,
    /// A byte.
    U8 = 4,
}

/// How two elements become one.
///
/// Integer sums wrap around. A `NaN` in a maximum or minimum gives `NaN`, so that a diverged rank
/// cannot hide behind the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reduction {
    /// `a + b`
    Sum = 1,
    /// The larger of the two.
    Max = 2,
    /// The smaller of the two.
    Min = 3,
    /// The sum over ranks, divided by their number; of `f32` and `f64` only.
    Mean = 4,
}

/// A type that ranks can send to each other: `f32`, `f64`, `u64` or `u8`.
pub trait Element: Pod + PartialOrd + sealed::Sealed + Send + Sync {
    /// Its tag at run time.
    const KIND: ElementKind;

    /// `self + other`; integers wrap around.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// The larger of the two; `NaN` wins.
    #[must_use]
    fn larger(self, other: Self) -> Self;

    /// The smaller of the two; `NaN` wins.
    #[must_use]
    fn smaller(self, other: Self) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty, $kind:ident, $plus:expr;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const KIND: ElementKind = ElementKind::$kind;

            #[inline]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }

            // The second test is true for a `NaN` alone.
            #[inline]
            #[allow(clippy::eq_op)]
            fn larger(self, other: Self) -> Self {
                if self > other || self != self { self } else { other }
            }

            #[inline]
            #[allow(clippy::eq_op)]
            fn smaller(self, other: Self) -> Self {
                if self < other || self != self { self } else { other }
            }
        }
    )*};
}

elements! {
    f32, F32, |a, b| a + b;
    f64, F64, |a, b| a + b;
    u64, U64, u64::wrapping_add;
    u8, U8, u8::wrapping_add;
}

impl ElementKind {
    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 | Self::U64 => 8,
            Self::U8 => 1,
        }
    }

    #[cfg(any(feature = "mpi", test))]
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::F32, Self::F64, Self::U64, Self::U8].into_iter().find(|kind| *kind as u8 == code)
    }
}

impl fmt::Display for ElementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::U64 => "u64",
            Self::U8 => "u8",
        })
    }
}

impl Reduction {
    /// Replaces each element of `accumulator` by its combination with the element of `other`.
    ///
    /// Both must hold whole elements of `kind`, be aligned for it, and have the same length.
    pub(crate) fn combine(self, kind: ElementKind, accumulator: &mut [u8], other: &[u8]) {
        match kind {
            ElementKind::F32 => self.combine_as::<f32>(accumulator, other),
            ElementKind::F64 => self.combine_as::<f64>(accumulator, other),
            ElementKind::U64 => self.combine_as::<u64>(accumulator, other),
            ElementKind::U8 => self.combine_as::<u8>(accumulator, other),
        }
    }

    fn combine_as<T: Element>(self, accumulator: &mut [u8], other: &[u8]) {
        let accumulator: &mut [T] = bytemuck::cast_slice_mut(accumulator);
        let other: &[T] = bytemuck::cast_slice(other);
        debug_assert_eq!(accumulator.len(), other.len());
        let pairs = accumulator.iter_mut().zip(other);
        // One loop per reduction, so that each one vectorises.
        match self {
            // The division comes at the end.
            Self::Sum | Self::Mean => pairs.for_each(|(a, b)| *a = a.plus(*b)),
            Self::Max => pairs.for_each(|(a, b)| *a = a.larger(*b)),
            Self::Min => pairs.for_each(|(a, b)| *a = a.smaller(*b)),
        }
    }

    /// What is left to do when all `terms` are combined.
    pub(crate) fn finish(self, kind: ElementKind, accumulator: &mut [u8], terms: usize) {
        match (self, kind) {
            (Self::Mean, ElementKind::F32) => {
                let values: &mut [f32] = bytemuck::cast_slice_mut(accumulator);
                for value in values {
                    *value /= terms as f32;
                }
            }
            (Self::Mean, ElementKind::F64) => {
                let values: &mut [f64] = bytemuck::cast_slice_mut(accumulator);
                for value in values {
                    *value /= terms as f64;
                }
            }
            (Self::Mean | Self::Sum | Self::Max | Self::Min, _) => (),
        }
    }

    /// Whether elements of this type can be reduced so.
    pub(crate) fn is_for(self, kind: ElementKind) -> bool {
        self != Self::Mean || matches!(kind, ElementKind::F32 | ElementKind::F64)
    }

    #[cfg(any(feature = "mpi", test))]
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let all = [Self::Sum, Self::Max, Self::Min, Self::Mean];
        all.into_iter().find(|reduction| *reduction as u8 == code)
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
            Self::Mean => "mean",
        })
    }
}

/// A slice whose element type is known at run time.
///
/// ```
/// use haloscope_comm::{ElementKind, View};
///
/// let view = View::new(&[1.0_f32, 2.0]);
/// assert_eq!((view.kind(), view.len()), (ElementKind::F32, 2));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    kind: ElementKind,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of `values`.
    pub fn new<T: Element>(values: &'a [T]) -> Self {
        Self { kind: T::KIND, bytes: bytemuck::cast_slice(values) }
    }

    /// The type of the elements.
    #[must_use]
    pub fn kind(&self) -> ElementKind {
        self.kind
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.size()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The memory of the elements, aligned for their type.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// A mutable slice whose element type is known at run time.
#[derive(Debug)]
pub struct ViewMut<'a> {
    kind: ElementKind,
    bytes: &'a mut [u8],
}

impl<'a> ViewMut<'a> {
    /// A mutable view of `values`.
    pub fn new<T: Element>(values: &'a mut [T]) -> Self {
        Self { kind: T::KIND, bytes: bytemuck::cast_slice_mut(values) }
    }

    /// The same elements, read only.
    #[must_use]
    pub fn as_view(&self) -> View<'_> {
        View { kind: self.kind, bytes: self.bytes }
    }

    /// The type of the elements.
    #[must_use]
    pub fn kind(&self) -> ElementKind {
        self.kind
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_view().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The memory of the elements, aligned for their type.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_a_number_wins_every_comparison() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(a.larger(b).is_nan());
            assert!(a.smaller(b).is_nan());
        }
        assert_eq!(2.0_f64.larger(1.0), 2.0);
        assert_eq!(2_u64.smaller(1), 1);
    }

    #[test]
    fn integer_sums_wrap_around() {
        let mut accumulator = [u64::MAX];
        Reduction::Sum.combine(
            ElementKind::U64,
            bytemuck::cast_slice_mut(&mut accumulator),
            bytemuck::cast_slice(&[2_u64]),
        );
        assert_eq!(accumulator, [1]);
    }
}
