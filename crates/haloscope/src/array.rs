//! Arithmetic over whole arrays, with the same bits on any number of threads.
//!
//! Sums are taken in f64 over pieces of a fixed length, and the pieces are added in order, so the
//! result does not depend on the number of threads.

use std::borrow::Cow;

use ndarray::{ArrayD, ArrayRef, IxDyn};
use rayon::prelude::*;

use crate::error::{Error, Result};

/// An image, a volume, or the output of an operator, with axes (batch, channel, spatial…).
pub type Array = ArrayD<f32>;

/// An [`Array`] whose memory may be anyone's: what only reads takes `&View`, to which references to arrays and to views of
/// foreign memory coerce.
pub type View = ArrayRef<f32, IxDyn>;

/// The elements of one piece of a sum: long enough to be worth a thread's while.
const PIECE: usize = 1 << 14;

/// Σ aᵢ bᵢ, in f64.
///
/// # Panics
/// If the arrays differ in length.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "a product of arrays of different lengths");
    ordered_sum(a.len(), |range| {
        lanes(a[range.clone()].iter().zip(&b[range]).map(|(&a, &b)| f64::from(a) * f64::from(b)))
    })
}

/// Σ aᵢ², in f64.
#[must_use]
pub fn squared_norm(a: &[f32]) -> f64 {
    dot(a, a)
}

/// √Σ aᵢ², in f64.
#[must_use]
pub fn norm(a: &[f32]) -> f64 {
    squared_norm(a).sqrt()
}

/// √Σ (aᵢ − bᵢ)², in f64.
///
/// # Panics
/// If the arrays differ in length.
#[must_use]
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "a distance of arrays of different lengths");
    let squares = ordered_sum(a.len(), |range| {
        let differences = a[range.clone()].iter().zip(&b[range]);
        lanes(differences.map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)))
    });
    squares.sqrt()
}

/// The smallest and the largest value, ignoring NaN; +∞ and −∞ for an empty array.
#[must_use]
pub fn extremes(image: &View) -> (f32, f32) {
    image.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
        (low.min(*value), high.max(*value))
    })
}

/// `sum` of ranges of `0..len`, added up in order.
pub fn ordered_sum(len: usize, sum: impl Fn(std::ops::Range<usize>) -> f64 + Sync) -> f64 {
    let piece = |i: usize| sum(i * PIECE..((i + 1) * PIECE).min(len));
    let pieces = len.div_ceil(PIECE);
    if pieces <= 1 {
        return if len == 0 { 0.0 } else { piece(0) };
    }
    let sums: Vec<f64> = (0..pieces).into_par_iter().map(piece).collect();
    sums.iter().sum()
}

/// `y ← a x + y`.
///
/// # Panics
/// If the arrays differ in length.
pub fn add_scaled(y: &mut [f32], a: f32, x: &[f32]) {
    update(y, x, |y, x| *y += a * x);
}

/// `y ← x + b y`.
///
/// # Panics
/// If the arrays differ in length.
pub fn scale_and_add(y: &mut [f32], b: f32, x: &[f32]) {
    update(y, x, |y, x| *y = x + b * *y);
}

/// `y ← a y`.
pub fn scale(y: &mut [f32], a: f32) {
    y.par_chunks_mut(PIECE).for_each(|piece| {
        for value in piece {
            *value *= a;
        }
    });
}

/// The elements in memory order.
///
/// # Errors
/// If the array is not in standard layout, for example a transposed or sliced view.
pub fn elements<'a>(what: &'static str, array: &'a View) -> Result<&'a [f32]> {
    array.as_slice().ok_or_else(|| {
        Error::argument(
            what,
            "the array is not in standard layout; `as_standard_layout` makes it so",
        )
    })
}

/// The elements in logical order, copied only if their order in memory differs.
pub(crate) fn slice(array: &View) -> Cow<'_, [f32]> {
    match array.as_slice() {
        Some(slice) => slice.into(),
        None => array.iter().copied().collect::<Vec<_>>().into(),
    }
}

/// The elements of a newly made array, which is in standard layout.
pub(crate) fn slice_mut(array: &mut View) -> &mut [f32] {
    array.as_slice_mut().expect("an array that was just made is in standard layout")
}

/// The array in standard layout, copied only if it is not.
pub(crate) fn standard(array: Array) -> Array {
    if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() }
}

/// `f(y, x)` of every element.
///
/// # Panics
/// If the arrays differ in length.
pub(crate) fn update(y: &mut [f32], x: &[f32], f: impl Fn(&mut f32, f32) + Sync) {
    assert_eq!(x.len(), y.len(), "arrays of different lengths");
    y.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).for_each(|(y, x)| {
        for (y, &x) in y.iter_mut().zip(x) {
            f(y, x);
        }
    });
}

/// `f(y, a, b)` of every element.
///
/// # Panics
/// If the arrays differ in length.
pub(crate) fn update_from_two(
    y: &mut [f32],
    (a, b): (&[f32], &[f32]),
    f: impl Fn(&mut f32, f32, f32) + Sync,
) {
    assert!(a.len() == y.len() && b.len() == y.len(), "arrays of different lengths");
    let pairs = a.par_chunks(PIECE).zip(b.par_chunks(PIECE));
    y.par_chunks_mut(PIECE).zip(pairs).for_each(|(y, (a, b))| {
        for (y, (&a, &b)) in y.iter_mut().zip(a.iter().zip(b)) {
            f(y, a, b);
        }
    });
}

/// Replaces every value by `f` of it.
pub(crate) fn map_in_place(array: &mut Array, f: impl Fn(f32) -> f32 + Sync) {
    match array.as_slice_mut() {
        Some(values) => values.par_chunks_mut(PIECE).for_each(|piece| {
            for value in piece {
                *value = f(*value);
            }
        }),
        None => array.mapv_inplace(f),
    }
}

/// A sum in eight interleaved parts, which the compiler can keep in vector registers.
pub(crate) fn lanes(values: impl Iterator<Item = f64>) -> f64 {
    let mut sums = [0.0; 8];
    for (i, value) in values.enumerate() {
        sums[i % 8] += value;
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 0.37).sin()).collect()
    }

    #[test]
    fn a_product_has_the_same_bits_on_any_number_of_threads() {
        let (a, b) = (ramp(100_003), ramp(100_003));
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("a pool").install(|| dot(&a, &b)).to_bits()
        };
        assert_eq!(on(1), on(2));
        assert_eq!(on(1), on(3));
    }

    #[test]
    fn sums_are_those_of_f64() {
        let a = ramp(40_000);
        let plain: f64 = a.iter().map(|&a| f64::from(a).powi(2)).sum();
        assert!((squared_norm(&a) - plain).abs() < 1e-9 * plain);
        assert_eq!(distance(&a, &a), 0.0);
        assert_eq!(dot(&[], &[]), 0.0);
    }
}
