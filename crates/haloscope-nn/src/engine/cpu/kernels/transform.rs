//! The one-dimensional Winograd transforms of F(2,3), F(4,3) and F(6,3).
//!
//! For `m` outputs of a filter of three taps, with `a = m + 2`:
//! `output = Aᵀ ((G filter) ⊙ (Bᵀ input))`. Points: 0, ±1, ∞ for m = 2; with ±2 for m = 4; with
//! ±2, ±½ for m = 6. The two-dimensional transforms nest these over rows and columns.
//! Column 1 of every `Aᵀ` (the point 1) is all ones, through which biases enter at no cost.

use super::lanes::Lanes;

/// F(`M`, 3), with `A = M + 2`.
///
/// # Safety
/// As for [`Lanes`].
pub(crate) trait Transform<const M: usize, const A: usize> {
    /// `G`, in f64: weights are transformed once and their error would stay.
    const FILTER: [[f64; 3]; A];
    /// `Bᵀ d`.
    unsafe fn input<L: Lanes>(d: [L; A]) -> [L; A];
    /// `Aᵀ m`.
    unsafe fn output<L: Lanes>(m: [L; A]) -> [L; M];
}

/// F(2, 3): the most accurate.
pub(crate) struct F2;
/// F(4, 3).
pub(crate) struct F4;
/// F(6, 3): the fewest multiplications.
pub(crate) struct F6;

impl Transform<2, 4> for F2 {
    const FILTER: [[f64; 3]; 4] =
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];

    #[inline(always)]
    unsafe fn input<L: Lanes>(d: [L; 4]) -> [L; 4] {
        // SAFETY: the caller's contract is that of the lanes.
        unsafe { [d[0].sub(d[2]), d[1].add(d[2]), d[2].sub(d[1]), d[3].sub(d[1])] }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L; 4]) -> [L; 2] {
        // SAFETY: the caller's contract is that of the lanes.
        unsafe { [m[0].add(m[1]).add(m[2]), m[1].sub(m[2]).add(m[3])] }
    }
}

impl Transform<4, 6> for F4 {
    const FILTER: [[f64; 3]; 6] = [
        [0.25, 0.0, 0.0],
        [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
        [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
        [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
        [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
        [0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    unsafe fn input<L: Lanes>(d: [L; 6]) -> [L; 6] {
        // SAFETY: the caller's contract is that of the lanes.
        unsafe {
            let (two, four, five) = (L::splat(2.0), L::splat(4.0), L::splat(5.0));
            let even = d[4].minus_product(four, d[2]);
            let odd = d[3].minus_product(four, d[1]);
            let even2 = d[4].sub(d[2]);
            let odd2 = d[3].sub(d[1]);
            [
                d[4].minus_product(five, d[2]).plus_product(four, d[0]),
                even.add(odd),
                even.sub(odd),
                even2.plus_product(two, odd2),
                even2.minus_product(two, odd2),
                d[5].minus_product(five, d[3]).plus_product(four, d[1]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L; 6]) -> [L; 4] {
        // SAFETY: the caller's contract is that of the lanes.
        unsafe {
            let (two, four, eight) = (L::splat(2.0), L::splat(4.0), L::splat(8.0));
            let (sum1, difference1) = (m[1].add(m[2]), m[1].sub(m[2]));
            let (sum2, difference2) = (m[3].add(m[4]), m[3].sub(m[4]));
            [
                m[0].add(sum1).add(sum2),
                difference1.plus_product(two, difference2),
                sum1.plus_product(four, sum2),
                difference1.plus_product(eight, difference2).add(m[5]),
            ]
        }
    }
}

impl Transform<6, 8> for F6 {
    const FILTER: [[f64; 3]; 8] = [
        [1.0, 0.0, 0.0],
        [-2.0 / 9.0, -2.0 / 9.0, -2.0 / 9.0],
        [-2.0 / 9.0, 2.0 / 9.0, -2.0 / 9.0],
        [1.0 / 90.0, 1.0 / 45.0, 2.0 / 45.0],
        [1.0 / 90.0, -1.0 / 45.0, 2.0 / 45.0],
        [1.0 / 45.0, 1.0 / 90.0, 1.0 / 180.0],
        [1.0 / 45.0, -1.0 / 90.0, 1.0 / 180.0],
        [0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    unsafe fn input<L: Lanes>(d: [L; 8]) -> [L; 8] {
        // SAFETY: the caller's contract is that of the lanes.
        unsafe {
            let (half, two) = (L::splat(0.5), L::splat(2.0));
            let (quarter, one_quarter) = (L::splat(0.25), L::splat(1.25));
            let (four, five) = (L::splat(4.0), L::splat(5.0));
            let (four_quarter, five_quarter) = (L::splat(4.25), L::splat(5.25));
            let even1 = d[2].add(d[6]).minus_product(four_quarter, d[4]);
            let odd1 = d[1].add(d[5]).minus_product(four_quarter, d[3]);
            let even2 = d[6].minus_product(one_quarter, d[4]).plus_product(quarter, d[2]);
            let odd2 = d[5].minus_product(one_quarter, d[3]).plus_product(quarter, d[1]);
            let even3 = d[6].minus_product(five, d[4]).plus_product(four, d[2]);
            let odd3 = d[5].minus_product(five, d[3]).plus_product(four, d[1]);
            [
                d[0].sub(d[6]).plus_product(five_quarter, d[4].sub(d[2])),
                even1.add(odd1),
                even1.sub(odd1),
                even2.plus_product(two, odd2),
                even2.minus_product(two, odd2),
                even3.plus_product(half, odd3),
                even3.minus_product(half, odd3),
                d[7].sub(d[1]).plus_product(five_quarter, d[3].sub(d[5])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L; 8]) -> [L; 6] {
        // SAFETY: the caller's contract is that of the lanes.
        unsafe {
            let (two, four, eight) = (L::splat(2.0), L::splat(4.0), L::splat(8.0));
            let (sixteen, thirty_two) = (L::splat(16.0), L::splat(32.0));
            let (sum1, difference1) = (m[1].add(m[2]), m[1].sub(m[2]));
            let (sum2, difference2) = (m[3].add(m[4]), m[3].sub(m[4]));
            let (sum3, difference3) = (m[5].add(m[6]), m[5].sub(m[6]));
            [
                m[0].add(sum1).add(sum2).plus_product(thirty_two, sum3),
                difference1.plus_product(two, difference2).plus_product(sixteen, difference3),
                sum1.plus_product(four, sum2).plus_product(eight, sum3),
                difference1.plus_product(eight, difference2).plus_product(four, difference3),
                sum1.plus_product(sixteen, sum2).plus_product(two, sum3),
                difference1.plus_product(thirty_two, difference2).add(difference3.add(m[7])),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::Portable;
    use super::*;

    #[repr(align(64))]
    struct Values([f32; 8]);

    fn splat(value: f32) -> Portable {
        // SAFETY: the portable lanes need no instructions.
        unsafe { Portable::splat(value) }
    }

    fn first(lanes: Portable) -> f32 {
        let mut values = Values([0.0; 8]);
        // SAFETY: eight aligned floats.
        unsafe { lanes.store(values.0.as_mut_ptr()) };
        values.0[0]
    }

    fn convolves<const M: usize, const A: usize, T: Transform<M, A>>() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let input: [f32; A] = std::array::from_fn(|_| random.f32() - 0.5);
            let filter: [f32; 3] = std::array::from_fn(|_| random.f32() - 0.5);
            // SAFETY: the portable lanes need no instructions.
            let transformed = unsafe { T::input(input.map(splat)) };
            let mut products = [splat(0.0); A];
            for (i, row) in T::FILTER.iter().enumerate() {
                let weight: f64 = (0..3).map(|k| row[k] * f64::from(filter[k])).sum();
                #[expect(clippy::cast_possible_truncation, reason = "weights are stored as f32")]
                let weight = splat(weight as f32);
                // SAFETY: as above.
                products[i] = unsafe { transformed[i].mul(weight) };
            }
            // SAFETY: as above.
            let output = unsafe { T::output(products) }.map(first);
            for (i, value) in output.into_iter().enumerate() {
                let expected: f32 = (0..3).map(|k| input[i + k] * filter[k]).sum();
                assert!((value - expected).abs() < 2e-5, "F({M}, 3): {value} for {expected}");
            }
        }
    }

    #[test]
    fn transforms_convolve() {
        convolves::<2, 4, F2>();
        convolves::<4, 6, F4>();
        convolves::<6, 8, F6>();
    }

    #[test]
    fn the_point_one_reaches_every_output_with_weight_one() {
        fn check<const M: usize, const A: usize, T: Transform<M, A>>() {
            let mut m = [splat(0.0); A];
            m[1] = splat(1.0);
            // SAFETY: the portable lanes need no instructions.
            let output = unsafe { T::output(m) };
            assert!(output.into_iter().all(|value| first(value).to_bits() == 1f32.to_bits()));
        }
        check::<2, 4, F2>();
        check::<4, 6, F4>();
        check::<6, 8, F6>();
    }
}
