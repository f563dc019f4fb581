//! A denoiser of pictures on the slices of volumes along all three axes, not along depth alone.
//!
//! Slices along one axis know nothing of each other, and what is left of the noise flickers from one to the next. The mean
//! of the slices across all three axes removes most of that. It needs no other network, and takes three times the work.

use std::fmt;
use std::time::Duration;

use ndarray::IxDyn;

use super::{Denoiser, NoiseLevel, Work};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// The slices of a volume that a denoiser of pictures sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Axes {
    /// Those along depth: (height, width).
    #[default]
    Axial,
    /// Those along depth, height and width; the result is the mean of the three.
    All,
}

impl Axes {
    /// All of them, by their names in job files.
    pub const NAMES: [(&str, Self); 2] = [("axial", Self::Axial), ("all", Self::All)];

    /// Its name in job files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Axial => "axial",
            Self::All => "all",
        }
    }

    /// Refuses images that have one kind of slices only: pictures, and volumes that the denoiser sees as a whole.
    pub fn check(self, denoiser: &dyn Denoiser, image: &[usize]) -> Result<()> {
        let sides = image.len().saturating_sub(2);
        if self == Self::Axial || denoiser.sides() == Some(2) && sides == 3 {
            return Ok(());
        }
        let name = denoiser.name();
        let reason = match denoiser.sides() {
            Some(2) => {
                format!("\"all\" for an image of {sides} sides; volumes have slices along 3 axes")
            }
            _ => format!(
                "\"all\" for {name}, which sees volumes as a whole; it is for networks of pictures"
            ),
        };
        Err(Error::argument("axes", format!("{reason}: leave it out, or take \"axial\"")))
    }

    /// The shapes in which a denoiser gets images of this shape, (batch, channel, spatial…).
    #[must_use]
    pub fn shapes(self, image: &[usize]) -> Vec<Vec<usize>> {
        let turned = |order: &[usize; 5]| order.iter().map(|axis| image[*axis]).collect();
        match self {
            Self::All if image.len() == 5 => ORDERS.iter().map(turned).collect(),
            _ => vec![image.to_vec()],
        }
    }
}

/// The axes of a volume, (batch, channel, depth, height, width), in the orders in which it is denoised: the third has the slices.
const ORDERS: [[usize; 5]; 3] = [[0, 1, 2, 3, 4], [0, 1, 3, 2, 4], [0, 1, 4, 2, 3]];

/// A denoiser of pictures along all three axes of volumes; see [`Axes::All`].
///
/// It goes around a [distributed](crate::distribute::DistributedDenoiser) denoiser, whose tiles or parts are those of the turned
/// volume then. The three results are added in a fixed order, so the bits depend on the number of ranks as little as theirs.
///
/// ```
/// use haloscope::denoise::{AllAxes, Denoiser, denoiser_fn};
///
/// // A plane of a volume becomes its mean.
/// let flatten = denoiser_fn("flatten", |volume, _level| {
///     let mut result = volume.to_owned();
///     result.outer_iter_mut().for_each(|mut image| {
///         image.outer_iter_mut().for_each(|mut channel| {
///             for mut slice in channel.outer_iter_mut() {
///                 let mean = slice.mean().unwrap_or(0.0);
///                 slice.fill(mean);
///             }
///         });
///     });
///     Ok(result)
/// });
/// let mut volume = ndarray::ArrayD::zeros(vec![1, 1, 2, 4, 4]);
/// volume[[0, 0, 1, 3, 3]] = 48.0;
/// let result = AllAxes::new(flatten).denoise(&volume, &0.1.into())?;
/// // 48 over the 16 voxels of an axial slice, and over the 8 of each of the others.
/// assert_eq!(result[[0, 0, 1, 3, 3]], (3.0 + 6.0 + 6.0) / 3.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub struct AllAxes<D> {
    denoiser: D,
}

impl<D: Denoiser> AllAxes<D> {
    /// A denoiser that gives the slices along each axis to `denoiser`.
    pub fn new(denoiser: D) -> Self {
        Self { denoiser }
    }
}

impl<D: Denoiser> Denoiser for AllAxes<D> {
    fn name(&self) -> &str {
        self.denoiser.name()
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        self.denoise_observed(image, level, &mut |_, _| ())
    }

    fn denoise_observed(
        &self,
        image: &View,
        level: &NoiseLevel,
        observe: &mut dyn FnMut(&str, Duration),
    ) -> Result<Array> {
        level.check(image.shape())?;
        if image.ndim() != 5 {
            return Err(Error::Shape {
                what: format!("the image of {} along all axes", self.name()),
                expected: "(batch, channel, depth, height, width) is expected".into(),
                found: image.shape().to_vec(),
            });
        }
        let mut sum = self.denoiser.denoise_observed(image, level, observe)?;
        for order in &ORDERS[1..] {
            let turned = turn(image, order);
            let level = match level {
                NoiseLevel::Map(map) => NoiseLevel::Map(turn(map, order)),
                other => other.clone(),
            };
            let result = self.denoiser.denoise_observed(&turned, &level, observe)?;
            drop(turned);
            sum += &result.permuted_axes(IxDyn(&inverse(order)));
        }
        sum /= 3.0;
        Ok(sum)
    }

    fn alignment(&self) -> usize {
        self.denoiser.alignment()
    }

    fn memory(&self, shape: &[usize]) -> Result<Option<usize>> {
        let mut most = 0;
        for turned in Axes::All.shapes(shape) {
            let Some(bytes) = self.denoiser.memory(&turned)? else { return Ok(None) };
            most = most.max(bytes);
        }
        // The turned volume, and the sum of the results so far.
        Ok(Some(most + 2 * 4 * shape.iter().product::<usize>()))
    }

    fn work(&self, image: &[usize]) -> Result<Work> {
        let mut all = Work::default();
        for turned in Axes::All.shapes(image) {
            let work = self.denoiser.work(&turned)?;
            all.computed += work.computed;
            all.kept += work.kept;
        }
        Ok(all)
    }
}

/// The same values in another order of their axes, in memory too: denoisers read slices.
fn turn(image: &View, order: &[usize; 5]) -> Array {
    image.view().permuted_axes(IxDyn(order)).as_standard_layout().into_owned()
}

/// The order that turns volumes back.
fn inverse(order: &[usize; 5]) -> [usize; 5] {
    let mut back = [0; 5];
    for (place, axis) in order.iter().enumerate() {
        back[*axis] = place;
    }
    back
}

impl<D: Denoiser> fmt::Debug for AllAxes<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllAxes").field(&self.denoiser).finish()
    }
}
