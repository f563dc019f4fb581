//! A sum of correlations of rows: the inner loop of direct convolution.
//!
//! Sums of 64 neighbouring results stay in registers while all rows and taps are gone through. The same
//! Rust is compiled for AVX2 with FMA and for the plain target; `bench_blur` has a kernel of 9² twice as
//! fast with AVX2.

// What is inlined is compiled for the instructions of the function that it is inlined into.
#![allow(clippy::inline_always)]

use std::ops::Range;

/// A row of the input and a row of taps, by where they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Term {
    pub source: usize,
    pub taps: usize,
}

/// About how many products are added up before their sum is added to the others.
const SUMMANDS: usize = 32;

/// How many of the results at `part` of a row of `whole` are computed in f64: those that are not in a block of eight from
/// the beginning of the row.
pub(super) fn exact(part: &Range<usize>, whole: usize) -> usize {
    part.end.saturating_sub(part.start.max(whole - whole % 8))
}

/// `output[x] = Σ over terms, Σ over k < width, taps[term.taps + k] · source[term.source + x + k]`
///
/// Which results are computed in f64, the last `exact` ones, is for the caller to say: in a row of an image these are
/// [`exact`] ones, wherever the row is cut.
pub(super) fn correlate(
    output: &mut [f32],
    exact: usize,
    source: &[f32],
    terms: &[Term],
    taps: &[f32],
    width: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the features.
        return unsafe { correlate_avx2(output, exact, source, terms, taps, width) };
    }
    correlate_in_blocks::<false>(output, exact, source, terms, taps, width);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn correlate_avx2(
    output: &mut [f32],
    exact: usize,
    source: &[f32],
    terms: &[Term],
    taps: &[f32],
    width: usize,
) {
    correlate_in_blocks::<true>(output, exact, source, terms, taps, width);
}

#[inline(always)]
fn correlate_in_blocks<const FUSED: bool>(
    output: &mut [f32],
    exact: usize,
    source: &[f32],
    terms: &[Term],
    taps: &[f32],
    width: usize,
) {
    let (output, exact) = output.split_at_mut(output.len() - exact);
    let len = output.len();
    let mut x = 0;
    let (blocks, rest) = output.as_chunks_mut::<64>();
    for block in blocks {
        *block = correlate_block::<64, FUSED>(x, source, terms, taps, width);
        x += 64;
    }
    let (blocks, _) = rest.as_chunks_mut::<8>();
    for block in blocks {
        *block = correlate_block::<8, FUSED>(x, source, terms, taps, width);
        x += 8;
    }
    // A result is the same in a block of any length and at any place in it.
    if x < len && len >= 8 {
        let last = correlate_block::<8, FUSED>(len - 8, source, terms, taps, width);
        output[len - 8..].copy_from_slice(&last);
    } else {
        for (x, value) in output.iter_mut().enumerate().skip(x) {
            [*value] = correlate_block::<1, FUSED>(x, source, terms, taps, width);
        }
    }
    for (x, value) in exact.iter_mut().enumerate() {
        *value = correlate_one(len + x, source, terms, taps, width);
    }
}

#[inline(always)]
fn correlate_block<const N: usize, const FUSED: bool>(
    x: usize,
    source: &[f32],
    terms: &[Term],
    taps: &[f32],
    width: usize,
) -> [f32; N] {
    let mut sums = [0.0; N];
    // Sums of sums: one long sum of a kernel of 29³ samples would have the rounding of 24 000 additions.
    for terms in terms.chunks(SUMMANDS.div_ceil(width)) {
        let mut parts = [0.0; N];
        for term in terms {
            let row = &source[term.source + x..][..N + width - 1];
            let taps = &taps[term.taps..][..width];
            for (window, &tap) in row.windows(N).zip(taps) {
                for (part, &value) in parts.iter_mut().zip(window) {
                    // Without the instruction `mul_add` would be a call of the mathematical library.
                    *part = if FUSED { value.mul_add(tap, *part) } else { *part + value * tap };
                }
            }
        }
        for (sum, part) in sums.iter_mut().zip(parts) {
            *sum += part;
        }
    }
    sums
}

/// One result. In f64, which costs nothing here and helps where an image is only a few samples wide, so
/// that errors do not cancel over them.
fn correlate_one(x: usize, source: &[f32], terms: &[Term], taps: &[f32], width: usize) -> f32 {
    let mut sum = 0.0;
    for term in terms {
        let row = &source[term.source + x..][..width];
        for (&value, &tap) in row.iter().zip(&taps[term.taps..]) {
            sum += f64::from(value) * f64::from(tap);
        }
    }
    sum as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_and_the_plain_kernel_agree_with_the_definition() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in [1, 7, 8, 63, 64, 65, 200] {
            let width = random.usize(1..12);
            let source: Vec<f32> = (0..3 * (len + width)).map(|_| random.f32() - 0.5).collect();
            let taps: Vec<f32> = (0..2 * width).map(|_| random.f32() - 0.5).collect();
            let terms = [Term { source: len + width, taps: width }, Term { source: 3, taps: 0 }];
            let (mut fast, mut plain) = (vec![0.0; len], vec![0.0; len]);
            let exact = exact(&(0..len), len);
            correlate(&mut fast, exact, &source, &terms, &taps, width);
            correlate_in_blocks::<false>(&mut plain, exact, &source, &terms, &taps, width);
            for x in 0..len {
                let sum: f64 = terms
                    .iter()
                    .flat_map(|term| (0..width).map(move |k| (term.source + x + k, term.taps + k)))
                    .map(|(at, tap)| f64::from(source[at]) * f64::from(taps[tap]))
                    .sum();
                assert!((f64::from(fast[x]) - sum).abs() < 1e-5, "{} and {sum}", fast[x]);
                assert!((f64::from(plain[x]) - sum).abs() < 1e-5, "{} and {sum}", plain[x]);
            }
        }
    }

    #[test]
    fn a_part_of_a_row_has_the_bits_of_the_row() {
        let mut random = fastrand::Rng::with_seed(2);
        for len in [5, 8, 9, 31, 64, 77, 139] {
            let width = random.usize(1..12);
            let source: Vec<f32> = (0..len + width).map(|_| random.f32() - 0.5).collect();
            let taps: Vec<f32> = (0..width).map(|_| random.f32() - 0.5).collect();
            let mut row = vec![0.0; len];
            correlate(&mut row, exact(&(0..len), len), &source, &[Term::default()], &taps, width);
            for _ in 0..40 {
                let begin = random.usize(0..len);
                let end = random.usize(begin + 1..=len);
                let (mut part, term) = (vec![0.0; end - begin], Term { source: begin, taps: 0 });
                correlate(&mut part, exact(&(begin..end), len), &source, &[term], &taps, width);
                assert_eq!(part, row[begin..end], "{begin}..{end} of {len}");
            }
        }
    }
}
