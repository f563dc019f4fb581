//! A line of samples read at equally spaced points, and the exact transpose of that.
//!
//! This is the inner loop of the projectors: where a plane of parallel rays, or one column of a
//! detector, crosses a row of the image, the crossings are equally spaced. Reading is linear
//! interpolation, so point `k` at `p = start + k·step` sees sample `i` with the weight
//! `max(0, 1 − |p − i|)`; the transpose collects with the same weights, sample by sample, so that
//! it never writes where another thread may. With AVX2 both take eight elements at a time out of a
//! window of the input that lies in registers, because gathering from memory is slower.

/// Zeros that surround the samples of an input on both sides, for windows that reach over its ends.
pub(super) const MARGIN: usize = 32;

/// Elements that an output has behind its last one, for the last vector. They hold rubbish.
pub(super) const SLACK: usize = 8;

/// Points `start + k·step`, in units of samples, for `k` in `0..count`. The step is positive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points {
    pub(super) start: f64,
    pub(super) step: f64,
    pub(super) count: usize,
}

/// `output[k] += line(start + k·step)`, where the line is zero outside of its samples.
///
/// The line has [`MARGIN`] zeros on both sides, the output [`SLACK`] elements behind its points.
pub(super) fn interpolate(line: &[f32], points: Points, output: &mut [f32]) {
    let samples = line.len() - 2 * MARGIN;
    debug_assert!(points.step > 0.0 && output.len() >= points.count + SLACK);
    // Points within (−1, samples) see something.
    let first = first_above(-1.0, points);
    let end = first_above(samples as f64, points).min(points.count);
    if first >= end {
        return;
    }
    let start = points.start + first as f64 * points.step;
    let output = &mut output[first..end + SLACK];
    if points.step == 1.0 && start.fract() == 0.0 {
        let from = (start + MARGIN as f64) as usize;
        for (output, &sample) in output.iter_mut().zip(&line[from..from + (end - first)]) {
            *output += sample;
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if points.step <= avx2::WIDEST_STEP && avx2::is_available() {
        let (step, count) = (points.step, end - first);
        let wide = step > avx2::NARROW_STEP;
        let kernel = if wide { avx2::interpolate::<true> } else { avx2::interpolate::<false> };
        // SAFETY: the features are there.
        return unsafe { kernel(line, start, step, count, output) };
    }
    interpolate_portable(line, start, points.step, end - first, output);
}

/// `output[i] += Σ_k max(0, 1 − |start + k·step − i|) values[k]`, the transpose of [`interpolate`].
///
/// The values have [`MARGIN`] zeros on both sides, the output [`SLACK`] elements behind its samples.
pub(super) fn spread(values: &[f32], points: Points, output: &mut [f32]) {
    let samples = output.len() - SLACK;
    debug_assert!(points.step > 0.0 && values.len() == points.count + 2 * MARGIN);
    // The samples that the first or the last point sees, and those between.
    let last = points.start + (points.count as f64 - 1.0) * points.step;
    let first = floor(points.start).max(0.0) as usize;
    let end = ((floor(last) + 2.0).max(0.0) as usize).min(samples);
    if first >= end || points.count == 0 {
        return;
    }
    if points.step == 1.0 && points.start.fract() == 0.0 {
        let from = (first as f64 - points.start + MARGIN as f64) as usize;
        for (output, &value) in output[first..end].iter_mut().zip(&values[from..]) {
            *output += value;
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if points.step >= avx2::FINEST_STEP && avx2::is_available() {
        let start = first as f64 - points.start;
        let output = &mut output[first..end + SLACK];
        let (step, count) = (points.step, end - first);
        // SAFETY: the features are there.
        return unsafe {
            match 2.0 / step {
                seen if seen <= 1.0 => avx2::spread::<1, false>(values, start, step, count, output),
                seen if seen <= 2.0 => avx2::spread::<2, false>(values, start, step, count, output),
                seen if seen <= 3.0 => avx2::spread::<3, true>(values, start, step, count, output),
                _ => avx2::spread::<4, true>(values, start, step, count, output),
            }
        };
    }
    spread_portable(values, points, &mut output[..samples]);
}

/// `output = (1 − fraction) a + fraction b`, where a line that is not there is zero.
pub(super) fn blend(a: Option<&[f32]>, b: Option<&[f32]>, fraction: f32, output: &mut [f32]) {
    match (a, b) {
        (Some(a), Some(b)) => {
            for ((output, &a), &b) in output.iter_mut().zip(a).zip(b) {
                *output = a + fraction * (b - a);
            }
        }
        (Some(line), None) => scaled(1.0 - fraction, line, output),
        (None, Some(line)) => scaled(fraction, line, output),
        (None, None) => output.fill(0.0),
    }
}

fn scaled(weight: f32, line: &[f32], output: &mut [f32]) {
    for (output, &value) in output.iter_mut().zip(line) {
        *output = weight * value;
    }
}

/// `output += weight line`.
pub(super) fn add_scaled(weight: f32, line: &[f32], output: &mut [f32]) {
    for (output, &value) in output.iter_mut().zip(line) {
        *output += weight * value;
    }
}

/// The greatest whole number that is not above a number of moderate size. The function of the same name is a call where the
/// processor is not known to have it, and lines may be short.
#[inline]
pub(super) fn floor(x: f64) -> f64 {
    let whole = x as i64 as f64;
    if whole > x { whole - 1.0 } else { whole }
}

/// The first point above a position; the number of points or more if there is none.
fn first_above(position: f64, points: Points) -> usize {
    (floor((position - points.start) / points.step) + 1.0).max(0.0) as usize
}

fn interpolate_portable(line: &[f32], start: f64, step: f64, count: usize, output: &mut [f32]) {
    for (k, output) in output[..count].iter_mut().enumerate() {
        let position = start + k as f64 * step;
        let below = floor(position);
        let fraction = (position - below) as f32;
        let i = (below + MARGIN as f64) as usize;
        *output += line[i] + fraction * (line[i + 1] - line[i]);
    }
}

fn spread_portable(values: &[f32], points: Points, output: &mut [f32]) {
    for k in 0..points.count {
        let position = points.start + k as f64 * points.step;
        let below = floor(position);
        if below < -1.0 || below >= output.len() as f64 {
            continue;
        }
        let fraction = (position - below) as f32;
        let value = values[MARGIN + k];
        let i = below as isize;
        if i >= 0 {
            output[i as usize] += (1.0 - fraction) * value;
        }
        if let Some(output) = output.get_mut((i + 1) as usize) {
            *output += fraction * value;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! Positions are kept in fixed point with 32 bits behind the point, so that they are exact over
    //! the whole line; within a window of eight they are floats of at most 16.

    use std::arch::x86_64::{
        __m256, __m256i, _mm256_add_ps, _mm256_and_ps, _mm256_blendv_ps, _mm256_castsi256_ps,
        _mm256_cvttps_epi32, _mm256_floor_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps,
        _mm256_max_ps, _mm256_permutevar8x32_ps, _mm256_set1_epi32, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
    };

    use super::MARGIN;

    /// Eight points of at most this step lie in a window of 16 samples.
    pub(super) const WIDEST_STEP: f64 = 2.0;
    /// Eight points of at most this step lie in a window of 8 samples.
    pub(super) const NARROW_STEP: f64 = 1.0;
    /// Samples see at most four points of at least this step, and eight samples a window of 16.
    pub(super) const FINEST_STEP: f64 = 0.5;

    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    /// Eight positions, the whole part of the first taken off.
    struct Window {
        position: i64,
        advance: i64,
        lanes: __m256,
    }

    impl Window {
        #[target_feature(enable = "avx2,fma")]
        fn new(start: f64, step: f64) -> Self {
            let fixed = |x: f64| (x * 4_294_967_296.0).round() as i64;
            let lanes: [f32; 8] = std::array::from_fn(|lane| (lane as f64 * step) as f32);
            // SAFETY: eight floats are read from an array of eight.
            let lanes = unsafe { _mm256_loadu_ps(lanes.as_ptr()) };
            Self { position: fixed(start), advance: fixed(8.0 * step), lanes }
        }

        /// Where the windows of a number of vectors begin, at first and at last.
        fn range(&self, vectors: usize) -> (i64, i64) {
            let last = self.position + (vectors as i64 - 1) * self.advance;
            (self.position >> 32, last >> 32)
        }

        /// Where the window begins, and the positions in it; then moves on.
        #[target_feature(enable = "avx2,fma")]
        #[inline]
        fn next(&mut self) -> (isize, __m256) {
            let begin = (self.position >> 32) as isize;
            let fraction = ((self.position >> 8) & 0xff_ffff) as i32 as f32 * (1.0 / 16_777_216.0);
            self.position += self.advance;
            (begin, _mm256_add_ps(_mm256_set1_ps(fraction), self.lanes))
        }
    }

    /// Elements of a window of 8, or of 16 if it is wide.
    ///
    /// # Safety
    /// 8 or 16 floats can be read.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn pick<const WIDE: bool>(window: *const f32, index: __m256i) -> __m256 {
        // SAFETY: as the caller says.
        let low = unsafe { _mm256_loadu_ps(window) };
        let low = _mm256_permutevar8x32_ps(low, index);
        if !WIDE {
            return low;
        }
        // SAFETY: as the caller says.
        let high = unsafe { _mm256_loadu_ps(window.add(8)) };
        let high = _mm256_permutevar8x32_ps(high, index);
        // The bit of 8 becomes the sign, by which the blend chooses.
        let second = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
        _mm256_blendv_ps(low, high, second)
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn interpolate<const WIDE: bool>(
        line: &[f32],
        start: f64,
        step: f64,
        count: usize,
        output: &mut [f32],
    ) {
        let mut window = Window::new(start + MARGIN as f64, step);
        let vectors = count.div_ceil(8);
        let (first, last) = window.range(vectors);
        assert!(first >= 0 && last as usize + 17 <= line.len() && output.len() >= vectors * 8);
        for output in output.chunks_exact_mut(8).take(vectors) {
            let (begin, position) = window.next();
            let below = _mm256_floor_ps(position);
            let index = _mm256_cvttps_epi32(below);
            let fraction = _mm256_sub_ps(position, below);
            // SAFETY: 17 floats from the beginning of any window are in the line, as asserted; the
            // output has eight.
            unsafe {
                let window = line.as_ptr().offset(begin);
                let left = pick::<WIDE>(window, index);
                let right = pick::<WIDE>(window.add(1), index);
                let sum = _mm256_add_ps(_mm256_loadu_ps(output.as_ptr()), left);
                let sum = _mm256_fmadd_ps(fraction, _mm256_sub_ps(right, left), sum);
                _mm256_storeu_ps(output.as_mut_ptr(), sum);
            }
        }
    }

    /// `start` is the first sample, seen from the first point, in samples.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn spread<const TAPS: usize, const WIDE: bool>(
        values: &[f32],
        start: f64,
        step: f64,
        count: usize,
        output: &mut [f32],
    ) {
        // Sample i is at t = (i − start) / step in units of points, and the points that see it are
        // nearer than 1/step: the first of them is floor(t − 1/step) + 1.
        let inverse = 1.0 / step;
        let mut window = Window::new((start - 1.0) * inverse + MARGIN as f64 + 1.0, inverse);
        let vectors = count.div_ceil(8);
        let (first, last) = window.range(vectors);
        assert!(first >= 0 && last as usize + 15 + TAPS <= values.len());
        assert!(output.len() >= vectors * 8);
        let (one, step) = (_mm256_set1_ps(1.0), _mm256_set1_ps(step as f32));
        let magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX));
        for output in output.chunks_exact_mut(8).take(vectors) {
            let (begin, position) = window.next();
            let below = _mm256_floor_ps(position);
            let index = _mm256_cvttps_epi32(below);
            let fraction = _mm256_sub_ps(position, below);
            // From the sample to its first point, in samples.
            let distance = _mm256_fnmadd_ps(fraction, step, _mm256_sub_ps(step, one));
            let mut distance = distance;
            // SAFETY: 15 + TAPS floats from the beginning of any window are values, as asserted; the
            // output has eight.
            unsafe {
                let window = values.as_ptr().offset(begin);
                let mut sum = _mm256_loadu_ps(output.as_ptr());
                for tap in 0..TAPS {
                    let weight = _mm256_sub_ps(one, _mm256_and_ps(distance, magnitude));
                    let weight = _mm256_max_ps(weight, _mm256_setzero_ps());
                    sum = _mm256_fmadd_ps(weight, pick::<WIDE>(window.add(tap), index), sum);
                    distance = _mm256_add_ps(distance, step);
                }
                _mm256_storeu_ps(output.as_mut_ptr(), sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(samples: &[f32]) -> Vec<f32> {
        let mut padded = vec![0.0; samples.len() + 2 * MARGIN];
        padded[MARGIN..MARGIN + samples.len()].copy_from_slice(samples);
        padded
    }

    fn random_points(random: &mut fastrand::Rng) -> Points {
        let steps = [0.3, 0.5, 0.7, 1.0, 1.2, 1.41, 2.0, 3.7];
        let step = if random.bool() { steps[random.usize(..8)] } else { 0.2 + 2.5 * random.f64() };
        let start = (random.f64() - 0.7) * 60.0;
        let start = if random.u8(..4) == 0 { start.round() } else { start };
        Points { start, step, count: random.usize(1..70) }
    }

    #[test]
    fn vectors_interpolate_as_plain_code_does() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..400 {
            let samples: Vec<f32> = (0..random.usize(1..60)).map(|_| random.f32()).collect();
            let points = random_points(&mut random);
            let mut output = vec![0.5; points.count + SLACK];
            interpolate(&padded(&samples), points, &mut output);
            for (k, &output) in output[..points.count].iter().enumerate() {
                let position = points.start + k as f64 * points.step;
                let hat = |i: usize| (1.0 - (position - i as f64).abs()).max(0.0);
                let expected: f64 =
                    samples.iter().enumerate().map(|(i, &s)| hat(i) * f64::from(s)).sum();
                assert!((f64::from(output) - 0.5 - expected).abs() < 2e-6, "{points:?} {k}");
            }
        }
    }

    #[test]
    fn spreading_is_the_transpose_of_interpolation() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..400 {
            let points = random_points(&mut random);
            let values: Vec<f32> = (0..points.count).map(|_| random.f32()).collect();
            let mut output = vec![0.5; random.usize(1..60) + SLACK];
            let samples = output.len() - SLACK;
            spread(&padded(&values), points, &mut output);
            for (i, &output) in output[..samples].iter().enumerate() {
                let position = |k: usize| points.start + k as f64 * points.step;
                let hat = |k: usize| (1.0 - (position(k) - i as f64).abs()).max(0.0);
                let expected: f64 =
                    values.iter().enumerate().map(|(k, &v)| hat(k) * f64::from(v)).sum();
                assert!((f64::from(output) - 0.5 - expected).abs() < 4e-6, "{points:?} {i}");
            }
        }
    }

    #[test]
    fn plain_code_is_its_own_transpose() {
        let mut random = fastrand::Rng::with_seed(3);
        let samples: Vec<f32> = (0..40).map(|_| random.f32()).collect();
        let points = Points { start: 3.3, step: 1.3, count: 27 };
        let values: Vec<f32> = (0..points.count).map(|_| random.f32()).collect();
        let mut read = vec![0.0; points.count];
        interpolate_portable(&padded(&samples), points.start, points.step, points.count, &mut read);
        let mut collected = vec![0.0; samples.len()];
        spread_portable(&padded(&values), points, &mut collected);
        let left: f32 = read.iter().zip(&values).map(|(a, b)| a * b).sum();
        let right: f32 = samples.iter().zip(&collected).map(|(a, b)| a * b).sum();
        assert!((left - right).abs() < 1e-4 * left, "{left} {right}");
    }
}
