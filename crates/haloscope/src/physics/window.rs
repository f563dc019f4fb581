//! Operators on parts of the image: what ranks that hold parts of it call.
//!
//! An operator on a window knows neither ranks nor messages. It says what it reads and computes its part from just that,
//! with the bits that the whole operator gives there: sums in the same order, and whatever depends on a size, such as a
//! method or a block, taken from the whole.

use std::ops::Range;

use super::{LinearPhysics, region};
use crate::error::{Error, Result};

/// A linear operator that can work on parts of the image.
///
/// Parts are boxes along the spatial axes, cut anywhere, in the coordinates of the whole image and the whole measurement; channels and
/// images of a batch are always all there. A part is a list of `Range<usize>`. What is read for it is a window: a list of
/// `Range<isize>`, which reaches beyond an end (below 0 or past the side) only where the array begins again at its other end,
/// so that a position counts modulo the side. No range of a window is longer than the side. Values are contiguous in the order
/// (image, channel, spatial…), and an empty part or window has none.
///
/// Without the functions that say which parts belong together, an operator works pixel by pixel. An implementation also
/// [`Physics::as_window`](super::Physics::as_window) with `Some(self)`.
///
/// ```
/// use haloscope::physics::{Blur, Padding, Physics, WindowPhysics, kernels};
///
/// let blur = Blur::new(&[1, 8, 8], &kernels::uniform(&[3, 3])?, Padding::Circular)?;
/// let window = blur.as_window().expect("a blur is local");
/// // The upper half needs the last row of the image as well, and a row of the lower half.
/// let part = window.measurement_region(&[0..4, 0..8]);
/// assert_eq!(window.image_reads(&part), [-1..5, 0..8]);
/// let mut measured = vec![0.0; 4 * 8];
/// window.forward_window(1, &part, &vec![1.0; 6 * 8], &mut measured)?;
/// assert!(measured.iter().all(|value| (value - 1.0).abs() < 1e-6));
/// # Ok::<(), haloscope::Error>(())
/// ```
pub trait WindowPhysics: LinearPhysics {
    /// The part of the measurement that belongs to a part of the image: if parts tile the image, these tile the measurement.
    fn measurement_region(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        image.to_vec()
    }

    /// What of the image this part of the measurement is computed from.
    fn image_reads(&self, measurement: &[Range<usize>]) -> Vec<Range<isize>> {
        region::window(measurement)
    }

    /// What of the measurement `Aᵀ` on this part of the image is computed from.
    fn measurement_reads(&self, image: &[Range<usize>]) -> Vec<Range<isize>> {
        region::window(image)
    }

    /// Writes this part of `A x`, over whatever `out` holds, from the window [`image_reads`](Self::image_reads) of x.
    ///
    /// The part lies within the measurement and is not empty, and both slices have the right length: callers go through
    /// [`forward_window`](Self::forward_window). By default it is [`apply_forward`](super::Physics::apply_forward), for operators that do
    /// the same to every pixel, of any number.
    fn apply_forward_window(
        &self,
        batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let _ = measurement;
        self.apply_forward(batch, window, out)
    }

    /// Writes this part of `Aᵀ y`, over whatever `out` holds, from the window
    /// [`measurement_reads`](Self::measurement_reads) of y, as [`apply_forward_window`](Self::apply_forward_window) does.
    fn apply_adjoint_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let _ = image;
        self.apply_adjoint(batch, window, out)
    }

    /// Whether parts have the bits of the whole operator. If not, they still have the same bits however the image is cut, and
    /// differ from the whole operator by rounding.
    fn window_bits_agree(&self) -> bool {
        true
    }

    /// Writes this part of the solution of `(AᵀA + shift) x = b` from the same part of `b`, with the bits of
    /// [`solve_normal`](LinearPhysics::solve_normal); `None`, with nothing written, if the solution there depends on other
    /// parts, or has no closed form.
    fn solve_normal_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        b: &[f32],
        shift: f64,
        out: &mut [f32],
    ) -> Option<Result<()>> {
        let _ = (batch, image, b, shift, out);
        None
    }

    /// Writes this part of `A x` from the window [`image_reads`](Self::image_reads) of x.
    ///
    /// # Errors
    /// If the part is not one of the measurement, or a slice has another length than it needs.
    fn forward_window(
        &self,
        batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let (image, measured) = (self.image_shape(), self.measurement_shape());
        check_part(self.name(), "measurement", measured, measurement)?;
        let expected = batch * measured[0] * region::positions(&region::window(measurement));
        check_len(self.name(), "the part of the measurement", expected, out.len())?;
        let expected = batch * image[0] * region::positions(&self.image_reads(measurement));
        check_len(self.name(), "the window of the image", expected, window.len())?;
        if out.is_empty() {
            return Ok(());
        }
        self.apply_forward_window(batch, measurement, window, out)
    }

    /// Writes this part of `Aᵀ y` from the window [`measurement_reads`](Self::measurement_reads) of y.
    ///
    /// # Errors
    /// If the part is not one of the image, or a slice has another length than it needs.
    fn adjoint_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let (whole, measured) = (self.image_shape(), self.measurement_shape());
        check_part(self.name(), "image", whole, image)?;
        let expected = batch * whole[0] * region::positions(&region::window(image));
        check_len(self.name(), "the part of the image", expected, out.len())?;
        let expected = batch * measured[0] * region::positions(&self.measurement_reads(image));
        check_len(self.name(), "the window of the measurement", expected, window.len())?;
        if out.is_empty() {
            return Ok(());
        }
        self.apply_adjoint_window(batch, image, window, out)
    }
}

/// Refuses a part that is empty or does not lie within an array of (channel, spatial…).
pub(super) fn check_restriction(
    operator: &str,
    shape: &[usize],
    part: &[Range<usize>],
) -> Result<()> {
    check_part(operator, "image", shape, part)?;
    if part.iter().any(Range::is_empty) {
        let reason = format!("the part of the image is {part:?}; no range may be empty");
        return Err(Error::argument(operator, reason));
    }
    Ok(())
}

/// Refuses a part that does not lie within an array of (channel, spatial…).
fn check_part(operator: &str, role: &str, shape: &[usize], part: &[Range<usize>]) -> Result<()> {
    let sides = shape.get(1..).unwrap_or_default();
    let within =
        |(range, &side): (&Range<usize>, &usize)| range.start <= range.end && range.end <= side;
    if part.len() == sides.len() && part.iter().zip(sides).all(within) {
        return Ok(());
    }
    let reason =
        format!("the part of the {role} is {part:?}; ranges within {sides:?} are expected");
    Err(Error::argument(operator, reason))
}

fn check_len(operator: &str, what: &str, expected: usize, found: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::argument(operator, format!("{what} has {found} values; {expected} are expected")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::Identity;

    #[test]
    fn parts_beyond_the_image_and_slices_of_another_length_are_refused() {
        let identity = Identity::new(&[1, 4, 6]);
        let mut out = [0.0; 6];
        let mut message = |part: &[Range<usize>], window: &[f32]| {
            let refused = identity.forward_window(1, part, window, &mut out).expect_err("refused");
            refused.to_string()
        };
        assert!(message(&[3..5, 0..3], &[0.0; 6]).contains("[3..5, 0..3]; ranges within [4, 6]"));
        assert!(message(&[0..1, 0..2, 0..3], &[0.0; 6]).contains("[0..1, 0..2, 0..3]"));
        assert!(message(&[0..1, 0..6], &[0.0; 5]).contains("5 values; 6 are expected"));
        assert!(message(&[0..2, 0..6], &[0.0; 12]).contains("6 values; 12 are expected"));
        assert!(identity.adjoint_window(1, &[0..2, 0..7], &[0.0; 6], &mut out).is_err());
        assert!(identity.adjoint_window(1, &[2..2, 0..6], &[], &mut []).is_ok());
    }
}
