//! Least absolute deviations: the likelihood of Laplacian noise, which is robust to outliers.

use super::{Fidelity, Pair, check_gamma, whole_value};
use crate::array::{Array, View};
use crate::error::Result;
use crate::image::{Layout, Sum};

/// `d(u, y) = Σ |uᵢ − yᵢ|`.
///
/// Where `u = y` it has no gradient; `gradient` gives 0 there, which is a subgradient.
///
/// ```
/// use haloscope::{Array, fidelity::{Fidelity, L1}};
///
/// let (u, y) = (Array::ones(vec![1, 1, 2, 2]), Array::zeros(vec![1, 1, 2, 2]));
/// assert_eq!(L1.value(&u, &y)?, 4.0);
/// assert_eq!(L1.prox(&u, &y, 0.25)?, &u * 0.75);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L1;

impl Fidelity for L1 {
    fn name(&self) -> &'static str {
        "l1"
    }

    fn value(&self, u: &View, y: &View) -> Result<f64> {
        Ok(whole_value(self.value_share(&Layout::Replicated, u, y)?))
    }

    fn value_share(&self, _: &Layout, u: &View, y: &View) -> Result<(f64, Sum)> {
        Ok((1.0, Pair::new(self.name(), u, y)?.sum(|u, y| (u - y).abs())))
    }

    fn gradient_share(&self, _: &Layout, u: &View, y: &View) -> Result<Array> {
        self.gradient(u, y)
    }

    fn prox_share(&self, _: &Layout, u: &View, y: &View, gamma: f64) -> Result<Array> {
        self.prox(u, y, gamma)
    }

    fn gradient(&self, u: &View, y: &View) -> Result<Array> {
        let sign = |difference: f32| if difference == 0.0 { 0.0 } else { difference.signum() };
        Ok(Pair::new(self.name(), u, y)?.map(|u, y| sign(u - y)))
    }

    fn prox(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        check_gamma(self.name(), gamma)?;
        let gamma = gamma as f32;
        // Moving u by at most γ towards y keeps the bits of y where it is reached, and NaNs as NaNs.
        Ok(Pair::new(self.name(), u, y)?.map(|u, y| {
            let difference = u - y;
            if difference > gamma {
                u - gamma
            } else if difference < -gamma {
                u + gamma
            } else if difference.is_nan() {
                difference
            } else {
                y
            }
        }))
    }
}
