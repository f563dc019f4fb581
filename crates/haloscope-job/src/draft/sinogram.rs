//! What a sinogram tells of its scan: which axis has the views, whether it holds intensities, and what arc was scanned.

use std::f64::consts::PI;

use haloscope::Array;
use ndarray::{Array2, ArrayView2, Axis};

use super::quantile;

/// A sinogram (view, bin) of line integrals, and what was done to make it one.
pub(crate) struct Sinogram {
    pub values: Array2<f32>,
    /// Whether its file has (bin, view).
    pub turned: bool,
    /// The intensity of the beam, if its file has intensities and not line integrals.
    pub beam: Option<f64>,
}

/// The arc of equally spaced views.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arc {
    /// From the first to the last view, and one step more.
    pub degrees: f64,
    /// Whether the last view is a whole (half) turn after the first.
    pub has_both_ends: bool,
    pub is_full_turn: bool,
}

impl Sinogram {
    /// A sinogram of a file, whichever way it lies.
    pub(crate) fn of(stored: &ArrayView2<f32>) -> Self {
        let beam = beam_of(stored);
        let integrals = match beam {
            Some(beam) => stored.mapv(|value| -((f64::from(value) / beam).max(1e-6).ln() as f32)),
            None => stored.to_owned(),
        };
        // Every view holds all of the object, so that all have one sum; bins do not.
        let turned = spread(&integrals, Axis(1)) > spread(&integrals, Axis(0));
        let values = if turned {
            integrals.reversed_axes().as_standard_layout().into_owned()
        } else {
            integrals
        };
        Self { values, turned, beam }
    }

    /// As measurements: (1, 1, view, bin).
    pub(crate) fn array(&self) -> Array {
        self.values.clone().insert_axis(Axis(0)).insert_axis(Axis(0)).into_dyn()
    }

    /// The arc that the views are spread over. The view after the last is the first again, after a full turn, or its
    /// mirror image, after half of one; or this is the last view itself, if both ends were scanned.
    ///
    /// Either way the views go on smoothly beyond the last, and the difference of a view from the mean of its neighbours is
    /// noise and little else. So the places of the first views after the last ones are those that interpolate best. The end
    /// is taken to be left out, as most scans do, unless it is clearly better the other way.
    pub(crate) fn arc(&self) -> Arc {
        let (views, bins) = self.values.dim();
        let half_turn = Arc { degrees: 180.0, has_both_ends: false, is_full_turn: false };
        if views < 4 || bins < 4 {
            return half_turn;
        }
        let view = |index: usize| smooth(&self.values.row(index).to_vec());
        let before = (view(views - 2), view(views - 1));
        let after = (view(0), view(1));
        let full = Seam::of(&before, &after);
        // A mirror image about an axis anywhere in the middle two thirds.
        let mirrored =
            |twice: f64| Seam::of(&before, &(mirror(&after.0, twice), mirror(&after.1, twice)));
        let least = |cost: fn(&Seam) -> f64| {
            let whole = (bins / 3..=2 * (bins - 1) - bins / 3).map(|twice| twice as f64);
            let best = |places: &mut dyn Iterator<Item = f64>| {
                places
                    .map(|twice| (cost(&mirrored(twice)), twice))
                    .min_by(|one, other| one.0.total_cmp(&other.0))
                    .unwrap_or((f64::INFINITY, 0.0))
            };
            let (_, near) = best(&mut whole.into_iter());
            best(&mut (-8..=8).map(|part| near + f64::from(part) / 8.0)).0
        };
        let half = Seam {
            open: least(|seam| seam.open),
            closed: least(|seam| seam.closed),
            again: least(|seam| seam.again),
        };
        // What remains anywhere in the scan is noise, and the bend of the views.
        let mut rests: Vec<f64> =
            (1..views - 1).map(|i| deviation(&view(i), &view(i - 1), &view(i + 1))).collect();
        rests.sort_by(f64::total_cmp);
        let rest = 2.0 * rests[rests.len() / 2];
        // Sums over so many bins of noise differ by chance by about this part.
        let chance = (3.5 / (bins as f64).sqrt()).min(0.5);
        let is_full_turn = full.least() < (1.0 - chance) * half.least()
            && full.least() - rest < 0.5 * (half.least() - rest);
        // The same view again differs by noise alone, and neighbours by more than that, unless they are many.
        let again = if is_full_turn { full.again } else { half.again };
        let mut steps: Vec<f64> = (1..views).map(|i| difference(&view(i), &view(i - 1))).collect();
        steps.sort_by(f64::total_cmp);
        let seam = if is_full_turn { full } else { half };
        let has_both_ends =
            seam.closed < (1.0 - chance) * seam.open || again < SAME * steps[steps.len() / 2];
        let turn = if is_full_turn { 360.0 } else { 180.0 };
        let degrees = if has_both_ends { turn * views as f64 / (views as f64 - 1.0) } else { turn };
        Arc { degrees, has_both_ends, is_full_turn }
    }
}

/// How badly the views around the end of a turn fit to each other.
struct Seam {
    /// If the end is left out.
    open: f64,
    /// If the last view is the first, or its mirror image.
    closed: f64,
    /// How far the last view is from the first.
    again: f64,
}

/// Two views of which the difference is less than this part of that of neighbours are the same one.
const SAME: f64 = 0.1;

impl Seam {
    /// With the last two views before it, and the first two after it.
    fn of(before: &(Vec<f32>, Vec<f32>), after: &(Vec<f32>, Vec<f32>)) -> Self {
        let open =
            deviation(&before.1, &before.0, &after.0) + deviation(&after.0, &before.1, &after.1);
        let closed =
            deviation(&before.1, &before.0, &after.1) + deviation(&after.0, &before.0, &after.1);
        Self { open, closed, again: difference(&before.1, &after.0) }
    }

    fn least(&self) -> f64 {
        self.open.min(self.closed)
    }
}

/// The mean squared difference of two views.
fn difference(one: &[f32], other: &[f32]) -> f64 {
    deviation(one, other, other)
}

/// The mean squared difference of a view from the mean of two others.
fn deviation(view: &[f32], one: &[f32], other: &[f32]) -> f64 {
    let others = one.iter().zip(other);
    let sum: f64 = view
        .iter()
        .zip(others)
        .map(|(value, (one, other))| f64::from(value - 0.5 * (one + other)).powi(2))
        .sum();
    sum / view.len() as f64
}

/// A view over five bins, which leaves less of its noise than of the object.
fn smooth(view: &[f32]) -> Vec<f32> {
    let last = view.len() as isize - 1;
    let tap = |index: isize| view[index.clamp(0, last) as usize];
    (0..=last)
        .map(|i| {
            let (near, far) = (tap(i - 1) + tap(i + 1), tap(i - 2) + tap(i + 2));
            (6.0 * tap(i) + 4.0 * near + far) / 16.0
        })
        .collect()
}

/// The mirror image of a view about half of `twice`, in bins. Beyond the detector is air.
fn mirror(view: &[f32], twice: f64) -> Vec<f32> {
    let value = |index: f64| {
        if index >= 0.0 && index < view.len() as f64 { view[index as usize] } else { 0.0 }
    };
    (0..view.len())
        .map(|bin| {
            let place = twice - bin as f64;
            let (below, part) = (place.floor(), (place - place.floor()) as f32);
            value(below) + part * (value(below + 1.0) - value(below))
        })
        .collect()
}

impl Arc {
    /// The angles of so many views, in radians.
    pub(crate) fn angles(&self, views: usize) -> Vec<f64> {
        (0..views).map(|view| self.degrees / 180.0 * PI * view as f64 / views as f64).collect()
    }
}

/// The intensity of the beam, if these are intensities. Detectors are wider than objects: along one pair of borders is
/// nothing but air, which is the least of line integrals and the most of intensities.
pub(crate) fn beam_of(values: &ArrayView2<f32>) -> Option<f64> {
    let (rows, columns) = values.dim();
    let (low, high) =
        (quantile(values.iter().copied(), 0.01), quantile(values.iter().copied(), 0.99));
    if low <= 0.0 || rows < 2 || columns < 2 {
        return None;
    }
    let border = |axis: Axis, last: usize| {
        let ends = values
            .index_axis(axis, 0)
            .to_vec()
            .into_iter()
            .chain(values.index_axis(axis, last).to_vec());
        quantile(ends, 0.5)
    };
    let (across, along) = (border(Axis(0), rows - 1), border(Axis(1), columns - 1));
    let (least, most) = (across.min(along), across.max(along));
    (high - most < least - low).then_some(most)
}

/// How much the sums over an axis differ from each other, in parts of their mean.
fn spread(values: &Array2<f32>, axis: Axis) -> f64 {
    let sums: Vec<f64> = values
        .lanes(axis)
        .into_iter()
        .map(|lane| lane.iter().map(|v| f64::from(*v)).sum())
        .collect();
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    let square = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / sums.len() as f64;
    square.sqrt() / mean.abs().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haloscope::phantom::{SheppLogan, Table};
    use haloscope::physics::Physics;
    use haloscope::physics::tomography::{ParallelBeam, Tomography2d};

    /// A phantom seen at some degrees, with its axis off the middle.
    fn scanned(degrees: impl Iterator<Item = f64>) -> Array2<f32> {
        let mut scan = ParallelBeam::new(degrees.map(f64::to_radians).collect(), 90);
        scan.offset = 4.0;
        let slice = SheppLogan::new(Table::Modified).draw(&[60, 60]).expect("a phantom");
        let operator = Tomography2d::new(&[1, 60, 60], scan).expect("an operator");
        let data = operator.forward(&slice.mapv(|value| 0.02 * value)).expect("a sinogram");
        let shape = (data.shape()[2], 90);
        data.into_shape_with_order(shape).expect("one sinogram")
    }

    #[test]
    fn views_are_found_on_either_axis_and_intensities_become_integrals() {
        let truth = scanned((0..60).map(|view| f64::from(view) * 3.0));
        let turned = truth.clone().reversed_axes();
        let counts = truth.mapv(|value| 5000.0 * (-value).exp());
        assert!(!Sinogram::of(&truth.view()).turned);
        assert!(Sinogram::of(&truth.view()).beam.is_none());
        assert!(Sinogram::of(&turned.view()).turned);
        for (stored, is_turned) in [(counts.clone(), false), (counts.reversed_axes(), true)] {
            let sinogram = Sinogram::of(&stored.view());
            assert_eq!(sinogram.turned, is_turned);
            assert!((sinogram.beam.expect("counts") - 5000.0).abs() < 1.0);
            let worst = (&sinogram.values - &truth).iter().fold(0.0_f32, |w, d| w.max(d.abs()));
            assert!(worst < 1e-4, "{worst}");
        }
    }

    /// Ellipses all over a slice, seen at some degrees of one turn or half of one.
    fn crowded(views: usize, steps: usize, turn: f64, centre: f64, sigma: f64) -> Array2<f32> {
        let angles = (0..views).map(|view| (turn * view as f64 / steps as f64).to_radians());
        let mut scan = ParallelBeam::new(angles.collect(), 300);
        scan.offset = 149.5 - centre;
        let mut slice = Array::zeros(vec![1, 1, 200, 200]);
        for disk in 0..40 {
            let (turned, away) = (f64::from(disk) * 2.4, 12.0 * f64::from(disk).sqrt());
            let (y, x) = (99.5 + away * turned.sin(), 99.5 + away * turned.cos());
            let radius = 4.0 + f64::from(disk % 5);
            for row in 0..200 {
                for column in 0..200 {
                    if (row as f64 - y).hypot(column as f64 - x) < radius {
                        slice[[0, 0, row, column]] += 0.01;
                    }
                }
            }
        }
        let operator = Tomography2d::new(&[1, 200, 200], scan).expect("an operator");
        let mut data = operator.forward(&slice).expect("a sinogram");
        let source = haloscope::noise::NoiseSource { seed: 7, operator: 0 };
        haloscope::noise::Noise::gaussian(sigma)
            .expect("noise")
            .add(&mut data, source)
            .expect("noise");
        data.into_shape_with_order((views, 300)).expect("one sinogram")
    }

    #[test]
    fn ends_that_are_left_out_are_never_taken_for_scanned_and_clear_ones_are_seen() {
        for (turn, steps, centre) in
            [(180.0, 120, 149.5), (180.0, 120, 145.2), (180.0, 240, 131.7), (360.0, 240, 145.2)]
        {
            for sigma in [0.0, 0.003, 0.03] {
                let arc = Sinogram::of(&crowded(steps, steps, turn, centre, sigma).view()).arc();
                let expected =
                    Arc { degrees: turn, has_both_ends: false, is_full_turn: turn == 360.0 };
                assert_eq!(arc, expected, "{turn} {steps} {centre} {sigma}");
            }
            let both = Sinogram::of(&crowded(steps + 1, steps, turn, centre, 0.0).view()).arc();
            assert_eq!(both.is_full_turn, turn == 360.0, "{turn} {steps} {centre}");
            if steps == 120 {
                assert!(both.has_both_ends, "{turn} {steps} {centre}");
            }
        }
    }

    #[test]
    fn half_and_full_turns_with_and_without_their_end_are_told_apart() {
        for (turn, views, has_both_ends) in
            [(180.0, 60, false), (180.0, 61, true), (360.0, 90, false), (360.0, 91, true)]
        {
            let steps = if has_both_ends { views - 1 } else { views };
            let degrees = (0..views).map(|view| turn * f64::from(view) / f64::from(steps));
            let arc = Sinogram::of(&scanned(degrees).view()).arc();
            assert_eq!(arc.is_full_turn, turn == 360.0, "{turn} {views}: {arc:?}");
            assert_eq!(arc.has_both_ends, has_both_ends, "{turn} {views}: {arc:?}");
            let last = arc.angles(views as usize)[views as usize - 1].to_degrees();
            let expected = turn * f64::from(views - 1) / f64::from(steps);
            assert!((last - expected).abs() < 1e-9, "{last} {expected}");
        }
    }
}
