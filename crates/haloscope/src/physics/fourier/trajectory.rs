//! MRI along any trajectory: a coil's view of the image, at frequencies that are on no grid.

use std::f64::consts::{PI, TAU};

use super::sampled::{Parameters, Plane, Sampled};
use super::{check_image, pixel_values};
use crate::View;
use crate::error::{Error, Result};
use crate::fourier::{Complex, Nufft};
use crate::physics::{LinearPhysics, Physics};

/// `A x = D F (s · x)`: what one coil of sensitivity `s` measures of an image along a trajectory.
///
/// `F` is the [non-uniform transform](Nufft) divided by the root of the number of pixels, so that a grid of all frequencies would
/// make it orthonormal. `D` are the roots of weights for the density of the samples. Measurements are (2, sample): the real parts
/// and the imaginary parts. Images have the same two channels, or one if they are real.
///
/// ```
/// use haloscope::Array;
/// use haloscope::physics::{LinearPhysics, Physics, fourier::{Trajectory, radial}};
///
/// let points = radial(20, 32, 0.0)?;
/// let density = Trajectory::density(&[16, 16], &points)?;
/// let scan = Trajectory::new(&[1, 16, 16], None, &points, Some(&density), 1e-5)?;
/// let measured = scan.forward(&Array::ones(vec![1, 1, 16, 16]))?;
/// assert_eq!(measured.shape(), [1, 2, 640]);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Debug)]
pub struct Trajectory {
    shape: Vec<usize>,
    measured: Vec<usize>,
    sampled: Sampled,
}

impl Trajectory {
    /// For images of a shape (channel, spatial…), with a coil's sensitivity as for [`Cartesian`](super::Cartesian).
    ///
    /// Points are radians for each pixel along each axis, sample by sample; `density` has a weight for each sample, by the root
    /// of which it is multiplied; `accuracy` is the relative error of the transform.
    pub fn new(
        shape: &[usize],
        coil: Option<&View>,
        points: &[f64],
        density: Option<&[f64]>,
        accuracy: f64,
    ) -> Result<Self> {
        check_image("mri-trajectory", shape)?;
        let sides = &shape[1..];
        let map = coil
            .map(|coil| pixel_values("mri-trajectory", "coil sensitivity", sides, coil))
            .transpose()?;
        let samples = points.len() / sides.len();
        if let Some(density) = density
            && (density.len() != samples
                || density.iter().any(|weight| !(weight.is_finite() && *weight >= 0.0)))
        {
            return Err(Error::argument(
                "mri-trajectory",
                format!(
                    "{} weights of densities for {samples} samples; one for each, finite and at least 0, is expected",
                    density.len()
                ),
            ));
        }
        if let Some(point) =
            points.iter().find(|point| point.is_nan() || point.abs() > PI * (1.0 + 1e-6))
        {
            return Err(Error::argument(
                "mri-trajectory",
                format!("a point at {point}; radians for each pixel are expected, from -π to π"),
            ));
        }
        let weights =
            density.map(|density| density.iter().map(|weight| weight.sqrt() as f32).collect());
        let scale = 1.0 / (sides.iter().product::<usize>() as f32).sqrt();
        let parameters = Parameters { shape, points, map, weights, scale, accuracy };
        let sampled = Sampled::new(parameters, vec![Plane { screen: None, members: None }])?;
        Ok(Self { shape: shape.to_vec(), measured: vec![2, samples], sampled })
    }

    /// Weights for the density of samples, by the iteration of Pipe and Menon, Magnetic Resonance in Medicine 41 (1999) 179:
    /// `w ← w / |F Fᴴ w|`, ten times. With them `FᴴD²F` is about the identity where the trajectory goes.
    pub fn density(sides: &[usize], points: &[f64]) -> Result<Vec<f64>> {
        const ITERATIONS: usize = 10;
        let plan = Nufft::<f64>::new(sides, points, 1e-6)?;
        let mut scratch = plan.scratch();
        let mut image = vec![Complex::default(); sides.iter().product()];
        let mut weights = vec![Complex::new(1.0, 0.0); plan.samples()];
        let mut response = weights.clone();
        let pixels = image.len() as f64;
        // A window along each axis keeps the response of a sample from ringing.
        let window = |pixel: usize| {
            let (mut rest, mut product) = (pixel, 1.0);
            for &side in sides.iter().rev() {
                let place = (rest % side) as f64 - (side / 2) as f64;
                product *= (PI * place / (side + 1) as f64).cos().powi(2);
                rest /= side;
            }
            product
        };
        let windows: Vec<f64> = (0..image.len()).map(window).collect();
        for _ in 0..ITERATIONS {
            plan.adjoint(&weights, &mut image, &mut scratch)?;
            image.iter_mut().zip(&windows).for_each(|(value, window)| *value *= *window);
            plan.forward(&image, &mut response, &mut scratch)?;
            for (weight, response) in weights.iter_mut().zip(&response) {
                *weight /= (response.norm() / pixels).max(1e-9);
            }
        }
        // The response of the whole to a point is 1 at the point.
        let total: f64 = weights.iter().map(|weight| weight.re).sum();
        Ok(weights.iter().map(|weight| weight.re * pixels / total).collect())
    }
}

impl Physics for Trajectory {
    fn name(&self) -> &'static str {
        "mri-trajectory"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measured
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        self.sampled.forward(image, measurement)
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        self.sampled.cost()
    }
}

impl LinearPhysics for Trajectory {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        self.sampled.adjoint(measurement, image)
    }
}

/// The points of a plane's radial scan: straight lines through frequency 0 at golden angles from a first one, in radians, each with
/// so many samples from one end to the other.
pub fn radial(spokes: usize, samples: usize, first: f64) -> Result<Vec<f64>> {
    check_samples("radial", spokes, samples)?;
    // π divided by the golden ratio.
    let step = PI * (5.0_f64.sqrt() - 1.0) / 2.0;
    let mut points = Vec::with_capacity(2 * spokes * samples);
    for spoke in 0..spokes {
        let (sine, cosine) = (first + step * spoke as f64).sin_cos();
        for sample in 0..samples {
            let radius = TAU * ((sample as f64 - (samples / 2) as f64) / samples as f64);
            points.extend([radius * sine, radius * cosine]);
        }
    }
    Ok(points)
}

/// Refuses scans of more samples than any scanner takes, before memory is asked for.
pub(super) fn check_samples(what: &'static str, lines: usize, samples: usize) -> Result<()> {
    match lines.checked_mul(samples) {
        Some(all) if all <= MOST_SAMPLES => Ok(()),
        _ => Err(Error::argument(
            what,
            format!("{lines} lines of {samples} samples; at most 2³¹ samples in all are accepted"),
        )),
    }
}

/// As many as indices of 32 bits count.
const MOST_SAMPLES: usize = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;
    use crate::physics::fourier::Cartesian;

    #[test]
    fn all_frequencies_of_a_grid_are_a_cartesian_scan() -> Result<()> {
        let sides = [6, 9];
        let mut points = Vec::new();
        for row in 0..6 {
            for column in 0..9 {
                points.extend([
                    TAU * (f64::from(row) - 3.0) / 6.0,
                    TAU * (f64::from(column) - 4.0) / 9.0,
                ]);
            }
        }
        let coil = Array::from_shape_fn(vec![2, 6, 9], |at| (at[0] + at[1] * at[2]) as f32 * 0.1);
        let image = Array::from_shape_fn(vec![1, 2, 6, 9], |at| (at[1] + at[2] + at[3]) as f32);
        let one = Trajectory::new(&[2, 6, 9], Some(&coil), &points, None, 1e-7)?.forward(&image)?;
        let other = Cartesian::new(&[2, 6, 9], Some(&coil), None)?.forward(&image)?;
        let worst = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-4, "{worst}");
        // Samples that are equally dense have weights of 1.
        let density = Trajectory::density(&sides, &points)?;
        assert!(density.iter().all(|weight| (weight - 1.0).abs() < 1e-3), "{density:?}");
        Ok(())
    }

    #[test]
    fn densities_make_the_adjoint_of_a_radial_scan_about_its_inverse() -> Result<()> {
        let (side, points) = (32, radial(64, 64, 0.0)?);
        let density = Trajectory::density(&[side, side], &points)?;
        // A smooth blob, which the circle of frequencies holds.
        let image = Array::from_shape_fn(vec![1, 1, side, side], |at| {
            let square = |x: usize| (x as f32 - 15.0).powi(2);
            (-(square(at[2]) + square(at[3])) / 18.0).exp()
        });
        let error = |density: Option<&[f64]>| -> Result<f32> {
            let scan = Trajectory::new(&[1, side, side], None, &points, density, 1e-5)?;
            let back = scan.normal(&image)?;
            // The best factor is none of the adjoint's business.
            let factor = (&back * &image).sum() / (&back * &back).sum();
            Ok(((&back * factor - &image).mapv(|x| x * x).sum() / image.mapv(|x| x * x).sum())
                .sqrt())
        };
        let (with, without) = (error(Some(&density))?, error(None)?);
        assert!(with < 0.15 && without > 4.0 * with, "{with} {without}");
        Ok(())
    }

    #[test]
    fn weights_that_are_not_one_for_each_sample_are_refused() {
        let error =
            Trajectory::new(&[1, 8, 8], None, &[0.0; 6], Some(&[1.0]), 1e-3).expect_err("one");
        assert!(error.to_string().contains("1 weights of densities for 3 samples"), "{error}");
        assert!(Trajectory::new(&[1, 8, 8], None, &[0.0; 2], Some(&[-1.0]), 1e-3).is_err());
    }
}
