//! A blur on a periodic grid: transforms, the kernels' spectra, and scratch.

use std::sync::Mutex;

use rustfft::num_complex::Complex;

use super::Kernels;
use super::fourier::Fourier;
use super::grid::Grid;
use super::spectrum::Spectrum;

/// Transforms and the kernels' spectra.
pub(super) struct Diagonal {
    pub fourier: Fourier,
    pub spectra: Vec<Spectrum>,
    /// Scratch that is not in use: to allocate it anew costs a tenth of a blur of 2048².
    scratch: Mutex<Vec<Vec<Complex<f32>>>>,
}

impl Diagonal {
    pub(super) fn new(kernels: &Kernels, grids: [Grid; 3]) -> Self {
        let spectra = kernels.each().map(|kernel| Spectrum::new(kernel, &grids)).collect();
        Self { fourier: Fourier::new(grids), spectra, scratch: Mutex::default() }
    }

    pub(super) fn borrow_scratch(&self) -> Borrowed<'_> {
        let free = self.scratch.lock().ok().and_then(|mut free| free.pop());
        let make = || vec![Complex::default(); self.fourier.scratch()];
        Borrowed { scratch: free.unwrap_or_else(make), owner: self }
    }
}

/// Scratch that goes back when it is dropped.
pub(super) struct Borrowed<'a> {
    pub scratch: Vec<Complex<f32>>,
    owner: &'a Diagonal,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Ok(mut free) = self.owner.scratch.lock() {
            free.push(std::mem::take(&mut self.scratch));
        }
    }
}
