//! How rays go through the image: scans as they are described, and the views that they come down to.
//!
//! Lengths are in any one unit. In the plane, x grows along columns and y against rows: row 0 is at
//! the top. In space the axes of a volume are (z, y, x) and all three grow with the index. The middle
//! of the image is the origin, and the rotation axis of circular scans. A view at angle θ has the
//! detector axis `u = (cos θ, sin θ)`, parallel rays go along `(sin θ, −cos θ)`, and a source at
//! distance `s` is at `s (sin θ, −cos θ)` with the detector across the origin. All of this is
//! ASTRA's convention. The checks are in the constructors of the operators.

use std::ops::Range;

use crate::error::{Error, Result};

/// Angles that divide an arc into equal parts, from 0, without its end.
///
/// ```
/// use haloscope::physics::tomography::evenly_spaced;
///
/// assert_eq!(evenly_spaced(4, 180.0_f64.to_radians())[1], 45.0_f64.to_radians());
/// ```
#[must_use]
pub fn evenly_spaced(count: usize, arc: f64) -> Vec<f64> {
    (0..count).map(|i| arc * i as f64 / count as f64).collect()
}

/// Where the rays of a view come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rays<const DIMENSIONS: usize> {
    /// All have this direction.
    Along([f64; DIMENSIONS]),
    /// All come from this point.
    From([f64; DIMENSIONS]),
}

/// One position of a line of detector bins in the plane, with vectors (x, y).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View2d {
    /// Where the rays come from.
    pub rays: Rays<2>,
    /// The middle of the detector.
    pub centre: [f64; 2],
    /// From one bin to the next.
    pub u: [f64; 2],
}

impl View2d {
    /// A view as ASTRA lists it: (direction of the rays, or source), middle of the detector, step of its bins.
    #[must_use]
    pub fn of_vector(vector: [f64; 6], has_source: bool) -> Self {
        let [a, b, x, y, u, v] = vector;
        Self { rays: Rays::of_vector([a, b], has_source), centre: [x, y], u: [u, v] }
    }

    /// The view as seen from another origin.
    pub(super) fn seen_from(&self, origin: [f64; 2]) -> Self {
        let (rays, centre) = (self.rays.seen_from(origin), minus(self.centre, origin));
        Self { rays, centre, ..*self }
    }
}

/// One position of a flat detector in space, with vectors (x, y, z).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View3d {
    /// Where the rays come from.
    pub rays: Rays<3>,
    /// The middle of the detector.
    pub centre: [f64; 3],
    /// From one column of the detector to the next.
    pub u: [f64; 3],
    /// From one row of the detector to the next.
    pub v: [f64; 3],
}

impl View3d {
    /// A view as ASTRA lists it: (direction of the rays, or source), middle of the detector, steps of its columns and of its rows.
    #[must_use]
    pub fn of_vector(vector: [f64; 12], has_source: bool) -> Self {
        let [from, centre, u, v] =
            [0, 3, 6, 9].map(|at| [vector[at], vector[at + 1], vector[at + 2]]);
        Self { rays: Rays::of_vector(from, has_source), centre, u, v }
    }

    /// The view with its detector turned in its own plane, about its middle, by an angle in radians from columns to rows.
    #[must_use]
    pub fn tilted(&self, angle: f64) -> Self {
        let (sin, cos) = angle.sin_cos();
        let length = |vector: [f64; 3]| vector.iter().map(|part| part * part).sum::<f64>().sqrt();
        let (wide, high) = (length(self.u), length(self.v));
        let u = combine([0.0; 3], cos, self.u, sin * wide / high, self.v);
        let v = combine([0.0; 3], -sin * high / wide, self.u, cos, self.v);
        Self { u, v, ..*self }
    }

    /// The view with its source and detector moved along the rotation axis.
    #[must_use]
    pub fn raised(&self, height: f64) -> Self {
        self.seen_from([0.0, 0.0, -height])
    }

    /// The view with its detector moved by so many of its own rows and columns.
    #[must_use]
    pub fn shifted(&self, [rows, columns]: [f64; 2]) -> Self {
        Self { centre: combine(self.centre, columns, self.u, rows, self.v), ..*self }
    }

    /// The view as seen from another origin.
    pub(super) fn seen_from(&self, origin: [f64; 3]) -> Self {
        let (rays, centre) = (self.rays.seen_from(origin), minus(self.centre, origin));
        Self { rays, centre, ..*self }
    }
}

impl<const DIMENSIONS: usize> Rays<DIMENSIONS> {
    fn of_vector(vector: [f64; DIMENSIONS], is_source: bool) -> Self {
        if is_source { Self::From(vector) } else { Self::Along(vector) }
    }

    fn seen_from(self, origin: [f64; DIMENSIONS]) -> Self {
        match self {
            Self::Along(direction) => Self::Along(direction),
            Self::From(source) => Self::From(minus(source, origin)),
        }
    }
}

fn minus<const DIMENSIONS: usize>(a: [f64; DIMENSIONS], b: [f64; DIMENSIONS]) -> [f64; DIMENSIONS] {
    std::array::from_fn(|i| a[i] - b[i])
}

/// How far the middle of a part of a side is from the middle of the side.
pub(super) fn middle_of(part: &Range<usize>, side: usize) -> f64 {
    part.start as f64 + (part.len() as f64 - side as f64) / 2.0
}

/// Parallel rays in the plane.
#[derive(Clone, Debug, PartialEq)]
pub struct ParallelBeam {
    /// The angles of the views, in radians.
    pub angles: Vec<f64>,
    /// The number of detector bins.
    pub bins: usize,
    /// The distance of detector bins.
    pub spacing: f64,
    /// How far the detector is moved along its own axis, in bins: the rotation axis is seen at bin
    /// `(bins − 1)/2 − offset`.
    pub offset: f64,
}

impl ParallelBeam {
    /// Bins as wide as pixels of size 1, the rotation axis in the middle.
    #[must_use]
    pub fn new(angles: Vec<f64>, bins: usize) -> Self {
        Self { angles, bins, spacing: 1.0, offset: 0.0 }
    }
}

/// Rays from a point in the plane, onto a flat detector.
#[derive(Clone, Debug, PartialEq)]
pub struct FanBeam {
    /// The angles of the views, in radians.
    pub angles: Vec<f64>,
    /// The number of detector bins.
    pub bins: usize,
    /// The distance of detector bins.
    pub spacing: f64,
    /// How far the detector is moved along its own axis, in bins.
    pub offset: f64,
    /// From the source to the rotation axis.
    pub source_distance: f64,
    /// From the rotation axis to the detector.
    pub detector_distance: f64,
}

impl FanBeam {
    /// Bins of width 1, the detector in the middle.
    #[must_use]
    pub fn new(
        angles: Vec<f64>,
        bins: usize,
        source_distance: f64,
        detector_distance: f64,
    ) -> Self {
        Self { angles, bins, spacing: 1.0, offset: 0.0, source_distance, detector_distance }
    }
}

/// Parallel rays in space, at a right angle to the rotation axis z.
#[derive(Clone, Debug, PartialEq)]
pub struct ParallelBeam3d {
    /// The angles of the views, in radians.
    pub angles: Vec<f64>,
    /// The rows and columns of the detector.
    pub detector: [usize; 2],
    /// The distance of rows and of columns.
    pub spacing: [f64; 2],
    /// How far the detector is moved along its columns and rows, in pixels of the detector:
    /// (across rows, across columns). The second one is the offset of the rotation axis.
    pub offset: [f64; 2],
}

impl ParallelBeam3d {
    /// Detector pixels of size 1, the detector in the middle.
    #[must_use]
    pub fn new(angles: Vec<f64>, detector: [usize; 2]) -> Self {
        Self { angles, detector, spacing: [1.0; 2], offset: [0.0; 2] }
    }
}

/// Rays from a point that circles around the axis z, onto a flat detector.
#[derive(Clone, Debug, PartialEq)]
pub struct ConeBeam {
    /// The angles of the views, in radians.
    pub angles: Vec<f64>,
    /// The rows and columns of the detector.
    pub detector: [usize; 2],
    /// The distance of rows and of columns.
    pub spacing: [f64; 2],
    /// How far the detector is moved along its columns and rows, in pixels of the detector:
    /// (across rows, across columns).
    pub offset: [f64; 2],
    /// From the source to the rotation axis.
    pub source_distance: f64,
    /// From the rotation axis to the detector.
    pub detector_distance: f64,
}

impl ConeBeam {
    /// Detector pixels of size 1, the detector in the middle.
    #[must_use]
    pub fn new(
        angles: Vec<f64>,
        detector: [usize; 2],
        source_distance: f64,
        detector_distance: f64,
    ) -> Self {
        let (spacing, offset) = ([1.0; 2], [0.0; 2]);
        Self { angles, detector, spacing, offset, source_distance, detector_distance }
    }
}

/// A scan of a plane.
#[derive(Clone, Debug, PartialEq)]
pub enum Scan2d {
    /// Parallel rays, a detector that turns around the image.
    Parallel(ParallelBeam),
    /// Rays from a point, a source and detector that turn around the image.
    Fan(FanBeam),
    /// Any positions of a detector.
    Views {
        /// The positions.
        views: Vec<View2d>,
        /// The number of detector bins.
        bins: usize,
    },
}

/// A scan of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Scan3d {
    /// Parallel rays, a detector that turns around the volume.
    Parallel(ParallelBeam3d),
    /// Rays from a point, a source and detector that turn around the volume.
    Cone(ConeBeam),
    /// Any positions of a source and a detector.
    Views {
        /// The positions.
        views: Vec<View3d>,
        /// The rows and columns of the detector.
        detector: [usize; 2],
    },
}

impl From<ParallelBeam> for Scan2d {
    fn from(scan: ParallelBeam) -> Self {
        Self::Parallel(scan)
    }
}

impl From<FanBeam> for Scan2d {
    fn from(scan: FanBeam) -> Self {
        Self::Fan(scan)
    }
}

impl From<ParallelBeam3d> for Scan3d {
    fn from(scan: ParallelBeam3d) -> Self {
        Self::Parallel(scan)
    }
}

impl From<ConeBeam> for Scan3d {
    fn from(scan: ConeBeam) -> Self {
        Self::Cone(scan)
    }
}

impl Scan2d {
    /// The number of detector bins.
    #[must_use]
    pub fn bins(&self) -> usize {
        match self {
            Self::Parallel(scan) => scan.bins,
            Self::Fan(scan) => scan.bins,
            Self::Views { bins, .. } => *bins,
        }
    }

    /// The position of the detector at each angle.
    #[must_use]
    pub fn views(&self) -> Vec<View2d> {
        match self {
            Self::Parallel(scan) => (scan.angles.iter())
                .map(|angle| {
                    let (sin, cos) = angle.sin_cos();
                    let u = [cos, sin].map(|x| x * scan.spacing);
                    let centre = u.map(|u| u * scan.offset);
                    View2d { rays: Rays::Along([sin, -cos]), centre, u }
                })
                .collect(),
            Self::Fan(scan) => (scan.angles.iter())
                .map(|angle| {
                    let (sin, cos) = angle.sin_cos();
                    let u = [cos, sin].map(|x| x * scan.spacing);
                    let source = [sin, -cos].map(|x| x * scan.source_distance);
                    let far = [-sin, cos].map(|x| x * scan.detector_distance);
                    let centre = std::array::from_fn(|i| far[i] + u[i] * scan.offset);
                    View2d { rays: Rays::From(source), centre, u }
                })
                .collect(),
            Self::Views { views, .. } => views.clone(),
        }
    }

    /// The views at some places of the list only.
    pub(super) fn select(&self, places: &[usize]) -> Self {
        match self {
            Self::Parallel(scan) => {
                Self::Parallel(ParallelBeam { angles: pick(&scan.angles, places), ..*scan })
            }
            Self::Fan(scan) => Self::Fan(FanBeam { angles: pick(&scan.angles, places), ..*scan }),
            Self::Views { views, bins } => Self::Views { views: pick(views, places), bins: *bins },
        }
    }
}

impl Scan3d {
    /// The rows and columns of the detector.
    #[must_use]
    pub fn detector(&self) -> [usize; 2] {
        match self {
            Self::Parallel(scan) => scan.detector,
            Self::Cone(scan) => scan.detector,
            Self::Views { detector, .. } => *detector,
        }
    }

    /// The position of the detector at each angle.
    #[must_use]
    pub fn views(&self) -> Vec<View3d> {
        let turn = |angle: &f64, [along_v, along_u]: [f64; 2]| {
            let (sin, cos) = angle.sin_cos();
            let u = [cos * along_u, sin * along_u, 0.0];
            (sin, cos, u, [0.0, 0.0, along_v])
        };
        match self {
            Self::Parallel(scan) => (scan.angles.iter())
                .map(|angle| {
                    let (sin, cos, u, v) = turn(angle, scan.spacing);
                    let centre = combine([0.0; 3], scan.offset[1], u, scan.offset[0], v);
                    View3d { rays: Rays::Along([sin, -cos, 0.0]), centre, u, v }
                })
                .collect(),
            Self::Cone(scan) => (scan.angles.iter())
                .map(|angle| {
                    let (sin, cos, u, v) = turn(angle, scan.spacing);
                    let source = [sin, -cos, 0.0].map(|x| x * scan.source_distance);
                    let far = [-sin, cos, 0.0].map(|x| x * scan.detector_distance);
                    let centre = combine(far, scan.offset[1], u, scan.offset[0], v);
                    View3d { rays: Rays::From(source), centre, u, v }
                })
                .collect(),
            Self::Views { views, .. } => views.clone(),
        }
    }

    /// The views at some places of the list only.
    pub(super) fn select(&self, places: &[usize]) -> Self {
        match self {
            Self::Parallel(scan) => {
                Self::Parallel(ParallelBeam3d { angles: pick(&scan.angles, places), ..*scan })
            }
            Self::Cone(scan) => {
                Self::Cone(ConeBeam { angles: pick(&scan.angles, places), ..*scan })
            }
            Self::Views { views, detector } => {
                Self::Views { views: pick(views, places), detector: *detector }
            }
        }
    }
}

/// How the views of a scan are dealt out to the parts of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// The first part has the first views, and so on.
    Contiguous,
    /// Part `g` of `n` has the views `g`, `g + n`, `g + 2n`, …
    Interleaved,
}

impl Grouping {
    /// The views of each of some groups.
    pub(super) fn places(self, views: usize, groups: usize) -> Result<Vec<Vec<usize>>> {
        if groups == 0 || groups > views {
            return Err(Error::argument(
                "tomography",
                format!("{views} views cannot be split into {groups} groups; 1 to {views} can be"),
            ));
        }
        Ok((0..groups)
            .map(|group| match self {
                Self::Contiguous => {
                    (group * views / groups..(group + 1) * views / groups).collect()
                }
                Self::Interleaved => (group..views).step_by(groups).collect(),
            })
            .collect())
    }
}

/// Refuses what is not a length.
pub(super) fn check_lengths(what: &str, lengths: &[f64]) -> Result<()> {
    match lengths.iter().find(|length| !(length.is_finite() && **length > 0.0)) {
        Some(length) => Err(Error::argument(
            "tomography",
            format!("{what} is {length}; a finite number above 0 is accepted"),
        )),
        None => Ok(()),
    }
}

/// Refuses what is not a number.
pub(super) fn check_finite(what: &str, values: &[f64]) -> Result<()> {
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(Error::argument(
            "tomography",
            format!("{what} is {value}; finite numbers are accepted"),
        )),
        None => Ok(()),
    }
}

/// `origin + a u + b v`.
pub(super) fn combine(origin: [f64; 3], a: f64, u: [f64; 3], b: f64, v: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| origin[i] + a * u[i] + b * v[i])
}

fn pick<T: Clone>(list: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&place| list[place].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_every_view_once() {
        for grouping in [Grouping::Contiguous, Grouping::Interleaved] {
            let places = grouping.places(11, 4).expect("groups");
            let mut all: Vec<usize> = places.concat();
            all.sort_unstable();
            assert_eq!(all, (0..11).collect::<Vec<_>>());
        }
        assert!(Grouping::Contiguous.places(3, 4).is_err());
    }
}
