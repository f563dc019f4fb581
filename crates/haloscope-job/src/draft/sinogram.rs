//! What a sinogram tells of its scan: which axis has the views, whether it holds intensities, and what arc was scanned.

use std::f64::consts::PI;

use haloscope::Array;
use ndarray::{Array2, ArrayView2, Axis};

use super::quantile;

/// A sinogram (view, bin) of line integrals, and what was done to make it one.
pub struct Sinogram {
    pub values: Array2<f32>,
    /// Whether its file has (bin, view).
    pub turned: bool,
    /// The intensity of the beam, if its file has intensities and not line integrals.
    pub beam: Option<f64>,
}

/// The arc of equally spaced views.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arc {
    /// From the first to the last view, and one step more.
    pub degrees: f64,
    /// Whether the last view is a whole (half) turn after the first.
    pub has_both_ends: bool,
    pub is_full_turn: bool,
}

impl Sinogram {
    /// A sinogram of a file, whichever way it lies.
    pub fn of(stored: &ArrayView2<f32>) -> Self {
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
    pub fn array(&self) -> Array {
        self.values.clone().insert_axis(Axis(0)).insert_axis(Axis(0)).into_dyn()
    }

    /// The arc that the views are spread over. The view after the last is the first again, after a full turn, or its
    /// mirror image, after half of one.
    pub fn arc(&self) -> Arc {
        let (views, bins) = self.values.dim();
        let view = |index: usize| self.values.row(index).to_vec();
        let (first, last) = (view(0), view(views.saturating_sub(1)));
        let mirrored: Vec<f32> = first.iter().rev().copied().collect();
        // A mirror image about an axis anywhere in the middle two thirds is the reversed view, moved.
        let most = bins as isize * 2 / 3;
        let half = (-most..=most)
            .map(|shift| difference(&mirrored, &last, shift))
            .fold(f64::INFINITY, f64::min);
        let full = difference(&first, &last, 0);
        let mut steps: Vec<f64> =
            (1..views).map(|i| difference(&view(i - 1), &view(i), 0)).collect();
        steps.sort_by(f64::total_cmp);
        let step = steps.get(steps.len() / 2).copied().unwrap_or(0.0);
        let is_full_turn = full < 0.5 * half;
        let turn = if is_full_turn { 360.0 } else { 180.0 };
        // Both ends are there if they differ by less than neighbours do.
        let has_both_ends = views > 2 && full.min(half) < 0.4 * step;
        let degrees = if has_both_ends { turn * views as f64 / (views as f64 - 1.0) } else { turn };
        Arc { degrees, has_both_ends, is_full_turn }
    }
}

impl Arc {
    /// The angles of so many views, in radians.
    pub fn angles(&self, views: usize) -> Vec<f64> {
        (0..views).map(|view| self.degrees / 180.0 * PI * view as f64 / views as f64).collect()
    }
}

/// The intensity of the beam, if these are intensities. Detectors are wider than objects: along one pair of borders is
/// nothing but air, which is the least of line integrals and the most of intensities.
fn beam_of(values: &ArrayView2<f32>) -> Option<f64> {
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

/// The mean squared difference of a view that is moved by so many bins from another, where both are there.
fn difference(one: &[f32], other: &[f32], shift: isize) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (index, value) in one.iter().enumerate() {
        let there = usize::try_from(index as isize + shift).ok().and_then(|index| other.get(index));
        // Beyond the detector is air.
        sum += (f64::from(*value) - f64::from(*there.unwrap_or(&0.0))).powi(2);
        count += 1;
    }
    sum / f64::from(count.max(1))
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
