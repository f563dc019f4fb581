//! Noise of measurements: Gaussian, Poisson, both, or uniform; and [`level`], how much of it an image has.
//!
//! Each element's noise depends only on the seed, the index of the operator and the index of the
//! element, so that any number of ranks and threads adds the same noise. Normal numbers come from Box
//! and Muller's transform in f64; Poisson numbers from inversion for means below 10 and from
//! Hörmann's transformed rejection (PTRS, 1993) above, both exact up to f64 rounding.

mod level;

use std::ops::Range;

use ndarray::Axis;
use rayon::prelude::*;

pub use level::level;

use crate::array::View;
use crate::error::{Error, Result};
use crate::measurements::Measurements;
use crate::random::Draws;

/// The elements that one task treats; their noise does not depend on it.
const PIECE: usize = 1 << 12;

/// Means from which a rounded normal number takes the place of a Poisson one. The spread is 3·10⁻⁵ of
/// the mean there and the skewness as small: f32 measurements hardly show either.
const NORMAL_MEAN: f64 = (1_u64 << 30) as f64;

/// The source of a noise: the same source gives the same noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoiseSource {
    /// The seed of a whole acquisition.
    pub seed: u64,
    /// The index of the operator whose output gets the noise.
    pub operator: u32,
}

/// A kind of noise and its strength.
///
/// ```
/// use haloscope::noise::{Noise, NoiseSource};
///
/// let clean = ndarray::ArrayD::zeros(vec![1, 1, 64, 64]);
/// let mut measured = clean.clone();
/// Noise::gaussian(0.1)?.add(&mut measured, NoiseSource { seed: 7, operator: 0 })?;
/// let deviation = (measured.mapv(|v| v * v).mean().unwrap_or(0.0)).sqrt();
/// assert!((deviation - 0.1).abs() < 0.005);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise(Kind);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Gaussian { sigma: f64 },
    Poisson { gain: f64, sigma: f64 },
    Uniform { amplitude: f64 },
}

/// The standard deviation of the noise of a measurement, from high differences of neighbours along its last `axes` axes (1
/// or 2), to which smooth data contribute little and edges in few places: the median of their magnitudes, as for
/// normal noise that is independent from element to element. 0 where there is none, or too few elements.
///
/// ```
/// use haloscope::noise::{Noise, NoiseSource, estimate_deviation};
///
/// let mut measured = ndarray::ArrayD::from_shape_fn(vec![1, 1, 256, 256], |at| (0.1 * at[3] as f32).sin());
/// Noise::gaussian(0.1)?.add(&mut measured, NoiseSource { seed: 7, operator: 0 })?;
/// assert!((estimate_deviation(&measured, 1) - 0.1).abs() < 0.01);
/// assert!((estimate_deviation(&measured, 2) - 0.1).abs() < 0.01);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[must_use]
pub fn estimate_deviation(measurement: &View, axes: usize) -> f64 {
    /// Enough for three digits, and sorted in no time.
    const MOST: usize = 1 << 22;
    let shape = measurement.shape();
    let Some(&columns) = shape.last() else { return 0.0 };
    let rows = if axes >= 2 && shape.len() >= 2 { shape[shape.len() - 2] } else { 1 };
    let values = crate::array::slice(measurement);
    let planes = values.len() / (rows * columns).max(1);
    // The weights along a row, and the rows that are combined likewise; both sum to 0.
    let (weights, around): (&[f32], &[f32]) = if rows > 1 {
        (&[1.0, -2.0, 1.0], &[1.0, -2.0, 1.0])
    } else {
        (&[1.0, -4.0, 6.0, -4.0, 1.0], &[1.0])
    };
    let length = |weights: &[f32]| weights.iter().map(|w| f64::from(w * w)).sum::<f64>().sqrt();
    let (wide, high) = (weights.len(), around.len());
    if columns < wide || rows < high {
        return 0.0;
    }
    let lines = planes * (rows - high + 1);
    let every = (lines * (columns - wide + 1)).div_ceil(MOST);
    let mut differences: Vec<f32> = Vec::new();
    for line in (0..lines).step_by(every) {
        let (plane, row) = (line / (rows - high + 1), line % (rows - high + 1));
        for column in 0..=columns - wide {
            let mut sum = 0.0;
            for (i, a) in around.iter().enumerate() {
                let begin = (plane * rows + row + i) * columns + column;
                let along = values[begin..begin + wide].iter().zip(weights).map(|(v, w)| v * w);
                sum += a * along.sum::<f32>();
            }
            // Where nothing differs nothing was measured: beyond a mask, or where a detector is full.
            if sum != 0.0 && sum.is_finite() {
                differences.push(sum.abs());
            }
        }
    }
    if differences.is_empty() {
        return 0.0;
    }
    let middle = differences.len() / 2;
    let (_, median, _) = differences.select_nth_unstable_by(middle, f32::total_cmp);
    // Half of a normal distribution is within 0.6745 deviations.
    f64::from(*median) / (0.674_489_75 * length(weights) * length(around))
}

impl Noise {
    /// `y + σ n`, where `n` is normal.
    pub fn gaussian(sigma: f64) -> Result<Self> {
        let sigma = at_least_zero("the standard deviation σ of Gaussian noise", sigma)?;
        Ok(Self(Kind::Gaussian { sigma }))
    }

    /// `gain · Poisson(y / gain)`: its mean is `y`, its variance `gain · y`. `y` must not be negative.
    pub fn poisson(gain: f64) -> Result<Self> {
        Self::poisson_gaussian(gain, 0.0)
    }

    /// `gain · Poisson(y / gain) + σ n`: a photon counter with read-out noise.
    pub fn poisson_gaussian(gain: f64, sigma: f64) -> Result<Self> {
        if !(gain.is_finite() && gain > 0.0) {
            let reason = format!("{gain} was given; it must be finite and above 0");
            return Err(Error::argument("the gain of Poisson noise", reason));
        }
        let sigma = at_least_zero("the standard deviation σ of Poisson-Gaussian noise", sigma)?;
        Ok(Self(Kind::Poisson { gain, sigma }))
    }

    /// `y + u`, where `u` is uniform between `-amplitude` and `amplitude`.
    pub fn uniform(amplitude: f64) -> Result<Self> {
        let amplitude = at_least_zero("the amplitude of uniform noise", amplitude)?;
        Ok(Self(Kind::Uniform { amplitude }))
    }

    /// Adds noise to an operator's output; leaves it unchanged on an error.
    ///
    /// # Errors
    /// If the noise is Poisson and an element is negative or not finite.
    pub fn add(&self, measurement: &mut View, source: NoiseSource) -> Result<()> {
        if let Some(values) = measurement.as_slice_mut() {
            return self.add_to_range(values, 0, source);
        }
        let mut standard = measurement.as_standard_layout().into_owned();
        self.add(&mut standard, source)?;
        measurement.assign(&standard);
        Ok(())
    }

    /// Adds noise to the parts that are present, each as the output of its own operator.
    pub fn add_to_all(&self, measurements: &mut Measurements, seed: u64) -> Result<()> {
        for (index, part) in measurements.iter_mut() {
            let operator = u32::try_from(index).map_err(|_| {
                Error::argument(
                    "noise",
                    format!("operator {index} is beyond the last, {}", u32::MAX),
                )
            })?;
            self.add(part, NoiseSource { seed, operator })?;
        }
        Ok(())
    }

    /// Adds noise to a part of an operator's output, of which `whole` is the shape and `region` says where the part lies: the same
    /// noise as [`add`](Self::add) has there.
    ///
    /// # Errors
    /// If the noise is Poisson and an element is negative or not finite.
    pub fn add_to_part(
        &self,
        part: &mut View,
        (whole, region): (&[usize], &[Range<usize>]),
        source: NoiseSource,
    ) -> Result<()> {
        if part.len() == whole.iter().product::<usize>() {
            return self.add(part, source);
        }
        let Some(rows) = part.ndim().checked_sub(1) else { return Ok(()) };
        let starts: Vec<usize> = region.iter().map(|range| range.start).collect();
        let lanes = ndarray::indices(&part.shape()[..rows]);
        let firsts: Vec<u64> = lanes
            .into_iter()
            .map(|at| {
                let place = |axis: usize| starts[axis] + if axis < rows { at[axis] } else { 0 };
                (0..whole.len()).fold(0, |index, axis| index * whole[axis] + place(axis)) as u64
            })
            .collect();
        for (mut row, first) in part.lanes_mut(Axis(rows)).into_iter().zip(firsts) {
            let mut values = row.to_vec();
            self.add_to_range(&mut values, first, source)?;
            row.iter_mut().zip(values).for_each(|(to, value)| *to = value);
        }
        Ok(())
    }

    /// Adds noise to a range of an operator's output that begins at element `first`.
    ///
    /// # Errors
    /// If the noise is Poisson and an element is negative or not finite.
    pub(crate) fn add_to_range(
        &self,
        values: &mut [f32],
        first: u64,
        source: NoiseSource,
    ) -> Result<()> {
        self.check_means(values, first)?;
        values.par_chunks_mut(PIECE).enumerate().for_each(|(piece, values)| {
            let first = first.wrapping_add((piece * PIECE) as u64);
            for (i, value) in values.iter_mut().enumerate() {
                let element = first.wrapping_add(i as u64);
                let mut draws = Draws::new(source.seed, source.operator, element);
                *value = self.sample(f64::from(*value), &mut draws) as f32;
            }
        });
        Ok(())
    }

    fn check_means(&self, values: &[f32], first: u64) -> Result<()> {
        if !matches!(self.0, Kind::Poisson { .. }) {
            return Ok(());
        }
        let bad = values.par_iter().position_first(|value| !(value.is_finite() && *value >= 0.0));
        let Some(i) = bad else { return Ok(()) };
        let (element, value) = (first.wrapping_add(i as u64), values[i]);
        let reason =
            format!("element {element} is {value}; photon counts need finite values of at least 0");
        Err(Error::argument("Poisson noise", reason))
    }

    fn sample(&self, value: f64, draws: &mut Draws) -> f64 {
        match self.0 {
            Kind::Gaussian { sigma } => value + sigma * draws.normal(),
            Kind::Uniform { amplitude } => value + amplitude * (2.0 * draws.uniforms().0 - 1.0),
            Kind::Poisson { gain, sigma } => {
                let read_out = if sigma > 0.0 { sigma * draws.normal() } else { 0.0 };
                gain * poisson(value / gain, draws) + read_out
            }
        }
    }
}

fn at_least_zero(what: &'static str, value: f64) -> Result<f64> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(Error::argument(what, format!("{value} was given; it must be finite and at least 0")))
}

/// A Poisson number of this mean.
fn poisson(mean: f64, draws: &mut Draws) -> f64 {
    if mean < 10.0 {
        poisson_by_inversion(mean, draws.uniforms().0)
    } else if mean < NORMAL_MEAN {
        poisson_by_rejection(mean, draws)
    } else {
        (mean + mean.sqrt() * draws.normal()).round().max(0.0)
    }
}

/// The smallest count whose distribution function reaches `uniform`.
fn poisson_by_inversion(mean: f64, uniform: f64) -> f64 {
    let mut probability = (-mean).exp();
    let mut total = probability;
    let mut count = 0.0;
    // The rounded sum may stay below a `uniform` next to 1; the terms then no longer change it.
    while total < uniform && probability > f64::MIN_POSITIVE {
        count += 1.0;
        probability *= mean / count;
        total += probability;
    }
    count
}

/// PTRS: a hat over the transformed density, and a squeeze that accepts most numbers at once. The
/// constants are the paper's.
fn poisson_by_rejection(mean: f64, draws: &mut Draws) -> f64 {
    let b = 0.931 + 2.53 * mean.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let squeeze = 0.9277 - 3.6224 / (b - 2.0);
    loop {
        let (u, v) = draws.uniforms();
        let u = u - 0.5;
        let edge = 0.5 - u.abs();
        let count = ((2.0 * a / edge + b) * u + mean + 0.43).floor();
        if edge >= 0.07 && v <= squeeze {
            return count;
        }
        if count < 0.0 || (edge < 0.013 && v > edge) {
            continue;
        }
        let hat = (v * inverse_alpha / (a / (edge * edge) + b)).ln();
        if hat <= count * mean.ln() - mean - ln_factorial(count) {
            return count;
        }
    }
}

/// ln(n!): summed below 16, Stirling's series above, whose first omitted term is below 10⁻¹¹ there.
fn ln_factorial(n: f64) -> f64 {
    if n < 16.0 {
        return (2..=n as u32).map(|k| f64::from(k).ln()).sum();
    }
    let inverse = 1.0 / n;
    let square = inverse * inverse;
    let series =
        inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (n + 0.5) * n.ln() - n + 0.5 * std::f64::consts::TAU.ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;

    const SOURCE: NoiseSource = NoiseSource { seed: 11, operator: 3 };

    fn noisy(noise: Noise, value: f32, len: usize) -> Vec<f32> {
        let mut values = vec![value; len];
        noise.add_to_range(&mut values, 0, SOURCE).expect("noise");
        values
    }

    /// Mean, variance, skewness and excess kurtosis.
    fn moments(values: &[f32]) -> [f64; 4] {
        let average = |f: &dyn Fn(f64) -> f64| {
            values.iter().map(|&v| f(f64::from(v))).sum::<f64>() / values.len() as f64
        };
        let mean = average(&|v| v);
        let central = |power| average(&move |v: f64| (v - mean).powi(power));
        let variance = central(2);
        [mean, variance, central(3) / variance.powf(1.5), central(4) / variance.powi(2) - 3.0]
    }

    /// Within five standard errors; the seed is fixed, so this passes always or never.
    fn assert_moments(values: &[f32], expected: [f64; 4]) {
        let n = values.len() as f64;
        let found = moments(values);
        let [_, variance, _, kurtosis] = expected;
        let errors = [
            (variance / n).sqrt(),
            variance * ((2.0 + kurtosis) / n).sqrt(),
            (15.0 / n).sqrt() * (1.0 + kurtosis.max(0.0)),
            (96.0 / n).sqrt() * (1.0 + 10.0 * kurtosis.max(0.0)),
        ];
        for i in 0..4 {
            assert!(
                (found[i] - expected[i]).abs() <= 5.0 * errors[i],
                "moment {i}: {} where {} is expected, ± {}",
                found[i],
                expected[i],
                errors[i]
            );
        }
    }

    #[test]
    fn gaussian_noise_has_the_moments_of_the_normal_distribution() {
        let values = noisy(Noise::gaussian(0.5).expect("valid"), 2.0, 200_000);
        assert_moments(&values, [2.0, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn uniform_noise_has_the_moments_of_the_uniform_distribution() {
        let values = noisy(Noise::uniform(0.3).expect("valid"), 1.0, 200_000);
        assert_moments(&values, [1.0, 0.09 / 3.0, 0.0, -1.2]);
        assert!(values.iter().all(|v| (v - 1.0).abs() <= 0.300_001));
    }

    #[test]
    fn poisson_noise_has_the_moments_of_the_poisson_distribution_for_all_means() {
        for mean in [0.05_f32, 0.7, 3.0, 9.9, 10.1, 42.0, 1000.0] {
            let values = noisy(Noise::poisson(1.0).expect("valid"), mean, 100_000);
            let mean = f64::from(mean);
            assert_moments(&values, [mean, mean, mean.powf(-0.5), 1.0 / mean]);
            assert!(values.iter().all(|v| v.fract() == 0.0));
        }
        assert!(noisy(Noise::poisson(1.0).expect("valid"), 0.0, 100).iter().all(|v| *v == 0.0));
    }

    #[test]
    fn poisson_counts_have_the_probabilities_of_the_poisson_distribution_around_the_switch() {
        for mean in [8.0_f64, 12.0, 30.0] {
            let values = noisy(Noise::poisson(1.0).expect("valid"), mean as f32, 200_000);
            for count in [0.5 * mean, mean, 1.5 * mean].map(f64::floor) {
                let probability = (count * mean.ln() - mean - ln_factorial(count)).exp();
                let n = values.len() as f64;
                let share = values.iter().filter(|v| f64::from(**v) == count).count() as f64 / n;
                let error = (probability * (1.0 - probability) / n).sqrt();
                assert!((share - probability).abs() < 5.0 * error, "P({count}; {mean}) = {share}");
            }
        }
    }

    #[test]
    fn very_large_means_keep_mean_and_variance() {
        let mean = 4e9;
        let mut counts: Vec<f32> = Vec::new();
        for element in 0..20_000 {
            counts.push((poisson(mean, &mut Draws::new(5, 0, element)) - mean) as f32);
        }
        assert_moments(&counts, [0.0, mean, 0.0, 0.0]);
    }

    #[test]
    fn a_gain_and_read_out_noise_give_the_variance_of_their_sum() {
        let values = noisy(Noise::poisson_gaussian(0.1, 0.2).expect("valid"), 3.0, 200_000);
        let [mean, variance, ..] = moments(&values);
        assert!((mean - 3.0).abs() < 0.006, "{mean}");
        assert!((variance - (0.3 + 0.04)).abs() < 0.006, "{variance}");
    }

    #[test]
    fn noise_has_the_same_bits_on_any_number_of_threads_and_for_any_part() {
        let whole = noisy(Noise::poisson_gaussian(0.01, 0.1).expect("valid"), 0.5, 10_001);
        for threads in 1..4 {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let noise = Noise::poisson_gaussian(0.01, 0.1).expect("valid");
            assert_eq!(pool.install(|| noisy(noise, 0.5, 10_001)), whole);
            let mut part = vec![0.5; 777];
            noise.add_to_range(&mut part, 5000, SOURCE).expect("noise");
            assert_eq!(part, whole[5000..5777]);
        }
    }

    #[test]
    fn the_parts_of_a_rank_get_the_noise_that_they_have_in_the_whole() {
        let noise = Noise::gaussian(1.0).expect("valid");
        let part = || Array::zeros(vec![1, 1, 30]);
        let mut all = Measurements::new(vec![part(), part(), part()]);
        noise.add_to_all(&mut all, 9).expect("noise");
        let mut some = Measurements::partial(3, [(2, part())]).expect("valid");
        noise.add_to_all(&mut some, 9).expect("noise");
        assert_eq!(all.get(2), some.get(2));
        assert_ne!(all.get(1), all.get(2));
    }

    #[test]
    fn memory_order_does_not_matter() {
        let noise = Noise::gaussian(1.0).expect("valid");
        let mut turned = Array::zeros(vec![5, 7]).reversed_axes();
        let mut standard = Array::zeros(vec![7, 5]);
        noise.add(&mut turned, SOURCE).expect("noise");
        noise.add(&mut standard, SOURCE).expect("noise");
        assert_eq!(turned, standard);
    }

    #[test]
    fn strengths_and_values_that_have_no_meaning_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Noise::gaussian(bad).is_err());
            assert!(Noise::uniform(bad).is_err());
            assert!(Noise::poisson(bad).is_err());
            assert!(Noise::poisson_gaussian(1.0, bad).is_err());
        }
        assert!(Noise::poisson(0.0).is_err());
        let mut values = vec![1.0, 2.0, -0.5];
        let error = Noise::poisson(1.0).expect("valid").add_to_range(&mut values, 4, SOURCE);
        assert!(error.expect_err("refused").to_string().contains("element 6 is -0.5"));
        assert_eq!(values, [1.0, 2.0, -0.5]);
    }

    #[test]
    fn the_logarithm_of_a_factorial_joins_its_two_formulas() {
        let sum = |n: u32| (2..=n).map(|k| f64::from(k).ln()).sum::<f64>();
        for n in [0, 1, 2, 15, 16, 17, 100] {
            assert!((ln_factorial(f64::from(n)) - sum(n)).abs() < 1e-10 * (1.0 + sum(n)), "{n}");
        }
    }
}
