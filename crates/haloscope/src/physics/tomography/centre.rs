//! Where the rotation axis of a parallel scan is on the detector, from the data alone.
//!
//! Two ideas that fail in different ways. A view and the one from the other side are mirror images of each other about
//! the axis: their correlation finds it to a fraction of a bin wherever there are such views. Views that are a step short
//! of opposite are moved by what that step moves them, which neighbouring views tell. And a slice that is back-projected
//! about a wrong axis has negative streaks, so that the integral of its absolute value is least for the right one (Donath
//! et al., "Automated determination of the center of rotation in tomography data", JOSA A 23, 2006): it needs no opposite
//! views, but the streaks of few views and of a missing wedge move it by up to a bin. So the mirror images decide, and the
//! streaks have a say where those are far off or are not there. Short scans have the third: the middle of mass of a view
//! moves as `c + a cos θ + b sin θ`, if all of the object is in view.

use std::f64::consts::{PI, TAU};

use rayon::prelude::*;

use super::coverage::Coverage;
use super::filter::{Ramp, Window};
use crate::array::View;
use crate::error::{Error, Result};

/// The rotation axis of a scan, as its detector sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotationCentre {
    /// The bin that sees it, counted from 0; whole numbers are the middles of bins.
    pub bin: f64,
    /// What the mirror images of opposite views say, if there are such views and they resemble each other.
    pub mirrored: Option<f64>,
    /// What the streaks of slices about a wrong axis say, if that was looked for. The nearer it is to `bin`, the surer is
    /// the result.
    pub streaks: Option<f64>,
}

/// The longest row that is searched as a whole; longer ones are searched in blocks of bins first.
const COARSE: usize = 160;

/// Opposite views that correlate less than this have nothing to say.
const RESEMBLANCE: f64 = 0.6;

/// Mirror images and streaks that differ by more bins than this are not of one mind.
const AGREEMENT: f64 = 2.0;

/// Pairs of opposite views that are compared, at most.
const MOST_PAIRS: usize = 24;

/// Sinograms that are looked at, at most.
const MOST_ROWS: usize = 2;

/// The side of the grid of points at which a slice is computed.
const POINTS: usize = 128;

/// How far from the axis these points go, in detectors: the axis may be as far as this from the farthest bin.
const REACH: f64 = 5.0 / 6.0;

/// Views whose sums deviate by less than this part hold all of the object.
const SAME_MASS: f64 = 0.05;

/// Finds the rotation axis in sinograms (batch, channel, view, bin) of parallel rays at `angles`, in radians. Sinograms
/// of a batch are rows of one detector, and have one axis.
///
/// The axis is looked for in the middle two thirds of the detector. Scans of less than half a turn leave it uncertain by a bin
/// or more, and all the more if the object reaches beyond the detector.
///
/// ```
/// use haloscope::physics::Physics;
/// use haloscope::physics::tomography::{ParallelBeam, Tomography2d, evenly_spaced, rotation_centre};
/// use haloscope::phantom::{SheppLogan, Table};
///
/// let angles = evenly_spaced(60, std::f64::consts::PI);
/// let mut scan = ParallelBeam::new(angles.clone(), 80);
/// scan.offset = 39.5 - 36.0;
/// let slice = SheppLogan::new(Table::Modified).draw(&[48, 48])?;
/// let sinogram = Tomography2d::new(&[1, 48, 48], scan)?.forward(&slice)?;
/// assert!((rotation_centre(&sinogram, &angles)?.bin - 36.0).abs() < 0.5);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn rotation_centre(sinograms: &View, angles: &[f64]) -> Result<RotationCentre> {
    let &[_, _, views, bins] = sinograms.shape() else {
        return Err(Error::Shape {
            what: "the sinogram whose rotation axis is looked for".into(),
            expected: "(batch, channel, view, bin) is expected".into(),
            found: sinograms.shape().to_vec(),
        });
    };
    if views != angles.len() || views < 4 || bins < 16 {
        return Err(Error::argument(
            "rotation centre",
            format!(
                "{views} views of {bins} bins at {} angles; one angle for each of at least 4 views, and at least \
                 16 bins, are expected",
                angles.len()
            ),
        ));
    }
    let standard = sinograms.as_standard_layout();
    let values = standard.as_slice().unwrap_or_default();
    if !values.iter().all(|value| value.is_finite()) {
        return Err(Error::argument(
            "rotation centre",
            "the sinogram holds values that are not finite",
        ));
    }
    // Rows from the middle of the detector, where the object is.
    let rows: Vec<&[f32]> = values.chunks_exact(views * bins).collect();
    let step = rows.len().div_ceil(MOST_ROWS + 1);
    let rows: Vec<&[f32]> =
        rows.iter().copied().skip(step.min(rows.len() - 1)).step_by(step).take(MOST_ROWS).collect();

    let mirrored = mirror(&rows, bins, angles);
    let half = half_turn(angles);
    let half_angles: Vec<f64> = half.iter().map(|view| angles[*view]).collect();
    if mirrored.is_none()
        && !Coverage::new(&half_angles, PI).is_closed()
        && let Some(bin) = middle_of_mass(&rows, bins, angles)
    {
        return Ok(RotationCentre { bin, mirrored: None, streaks: None });
    }
    let rows: Vec<Vec<f32>> = rows.iter().map(|row| chosen(row, bins, &half)).collect();
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let slices = Slices::new(&rows, bins, &half_angles)?;
    let near = match mirrored {
        // Views of different noise or brightness may resemble each other best a little off.
        Some(bin) => {
            let reach = 4.0_f64.max(0.02 * bins as f64);
            (bin - reach, bin + reach)
        }
        None => rough(&rows, bins, &half_angles)?,
    };
    let mut bin = slices.least(near, 0.5);
    for step in [0.125, 0.03] {
        bin = slices.least((bin - 4.0 * step, bin + 4.0 * step), step);
    }
    let streaks = Some(bin);
    // Mirror images have no bias, and streaks have up to a bin.
    if let Some(mirrored) = mirrored.filter(|mirrored| (mirrored - bin).abs() <= AGREEMENT) {
        bin = mirrored;
    }
    Ok(RotationCentre { bin, mirrored, streaks })
}

/// Where the axis is, to about a block of bins, from the whole detector.
fn rough(rows: &[&[f32]], bins: usize, angles: &[f64]) -> Result<(f64, f64)> {
    let width = bins.div_ceil(COARSE);
    let means: Vec<Vec<f32>> = rows.iter().map(|row| binned(row, bins, width)).collect();
    let means: Vec<&[f32]> = means.iter().map(Vec::as_slice).collect();
    let blocks = (bins / width) as f64;
    let slices = Slices::new(&means, bins / width, angles)?;
    let best = slices.least((blocks / 6.0, 5.0 * blocks / 6.0 - 1.0), 0.5);
    // Block b is at (b + ½) width − ½ in bins.
    let (bin, width) = ((best + 0.5) * width as f64 - 0.5, width as f64);
    Ok((bin - width, bin + width))
}

/// The views of half a turn: about a wrong axis, views of both sides would blur the slice instead of streaking it.
fn half_turn(angles: &[f64]) -> Vec<usize> {
    let first = angles.iter().copied().fold(f64::INFINITY, f64::min);
    let is_in = |view: &usize| (angles[*view] - first).rem_euclid(TAU) < PI - 1e-6;
    (0..angles.len()).filter(is_in).collect()
}

/// Some views of a row.
fn chosen(row: &[f32], bins: usize, views: &[usize]) -> Vec<f32> {
    views.iter().flat_map(|view| row[view * bins..(view + 1) * bins].iter().copied()).collect()
}

/// The constant of the middle of mass, if every view holds the same mass.
fn middle_of_mass(rows: &[&[f32]], bins: usize, angles: &[f64]) -> Option<f64> {
    let mut found = Vec::new();
    for row in rows {
        let views = row.chunks_exact(bins);
        let (masses, moments): (Vec<f64>, Vec<f64>) = views
            .map(|view| {
                view.iter().enumerate().fold((0.0, 0.0), |(mass, moment), (bin, value)| {
                    (mass + f64::from(*value), moment + bin as f64 * f64::from(*value))
                })
            })
            .unzip();
        let mean = masses.iter().sum::<f64>() / masses.len() as f64;
        let square =
            masses.iter().map(|mass| (mass - mean).powi(2)).sum::<f64>() / masses.len() as f64;
        if mean > 0.0 && square.sqrt() < SAME_MASS * mean {
            let middles: Vec<f64> = moments.iter().map(|moment| moment / mean).collect();
            found.extend(constant_of(&middles, angles));
        }
    }
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    (mean > 0.0 && mean < bins as f64 - 1.0).then_some(mean)
}

/// The `c` of the best fit of `c + a cos θ + b sin θ`, by the normal equations.
fn constant_of(values: &[f64], angles: &[f64]) -> Option<f64> {
    let mut system = [[0.0; 4]; 3];
    for (value, angle) in values.iter().zip(angles) {
        let terms = [1.0, angle.cos(), angle.sin(), *value];
        for (row, factor) in system.iter_mut().zip(terms) {
            for (entry, term) in row.iter_mut().zip(terms) {
                *entry += factor * term;
            }
        }
    }
    // The constant is eliminated last, so that it is the first to be known.
    for pivot in [2, 1] {
        let row = system[pivot];
        if row[pivot].abs() < 1e-9 * values.len() as f64 {
            return None;
        }
        for other in system.iter_mut().take(pivot) {
            let factor = other[pivot] / row[pivot];
            for (entry, term) in other.iter_mut().zip(row) {
                *entry -= factor * term;
            }
        }
    }
    (system[0][0].abs() > 1e-9 * values.len() as f64).then(|| system[0][3] / system[0][0])
}

/// Means of blocks of `width` bins.
fn binned(row: &[f32], bins: usize, width: usize) -> Vec<f32> {
    row.chunks_exact(bins)
        .flat_map(|view| {
            view.chunks_exact(width).map(|block| block.iter().sum::<f32>() / width as f32)
        })
        .collect()
}

/// Slices at some points, about any axis.
struct Slices {
    /// Filtered rows, with half a detector more on either side.
    filtered: Vec<Vec<f32>>,
    bins: usize,
    padded: usize,
    /// The sine and cosine of each angle, and the arc that it stands for.
    views: Vec<(f64, f64, f64)>,
    /// (x, y) in a disk that is the same for every axis, so that their integrals compare.
    points: Vec<(f64, f64)>,
}

impl Slices {
    fn new(rows: &[&[f32]], bins: usize, angles: &[f64]) -> Result<Self> {
        let margin = bins / 2;
        let padded = bins + 2 * margin;
        let ramp = Ramp::new(padded, 1.0, Window::Hann)?;
        let mut filtered = Vec::new();
        for row in rows {
            let mut wide = vec![0.0; angles.len() * padded];
            for (view, wide) in row.chunks_exact(bins).zip(wide.chunks_exact_mut(padded)) {
                wide[margin..margin + bins].copy_from_slice(view);
                // Objects that reach beyond the detector fade out instead of ending in an edge.
                for i in 0..margin {
                    let fade =
                        (0.5 + 0.5 * (PI * (i as f64 + 1.0) / (margin as f64 + 1.0)).cos()) as f32;
                    wide[margin - 1 - i] = fade * view[0];
                    wide[margin + bins + i] = fade * view[bins - 1];
                }
            }
            ramp.apply(&mut wide, padded)?;
            filtered.push(wide);
        }
        let arcs = Coverage::new(angles, PI).arcs();
        let views = angles.iter().zip(arcs).map(|(angle, arc)| (angle.sin(), angle.cos(), arc));
        let (radius, half) = (REACH * bins as f64, (POINTS as f64 - 1.0) / 2.0);
        let points = (0..POINTS * POINTS).filter_map(|index| {
            let place = |i: usize| (i as f64 - half) / half * radius;
            let (x, y) = (place(index % POINTS), place(index / POINTS));
            (x.hypot(y) <= radius).then_some((x, y))
        });
        Ok(Self { filtered, bins, padded, views: views.collect(), points: points.collect() })
    }

    /// The place within bounds, in steps, with the least integral of absolute values.
    fn least(&self, (low, high): (f64, f64), step: f64) -> f64 {
        let last = (self.bins as f64) - 1.0;
        let count = ((high - low) / step).max(0.0).round() as usize;
        let places: Vec<f64> =
            (0..=count).map(|i| (low + i as f64 * step).clamp(0.0, last)).collect();
        let costs: Vec<f64> = places.par_iter().map(|place| self.cost(*place)).collect();
        // Where there is nothing to see, the middle is as good as any.
        let away = |i: usize| (places[i] - f64::midpoint(low, high)).abs();
        let best = (0..places.len())
            .min_by(|a, b| costs[*a].total_cmp(&costs[*b]).then(away(*a).total_cmp(&away(*b))));
        best.map_or(f64::midpoint(low, high), |best| places[best])
    }

    /// The integral of the absolute value of the slices about an axis, up to a factor.
    fn cost(&self, centre: f64) -> f64 {
        let middle = centre + (self.bins / 2) as f64;
        let mut total = 0.0;
        for row in &self.filtered {
            for (x, y) in &self.points {
                let mut sum = 0.0;
                for ((sin, cos, arc), view) in self.views.iter().zip(row.chunks_exact(self.padded))
                {
                    let place = x * cos + y * sin + middle;
                    let below = place.floor();
                    if below >= 0.0 && below + 1.0 < self.padded as f64 {
                        let (index, part) = (below as usize, place - below);
                        let (left, right) = (f64::from(view[index]), f64::from(view[index + 1]));
                        sum += arc * (left + part * (right - left));
                    }
                }
                total += sum.abs();
            }
        }
        total
    }
}

/// The bin of the axis about which opposite views are mirror images.
fn mirror(rows: &[&[f32]], bins: usize, angles: &[f64]) -> Option<f64> {
    let pairs = opposite(angles);
    if pairs.is_empty() {
        return None;
    }
    let details = |row: &[f32], view: usize| -> Vec<f64> {
        let view = &row[view * bins..(view + 1) * bins];
        // A derivative over a few bins: neither offsets nor single bins count.
        (0..bins)
            .map(|b| f64::from(view[(b + 2).min(bins - 1)]) - f64::from(view[b.saturating_sub(2)]))
            .collect()
    };
    let all = || rows.iter().flat_map(|row| pairs.iter().map(move |pair| (*row, pair)));
    // What is at b in one view is at 2c − b in the other, and at b + (bins − 1 − 2c) in the other reversed. The derivative
    // of a mirror image has the other sign.
    let mirrored = all().map(|(row, pair)| {
        let other = details(row, pair.other).into_iter().rev().map(|value| -value);
        (details(row, pair.one), other.collect())
    });
    let reach = (bins - 1 - bins / 3) as isize;
    let twice = (bins - 1) as f64 - alignment(&mirrored.collect::<Vec<_>>(), reach)?;
    // A pair that is `short` of half a turn sees what is at b in one view at 2c + short · db/dθ − b in the other. How fast
    // things move is known from the neighbours of both.
    let short = pairs.iter().map(|pair| pair.short).sum::<f64>() / pairs.len() as f64;
    if pairs.iter().all(|pair| pair.short.abs() <= 1e-3 * pair.step.abs()) {
        return Some(0.5 * twice);
    }
    let step = pairs.iter().map(|pair| pair.step).sum::<f64>() / pairs.len() as f64;
    let moved = |of: fn(&Pair) -> (usize, usize)| {
        let views = all().map(|(row, pair)| {
            let (from, to) = of(pair);
            (details(row, from), details(row, to))
        });
        alignment(&views.collect::<Vec<_>>(), (bins / 16 + 2) as isize)
    };
    let one = moved(|pair| (pair.one, pair.after_one));
    // In the mirror it moves the other way.
    let other = moved(|pair| (pair.before_other, pair.other)).map(|moved| -moved);
    let moved = match (one, other) {
        (Some(one), Some(other)) => f64::midpoint(one, other),
        (one, other) => one.or(other).unwrap_or(0.0),
    };
    Some(0.5 * (twice - short / step * moved))
}

/// By how many bins the first of each pair has to be moved to resemble the second most, up to `reach`; `None` if they do not
/// resemble each other anywhere.
fn alignment(views: &[(Vec<f64>, Vec<f64>)], reach: isize) -> Option<f64> {
    let sums: Vec<(f64, f64, f64)> = (-reach..=reach)
        .into_par_iter()
        .map(|shift| {
            let (mut product, mut one, mut other) = (0.0, 0.0, 0.0);
            for (first, second) in views {
                let skipped = |shift: isize| usize::try_from(shift).unwrap_or(0);
                let pairs =
                    first.iter().skip(skipped(-shift)).zip(second.iter().skip(skipped(shift)));
                for (a, b) in pairs {
                    product += a * b;
                    one += a * a;
                    other += b * b;
                }
            }
            (product, one, other)
        })
        .collect();
    let most = sums.iter().map(|(_, one, _)| *one).fold(0.0, f64::max);
    let likeness: Vec<f64> = sums
        .iter()
        .map(|(product, one, other)| {
            // An overlap of hardly anything may look alike by chance.
            let scale = (one * other).sqrt().max(0.25 * most);
            if scale > 0.0 { product / scale } else { 0.0 }
        })
        .collect();
    let best = (0..likeness.len()).max_by(|a, b| likeness[*a].total_cmp(&likeness[*b]))?;
    if likeness[best] < RESEMBLANCE {
        return None;
    }
    let part = match (best.checked_sub(1).map(|i| likeness[i]), likeness.get(best + 1)) {
        (Some(before), Some(after)) => {
            let bend = before - 2.0 * likeness[best] + after;
            if bend < 0.0 { (0.5 * (before - after) / bend).clamp(-0.5, 0.5) } else { 0.0 }
        }
        _ => 0.0,
    };
    Some(best as f64 - reach as f64 + part)
}

/// Two views from opposite sides, or nearly so, and their neighbours.
struct Pair {
    one: usize,
    other: usize,
    /// What the other is short of half a turn after the one, in radians; less than 0 if it is beyond.
    short: f64,
    /// A view that is a step after the one, and a view that is a step before the other.
    after_one: usize,
    before_other: usize,
    /// The step, in radians.
    step: f64,
}

/// Pairs of views from opposite sides, up to the distance of neighbouring views.
fn opposite(angles: &[f64]) -> Vec<Pair> {
    let mut order: Vec<usize> = (0..angles.len()).collect();
    order.sort_by(|a, b| angles[*a].total_cmp(&angles[*b]));
    let mut gaps: Vec<f64> = order
        .windows(2)
        .map(|pair| angles[pair[1]] - angles[pair[0]])
        .filter(|gap| *gap > 1e-9)
        .collect();
    gaps.sort_by(f64::total_cmp);
    let Some(gap) = gaps.get(gaps.len() / 2) else { return Vec::new() };
    // The view that is nearest to a step away.
    let beside = |view: usize, step: f64| {
        let away = |other: &&usize| (angles[**other] - angles[view] - step).abs();
        order.iter().min_by(|a, b| away(a).total_cmp(&away(b))).copied().unwrap_or(view)
    };
    let mut pairs: Vec<(f64, Pair)> = Vec::new();
    for one in 0..angles.len() {
        let short = |other: usize| {
            let short = (PI - (angles[other] - angles[one])).rem_euclid(TAU);
            if short > PI { short - TAU } else { short }
        };
        let away = |other: &usize| short(*other).abs();
        let nearest = (one + 1..angles.len()).min_by(|a, b| away(a).total_cmp(&away(b)));
        if let Some(other) = nearest.filter(|other| away(other) <= 1.01 * gap) {
            let (after_one, before_other) = (beside(one, *gap), beside(other, -gap));
            let short = short(other);
            let pair = Pair { one, other, short, after_one, before_other, step: *gap };
            pairs.push((short.abs(), pair));
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.one.cmp(&b.1.one)));
    // Pairs that are exactly opposite leave the others out; of many, some from all around.
    let least = pairs.first().map_or(0.0, |pair| pair.0);
    pairs.retain(|pair| pair.0 <= least + 0.25 * gap);
    let step = pairs.len().div_ceil(MOST_PAIRS).max(1);
    pairs.into_iter().step_by(step).map(|(_, pair)| pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::noise::{Noise, NoiseSource};
    use crate::phantom::{SheppLogan, Table};
    use crate::physics::Physics;
    use crate::physics::tomography::{ParallelBeam, Tomography2d, evenly_spaced};

    /// A sinogram of a phantom in units of its own, whose axis is at `centre`.
    fn sinogram(angles: &[f64], bins: usize, centre: f64, sigma: f64) -> Array {
        let mut scan = ParallelBeam::new(angles.to_vec(), bins);
        scan.offset = (bins as f64 - 1.0) / 2.0 - centre;
        let side = bins * 5 / 8;
        let slice = SheppLogan::new(Table::Modified).draw(&[side, side]).expect("a phantom");
        let operator = Tomography2d::new(&[1, side, side], scan).expect("an operator");
        let mut data = operator.forward(&slice.mapv(|value| 0.01 * value)).expect("a sinogram");
        let source = NoiseSource { seed: 3, operator: 0 };
        Noise::gaussian(sigma).expect("noise").add(&mut data, source).expect("noise");
        data
    }

    fn found(angles: &[f64], bins: usize, centre: f64, sigma: f64) -> RotationCentre {
        rotation_centre(&sinogram(angles, bins, centre, sigma), angles).expect("a centre")
    }

    #[test]
    fn the_axis_is_found_to_a_fraction_of_a_bin_in_scans_of_any_arc() {
        let both_ends: Vec<f64> = (0..=60).map(|i| f64::from(i) * PI / 60.0).collect();
        for (angles, centre) in [
            (evenly_spaced(60, PI), 62.3),
            (both_ends, 41.0),
            (evenly_spaced(90, TAU), 52.75),
            (evenly_spaced(45, PI), 47.5),
        ] {
            let centre_found = found(&angles, 96, centre, 0.0);
            assert!((centre_found.bin - centre).abs() < 0.26, "{centre}: {centre_found:?}");
            let mirrored = centre_found.mirrored.expect("opposite views");
            assert!((mirrored - centre).abs() < 2.0, "{centre}: {centre_found:?}");
        }
    }

    /// A slice whose parts are all on one side, so that its views move as the scan turns.
    fn lopsided(angles: &[f64], bins: usize, centre: f64, sigma: f64) -> Array {
        let mut scan = ParallelBeam::new(angles.to_vec(), bins);
        scan.offset = (bins as f64 - 1.0) / 2.0 - centre;
        let side = bins * 5 / 8;
        let mut slice = Array::zeros(vec![1, 1, side, side]);
        for (y, x, radius, value) in
            [(0.3, 0.7, 0.2, 1.0), (0.25, 0.65, 0.05, 2.0), (0.6, 0.8, 0.1, 0.7)]
        {
            for ((_, _, row, column), pixel) in slice
                .view_mut()
                .into_dimensionality::<ndarray::Ix4>()
                .expect("a slice")
                .indexed_iter_mut()
            {
                let place = |index: usize, at: f64| (index as f64 + 0.5) / side as f64 - at;
                if place(row, y).hypot(place(column, x)) < radius {
                    *pixel += 0.01 * value;
                }
            }
        }
        let operator = Tomography2d::new(&[1, side, side], scan).expect("an operator");
        let mut data = operator.forward(&slice).expect("a sinogram");
        let source = NoiseSource { seed: 5, operator: 0 };
        Noise::gaussian(sigma).expect("noise").add(&mut data, source).expect("noise");
        data
    }

    #[test]
    fn views_that_are_a_step_short_of_opposite_find_the_axis_to_a_third_of_a_bin() {
        let both_ends: Vec<f64> = (0..=60).map(|i| f64::from(i) * PI / 60.0).collect();
        for angles in
            [evenly_spaced(60, PI), evenly_spaced(150, PI), both_ends, evenly_spaced(75, TAU)]
        {
            for (centre, sigma) in [(95.5, 0.0), (101.2, 0.004), (84.7, 0.002)] {
                for data in
                    [sinogram(&angles, 192, centre, sigma), lopsided(&angles, 192, centre, sigma)]
                {
                    let found = rotation_centre(&data, &angles).expect("a centre");
                    let views = angles.len();
                    assert!(
                        (found.bin - centre).abs() < 0.33,
                        "{views} views at {centre} with {sigma}: {found:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn noise_and_long_rows_leave_it_within_a_bin() {
        let angles = evenly_spaced(60, PI);
        let centre = found(&angles, 200, 88.0, 0.02);
        assert!((centre.bin - 88.0).abs() < 1.0, "{centre:?}");
        // Without opposite views there is the middle of mass.
        let most = evenly_spaced(52, 0.85 * PI);
        let centre = found(&most, 200, 111.0, 0.0);
        assert!(centre.mirrored.is_none() && (centre.bin - 111.0).abs() < 1.0, "{centre:?}");
    }

    #[test]
    fn objects_that_are_nowhere_seen_alike_are_searched_for_on_the_whole_detector() {
        let angles = evenly_spaced(60, PI);
        let slices = sinogram(&angles, 200, 88.0, 0.0);
        let rows: Vec<&[f32]> = vec![slices.as_slice().expect("a sinogram")];
        let (low, high) = rough(&rows, 200, &angles).expect("a search");
        assert!(low < 88.0 && high > 88.0 && high - low <= 4.0, "{low} to {high}");
    }

    #[test]
    fn rows_of_a_detector_share_their_axis() {
        let angles = evenly_spaced(40, PI);
        let one = sinogram(&angles, 64, 28.0, 0.0);
        let rows =
            ndarray::concatenate(ndarray::Axis(0), &std::array::from_fn::<_, 5, _>(|_| one.view()))
                .expect("rows");
        let centre = rotation_centre(&rows, &angles).expect("a centre");
        assert!((centre.bin - 28.0).abs() < 0.26, "{centre:?}");
    }

    #[test]
    fn what_is_no_sinogram_is_refused() {
        let angles = evenly_spaced(20, PI);
        assert!(rotation_centre(&Array::zeros(vec![20, 64]), &angles).is_err());
        assert!(rotation_centre(&Array::zeros(vec![1, 1, 19, 64]), &angles).is_err());
        let nan = Array::from_elem(vec![1, 1, 20, 64], f32::NAN);
        assert!(rotation_centre(&nan, &angles).is_err());
        // Nothing to see is no reason to fail.
        let empty = rotation_centre(&Array::zeros(vec![1, 1, 20, 64]), &angles).expect("a centre");
        assert!(empty.mirrored.is_none());
    }
}
