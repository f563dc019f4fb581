//! `tomography-2d` and `tomography-3d`: scans whose views are dealt to the operators.

use std::f64::consts::{PI, TAU};

use haloscope::Result;
use haloscope::physics::tomography::{
    ConeBeam, ParallelBeam, Tomography2d, Tomography3d, evenly_spaced,
};

/// The views of the parallel beam, over half a turn.
pub const FLAT_VIEWS: usize = 100;
/// The views of the cone beam, over a turn.
pub const CONE_VIEWS: usize = 64;

/// Group `index` of `count` of the views of a slice; a detector that sees all of it.
pub fn flat(shape: &[usize], index: usize, count: usize) -> Result<Tomography2d> {
    let bins = (shape[1] as f64).hypot(shape[2] as f64).ceil() as usize;
    Tomography2d::new(shape, ParallelBeam::new(group(FLAT_VIEWS, PI, index, count), bins))
}

/// Group `index` of `count` of the views of a volume, from three times its longest side away.
pub fn cone(shape: &[usize], index: usize, count: usize) -> Result<Tomography3d> {
    let &[_, depth, height, width] = shape else {
        return Err(haloscope::Error::argument(
            "tomography-3d",
            format!("volumes of shape {shape:?}; (channel, depth, height, width) is accepted"),
        ));
    };
    let length = depth.max(height).max(width) as f64;
    let detector = [depth * 3 / 2, height.max(width) * 3 / 2];
    let angles = group(CONE_VIEWS, TAU, index, count);
    Tomography3d::new(shape, ConeBeam::new(angles, detector, 3.0 * length, length))
}

/// Every `count`-th angle from `index` on.
fn group(views: usize, arc: f64, index: usize, count: usize) -> Vec<f64> {
    evenly_spaced(views, arc).into_iter().skip(index).step_by(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_every_view_once() {
        let mut all: Vec<f64> = (0..8).flat_map(|index| group(FLAT_VIEWS, PI, index, 8)).collect();
        all.sort_by(f64::total_cmp);
        assert_eq!(all, evenly_spaced(FLAT_VIEWS, PI));
    }
}
