//! Total variation: images whose gradients are sparse.
//!
//! The minimiser of `½ ‖x − y‖² + λ TV(x)` by projected gradients on its dual with Nesterov's momentum
//! (Beck and Teboulle's fast gradient projection), in any number of dimensions. TV is isotropic: the sum over
//! pixels of the length of the gradient of all channels together.

use std::sync::Arc;

use haloscope_comm::Context;
use ndarray::{ArrayD, Axis};

use super::differences::on_images::{around, beside};
use super::differences::{gradient, lengths};
use super::slab::{Alone, Field, Neighbours, Slab};
use super::{Denoiser, NoiseLevel, check_finite};
use crate::array::{Array, View, row_of, slice};
use crate::error::{Error, Result};
use crate::image::{Image, Layout, Space, Sum, WindowPlan, sum_of, totals};
use crate::region::{self, copied, is_empty};

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
                NoiseLevel::Map(_) => return Err(no_map()),
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

    fn denoise_image(&self, image: &Image, level: &NoiseLevel) -> Result<Image> {
        match image.layout() {
            Layout::Replicated => Ok(self.denoise(image.local(), level)?.into()),
            Layout::Sharded(space) => self.denoise_part(space, image, level),
        }
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        Self::denoise_each(image, level, |values, shape, weight| {
            let slab = Slab::whole(values, shape, weight);
            let slab = self.minimise(Some(slab), &mut Alone)?;
            Ok(slab.map(Slab::into_result).unwrap_or_default())
        })
    }
}

impl TotalVariation {
    /// The most bytes that each rank sends for a prox of images in these parts, without the sums that end it.
    pub(crate) fn bytes_sent(&self, space: &Arc<Space>) -> Vec<u64> {
        let image = [around(space, 2, [1, 1])];
        let dual = [around(&dual_of(space), 3, [1, 1])];
        let exchanges = (self.iterations.max(1) * space.whole()[0]) as u64;
        let of_rank = |rank| {
            let one = WindowPlan::bytes_sent(&dual, rank).saturating_mul(exchanges);
            WindowPlan::bytes_sent(&image, rank).saturating_add(one)
        };
        (0..space.regions().len()).map(of_rank).collect()
    }

    /// This rank's part of the images without their noise; all ranks that share them call it.
    fn denoise_part(&self, space: &Arc<Space>, image: &Image, level: &NoiseLevel) -> Result<Image> {
        let whole = space.whole();
        let is_possible =
            level.check(whole).and_then(|()| check_finite("total variation", image.local()));
        image.layout().agree(is_possible)?;
        let weight = |index: usize| match level {
            NoiseLevel::Uniform(level) => Ok(*level),
            NoiseLevel::PerImage(levels) => Ok(levels[index]),
            NoiseLevel::Map(_) => Err(no_map()),
        };
        let (window, begins) = beside(space, image.local(), 2, [1, 1])?;
        let own = space.own();
        let ends: Vec<bool> = (2..whole.len()).map(|axis| own[axis].end == whole[axis]).collect();
        let inner: Vec<_> =
            (2..whole.len()).map(|axis| begins[axis]..begins[axis] + own[axis].len()).collect();
        let mut ranks = Parts::new(space, &begins);
        let mut result = image.clone();
        let shape = [&[1], &window.shape()[1..]].concat();
        for index in 0..whole[0] {
            let weight = weight(index)?;
            if weight == 0.0 {
                continue;
            }
            let values = (!is_empty(own)).then(|| window.index_axis(Axis(0), index));
            let slab = values.as_ref().and_then(|values| values.as_slice()).map(|values| {
                Slab::with(values.into(), shape.clone(), inner.clone(), ends.clone(), weight)
            });
            if let Some(slab) = self.minimise(slab, &mut ranks)? {
                let found = ArrayD::from_shape_vec(shape.clone(), slab.into_result());
                let found = found.expect("as many as the window has");
                let own_pixels: Vec<_> =
                    [0..1, 0..shape[1]].into_iter().chain(inner.iter().cloned()).collect();
                let mut one = region::whole(image.local().shape());
                one[0] = index..index + 1;
                region::place(result.local_mut(), &one, &copied(&found, &own_pixels));
            }
        }
        Ok(result)
    }
}

fn no_map() -> Error {
    Error::argument(
        "total variation",
        "a map of levels was given; a number, or one for each image, is possible",
    )
}

/// The ranks that have the other parts of an image.
struct Parts {
    ctx: Context,
    plan: WindowPlan,
    /// Where the own part begins in a dual with what lies around it.
    begins: Vec<usize>,
}

impl Parts {
    fn new(space: &Space, begins: &[usize]) -> Self {
        let needed = [around(&dual_of(space), 3, [1, 1])];
        let mut begins = begins.to_vec();
        begins.insert(2, 0);
        Self {
            ctx: space.context().clone(),
            plan: WindowPlan::new(space.context(), &needed),
            begins,
        }
    }
}

/// The parts of the dual of one image: (1, channel, axis, spatial…).
fn dual_of(space: &Space) -> Arc<Space> {
    space.with_batch(1).with_axis(2, space.whole().len() - 2)
}

impl Neighbours for Parts {
    fn exchange(&mut self, slab: Option<&mut Slab<'_>>, field: Field) -> Result<()> {
        match slab {
            Some(slab) => self.plan.refresh(Some(&mut *slab.field(field)), &self.begins),
            None => self.plan.refresh(None, &self.begins),
        }
    }

    fn totals(&mut self, own: [Sum; 2]) -> Result<[f64; 2]> {
        totals(&self.ctx, own)
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
