//! What part of a turn the views of a scan cover: the arc that each stands for, and where the scan
//! begins and ends.
//!
//! The one idea: what lies between two views is scanned, however far apart they are, unless the gap
//! stands out from those around it. Views may be dense on one side and sparse on the other, and all
//! of it counts; the wedge that a scan of less than a turn leaves out does not.

/// A gap that is larger than this many times those around it was not scanned.
const STANDS_OUT: f64 = 4.0;

/// How many gaps on either side are around one. More than one, because small and large gaps may
/// alternate where a full turn of parallel rays is seen as two passes over half of it.
const AROUND: usize = 3;

/// Views that are nearer than this, in radians, are at one place, and there is no gap between them.
const COINCIDENT: f64 = 1e-9;

/// The views of a scan on a circle.
pub(super) struct Coverage {
    period: f64,
    /// The views in the order of their places.
    order: Vec<usize>,
    /// Where they are, from 0 to the period, in that order.
    places: Vec<f64>,
    /// From each to the next, around the circle.
    gaps: Vec<f64>,
    /// Whether there is nothing unknown in a gap.
    scanned: Vec<bool>,
}

impl Coverage {
    /// Views at some angles, of which those that differ by the period are the same.
    pub(super) fn new(angles: &[f64], period: f64) -> Self {
        let place = |view: &usize| angles[*view].rem_euclid(period);
        let mut order: Vec<usize> = (0..angles.len()).collect();
        order.sort_by(|a, b| place(a).total_cmp(&place(b)));
        let places: Vec<f64> = order.iter().map(place).collect();
        let mut gaps: Vec<f64> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.extend(places.first().zip(places.last()).map(|(first, last)| first + period - last));
        let scanned = (0..gaps.len()).map(|gap| !stands_out(&gaps, gap)).collect();
        Self { period, order, places, gaps, scanned }
    }

    /// The part of the circle that each view stands for: half of the way to its neighbours. Nobody
    /// stands for what is not scanned; there, a view reaches as far as it does on its other side.
    pub(super) fn arcs(&self) -> Vec<f64> {
        let (gaps, count) = (&self.gaps, self.gaps.len());
        let mut arcs = vec![0.0; count];
        for (ahead, view) in self.order.iter().enumerate() {
            let behind = (ahead + count - 1) % count;
            let forward =
                if self.scanned[ahead] { Some(gaps[ahead]) } else { before(gaps, ahead).next() };
            let backward =
                if self.scanned[behind] { Some(gaps[behind]) } else { after(gaps, behind).next() };
            arcs[*view] = 0.5 * (forward.unwrap_or(0.0) + backward.unwrap_or(0.0));
        }
        arcs
    }

    /// Whether the views go all around.
    pub(super) fn is_closed(&self) -> bool {
        self.scanned.iter().all(|scanned| *scanned)
    }

    /// Where the scan begins and how long its arc is: the circle without the largest gap.
    pub(super) fn extent(&self) -> (f64, f64) {
        let count = self.gaps.len();
        let largest = (0..count).max_by(|a, b| self.gaps[*a].total_cmp(&self.gaps[*b]));
        largest.map_or((0.0, 0.0), |gap| {
            (self.places[(gap + 1) % count], self.period - self.gaps[gap])
        })
    }
}

/// Whether a gap is much larger than all those around it.
fn stands_out(gaps: &[f64], gap: usize) -> bool {
    if gaps[gap] <= COINCIDENT {
        return false;
    }
    let around = before(gaps, gap).take(AROUND).chain(after(gaps, gap).take(AROUND));
    let largest = around.fold(0.0, f64::max);
    largest > 0.0 && gaps[gap] > STANDS_OUT * largest
}

/// The gaps after one, around the circle, without those between views at one place.
fn after(gaps: &[f64], gap: usize) -> impl Iterator<Item = f64> {
    let count = gaps.len();
    let others = (1..count).map(move |steps| gaps[(gap + steps) % count]);
    others.filter(|gap| *gap > COINCIDENT)
}

/// The gaps before one, the nearest first.
fn before(gaps: &[f64], gap: usize) -> impl Iterator<Item = f64> {
    let count = gaps.len();
    let others = (1..count).map(move |steps| gaps[(gap + count - steps) % count]);
    others.filter(|gap| *gap > COINCIDENT)
}

#[cfg(test)]
mod tests {
    use super::super::evenly_spaced;
    use super::*;
    use std::f64::consts::{PI, TAU};

    fn radians(degrees: impl IntoIterator<Item = u32>) -> Vec<f64> {
        degrees.into_iter().map(|degree| f64::from(degree).to_radians()).collect()
    }

    fn sum(angles: &[f64], period: f64) -> f64 {
        Coverage::new(angles, period).arcs().iter().sum()
    }

    #[test]
    fn arcs_of_a_half_turn_sum_to_it_even_when_both_ends_are_measured() {
        let even = Coverage::new(&evenly_spaced(7, PI), PI).arcs();
        assert!(even.iter().all(|arc| (arc - PI / 7.0).abs() < 1e-12));
        let both_ends: Vec<f64> = (0..=6).map(|i| PI * f64::from(i) / 6.0).collect();
        assert!((sum(&both_ends, PI) - PI).abs() < 1e-9);
    }

    #[test]
    fn dense_and_sparse_views_cover_the_turn_together() {
        let angles = radians((0..90).chain((90..180).step_by(5)));
        let coverage = Coverage::new(&angles, PI);
        let arcs = coverage.arcs();
        assert!((arcs.iter().sum::<f64>() - PI).abs() < 1e-9);
        assert!((arcs[45] - 1_f64.to_radians()).abs() < 1e-9);
        assert!((arcs[90] - 3_f64.to_radians()).abs() < 1e-9);
        assert!((arcs[100] - 5_f64.to_radians()).abs() < 1e-9);
        let fan = Coverage::new(&radians((0..180).chain((180..360).step_by(10))), TAU);
        assert!(fan.is_closed());
        assert!((fan.arcs().iter().sum::<f64>() - TAU).abs() < 1e-9);
    }

    #[test]
    fn views_that_are_taken_again_share_their_arc() {
        let twice = radians((0..360).step_by(3));
        assert!((sum(&twice, PI) - PI).abs() < 1e-9);
        let thrice = [radians(0..180), radians(0..180), radians(0..180)].concat();
        assert!((sum(&thrice, PI) - PI).abs() < 1e-9);
        // Two passes that are slightly apart.
        let apart: Vec<f64> =
            radians((0..360).step_by(2)).iter().map(|angle| angle * 0.999).collect();
        assert!((sum(&apart, PI) - PI).abs() < 1e-9);
        assert!((sum(&[1.0, 1.0], PI) - PI).abs() < 1e-9);
        assert!((sum(&[1.0], TAU) - TAU).abs() < 1e-9);
    }

    #[test]
    fn nobody_stands_for_what_is_not_scanned() {
        let quarter = Coverage::new(&evenly_spaced(9, PI / 2.0), PI);
        assert!(quarter.arcs().iter().all(|arc| (arc - PI / 18.0).abs() < 1e-12));
        assert!(!quarter.is_closed());
        // Two wedges, of which one is beside sparse views.
        let wedges = radians((0..60).chain((90..150).step_by(5)));
        let expected = (60.0 + 12.0 * 5.0_f64).to_radians();
        assert!((sum(&wedges, PI) - expected).abs() < 1e-9);
    }

    #[test]
    fn the_extent_of_a_scan_leaves_out_its_largest_gap() {
        let angles: Vec<f64> = (0..=20).map(|i| 5.0 + 0.15 * f64::from(i)).collect();
        let (begin, length) = Coverage::new(&angles, TAU).extent();
        assert!((begin - 5.0).abs() < 1e-9 && (length - 3.0).abs() < 1e-9);
    }
}
