//! Wavelets: images that have few large coefficients in orthogonal bases.
//!
//! With one basis the prox of the norm is soft thresholding. With several (the average sparsity of SARA: Carrillo and
//! others, MNRAS 426, 2012), or with a range, it is the minimiser of a convex function, found by projected gradients on its dual
//! with Nesterov's momentum, as the prox of [`TotalVariation`](super::TotalVariation) is. Every rank computes
//! whole images; the result does not depend on their number.

mod bases;
mod filters;
pub(crate) mod frame;
mod transform;

use rayon::prelude::*;

use self::frame::Frame;
use super::{Denoiser, NoiseLevel, check_finite};
use crate::array::{Array, View, distance, map_slice, norm, slice, slice_mut};
use crate::error::{Error, Result};

pub use bases::Bases;

/// The denoiser whose prior is the ℓ1 norm `‖Ψᵀx‖₁ = 1/√B Σ_b ‖W_b x‖₁` of the coefficients in `B` orthogonal bases; the noise
/// level is the weight of the norm.
///
/// Channels are transformed each on its own, and volumes along all of their sides.
///
/// ```
/// use haloscope::denoise::{Denoiser, Wavelets};
///
/// let flat = ndarray::ArrayD::from_elem(vec![1, 1, 32, 32], 0.5);
/// let denoised = Wavelets::default().denoise(&flat, &0.1.into())?;
/// assert!(denoised.iter().all(|value| (value - 0.5).abs() < 1e-6));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wavelets {
    /// The bases.
    pub bases: Bases,
    /// The most scales. An axis is halved while it is at least as long as the wavelet's filter; of an odd number of values
    /// the last one is passed on as it is.
    pub scales: usize,
    /// Whether the means at the coarsest scale are part of the norm, as in SARA. Otherwise they are not changed.
    pub coarse: bool,
    /// The values that an image may have.
    pub range: Option<(f32, f32)>,
    /// The most iterations of a prox in several bases or in a range.
    pub iterations: usize,
    /// Stop when an iteration changes the image by less than this, relative to its norm.
    pub tolerance: f64,
}

impl Default for Wavelets {
    /// `db4` at four scales.
    fn default() -> Self {
        Self {
            bases: Bases::default(),
            scales: 4,
            coarse: false,
            range: None,
            iterations: 50,
            tolerance: 1e-4,
        }
    }
}

impl Wavelets {
    /// Sparsity averaging: pixels and `db1` to `db8`, with the means at the coarsest scale in the norm.
    #[must_use]
    pub fn sara() -> Self {
        Self { bases: Bases::SARA, coarse: true, ..Self::default() }
    }

    /// `‖Ψᵀx‖₁`, summed over images and channels.
    pub fn value(&self, image: &View) -> Result<f64> {
        check_shape(image.shape())?;
        Ok(Frame::new(self, &image.shape()[2..]).norm(&slice(image)))
    }

    /// The coefficients in the first of the bases, in the places of the pixels: the means at the coarsest scale in the corner
    /// at the beginning, the details of finer scales further away.
    pub fn coefficients(&self, image: &View) -> Result<Array> {
        check_shape(image.shape())?;
        let first = self.bases.orders().next().unwrap_or_default();
        let mut result = image.as_standard_layout().into_owned();
        if first > 0 {
            let sides = &image.shape()[2..];
            let transform = transform::Transform::new(first, sides, self.scales);
            let pixels = sides.iter().product::<usize>().max(1);
            let mut scratch = Vec::new();
            for plane in slice_mut(&mut result).chunks_mut(pixels) {
                transform.forward(plane, &mut scratch);
            }
        }
        Ok(result)
    }

    /// Whether its prox is soft thresholding.
    fn is_closed(&self) -> bool {
        self.bases.len() == 1 && self.range.is_none()
    }

    /// The bytes that its prox takes besides input and output, for images of this shape (batch, channel, spatial…).
    #[must_use]
    pub fn prox_bytes(&self, shape: &[usize]) -> usize {
        let plane: usize = shape.iter().skip(2).product();
        // What transforms work in; then two duals, and the next image.
        let arrays = if self.is_closed() { 2 } else { 2 + 2 * self.bases.len() + 1 };
        4 * plane * arrays
    }

    /// One channel of one image.
    fn prox(&self, frame: &mut Frame, noisy: &[f32], image: &mut [f32], weight: f32) {
        image.copy_from_slice(noisy);
        if self.is_closed() {
            frame.threshold(image, weight);
            return;
        }
        let mut dual = vec![0.0; image.len() * frame.len()];
        // The dual with its momentum.
        let mut ahead = dual.clone();
        let mut next = vec![0.0; image.len()];
        let mut momentum = 1.0_f64;
        for iteration in 0..self.iterations.max(1) {
            // x = the projection of y − Ψ w
            self.primal(frame, noisy, &ahead, &mut next);
            let (change, size) = (distance(&next, image), norm(&next));
            image.copy_from_slice(&next);
            if iteration > 0 && change <= self.tolerance * size {
                return;
            }
            // v⁺ = the projection of w + Ψᵀx, and w = v⁺ + β (v⁺ − v)
            frame.add_analysis(&mut ahead, 1.0, image);
            frame.project(&mut ahead, weight);
            let last = momentum;
            momentum = 0.5 * (1.0 + (1.0 + 4.0 * last * last).sqrt());
            let beta = ((last - 1.0) / momentum) as f32;
            ahead.par_iter_mut().zip(&mut dual).for_each(|(ahead, dual)| {
                let next = *ahead;
                *ahead = next + beta * (next - *dual);
                *dual = next;
            });
        }
        self.primal(frame, noisy, &dual, image);
    }

    /// The image that belongs to a dual.
    fn primal(&self, frame: &mut Frame, noisy: &[f32], dual: &[f32], image: &mut [f32]) {
        image.copy_from_slice(noisy);
        frame.add_synthesis(image, -1.0, dual);
        if let Some((low, high)) = self.range {
            map_slice(image, |value| value.clamp(low, high));
        }
    }
}

impl Denoiser for Wavelets {
    fn name(&self) -> &'static str {
        "wavelets"
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        level.check(image.shape())?;
        check_finite("wavelets", image)?;
        if let Some((low, high)) = self.range
            && (low.is_nan() || high.is_nan() || low > high)
        {
            let reason =
                format!("a range from {low} to {high}; a least and a greatest value are expected");
            return Err(Error::argument("wavelets", reason));
        }
        check_shape(image.shape())?;
        let weight = |index: usize| match level {
            NoiseLevel::Uniform(level) => Ok(*level),
            NoiseLevel::PerImage(levels) => Ok(levels[index]),
            NoiseLevel::Map(_) => Err(Error::argument(
                "wavelets",
                "a map of levels was given; a number, or one for each image, is possible",
            )),
        };
        let (shape, noisy) = (image.shape(), slice(image));
        let (channels, pixels) = (shape[1].max(1), shape[2..].iter().product::<usize>().max(1));
        let mut frame = Frame::new(self, &shape[2..]);
        let mut result = Array::zeros(image.raw_dim());
        let planes = slice_mut(&mut result).chunks_mut(pixels).zip(noisy.chunks(pixels));
        for (index, (to, noisy)) in planes.enumerate() {
            self.prox(&mut frame, noisy, to, weight(index / channels)?);
        }
        Ok(result)
    }

    fn memory(&self, shape: &[usize]) -> Result<Option<usize>> {
        Ok(Some(self.prox_bytes(shape)))
    }
}

fn check_shape(shape: &[usize]) -> Result<()> {
    if shape.len() >= 3 {
        return Ok(());
    }
    Err(Error::Shape {
        what: "the image of wavelets".into(),
        expected: "(batch, channel, spatial…) is expected".into(),
        found: shape.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(shape: &[usize]) -> Array {
        let mut random = fastrand::Rng::with_seed(5);
        Array::from_shape_simple_fn(shape, || random.f32() - 0.2)
    }

    fn exact(wavelets: Wavelets) -> Wavelets {
        Wavelets { iterations: 4000, tolerance: 0.0, ..wavelets }
    }

    #[test]
    fn wavelet_ranges_without_values_are_refused() {
        for range in [(1.0, 0.0), (f32::NAN, 1.0), (0.0, f32::NAN)] {
            let wavelets = Wavelets { range: Some(range), ..Wavelets::default() };
            let error = wavelets.denoise(&image(&[1, 1, 8, 8]), &0.1.into()).expect_err("refused");
            assert!(error.to_string().contains("a range from"), "{error}");
        }
    }

    /// The prox is the only point where the value cannot be lowered in any direction.
    #[test]
    fn nothing_near_the_result_is_better() -> Result<()> {
        let haar = Wavelets { bases: "haar".parse()?, ..Wavelets::default() };
        let pair = Wavelets { bases: "dirac, db2".parse()?, coarse: true, ..haar };
        let cases = [
            (haar, &[1, 1, 12, 9][..]),
            (Wavelets { range: Some((0.0, 0.5)), ..haar }, &[1, 2, 8, 7]),
            (pair, &[1, 1, 9, 8]),
            (Wavelets { range: Some((0.0, f32::INFINITY)), ..Wavelets::sara() }, &[1, 1, 18, 17]),
            (pair, &[1, 1, 4, 5, 6]),
        ];
        for (wavelets, shape) in cases {
            let wavelets = exact(wavelets);
            let noisy = image(shape);
            let weight = 0.15;
            let value = |x: &View| -> Result<f64> {
                let distance =
                    x.iter().zip(&noisy).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>();
                Ok(distance / 2.0 + f64::from(weight) * wavelets.value(x)?)
            };
            let best = wavelets.denoise(&noisy, &weight.into())?;
            let least = value(&best)?;
            let mut random = fastrand::Rng::with_seed(1);
            for size in [1e-1, 1e-2, 1e-3] {
                for _ in 0..20 {
                    let (low, high) = wavelets.range.unwrap_or((-9.0, 9.0));
                    let other = best.mapv(|x| (x + size * (random.f32() - 0.5)).clamp(low, high));
                    assert!(value(&other)? >= least - 2e-5, "{shape:?}, {size}");
                }
            }
            assert!(wavelets.range.is_some() || value(&noisy)? > least);
        }
        Ok(())
    }

    #[test]
    fn one_basis_in_a_range_that_cuts_nothing_is_soft_thresholding() -> Result<()> {
        let noisy = image(&[2, 3, 20, 33]);
        let closed = Wavelets::default();
        let wide = exact(Wavelets { range: Some((-50.0, 50.0)), ..closed });
        let [one, other] =
            [closed.denoise(&noisy, &0.2.into())?, wide.denoise(&noisy, &0.2.into())?];
        let worst = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{worst:e}");
        assert!(distance(&slice(&one), &slice(&noisy)) > 1.0);
        Ok(())
    }

    #[test]
    fn a_weight_of_zero_changes_nothing_and_a_map_is_refused() -> Result<()> {
        let noisy = image(&[2, 1, 16, 16]);
        for wavelets in [Wavelets::default(), Wavelets::sara()] {
            let same = wavelets.denoise(&noisy, &0.0.into())?;
            assert!(same.iter().zip(&noisy).all(|(a, b)| (a - b).abs() < 1e-6));
            let map = NoiseLevel::Map(image(&[1, 1, 16, 16]).mapv(f32::abs));
            let error = wavelets.denoise(&noisy, &map).expect_err("a map").to_string();
            assert!(error.contains("one for each image"), "{error}");
        }
        let error = Wavelets::sara().value(&Array::zeros(vec![3, 3])).expect_err("no image");
        assert!(error.to_string().contains("[3, 3]"));
        Ok(())
    }
}
