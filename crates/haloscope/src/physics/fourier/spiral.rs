//! Spiral scans of a plane: arms that wind outwards from frequency 0.

use std::f64::consts::{PI, TAU};

use super::trajectory::check_samples;
use crate::error::{Error, Result};

/// Spiral arms from frequency 0 to the highest, each turned against the one before.
///
/// At a part `s` of its turns an arm is at the angle `2π · turns · s` and at the radius `π · s^power`: a power of 1 is an Archimedean
/// spiral, and higher ones are denser in the middle. Samples are where `s + a s²`, with `a = π · turns`, grows by equal steps: a
/// little more than the length of an Archimedean arm in parts of π, so that neighbours are at about equal distances from frequency 0 on.
///
/// ```
/// use haloscope::physics::fourier::{Spiral, Trajectory};
///
/// let spiral = Spiral::covering(4, 1.0, &[16, 16]);
/// let points = spiral.points()?;
/// assert_eq!(points.len(), 2 * 4 * spiral.samples);
/// let scan = Trajectory::new(&[1, 16, 16], None, &points, None, 1e-5)?;
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spiral {
    /// The number of arms.
    pub interleaves: usize,
    /// The samples of each.
    pub samples: usize,
    /// How often each winds around frequency 0.
    pub turns: f64,
    /// How fast the radius grows: 1 for an Archimedean spiral.
    pub power: f64,
    /// Whether each arm is turned by the golden angle (2π divided by the golden ratio) instead of by an equal part of 2π.
    pub is_golden: bool,
}

impl Spiral {
    /// So many arms that leave no gaps in an image of these sides: arms, and samples along them, are at most as far from each other as
    /// the frequencies of its grid. This holds for arms at equal angles; golden angles leave wider gaps between some of them.
    #[must_use]
    pub fn covering(interleaves: usize, power: f64, sides: &[usize]) -> Self {
        // Arms are farthest from each other at the edge: by π · power / (turns · interleaves).
        let turns = (power * longest(sides) / 2.0 / interleaves.max(1) as f64).ceil().max(1.0);
        let samples = Self::samples_of(turns, power, sides);
        Self { interleaves, samples, turns, power, is_golden: false }
    }

    /// The samples of an arm of so many turns at which it leaves no gaps along its way.
    #[must_use]
    pub fn samples_of(turns: f64, power: f64, sides: &[usize]) -> usize {
        let a = PI * turns;
        // An arm of a power above 1 is fastest at the edge, by this factor.
        let faster = (power + 2.0 * a) / (1.0 + 2.0 * a);
        ((longest(sides) * (1.0 + a) / 2.0 * faster).ceil() as usize).saturating_add(1)
    }

    /// The points of all arms, one after the other, each from frequency 0 outwards: radians for each pixel along rows and columns.
    pub fn points(&self) -> Result<Vec<f64>> {
        let Self { interleaves, samples, turns, power, is_golden } = *self;
        if interleaves == 0 || samples < 2 || !(turns.is_finite() && turns > 0.0) {
            return Err(Error::argument(
                "spiral",
                format!(
                    "{interleaves} arms of {samples} samples and {turns} turns; 1 or more arms, 2 or more samples and more than 0 \
                     turns are expected"
                ),
            ));
        }
        if !(1.0..=10.0).contains(&power) {
            let reason = format!("a power of {power}; 1 (Archimedean) to 10 is expected");
            return Err(Error::argument("spiral", reason));
        }
        check_samples("spiral", interleaves, samples)?;
        let golden = TAU * (5.0_f64.sqrt() - 1.0) / 2.0;
        let step = if is_golden { golden } else { TAU / interleaves as f64 };
        let a = PI * turns;
        let mut points = Vec::with_capacity(2 * interleaves * samples);
        for arm in 0..interleaves {
            for sample in 0..samples {
                let way = sample as f64 / (samples - 1) as f64;
                // The `s` of `s + a s² = (1 + a) way`.
                let part = 2.0 * (1.0 + a) * way / ((1.0 + 4.0 * a * (1.0 + a) * way).sqrt() + 1.0);
                let (sine, cosine) = (TAU * turns * part + step * arm as f64).sin_cos();
                let radius = PI * part.powf(power);
                points.extend([radius * sine, radius * cosine]);
            }
        }
        Ok(points)
    }
}

fn longest(sides: &[usize]) -> f64 {
    sides.iter().copied().max().unwrap_or(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;
    use crate::physics::LinearPhysics;
    use crate::physics::fourier::Trajectory;

    /// A disk with soft edges and a smaller one in it.
    fn phantom(side: usize) -> Array {
        Array::from_shape_fn(vec![1, 1, side, side], |at| {
            let middle = (side / 2) as f32;
            let distance = |row: f32, column: f32| {
                (at[2] as f32 - middle - row).hypot(at[3] as f32 - middle - column)
            };
            let disk = |distance: f32, radius: f32| 1.0 / (1.0 + (distance - radius).exp());
            disk(distance(0.0, 0.0), 0.3 * side as f32) - 0.5 * disk(distance(4.0, -3.0), 5.0)
        })
    }

    /// How far the adjoint of all frequencies, weighted against their density, is from the image.
    fn error(spiral: Spiral, side: usize) -> Result<(f32, f32)> {
        let (image, points) = (phantom(side), spiral.points()?);
        let density = Trajectory::density(&[side, side], &points)?;
        let of = |density: Option<&[f64]>| -> Result<f32> {
            let scan = Trajectory::new(&[1, side, side], None, &points, density, 1e-5)?;
            let back = scan.normal(&image)?;
            let factor = (&back * &image).sum() / (&back * &back).sum();
            let difference = (back * factor - &image).mapv(|value| value * value).sum();
            Ok((difference / image.mapv(|value| value * value).sum()).sqrt())
        };
        Ok((of(Some(&density))?, of(None)?))
    }

    #[test]
    fn densities_bring_the_adjoint_of_a_spiral_scan_nearer_to_its_inverse() -> Result<()> {
        let golden =
            Spiral { interleaves: 13, is_golden: true, ..Spiral::covering(8, 1.0, &[48, 48]) };
        // The errors of the same definitions in numpy, with sums over all frequencies in double precision.
        for (spiral, expected) in [
            (Spiral::covering(6, 1.0, &[48, 48]), [0.2723, 0.5684]),
            (golden, [0.2934, 0.5957]),
            (Spiral::covering(6, 1.5, &[48, 48]), [0.2000, 0.5237]),
        ] {
            let (with, without) = error(spiral, 48)?;
            let is_near = |found: f32, expected: f32| (found - expected).abs() < 1e-3;
            let is_right = is_near(with, expected[0]) && is_near(without, expected[1]);
            assert!(is_right && without > 2.0 * with, "{spiral:?}: {with} {without}");
        }
        Ok(())
    }

    #[test]
    fn arms_begin_in_the_middle_end_at_the_edge_and_are_turned() -> Result<()> {
        let spiral =
            Spiral { interleaves: 3, samples: 5, turns: 2.0, power: 1.0, is_golden: false };
        let points = spiral.points()?;
        let radius = |index: usize| points[2 * index].hypot(points[2 * index + 1]);
        assert!(radius(0) == 0.0 && radius(5) == 0.0);
        assert!((radius(4) - PI).abs() < 1e-12);
        // Half of the way.
        let (part, a) = (radius(2) / PI, TAU);
        assert!((part + a * part * part - 0.5 * (1.0 + a)).abs() < 1e-9, "{part}");
        // Ends are a third of a turn apart.
        let angle = |index: usize| points[2 * index].atan2(points[2 * index + 1]);
        let apart = (angle(9) - angle(4)).rem_euclid(TAU);
        assert!((apart - TAU / 3.0).abs() < 1e-9, "{apart}");
        Ok(())
    }

    #[test]
    fn arms_that_leave_no_gaps_are_as_near_as_the_grid() -> Result<()> {
        let mut cases =
            vec![(32, 256, 1.0), (128, 256, 1.0), (1, 16, 1.0), (4, 32, 1.0), (7, 40, 1.0)];
        cases.extend([(32, 256, 2.0), (5, 64, 1.5), (3, 24, 10.0), (200, 24, 10.0)]);
        for (interleaves, side, power) in cases {
            let spiral = Spiral::covering(interleaves, power, &[side, side]);
            let cell = TAU / side as f64 * (1.0 + 1e-9);
            // At the edge, from one arm to the next: the same angle is `1 / (turns · interleaves)` earlier.
            let before = 1.0 - 1.0 / (spiral.turns * interleaves as f64);
            let apart = PI * (1.0 - before.powf(power));
            assert!(apart <= cell, "{interleaves} {side} {power}: {apart} {cell}");
            let points = spiral.points()?;
            let arm = points[..2 * spiral.samples].chunks(2).collect::<Vec<_>>();
            let steps =
                arm.windows(2).map(|pair| (pair[0][0] - pair[1][0]).hypot(pair[0][1] - pair[1][1]));
            let longest = steps.fold(0.0, f64::max);
            assert!(longest <= cell, "{interleaves} {side} {power}: {longest} {cell}");
        }
        Ok(())
    }

    #[test]
    fn spirals_without_arms_turns_or_samples_are_refused() {
        let good = Spiral::covering(2, 1.0, &[8, 8]);
        for (spiral, reason) in [
            (Spiral { interleaves: 0, ..good }, "0 arms"),
            (Spiral { samples: 1, ..good }, "1 samples"),
            (Spiral { turns: -1.0, ..good }, "-1 turns"),
            (Spiral { power: 0.5, ..good }, "power of 0.5"),
            (Spiral { interleaves: 1 << 40, ..good }, "2³¹"),
            (Spiral { interleaves: usize::MAX, ..good }, "2³¹"),
            (Spiral::covering(1, 1.0, &[usize::MAX]), "2³¹"),
        ] {
            let error = spiral.points().expect_err("refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
