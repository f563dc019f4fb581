//! What is done to the projections of a real scan before they are reconstructed: outliers, phase, beam hardening and rings.
//!
//! All of it works on line integrals, (…, view, row, column) with one row for a slice, in place. Outliers and phase are a matter of single views,
//! rings of single rows: ranks that have some of the views exchange rows for the latter.

mod outliers;
mod phase;
mod rings;

pub use outliers::remove_outliers;
pub use phase::PhaseFilter;
pub use rings::remove_rings;

/// Corrects line integrals for a beam with more than one energy: `p` becomes `c₁ p + c₂ p² + …`.
///
/// ```
/// use haloscope::physics::tomography::correct_hardening;
///
/// let mut integrals = [0.0, 1.0, 2.0];
/// correct_hardening(&mut integrals, &[1.0, 0.1]);
/// assert_eq!(integrals, [0.0, 1.1, 2.4]);
/// ```
pub fn correct_hardening(integrals: &mut [f32], coefficients: &[f64]) {
    for value in integrals {
        let p = f64::from(*value);
        *value = (p * coefficients.iter().rev().fold(0.0, |sum, c| sum * p + c)) as f32;
    }
}
