//! How noisy an image is, from the image alone.

use ndarray::{Axis, Slice};

use crate::array::{Array, View};
use crate::error::{Error, Result};

/// The high-pass filter of Daubechies' wavelet with two vanishing moments: it sees no ramps, and keeps the variance of
/// white noise.
const HIGH_PASS: [f32; 4] = [-0.129_409_52, -0.224_143_87, 0.836_516_3, -0.482_962_9];

/// The median of the absolute value of a normal number of standard deviation 1.
const MEDIAN_OF_NORMAL: f64 = 0.674_489_750_196_081_7;

/// The standard deviation of white noise in a batch of images (batch, channel, spatial…), estimated by Donoho and
/// Johnstone's rule: the median of the finest wavelet coefficients that are diagonal to all sides, over 0.6745.
///
/// Edges and texture touch few of these coefficients, and the median passes over them; fine texture all over the image
/// is taken for noise. Coefficients that are exactly zero (a mask, a saturated sky) do not count. Sides shorter than 4
/// are not filtered. It is 0 if nothing is left.
///
/// ```
/// use haloscope::noise::{Noise, NoiseSource, level};
///
/// let mut image = ndarray::ArrayD::from_shape_fn(vec![1, 1, 64, 64], |at| at[3] as f32 / 64.0);
/// Noise::gaussian(0.05)?.add(&mut image, NoiseSource { seed: 1, operator: 0 })?;
/// assert!((level(&image)? - 0.05).abs() < 0.005);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn level(images: &View) -> Result<f64> {
    if images.ndim() < 3 || images.is_empty() {
        return Err(Error::Shape {
            what: "the image whose noise is estimated".into(),
            expected: "(batch, channel, spatial…) with at least one element is expected".into(),
            found: images.shape().to_vec(),
        });
    }
    let mut details = images.to_owned();
    for axis in 2..images.ndim() {
        if images.shape()[axis] >= HIGH_PASS.len() {
            details = high_pass(&details, Axis(axis));
        }
    }
    let mut sizes: Vec<f32> =
        details.iter().map(|detail| detail.abs()).filter(|size| *size > 0.0).collect();
    if sizes.is_empty() || sizes.len() == images.len() && images.shape()[2..].iter().all(|n| *n < 4)
    {
        return Ok(0.0);
    }
    let middle = sizes.len() / 2;
    let (_, median, _) = sizes.select_nth_unstable_by(middle, f32::total_cmp);
    Ok(f64::from(*median) / MEDIAN_OF_NORMAL)
}

/// The coefficients along one axis, every second one, so that the noise in them stays independent.
fn high_pass(image: &View, axis: Axis) -> Array {
    let count = (image.len_of(axis) - HIGH_PASS.len()) / 2 + 1;
    let mut shape = image.shape().to_vec();
    shape[axis.index()] = count;
    let mut details = Array::zeros(shape);
    for (tap, factor) in HIGH_PASS.into_iter().enumerate() {
        let from = tap as isize;
        let taken =
            image.slice_axis(axis, Slice::new(from, Some(from + 2 * count as isize - 1), 2));
        details.scaled_add(factor, &taken);
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{Noise, NoiseSource};
    use crate::phantom::{SheppLogan, Table, landscape};

    fn estimated(mut image: Array, sigma: f64) -> f64 {
        let source = NoiseSource { seed: 5, operator: 0 };
        Noise::gaussian(sigma).expect("a level").add(&mut image, source).expect("noise");
        level(&image).expect("a level")
    }

    #[test]
    fn the_noise_of_pictures_and_volumes_is_found_but_for_fine_texture() {
        let picture = landscape(128, 160).expect("a picture");
        let volume = SheppLogan::new(Table::Modified).with_points(1).draw(&[32, 40, 48]);
        let volume = volume.expect("a volume");
        for sigma in [0.03, 0.1, 0.3] {
            let (flat, deep) =
                (estimated(picture.clone(), sigma), estimated(volume.clone(), sigma));
            // Grass and leaves of the picture pass for noise of 0.025, the many edges of a small volume for more.
            for (what, found, texture) in [("a picture", flat, 0.025), ("a volume", deep, 0.06)] {
                let seen = sigma.hypot(texture);
                assert!(found > 0.95 * sigma && found < 1.05 * seen, "{sigma}: {found} of {what}");
            }
        }
    }

    #[test]
    fn it_follows_the_units_and_passes_over_what_is_masked() {
        let picture = landscape(96, 96).expect("a picture");
        let counts = estimated(picture.mapv(|value| value * 1000.0), 50.0);
        let values = estimated(picture, 0.05);
        assert!((counts / (1000.0 * values) - 1.0).abs() < 1e-3, "{counts} and {values}");
        let mut masked = landscape(96, 96).expect("a picture");
        let source = NoiseSource { seed: 5, operator: 0 };
        Noise::gaussian(0.1).expect("a level").add(&mut masked, source).expect("noise");
        masked.slice_axis_mut(Axis(2), Slice::from(..64)).fill(0.0);
        assert!((level(&masked).expect("a level") / 0.1 - 1.0).abs() < 0.2);
    }

    #[test]
    fn images_without_noise_or_of_a_few_pixels_have_none() {
        assert_eq!(level(&Array::from_elem(vec![1, 1, 20, 20], 3.0)), Ok(0.0));
        assert_eq!(level(&Array::from_elem(vec![1, 1, 2, 3], 3.0)), Ok(0.0));
        assert!(level(&Array::zeros(vec![3, 3])).is_err());
    }
}
