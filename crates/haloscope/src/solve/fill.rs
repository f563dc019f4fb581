//! A start for every pixel, also for those that no operator sees.
//!
//! `Aᵀy` is dark where operators see little and zero where they see nothing: at the missing pixels of inpainting, at the
//! border of a blur that measures only its inside. A method of few iterations never recovers from that. Divided by
//! `AᵀA1`, the weight with which each pixel is seen, the adjoint becomes a mean of the data around each pixel; what is
//! not seen at all is interpolated from what is, coarse to fine and then smoothed until it is nearly harmonic.

use std::sync::Arc;

use rayon::prelude::*;

use super::fill_parts;
use crate::array::{Array, slice, slice_mut};
use crate::error::Result;
use crate::image::{Image, Layout, Space};

/// A pixel that is seen with less than this part of the largest weight is not seen: rounding errors of operators that
/// use Fourier transforms are below it.
const SEEN: f32 = 1e-4;

/// Operators whose answer to a constant image is weaker than this part of their answer to the adjoint do not see
/// constants: their weights mean nothing.
const SEES_CONSTANTS: f64 = 1e-2;

/// How often unseen pixels are replaced by the mean of their neighbours at the end, and at each coarser level.
pub(super) const SWEEPS: usize = 16;

/// `adjoint / weights` where pixels are seen, and an interpolation elsewhere; `None` if `weights` (`AᵀA1`) do not say
/// what is seen, because some are clearly negative or all are tiny. `square` is that of the adjoint, and `curvature` its product
/// with `AᵀA` of it.
pub(super) fn fill(
    adjoint: &Image,
    weights: &Image,
    square: f64,
    curvature: f64,
) -> Result<Option<Image>> {
    let (least, most) = weights.extremes()?;
    let (least, most) = (least.min(0.0), most.max(0.0));
    let gain = curvature / square.max(f64::MIN_POSITIVE);
    let is_weight = most.is_finite()
        && least >= -SEEN * most
        && f64::from(most) > SEES_CONSTANTS * gain
        && square > 0.0;
    if !is_weight {
        return Ok(None);
    }
    match adjoint.layout() {
        Layout::Replicated => {
            Ok(fill_whole(adjoint.local(), weights.local(), most).map(Image::from))
        }
        Layout::Sharded(space) => fill_part(space, adjoint, weights, most),
    }
}

/// This rank's part of the image, if all parts are finite; `most` is the largest weight.
fn fill_part(
    space: &Arc<Space>,
    adjoint: &Image,
    weights: &Image,
    most: f32,
) -> Result<Option<Image>> {
    let seen = weights.local().mapv(|weight| f32::from(weight > SEEN * most));
    let mut image = adjoint.clone();
    image.update(weights, |value, weight| {
        *value = if weight > SEEN * most { *value / weight } else { 0.0 };
    })?;
    fill_parts::interpolate(space, image.local_mut(), &seen)?;
    let is_finite = image.norm()?.is_finite();
    Ok(is_finite.then_some(image))
}

/// The image, if all of it is here and finite; `most` is the largest weight.
fn fill_whole(adjoint: &Array, weights: &Array, most: f32) -> Option<Array> {
    let sides = &adjoint.shape()[2..];
    let mut image = adjoint.as_standard_layout().into_owned();
    let weights = slice(weights);
    let plane: usize = sides.iter().product();
    let planes = slice_mut(&mut image).par_chunks_mut(plane).zip(weights.par_chunks(plane));
    planes.for_each(|(values, weights)| {
        let seen: Vec<bool> = weights.iter().map(|weight| *weight > SEEN * most).collect();
        for ((value, weight), seen) in values.iter_mut().zip(weights).zip(&seen) {
            *value = if *seen { *value / weight } else { 0.0 };
        }
        interpolate(values, &seen, sides);
    });
    image.iter().all(|value| value.is_finite()).then_some(image)
}

/// Gives the pixels that are not `seen` values between those of the pixels around them, which stay.
///
/// Each level has half the sides of the one before and the means of what is seen there, until everything is; from the
/// coarsest level back, what is missing is read off the next coarser one and smoothed.
fn interpolate(values: &mut [f32], seen: &[bool], sides: &[usize]) {
    if seen.iter().all(|seen| *seen) || !seen.iter().any(|seen| *seen) {
        return;
    }
    let coarse_sides: Vec<usize> = sides.iter().map(|side| side.div_ceil(2)).collect();
    let count: usize = coarse_sides.iter().product();
    let (mut sums, mut counts) = (vec![0.0_f32; count], vec![0.0_f32; count]);
    for (index, (value, seen)) in values.iter().zip(seen).enumerate() {
        if *seen {
            let at = parent(index, sides, &coarse_sides);
            sums[at] += value;
            counts[at] += 1.0;
        }
    }
    let known: Vec<bool> = counts.iter().map(|count| *count > 0.0).collect();
    let mut coarse: Vec<f32> =
        sums.iter().zip(&counts).map(|(sum, count)| sum / count.max(1.0)).collect();
    interpolate(&mut coarse, &known, &coarse_sides);
    for (index, (value, seen)) in values.iter_mut().zip(seen).enumerate() {
        if !seen {
            *value = coarse[parent(index, sides, &coarse_sides)];
        }
    }
    smooth(values, seen, sides);
}

/// The pixel of half the sides that a pixel is in.
fn parent(index: usize, sides: &[usize], coarse_sides: &[usize]) -> usize {
    let (mut rest, mut stride, mut at) = (index, 1, 0);
    for (side, coarse) in sides.iter().zip(coarse_sides).rev() {
        at += rest % side / 2 * stride;
        rest /= side;
        stride *= coarse;
    }
    at
}

/// Replaces unseen pixels by the means of their neighbours, all at once, [`SWEEPS`] times.
fn smooth(values: &mut [f32], seen: &[bool], sides: &[usize]) {
    let unseen: Vec<usize> = (0..values.len()).filter(|index| !seen[*index]).collect();
    let mut means = vec![0.0; unseen.len()];
    for _ in 0..SWEEPS {
        for (mean, index) in means.iter_mut().zip(&unseen) {
            *mean = mean_around(values, *index, sides);
        }
        for (mean, index) in means.iter().zip(&unseen) {
            values[*index] = *mean;
        }
    }
}

pub(super) fn mean_around(values: &[f32], index: usize, sides: &[usize]) -> f32 {
    let (mut stride, mut sum, mut count) = (1, 0.0, 0.0_f32);
    for side in sides.iter().rev() {
        let place = index / stride % side;
        if place > 0 {
            sum += values[index - stride];
            count += 1.0;
        }
        if place + 1 < *side {
            sum += values[index + stride];
            count += 1.0;
        }
        stride *= side;
    }
    if count > 0.0 { sum / count } else { values[index] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `interpolate` makes of an image where only some pixels are seen.
    fn filled(
        sides: &[usize],
        image: impl Fn(&[usize]) -> f32,
        seen: impl Fn(usize) -> bool,
    ) -> f32 {
        let truth = Array::from_shape_fn(sides, |at| image(ndarray::Dimension::slice(&at)));
        let seen: Vec<bool> = (0..truth.len()).map(seen).collect();
        let mut values = truth.clone().into_raw_vec_and_offset().0;
        for (value, seen) in values.iter_mut().zip(&seen) {
            *value = if *seen { *value } else { f32::NAN };
        }
        interpolate(&mut values, &seen, sides);
        values.iter().zip(&truth).fold(0.0, |worst: f32, (a, b)| {
            assert!(a.is_finite(), "every pixel gets a value");
            worst.max((a - b).abs())
        })
    }

    #[test]
    fn what_is_seen_stays_and_a_constant_is_found_from_one_pixel() {
        assert_eq!(filled(&[13, 7], |_| 3.0, |index| index == 40), 0.0);
        assert_eq!(filled(&[5, 9, 6], |_| -2.0, |index| index == 100), 0.0);
        assert_eq!(filled(&[6, 6], |at| at[0] as f32, |_| true), 0.0);
    }

    #[test]
    fn a_ramp_with_scattered_holes_is_found_again() {
        let ramp = |at: &[usize]| (at[0] + 2 * at[1]) as f32 / 100.0;
        let worst = filled(&[40, 30], ramp, |index| index * 7919 % 13 > 5);
        assert!(worst < 0.03, "{worst}");
    }

    #[test]
    fn a_border_takes_the_values_of_the_edge() {
        let image = |at: &[usize]| if at[1] < 16 { 0.2 } else { 0.8 };
        let inside = |index: usize| {
            let (row, column) = (index / 32, index % 32);
            (4..28).contains(&row) && (4..28).contains(&column)
        };
        assert!(filled(&[32, 32], image, inside) < 0.35);
    }
}
