//! Where source and detector are in each view, if going around the rotation axis does not say it all: a detector that is turned in its
//! plane, a scan that climbs along the axis (helical), and lists of positions as ASTRA has them.

use std::f64::consts::TAU;
use std::path::PathBuf;

use haloscope::physics::tomography::{Rays as From, Scan3d, View2d, View3d};
use haloscope::{Error, Result};

use super::{Rays, extent};
use crate::document::{Place, Section, numbers};

/// How the detector of a volume's scan is placed, apart from its columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Pose {
    /// The row that sees the middle of the volume, from 0; in the middle unless it is given.
    pub row: Option<(Place, f64)>,
    /// Radians, from columns to rows, about the place that sees the middle of the volume.
    pub tilt: f64,
    /// How far source and detector go along the axis in a turn.
    pub pitch: f64,
    /// The first of these keys, to say where something is wrong.
    place: Option<Place>,
}

/// A file with the positions of all views.
#[derive(Clone, Debug)]
pub(super) struct Vectors {
    place: Place,
    pub path: PathBuf,
}

/// The positions of all views.
#[derive(Clone, Debug)]
pub(super) enum Positions {
    Plane(Vec<View2d>),
    Space(Vec<View3d>),
}

/// What positions come down to, to describe them and to suggest a size of pixels.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    pub rays: Rays,
    /// Rows and columns, or bins.
    pub spacing: Vec<f64>,
    /// The angles of the views, in radians.
    pub angles: Vec<f64>,
}

impl Pose {
    pub(super) fn read(section: &Section) -> Result<Self> {
        let first = ["centre-row", "tilt", "pitch"].into_iter().find(|key| section.has(key));
        Ok(Self {
            row: section.get("centre-row")?.map(|row| (section.place_of("centre-row"), row)),
            tilt: section.get::<f64>("tilt")?.unwrap_or(0.0).to_radians(),
            pitch: section.get("pitch")?.unwrap_or(0.0),
            place: first.map(|key| section.place_of(key)),
        })
    }

    /// Whether views do more than go around the axis.
    pub(super) fn is_general(&self) -> bool {
        self.tilt != 0.0 || self.pitch != 0.0
    }

    /// Refuses it for slices, and a row that the detector does not have.
    pub(super) fn check(&self, detector: &[usize]) -> Result<()> {
        match (&self.place, &self.row, detector) {
            (None, ..) => Ok(()),
            (Some(place), _, [_]) => {
                Err(place.refuse("it is for volumes, whose detectors have rows"))
            }
            (_, Some((place, row)), [rows, ..]) if !(-0.5..=*rows as f64 - 0.5).contains(row) => {
                Err(place.refuse(format!(
                    "row {row} is outside of the detector; the row that sees the middle of the volume is expected, from 0 to {}",
                    rows.saturating_sub(1)
                )))
            }
            _ => Ok(()),
        }
    }

    /// Refuses angles of a scan that climbs if they begin anew after a turn: all turns would be at one height.
    pub(super) fn check_angles(&self, angles: &[f64]) -> Result<()> {
        let jumps = angles.windows(2).any(|pair| (pair[1] - pair[0]).abs() > 0.75 * TAU);
        match &self.place {
            Some(place) if self.pitch != 0.0 && jumps => Err(place.refuse(
                "the angles of a scan that climbs go on beyond a turn (…, 359, 360, 361, …), and these begin anew",
            )),
            _ => Ok(()),
        }
    }

    /// The views of a scan around the axis whose detector is not moved, as they are with it: of these angles, out of a scan of all of
    /// them, with the detector moved by so many rows and columns.
    pub(super) fn place(
        &self,
        scan: &Scan3d,
        (angles, all): (&[f64], &[f64]),
        offset: [f64; 2],
    ) -> Scan3d {
        let (first, last) = extent(all);
        let views = scan.views().into_iter().zip(angles).map(|(view, angle)| {
            let height = self.pitch * (angle - 0.5 * (first + last)) / TAU;
            view.tilted(self.tilt).shifted(offset).raised(height)
        });
        Scan3d::Views { views: views.collect(), detector: scan.detector() }
    }
}

/// What `vectors` say, and no other key may say again.
const SAID: [&str; 11] = [
    "angles",
    "angle-unit",
    "arc",
    "first-angle",
    "centre",
    "centre-row",
    "tilt",
    "pitch",
    "spacing",
    "source-distance",
    "detector-distance",
];

impl Vectors {
    pub(super) fn read(section: &Section) -> Result<Option<Self>> {
        let Some(path) = section.path("vectors")? else { return Ok(None) };
        if let Some(key) = SAID.into_iter().find(|key| section.has(key)) {
            return Err(section
                .place_of(key)
                .refuse(format!("`vectors` say this of every view; leave `{key}` out")));
        }
        Ok(Some(Self { place: section.place_of("vectors"), path }))
    }

    /// The positions for images of so many sides.
    pub(super) fn load(&self, has_source: bool, sides: usize) -> Result<Positions> {
        let found = numbers::read(&self.path).map_err(|error| self.place.refuse(error))?;
        let length = if sides == 3 { 12 } else { 6 };
        if found.is_empty() || found.len() % length != 0 {
            return Err(self.place.refuse(format!(
                "{} has {} numbers; {length} for each view are expected, as in ASTRA: {}",
                self.path.display(),
                found.len(),
                match (sides, has_source) {
                    (3, true) => "the source, the middle of the detector, the steps of its columns and of its rows, each (x, y, z)",
                    (3, false) => "the rays' direction, the middle of the detector, the steps of its columns and of its rows, each (x, y, z)",
                    (_, true) => "the source, the middle of the detector, the step of its bins, each (x, y)",
                    (_, false) => "the rays' direction, the middle of the detector, the step of its bins, each (x, y)",
                }
            )));
        }
        Ok(if sides == 3 {
            let (views, _) = found.as_chunks::<12>();
            Positions::Space(views.iter().map(|v| View3d::of_vector(*v, has_source)).collect())
        } else {
            let (views, _) = found.as_chunks::<6>();
            Positions::Plane(views.iter().map(|v| View2d::of_vector(*v, has_source)).collect())
        })
    }

    /// A refusal of what the file has.
    pub(super) fn refuse(&self, error: Error) -> Error {
        self.place.refuse(error)
    }
}

impl Positions {
    /// Distances from the middle of the image in the mean, and angles around the rotation axis.
    pub(super) fn outline(&self) -> Outline {
        match self {
            Self::Plane(views) => {
                let seen = views.iter().map(|view| Seen::of(view.rays, &view.centre));
                let spacing = views.first().map_or(1.0, |view| length(&view.u));
                Seen::outline(&seen.collect::<Vec<_>>(), Rays::Fan, vec![spacing])
            }
            Self::Space(views) => {
                let seen = views.iter().map(|view| Seen::of(view.rays, &view.centre));
                let spacing = views.first().map_or([1.0; 2], |it| [length(&it.v), length(&it.u)]);
                Seen::outline(&seen.collect::<Vec<_>>(), Rays::Cone, spacing.to_vec())
            }
        }
    }
}

/// What a view comes down to.
struct Seen {
    /// From the middle of the image to the source, if there is one.
    source: Option<f64>,
    detector: f64,
    angle: f64,
}

impl Seen {
    fn of<const SIDES: usize>(rays: From<SIDES>, centre: &[f64]) -> Self {
        let (source, from) = match rays {
            From::Along(direction) => (None, direction),
            From::From(source) => (Some(length(&source)), source),
        };
        Self { source, detector: length(centre), angle: from[0].atan2(-from[1]) }
    }

    fn outline(all: &[Self], cone: fn(f64, f64) -> Rays, spacing: Vec<f64>) -> Outline {
        let count = all.len().max(1) as f64;
        let sources: Option<Vec<f64>> = all.iter().map(|view| view.source).collect();
        let detector = all.iter().map(|view| view.detector).sum::<f64>() / count;
        let rays = match sources {
            Some(sources) => cone(sources.iter().sum::<f64>() / count, detector),
            None => Rays::Parallel,
        };
        Outline { rays, spacing, angles: all.iter().map(|view| view.angle).collect() }
    }
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|part| part * part).sum::<f64>().sqrt()
}
