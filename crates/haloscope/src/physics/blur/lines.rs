//! Lines of a spectrum along one direction: gathered from tiles, transformed, multiplied, scattered again.

use std::sync::Arc;

use rustfft::Fft;

use super::fourier::{SIDE, TILE, Value};
use super::spectrum::{Spectrum, Values};

/// What is done to a spectrum.
#[derive(Clone, Copy, Debug)]
pub(super) enum Filter {
    /// Convolution.
    Forward,
    /// Its adjoint.
    Adjoint,
    /// `(AᵀA + shift)⁻¹`, 0 where the eigenvalue of `AᵀA` is not above `floor` and the shift is 0.
    Solve { shift: f32, floor: f32 },
}

/// A product with a kernel's spectrum.
pub(super) struct Product<'a> {
    pub filter: Filter,
    pub kernel: &'a Spectrum,
    pub scale: f32,
}

impl Product<'_> {
    fn apply(&self, line: &mut [Value], number: usize) {
        let range = number * line.len()..(number + 1) * line.len();
        let scale = self.scale;
        match (&self.kernel.values, self.filter) {
            (Values::Complex(kernel), Filter::Forward) => {
                multiply(line, &kernel[range], |k| k * scale);
            }
            (Values::Complex(kernel), Filter::Adjoint) => {
                multiply(line, &kernel[range], |k| k.conj() * scale);
            }
            (Values::Complex(kernel), Filter::Solve { shift, floor }) => {
                multiply(line, &kernel[range], |k| inverse(k.norm_sqr(), shift, floor) * scale);
            }
            (Values::Real(kernel), Filter::Forward | Filter::Adjoint) => {
                multiply(line, &kernel[range], |k| k * scale);
            }
            (Values::Real(kernel), Filter::Solve { shift, floor }) => {
                multiply(line, &kernel[range], |k| inverse(k * k, shift, floor) * scale);
            }
        }
    }
}

fn multiply<K: Copy, F>(line: &mut [Value], kernel: &[K], factor: impl Fn(K) -> F)
where
    Value: std::ops::MulAssign<F>,
{
    for (value, &k) in line.iter_mut().zip(kernel) {
        *value *= factor(k);
    }
}

/// Of an eigenvalue of the normal operator and a shift.
fn inverse(eigenvalue: f32, shift: f32, floor: f32) -> f32 {
    if shift > 0.0 || eigenvalue > floor { 1.0 / (eigenvalue + shift) } else { 0.0 }
}

/// What is done to each line of values.
pub(super) enum Action<'a> {
    Forward,
    /// Forward transform, product, inverse transform.
    Product(&'a Product<'a>),
    Inverse,
}

/// Transforms along one direction.
pub(super) struct Lines<'a> {
    pub transforms: &'a [Arc<dyn Fft<f32>>; 2],
    pub length: usize,
    pub action: Action<'a>,
}

/// Lines that were gathered from tiles.
pub(super) struct Buffers {
    pub values: Vec<Value>,
    /// From one line to the next; not a power of two, which would put all lines into one cache set.
    pub stride: usize,
    scratch: Vec<Value>,
}

impl Lines<'_> {
    pub(super) fn buffers(&self, lines: usize) -> Buffers {
        let stride = self.length.next_multiple_of(SIDE) + SIDE;
        let scratch = self.transforms.iter().map(|fft| fft.get_inplace_scratch_len()).max();
        Buffers {
            values: vec![Value::default(); lines * stride],
            stride,
            scratch: vec![Value::default(); scratch.unwrap_or(0)],
        }
    }

    /// `number` is that of the line in the kernel's spectrum.
    pub(super) fn run(&self, buffers: &mut Buffers, line: usize, number: usize) {
        let values = &mut buffers.values[line * buffers.stride..][..self.length];
        let [forward, inverse] = self.transforms;
        if !matches!(self.action, Action::Inverse) {
            forward.process_with_scratch(values, &mut buffers.scratch);
        }
        if let Action::Product(product) = self.action {
            product.apply(values, number);
        }
        if !matches!(self.action, Action::Forward) {
            inverse.process_with_scratch(values, &mut buffers.scratch);
        }
    }
}

/// Writes the columns of a tile to lines that are `stride` apart.
pub(super) fn gather(tile: &[Value; TILE], lines: &mut [Value], stride: usize) {
    for (column, line) in lines.chunks_mut(stride).enumerate().take(SIDE) {
        for (row, value) in line[..SIDE].iter_mut().enumerate() {
            *value = tile[row * SIDE + column];
        }
    }
}

/// The opposite of [`gather`].
pub(super) fn scatter(lines: &[Value], stride: usize, tile: &mut [Value; TILE]) {
    for (column, line) in lines.chunks(stride).enumerate().take(SIDE) {
        for (row, value) in line[..SIDE].iter().enumerate() {
            tile[row * SIDE + column] = *value;
        }
    }
}
