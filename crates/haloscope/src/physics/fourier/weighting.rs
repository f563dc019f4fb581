//! Weights of visibilities: natural, uniform, and Briggs's between them.

use std::collections::HashMap;

/// How visibilities are weighted against each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weighting {
    /// By their own weights, for the least noise.
    Natural,
    /// By the density of their cells of the uv plane, for the highest resolution.
    Uniform,
    /// Between them, by a robustness: −2 is about uniform, 2 about natural.
    Briggs(f64),
}

impl Weighting {
    /// The weights of visibilities at (u, v) in wavelengths with weights of their own (`1/σ²`), of which none is less than 0, for
    /// images of some sides (rows, columns) with square cells of so many radians. Their mean is that of the own weights.
    ///
    /// Cells of the uv plane are one over the size of the image. Visibilities and their complex conjugates count, so that the
    /// weights do not depend on which of both is given. Briggs's formula is that of his thesis (1995), equation 3.2.
    #[must_use]
    pub fn weights(
        self,
        uv: &[[f64; 2]],
        own: Option<&[f64]>,
        sides: [usize; 2],
        cell: f64,
    ) -> Vec<f64> {
        let own = |sample: usize| own.map_or(1.0, |own| own[sample]);
        let [rows, columns] = sides.map(|side| side as f64 * cell);
        let cell_of = |[u, v]: [f64; 2]| ((u * columns).round() as i64, (v * rows).round() as i64);
        let mut cells = HashMap::<(i64, i64), f64>::new();
        if self != Self::Natural {
            for (sample, &[u, v]) in uv.iter().enumerate() {
                *cells.entry(cell_of([u, v])).or_default() += own(sample);
                *cells.entry(cell_of([-u, -v])).or_default() += own(sample);
            }
        }
        let of = |at: [f64; 2]| cells.get(&cell_of(at)).copied().unwrap_or(1.0);
        let weight: Vec<f64> = match self {
            Self::Natural => (0..uv.len()).map(own).collect(),
            Self::Uniform => {
                let one =
                    |(sample, &at): (usize, &[f64; 2])| own(sample) / of(at).max(f64::MIN_POSITIVE);
                uv.iter().enumerate().map(one).collect()
            }
            Self::Briggs(robustness) => {
                // In an order that does not change, unlike that of a map.
                let squares: f64 =
                    uv.iter().enumerate().map(|(sample, &at)| own(sample) * of(at)).sum();
                let total: f64 = (0..uv.len()).map(own).sum();
                let factor = (5.0 * 10.0_f64.powf(-robustness)).powi(2) * total / squares;
                let one = |(sample, &at): (usize, &[f64; 2])| own(sample) / (1.0 + of(at) * factor);
                uv.iter().enumerate().map(one).collect()
            }
        };
        let mean =
            |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / uv.len().max(1) as f64;
        let (old, new) = (mean(&mut (0..uv.len()).map(own)), mean(&mut weight.iter().copied()));
        let scale = if new > 0.0 { old / new } else { 1.0 };
        weight.into_iter().map(|weight| weight * scale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three visibilities in one cell, one of them as its conjugate, and one in another.
    const UV: [[f64; 2]; 4] = [[10.0, 5.0], [10.1, 5.1], [-10.0, -4.9], [40.0, -30.0]];

    fn weights(weighting: Weighting) -> Vec<f64> {
        weighting.weights(&UV, None, [10, 10], 0.1)
    }

    #[test]
    fn uniform_weights_share_a_cell() {
        // The cells have 3 and 1: 1/3, 1/3, 1/3 and 1 have a mean of 1/2.
        let expected = [2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0, 2.0];
        let found = weights(Weighting::Uniform);
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        assert_eq!(weights(Weighting::Natural), [1.0; 4]);
    }

    #[test]
    fn robustness_goes_from_uniform_to_natural() {
        let near = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.02);
        assert!(near(weights(Weighting::Briggs(-2.0)), weights(Weighting::Uniform)));
        assert!(near(weights(Weighting::Briggs(3.0)), weights(Weighting::Natural)));
        // By hand: f² = 25 / (Σ W² / Σ w) with W = 3, 3, 3, 1, whose sum over visibilities is 10.
        let factor = 25.0 * 4.0 / 10.0;
        let raw = [1.0 / (1.0 + 3.0 * factor), 1.0 / (1.0 + factor)];
        let found = weights(Weighting::Briggs(0.0));
        assert!((found[3] / found[0] - raw[1] / raw[0]).abs() < 1e-12);
    }

    #[test]
    fn own_weights_count() {
        let found = Weighting::Uniform.weights(&UV, Some(&[1.0, 2.0, 1.0, 4.0]), [10, 10], 0.1);
        assert!((found[1] / found[0] - 2.0).abs() < 1e-12);
        assert!((found[3] / found[0] - 4.0).abs() < 1e-12);
        assert!((found.iter().sum::<f64>() - 8.0).abs() < 1e-12);
    }
}
