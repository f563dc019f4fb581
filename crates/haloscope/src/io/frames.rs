//! Flat and dark frames of a detector: from counts to the part of the beam that arrives, and to line integrals.

use ndarray::{IxDyn, Zip};

use crate::array::{Array, View};
use crate::error::{Error, Result};

/// Less of a beam than this cannot be told from none.
const LEAST: f32 = 1e-6;

/// The part of the beam that arrives: (counts − dark) / (flat − dark).
///
/// `flat` is a frame without the object and `dark` one without the beam, each with the last axes of `counts`. A
/// detector element that sees no beam tells nothing: it counts as seeing all of it.
///
/// ```
/// use haloscope::io::frames::{line_integrals, transmission};
/// use ndarray::ArrayD;
///
/// let counts = ArrayD::from_elem(vec![1, 1, 4, 8], 110.0); // (batch, channel, view, bin)
/// let flat = ArrayD::from_elem(vec![8], 210.0);
/// let dark = ArrayD::from_elem(vec![8], 10.0);
/// let integrals = line_integrals(transmission(counts, &flat, Some(&dark))?);
/// assert!((integrals[[0, 0, 3, 7]] - 2_f32.ln()).abs() < 1e-6);
/// # Ok::<(), haloscope::Error>(())
/// ```
///
/// # Errors
/// If a frame has not the last axes of the counts.
pub fn transmission(counts: Array, flat: &View, dark: Option<&View>) -> Result<Array> {
    let zeros = Array::zeros(flat.raw_dim());
    let dark = dark.unwrap_or(&zeros);
    check_frame("flat", flat, &counts)?;
    let counts = subtract_dark(counts, dark)?;
    let beam = flat - dark;
    let part = |counts: f32, beam: f32| if beam > 0.0 { counts / beam } else { 1.0 };
    each_frame(counts, &beam, part)
}

/// Counts without those that come without a beam; `dark` is one frame, with the last axes of `counts`.
///
/// # Errors
/// If the frame has not the last axes of the counts.
pub fn subtract_dark(counts: Array, dark: &View) -> Result<Array> {
    check_frame("dark", dark, &counts)?;
    each_frame(counts, dark, |counts, dark| counts - dark)
}

/// The integrals of the attenuation along each ray: −ln of the part that arrives, where less than one in 10⁶ counts as
/// that.
#[must_use]
pub fn line_integrals(transmission: Array) -> Array {
    transmission.mapv_into(|part| -part.max(LEAST).ln())
}

fn check_frame(name: &'static str, frame: &View, counts: &View) -> Result<()> {
    if frame.ndim() <= counts.ndim() && counts.shape().ends_with(frame.shape()) {
        return Ok(());
    }
    Err(Error::Shape {
        what: format!("the {name} frame"),
        expected: format!("it has the last sides of measurements of shape {:?}", counts.shape()),
        found: frame.shape().to_vec(),
    })
}

/// Frames of one shape, one after the other, with another.
fn each_frame(mut counts: Array, frame: &View, with: impl Fn(f32, f32) -> f32) -> Result<Array> {
    let frame = frame.broadcast(IxDyn(counts.shape()));
    let Some(frame) = frame else {
        return Err(Error::argument("frames", "they have not the sides of the measurements"));
    };
    Zip::from(&mut counts).and(&frame).for_each(|counts, &frame| *counts = with(*counts, frame));
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_beam_leaves_is_told_from_dark_and_dead_elements() {
        let counts = Array::from_shape_vec(vec![2, 3], vec![60.0, 10.0, 5.0, 110.0, 0.0, 7.0]);
        let flat = Array::from_shape_vec(vec![3], vec![110.0, 110.0, 9.0]).expect("three");
        let dark = Array::from_shape_vec(vec![3], vec![10.0, 10.0, 9.0]).expect("three");
        let part = transmission(counts.expect("six"), &flat, Some(&dark)).expect("one shape");
        assert_eq!(part.iter().copied().collect::<Vec<_>>(), [0.5, 0.0, 1.0, 1.0, -0.1, 1.0]);
        let integrals = line_integrals(part);
        assert!((integrals[[0, 1]] - 1e6_f32.ln()).abs() < 1e-5);
        assert_eq!(integrals[[1, 2]], 0.0);
    }

    #[test]
    fn frames_of_another_size_are_refused_with_both() {
        let error = transmission(Array::zeros(vec![2, 3]), &Array::zeros(vec![2]), None);
        let message = error.expect_err("two and three").to_string();
        assert!(message.contains("flat") && message.contains("[2, 3]"), "{message}");
    }
}
