//! The projector of a scan, of all of its views or of some.

use std::sync::Arc;

use haloscope::physics::Physics;
use haloscope::physics::tomography::{
    BackProjection, ConeBeam, FanBeam, ParallelBeam, ParallelBeam3d, Tomography2d, Tomography3d,
    Window,
};
use haloscope::{Array, Error, Result};

use super::{Rays, Scan};
use crate::document::Place;

/// All views of a scan, or those of a group.
#[derive(Clone, Debug)]
pub(crate) enum Projector {
    Plane(Tomography2d),
    Space(Tomography3d),
}

impl Scan {
    pub(super) fn project(&self, angles: Vec<f64>) -> Result<Projector> {
        let (beam, image) = (&self.beam, &self.image);
        let (spacing, pixels) = (self.spacing(), &self.pixels()[..]);
        match (beam.rays, image.len(), &self.detector[..]) {
            (Rays::Parallel, 3, &[bins]) => {
                let mut scan = ParallelBeam::new(angles, bins);
                ([scan.spacing], scan.offset) = (along(spacing, "spacing")?, self.offset(bins));
                let pixel = along(pixels, "pixel")?;
                Ok(Projector::Plane(Tomography2d::with_pixels(image, pixel, scan)?))
            }
            (Rays::Fan(source, to_detector), 3, &[bins]) => {
                let mut scan = FanBeam::new(angles, bins, source, to_detector);
                ([scan.spacing], scan.offset) = (along(spacing, "spacing")?, self.offset(bins));
                let pixel = along(pixels, "pixel")?;
                Ok(Projector::Plane(Tomography2d::with_pixels(image, pixel, scan)?))
            }
            (Rays::Parallel, 4, &[rows, columns]) => {
                let mut scan = ParallelBeam3d::new(angles, [rows, columns]);
                scan.spacing = along(spacing, "spacing")?;
                scan.offset[1] = self.offset(columns);
                let voxel = along(pixels, "pixel")?;
                Ok(Projector::Space(Tomography3d::with_voxels(image, voxel, scan)?))
            }
            (Rays::Cone(source, to_detector), 4, &[rows, columns]) => {
                let mut scan = ConeBeam::new(angles, [rows, columns], source, to_detector);
                scan.spacing = along(spacing, "spacing")?;
                scan.offset[1] = self.offset(columns);
                let voxel = along(pixels, "pixel")?;
                Ok(Projector::Space(Tomography3d::with_voxels(image, voxel, scan)?))
            }
            (rays, axes, detector) => Err(Error::argument(
                "tomography",
                format!(
                    "an image of {} sides and a detector of {detector:?}; {}",
                    axes - 1,
                    match rays {
                        Rays::Parallel =>
                            "parallel beams take 2 sides and the bins, or 3 sides and rows and columns",
                        Rays::Fan(..) => "fan beams take 2 sides and the bins",
                        Rays::Cone(..) => "cone beams take 3 sides and rows and columns",
                    }
                ),
            )),
        }
    }

    /// How far the detector is moved for the axis to be seen where it is.
    fn offset(&self, bins: usize) -> f64 {
        let shift = |(_, centre): &(Place, f64)| (bins as f64 - 1.0) / 2.0 - centre;
        self.beam.centre.as_ref().map_or(0.0, shift)
    }
}

/// One number for each side.
fn along<const SIDES: usize>(values: &[f64], key: &str) -> Result<[f64; SIDES]> {
    match values {
        [same] => Ok([*same; SIDES]),
        each => each.try_into().map_err(|_| {
            let count = each.len();
            let reason = format!("{count} numbers as `{key}`; one, or {SIDES}, are expected");
            Error::argument("tomography", reason)
        }),
    }
}

impl Projector {
    /// The image by filtered back-projection of all views.
    pub(crate) fn filtered_back_projection(&self, views: &Array, window: Window) -> Result<Array> {
        match self {
            Self::Plane(plane) => plane.filtered_back_projection(views, window),
            Self::Space(space) => space.filtered_back_projection(views, window),
        }
    }

    /// The plan of filtered back-projection.
    pub(crate) fn back_projection(&self, window: Window) -> Result<BackProjection> {
        match self {
            Self::Plane(plane) => plane.back_projection(window),
            Self::Space(space) => space.back_projection(window),
        }
    }

    /// Whether it is one of volumes whose detector stands upright.
    pub(crate) fn is_upright(&self) -> bool {
        matches!(self, Self::Space(space) if space.is_upright())
    }

    /// What it measures, without the batch.
    pub(crate) fn measurement_shape(&self) -> Vec<usize> {
        match self {
            Self::Plane(plane) => plane.measurement_shape().to_vec(),
            Self::Space(space) => space.measurement_shape().to_vec(),
        }
    }

    /// As an operator of a stack.
    pub(crate) fn into_physics(self) -> Arc<dyn Physics> {
        match self {
            Self::Plane(plane) => Arc::new(plane),
            Self::Space(space) => Arc::new(space),
        }
    }

    pub(super) fn scaled(self, factor: f64) -> Result<Self> {
        Ok(match self {
            Self::Plane(plane) => Self::Plane(plane.scaled(factor)?),
            Self::Space(space) => Self::Space(space.scaled(factor)?),
        })
    }
}
