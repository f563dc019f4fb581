//! Sums of arrays that have the same bits in any order: in integers.
//!
//! Terms are rounded once, towards zero, to multiples of a power of two that all agree on; sums of the multiples are exact.

use crate::error::{Error, Result};

/// The unit in which arrays of samples are added up.
///
/// ```
/// use haloscope::physics::FixedPoint;
///
/// let terms = [[1e8_f32], [0.1], [-1e8]];
/// let unit = FixedPoint::new(1e8, terms.len())?;
/// let sum = |order: [usize; 3]| {
///     let mut sums = [0];
///     order.iter().for_each(|&i| unit.add(&terms[i], &mut sums));
///     let mut sum = [0.0];
///     unit.round(&sums, &mut sum);
///     sum
/// };
/// assert_eq!(sum([0, 1, 2]), [0.1]);
/// assert_eq!(sum([0, 2, 1]), [0.1]);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedPoint {
    unit: f64,
}

impl FixedPoint {
    /// For up to `terms` terms with samples up to `greatest` in magnitude, the maximum over all of them: every rank gives the
    /// same two numbers. The unit is `greatest · terms / 2⁶²` at most, which f32 cannot tell from nothing beside a sum.
    ///
    /// # Errors
    /// If the greatest is negative or not finite.
    pub fn new(greatest: f32, terms: usize) -> Result<Self> {
        if !(greatest.is_finite() && greatest >= 0.0) {
            let reason = format!("samples of up to {greatest} cannot be added up; finite ones can");
            return Err(Error::argument("a sum in fixed point", reason));
        }
        if greatest == 0.0 {
            return Ok(Self { unit: 1.0 });
        }
        // The least power of two above all sums, by the exponent of their bound.
        let bound = f64::from(greatest) * terms.max(1) as f64;
        let exponent = ((bound.to_bits() >> 52) as i32) - 1023 + 1;
        // 2 to the power of that, 62 less: never too small or too large for f64.
        Ok(Self { unit: f64::from_bits(((exponent - 62 + 1023) as u64) << 52) })
    }

    /// Adds a term, whose samples must be numbers and not exceed the greatest.
    pub fn add(self, term: &[f32], sums: &mut [i64]) {
        let per_unit = 1.0 / self.unit;
        for (sum, &sample) in sums.iter_mut().zip(term) {
            *sum = sum.wrapping_add((f64::from(sample) * per_unit) as i64);
        }
    }

    /// Writes the sums as samples.
    pub fn round(self, sums: &[i64], samples: &mut [f32]) {
        for (sample, &sum) in samples.iter_mut().zip(sums) {
            *sample = (sum as f64 * self.unit) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_to_a_rounding_and_have_room_for_all_terms() -> Result<()> {
        let mut random = fastrand::Rng::with_seed(1);
        for (scale, terms) in [(1.0, 1), (3e-38, 1000), (3e38, 7), (1e-45, 3), (1.0, 1 << 12)] {
            let term: Vec<f32> = (0..terms).map(|_| (random.f32() * 2.0 - 1.0) * scale).collect();
            let greatest = term.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            let unit = FixedPoint::new(greatest, terms)?;
            let (mut sums, mut all, mut sum) = ([0], [0], [0.0]);
            for &value in &term {
                unit.add(&[value], &mut sums);
                unit.add(&[greatest], &mut all);
            }
            unit.round(&sums, &mut sum);
            let expected: f64 = term.iter().map(|&value| f64::from(value)).sum();
            let error = (f64::from(sum[0].clamp(f32::MIN, f32::MAX)) - expected).abs();
            let most = f64::from(greatest) * terms as f64;
            assert!(
                expected.abs() > 3.4e38 || error <= 6e-8 * expected.abs() + 1e-15 * most + 1e-45
            );
            assert!(all[0] > 0, "{terms} times {greatest} overflows");
        }
        assert!(
            FixedPoint::new(f32::NAN, 1).is_err() && FixedPoint::new(f32::INFINITY, 1).is_err()
        );
        assert_eq!(FixedPoint::new(0.0, 5)?, FixedPoint { unit: 1.0 });
        Ok(())
    }
}
