//! Sums whose bits do not depend on who adds what.
//!
//! An array is summed in two stages. Each run of eight neighbours along the last axis becomes one f64, by a fixed tree of
//! additions. These partial sums are then added exactly, in a fixed-point number that is wide enough for every f64, and the
//! total is rounded once. Exact additions may be taken in any order, so threads and ranks may divide the runs as they like.
//! Runs begin at multiples of eight of the whole array: parts of it must begin there, too.

use haloscope_scratch::{Visited, in_pieces};
use rayon::prelude::*;

/// The elements that are added in f64 before their sum is added exactly.
pub const RUN: usize = 8;

/// Bits of a digit. Digits are kept in 64 bits, so that billions of numbers can be added before carries are propagated.
const DIGIT: u32 = 32;
const MASK: u64 = (1 << DIGIT) - 1;

/// Digits of the sum: 2¹⁰²⁴ over 2⁻¹⁰⁷⁴ takes 66, and two more hold the carries of as many additions as one can do.
const DIGITS: usize = 68;

/// Additions after which carries are propagated. A digit grows by less than 2³² with each.
const MOST_PENDING: u32 = 1 << 30;

/// The elements that a thread takes at a time.
const PIECE: usize = 1 << 14;

/// An exact sum of f64 values.
///
/// ```
/// use haloscope::image::Sum;
///
/// let mut sum = Sum::default();
/// for value in [1e300, 1.0, -1e300, 2f64.powi(-1074)] {
///     sum.add(value);
/// }
/// assert_eq!(sum.value(), 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct Sum {
    /// Two's complement, in units of 2⁻¹⁰⁷⁴, the lowest digit first.
    digits: [u64; DIGITS],
    /// How many values were +∞, −∞ and NaN.
    special: [u64; 3],
    pending: u32,
}

impl Default for Sum {
    fn default() -> Self {
        Self { digits: [0; DIGITS], special: [0; 3], pending: 0 }
    }
}

impl Sum {
    /// The words that ranks add up.
    pub const WORDS: usize = DIGITS + 3;

    /// Adds a value, exactly.
    #[inline]
    #[expect(clippy::missing_panics_doc, reason = "three digits are three digits")]
    pub fn add(&mut self, value: f64) {
        const FRACTION: u32 = 52;
        let bits = value.to_bits();
        let exponent = ((bits >> FRACTION) & 0x7ff) as u32;
        if exponent == 0x7ff {
            let kind = if value.is_nan() { 2 } else { usize::from(value < 0.0) };
            self.special[kind] += 1;
            return;
        }
        let fraction = bits & ((1 << FRACTION) - 1);
        let mantissa = fraction | (u64::from(exponent != 0) << FRACTION);
        let shift = exponent.max(1) - 1;
        let (first, shift) = ((shift / DIGIT) as usize, shift % DIGIT);
        let low = mantissa << shift;
        let high = mantissa >> 1 >> (63 - shift);
        // All ones for negative values: x ^ s − s is −x then.
        let sign = (bits as i64 >> 63) as u64;
        let digits: &mut [u64; 3] =
            (&mut self.digits[first..first + 3]).try_into().expect("three digits");
        for (digit, part) in digits.iter_mut().zip([low & MASK, low >> DIGIT, high]) {
            *digit = digit.wrapping_add((part ^ sign).wrapping_sub(sign));
        }
        self.pending += 1;
        if self.pending == MOST_PENDING {
            self.carry();
        }
    }

    /// Adds another sum, exactly.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        self.carry();
        other.carry();
        for (to, from) in self.digits.iter_mut().zip(other.digits) {
            *to = to.wrapping_add(from);
        }
        for (to, from) in self.special.iter_mut().zip(other.special) {
            *to += from;
        }
        self.pending += 1;
    }

    /// The sum as words. Words of several sums, added as integers, are those of the sum of all of them.
    #[must_use]
    pub fn to_words(mut self) -> [u64; Self::WORDS] {
        self.carry();
        let mut words = [0; Self::WORDS];
        words[..DIGITS].copy_from_slice(&self.digits);
        words[DIGITS..].copy_from_slice(&self.special);
        words
    }

    /// The sum that has these words.
    #[must_use]
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let mut sum = Self { pending: 1, ..Self::default() };
        sum.digits.copy_from_slice(&words[..DIGITS]);
        sum.special.copy_from_slice(&words[DIGITS..]);
        sum
    }

    /// The f64 nearest to the sum; of two, the even one. NaN if one of the values was, or if there were infinities of both
    /// signs.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self.special {
            [0, 0, 0] => (),
            [_, 0, 0] => return f64::INFINITY,
            [0, _, 0] => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        let mut sum = self.clone();
        sum.carry();
        let is_negative = (sum.digits[DIGITS - 1] as i64) < 0;
        if is_negative {
            sum.digits.iter_mut().for_each(|digit| *digit = digit.wrapping_neg());
            sum.carry();
        }
        let size = sum.size();
        if is_negative { -size } else { size }
    }

    /// Brings all digits but the last to 0…2³² − 1; the last one carries the sign.
    fn carry(&mut self) {
        let mut carry = 0_i64;
        let (last, digits) = self.digits.split_last_mut().expect("there are digits");
        for digit in digits {
            let total = (*digit as i64).wrapping_add(carry);
            *digit = total as u64 & MASK;
            carry = total >> DIGIT;
        }
        *last = last.wrapping_add(carry as u64);
        self.pending = 0;
    }

    /// The f64 nearest to a sum that is not negative and has no carries.
    fn size(&self) -> f64 {
        let Some(top) = self.digits.iter().rposition(|digit| *digit != 0) else { return 0.0 };
        // The highest digits have 65 bits at least, or are all that there are.
        let first = top.saturating_sub(2);
        let value = self.digits[first..=top]
            .iter()
            .rev()
            .fold(0_u128, |value, digit| (value << DIGIT) + u128::from(*digit));
        let excess = (128 - value.leading_zeros()).saturating_sub(53);
        if excess == 0 {
            // Below 2⁻¹⁰²¹, where the bits of a number are its multiple of 2⁻¹⁰⁷⁴.
            return f64::from_bits(value as u64);
        }
        let (kept, rest) = ((value >> excess) as u64, value & ((1 << excess) - 1));
        let half = 1_u128 << (excess - 1);
        let has_more = self.digits[..first].iter().any(|digit| *digit != 0);
        let is_above_half = rest > half || (rest == half && (has_more || kept & 1 == 1));
        let kept = kept + u64::from(is_above_half);
        let exponent = u64::from(excess) + (first as u64) * u64::from(DIGIT) + 1;
        if exponent >= 0x7ff {
            return f64::INFINITY;
        }
        // A mantissa that was rounded up to 2⁵³ carries into the exponent.
        f64::from_bits((exponent << 52) + (kept - (1 << 52)))
    }
}

/// The exact sum of the partial sums of `f` over runs, of arrays of one length whose rows have `row` elements.
///
/// # Panics
/// If the arrays differ in length.
pub(crate) fn sum_of<const N: usize>(
    arrays: [&[f32]; N],
    row: usize,
    f: impl Fn([f32; N]) -> f64 + Sync,
) -> Sum {
    let len = arrays.first().map_or(0, |array| array.len());
    assert!(arrays.iter().all(|array| array.len() == len), "sums over arrays of different lengths");
    if len == 0 {
        return Sum::default();
    }
    let row = row.clamp(1, len);
    // Short rows are taken several at a time, long ones in pieces.
    let (rows, columns) = ((PIECE / row).max(1), PIECE.min(row.next_multiple_of(RUN)));
    let (groups, pieces) = (len.div_ceil(row * rows), row.div_ceil(columns));
    let add = |mut sum: Sum, task: usize| {
        let (group, piece) = (task / pieces, task % pieces);
        let begin = group * rows * row;
        for start in (begin..(begin + rows * row).min(len)).step_by(row) {
            let from = start + piece * columns;
            let to = (start + row).min(from + columns).min(len);
            add_runs(&mut sum, arrays.map(|array| &array[from..to]), &f);
        }
        sum
    };
    let tasks = groups * pieces;
    if tasks == 1 {
        return add(Sum::default(), 0);
    }
    let merge = |mut sum: Sum, other: Sum| {
        sum.merge(&other);
        sum
    };
    let mut total: Option<Sum> = None;
    in_pieces(tasks, &arrays.map(Visited::of), |range| {
        let sums = range.into_par_iter().fold(Sum::default, add);
        let sum = sums.reduce(Sum::default, merge);
        total = Some(match total.take() {
            Some(before) => merge(before, sum),
            None => sum,
        });
    });
    total.unwrap_or_default()
}

/// The exact sum of the partial sums of values in f64, over the runs of one row.
pub(crate) fn add_row(sum: &mut Sum, row: &[f64]) {
    for run in row.chunks(RUN) {
        let mut terms = [0.0; RUN];
        terms[..run.len()].copy_from_slice(run);
        sum.add(tree(terms));
    }
}

/// Adds `f` over the runs of one row.
pub(crate) fn add_runs<const N: usize>(
    sum: &mut Sum,
    arrays: [&[f32]; N],
    f: &impl Fn([f32; N]) -> f64,
) {
    let split = arrays.map(|array| array.as_chunks::<RUN>());
    let (runs, rests) = (split.map(|(runs, _)| runs), split.map(|(_, rest)| rest));
    for index in 0..runs[0].len() {
        let run = runs.map(|runs| runs[index]);
        sum.add(tree(std::array::from_fn(|i| f(run.map(|run| run[i])))));
    }
    if !rests[0].is_empty() {
        let count = rests[0].len();
        sum.add(tree(std::array::from_fn(|i| {
            if i < count { f(rests.map(|rest| rest[i])) } else { 0.0 }
        })));
    }
}

/// Halves are added to each other, so that vector registers can do it.
#[inline]
fn tree(terms: [f64; RUN]) -> f64 {
    let quarter: [f64; 4] = std::array::from_fn(|i| terms[i] + terms[i + 4]);
    (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> Sum {
        let mut sum = Sum::default();
        for value in values {
            sum.add(*value);
        }
        sum
    }

    /// Multiples of 2⁻⁴⁰ up to 2⁶⁰ in 128 bits, rounded to f64 by the compiler's conversion.
    #[test]
    fn sums_are_those_of_integers_rounded_once() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..500 {
            let values: Vec<i128> = (0..random.usize(1..200))
                .map(|_| i128::from(random.i64(-(1 << 52)..1 << 52)) << random.u32(0..48))
                .collect();
            let expected = values.iter().sum::<i128>() as f64 * 2_f64.powi(-40);
            let values: Vec<f64> =
                values.iter().map(|value| *value as f64 * 2_f64.powi(-40)).collect();
            assert_eq!(sum(&values).value().to_bits(), expected.to_bits());
        }
    }

    /// Every finite f64 is its own sum, also beside what cancels.
    #[test]
    fn single_numbers_come_back_whatever_cancels_beside_them() {
        let mut random = fastrand::Rng::with_seed(2);
        let special = [0.0, f64::MIN_POSITIVE, f64::MAX, f64::MIN, 5e-324, -5e-324, 1.0, -1.0];
        let drawn: Vec<f64> = (0..2000).map(|_| f64::from_bits(random.u64(..))).collect();
        for value in drawn.iter().copied().chain(special).filter(|value| value.is_finite()) {
            let mut total = sum(&[value, 0.0, -0.0]);
            assert_eq!(total.value(), value);
            let other = f64::from_bits(random.u64(..) & !(1 << 62));
            (0..3).for_each(|_| total.add(other));
            (0..3).for_each(|_| total.add(-other));
            assert_eq!(total.value(), value, "{other:e}");
            total.add(-value);
            assert_eq!(total.value().to_bits(), 0);
        }
    }

    #[test]
    fn order_and_division_do_not_matter() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut values: Vec<f64> =
            (0..3000).map(|_| (random.f64() - 0.5) * 10_f64.powi(random.i32(-300..300))).collect();
        let expected = sum(&values).value().to_bits();
        for _ in 0..20 {
            random.shuffle(&mut values);
            let at = random.usize(0..values.len());
            let (left, right) = values.split_at(at);
            let mut merged = sum(left);
            merged.merge(&sum(right));
            assert_eq!(merged.value().to_bits(), expected);
            let mut words = [0_u64; Sum::WORDS];
            for part in values.chunks(random.usize(1..900)) {
                let of_part = sum(part).to_words();
                words.iter_mut().zip(of_part).for_each(|(to, from)| *to = to.wrapping_add(from));
            }
            assert_eq!(Sum::from_words(&words).value().to_bits(), expected);
        }
    }

    #[test]
    fn halves_are_rounded_to_even_and_what_lies_below_decides() {
        let (one, ulp, tiny) = (1.0, f64::EPSILON, 5e-324);
        assert_eq!(sum(&[one, ulp / 2.0]).value(), 1.0);
        assert_eq!(sum(&[one, ulp / 2.0, tiny]).value(), 1.0 + ulp);
        assert_eq!(sum(&[one, ulp, ulp / 2.0]).value(), 1.0 + 2.0 * ulp);
        assert_eq!(sum(&[one, ulp, ulp / 2.0, -tiny]).value(), 1.0 + ulp);
        assert_eq!(sum(&[-one, -ulp / 2.0, -tiny]).value(), -1.0 - ulp);
        // Rounded up to a power of two, and out of range.
        assert_eq!(sum(&[2.0 - ulp, ulp / 2.0]).value(), 2.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
        // Subnormal numbers and the step to normal ones.
        assert_eq!(sum(&[tiny; 3]).value(), 3.0 * tiny);
        assert_eq!(sum(&[f64::MIN_POSITIVE, -tiny]).value(), f64::MIN_POSITIVE - tiny);
    }

    #[test]
    fn infinities_and_nan_show() {
        assert_eq!(sum(&[1.0, f64::INFINITY]).value(), f64::INFINITY);
        assert_eq!(sum(&[f64::NEG_INFINITY, 1e300]).value(), f64::NEG_INFINITY);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).value().is_nan());
        let mut merged = sum(&[1.0]);
        merged.merge(&sum(&[f64::NAN]));
        assert!(merged.value().is_nan());
        assert!(Sum::from_words(&merged.to_words()).value().is_nan());
    }

    /// Digits that are full beyond the number of additions that they can take.
    #[test]
    fn carries_are_propagated_in_time() {
        let mut total = sum(&[f64::MAX]);
        for doubling in 1..40 {
            let copy = total.clone();
            total.merge(&copy);
            assert_eq!(total.value(), f64::INFINITY, "{doubling}");
        }
        total.pending = MOST_PENDING - 1;
        total.add(-1.0);
        assert_eq!(total.pending, 0);
        let mut words = total.to_words();
        for word in &mut words {
            *word = word.wrapping_neg();
        }
        assert_eq!(Sum::from_words(&words).value(), f64::NEG_INFINITY);
    }

    /// Rows and pieces of rows, whatever the threads.
    #[test]
    fn sums_of_arrays_follow_rows_and_not_threads() {
        let mut random = fastrand::Rng::with_seed(4);
        for (rows, row) in
            [(1, 5), (3, 8), (700, 61), (2, 40_003), (5, 1), (1, 16_384), (9, 16_385)]
        {
            let mut draw = || (0..rows * row).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
            let (a, b) = (draw(), draw());
            let mut expected = Sum::default();
            for (a, b) in a.chunks(row).zip(b.chunks(row)) {
                let terms: Vec<f64> =
                    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).collect();
                add_row(&mut expected, &terms);
            }
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                let product = |[a, b]: [f32; 2]| f64::from(a) * f64::from(b);
                let found = pool.expect("a pool").install(|| sum_of([&a, &b], row, product));
                assert_eq!(found.value().to_bits(), expected.value().to_bits(), "{rows} × {row}");
            }
        }
        assert_eq!(sum_of([&[]], 4, |[a]: [f32; 1]| f64::from(a)).value(), 0.0);
    }
}
