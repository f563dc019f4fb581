//! The likelihood of photon counts.
//!
//! deepinv 0.5.0 has the same value. Its gradient is `gain²` times the derivative of that value, and
//! its prox does not minimise what a prox minimises; those given here do, and agree with it where it
//! is right (the gradient for a gain of 1).

use super::{Fidelity, Pair, check_gamma, check_positive, whole_value};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::image::{Layout, Sum};

/// `d(u, y) = Σ vᵢ − zᵢ − zᵢ ln vᵢ`, where `v = u / gain + background` are the expected and `z` the
/// measured counts.
///
/// `z = y / gain` when the data are multiplied by the gain, as [`Noise::poisson`] gives them, and
/// `z = y` when they are counts.
///
/// Where nothing was measured, `d = v` is a line, which goes on below 0 as far as rounding may take `u`: 16 units in the last
/// place of its largest value. A blur by FFT of an image that is 0 in places gives such values, and they are no reason to call
/// the image impossible.
///
/// ```
/// use haloscope::{Array, fidelity::{Fidelity, Poisson}};
///
/// let y = Array::from_elem(vec![1, 1, 2, 2], 3.0);
/// let poisson = Poisson::new(0.1, 0.0)?;
/// // The gradient vanishes where the expected counts are the measured ones.
/// assert!(poisson.gradient(&y, &y)?.iter().all(|slope| slope.abs() < 1e-5));
/// # Ok::<(), haloscope::Error>(())
/// ```
///
/// [`Noise::poisson`]: crate::noise::Noise::poisson
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Poisson {
    gain: f64,
    background: f64,
    counts: bool,
}

impl Poisson {
    /// For data that are `gain` times counts, with a background of so many counts on average.
    pub fn new(gain: f64, background: f64) -> Result<Self> {
        check_positive("poisson", "the gain", gain)?;
        if !(background.is_finite() && background >= 0.0) {
            let reason =
                format!("the background is {background}; it must be finite and at least 0");
            return Err(Error::argument("poisson", reason));
        }
        Ok(Self { gain, background, counts: false })
    }

    /// The data are the counts themselves, not multiplied by the gain.
    #[must_use]
    pub fn of_counts(self) -> Self {
        Self { counts: true, ..self }
    }

    fn expected(&self, u: f64) -> f64 {
        u / self.gain + self.background
    }

    fn measured(&self, y: f64) -> f64 {
        if self.counts { y } else { y / self.gain }
    }

    /// The expected counts that rounding may make of none.
    fn least(&self, layout: &Layout, pair: &Pair<'_>) -> Result<f64> {
        Ok(-f64::from(16.0 * f32::EPSILON) * pair.largest(layout)? / self.gain)
    }

    fn pair<'a>(&self, layout: &Layout, u: &'a View, y: &'a View) -> Result<Pair<'a>> {
        let pair = Pair::new(self.name(), u, y)?;
        let negative = |_, y: f32| !(y.is_finite() && y >= 0.0);
        let outcome = match pair.find(negative) {
            None => Ok(()),
            Some((i, _, y)) => Err(Error::argument(
                self.name(),
                format!("element {i} of the data is {y}; counts are finite and at least 0"),
            )),
        };
        layout.agree(outcome)?;
        Ok(pair)
    }
}

impl Fidelity for Poisson {
    fn name(&self) -> &'static str {
        "poisson"
    }

    /// Infinite where counts are expected to be negative by more than rounding, or not to be above zero where some were
    /// measured.
    fn value(&self, u: &View, y: &View) -> Result<f64> {
        Ok(whole_value(self.value_share(&Layout::Replicated, u, y)?))
    }

    fn value_share(&self, layout: &Layout, u: &View, y: &View) -> Result<(f64, Sum)> {
        let pair = self.pair(layout, u, y)?;
        let least = self.least(layout, &pair)?;
        let sum = pair.sum(|u, y| {
            let (v, z) = (self.expected(u), self.measured(y));
            if v < least || (v <= 0.0 && z > 0.0) {
                f64::INFINITY
            } else if z == 0.0 {
                v
            } else {
                v - z - z * v.ln()
            }
        });
        Ok((1.0, sum))
    }

    fn gradient(&self, u: &View, y: &View) -> Result<Array> {
        self.gradient_share(&Layout::Replicated, u, y)
    }

    fn gradient_share(&self, layout: &Layout, u: &View, y: &View) -> Result<Array> {
        let pair = self.pair(layout, u, y)?;
        let least = self.least(layout, &pair)?;
        let outside = |u: f32, y: f32| {
            let v = self.expected(f64::from(u));
            !(v > 0.0 || (v >= least && y == 0.0))
        };
        let outcome = match pair.find(outside) {
            None => Ok(()),
            Some((i, u, _)) => {
                let reason = format!(
                    "element {i} of the measurement is {u}, where {} counts are expected and there is no \
                     gradient; keep the image above 0, or give a larger background",
                    self.expected(f64::from(u))
                );
                Err(Error::Numeric { what: self.name().into(), reason })
            }
        };
        layout.agree(outcome)?;
        Ok(pair.map(|u, y| {
            let (v, z) = (self.expected(f64::from(u)), self.measured(f64::from(y)));
            let ratio = if z == 0.0 { 0.0 } else { z / v };
            ((1.0 - ratio) / self.gain) as f32
        }))
    }

    /// With `u = g (v − b)`, the minimiser has `g² v² + B v − γ z = 0`, `B = γ − g u − g² b`, `v ≥ 0`.
    fn prox(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        self.prox_share(&Layout::Replicated, u, y, gamma)
    }

    fn prox_share(&self, layout: &Layout, u: &View, y: &View, gamma: f64) -> Result<Array> {
        check_gamma(self.name(), gamma)?;
        let (gain, background) = (self.gain, self.background);
        let square = gain * gain;
        Ok(self.pair(layout, u, y)?.map(|u, y| {
            let z = self.measured(f64::from(y));
            let middle = gamma - gain * f64::from(u) - square * background;
            let root = middle.hypot(2.0 * gain * (gamma * z).sqrt());
            // The form that does not subtract numbers of about one size.
            let v = if middle <= 0.0 {
                (root - middle) / (2.0 * square)
            } else {
                2.0 * gamma * z / (root + middle)
            };
            (gain * (v - background)) as f32
        }))
    }

    /// Where no counts are expected but some were measured, the ratio is that of the least number above 0 that is expected.
    fn count_ratio(&self, u: &View, y: &View) -> Option<Result<Array>> {
        let pair = match self.pair(&Layout::Replicated, u, y) {
            Ok(pair) => pair,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(pair.map(|u, y| {
            let (v, z) = (self.expected(f64::from(u)), self.measured(f64::from(y)));
            if z == 0.0 { 0.0 } else { (z / v.max(f64::from(f32::MIN_POSITIVE))) as f32 }
        })))
    }

    /// `d″ = z / (g v)²`, which is `1 / (g² z)` where `v = z`; without a count there is no curvature at all, so one is the
    /// least that counts.
    fn curvature_at_best(&self, y: &View) -> Option<f64> {
        let largest = y.iter().fold(0.0_f32, |largest, y| largest.max(*y));
        let counts = self.measured(f64::from(largest)).max(1.0);
        Some(1.0 / (self.gain * self.gain * counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f32) -> Array {
        Array::from_elem(vec![1, 1], value)
    }

    #[test]
    fn outside_the_positive_counts_the_value_is_infinite_and_there_is_no_gradient() {
        let poisson = Poisson::new(1.0, 0.0).expect("valid");
        assert_eq!(poisson.value(&one(0.0), &one(1.0)), Ok(f64::INFINITY));
        assert_eq!(poisson.value(&one(-1.0), &one(0.0)), Ok(f64::INFINITY));
        assert_eq!(poisson.value(&one(0.0), &one(0.0)), Ok(0.0));
        assert_eq!(poisson.gradient(&one(0.0), &one(0.0)), Ok(one(1.0)));
        let error = poisson.gradient(&one(0.0), &one(1.0)).expect_err("outside");
        assert!(error.to_string().contains("background"), "{error}");
        assert!(poisson.gradient(&one(f32::NAN), &one(1.0)).is_err());
    }

    /// The value and the gradient are those of the line on both sides of 0.
    #[test]
    fn what_rounding_leaves_of_zero_counts_is_inside() {
        let poisson = Poisson::new(0.5, 0.0).expect("valid");
        let array =
            |values: [f32; 3]| Array::from_shape_vec(vec![1, 3], values.to_vec()).expect("3");
        let (u, y) = (array([1000.0, -1e-3, 0.0]), array([1000.0, 0.0, 0.0]));
        let value = |u: &View| poisson.value(u, &y).expect("counts");
        let line = value(&u) - value(&array([1000.0, 0.0, 0.0]));
        assert!((line + 2e-3).abs() < 1e-9, "{line}");
        assert_eq!(poisson.gradient(&u, &y), Ok(array([0.0, 2.0, 2.0])));
        // More than rounding, or where a count was measured.
        for u in [array([1000.0, -3e-3, 0.0]), array([-1e-9, 0.0, 0.0])] {
            assert_eq!(value(&u), f64::INFINITY);
            assert!(poisson.gradient(&u, &y).is_err());
        }
        // Something infinite does not make all else rounding.
        assert!(poisson.gradient(&array([f32::INFINITY, -1.0, 0.0]), &y).is_err());
    }

    #[test]
    fn negative_data_and_parameters_without_meaning_are_refused() {
        assert!(Poisson::new(0.0, 0.0).is_err());
        assert!(Poisson::new(1.0, -1.0).is_err());
        let error = Poisson::new(1.0, 0.0).expect("valid").value(&one(1.0), &one(-2.0));
        assert!(error.expect_err("refused").to_string().contains("element 0 of the data is -2"));
    }
}
