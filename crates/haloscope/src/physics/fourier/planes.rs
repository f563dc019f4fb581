//! Planes of constant w: how an interferometer that is not flat is a sum of transforms.
//!
//! Along w, visibilities are a transform of their own, whose frequencies are `n − 1` for the directions of the image. It is
//! treated as those along u and v are: samples are spread to planes with the kernel, and the kernel is undone in the image. This
//! is the improved w-stacking of Arras and others, Astronomy & Astrophysics 646 (2021) A58; its error is that of the kernel.

use std::f64::consts::TAU;

use super::sampled::{Members, Plane};
use crate::fourier::{Complex, Spreader};

/// The planes of some samples, and what undoes their kernel.
pub(super) struct Planes {
    pub(super) planes: Vec<Plane>,
    /// What each pixel is multiplied with.
    pub(super) correction: Vec<f64>,
}

/// The most planes of w that anybody waits for.
pub(super) const MOST_PLANES: f64 = 4096.0;

/// About how many planes samples at these w need, if it is not one alone.
pub(super) fn plane_count(w: &[f64], n_minus_one: &[f64]) -> Option<f64> {
    let deepest = n_minus_one.iter().copied().fold(0.0, f64::min);
    let low = w.iter().copied().fold(f64::INFINITY, f64::min);
    let high = w.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (high > low).then(|| (high - low) * (-0.5 * deepest) / Spreader::most_turns())
}

/// How many of the samples at `w` each of their planes has, if they need several, for a field whose `n − 1` goes down to `deepest`.
pub(super) fn plane_sizes(w: &[f64], deepest: f64, accuracy: f64) -> Option<Vec<usize>> {
    let grid = Spacing::of(w, deepest, Spreader::new(accuracy)?)?;
    let mut sizes = vec![0; grid.count];
    for &w in w {
        sizes[grid.touched(w)].iter_mut().for_each(|size| *size += 1);
    }
    sizes.retain(|size| *size > 0);
    Some(sizes)
}

/// Where planes are.
struct Spacing {
    /// Wavelengths from plane to plane.
    step: f64,
    /// The w of the first plane, in steps.
    first: f64,
    count: usize,
    width: f64,
}

impl Spacing {
    /// For samples at `w`; `None` if one plane does, or if they need more than anybody waits for.
    fn of(w: &[f64], deepest: f64, spreader: Spreader) -> Option<Self> {
        let (low, high) = w
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &w| (low.min(w), high.max(w)));
        // The widest frequency is at the end of what the kernel serves.
        let step = Spreader::most_turns() / (-0.5 * deepest).max(1e-300);
        let steps = (high - low) / step;
        if w.is_empty() || steps < 1e-12 || steps.is_nan() || steps > 2.0 * MOST_PLANES {
            return None;
        }
        let width = spreader.width() as f64;
        let count = steps.floor() as usize + spreader.width() + 1;
        Some(Self { step, first: low / step - 0.5 * width, count, width })
    }

    /// Where a sample is, in planes from the first.
    fn position(&self, w: f64) -> f64 {
        w / self.step - self.first
    }

    /// The planes that the kernel of a sample touches.
    fn touched(&self, w: f64) -> std::ops::Range<usize> {
        let position = self.position(w);
        let begin = (position - 0.5 * self.width).ceil().max(0.0) as usize;
        let end = ((position + 0.5 * self.width).floor() as usize + 1).min(self.count);
        begin.min(end)..end
    }
}

/// The planes for samples at `w`, in wavelengths, of an image whose pixels have `n − 1`, all of them at most 0.
pub(super) fn planes(w: &[f64], n_minus_one: &[f64], accuracy: f64) -> Option<Planes> {
    let deepest = n_minus_one.iter().copied().fold(0.0, f64::min);
    let middle = 0.5 * deepest;
    let spreader = Spreader::new(accuracy)?;
    let Some(grid) = Spacing::of(w, deepest, spreader) else {
        return Some(single(w.first().copied().unwrap_or(0.0), n_minus_one));
    };
    let Spacing { step, first, count, .. } = grid;
    let mut members: Vec<Members> =
        (0..count).map(|_| Members { samples: Vec::new(), factors: Vec::new() }).collect();
    for (sample, &w) in w.iter().enumerate() {
        let position = grid.position(w);
        let phase = Complex::from_polar(1.0, TAU * w * middle);
        for plane in grid.touched(w) {
            let value = spreader.value(plane as f64 - position);
            members[plane].samples.push(sample as u32);
            members[plane].factors.push(phase * value);
        }
    }
    let plane = |(index, members): (usize, Members)| {
        let w = (first + index as f64) * step;
        let screen = n_minus_one.iter().map(|n| Complex::from_polar(1.0, TAU * w * (n - middle)));
        Plane { screen: Some(screen.collect()), members: Some(members) }
    };
    let filled = members.into_iter().enumerate().filter(|(_, members)| !members.samples.is_empty());
    let planes = filled.map(plane).collect();
    let correction = n_minus_one.iter().map(|n| 1.0 / spreader.transform((n - middle) * step));
    Some(Planes { planes, correction: correction.collect() })
}

/// All samples at one w.
fn single(w: f64, n_minus_one: &[f64]) -> Planes {
    let screen = (w != 0.0)
        .then(|| n_minus_one.iter().map(|n| Complex::from_polar(1.0, TAU * w * n)).collect());
    Planes {
        planes: vec![Plane { screen, members: None }],
        correction: vec![1.0; n_minus_one.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_that_nobody_waits_for_are_not_counted() {
        for far in [1e12, 1e300, f64::MAX] {
            assert_eq!(plane_sizes(&[-far, 0.0, far], -1e-3, 1e-5), None);
        }
        let sizes = plane_sizes(&[-1e4, 0.0, 1e4], -1e-3, 1e-5).expect("some planes");
        assert!(sizes.len() > 3 && sizes.iter().all(|size| (1..=3).contains(size)), "{sizes:?}");
    }
}
