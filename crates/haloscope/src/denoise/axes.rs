//! A denoiser that looks at an image in several ways, of which the mean is taken: slices along all axes of a volume, or mirror images
//! and quarter turns.
//!
//! Slices along one axis know nothing of each other, and what is left of the noise flickers from one to the next; the mean of the
//! slices across all three axes removes most of that. A network that was trained on few turns errs differently in each, and the mean of
//! eight errs less (self-ensemble). Neither needs another network; they take three and eight times the work.

use std::fmt;
use std::time::Duration;

use ndarray::{Axis, IxDyn, Slice};

use super::{Denoiser, NoiseLevel, Work};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// How a denoiser looks at an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Axes {
    /// As it is; a denoiser of pictures sees the slices of a volume along depth: (height, width).
    #[default]
    Axial,
    /// A volume as slices along depth, height and width; the result is the mean of the three.
    All,
    /// In the eight mirror images and quarter turns of its rows and columns; the result is the mean of the eight.
    Ensemble,
}

impl Axes {
    /// All of them, by their names in job files.
    pub const NAMES: [(&str, Self); 3] =
        [("axial", Self::Axial), ("all", Self::All), ("ensemble", Self::Ensemble)];

    /// Its name in job files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Axial => "axial",
            Self::All => "all",
            Self::Ensemble => "ensemble",
        }
    }

    /// Refuses images that have one kind of slices only, if all kinds are wanted: pictures, and volumes that the denoiser sees as a
    /// whole.
    pub fn check(self, denoiser: &dyn Denoiser, image: &[usize]) -> Result<()> {
        let sides = image.len().saturating_sub(2);
        if self != Self::All || denoiser.sides() == Some(2) && sides == 3 {
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
        let turned = |look: Look| look.order.iter().map(|axis| image[*axis]).collect();
        self.looks(image.len()).into_iter().map(turned).collect()
    }

    /// All looks at an image of so many axes; the first is the image as it is.
    fn looks(self, axes: usize) -> Vec<Look> {
        let order: Vec<usize> = (0..axes).collect();
        let look = |order: &[usize], flips: &[usize]| Look {
            order: order.to_vec(),
            flips: flips.to_vec(),
        };
        match self {
            Self::All if axes == 5 => [[2, 3, 4], [3, 2, 4], [4, 2, 3]]
                .map(|[slices, rows, columns]| look(&[0, 1, slices, rows, columns], &[]))
                .to_vec(),
            Self::Ensemble if axes >= 4 => {
                let (rows, columns) = (axes - 2, axes - 1);
                let mut turned = order.clone();
                turned.swap(rows, columns);
                let flips = [vec![], vec![rows], vec![columns], vec![rows, columns]];
                let both = [&order, &turned].into_iter();
                both.flat_map(|order| flips.each_ref().map(|flips| look(order, flips))).collect()
            }
            _ => vec![look(&order, &[])],
        }
    }
}

/// An order of the axes of an image, along some of which it is read backwards then.
#[derive(Clone, Debug)]
struct Look {
    order: Vec<usize>,
    flips: Vec<usize>,
}

impl Look {
    /// The image as it is seen, in memory too: denoisers read lines.
    fn turn(&self, image: &View) -> Array {
        let mut turned = image.view().permuted_axes(IxDyn(&self.order));
        self.flip(&mut turned);
        turned.as_standard_layout().into_owned()
    }

    /// Adds what was seen like this to a sum of images as they are.
    fn add(&self, mut seen: Array, sum: &mut Array) {
        self.flip(&mut seen);
        let mut back = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(place, axis)| back[*axis] = place);
        *sum += &seen.permuted_axes(IxDyn(&back));
    }

    fn flip<S: ndarray::RawData>(&self, image: &mut ndarray::ArrayBase<S, IxDyn>) {
        for axis in &self.flips {
            image.slice_axis_inplace(Axis(*axis), Slice::new(0, None, -1));
        }
    }
}

/// A denoiser that looks at images in several ways; see [`Axes`].
///
/// It goes around a [distributed](crate::distribute::DistributedDenoiser) denoiser, whose tiles or parts are those of the turned
/// image then. The results are added in a fixed order, so the bits depend on the number of ranks as little as theirs.
///
/// ```
/// use haloscope::denoise::{Averaged, Axes, Denoiser, denoiser_fn};
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
/// let result = Averaged::new(flatten, Axes::All).denoise(&volume, &0.1.into())?;
/// // 48 over the 16 voxels of an axial slice, and over the 8 of each of the others.
/// assert_eq!(result[[0, 0, 1, 3, 3]], (3.0 + 6.0 + 6.0) / 3.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub struct Averaged<D> {
    denoiser: D,
    axes: Axes,
}

impl<D: Denoiser> Averaged<D> {
    /// A denoiser that gives images to `denoiser` in all these ways.
    pub fn new(denoiser: D, axes: Axes) -> Self {
        Self { denoiser, axes }
    }
}

impl<D: Denoiser> Denoiser for Averaged<D> {
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
        if self.axes == Axes::All && image.ndim() != 5 {
            return Err(Error::Shape {
                what: format!("the image of {} along all axes", self.name()),
                expected: "(batch, channel, depth, height, width) is expected".into(),
                found: image.shape().to_vec(),
            });
        }
        let looks = self.axes.looks(image.ndim());
        let mut sum = self.denoiser.denoise_observed(image, level, observe)?;
        for look in &looks[1..] {
            let turned = look.turn(image);
            let level = match level {
                NoiseLevel::Map(map) => NoiseLevel::Map(look.turn(map)),
                other => other.clone(),
            };
            let result = self.denoiser.denoise_observed(&turned, &level, observe)?;
            drop(turned);
            look.add(result, &mut sum);
        }
        sum /= looks.len() as f32;
        Ok(sum)
    }

    fn alignment(&self) -> usize {
        self.denoiser.alignment()
    }

    fn memory(&self, shape: &[usize]) -> Result<Option<usize>> {
        let mut most = 0;
        let shapes = self.axes.shapes(shape);
        for turned in &shapes {
            let Some(bytes) = self.denoiser.memory(turned)? else { return Ok(None) };
            most = most.max(bytes);
        }
        // The turned image, and the sum of the results so far.
        let more = if shapes.len() > 1 { 2 } else { 0 };
        Ok(Some(most + more * 4 * shape.iter().product::<usize>()))
    }

    fn work(&self, image: &[usize]) -> Result<Work> {
        let mut all = Work::default();
        for turned in self.axes.shapes(image) {
            let work = self.denoiser.work(&turned)?;
            all.computed += work.computed;
            all.kept += work.kept;
        }
        Ok(all)
    }
}

impl<D: Denoiser> fmt::Debug for Averaged<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Averaged")
            .field("denoiser", &self.denoiser)
            .field("axes", &self.axes)
            .finish()
    }
}
