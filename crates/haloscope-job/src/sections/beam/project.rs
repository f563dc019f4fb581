//! The projector of a scan, of all of its views or of some.

use std::sync::Arc;

use haloscope::physics::Physics;
use haloscope::physics::tomography::{
    BackProjection, ConeBeam, FanBeam, ParallelBeam, ParallelBeam3d, Scan2d, Scan3d, Tomography2d,
    Tomography3d, Window,
};
use haloscope::{Error, Result};

use super::positions::Positions;
use super::{Rays, Scan};
use crate::document::Place;

/// All views of a scan, or those of a group.
#[derive(Clone, Debug)]
pub(crate) enum Projector {
    Plane(Tomography2d),
    Space(Tomography3d),
}

impl Scan {
    /// The projector of some of the views.
    pub(super) fn project(&self, views: &[usize]) -> Result<Projector> {
        let (image, pixels) = (&self.image, &self.pixels()[..]);
        let plane = |scan: Scan2d| {
            let pixel = along(pixels, "pixel")?;
            Ok(Projector::Plane(Tomography2d::with_pixels(image, pixel, scan)?))
        };
        let space = |scan: Scan3d| {
            let voxel = along(pixels, "pixel")?;
            Ok(Projector::Space(Tomography3d::with_voxels(image, voxel, scan)?))
        };
        match (&self.listed, image.len(), &self.detector[..]) {
            (None, 3, &[bins]) => plane(self.slices(views, bins)?),
            (None, 4, &[rows, columns]) => space(self.volumes(views, [rows, columns])?),
            (Some(Positions::Plane(all)), 3, &[bins]) => {
                plane(Scan2d::Views { views: pick(all, views), bins })
            }
            (Some(Positions::Space(all)), 4, &[rows, columns]) => {
                space(Scan3d::Views { views: pick(all, views), detector: [rows, columns] })
            }
            _ => Err(self.wrong_sides()),
        }
    }

    fn slices(&self, views: &[usize], bins: usize) -> Result<Scan2d> {
        let ([spacing], offset) = (along(self.spacing(), "spacing")?, self.offset(bins));
        let angles = pick(&self.outline.angles, views);
        Ok(match self.outline.rays {
            Rays::Parallel => ParallelBeam { angles, bins, spacing, offset }.into(),
            Rays::Fan(source_distance, detector_distance) => {
                FanBeam { angles, bins, spacing, offset, source_distance, detector_distance }.into()
            }
            Rays::Cone(..) => return Err(self.wrong_sides()),
        })
    }

    fn volumes(&self, views: &[usize], detector: [usize; 2]) -> Result<Scan3d> {
        let spacing = along(self.spacing(), "spacing")?;
        let angles = pick(&self.outline.angles, views);
        let pose = &self.beam.pose;
        let up = |(_, row): &(Place, f64)| (detector[0] as f64 - 1.0) / 2.0 - row;
        let moved = [pose.row.as_ref().map_or(0.0, up), self.offset(detector[1])];
        // What is turned and climbs is moved afterwards.
        let offset = if pose.is_general() { [0.0; 2] } else { moved };
        let scan = match self.outline.rays {
            Rays::Parallel => {
                ParallelBeam3d { angles: angles.clone(), detector, spacing, offset }.into()
            }
            Rays::Cone(source_distance, detector_distance) => ConeBeam {
                angles: angles.clone(),
                detector,
                spacing,
                offset,
                source_distance,
                detector_distance,
            }
            .into(),
            Rays::Fan(..) => return Err(self.wrong_sides()),
        };
        if !pose.is_general() {
            return Ok(scan);
        }
        Ok(pose.place(&scan, (&angles, &self.outline.angles), moved))
    }

    fn wrong_sides(&self) -> Error {
        Error::argument(
            "tomography",
            format!(
                "an image of {} sides and a detector of {:?}; {}",
                self.image.len() - 1,
                self.detector,
                match self.beam.rays {
                    Rays::Parallel =>
                        "parallel beams take 2 sides and the bins, or 3 sides and rows and columns",
                    Rays::Fan(..) => "fan beams take 2 sides and the bins",
                    Rays::Cone(..) => "cone beams take 3 sides and rows and columns",
                }
            ),
        )
    }

    /// How far the detector is moved for the axis to be seen where it is.
    fn offset(&self, bins: usize) -> f64 {
        self.known_centre.map_or(0.0, |centre| (bins as f64 - 1.0) / 2.0 - centre)
    }
}

fn pick<T: Clone>(all: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|place| all[*place].clone()).collect()
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
