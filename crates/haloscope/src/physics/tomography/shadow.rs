//! The rows of a detector on which a part of a volume has its shadow.
//!
//! As long as a box lies on one side of the source, the row that a ray through a point of it meets is greatest, and least, at a
//! corner. So eight points for each view bound the rows that a part can change, or that its adjoint can read.

use std::ops::Range;

use super::geometry::{Rays, View3d};

/// What counts as no distance, in rows: a ray that passes a voxel at just its width does not see it.
const NOTHING: f64 = 1e-9;

/// A box in space, (x, y, z): where it begins and ends.
pub(super) type Extent = [(f64, f64); 3];

/// The rows of views with so many rows each that rays through the inside of a box meet, at least one.
pub(super) fn rows(views: &[View3d], rows: usize, extent: &Extent) -> Range<usize> {
    let mut hull: Option<(f64, f64)> = None;
    for view in views {
        for corner in 0..8 {
            let point = std::array::from_fn(|axis| {
                let (begin, end) = extent[axis];
                if corner >> axis & 1 == 0 { begin } else { end }
            });
            let Some(row) = row_of(view, rows, point) else { return 0..rows };
            hull = Some(hull.map_or((row, row), |(least, most)| (least.min(row), most.max(row))));
        }
    }
    let Some((least, most)) = hull else { return 0..rows };
    let last = rows.saturating_sub(1);
    let begin = ((least + NOTHING).floor() + 1.0).clamp(0.0, last as f64) as usize;
    let end = (most - NOTHING).ceil().clamp(0.0, rows as f64) as usize;
    begin..end.max(begin + 1)
}

/// Where the ray through a point meets the detector, counted in rows; `None` if the point is not in front of the source.
fn row_of(view: &View3d, rows: usize, point: [f64; 3]) -> Option<f64> {
    let View3d { rays, centre, u, v } = *view;
    let normal = cross(u, v);
    let to_detector = |from: [f64; 3]| dot(normal, minus(centre, from));
    let met = match rays {
        Rays::Along(direction) => {
            along(point, to_detector(point) / dot(normal, direction), direction)
        }
        Rays::From(source) => {
            let (whole, part) = (to_detector(source), dot(normal, minus(point, source)));
            // Also far from it, so that the quotient is exact enough.
            if part / whole < 1e-6 {
                return None;
            }
            along(source, whole / part, minus(point, source))
        }
    };
    let row = dot(minus(met, centre), cross(normal, u)) / dot(normal, normal);
    let row = row + (rows as f64 - 1.0) / 2.0;
    row.is_finite().then_some(row)
}

fn along(from: [f64; 3], times: f64, way: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| from[i] + times * way[i])
}

fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| a[i] - b[i])
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

#[cfg(test)]
mod tests {
    use super::super::{ConeBeam, ParallelBeam3d, Scan3d, evenly_spaced};
    use super::*;
    use std::f64::consts::{PI, TAU};

    #[test]
    fn parallel_rays_meet_the_rows_of_their_planes() {
        let scan = Scan3d::from(ParallelBeam3d::new(evenly_spaced(7, PI), [8, 11]));
        let planes = |begin: f64, end: f64| [(-4.0, 4.0), (-4.0, 4.0), (begin - 4.5, end - 3.5)];
        let of = |begin, end| rows(&scan.views(), 8, &planes(begin, end));
        // Voxels 2 to 4 have a width of one on both sides, whose ends see nothing.
        assert_eq!(of(2.0, 5.0), 2..5);
        assert_eq!(of(0.0, 8.0), 0..8);
        // Where rows lie between planes, both that see a plane count.
        assert_eq!(of(2.5, 5.5), 2..6);
        // Nothing above the detector: one row has to be.
        assert_eq!(of(20.0, 22.0), 7..8);
        assert_eq!(of(-9.0, -4.0), 0..1);
    }

    #[test]
    fn cones_spread_with_the_distance_from_the_middle_and_points_behind_the_source_see_all() {
        let scan = Scan3d::from(ConeBeam::new(evenly_spaced(8, TAU), [40, 40], 30.0, 15.0));
        let slab = |begin: f64, end: f64| [(-8.0, 8.0), (-8.0, 8.0), (begin, end)];
        let of = |begin, end| rows(&scan.views(), 40, &slab(begin, end));
        let (middle, outer) = (of(-1.0, 1.0), of(5.0, 7.0));
        assert_eq!(middle.start + middle.end, 40);
        assert!(outer.len() > middle.len() && outer.start > 20, "{middle:?} {outer:?}");
        assert_eq!(rows(&scan.views(), 40, &[(-40.0, 40.0); 3]), 0..40);
    }
}
