//! Phase retrieval for scans in which edges are enhanced by propagation.
//!
//! Paganin et al., "Simultaneous phase and amplitude extraction from a single defocused image of a homogeneous object", Journal of
//! Microscopy 206, 2002. With a parallel beam of wavelength λ, a detector at distance z behind the object and a ratio δ/β that is
//! the same everywhere, what passes the object is the measured intensity, low-pass filtered by `1 / (1 + z λ δ/β |k|² / 4π)`.

use std::f64::consts::PI;
use std::sync::Arc;

use rayon::prelude::*;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::error::{Error, Result};

/// Paganin's filter for views of one size.
pub struct PhaseFilter {
    rows: usize,
    columns: usize,
    /// Sides with a mirror image after them, so that nothing wraps around.
    sides: [usize; 2],
    transforms: [[Arc<dyn Fft<f32>>; 2]; 2],
    /// The length at which the filter halves, squared over 4π².
    area: f64,
    pixel: f64,
}

impl std::fmt::Debug for PhaseFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PhaseFilter")
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// Planck's constant times the speed of light, in keV · m.
const ENERGY_TIMES_WAVELENGTH: f64 = 1.239_841_984e-9;

impl PhaseFilter {
    /// For views of these rows and columns, of pixels of `pixel` metres, at `distance` metres behind the object, with photons of `energy` keV
    /// and so many times as much refraction as absorption, δ/β.
    pub fn new(
        [rows, columns]: [usize; 2],
        pixel: f64,
        distance: f64,
        energy: f64,
        ratio: f64,
    ) -> Result<Self> {
        for (what, value) in
            [("pixel", pixel), ("distance", distance), ("energy", energy), ("ratio", ratio)]
        {
            if !(value.is_finite() && value > 0.0) {
                let reason = format!("the {what} is {value}; a number above 0 is expected");
                return Err(Error::argument("phase", reason));
            }
        }
        if rows == 0 || columns == 0 {
            return Err(Error::argument("phase", "views without pixels"));
        }
        let wavelength = ENERGY_TIMES_WAVELENGTH / energy;
        // A single row has no neighbours above and below it.
        let sides = [if rows == 1 { 1 } else { 2 * rows }, 2 * columns];
        let mut planner = FftPlanner::new();
        let transforms =
            sides.map(|side| [planner.plan_fft_forward(side), planner.plan_fft_inverse(side)]);
        let area = distance * wavelength * ratio / (4.0 * PI);
        Ok(Self { rows, columns, sides, transforms, area, pixel })
    }

    /// Filters views of line integrals in place: `−ln` of the filtered `exp(−p)`.
    pub fn apply(&self, views: &mut [f32]) {
        views.par_chunks_mut(self.rows * self.columns).for_each(|view| self.apply_to_view(view));
    }

    fn apply_to_view(&self, view: &mut [f32]) {
        let [height, width] = self.sides;
        let mirrored =
            |at: usize, length: usize| if at < length { at } else { 2 * length - 1 - at };
        let mut spectrum: Vec<Complex<f32>> = (0..height * width)
            .map(|at| {
                let (row, column) =
                    (mirrored(at / width, self.rows), mirrored(at % width, self.columns));
                Complex::new((-view[row * self.columns + column]).exp(), 0.0)
            })
            .collect();
        self.transform(&mut spectrum, 0);
        let squared = |at: usize, side: usize| {
            let cycles = at.min(side - at) as f64 / (side as f64 * self.pixel);
            (2.0 * PI * cycles).powi(2)
        };
        for (at, value) in spectrum.iter_mut().enumerate() {
            let square = squared(at / width, height) + squared(at % width, width);
            *value *= (1.0 / (1.0 + self.area * square)) as f32;
        }
        self.transform(&mut spectrum, 1);
        let scale = 1.0 / (height * width) as f32;
        for (at, value) in view.iter_mut().enumerate() {
            let passed = spectrum[at / self.columns * width + at % self.columns].re * scale;
            *value = -passed.max(f32::MIN_POSITIVE).ln();
        }
    }

    fn transform(&self, values: &mut [Complex<f32>], direction: usize) {
        let [height, width] = self.sides;
        self.transforms[1][direction].process(values);
        if height == 1 {
            return;
        }
        let mut column = vec![Complex::default(); height];
        for at in 0..width {
            (0..height).for_each(|row| column[row] = values[row * width + at]);
            self.transforms[0][direction].process(&mut column);
            (0..height).for_each(|row| values[row * width + at] = column[row]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wave that fits the mirrored view is an eigenfunction of the filter.
    #[test]
    fn a_wave_is_damped_as_the_formula_says() {
        let [rows, columns] = [12, 20];
        let (pixel, distance, energy, ratio) = (1e-6, 0.05, 20.0, 5.0);
        let filter = PhaseFilter::new([rows, columns], pixel, distance, energy, ratio);
        let filter = filter.expect("numbers above 0");
        let wave = |row: usize, column: usize| {
            let along = |at: usize, cycles: f64, length: usize| {
                (PI * cycles * (at as f64 + 0.5) / length as f64).cos()
            };
            along(row, 2.0, rows) * along(column, 3.0, columns)
        };
        let passed = |amplitude: f64| -> Vec<f32> {
            let value = |at: usize| 0.5 + amplitude * wave(at / columns, at % columns);
            (0..rows * columns).map(|at| -(value(at).ln()) as f32).collect()
        };
        let mut view = passed(0.2);
        filter.apply(&mut view);
        let k = |cycles: f64, length: usize| (PI * cycles / (length as f64 * pixel)).powi(2);
        let wavelength = 1.239_841_984e-9 / energy;
        let square = k(2.0, rows) + k(3.0, columns);
        let factor = 1.0 / (1.0 + distance * wavelength * ratio / (4.0 * PI) * square);
        assert!((0.1..0.9).contains(&factor), "{factor}");
        for (found, expected) in view.iter().zip(passed(0.2 * factor)) {
            assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
        }
        assert!(PhaseFilter::new([1, 1], 0.0, 1.0, 1.0, 1.0).is_err());
    }
}
