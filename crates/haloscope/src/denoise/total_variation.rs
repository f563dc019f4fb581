//! Total variation: images whose gradients are sparse.
//!
//! The minimiser of `½ ‖x − y‖² + λ TV(x)` by projected gradients on its dual with Nesterov's momentum
//! (Beck and Teboulle's fast gradient projection), in any number of dimensions. TV is isotropic: the sum over
//! pixels of the length of the gradient of all channels together.

use super::differences::{gradient, lengths};
use super::slab::{Alone, Slab};
use super::{Denoiser, NoiseLevel, check_finite};
use crate::array::{Array, View, row_of, slice};
use crate::error::{Error, Result};
use crate::image::sum_of;

/// The denoiser whose prior is total variation; the noise level is the weight `λ` of TV.
///
/// ```
/// use haloscope::denoise::{Denoiser, TotalVariation};
///
/// let flat = ndarray::ArrayD::from_elem(vec![1, 1, 8, 8], 0.5);
/// let denoised = TotalVariation::default().denoise(&flat, &0.1.into())?;
/// assert!(denoised.iter().all(|value| (value - 0.5).abs() < 1e-6));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TotalVariation {
    /// The maximum number of iterations.
    pub iterations: usize,
    /// Stop when an iteration changes the image by less than this, relative to its norm.
    pub tolerance: f64,
}

impl Default for TotalVariation {
    fn default() -> Self {
        Self { iterations: 200, tolerance: 1e-5 }
    }
}

impl TotalVariation {
    /// `TV(x)`, summed over the batch.
    #[must_use]
    pub fn value(image: &View) -> f64 {
        let rise = gradient(&slice(image), image.shape());
        let lengths = lengths(&rise, image.shape());
        sum_of([&lengths], row_of(image), |[length]| f64::from(length)).value()
    }

    /// The images without their noise, each by `minimise(image, shape, weight)`; the shape has a batch of 1.
    pub(crate) fn denoise_each(
        image: &View,
        level: &NoiseLevel,
        minimise: impl Fn(&[f32], &[usize], f32) -> Result<Vec<f32>>,
    ) -> Result<Array> {
        level.check(image.shape())?;
        check_finite("total variation", image)?;
        if image.ndim() < 3 {
            return Err(Error::Shape {
                what: "the image of total variation".into(),
                expected: "(batch, channel, spatial…) is expected".into(),
                found: image.shape().to_vec(),
            });
        }
        let values = slice(image);
        let mut shape = image.shape().to_vec();
        shape[0] = 1;
        let mut result = Vec::new();
        for (index, values) in values.chunks(shape.iter().product::<usize>().max(1)).enumerate() {
            let weight = match level {
                NoiseLevel::Uniform(level) => *level,
                NoiseLevel::PerImage(levels) => levels[index],
                NoiseLevel::Map(_) => {
                    return Err(Error::argument(
                        "total variation",
                        "a map of levels was given; a number, or one for each image, is possible",
                    ));
                }
            };
            let next =
                if weight == 0.0 { values.to_vec() } else { minimise(values, &shape, weight)? };
            if index == 0 {
                result = next;
            } else {
                result.extend(next);
            }
        }
        Ok(Array::from_shape_vec(image.raw_dim(), result).expect("as many as the image has"))
    }
}

impl Denoiser for TotalVariation {
    fn name(&self) -> &'static str {
        "total variation"
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        Self::denoise_each(image, level, |values, shape, weight| {
            let slab = Slab::whole(values, shape, weight);
            let slab = self.minimise(Some(slab), &mut Alone)?;
            Ok(slab.map(Slab::into_result).unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(shape: &[usize]) -> Array {
        let mut random = fastrand::Rng::with_seed(5);
        Array::from_shape_simple_fn(shape, || random.f32())
    }

    /// The prox is the only point where the value cannot be lowered in any direction.
    #[test]
    fn nothing_near_the_result_is_better() {
        let exact = TotalVariation { iterations: 3000, tolerance: 0.0 };
        for shape in [&[1, 1, 30][..], &[1, 3, 9, 7], &[1, 1, 5, 4, 6]] {
            let noisy = image(shape);
            let weight = 0.15;
            let value = |x: &View| {
                let distance =
                    x.iter().zip(&noisy).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>();
                distance / 2.0 + f64::from(weight) * TotalVariation::value(x)
            };
            let best = exact.denoise(&noisy, &weight.into()).expect("denoised");
            let least = value(&best);
            let mut random = fastrand::Rng::with_seed(1);
            for size in [1e-1, 1e-2, 1e-3] {
                for _ in 0..20 {
                    let other = best.mapv(|x| x + size * (random.f32() - 0.5));
                    assert!(value(&other) >= least - 1e-6, "{shape:?}, {size}");
                }
            }
            assert!(value(&noisy) > least && value(&best.mapv(|_| 0.5)) > least);
        }
    }

    #[test]
    fn one_dimension_agrees_with_the_known_answer_for_two_pixels() {
        // ½(a−y₀)² + ½(b−y₁)² + λ|b−a|: both move towards each other by λ.
        let noisy = Array::from_shape_vec(vec![1, 1, 2], vec![0.0, 1.0]).expect("two pixels");
        let exact = TotalVariation { iterations: 2000, tolerance: 0.0 };
        let result = exact.denoise(&noisy, &0.2.into()).expect("denoised");
        assert!((result[[0, 0, 0]] - 0.2).abs() < 1e-5 && (result[[0, 0, 1]] - 0.8).abs() < 1e-5);
        let merged = exact.denoise(&noisy, &0.7.into()).expect("denoised");
        assert!(merged.iter().all(|value| (value - 0.5).abs() < 1e-5));
    }

    #[test]
    fn a_weight_of_zero_changes_nothing_and_a_map_is_refused() {
        let noisy = image(&[2, 1, 6, 6]);
        assert_eq!(TotalVariation::default().denoise(&noisy, &0.0.into()), Ok(noisy.clone()));
        let map = NoiseLevel::Map(image(&[1, 1, 6, 6]));
        let error = TotalVariation::default().denoise(&noisy, &map).expect_err("a map").to_string();
        assert!(error.contains("one for each image"), "{error}");
    }
}
