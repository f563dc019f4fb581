//! Downsampling: blur against aliasing, then keep every n-th sample.
//!
//! As deepinv's `Downsampling`. The blur is computed on all samples and thinned out afterwards. The
//! first sample that is kept can be chosen, which makes the frames of multi-frame super-resolution.

mod closed_form;
mod window;

use std::sync::OnceLock;

use ndarray::{Axis, Slice};

use super::{
    Blur, LinearPhysics, Padding, Physics, Reach, WindowPhysics, kernels, slice, slice_mut,
};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use closed_form::Aliases;

/// The blur before samples are left out.
#[derive(Clone, Debug, PartialEq)]
pub enum DownsamplingFilter {
    /// None.
    None,
    /// A Gaussian with the factor as its σ.
    Gaussian,
    /// The mean over the pixel of a sensor: over `factor` samples along each side, of which the one that is kept is the
    /// first.
    Box,
    /// [`kernels::bilinear`] of the factor, in two dimensions.
    Bilinear,
    /// [`kernels::bicubic`] of the factor, in two dimensions.
    Bicubic,
    /// [`kernels::sinc`] of the factor and four times as many samples, in two dimensions.
    Sinc,
    /// Any kernel (image, channel, spatial…), as for [`Blur::new`].
    Kernel(Array),
}

impl DownsamplingFilter {
    /// The kernel for images with `axes` sides.
    fn kernel(&self, factor: usize, axes: usize, padding: Padding) -> Result<Option<Array>> {
        let kernel = match self {
            Self::None => return Ok(None),
            Self::Kernel(kernel) => kernel.clone(),
            Self::Gaussian => kernels::gaussian(&vec![factor as f64; axes], 0.0)?,
            // The first output that is valid is the mean over the first samples.
            Self::Box if padding == Padding::Valid => kernels::uniform(&vec![factor; axes])?,
            // Sample i is to be the mean over i to i + factor − 1, whose middle is not i: the taps before it are 0.
            Self::Box => {
                let mut kernel = kernels::uniform(&vec![factor.saturating_mul(2) - 1; axes])?;
                for axis in 2..kernel.ndim() {
                    kernel.slice_axis_mut(Axis(axis), Slice::from(factor..)).fill(0.0);
                }
                kernels::normalised(&kernel)?
            }
            _ if axes != 2 => {
                let reason = "in three dimensions the filter is none, gaussian, box or a kernel";
                return Err(Error::argument(NAME, format!("the filter is {self:?}; {reason}")));
            }
            Self::Bilinear => kernels::bilinear(factor)?,
            Self::Bicubic => kernels::bicubic(factor)?,
            Self::Sinc => kernels::sinc(factor, 4 * factor)?,
        };
        Ok(Some(kernel))
    }
}

const NAME: &str = "downsampling";

/// Every `factor`-th sample of a blurred image.
///
/// ```
/// use haloscope::physics::{Downsampling, DownsamplingFilter, Padding, Physics};
///
/// let half = Downsampling::new(&[3, 64, 64], 2, &DownsamplingFilter::Bicubic, Padding::Circular)?;
/// assert_eq!(half.measurement_shape(), [3, 32, 32]);
/// // The frame that a camera half a pixel further down and right sees.
/// let frame = half.with_phase(&[1, 1])?;
/// assert_eq!(frame.measurement_shape(), [3, 32, 32]);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Debug)]
pub struct Downsampling {
    shape: Vec<usize>,
    measurement: Vec<usize>,
    /// (depth, height, width) of the blurred image, of which samples are kept.
    blurred: [usize; 3],
    blur: Option<Blur>,
    /// For (depth, height, width); 1 along a depth that the image does not have.
    factors: [usize; 3],
    phases: [usize; 3],
    closed_form: OnceLock<Box<Aliases>>,
}

impl Downsampling {
    /// For images of a shape (channel, height, width) or (channel, depth, height, width).
    pub fn new(
        shape: &[usize],
        factor: usize,
        filter: &DownsamplingFilter,
        padding: Padding,
    ) -> Result<Self> {
        if !(3..=4).contains(&shape.len()) || shape.contains(&0) {
            return Err(Error::Shape {
                what: format!("the image of {NAME}"),
                expected:
                    "(channel, height, width) or (channel, depth, height, width) is expected, none \
                           of them 0"
                        .to_string(),
                found: shape.to_vec(),
            });
        }
        if factor == 0 {
            return Err(Error::argument(NAME, "the factor is 0; 1 or more is expected"));
        }
        let kernel = filter.kernel(factor, shape.len() - 1, padding)?;
        let blur = kernel.map(|kernel| Blur::new(shape, &kernel, padding)).transpose()?;
        let full = blur.as_ref().map_or(shape, Physics::measurement_shape);
        let (mut blurred, mut factors) = ([1; 3], [1; 3]);
        blurred[4 - full.len()..].copy_from_slice(&full[1..]);
        factors[4 - full.len()..].fill(factor);
        let mut downsampling = Self {
            shape: shape.to_vec(),
            measurement: full.to_vec(),
            blurred,
            blur,
            factors,
            phases: [0; 3],
            closed_form: OnceLock::new(),
        };
        downsampling.set_measurement();
        Ok(downsampling)
    }

    /// Keeps the samples `phase`, `phase + factor`, …, along each side, instead of 0, `factor`, ….
    pub fn with_phase(mut self, phase: &[usize]) -> Result<Self> {
        let axes = self.shape.len() - 1;
        let skip = 3 - axes;
        let limits = self.factors.iter().zip(&self.blurred).skip(skip);
        let fits =
            limits.clone().zip(phase).all(|((factor, side), phase)| phase < factor.min(side));
        if phase.len() != axes || !fits {
            let limits: Vec<usize> = limits.map(|(factor, side)| *factor.min(side)).collect();
            let reason = format!("the phase is {phase:?}; less than {limits:?} is expected");
            return Err(Error::argument(NAME, reason));
        }
        self.phases[skip..].copy_from_slice(phase);
        self.closed_form = OnceLock::new();
        self.set_measurement();
        Ok(self)
    }

    /// The blur before samples are left out, if there is one.
    #[must_use]
    pub fn blur(&self) -> Option<&Blur> {
        self.blur.as_ref()
    }

    fn set_measurement(&mut self) {
        let kept = self.kept();
        self.measurement[1..].copy_from_slice(&kept[4 - self.shape.len()..]);
    }

    /// (depth, height, width) of the measurement.
    fn kept(&self) -> [usize; 3] {
        [0, 1, 2].map(|i| (self.blurred[i] - self.phases[i]).div_ceil(self.factors[i]))
    }

    /// Goes through the rows of the measurement with the row of the blurred image that each is from.
    fn rows(&self, measurement: usize) -> impl Iterator<Item = (usize, usize)> {
        let [depth, height, width] = self.kept();
        let ([blurred_depth, blurred_height, _], phases, factors) =
            (self.blurred, self.phases, self.factors);
        (0..measurement / width).map(move |row| {
            let (plane, z, y) = (row / (depth * height), row / height % depth, row % height);
            let (z, y) = (phases[0] + z * factors[0], phases[1] + y * factors[1]);
            (row, (plane * blurred_depth + z) * blurred_height + y)
        })
    }

    fn keep(&self, blurred: &[f32], measurement: &mut [f32]) {
        let (full, kept) = (self.blurred[2], self.kept()[2]);
        for (to, from) in self.rows(measurement.len()) {
            let row = blurred[from * full + self.phases[2]..(from + 1) * full].iter();
            let kept_row = measurement[to * kept..][..kept].iter_mut();
            kept_row.zip(row.step_by(self.factors[2])).for_each(|(to, from)| *to = *from);
        }
    }

    fn spread(&self, measurement: &[f32], blurred: &mut [f32]) {
        let (full, kept) = (self.blurred[2], self.kept()[2]);
        blurred.fill(0.0);
        for (from, to) in self.rows(measurement.len()) {
            let row = blurred[to * full + self.phases[2]..(to + 1) * full].iter_mut();
            let kept_row = &measurement[from * kept..][..kept];
            row.step_by(self.factors[2]).zip(kept_row).for_each(|(to, from)| *to = *from);
        }
    }

    fn blurred_samples(&self, batch: usize) -> usize {
        batch * self.shape[0] * self.blurred.iter().product::<usize>()
    }

    /// The closed form, for a circular blur of an image that the factor divides.
    fn aliases(&self) -> Option<&Aliases> {
        let blur = self.blur.as_ref()?;
        let whole = self.blurred.iter().zip(&self.factors).all(|(side, factor)| side % factor == 0);
        if blur.padding() != Padding::Circular || !whole {
            return None;
        }
        let make = || Aliases::new(blur, self.blurred, self.factors, self.phases).map(Box::new);
        if self.closed_form.get().is_none() {
            let made = make()?;
            return Some(self.closed_form.get_or_init(|| made));
        }
        self.closed_form.get().map(AsRef::as_ref)
    }

    /// Without a blur the normal operator is a mask.
    fn solve_mask(&self, b: &View, shift: f64) -> Result<Array> {
        self.check_image(b)?;
        let mut solution = Array::zeros(b.raw_dim());
        let kept = b.len() / self.blurred.iter().product::<usize>()
            * self.kept().iter().product::<usize>();
        let factors = slice_mut(&mut solution);
        self.spread(&vec![1.0; kept], factors);
        divide_by_mask(factors, &slice(b), shift);
        Ok(solution)
    }
}

/// Turns a mask into `b / (mask + shift)`, or with a shift of 0 into what is measured of b.
fn divide_by_mask(mask: &mut [f32], b: &[f32], shift: f64) {
    let inverse = |value: f64| if value > 0.0 { (1.0 / value) as f32 } else { 0.0 };
    let (measured, missing) = (inverse(1.0 + shift), inverse(shift));
    for (factor, &b) in mask.iter_mut().zip(b) {
        *factor = b * if *factor > 0.0 { measured } else { missing };
    }
}

impl Physics for Downsampling {
    fn name(&self) -> &'static str {
        NAME
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        match &self.blur {
            Some(blur) => {
                let mut blurred = vec![0.0; self.blurred_samples(batch)];
                blur.apply_forward(batch, image, &mut blurred)?;
                self.keep(&blurred, measurement);
            }
            None => self.keep(image, measurement),
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        Some(self)
    }

    /// From the sample that is kept.
    fn reach(&self) -> Reach {
        self.blur.as_ref().map_or(Reach::Local(0), Physics::reach)
    }

    fn cost(&self) -> f64 {
        let samples: usize = self.shape.iter().product();
        self.blur.as_ref().map_or(samples as f64, Physics::cost)
    }
}

impl LinearPhysics for Downsampling {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let Some(blur) = &self.blur else {
            self.spread(measurement, image);
            return Ok(());
        };
        let mut blurred = vec![0.0; self.blurred_samples(batch)];
        self.spread(measurement, &mut blurred);
        blur.apply_adjoint(batch, &blurred, image)
    }

    /// 1 without a filter; known for a circular blur of an image that the factor divides.
    fn exact_squared_norm(&self) -> Option<f64> {
        if self.blur.is_none() {
            return Some(1.0);
        }
        Some(self.aliases()?.squared_norm())
    }

    /// Without a filter, and for a circular blur of an image that the factor divides (Zhao et al.,
    /// 2016). With a shift of 0, eigenvalues below 1e-6 of the greatest count as not measured.
    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let Some(blur) = &self.blur else { return Some(self.solve_mask(b, shift)) };
        let aliases = self.aliases()?;
        let solve = || {
            let batch = self.check_image(b)?;
            blur.check_batch(batch)?;
            let mut solution = b.as_standard_layout().into_owned();
            let channels = self.shape[0];
            let number = |plane| blur.kernel_number(plane / channels, plane % channels);
            aliases.solve(slice_mut(&mut solution), number, shift);
            Ok(solution)
        };
        Some(solve())
    }
}

#[cfg(test)]
mod tests;
