//! How blurred an image is, from its sharpest edges.

use crate::array::View;

/// How much the image is smoothed before its edges are looked at, against noise, and once more to compare with; in pixels.
const SMOOTHED: (f64, f64) = (1.0, 2.0);

/// Edges are the pixels with the steepest slopes: this part of all.
const EDGES: f64 = 0.01;

/// Of the widths of edges, this part is sharper: soft edges (shadows, curved surfaces) say nothing of the blur.
const SHARPEST: f64 = 0.3;

/// The standard deviation, in pixels, of the Gaussian that an image (batch, channel, height, width) seems to be blurred
/// with, estimated from how much its steepest slopes lose when it is smoothed further (Zhuo and Sim, "Defocus map
/// estimation from a single image", 2011). `None` for images without edges, of other axes, or too small.
///
/// A slope of an ideal edge that was blurred by σ and smoothed by `s` is proportional to `1 / √(σ² + s²)`, so that the ratio
/// of two slopes gives σ. Blurs of other shapes give a Gaussian of about their width.
#[must_use]
pub fn gaussian_width(image: &View) -> Option<f64> {
    let &[_, channels, height, width] = image.shape() else { return None };
    if height < 16 || width < 16 || image.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut gray = vec![0.0; height * width];
    for (index, value) in image.index_axis(ndarray::Axis(0), 0).iter().enumerate() {
        gray[index % (height * width)] += f64::from(*value) / channels as f64;
    }
    let (little, more) = SMOOTHED;
    let slopes = |sigma: f64| slopes(&smoothed(&gray, height, width, sigma), height, width);
    let (steep, flat) = (slopes(little), slopes(more));
    let mut order: Vec<f64> = steep.clone();
    let count = ((order.len() as f64 * EDGES).ceil() as usize).clamp(1, order.len() - 1);
    let at = order.len() - count;
    let (_, limit, _) = order.select_nth_unstable_by(at, f64::total_cmp);
    let limit = *limit;
    if limit <= 0.0 {
        return None;
    }
    let mut widths: Vec<f64> = (steep.iter().zip(&flat))
        .filter(|(steep, flat)| **steep >= limit && **flat > 0.0)
        .filter_map(|(steep, flat)| {
            let ratio = (steep / flat).powi(2);
            // No ratio of an edge is beyond that of a perfectly sharp one.
            (ratio > 1.0)
                .then(|| ((more * more - ratio * little * little) / (ratio - 1.0)).max(0.0).sqrt())
        })
        .collect();
    if widths.is_empty() {
        return None;
    }
    let index = (widths.len() as f64 * SHARPEST) as usize;
    Some(*widths.select_nth_unstable_by(index, f64::total_cmp).1)
}

/// The length of the gradient at each pixel inside.
fn slopes(values: &[f64], height: usize, width: usize) -> Vec<f64> {
    let mut slopes = Vec::with_capacity(values.len());
    // The outermost pixels are smoothed with what is not there.
    for row in 8..height - 8 {
        for column in 8..width - 8 {
            let at = row * width + column;
            slopes.push(
                (values[at + 1] - values[at - 1]).hypot(values[at + width] - values[at - width]),
            );
        }
    }
    slopes
}

/// Smoothed by a Gaussian along both sides; edges are repeated.
fn smoothed(values: &[f64], height: usize, width: usize, sigma: f64) -> Vec<f64> {
    let reach = (4.0 * sigma).ceil() as isize;
    let weight = |d: isize| (-0.5 * (d as f64 / sigma).powi(2)).exp();
    let total: f64 = (-reach..=reach).map(weight).sum();
    let along = |values: &[f64], stride: usize, side: usize| -> Vec<f64> {
        (0..values.len())
            .map(|at| {
                let place = (at / stride % side) as isize;
                let sum: f64 = (-reach..=reach)
                    .map(|d| {
                        let there = (place + d).clamp(0, side as isize - 1) - place;
                        weight(d) * values[(at as isize + there * stride as isize) as usize]
                    })
                    .sum();
                sum / total
            })
            .collect()
    };
    along(&along(values, 1, width), width, height)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::noise::{Noise, NoiseSource};

    /// Squares of several grays, blurred, with noise.
    fn squares(sigma: f64, noise: f64) -> Array {
        let (height, width) = (96, 110);
        let sharp: Vec<f64> = (0..height * width)
            .map(|at| f64::from(u8::from((at / width / 24 + at % width / 22) % 2 == 0)) * 0.6 + 0.2)
            .collect();
        let blurred = if sigma > 0.0 { smoothed(&sharp, height, width, sigma) } else { sharp };
        let values = blurred.into_iter().map(|value| value as f32).collect();
        let mut image = Array::from_shape_vec(vec![1, 1, height, width], values).expect("an image");
        let source = NoiseSource { seed: 2, operator: 0 };
        Noise::gaussian(noise).expect("noise").add(&mut image, source).expect("noise");
        image
    }

    #[test]
    fn the_width_of_a_gaussian_is_found_in_noise() {
        for sigma in [1.0, 2.0, 3.5] {
            for noise in [0.0, 0.01] {
                let width = gaussian_width(&squares(sigma, noise)).expect("edges");
                assert!((width / sigma - 1.0).abs() < 0.25, "{sigma} {noise}: {width}");
            }
        }
        assert!(gaussian_width(&squares(0.0, 0.0)).expect("edges") < 0.7);
    }

    #[test]
    fn flat_and_small_images_have_no_width() {
        assert_eq!(gaussian_width(&Array::ones(vec![1, 3, 40, 40])), None);
        assert_eq!(gaussian_width(&Array::ones(vec![1, 1, 8, 40])), None);
        assert_eq!(gaussian_width(&Array::ones(vec![1, 1, 20, 20, 20])), None);
    }
}
