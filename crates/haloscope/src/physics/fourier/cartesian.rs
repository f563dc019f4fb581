//! MRI on a grid of frequencies: a coil's view of the image, its Fourier transform, and a mask.

use std::fmt;

use super::centred::Centred;
use super::{check_image, complex, pixel_values};
use crate::View;
use crate::error::Result;
use crate::fourier::Complex;
use crate::physics::{LinearPhysics, Physics};

/// `A x = M F (s · x)`: what one coil of sensitivity `s` measures of an image at the frequencies of a mask `M`.
///
/// `F` is the orthonormal transform with frequency 0 in the middle. A scan of several coils is a
/// [`Stack`](crate::physics::Stack) of such operators. Measurements have all frequencies, with zeros where the mask has them,
/// and two channels, the real and the imaginary parts. Images have the same two channels, or one if they are real.
///
/// ```
/// use haloscope::Array;
/// use haloscope::physics::{LinearPhysics, Physics, fourier::Cartesian};
///
/// // Every second line of frequencies of a complex image, without a coil.
/// let mask = Array::from_shape_fn(vec![1, 8, 8], |at| (at[1] % 2) as f32);
/// let scan = Cartesian::new(&[2, 8, 8], None, Some(&mask))?;
/// let measured = scan.forward(&Array::ones(vec![1, 2, 8, 8]))?;
/// assert_eq!(measured.shape(), [1, 2, 8, 8]);
/// assert_eq!(scan.exact_squared_norm(), Some(1.0));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone)]
pub struct Cartesian {
    shape: Vec<usize>,
    measured: Vec<usize>,
    coil: Option<Vec<Complex<f32>>>,
    mask: Option<Vec<f32>>,
    transform: Centred,
}

impl Cartesian {
    /// For images of a shape (channel, spatial…) with one channel if they are real and two if they are complex.
    ///
    /// A coil's sensitivity is (2, spatial…), or (1, spatial…) if it is real; without one it is 1. The mask is (1, spatial…):
    /// what each frequency is multiplied with.
    pub fn new(shape: &[usize], coil: Option<&View>, mask: Option<&View>) -> Result<Self> {
        check_image("mri", shape)?;
        let sides = &shape[1..];
        let coil =
            coil.map(|coil| pixel_values("mri", "coil sensitivity", sides, coil)).transpose()?;
        let mask = mask
            .map(|mask| {
                let values = pixel_values("mri", "mask", sides, mask)?;
                Ok::<_, crate::Error>(values.into_iter().map(|value| value.re).collect())
            })
            .transpose()?;
        let mut measured = shape.to_vec();
        measured[0] = 2;
        Ok(Self { shape: shape.to_vec(), measured, coil, mask, transform: Centred::new(sides) })
    }

    fn pixels(&self) -> usize {
        self.shape[1..].iter().product()
    }

    fn mask(&self, values: &mut [Complex<f32>]) {
        if let Some(mask) = &self.mask {
            values.iter_mut().zip(mask).for_each(|(value, mask)| *value *= *mask);
        }
    }
}

impl Physics for Cartesian {
    fn name(&self) -> &'static str {
        "mri"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measured
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let pixels = self.pixels();
        let images = image.chunks(self.shape[0] * pixels);
        for (image, measurement) in images.zip(measurement.chunks_mut(2 * pixels)) {
            let mut values = complex(self.shape[0], image);
            if let Some(coil) = &self.coil {
                values.iter_mut().zip(coil).for_each(|(value, coil)| *value *= coil);
            }
            self.transform.run(false, &mut values);
            self.mask(&mut values);
            let (real, imaginary) = measurement.split_at_mut(pixels);
            for ((value, real), imaginary) in values.iter().zip(real).zip(imaginary) {
                (*real, *imaginary) = (value.re, value.im);
            }
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        let pixels = self.pixels() as f64;
        pixels * (8.0 + 4.0 * pixels.log2())
    }
}

impl LinearPhysics for Cartesian {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let pixels = self.pixels();
        let images = image.chunks_mut(self.shape[0] * pixels);
        for (measurement, image) in measurement.chunks(2 * pixels).zip(images) {
            let mut values = complex(2, measurement);
            self.mask(&mut values);
            self.transform.run(true, &mut values);
            if let Some(coil) = &self.coil {
                values.iter_mut().zip(coil).for_each(|(value, coil)| *value *= coil.conj());
            }
            let (real, imaginary) = image.split_at_mut(pixels);
            values.iter().zip(real).for_each(|(value, real)| *real = value.re);
            values.iter().zip(imaginary).for_each(|(value, imaginary)| *imaginary = value.im);
        }
        Ok(())
    }

    /// Known of one factor alone: the coil, or the mask if images are complex. Real images are not all that a mask sees.
    fn exact_squared_norm(&self) -> Option<f64> {
        let largest = |values: &mut dyn Iterator<Item = f32>| f64::from(values.fold(0.0, f32::max));
        match (&self.coil, &self.mask) {
            (None, None) => Some(1.0),
            (Some(coil), None) => Some(largest(&mut coil.iter().map(Complex::norm_sqr))),
            (None, Some(mask)) if self.shape[0] == 2 => {
                Some(largest(&mut mask.iter().map(|mask| mask * mask)))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Cartesian {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cartesian")
            .field("shape", &self.shape)
            .field("has_coil", &self.coil.is_some())
            .field("has_mask", &self.mask.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;

    #[test]
    fn a_full_scan_by_one_coil_has_the_closed_form_of_its_sensitivity() -> Result<()> {
        let coil =
            Array::from_shape_fn(vec![2, 5, 6], |at| (at[0] + at[1] + at[2]) as f32 * 0.1 + 0.2);
        let image = Array::from_shape_fn(vec![1, 2, 5, 6], |at| (at[1] * 7 + at[2] * at[3]) as f32);
        let scan = Cartesian::new(&[2, 5, 6], Some(&coil), None)?;
        let normal = scan.normal(&image)?;
        for ((at, found), value) in normal.indexed_iter().zip(&image) {
            let [row, column] = [at[2], at[3]];
            let square = coil[[0, row, column]].powi(2) + coil[[1, row, column]].powi(2);
            assert!((found - square * value).abs() < 1e-4, "{at:?}");
        }
        Ok(())
    }

    #[test]
    fn a_real_image_is_a_complex_one_without_imaginary_part() -> Result<()> {
        let coil = Array::from_shape_fn(vec![2, 4, 6], |at| (at[0] * 3 + at[1] + 2 * at[2]) as f32);
        let mask = Array::from_shape_fn(vec![1, 4, 6], |at| (at[2] % 2) as f32);
        let of = |channels| Cartesian::new(&[channels, 4, 6], Some(&coil), Some(&mask));
        let real = Array::from_shape_fn(vec![1, 1, 4, 6], |at| (at[2] * at[3]) as f32);
        let both = Array::from_shape_fn(vec![1, 2, 4, 6], |at| {
            if at[1] == 0 { (at[2] * at[3]) as f32 } else { 0.0 }
        });
        let measured = of(1)?.forward(&real)?;
        assert_eq!(measured, of(2)?.forward(&both)?);
        let (one, two) = (of(1)?.adjoint(&measured)?, of(2)?.adjoint(&measured)?);
        assert_eq!(one.index_axis(ndarray::Axis(1), 0), two.index_axis(ndarray::Axis(1), 0));
        Ok(())
    }

    #[test]
    fn arrays_that_do_not_fit_are_refused() {
        let message = |shape: &[usize], coil: &[usize]| {
            Cartesian::new(shape, Some(&Array::ones(coil)), None).expect_err("refused").to_string()
        };
        assert!(message(&[3, 4, 4], &[2, 4, 4]).contains("[3, 4, 4]"));
        assert!(message(&[2, 4], &[2, 4]).contains("two or three sides"));
        assert!(message(&[2, 4, 4], &[2, 4, 5]).contains("[2, 4, 5]"));
        assert!(message(&[2, 4, 4], &[4, 4]).contains("coil sensitivity"));
    }
}
