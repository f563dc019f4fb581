//! Measurements within a given distance of the data, for bounded noise.

use rayon::prelude::*;

use super::{Fidelity, Pair, check_gamma, whole_value};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::image::{Layout, Sum, sum_of};

/// 0 where `‖u − y‖ ≤ radius`, for each image of the batch, and infinite elsewhere.
///
/// Its prox, for any step, is the projection onto the ball around the data; it has no gradient. A
/// radius of 0 asks for `u = y`.
///
/// ```
/// use haloscope::{Array, fidelity::{Ball, Fidelity}};
///
/// let (u, y) = (Array::ones(vec![1, 1, 2, 2]), Array::zeros(vec![1, 1, 2, 2]));
/// let ball = Ball::new(1.0)?;
/// assert_eq!(ball.value(&u, &y)?, f64::INFINITY);
/// assert_eq!(ball.prox(&u, &y, 1.0)?, &u * 0.5);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ball {
    radius: f64,
}

/// What rounding to f32 may add to the distance of a point that was projected onto the ball.
const SLACK: f64 = 1e-6;

impl Ball {
    /// A ball of this radius around the data.
    pub fn new(radius: f64) -> Result<Self> {
        if radius.is_finite() && radius >= 0.0 {
            return Ok(Self { radius });
        }
        let reason = format!("the radius is {radius}; it must be finite and at least 0");
        Err(Error::argument("ball", reason))
    }

    /// The distances from the data of the batch's images.
    fn distances(layout: &Layout, pair: &Pair) -> Result<Vec<f64>> {
        let len = image_len(pair);
        // A rank without a part has a share in the sums of all images, too.
        let part = |values: &'_ [f32], image: usize| {
            let begin = (image * len).min(values.len());
            begin..(begin + len).min(values.len())
        };
        let square = |[u, y]: [f32; 2]| (f64::from(u) - f64::from(y)).powi(2);
        let sums = (0..pair.shape.first().copied().unwrap_or(1)).map(|image| {
            let at = part(&pair.u, image);
            sum_of([&pair.u[at.clone()], &pair.y[at]], pair.row(), square)
        });
        let squares = layout.totals_of(sums.collect())?;
        Ok(squares.into_iter().map(f64::sqrt).collect())
    }
}

impl Fidelity for Ball {
    fn name(&self) -> &'static str {
        "ball"
    }

    fn value(&self, u: &View, y: &View) -> Result<f64> {
        Ok(whole_value(self.value_share(&Layout::Replicated, u, y)?))
    }

    fn value_share(&self, layout: &Layout, u: &View, y: &View) -> Result<(f64, Sum)> {
        let pair = Pair::new(self.name(), u, y)?;
        let outside = |&distance: &f64| {
            let is_inside = distance <= self.radius * (1.0 + SLACK);
            !is_inside
        };
        let mut sum = Sum::default();
        if Self::distances(layout, &pair)?.iter().any(outside) {
            sum.add(f64::INFINITY);
        }
        Ok((1.0, sum))
    }

    fn prox(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        self.prox_share(&Layout::Replicated, u, y, gamma)
    }

    fn prox_share(&self, layout: &Layout, u: &View, y: &View, gamma: f64) -> Result<Array> {
        check_gamma(self.name(), gamma)?;
        let pair = Pair::new(self.name(), u, y)?;
        let distances = Self::distances(layout, &pair)?;
        if let Some(i) = distances.iter().position(|distance| !distance.is_finite()) {
            let reason = format!("image {i} of the batch or its data are not finite");
            return Err(Error::Numeric { what: self.name().into(), reason });
        }
        let mut result = u.as_standard_layout().into_owned();
        let len = image_len(&pair);
        let Some(values) = result.as_slice_mut() else { return Ok(result) };
        for ((values, y), distance) in values.chunks_mut(len).zip(pair.y.chunks(len)).zip(distances)
        {
            if distance > self.radius {
                let factor = (self.radius / distance) as f32;
                let pull = |(value, y): (&mut f32, &f32)| *value = y + factor * (*value - y);
                values.par_iter_mut().with_min_len(1 << 12).zip(y).for_each(pull);
            }
        }
        Ok(result)
    }
}

/// The elements of one image; chunks of nothing would not end.
fn image_len(pair: &Pair) -> usize {
    pair.shape.iter().skip(1).product::<usize>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_of_a_batch_has_its_own_ball() {
        let y = Array::zeros(vec![2, 1, 2]);
        let u = Array::from_shape_vec(vec![2, 1, 2], vec![0.3, 0.4, 3.0, 4.0]).expect("shape");
        let ball = Ball::new(1.0).expect("valid");
        let projected = ball.prox(&u, &y, 1.0).expect("prox");
        assert_eq!(projected.as_slice(), Some(&[0.3, 0.4, 0.6, 0.8][..]));
        assert_eq!(ball.value(&projected, &y), Ok(0.0));
    }

    #[test]
    fn there_is_no_gradient_and_no_negative_radius() {
        let y = Array::zeros(vec![1, 2]);
        let error = Ball::new(1.0).expect("valid").gradient(&y, &y).expect_err("no gradient");
        assert!(error.to_string().contains("use its prox"), "{error}");
        assert!(Ball::new(-1.0).is_err());
        assert!(Ball::new(f64::NAN).is_err());
    }

    #[test]
    fn a_ball_of_radius_zero_gives_the_data_and_infinite_input_is_an_error() {
        let y = Array::from_elem(vec![1, 2], 3.0);
        let ball = Ball::new(0.0).expect("valid");
        assert_eq!(ball.prox(&Array::zeros(vec![1, 2]), &y, 1.0), Ok(y.clone()));
        assert!(ball.prox(&Array::from_elem(vec![1, 2], f32::INFINITY), &y, 1.0).is_err());
    }
}
