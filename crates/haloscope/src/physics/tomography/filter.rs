//! The ramp filter of filtered back-projection, with its usual windows.
//!
//! The ramp is sampled in space, where it is exactly band-limited (Ram-Lak: 1/4 in the middle,
//! −1/(πn)² at odd distances), and then transformed; sampling |f| in frequency instead would lose
//! the mean of the image. Rows are padded with zeros to twice their length, so that convolution
//! does not wrap around.

use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

use rayon::prelude::*;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use crate::error::{Error, Result};

/// How the ramp is damped towards high frequencies, with `w` from 0 to 1 at the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// Not at all: Ram-Lak. The sharpest, and the noisiest.
    #[default]
    Ramp,
    /// `sin(πw/2) / (πw/2)`.
    SheppLogan,
    /// `cos(πw/2)`.
    Cosine,
    /// `0.54 + 0.46 cos(πw)`.
    Hamming,
    /// `0.5 + 0.5 cos(πw)`. The smoothest.
    Hann,
}

impl Window {
    fn at(self, w: f64) -> f64 {
        match self {
            Self::Ramp => 1.0,
            Self::SheppLogan if w == 0.0 => 1.0,
            Self::SheppLogan => (PI * w / 2.0).sin() / (PI * w / 2.0),
            Self::Cosine => (PI * w / 2.0).cos(),
            Self::Hamming => 0.54 + 0.46 * (PI * w).cos(),
            Self::Hann => 0.5 + 0.5 * (PI * w).cos(),
        }
    }
}

/// The ramp for rows of a length.
#[derive(Clone)]
pub(super) struct Ramp {
    transform: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    response: Vec<f32>,
}

impl Ramp {
    /// For rows of `bins` elements that are `spacing` apart.
    pub(super) fn new(bins: usize, spacing: f64, window: Window) -> Result<Self> {
        let length = (2 * bins).next_power_of_two().max(4);
        let mut planner = RealFftPlanner::<f64>::new();
        let transform = planner.plan_fft_forward(length);
        let mut kernel = transform.make_input_vec();
        kernel[0] = 0.25;
        for n in (1..=length / 2).step_by(2) {
            let value = -1.0 / (PI * n as f64).powi(2);
            kernel[n] = value;
            kernel[length - n] = value;
        }
        let mut spectrum = transform.make_output_vec();
        transform.process(&mut kernel, &mut spectrum).map_err(|error| {
            Error::argument("tomography", format!("the filter of {bins} bins: {error}"))
        })?;
        let half = (length / 2) as f64;
        let response = (spectrum.iter().enumerate())
            .map(|(i, s)| (s.re * window.at(i as f64 / half) / (spacing * length as f64)) as f32)
            .collect();
        let mut planner = RealFftPlanner::new();
        let transform = planner.plan_fft_forward(length);
        Ok(Self { transform, inverse: planner.plan_fft_inverse(length), response })
    }

    /// Filters rows in place.
    pub(super) fn apply(&self, rows: &mut [f32], bins: usize) -> Result<()> {
        rows.par_chunks_mut(bins).try_for_each_init(
            || {
                let spectrum: Vec<Complex<f32>> = self.transform.make_output_vec();
                (self.transform.make_input_vec(), spectrum, self.transform.make_scratch_vec())
            },
            |(padded, spectrum, scratch), row| {
                padded.fill(0.0);
                padded[..bins].copy_from_slice(row);
                let failed = |error: realfft::FftError| {
                    Error::argument("tomography", format!("filtering rows: {error}"))
                };
                self.transform.process_with_scratch(padded, spectrum, scratch).map_err(failed)?;
                for (value, &response) in spectrum.iter_mut().zip(&self.response) {
                    *value *= response;
                }
                self.inverse.process(spectrum, padded).map_err(failed)?;
                row.copy_from_slice(&padded[..bins]);
                Ok(())
            },
        )
    }
}

impl fmt::Debug for Ramp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ramp").field("length", &self.transform.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_is_the_band_limited_kernel() {
        let mut row = vec![0.0; 11];
        row[5] = 1.0;
        Ramp::new(11, 0.5, Window::Ramp).and_then(|ramp| ramp.apply(&mut row, 11)).expect("a row");
        let expected = |n: i32| match n {
            0 => 0.25,
            n if n % 2 == 0 => 0.0,
            n => -1.0 / (PI * f64::from(n)).powi(2),
        };
        for (i, &value) in (-5..).zip(&row) {
            assert!((f64::from(value) - expected(i) / 0.5).abs() < 1e-6, "{i}: {value}");
        }
    }

    #[test]
    fn windows_keep_low_frequencies_and_damp_high_ones() {
        for window in [Window::SheppLogan, Window::Cosine, Window::Hamming, Window::Hann] {
            assert_eq!(window.at(0.0), 1.0, "{window:?}");
            assert!(window.at(1.0) < 0.64, "{window:?}");
        }
    }
}
