//! Least squares: the likelihood of Gaussian noise.

use super::{Fidelity, Pair, check_gamma, check_positive, whole_value};
use crate::array::{Array, View};
use crate::error::Result;
use crate::image::{Layout, Sum};

/// `d(u, y) = ‖u − y‖² / (2σ²)`.
///
/// ```
/// use haloscope::{Array, fidelity::{Fidelity, L2}};
///
/// let (u, y) = (Array::ones(vec![1, 1, 2, 2]), Array::zeros(vec![1, 1, 2, 2]));
/// assert_eq!(L2::new(0.5)?.value(&u, &y)?, 8.0);
/// assert_eq!(L2::default().gradient(&u, &y)?, u);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct L2 {
    weight: f64,
}

impl L2 {
    /// For noise of standard deviation `sigma`.
    pub fn new(sigma: f64) -> Result<Self> {
        check_positive("l2", "σ", sigma)?;
        let weight = sigma.powi(-2);
        check_positive("l2", "1/σ²", weight)?;
        Ok(Self { weight })
    }
}

impl Default for L2 {
    /// `½ ‖u − y‖²`.
    fn default() -> Self {
        Self { weight: 1.0 }
    }
}

impl Fidelity for L2 {
    fn name(&self) -> &'static str {
        "l2"
    }

    fn value(&self, u: &View, y: &View) -> Result<f64> {
        Ok(whole_value(self.value_share(&Layout::Replicated, u, y)?))
    }

    fn value_share(&self, _: &Layout, u: &View, y: &View) -> Result<(f64, Sum)> {
        let squares = Pair::new(self.name(), u, y)?.sum(|u, y| (u - y) * (u - y));
        Ok((0.5 * self.weight, squares))
    }

    fn gradient_share(&self, _: &Layout, u: &View, y: &View) -> Result<Array> {
        self.gradient(u, y)
    }

    fn prox_share(&self, _: &Layout, u: &View, y: &View, gamma: f64) -> Result<Array> {
        self.prox(u, y, gamma)
    }

    fn gradient(&self, u: &View, y: &View) -> Result<Array> {
        let weight = self.weight as f32;
        Ok(Pair::new(self.name(), u, y)?.map(|u, y| (u - y) * weight))
    }

    fn prox(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        check_gamma(self.name(), gamma)?;
        // (u + γw y) / (1 + γw) = u + t (y − u) with t = γw / (1 + γw), which is exact at u = y.
        let step = gamma * self.weight;
        let towards = if step.is_finite() { step / (1.0 + step) } else { 1.0 } as f32;
        Ok(Pair::new(self.name(), u, y)?.map(|u, y| u + towards * (y - u)))
    }

    fn quadratic_weight(&self) -> Option<f64> {
        Some(self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigmas_that_have_no_weight_are_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-200] {
            assert!(L2::new(bad).is_err(), "{bad}");
        }
    }
}
