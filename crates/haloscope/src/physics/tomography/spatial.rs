//! The line integrals of a volume, in parallel or cone beams, and their exact transpose.
//!
//! Scans whose detector columns are along the axis z take the fast projector of `upright.rs`, all
//! others that of `oblique.rs`. Beside the volume and the measurement, both need memory for one more
//! volume at most, and no table of all rays.

use std::ops::Range;
use std::sync::Arc;

use haloscope_nn::Stop;

use super::geometry::{Grouping, Rays, Scan3d, check_finite, check_lengths, middle_of};
use super::norm::unit_factor;
use super::space::{Place, Space};
use super::{oblique, shadow, upright};
use crate::error::{Error, Result};
use crate::physics::window::check_restriction;
use crate::physics::{LinearPhysics, Physics};

/// The line integrals of volumes (channel, depth, height, width): projections (channel, view, row,
/// column).
///
/// ```
/// use haloscope::physics::Physics;
/// use haloscope::physics::tomography::{ConeBeam, Tomography3d, evenly_spaced};
///
/// let scan = ConeBeam::new(evenly_spaced(30, std::f64::consts::TAU), [24, 32], 80.0, 40.0);
/// let operator = Tomography3d::new(&[1, 16, 16, 16], scan)?;
/// let projections = operator.forward(&ndarray::ArrayD::ones(vec![1, 1, 16, 16, 16]))?;
/// assert_eq!(projections.shape(), [1, 1, 30, 24, 32]);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tomography3d {
    shape: [usize; 4],
    measurement: [usize; 4],
    scan: Scan3d,
    space: Space,
    upright: bool,
}

impl Tomography3d {
    /// For volumes of a shape (channel, depth, height, width) with voxels of size 1.
    pub fn new(shape: &[usize], scan: impl Into<Scan3d>) -> Result<Self> {
        Self::with_voxels(shape, [1.0; 3], scan)
    }

    /// For voxels of a depth, height and width, in the unit of the scan.
    pub fn with_voxels(shape: &[usize], voxel: [f64; 3], scan: impl Into<Scan3d>) -> Result<Self> {
        let scan = scan.into();
        let &[channels, depth, height, width] = shape else {
            return Err(Error::argument(
                "tomography",
                format!("volumes of shape {shape:?}; (channel, depth, height, width) is accepted"),
            ));
        };
        check_lengths("the size of voxels", &voxel)?;
        match &scan {
            Scan3d::Parallel(scan) => check_lengths("the spacing of the detector", &scan.spacing)?,
            Scan3d::Cone(scan) => {
                check_lengths("the spacing of the detector", &scan.spacing)?;
                let (source, detector) = (scan.source_distance, scan.detector_distance);
                check_lengths("a distance of the scan", &[source, source + detector])?;
            }
            Scan3d::Views { .. } => {}
        }
        let (views, detector) = (scan.views(), scan.detector());
        let counts = [channels, depth, height, width, views.len(), detector[0], detector[1]];
        if counts.contains(&0) || counts.iter().any(|&count| count > 1 << 24) {
            return Err(Error::argument(
                "tomography",
                format!(
                    "volumes of shape {shape:?}, {} views of {detector:?} pixels; each of these is \
                     at least 1 and at most 2^24",
                    views.len()
                ),
            ));
        }
        let size = [depth, height, width];
        let mut places = Vec::with_capacity(views.len());
        for (i, view) in views.iter().enumerate() {
            let (Rays::Along(rays) | Rays::From(rays)) = view.rays;
            check_finite("a vector of a view", &[rays, view.centre, view.u, view.v].concat())?;
            let place = Place::new(view, size, voxel, detector);
            if place.is_degenerate() {
                return Err(Error::argument(
                    "tomography",
                    format!(
                        "the rays of view {i} lie in its detector, or it is too far away: its middle is \
                         at {:?}",
                        view.centre
                    ),
                ));
            }
            places.push(place);
        }
        let shape = [channels, depth, height, width];
        let measurement = [channels, views.len(), detector[0], detector[1]];
        let space = Space { size, voxel, detector, factor: 1.0, views: places };
        let upright = upright::is_upright(&space);
        Ok(Self { shape, measurement, scan, space, upright })
    }

    /// The same operator times a factor: integrals in other units, for example.
    pub fn scaled(mut self, factor: f64) -> Result<Self> {
        check_lengths("the factor", &[factor])?;
        self.space.factor *= factor;
        Ok(self)
    }

    /// The same operator with a norm of 1, to about 1e-4.
    pub fn normalised(self) -> Result<Self> {
        let factor = unit_factor(&self)?;
        self.scaled(factor)
    }

    /// What line integrals are multiplied with.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.space.factor
    }

    /// Whether the columns of the detector are along z in all views, and no ray is nearer to z than to x or y: such scans have
    /// the fast projector.
    #[must_use]
    pub fn is_upright(&self) -> bool {
        self.upright
    }

    /// How the volume is scanned.
    #[must_use]
    pub fn scan(&self) -> &Scan3d {
        &self.scan
    }

    /// The depth, height and width of a voxel.
    #[must_use]
    pub fn voxel(&self) -> [f64; 3] {
        self.space.voxel
    }

    /// Operators that have some of the views each, and all of them together.
    pub fn split(&self, groups: usize, grouping: Grouping) -> Result<Vec<Self>> {
        let places = grouping.places(self.measurement[1], groups)?;
        places
            .iter()
            .map(|places| {
                let scan = self.scan.select(places);
                Self::with_voxels(&self.shape, self.space.voxel, scan)?.scaled(self.space.factor)
            })
            .collect()
    }
}

impl Tomography3d {
    /// The operator on a part of the volume, as far as some rows of the detector see it.
    fn part(&self, image: &[Range<usize>], rows: &Range<usize>) -> Result<Arc<dyn Physics>> {
        check_restriction(self.name(), &self.shape, image)?;
        let Space { size, voxel, detector, factor, .. } = self.space;
        // (x, y, z), the last axis first.
        let origin = [2, 1, 0].map(|i| middle_of(&image[i], size[i]) * voxel[i]);
        let up = middle_of(rows, detector[0]);
        let views = self.scan.views();
        let views = views.iter().map(|view| view.shifted([up, 0.0]).seen_from(origin)).collect();
        let mut shape = vec![self.shape[0]];
        shape.extend(image.iter().map(Range::len));
        let scan = Scan3d::Views { views, detector: [rows.len(), detector[1]] };
        Ok(Arc::new(Self::with_voxels(&shape, voxel, scan)?.scaled(factor)?))
    }
}

impl Physics for Tomography3d {
    fn name(&self) -> &'static str {
        "tomography"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let volumes = image.chunks_exact(self.shape[1..].iter().product());
        let measurements = measurement.chunks_exact_mut(self.measurement[1..].iter().product());
        for (volume, measurement) in volumes.zip(measurements) {
            if self.upright {
                upright::forward(&self.space, volume, measurement);
            } else {
                oblique::forward(&self.space, volume, measurement);
            }
        }
        Ok(Stop::check()?)
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        let rays: f64 = self.measurement.iter().map(|&count| count as f64).product();
        4.0 * rays * self.shape[2].max(self.shape[3]) as f64
    }
}

impl LinearPhysics for Tomography3d {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let measurements = measurement.chunks_exact(self.measurement[1..].iter().product());
        let volumes = image.chunks_exact_mut(self.shape[1..].iter().product());
        for (measurement, volume) in measurements.zip(volumes) {
            if self.upright {
                upright::adjoint(&self.space, measurement, volume);
            } else {
                oblique::adjoint(&self.space, measurement, volume);
            }
        }
        Ok(Stop::check()?)
    }

    /// The same rays through the part alone, whose middle is the origin of their coordinates.
    fn restricted(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        Some(self.part(image, &(0..self.measurement[2])))
    }

    /// All views and columns, and the rows that rays through the part meet.
    fn shadow(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        let [_, views, rows, columns] = self.measurement;
        let Space { size, voxel, .. } = self.space;
        let rows = match image {
            [_, _, _] => {
                // A voxel is seen by rays that pass it at less than its width; (x, y, z), the last axis first.
                let extent = [2, 1, 0].map(|i| {
                    let at = |place: f64| (place - (size[i] as f64 - 1.0) / 2.0) * voxel[i];
                    (at(image[i].start as f64 - 1.0), at(image[i].end as f64))
                });
                shadow::rows(&self.scan.views(), rows, &extent)
            }
            _ => 0..rows,
        };
        vec![0..views, rows, 0..columns]
    }

    fn restricted_to_shadow(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        Some(self.part(image, &self.shadow(image)[1]))
    }
}
