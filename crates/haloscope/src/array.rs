//! Arithmetic over whole arrays, with the same bits on any number of threads.
//!
//! Sums are those of [`image`](crate::image): they do not depend on how the elements are divided. Arrays in a scratch folder are
//! visited piece by piece.

use std::borrow::Cow;

use haloscope_scratch::{Visited, in_pieces};
use ndarray::{ArrayD, ArrayRef, IxDyn};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::image::sum_of;

/// An image, a volume, or the output of an operator, with axes (batch, channel, spatial…).
pub type Array = ArrayD<f32>;

/// An [`Array`] whose memory may be anyone's: what only reads takes `&View`, to which references to arrays and to views of
/// foreign memory coerce.
pub type View = ArrayRef<f32, IxDyn>;

/// The elements that a thread takes at a time.
const PIECE: usize = 1 << 14;

/// Σ aᵢ bᵢ, in f64; all elements are one row.
///
/// # Panics
/// If the arrays differ in length.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    dot_of_rows(a, b, a.len())
}

/// Σ aᵢ bᵢ over arrays whose rows have `row` elements.
pub(crate) fn dot_of_rows(a: &[f32], b: &[f32], row: usize) -> f64 {
    sum_of([a, b], row, |[a, b]| f64::from(a) * f64::from(b)).value()
}

/// Σ aᵢ², in f64; all elements are one row.
#[must_use]
pub fn squared_norm(a: &[f32]) -> f64 {
    squared_norm_of_rows(a, a.len())
}

/// Σ aᵢ² over an array whose rows have `row` elements.
pub(crate) fn squared_norm_of_rows(a: &[f32], row: usize) -> f64 {
    sum_of([a], row, |[a]| f64::from(a) * f64::from(a)).value()
}

/// √Σ aᵢ², in f64; all elements are one row.
#[must_use]
pub fn norm(a: &[f32]) -> f64 {
    squared_norm(a).sqrt()
}

/// √Σ (aᵢ − bᵢ)², in f64; all elements are one row.
///
/// # Panics
/// If the arrays differ in length.
#[must_use]
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    sum_of([a, b], a.len(), |[a, b]| (f64::from(a) - f64::from(b)).powi(2)).value().sqrt()
}

/// The elements of a row of an array.
pub(crate) fn row_of(array: &View) -> usize {
    array.shape().last().copied().unwrap_or(1)
}

/// The smallest and the largest value, ignoring NaN; +∞ and −∞ for an empty array.
#[must_use]
pub fn extremes(image: &View) -> (f32, f32) {
    let start = (f32::INFINITY, f32::NEG_INFINITY);
    let next = |(low, high): (f32, f32), value: &f32| (low.min(*value), high.max(*value));
    let Some(values) = image.as_slice() else { return image.iter().fold(start, next) };
    let mut found = start;
    in_pieces(values.len(), &[Visited::of(values)], |piece| {
        found = values[piece].iter().fold(found, next);
    });
    found
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
    map_slice(y, |value| value * a);
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
    in_pieces(y.len(), &[Visited::of(y), Visited::of(x)], |piece| {
        let (y, x) = (&mut y[piece.clone()], &x[piece]);
        y.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).for_each(|(y, x)| {
            for (y, &x) in y.iter_mut().zip(x) {
                f(y, x);
            }
        });
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
    in_pieces(y.len(), &[Visited::of(y), Visited::of(a), Visited::of(b)], |piece| {
        let pairs = a[piece.clone()].par_chunks(PIECE).zip(b[piece.clone()].par_chunks(PIECE));
        y[piece].par_chunks_mut(PIECE).zip(pairs).for_each(|(y, (a, b))| {
            for (y, (&a, &b)) in y.iter_mut().zip(a.iter().zip(b)) {
                f(y, a, b);
            }
        });
    });
}

/// Replaces every value by `f` of it.
pub(crate) fn map_in_place(array: &mut Array, f: impl Fn(f32) -> f32 + Sync) {
    match array.as_slice_mut() {
        Some(values) => map_slice(values, f),
        None => array.mapv_inplace(f),
    }
}

pub(crate) fn map_slice(values: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    in_pieces(values.len(), &[Visited::of(values)], |piece| {
        values[piece].par_chunks_mut(PIECE).for_each(|piece| {
            for value in piece {
                *value = f(*value);
            }
        });
    });
}

/// A copy of an array in standard layout.
pub(crate) fn copy_of(array: &Array) -> Array {
    let Some(values) = array.as_slice() else { return array.clone() };
    if !haloscope_scratch::is_active() {
        return array.clone();
    }
    let mut copy = Array::zeros(array.raw_dim());
    let to = slice_mut(&mut copy);
    in_pieces(values.len(), &[Visited::of(values), Visited::of(to)], |piece| {
        to[piece.clone()].copy_from_slice(&values[piece]);
    });
    copy
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
