//! Total variation: images whose gradients are sparse.
//!
//! The minimiser of `½ ‖x − y‖² + λ TV(x)` by projected gradients on its dual with Nesterov's momentum
//! (Beck and Teboulle's fast gradient projection), in any number of dimensions. TV is isotropic: the sum over
//! pixels of the length of the gradient, of each channel or of all channels of a pixel together.

use rayon::prelude::*;

use super::{Denoiser, NoiseLevel, check_finite};
use crate::array::{Array, slice};
use crate::error::{Error, Result};

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
    /// The most iterations.
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
    pub fn value(image: &Array) -> f64 {
        let values = slice(image);
        let grid = Grid::of(image.shape());
        let sums = values.chunks(grid.image).map(|image| {
            (0..grid.pixels)
                .map(|pixel| {
                    let mut square = 0.0;
                    for channel in image.chunks(grid.pixels) {
                        for (axis, stride) in grid.strides.iter().enumerate() {
                            if grid.has_next(pixel, axis) {
                                square += f64::from(channel[pixel + stride] - channel[pixel]).powi(2);
                            }
                        }
                    }
                    square.sqrt()
                })
                .sum::<f64>()
        });
        sums.sum()
    }

    /// One image, of all its channels.
    fn solve(&self, image: &[f32], grid: &Grid, weight: f32) -> Vec<f32> {
        if weight == 0.0 {
            return image.to_vec();
        }
        let axes = grid.sides.len();
        let mut dual = vec![0.0_f32; image.len() * axes];
        let mut ahead = dual.clone();
        let mut result = image.to_vec();
        let mut momentum = 1.0_f32;
        // ‖∇‖² is at most 4 per axis.
        let step = 1.0 / (4.0 * axes as f32 * weight);
        for _ in 0..self.iterations {
            let estimate = grid.primal(image, &ahead, weight);
            let next = grid.ascend(&ahead, &estimate, step);
            let following = (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt()) / 2.0;
            let factor = (momentum - 1.0) / following;
            ahead.par_iter_mut().zip(next.par_iter().zip(&dual)).for_each(|(ahead, (next, old))| {
                *ahead = next + factor * (next - old);
            });
            dual = next;
            momentum = following;
            let change = crate::array::distance(&estimate, &result);
            let norm = crate::array::norm(&estimate);
            result = estimate;
            if change <= self.tolerance * norm {
                break;
            }
        }
        grid.primal(image, &dual, weight)
    }
}

impl Denoiser for TotalVariation {
    fn name(&self) -> &str {
        "total variation"
    }

    fn denoise(&self, image: &Array, level: &NoiseLevel) -> Result<Array> {
        level.check(image.shape())?;
        check_finite("total variation", image)?;
        if image.ndim() < 3 {
            return Err(Error::Shape {
                what: "the image of total variation".into(),
                expected: "(batch, channel, spatial…) is expected".into(),
                found: image.shape().to_vec(),
            });
        }
        let grid = Grid::of(image.shape());
        let values = slice(image);
        let mut result = Vec::with_capacity(values.len());
        for (index, values) in values.chunks(grid.image.max(1)).enumerate() {
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
            result.extend(self.solve(values, &grid, weight));
        }
        Ok(Array::from_shape_vec(image.raw_dim(), result).expect("as many as the image has"))
    }
}

/// The pixels of an image and how they lie beside each other.
struct Grid {
    sides: Vec<usize>,
    strides: Vec<usize>,
    /// Pixels of a channel.
    pixels: usize,
    /// Values of an image.
    image: usize,
}

impl Grid {
    fn of(shape: &[usize]) -> Self {
        let sides = shape[2..].to_vec();
        let strides = (0..sides.len()).map(|axis| sides[axis + 1..].iter().product()).collect();
        let pixels: usize = sides.iter().product();
        Self { sides, strides, pixels, image: pixels * shape[1] }
    }

    fn has_next(&self, pixel: usize, axis: usize) -> bool {
        pixel / self.strides[axis] % self.sides[axis] + 1 < self.sides[axis]
    }

    fn has_previous(&self, pixel: usize, axis: usize) -> bool {
        !(pixel / self.strides[axis]).is_multiple_of(self.sides[axis])
    }

    /// `image − weight ∇ᵀ dual`. The dual is (channel, axis, pixel).
    fn primal(&self, image: &[f32], dual: &[f32], weight: f32) -> Vec<f32> {
        let mut result = image.to_vec();
        let row = self.sides.last().copied().unwrap_or(1).max(1);
        result.par_chunks_mut(row).enumerate().for_each(|(index, values)| {
            let (channel, first) = (index * row / self.pixels, index * row % self.pixels);
            for (axis, stride) in self.strides.iter().enumerate() {
                let dual = &dual[(channel * self.sides.len() + axis) * self.pixels..][..self.pixels];
                for (offset, value) in values.iter_mut().enumerate() {
                    let pixel = first + offset;
                    // The adjoint of a forward difference: the last one of an axis is zero.
                    let mut sum = 0.0;
                    if self.has_next(pixel, axis) {
                        sum -= dual[pixel];
                    }
                    if self.has_previous(pixel, axis) {
                        sum += dual[pixel - stride];
                    }
                    *value -= weight * sum;
                }
            }
        });
        result
    }

    /// `dual + step ∇ image`, with each pixel's vector brought back to the unit ball.
    fn ascend(&self, dual: &[f32], image: &[f32], step: f32) -> Vec<f32> {
        let axes = self.sides.len();
        let mut next = dual.to_vec();
        next.par_chunks_mut(self.pixels.max(1)).enumerate().for_each(|(index, values)| {
            let (channel, axis) = (index / axes, index % axes);
            let image = &image[channel * self.pixels..][..self.pixels];
            for (pixel, value) in values.iter_mut().enumerate() {
                if self.has_next(pixel, axis) {
                    *value += step * (image[pixel + self.strides[axis]] - image[pixel]);
                }
            }
        });
        let mut lengths = vec![0.0_f32; self.pixels];
        for values in next.chunks(self.pixels.max(1)) {
            lengths.par_iter_mut().zip(values).for_each(|(length, value)| *length += value * value);
        }
        next.par_chunks_mut(self.pixels.max(1)).for_each(|values| {
            for (value, length) in values.iter_mut().zip(&lengths) {
                *value /= length.sqrt().max(1.0);
            }
        });
        next
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
            let value = |x: &Array| {
                let distance = x.iter().zip(&noisy).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>();
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
