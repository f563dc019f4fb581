//! Metrics: how far an image is from its reference.
//!
//! Each function compares a batch (batch, channel, spatial…) with a reference of the same shape and
//! returns one number per image; [`mean`] averages over the batch. The caller always gives the range of
//! values, because a metric that guesses it from the data changes when the data does. Sums are those
//! of [`image`](crate::image): the result does not depend on the number of threads or ranks.

pub mod of_images;
mod ssim;

use crate::array::{View, row_of};
use crate::error::{Error, Result};
use crate::image::sum_of;

pub use ssim::{Border, Ssim};

/// The mean squared error, per image.
///
/// ```
/// use haloscope::metrics::mse;
/// use ndarray::ArrayD;
///
/// let (zeros, ones) = (ArrayD::zeros(vec![2, 1, 8, 8]), ArrayD::ones(vec![2, 1, 8, 8]));
/// assert_eq!(mse(&zeros, &ones)?, [1.0, 1.0]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn mse(image: &View, reference: &View) -> Result<Vec<f64>> {
    let row = row_of(reference);
    per_image("mse", image, reference, |image, reference| {
        mean_of(row, image, reference, |a, b| (a - b) * (a - b))
    })
}

/// The mean absolute error, per image.
///
/// ```
/// use haloscope::metrics::mae;
/// use ndarray::ArrayD;
///
/// let (zeros, halves) = (ArrayD::zeros(vec![1, 1, 8, 8]), ArrayD::from_elem(vec![1, 1, 8, 8], -0.5));
/// assert_eq!(mae(&zeros, &halves)?, [0.5]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn mae(image: &View, reference: &View) -> Result<Vec<f64>> {
    let row = row_of(reference);
    per_image("mae", image, reference, |image, reference| {
        mean_of(row, image, reference, |a, b| (a - b).abs())
    })
}

/// The squared error over the squared norm of the reference, `‖x − r‖² / ‖r‖²`, per image.
///
/// It is infinite where the reference is zero and the image is not, and 0 where both are zero.
///
/// ```
/// use haloscope::metrics::nmse;
/// use ndarray::ArrayD;
///
/// let (ones, twos) = (ArrayD::ones(vec![1, 1, 8, 8]), ArrayD::from_elem(vec![1, 1, 8, 8], 2.0));
/// assert_eq!(nmse(&ones, &twos)?, [0.25]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn nmse(image: &View, reference: &View) -> Result<Vec<f64>> {
    let row = row_of(reference);
    per_image("nmse", image, reference, |image, reference| {
        let error = mean_of(row, image, reference, |a, b| (a - b) * (a - b));
        if error == 0.0 { 0.0 } else { error / mean_of(row, reference, reference, |_, b| b * b) }
    })
}

/// The peak signal-to-noise ratio `10 log₁₀(range² / mse)` in decibels, per image; infinite for equal
/// images.
///
/// `data_range` is the difference of the largest and the smallest value that an image may have: 1 for
/// pictures from 0 to 1. Values are not clamped.
///
/// ```
/// use haloscope::metrics::psnr;
/// use ndarray::ArrayD;
///
/// let (zeros, tenths) = (ArrayD::zeros(vec![1, 1, 8, 8]), ArrayD::from_elem(vec![1, 1, 8, 8], 0.1));
/// assert!((psnr(&tenths, &zeros, 1.0)?[0] - 20.0).abs() < 1e-6);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn psnr(image: &View, reference: &View, data_range: f64) -> Result<Vec<f64>> {
    check_range("psnr", data_range)?;
    let errors = mse(image, reference)?;
    Ok(errors.iter().map(|error| 10.0 * (data_range * data_range / error).log10()).collect())
}

/// The structural similarity with the usual settings, per image: 1 for equal images.
///
/// [`Ssim`] says what is computed and takes other settings.
///
/// ```
/// use haloscope::metrics::ssim;
/// use ndarray::ArrayD;
///
/// let ramp = ArrayD::from_shape_fn(vec![1, 1, 32, 32], |at| at[3] as f32 / 31.0);
/// assert!((ssim(&ramp, &ramp, 1.0)?[0] - 1.0).abs() < 1e-12);
/// assert!(ssim(&ramp.mapv(|v| 1.0 - v), &ramp, 1.0)?[0] < 0.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn ssim(image: &View, reference: &View, data_range: f64) -> Result<Vec<f64>> {
    Ssim::new(data_range)?.per_image(image, reference)
}

/// The mean of a metric over a batch; NaN for an empty one.
///
/// ```
/// assert_eq!(haloscope::metrics::mean(&[30.0, 32.0]), 31.0);
/// ```
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// `metric` of each image of two batches, whose shapes are checked.
fn per_image(
    name: &'static str,
    image: &View,
    reference: &View,
    metric: impl Fn(&[f32], &[f32]) -> f64,
) -> Result<Vec<f64>> {
    let (shape, found) = (reference.shape(), image.shape());
    if shape != found || shape.len() < 3 || shape.contains(&0) {
        return Err(Error::Shape {
            what: format!("the image of {name}"),
            expected: format!(
                "the shape of the reference is {shape:?}; both must be the same \
                 (batch, channel, spatial…) with at least one element"
            ),
            found: found.to_vec(),
        });
    }
    let (image, reference) = (image.as_standard_layout(), reference.as_standard_layout());
    let (Some(image), Some(reference)) = (image.as_slice(), reference.as_slice()) else {
        return Err(Error::argument(name, "the arrays are not in standard layout"));
    };
    let len = image.len() / shape[0];
    Ok(image.chunks(len).zip(reference.chunks(len)).map(|(a, b)| metric(a, b)).collect())
}

fn mean_of(
    row: usize,
    image: &[f32],
    reference: &[f32],
    term: impl Fn(f64, f64) -> f64 + Sync,
) -> f64 {
    let sum = sum_of([image, reference], row, |[a, b]| term(f64::from(a), f64::from(b)));
    sum.value() / image.len() as f64
}

fn check_range(name: &'static str, data_range: f64) -> Result<()> {
    if data_range > 0.0 && data_range.is_finite() {
        return Ok(());
    }
    Err(Error::argument(
        name,
        format!("the data range is {data_range}; it must be positive, 1 for values from 0 to 1"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use ndarray::ArrayD;

    #[test]
    fn each_image_of_a_batch_has_its_own_number() {
        let reference: Array = ArrayD::zeros(vec![3, 2, 5, 7]);
        let image = Array::from_shape_fn(vec![3, 2, 5, 7], |at| at[0] as f32);
        assert_eq!(mse(&image, &reference).expect("same shapes"), [0.0, 1.0, 4.0]);
        assert_eq!(mae(&image, &reference).expect("same shapes"), [0.0, 1.0, 2.0]);
        let decibels = psnr(&image, &reference, 2.0).expect("same shapes");
        assert_eq!((decibels[0], decibels[2]), (f64::INFINITY, 0.0));
        assert_eq!(nmse(&image, &reference).expect("same shapes")[..2], [0.0, f64::INFINITY]);
    }

    #[test]
    fn layout_of_memory_does_not_matter() {
        let a = Array::from_shape_fn(vec![1, 2, 5, 7], |at| (at[1] * 3 + at[2] * 5 + at[3]) as f32);
        let turned = a.clone().permuted_axes(vec![0, 1, 3, 2]);
        let copied = turned.as_standard_layout().into_owned();
        let zeros = Array::zeros(turned.raw_dim());
        assert_eq!(mse(&turned, &zeros), mse(&copied, &zeros));
    }

    #[test]
    fn different_shapes_and_ranges_without_extent_are_refused() {
        let a = Array::zeros(vec![1, 1, 4, 4]);
        let error = mse(&a, &Array::zeros(vec![1, 1, 4, 5])).expect_err("shapes differ");
        assert!(error.to_string().contains("[1, 1, 4, 5]"), "{error}");
        for range in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(psnr(&a, &a, range).is_err(), "{range}");
        }
    }
}
