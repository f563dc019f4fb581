//! Missing pixels: a product with a mask.

use std::fmt;
use std::ops::Range;

use super::{LinearPhysics, Physics, Reach, WindowPhysics, region, slice, slice_mut};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::random::Sequence;
use crate::region::{Region, sides, whole, within};

/// `A x = m x`, pixel by pixel, with a mask of 0 for what is missing and 1 for what is there; weights
/// in between are possible.
///
/// ```
/// use haloscope::physics::{Inpainting, Physics};
/// use ndarray::ArrayD;
///
/// let mut mask = ArrayD::ones(vec![1, 4, 4]);
/// mask[[0, 2, 1]] = 0.0;
/// let inpainting = Inpainting::new(&[3, 4, 4], &mask)?;
/// let measured = inpainting.forward(&ArrayD::ones(vec![1, 3, 4, 4]))?;
/// assert_eq!(measured.sum(), 45.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone)]
pub struct Inpainting {
    shape: Vec<usize>,
    /// Where the mask is: all of the image, or a part of it.
    place: Region,
    /// For all channels.
    mask: Vec<f32>,
}

impl fmt::Debug for Inpainting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inpainting of {:?}", self.shape)
    }
}

impl Inpainting {
    /// For images of a shape (channel, spatial…), with a mask of that shape or of one channel for all.
    pub fn new(shape: &[usize], mask: &View) -> Result<Self> {
        Self::check_mask(shape, mask.shape())?;
        Self::of_part(shape, &everything(shape), mask)
    }

    /// The same for who has one part of the image, a range for each spatial axis, and the mask there. It works on
    /// [windows](WindowPhysics) within that part, and on nothing else.
    ///
    /// ```
    /// use haloscope::physics::{Inpainting, WindowPhysics};
    /// use ndarray::ArrayD;
    ///
    /// let lower = [2..4, 0..4];
    /// let inpainting = Inpainting::of_part(&[3, 4, 4], &lower, &ArrayD::zeros(vec![1, 2, 4]))?;
    /// let mut measured = vec![1.0; 3 * 2 * 4];
    /// inpainting.forward_window(1, &lower, &[0.5; 24], &mut measured)?;
    /// assert_eq!(measured, [0.0; 24]);
    /// assert!(inpainting.forward_window(1, &[0..2, 0..4], &[0.5; 24], &mut measured).is_err());
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn of_part(shape: &[usize], part: &[Range<usize>], mask: &View) -> Result<Self> {
        let sides = shape.get(1..).unwrap_or_default();
        let is_within =
            |(range, side): (&Range<usize>, &usize)| range.start <= range.end && range.end <= *side;
        if part.len() != sides.len() || !part.iter().zip(sides).all(is_within) {
            let reason =
                format!("the part of the image is {part:?}; ranges within {sides:?} are expected");
            return Err(Error::argument("inpainting", reason));
        }
        let here: Vec<usize> =
            shape.first().copied().into_iter().chain(part.iter().map(Range::len)).collect();
        check_shape(&here, mask.shape())?;
        if let Some(value) = mask.iter().find(|value| !value.is_finite()) {
            let reason = format!("the mask holds {value}; finite numbers are expected");
            return Err(Error::argument("inpainting", reason));
        }
        let mask = slice(mask).repeat(shape[0] / mask.shape()[0].max(1));
        Ok(Self { shape: shape.to_vec(), place: part.to_vec(), mask })
    }

    /// Refuses masks of a shape that is neither that of images nor the same with one channel.
    pub fn check_mask(shape: &[usize], mask: &[usize]) -> Result<()> {
        check_shape(shape, if mask.contains(&0) { &[] } else { mask })
    }

    /// The mask of images of a shape, of one channel, that leaves out `missing` of the pixels, from 0 for none to 1 for all
    /// of them, wherever chance has it; the same seed gives the same mask everywhere.
    pub fn random_mask(shape: &[usize], missing: f64, seed: u64) -> Result<Array> {
        Self::random_mask_part(shape, &everything(shape), missing, seed)
    }

    /// A part of that mask, a range for each spatial axis.
    pub fn random_mask_part(
        shape: &[usize],
        part: &[Range<usize>],
        missing: f64,
        seed: u64,
    ) -> Result<Array> {
        if !(0.0..=1.0).contains(&missing) {
            let reason = format!("the missing part of the pixels is {missing}; 0 to 1 is expected");
            return Err(Error::argument("inpainting", reason));
        }
        let [_, sides @ ..] = shape else {
            let reason = "an image of no axes has no pixels; (channel, spatial…) is expected";
            return Err(Error::argument("inpainting", reason));
        };
        let here: Vec<usize> = [1].into_iter().chain(part.iter().map(Range::len)).collect();
        Ok(Array::from_shape_fn(here, |at| {
            let index = (0..sides.len())
                .fold(0, |index, axis| index * sides[axis] + part[axis].start + at[axis + 1]);
            f32::from(Sequence::after(seed, index as u64).uniform() >= missing)
        }))
    }

    /// All of the mask.
    fn all(&self) -> Result<&[f32]> {
        if self.place == everything(&self.shape) {
            return Ok(&self.mask);
        }
        Err(self.no_mask(&everything(&self.shape)))
    }

    /// A part of the mask.
    fn cut(&self, part: &[Range<usize>]) -> Result<Vec<f32>> {
        let is_here = |(part, place): (&Range<usize>, &Range<usize>)| {
            place.start <= part.start && part.end <= place.end
        };
        if !part.iter().zip(&self.place).all(is_here) {
            return Err(self.no_mask(part));
        }
        let (channels, sides) = (self.shape[0], sides(&self.place));
        let part = region::window(&within(part, &self.place));
        let mut cut = vec![0.0; channels * region::positions(&part)];
        region::copy(channels, &sides, (&region::whole(&sides), &self.mask), (&part, &mut cut));
        Ok(cut)
    }

    fn no_mask(&self, part: &[Range<usize>]) -> Error {
        let place = &self.place;
        Error::argument("inpainting", format!("the mask is that of {place:?}, and not of {part:?}"))
    }
}

/// All pixels of images of a shape.
fn everything(shape: &[usize]) -> Region {
    whole(shape.get(1..).unwrap_or_default())
}

fn check_shape(shape: &[usize], found: &[usize]) -> Result<()> {
    let fits = !shape.is_empty()
        && found.len() == shape.len()
        && found[1..] == shape[1..]
        && (found[0] == shape[0] || found[0] == 1);
    if fits {
        return Ok(());
    }
    Err(Error::Shape {
        what: "the mask of inpainting".to_string(),
        expected: format!("{shape:?}, or the same with one channel, is expected"),
        found: found.to_vec(),
    })
}

/// Every image times the mask.
fn multiply(mask: &[f32], from: &[f32], to: &mut [f32]) {
    for (from, to) in from.chunks(mask.len()).zip(to.chunks_mut(mask.len())) {
        for ((to, from), mask) in to.iter_mut().zip(from).zip(mask) {
            *to = from * mask;
        }
    }
}

/// `(AᵀA + shift)⁻¹`, or with a shift of 0 the pseudo-inverse, sample by sample.
fn solve_in_place(mask: &[f32], images: &mut [f32], shift: f64) {
    for image in images.chunks_mut(mask.len().max(1)) {
        for (value, &mask) in image.iter_mut().zip(mask) {
            let eigenvalue = f64::from(mask).powi(2) + shift;
            // What is not measured is 0 in the solution of least norm.
            *value = if eigenvalue > 0.0 { (f64::from(*value) / eigenvalue) as f32 } else { 0.0 };
        }
    }
}

impl Physics for Inpainting {
    fn name(&self) -> &'static str {
        "inpainting"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        multiply(self.all()?, image, measurement);
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        Some(self)
    }

    fn reach(&self) -> Reach {
        Reach::Local(0)
    }
}

impl LinearPhysics for Inpainting {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        multiply(self.all()?, measurement, image);
        Ok(())
    }

    fn exact_squared_norm(&self) -> Option<f64> {
        let mask = self.all().ok()?.iter();
        Some(mask.map(|&mask| f64::from(mask).powi(2)).fold(0.0, f64::max))
    }

    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let solve = || {
            self.check_image(b)?;
            let mut solution = b.as_standard_layout().into_owned();
            solve_in_place(self.all()?, slice_mut(&mut solution), shift);
            Ok(solution)
        };
        Some(solve())
    }
}

impl WindowPhysics for Inpainting {
    fn apply_forward_window(
        &self,
        _batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        multiply(&self.cut(measurement)?, window, out);
        Ok(())
    }

    fn apply_adjoint_window(
        &self,
        _batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        multiply(&self.cut(image)?, window, out);
        Ok(())
    }

    fn solve_normal_window(
        &self,
        _batch: usize,
        image: &[Range<usize>],
        b: &[f32],
        shift: f64,
        out: &mut [f32],
    ) -> Option<Result<()>> {
        Some(self.cut(image).map(|mask| {
            out.copy_from_slice(b);
            solve_in_place(&mask, out, shift);
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_zero_in_the_pseudo_inverse() -> Result<()> {
        let mask = Array::from_shape_vec(vec![1, 1, 3], vec![1.0, 0.0, 0.5]).expect("three");
        let inpainting = Inpainting::new(&[1, 1, 3], &mask)?;
        let x = Array::from_shape_vec(vec![1, 1, 1, 3], vec![2.0, 3.0, 4.0]).expect("three");
        let b = inpainting.normal(&x)?;
        let solution = inpainting.solve_normal(&b, 0.0).expect("a closed form")?;
        assert_eq!(slice(&solution)[..], [2.0, 0.0, 4.0]);
        let shifted = inpainting.solve_normal(&(&b + &(&x * 0.5)), 0.5).expect("a closed form")?;
        assert_eq!(shifted, x);
        assert_eq!(inpainting.exact_squared_norm(), Some(1.0));
        Ok(())
    }

    #[test]
    fn a_mask_of_another_shape_is_refused() {
        let message = |mask: &[usize]| {
            let mask = Array::ones(mask);
            Inpainting::new(&[3, 4, 5], &mask).expect_err("refused").to_string()
        };
        assert!(message(&[1, 4, 4]).contains("[1, 4, 4]"));
        assert!(message(&[2, 4, 5]).contains("[3, 4, 5]"));
        assert!(message(&[4, 5]).contains("[4, 5]"));
    }

    #[test]
    fn parts_have_the_bits_of_the_whole() -> Result<()> {
        let shape = [2, 9, 7];
        let mask = Inpainting::random_mask(&shape, 0.4, 3)?;
        let whole = Inpainting::new(&shape, &mask)?;
        let place = [4..9, 2..6];
        let cut = Inpainting::random_mask_part(&shape, &place, 0.4, 3)?;
        assert_eq!(cut, crate::region::copied(&mask, &[0..1, 4..9, 2..6]));
        let part = Inpainting::of_part(&shape, &place, &cut)?;
        let image: Vec<f32> = (0..2 * 3 * 2).map(|i| i as f32 + 1.0).collect();
        let (mut one, mut other) = ([0.0; 12], [0.0; 12]);
        let within = [5..8, 3..5];
        part.forward_window(1, &within, &image, &mut one)?;
        whole.forward_window(1, &within, &image, &mut other)?;
        assert_eq!(one, other);
        assert!(one.contains(&0.0) && one.iter().any(|value| *value != 0.0));
        // Whatever is not here is refused.
        let error = part.forward_window(1, &[3..6, 3..5], &image, &mut one).expect_err("row 3");
        assert!(error.to_string().contains("[4..9, 2..6], and not of [3..6, 3..5]"), "{error}");
        assert!(part.forward(&Array::ones(vec![1, 2, 9, 7])).is_err());
        assert_eq!(part.exact_squared_norm(), None);
        assert!(Inpainting::of_part(&shape, &[4..10, 2..6], &cut).is_err());
        assert!(Inpainting::of_part(&shape, &[4..9, 2..7], &cut).is_err());
        Inpainting::of_part(&shape, &[0..0, 0..0], &Array::zeros(vec![1, 0, 0]))?;
        Ok(())
    }

    #[test]
    fn a_random_mask_leaves_out_the_part_that_is_asked_for() -> Result<()> {
        let mask = Inpainting::random_mask(&[3, 100, 100], 0.3, 7)?;
        assert_eq!(mask.shape(), [1, 100, 100]);
        assert!((mask.mean().expect("pixels") - 0.7).abs() < 0.02);
        assert_eq!(mask, Inpainting::random_mask(&[3, 100, 100], 0.3, 7)?);
        assert_ne!(mask, Inpainting::random_mask(&[3, 100, 100], 0.3, 8)?);
        assert_eq!(Inpainting::random_mask(&[1, 9], 1.0, 7)?.sum(), 0.0);
        for wrong in [-0.1, 1.1, f64::NAN] {
            let error = Inpainting::random_mask(&[1, 9], wrong, 7).expect_err("refused");
            assert!(error.to_string().contains("0 to 1 is expected"), "{error}");
        }
        assert!(Inpainting::random_mask(&[], 0.5, 7).is_err());
        Ok(())
    }
}
