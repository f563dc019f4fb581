//! The distance between amplitudes where intensities are measured, as in phase retrieval.

use super::{Fidelity, Pair, check_gamma, whole_value};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::image::{Layout, Sum};

/// `d(u, y) = Σ (√uᵢ − √yᵢ)²`, for intensities of at least 0.
///
/// Where `u = 0` and `y > 0` the slope is infinite; like deepinv's, `gradient` divides by `u + 10⁻¹²`.
///
/// ```
/// use haloscope::{Array, fidelity::{Amplitude, Fidelity}};
///
/// let (u, y) = (Array::from_elem(vec![1, 4], 9.0), Array::from_elem(vec![1, 4], 4.0));
/// assert_eq!(Amplitude.value(&u, &y)?, 4.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amplitude;

/// Keeps the slope finite at an intensity of 0.
const FLOOR: f64 = 1e-12;

impl Amplitude {
    fn pair<'a>(self, layout: &Layout, u: &'a View, y: &'a View) -> Result<Pair<'a>> {
        let pair = Pair::new(self.name(), u, y)?;
        let outcome = match pair.find(|_, y| !(y.is_finite() && y >= 0.0)) {
            None => Ok(()),
            Some((i, _, y)) => Err(Error::argument(
                self.name(),
                format!("element {i} of the data is {y}; intensities are finite and at least 0"),
            )),
        };
        layout.agree(outcome)?;
        Ok(pair)
    }
}

impl Fidelity for Amplitude {
    fn name(&self) -> &'static str {
        "amplitude"
    }

    /// Infinite where an intensity is negative.
    fn value(&self, u: &View, y: &View) -> Result<f64> {
        Ok(whole_value(self.value_share(&Layout::Replicated, u, y)?))
    }

    fn value_share(&self, layout: &Layout, u: &View, y: &View) -> Result<(f64, Sum)> {
        let term =
            |u: f64, y: f64| if u < 0.0 { f64::INFINITY } else { (u.sqrt() - y.sqrt()).powi(2) };
        Ok((1.0, self.pair(layout, u, y)?.sum(term)))
    }

    fn gradient(&self, u: &View, y: &View) -> Result<Array> {
        self.gradient_share(&Layout::Replicated, u, y)
    }

    fn gradient_share(&self, layout: &Layout, u: &View, y: &View) -> Result<Array> {
        let pair = self.pair(layout, u, y)?;
        let outcome = match pair.find(|u, _| u.is_nan() || u < 0.0) {
            None => Ok(()),
            Some((i, u, _)) => {
                let reason =
                    format!("element {i} of the measurement is {u}; intensities are at least 0");
                Err(Error::Numeric { what: self.name().into(), reason })
            }
        };
        layout.agree(outcome)?;
        Ok(pair.map(|u, y| (1.0 - (f64::from(y) / (f64::from(u) + FLOOR)).sqrt()) as f32))
    }

    /// The amplitude `s` of the minimiser has `s³ + (γ − u) s − γ √y = 0`, `s ≥ 0`.
    fn prox(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        self.prox_share(&Layout::Replicated, u, y, gamma)
    }

    fn prox_share(&self, layout: &Layout, u: &View, y: &View, gamma: f64) -> Result<Array> {
        check_gamma(self.name(), gamma)?;
        let pair = self.pair(layout, u, y)?;
        let outcome = match pair.find(|u, _| !u.is_finite()) {
            None => Ok(()),
            Some((i, u, _)) => {
                let reason = format!("element {i} of the measurement is {u}; it must be finite");
                Err(Error::Numeric { what: self.name().into(), reason })
            }
        };
        layout.agree(outcome)?;
        Ok(pair.map(|u, y| {
            let root = largest_root(gamma - f64::from(u), gamma * f64::from(y).sqrt());
            (root * root) as f32
        }))
    }
}

/// The largest `s ≥ 0` with `s³ + p s = q`, for `q ≥ 0`.
///
/// Newton's method from a point to the right of the root: the cubic is convex there, so the steps go
/// left and never past it. They end when rounding stops them.
fn largest_root(p: f64, q: f64) -> f64 {
    let mut s = (-p).max(0.0).sqrt() + q.cbrt();
    for _ in 0..100 {
        let slope = 3.0 * s * s + p;
        let next = s - (s * (s * s + p) - q) / slope;
        if slope <= 0.0 || !(next >= 0.0 && next < s) {
            break;
        }
        s = next;
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_solve_the_cubic_for_all_signs_and_sizes() {
        for p in [-1e6, -3.0, -1e-9, 0.0, 1e-9, 2.0, 1e6] {
            for q in [0.0, 1e-9, 1.0, 1e6] {
                let s = largest_root(p, q);
                let scale = s.powi(3) + (p * s).abs() + q;
                assert!((s.powi(3) + p * s - q).abs() <= 1e-12 * scale, "p = {p}, q = {q}: {s}");
                assert!(s >= (-p).max(0.0).sqrt() * (1.0 - 1e-12), "p = {p}, q = {q}: {s}");
            }
        }
    }

    #[test]
    fn negative_intensities_are_infinitely_far_or_refused() {
        let (minus, one) = (Array::from_elem(vec![1, 1], -1.0), Array::ones(vec![1, 1]));
        assert_eq!(Amplitude.value(&minus, &one), Ok(f64::INFINITY));
        assert!(Amplitude.gradient(&minus, &one).is_err());
        assert!(Amplitude.value(&one, &minus).is_err());
        assert!(Amplitude.prox(&minus, &one, 1.0).is_ok());
    }
}
