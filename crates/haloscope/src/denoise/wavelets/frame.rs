//! Images in several orthogonal bases at once: a tight frame, whose coefficients have the norm of the image.

use rayon::prelude::*;

use super::Wavelets;
use super::transform::Transform;
use crate::array::{add_scaled, map_slice};

/// The bases of [`Wavelets`] for images of certain sides.
///
/// `Ψᵀx` has for each image the coefficients in one basis after the other, each divided by the root of the number of bases.
pub(crate) struct Frame {
    /// None is the pixels themselves.
    bases: Vec<Option<Transform>>,
    pixels: usize,
    sides: Vec<usize>,
    keeps_coarse: bool,
    scratch: Vec<f32>,
    work: Vec<f32>,
}

impl Frame {
    /// For images of these spatial sides.
    pub(crate) fn new(wavelets: &Wavelets, sides: &[usize]) -> Self {
        let transform = |order| (order > 0).then(|| Transform::new(order, sides, wavelets.scales));
        Self {
            bases: wavelets.bases.orders().map(transform).collect(),
            pixels: sides.iter().product::<usize>().max(1),
            sides: sides.to_vec(),
            keeps_coarse: !wavelets.coarse,
            scratch: Vec::new(),
            work: Vec::new(),
        }
    }

    /// How many bases it has.
    pub(crate) fn len(&self) -> usize {
        self.bases.len()
    }

    /// What coefficients are divided by, so that all together have the norm of the image.
    fn factor(&self) -> f32 {
        (1.0 / (self.len() as f64).sqrt()) as f32
    }

    /// The coefficients of an image in one basis.
    fn analyse(&mut self, index: usize, image: &[f32]) -> &mut [f32] {
        self.work.clear();
        self.work.extend_from_slice(image);
        if let Some(transform) = &self.bases[index] {
            transform.forward(&mut self.work, &mut self.scratch);
        }
        &mut self.work
    }

    /// `dual ← dual + factor · Ψᵀ images`, for images one after the other.
    pub(crate) fn add_analysis(&mut self, dual: &mut [f32], factor: f32, images: &[f32]) {
        let (pixels, factor) = (self.pixels, factor * self.factor());
        let each = pixels * self.len();
        for (dual, image) in dual.chunks_mut(each).zip(images.chunks(pixels)) {
            for (index, dual) in dual.chunks_mut(pixels).enumerate() {
                add_scaled(dual, factor, self.analyse(index, image));
            }
        }
    }

    /// `images ← images + factor · Ψ dual`.
    pub(crate) fn add_synthesis(&mut self, images: &mut [f32], factor: f32, dual: &[f32]) {
        let (pixels, factor) = (self.pixels, factor * self.factor());
        let each = pixels * self.len();
        for (image, dual) in images.chunks_mut(pixels).zip(dual.chunks(each)) {
            for (index, dual) in dual.chunks(pixels).enumerate() {
                self.work.clear();
                self.work.extend_from_slice(dual);
                if let Some(transform) = &self.bases[index] {
                    transform.inverse(&mut self.work, &mut self.scratch);
                }
                add_scaled(image, factor, &self.work);
            }
        }
    }

    /// Brings the coefficients of a dual back to `[−radius, radius]`, those that the norm leaves out to 0.
    pub(crate) fn project(&self, dual: &mut [f32], radius: f32) {
        let radius = radius.max(0.0);
        for (index, dual) in dual.chunks_mut(self.pixels).enumerate() {
            map_slice(dual, |value| value.clamp(-radius, radius));
            self.for_coarse(index % self.len(), |line| dual[line].fill(0.0));
        }
    }

    /// `‖Ψᵀx‖₁` without the coefficients that the norm leaves out.
    pub(crate) fn norm(&mut self, images: &[f32]) -> f64 {
        let mut sum = 0.0;
        for image in images.chunks(self.pixels) {
            for index in 0..self.len() {
                self.analyse(index, image);
                let mut left_out = 0.0;
                let of =
                    |line: &[f32]| line.iter().map(|value| f64::from(value.abs())).sum::<f64>();
                self.for_coarse(index, |line| left_out += of(&self.work[line]));
                sum += of(&self.work) - left_out;
            }
        }
        sum * f64::from(self.factor())
    }

    /// Soft thresholding in the only basis.
    pub(crate) fn threshold(&mut self, image: &mut [f32], level: f32) {
        let level = level.max(0.0);
        let mut kept = std::mem::take(&mut self.work);
        kept.clear();
        kept.extend_from_slice(image);
        if let Some(transform) = &self.bases[0] {
            transform.forward(&mut kept, &mut self.scratch);
        }
        image.copy_from_slice(&kept);
        image.par_iter_mut().for_each(|value| *value -= value.clamp(-level, level));
        self.for_coarse(0, |line| image[line.clone()].copy_from_slice(&kept[line]));
        if let Some(transform) = &self.bases[0] {
            transform.inverse(image, &mut self.scratch);
        }
        self.work = kept;
    }

    /// The lines of the means at the coarsest scale, if they are left out of the norm. Pixels have none.
    fn for_coarse(&self, index: usize, mut visit: impl FnMut(std::ops::Range<usize>)) {
        let Some(transform) = self.bases[index].as_ref().filter(|_| self.keeps_coarse) else {
            return;
        };
        let coarse = transform.coarse();
        let (last, outer) = coarse.split_last().unwrap_or((&0, &[]));
        let lines: usize = outer.iter().product();
        for line in 0..lines {
            let mut rest = line;
            let mut begin = 0;
            for axis in (0..outer.len()).rev() {
                let stride: usize = self.sides[axis + 1..].iter().product();
                begin += rest % outer[axis] * stride;
                rest /= outer[axis];
            }
            visit(begin..begin + last);
        }
    }
}
