//! Filtered back-projection of circular scans: FBP for planes, FDK for cone beams.
//!
//! This file has the geometry: where the rays of a circular scan go and what each of them counts for.
//! `back_projection.rs` filters and smears. Each view counts for the arc that it stands for, so that
//! angles need not be equally spaced. Fans and cones may go all around or, with Parker's weights, half
//! around plus the angle of the fan. A shorter arc leaves lines unmeasured, and what they would show is
//! missing from the image: [`Tomography2d::missing_arc`].

use std::f64::consts::{PI, TAU};

use super::back_projection::BackProjection;
use super::coverage::Coverage;
use super::filter::Window;
use super::geometry::{Scan2d, Scan3d};
use super::{Tomography2d, Tomography3d};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::physics::Physics;

impl Tomography2d {
    /// The image by filtered back-projection of sinograms of parallel or fan beams.
    ///
    /// ```
    /// use haloscope::physics::Physics;
    /// use haloscope::physics::tomography::{ParallelBeam, Tomography2d, Window, evenly_spaced};
    ///
    /// let scan = ParallelBeam::new(evenly_spaced(60, std::f64::consts::PI), 32);
    /// let operator = Tomography2d::new(&[1, 32, 32], scan)?;
    /// let image = ndarray::ArrayD::from_shape_fn(vec![1, 1, 32, 32], |i| {
    ///     f32::from((i[2] as f32 - 15.5).hypot(i[3] as f32 - 15.5) < 12.0)
    /// });
    /// let again = operator.filtered_back_projection(&operator.forward(&image)?, Window::Hann)?;
    /// assert!((again[[0, 0, 16, 16]] - 1.0).abs() < 0.02);
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn filtered_back_projection(&self, sinogram: &View, window: Window) -> Result<Array> {
        let batch = self.check_measurement(sinogram)?;
        self.back_projection(window)?.reconstruct(batch, sinogram)
    }

    /// The plan of [`filtered_back_projection`](Self::filtered_back_projection), for views and lines of the image that
    /// are not all in one place.
    pub fn back_projection(&self, window: Window) -> Result<BackProjection> {
        let [height, width] = [self.image_shape()[1], self.image_shape()[2]];
        let [pixel_height, pixel_width] = self.pixel();
        let image = Axes {
            x: centred(width, pixel_width),
            y: centred(height, -pixel_height),
            z: vec![0.0],
        };
        BackProjection::new(self.circle()?, self.image_shape(), image, self.factor(), window)
    }

    /// What is missing of the arc that filtered back-projection needs, if something is. The image then lacks what the
    /// missing views would show: edges along their rays.
    #[must_use]
    pub fn missing_arc(&self) -> Option<MissingArc> {
        self.circle().ok()?.missing_arc()
    }

    fn circle(&self) -> Result<Circle> {
        Ok(match self.scan() {
            Scan2d::Parallel(scan) => Circle {
                angles: scan.angles.clone(),
                source: None,
                spacing: [1.0, scan.spacing],
                offset: [0.0, scan.offset],
                detector: [1, scan.bins],
            },
            Scan2d::Fan(scan) => {
                let source = scan.source_distance;
                let shrink = source / (source + scan.detector_distance);
                Circle {
                    angles: scan.angles.clone(),
                    source: Some(source),
                    spacing: [1.0, scan.spacing * shrink],
                    offset: [0.0, scan.offset],
                    detector: [1, scan.bins],
                }
            }
            Scan2d::Views { .. } => return Err(no_circle()),
        })
    }
}

impl Tomography3d {
    /// The volume by the method of Feldkamp, Davis and Kress from projections of cone beams, or by
    /// filtered back-projection from those of parallel beams.
    pub fn filtered_back_projection(&self, projections: &View, window: Window) -> Result<Array> {
        let batch = self.check_measurement(projections)?;
        self.back_projection(window)?.reconstruct(batch, projections)
    }

    /// The plan of [`filtered_back_projection`](Self::filtered_back_projection), for views and lines of the volume that
    /// are not all in one place.
    pub fn back_projection(&self, window: Window) -> Result<BackProjection> {
        let size = &self.image_shape()[1..];
        let [depth, height, width] = self.voxel();
        let image = Axes {
            x: centred(size[2], width),
            y: centred(size[1], height),
            z: centred(size[0], depth),
        };
        BackProjection::new(self.circle()?, self.image_shape(), image, self.factor(), window)
    }

    /// What is missing of the arc that filtered back-projection needs, if something is.
    #[must_use]
    pub fn missing_arc(&self) -> Option<MissingArc> {
        self.circle().ok()?.missing_arc()
    }

    fn circle(&self) -> Result<Circle> {
        Ok(match self.scan() {
            Scan3d::Parallel(scan) => Circle {
                angles: scan.angles.clone(),
                source: None,
                spacing: scan.spacing,
                offset: scan.offset,
                detector: scan.detector,
            },
            Scan3d::Cone(scan) => {
                let source = scan.source_distance;
                let shrink = source / (source + scan.detector_distance);
                Circle {
                    angles: scan.angles.clone(),
                    source: Some(source),
                    spacing: scan.spacing.map(|spacing| spacing * shrink),
                    offset: scan.offset,
                    detector: scan.detector,
                }
            }
            Scan3d::Views { .. } => return Err(no_circle()),
        })
    }
}

/// An arc that is too short for filtered back-projection, in radians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissingArc {
    /// What the views cover.
    pub covered: f64,
    /// What is needed: half a turn, and the angle of the fan.
    pub needed: f64,
}

fn no_circle() -> Error {
    Error::argument(
        "tomography",
        "filtered back-projection of views at any position; it takes parallel, fan and cone beams \
         that go around the image",
    )
}

/// Where the pixels of an image are.
#[derive(Clone, Debug)]
pub(super) struct Axes {
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
    pub(super) z: Vec<f64>,
}

fn centred(count: usize, spacing: f64) -> Vec<f64> {
    (0..count).map(|i| (i as f64 - (count as f64 - 1.0) / 2.0) * spacing).collect()
}

/// A circular scan, with the detector moved to the rotation axis and shrunk accordingly.
#[derive(Clone, Debug)]
pub(super) struct Circle {
    pub(super) angles: Vec<f64>,
    /// The distance of the source; parallel rays have none.
    pub(super) source: Option<f64>,
    pub(super) spacing: [f64; 2],
    pub(super) offset: [f64; 2],
    pub(super) detector: [usize; 2],
}

/// What the rays of each view count for.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    arcs: Vec<f64>,
    /// How far each view is from the first, for sources that do not go all around.
    turned: Vec<f64>,
    length: f64,
    /// The distance of a source that does not go all around.
    short: Option<f64>,
    full: f64,
}

impl Shares {
    /// What a ray of a view at a place `u` counts for: the arc of the view, shared with the rays that go the same way in
    /// reverse.
    pub(super) fn at(&self, view: usize, u: f64) -> f64 {
        let share = match self.short {
            Some(source) => parker(self.turned[view], (u / source).atan(), self.length),
            None => self.full,
        };
        share * self.arcs[view]
    }
}

impl Circle {
    /// Where a pixel of the detector is on the plane through the rotation axis: (v, u).
    pub(super) fn place(&self, row: usize, column: usize) -> [f64; 2] {
        let index = [row as f64, column as f64];
        std::array::from_fn(|i| {
            (index[i] - (self.detector[i] as f64 - 1.0) / 2.0 + self.offset[i]) * self.spacing[i]
        })
    }

    /// The cosine of the angle between a ray and the middle one.
    pub(super) fn obliqueness(&self, u: f64, v: f64) -> f64 {
        self.source.map_or(1.0, |source| source / (source * source + u * u + v * v).sqrt())
    }

    pub(super) fn shares(&self) -> Shares {
        let coverage = self.coverage();
        let (begin, length) = coverage.extent();
        let turned = |angle: &f64| {
            let turned = (angle - begin).rem_euclid(TAU);
            // Rounding may put the first view just before its own place.
            if turned > length + 1e-9 { 0.0 } else { turned }
        };
        Shares {
            arcs: coverage.arcs(),
            turned: self.angles.iter().map(turned).collect(),
            length,
            short: self.source.filter(|_| !coverage.is_closed()),
            full: if self.source.is_some() { 0.5 } else { 1.0 },
        }
    }

    fn coverage(&self) -> Coverage {
        Coverage::new(&self.angles, if self.source.is_some() { TAU } else { PI })
    }

    /// The arc that is scanned and the one that is needed, if they differ.
    fn missing_arc(&self) -> Option<MissingArc> {
        let coverage = self.coverage();
        if coverage.is_closed() {
            return None;
        }
        let (_, covered) = coverage.extent();
        let fan = self.source.map_or(0.0, |source| {
            let edge = |column| (self.place(0, column)[1] / source).atan().abs();
            edge(0).max(edge(self.detector[1] - 1))
        });
        let needed = PI + 2.0 * fan;
        (covered < needed).then_some(MissingArc { covered, needed })
    }
}

/// Parker's weights, made smooth over all that a scan has beyond half a turn: the two rays along one
/// line have weights that sum to 1. A ray that is alone on its line, as those of short arcs are, has 1.
fn parker(turned: f64, fan: f64, length: f64) -> f64 {
    // The opposite ray of (turned, fan) is (turned + π − 2 fan, −fan).
    let spare = (length - PI) / 2.0;
    if turned < 2.0 * (spare + fan) {
        (PI / 4.0 * turned / (spare + fan)).sin().powi(2)
    } else if turned <= PI + 2.0 * fan {
        1.0
    } else {
        let rest = (length - turned).max(0.0);
        (PI / 4.0 * rest / (spare - fan)).sin().powi(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_rays_along_a_line_count_once_and_one_that_is_alone_counts_whole() {
        for length in [PI + 0.8, PI + 0.1, PI - 0.2, 1.0] {
            check_weights(length);
        }
    }

    fn check_weights(length: f64) {
        for turned in 0..100 {
            for fan in -10..=10 {
                let (turned, fan) = (f64::from(turned) * length / 100.0, f64::from(fan) * 0.03);
                let back = turned + PI - 2.0 * fan;
                if (0.0..=length).contains(&back) {
                    let sum = parker(turned, fan, length) + parker(back, -fan, length);
                    assert!((sum - 1.0).abs() < 1e-9, "{length}: {turned} {fan}: {sum}");
                } else if turned - PI - 2.0 * fan < 0.0 {
                    assert_eq!(parker(turned, fan, length), 1.0, "{length}: {turned} {fan}");
                }
            }
        }
    }
}
