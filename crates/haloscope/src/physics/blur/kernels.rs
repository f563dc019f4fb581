//! Kernels to blur with, as arrays (1, 1, spatial…).
//!
//! Gaussian, bilinear, bicubic and sinc kernels are those of deepinv's `gaussian_blur`, `bilinear_filter`,
//! `bicubic_filter` and `sinc_filter`, computed in f64. All of them sum to 1. An array of one's own is
//! a kernel as it is; [`normalised`] makes it sum to 1.

use std::f64::consts::{PI, SQRT_2};

use ndarray::{ArrayD, Dimension, IxDyn};

use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::random::Sequence;

/// A Gaussian of given standard deviations, (height, width) or (depth, height, width), in samples.
///
/// In two dimensions it is turned by `angle` degrees; in three, about the first of deepinv's axes, x.
/// Its side is `2 ⌊σ / 0.3 + 1⌋ + 1` on every axis, with the greatest σ.
///
/// ```
/// use haloscope::physics::kernels;
///
/// let kernel = kernels::gaussian(&[20.5, 8.0], 30.0)?;
/// assert_eq!(kernel.shape(), [1, 1, 139, 139]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn gaussian(sigma: &[f64], angle: f64) -> Result<Array> {
    check_sigma(sigma)?;
    let greatest = sigma.iter().copied().fold(0.0, f64::max);
    let side = 2.0 * (greatest / 0.3 + 1.0).floor() + 1.0;
    if side > 1e5 {
        return Err(Error::argument(
            GAUSSIAN,
            format!("σ is {greatest}; at most 15000 is expected"),
        ));
    }
    gaussian_of_size(&vec![side as usize; sigma.len()], sigma, [angle, 0.0, 0.0])
}

/// A Gaussian on a given number of samples.
///
/// In two dimensions the first angle turns it in the plane and the others are not used; in three they
/// turn it about x, y and z, in this order, as deepinv does. Angles are in degrees.
pub fn gaussian_of_size(size: &[usize], sigma: &[f64], angles: [f64; 3]) -> Result<Array> {
    check_sigma(sigma)?;
    if size.len() != sigma.len() || size.contains(&0) {
        let reason = format!(
            "the size is {size:?} for σ {sigma:?}; as many samples, at least 1, as standard deviations are expected"
        );
        return Err(Error::argument(GAUSSIAN, reason));
    }
    if let Some(angle) = angles.iter().find(|angle| !angle.is_finite()) {
        return Err(Error::argument(
            GAUSSIAN,
            format!("the angle is {angle}; degrees are expected"),
        ));
    }
    let rotation = rotation(size.len(), angles);
    // Coordinates in the order x, y, z, which is that of the rotation; sizes and σ are the other way round.
    let axes = size.len();
    let kernel = kernel_from(size, |place| {
        let mut coordinates = [0.0; 3];
        for (axis, coordinate) in coordinates[..axes].iter_mut().enumerate() {
            let from_end = axes - 1 - axis;
            *coordinate = place[from_end] as f64 - (size[from_end] as f64 - 1.0) / 2.0;
        }
        let exponent: f64 = (0..axes)
            .map(|row| {
                let turned: f64 = (0..axes).map(|k| rotation[row][k] * coordinates[k]).sum();
                (turned / sigma[axes - 1 - row]).powi(2)
            })
            .sum();
        (-0.5 * exponent).exp()
    });
    normalised(&kernel)
}

/// The samples of a square of 10,000.
const MOST_SAMPLES: f64 = 1e8;

/// A box: the mean over `size` samples, (height, width) or (depth, height, width).
pub fn uniform(size: &[usize]) -> Result<Array> {
    if !(2..=3).contains(&size.len()) || size.contains(&0) {
        let reason = format!("the size is {size:?}; two or three sides of at least 1 are expected");
        return Err(Error::argument("uniform kernel", reason));
    }
    if size.iter().map(|side| *side as f64).product::<f64>() > MOST_SAMPLES {
        let reason = format!("the size is {size:?}; at most {MOST_SAMPLES:e} samples are possible");
        return Err(Error::argument("uniform kernel", reason));
    }
    normalised(&kernel_from(size, |_| 1.0))
}

/// The blur of a camera that moves in a straight line: `length` samples at `angle` degrees,
/// counter-clockwise from the rows' direction.
pub fn straight_motion(length: f64, angle: f64) -> Result<Array> {
    if !(length > 0.0 && length <= 1e4 && angle.is_finite()) {
        let reason = format!(
            "the length is {length} and the angle {angle}; a length in (0, 10000] and an angle in degrees are \
             expected"
        );
        return Err(Error::argument(MOTION, reason));
    }
    let side = 2 * (length / 2.0).ceil() as usize + 1;
    let (sin, cos) = angle.to_radians().sin_cos();
    let steps = (8.0 * length).ceil() as usize;
    let path = (0..=steps).map(|i| {
        let along = length * (i as f64 / steps as f64 - 0.5);
        (-along * sin, along * cos)
    });
    from_path(side, path)
}

/// The blur of a camera that shakes: a smooth random path in a square of `side` samples.
///
/// Each coordinate is a sum of five sines of 1 to 5 half periods with normal amplitudes that fall with
/// the frequency, scaled so that the path just fits. The same seed gives the same kernel everywhere.
pub fn random_motion(side: usize, seed: u64) -> Result<Array> {
    if !(3..=10_000).contains(&side) {
        let reason = format!("the side is {side}; 3 to 10000 samples are expected");
        return Err(Error::argument(MOTION, reason));
    }
    let mut random = Sequence::new(seed);
    let mut coordinate = || {
        let terms: Vec<(f64, f64)> = (1..=5)
            .map(|n| (random.normal() / f64::from(n), random.uniform() * 2.0 * PI))
            .collect();
        move |t: f64| -> f64 {
            let frequency = (1..).map(f64::from);
            let sines = terms.iter().zip(frequency);
            sines.map(|((amplitude, phase), n)| amplitude * (PI * n * t + phase).sin()).sum()
        }
    };
    let (y, x) = (coordinate(), coordinate());
    let steps = 16 * side;
    let mut path: Vec<(f64, f64)> =
        (0..=steps).map(|i| i as f64 / steps as f64).map(|t| (y(t), x(t))).collect();
    let count = path.len() as f64;
    let centre =
        path.iter().fold((0.0, 0.0), |sum, at| (sum.0 + at.0 / count, sum.1 + at.1 / count));
    let reach = path
        .iter()
        .map(|at| (at.0 - centre.0).abs().max((at.1 - centre.1).abs()))
        .fold(f64::MIN_POSITIVE, f64::max);
    let scale = (side as f64 - 1.0) / 2.0 / reach;
    for at in &mut path {
        *at = ((at.0 - centre.0) * scale, (at.1 - centre.1) * scale);
    }
    from_path(side, path.into_iter())
}

/// The kernel of bilinear downsampling by a factor, of `2 factor` samples a side.
pub fn bilinear(factor: usize) -> Result<Array> {
    check_factor("bilinear kernel", factor)?;
    let taps = taps(2 * factor, |i| 1.0 - ((i + 0.5 - factor as f64) / factor as f64).abs());
    product(&taps)
}

/// The kernel of bicubic downsampling by a factor, of `4 factor` samples a side (`a = −½`).
pub fn bicubic(factor: usize) -> Result<Array> {
    check_factor("bicubic kernel", factor)?;
    let a = -0.5;
    let taps = taps(4 * factor, |i| {
        let x = ((i + 0.5 - 2.0 * factor as f64) / factor as f64).abs();
        if x <= 1.0 {
            (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0
        } else if x < 2.0 {
            a * x.powi(3) - 5.0 * a * x.powi(2) + 8.0 * a * x - 4.0 * a
        } else {
            0.0
        }
    });
    product(&taps)
}

/// The sinc kernel of downsampling by a factor, of `length` samples a side, in a Kaiser window.
///
/// Downsampling takes a length of `4 factor`.
pub fn sinc(factor: usize, length: usize) -> Result<Array> {
    check_factor("sinc kernel", factor)?;
    if !(1..=10_000).contains(&length) {
        let reason = format!("the length is {length}; 1 to 10000 samples are expected");
        return Err(Error::argument("sinc kernel", reason));
    }
    let factor = factor as f64;
    let half = (length as f64 - 1.0) / 2.0;
    // The width of the transition band, and the window's shape for it.
    let attenuation = 2.285 * (length as f64 - 1.0) * PI * (2.0 * (2.0 - SQRT_2) / factor) + 7.95;
    let beta = if attenuation <= 21.0 {
        0.0
    } else if attenuation <= 50.0 {
        0.5842 * (attenuation - 21.0).powf(0.4) + 0.07886 * (attenuation - 21.0)
    } else {
        0.1102 * (attenuation - 8.7)
    };
    let taps = taps(length, |i| {
        let x = PI * (i - half) / factor;
        let sinc = if x == 0.0 { 1.0 } else { x.sin() / x };
        let window = if length == 1 { 0.0 } else { (1.0 - ((i - half) / half).powi(2)).max(0.0) };
        sinc * bessel_i0(beta * window.sqrt()) / bessel_i0(beta)
    });
    product(&taps)
}

/// The kernel divided by its sum.
pub fn normalised(kernel: &View) -> Result<Array> {
    let sum: f64 = kernel.iter().map(|&value| f64::from(value)).sum();
    if !sum.is_finite() || sum.abs() < 1e-30 {
        let reason = format!("its samples sum to {sum}; a sum other than 0 is expected");
        return Err(Error::argument("kernel", reason));
    }
    Ok(kernel.mapv(|value| (f64::from(value) / sum) as f32))
}

const GAUSSIAN: &str = "gaussian kernel";
const MOTION: &str = "motion kernel";

fn check_sigma(sigma: &[f64]) -> Result<()> {
    let positive = sigma.iter().all(|sigma| sigma.is_finite() && *sigma > 0.0);
    if (2..=3).contains(&sigma.len()) && positive {
        return Ok(());
    }
    let reason = format!("σ is {sigma:?}; two or three positive numbers are expected");
    Err(Error::argument(GAUSSIAN, reason))
}

fn check_factor(what: &'static str, factor: usize) -> Result<()> {
    if (1..=1000).contains(&factor) {
        return Ok(());
    }
    Err(Error::argument(what, format!("the factor is {factor}; 1 to 1000 is expected")))
}

/// The matrix that takes (x, y, z) to the axes of the Gaussian.
fn rotation(axes: usize, angles: [f64; 3]) -> [[f64; 3]; 3] {
    let [(s0, c0), (s1, c1), (s2, c2)] = angles.map(|angle| angle.to_radians().sin_cos());
    if axes == 2 {
        return [[c0, -s0, 0.0], [s0, c0, 0.0], [0.0; 3]];
    }
    [
        [c2 * c1, c2 * s1 * s0 - s2 * c0, c2 * s1 * c0 + s2 * s0],
        [s2 * c1, s2 * s1 * s0 + c2 * c0, s2 * s1 * c0 - c2 * s0],
        [-s1, c1 * s0, c1 * c0],
    ]
}

/// An array (1, 1, size…) of a function of the place.
fn kernel_from(size: &[usize], value: impl Fn(&[usize]) -> f64) -> Array {
    let shape: Vec<usize> = [1, 1].iter().chain(size).copied().collect();
    let values = ArrayD::from_shape_fn(IxDyn(&shape), |place| value(&place.slice()[2..]));
    // In f32 only now, so that a sum of many small values is exact.
    let greatest = values.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(value.abs()));
    values.mapv(|value| (value / greatest) as f32)
}

/// Weights of the samples that a path of equally long moments passes, each moment shared by the four
/// samples around it.
fn from_path(side: usize, path: impl Iterator<Item = (f64, f64)>) -> Result<Array> {
    let mut kernel = vec![0.0; side * side];
    let middle = (side as f64 - 1.0) / 2.0;
    let end = side as f64 - 1.0;
    for (y, x) in path {
        let (y, x) = ((y + middle).clamp(0.0, end), (x + middle).clamp(0.0, end));
        let (row, column) = (y as usize, x as usize);
        let (dy, dx) = (y.fract(), x.fract());
        for (i, wy) in [(row, 1.0 - dy), ((row + 1).min(side - 1), dy)] {
            for (j, wx) in [(column, 1.0 - dx), ((column + 1).min(side - 1), dx)] {
                kernel[i * side + j] += wy * wx;
            }
        }
    }
    normalised(&kernel_from(&[side, side], |place| kernel[place[0] * side + place[1]]))
}

fn taps(len: usize, tap: impl Fn(f64) -> f64) -> Vec<f64> {
    (0..len).map(|i| tap(i as f64)).collect()
}

/// The square kernel of the same taps along both axes.
fn product(taps: &[f64]) -> Result<Array> {
    normalised(&kernel_from(&[taps.len(); 2], |place| taps[place[0]] * taps[place[1]]))
}

/// The modified Bessel function of order 0, by its series, all terms of which are positive.
fn bessel_i0(x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
    while term > 1e-17 * sum {
        term *= (x / 2.0 / k).powi(2);
        sum += term;
        k += 1.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builder_sums_to_one() -> Result<()> {
        let kernels = [
            gaussian(&[1.0, 3.0], 10.0)?,
            gaussian(&[1.0, 0.5, 2.0], 0.0)?,
            uniform(&[2, 3, 4])?,
            straight_motion(9.0, 30.0)?,
            random_motion(21, 7)?,
            bilinear(3)?,
            bicubic(2)?,
            sinc(2, 8)?,
        ];
        for kernel in kernels {
            assert!((kernel.sum() - 1.0).abs() < 1e-5, "{}", kernel.sum());
        }
        Ok(())
    }

    #[test]
    fn horizontal_motion_is_one_row() -> Result<()> {
        let kernel = straight_motion(6.0, 0.0)?;
        assert_eq!(kernel.shape(), [1, 1, 7, 7]);
        for ((_, _, y, _), &value) in
            kernel.view().into_dimensionality::<ndarray::Ix4>().expect("four axes").indexed_iter()
        {
            assert_eq!(value > 0.0, y == 3);
        }
        Ok(())
    }

    #[test]
    fn random_motion_depends_on_the_seed_only() -> Result<()> {
        assert_eq!(random_motion(15, 3)?, random_motion(15, 3)?);
        assert_ne!(random_motion(15, 3)?, random_motion(15, 4)?);
        Ok(())
    }

    #[test]
    fn what_cannot_be_a_kernel_is_refused_with_the_value() {
        let message = |kernel: Result<Array>| kernel.expect_err("refused").to_string();
        assert!(message(gaussian(&[1.0, -2.0], 0.0)).contains("-2"));
        assert!(message(gaussian(&[1.0], 0.0)).contains("two or three"));
        assert!(message(gaussian(&[f64::NAN, 1.0], 0.0)).contains("NaN"));
        assert!(message(bicubic(0)).contains("factor is 0"));
        assert!(message(uniform(&[0, 2])).contains("[0, 2]"));
        assert!(message(straight_motion(-1.0, 0.0)).contains("-1"));
        assert!(message(random_motion(1, 0)).contains("side is 1"));
        let zero = ArrayD::zeros(vec![1, 1, 2, 2]);
        assert!(message(normalised(&zero)).contains("sum to 0"));
    }
}
