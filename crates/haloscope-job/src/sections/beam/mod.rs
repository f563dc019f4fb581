//! Tomography, as a job file describes it: parallel, fan and cone beams, and the angles of their views.
//!
//! A [`Beam`] is what the file says. With the shape of the image, and what measurements know, it becomes a [`Scan`].

mod describe;
mod positions;
mod project;
mod scan;

use std::f64::consts::{PI, TAU};
use std::path::PathBuf;
use std::sync::Arc;

use haloscope::physics::tomography::{evenly_spaced, rotation_centre};
use haloscope::{Array, Error, Result};
use toml::de::DeValue;

use crate::document::numbers;
use crate::document::{Place, Section, Value};
use crate::words::count;

use positions::{Outline, Pose, Vectors};

pub(crate) use project::Projector;
pub(crate) use scan::Scan;

/// How rays go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rays {
    Parallel,
    /// Distances of source and detector from the rotation axis.
    Fan(f64, f64),
    Cone(f64, f64),
}

/// A scan as the job file has it.
#[derive(Clone, Debug)]
pub(crate) struct Beam {
    place: Place,
    rays: Rays,
    angles: Angles,
    angles_place: Place,
    /// The unit of all angles, if the job says it.
    unit: Option<Unit>,
    /// Radians.
    first_angle: f64,
    arc: f64,
    /// Bins, or rows and columns.
    detector: Option<Vec<usize>>,
    /// 1 unless it is given.
    spacing: Option<Vec<f64>>,
    /// Where the rotation axis is seen; in the middle unless it is given.
    centre: Option<(Place, Centre)>,
    pose: Pose,
    /// The positions of all views, instead of angles and distances.
    vectors: Option<Vectors>,
    /// The spacing, as it is seen at the rotation axis, unless it is given.
    pixel: Option<Vec<f64>>,
    groups: usize,
    normalise: bool,
}

/// What angles are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Degrees,
    Radians,
}

impl Unit {
    fn to_radians(self, angle: f64) -> f64 {
        match self {
            Self::Degrees => angle.to_radians(),
            Self::Radians => angle,
        }
    }
}

/// `centre`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Centre {
    /// In bins from 0.
    Bin(f64),
    /// Where the measurements show it.
    Auto,
}

impl<'a> Value<'a> for Centre {
    fn expected() -> String {
        "the bin that sees the rotation axis, or \"auto\"".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value {
            DeValue::String(word) => (&**word == "auto").then_some(Self::Auto),
            other => f64::of(other).map(Self::Bin),
        }
    }
}

#[derive(Clone, Debug)]
enum Angles {
    /// So many, equally spaced.
    Count(usize),
    List(Vec<f64>),
    File(PathBuf),
    /// Those of the measurements.
    Measured,
}

impl<'a> Value<'a> for Angles {
    fn expected() -> String {
        "the number of views, a list of degrees, or the name of a file with degrees".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        Some(match value {
            DeValue::Integer(_) => Self::Count(usize::of(value)?),
            DeValue::String(path) => Self::File(PathBuf::from(&**path)),
            other => Self::List(Vec::of(other)?),
        })
    }
}

/// What only the measurements know of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// The shape behind batch and channel: (view, bin) or (view, row, column).
    pub shape: Vec<usize>,
    /// The angles in radians, where a file has them.
    pub angles: Option<Vec<f64>>,
    /// The bin that sees the rotation axis, where it was looked for.
    pub centre: Option<f64>,
}

impl Beam {
    pub(crate) fn read(section: &Section, rays: Rays) -> Result<Self> {
        let angles = match section.get("angles")? {
            Some(Angles::File(_)) => Angles::File(section.path("angles")?.unwrap_or_default()),
            angles => angles.unwrap_or(Angles::Measured),
        };
        let units = [("degrees", Unit::Degrees), ("radians", Unit::Radians)];
        let unit = section.choose("angle-unit", &units)?;
        let in_radians = |angle: f64| unit.unwrap_or(Unit::Degrees).to_radians(angle);
        let turn = if rays == Rays::Parallel { PI } else { TAU };
        let arc = section.positive("arc")?;
        if let Some(arc) = arc.filter(|arc| unit.is_none() && is_turn_in_radians(*arc)) {
            return Err(section.place_of("arc").refuse(format!(
                "{arc} is given, which is {} in radians; degrees are expected, or `angle-unit = \"radians\"` (and \
                 `angle-unit = \"degrees\"` if it is so small an arc)",
                turn_in_words(arc)
            )));
        }
        let centre: Option<Centre> = section.get("centre")?;
        if centre == Some(Centre::Auto) && rays != Rays::Parallel {
            return Err(section.place_of("centre").refuse(
                "\"auto\" is for parallel beams; the bin that sees the rotation axis is expected",
            ));
        }
        let pose = Pose::read(section)?;
        if centre == Some(Centre::Auto) && pose.is_general() {
            return Err(section.place_of("centre").refuse(
                "\"auto\" compares opposite views of a row, which `tilt` and `pitch` move; the bin that sees the rotation axis is \
                 expected",
            ));
        }
        Ok(Self {
            place: section.place(),
            rays,
            angles,
            angles_place: section.place_of("angles"),
            unit,
            first_angle: in_radians(section.get::<f64>("first-angle")?.unwrap_or(0.0)),
            arc: arc.map_or(turn, in_radians),
            detector: section.get("detector")?,
            spacing: section.get("spacing")?,
            centre: centre.map(|centre| (section.place_of("centre"), centre)),
            pose,
            vectors: Vectors::read(section)?,
            pixel: section.get("pixel")?,
            groups: section.count("groups")?.unwrap_or(4),
            normalise: section.get("normalise")?.unwrap_or(false),
        })
    }

    /// Whether its rays are in one plane.
    pub(crate) fn is_fan(&self) -> bool {
        matches!(self.rays, Rays::Fan(..))
    }

    /// The file that its angles or positions are in, if they are in one.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        match (&self.vectors, &self.angles) {
            (Some(vectors), _) => Some(&vectors.path),
            (None, Angles::File(path)) => Some(path),
            _ => None,
        }
    }

    /// Whether the rotation axis is to be found in the measurements.
    pub(crate) fn seeks_centre(&self) -> bool {
        matches!(self.centre, Some((_, Centre::Auto)))
    }

    /// The bin that sees the rotation axis in a sinogram (1, 1, view, bin) of all views.
    pub(crate) fn find_centre(&self, row: &Array, measured: &Measured) -> Result<f64> {
        let angles = self.angles(Some(measured))?;
        if angles.len() != measured.shape[0] {
            return Err(self.wrong_views(angles.len(), &measured.shape));
        }
        let found = rotation_centre(row, &angles);
        found.map(|found| found.bin).map_err(|error| self.refuse_centre(&error.to_string()))
    }

    fn refuse_centre(&self, reason: &str) -> Error {
        let place = self.centre.as_ref().map_or(&self.place, |(place, _)| place);
        place.refuse(format!("the rotation axis was not found: {reason}"))
    }

    /// The sides of the image that a detector suggests.
    pub(crate) fn sides(&self, measured: &Measured) -> Option<Vec<usize>> {
        match self.detector.as_deref().or(measured.shape.get(1..))? {
            [bins] => Some(vec![*bins; 2]),
            [rows, columns] => Some(vec![*rows, *columns, *columns]),
            _ => None,
        }
    }

    /// The scan of images of a shape (channel, spatial…), with what the measurements know, if there are any yet.
    pub(crate) fn scan(&self, image: &[usize], measured: Option<&Measured>) -> Result<Arc<Scan>> {
        let listed = match &self.vectors {
            Some(vectors) => {
                Some(vectors.load(self.rays != Rays::Parallel, image.len().saturating_sub(1))?)
            }
            None => None,
        };
        let outline = match &listed {
            Some(positions) => positions.outline(),
            None => Outline {
                rays: self.rays,
                spacing: self.spacing.clone().filter(|each| !each.is_empty()).unwrap_or(vec![1.0]),
                angles: self.angles(measured)?,
            },
        };
        let views = outline.angles.len();
        let found = measured.map_or(&[][..], |measured| &measured.shape);
        if found.first().is_some_and(|found| *found != views) {
            return Err(self.wrong_views(views, found));
        }
        if self.groups > views {
            return Err(self.place.refuse(format!(
                "{} of {}; at most as many groups as views are possible",
                count(self.groups, "group"),
                count(views, "view")
            )));
        }
        let shape = measured.and_then(|measured| measured.shape.get(1..));
        let Some(detector) = self.detector.as_deref().or(shape) else {
            return Err(self.place.refuse("`detector` is missing: the bins, or rows and columns"));
        };
        let centre = match (&self.centre, measured.and_then(|measured| measured.centre)) {
            (Some((_, Centre::Bin(bin))), _) => Some(*bin),
            (Some((_, Centre::Auto)), None) => {
                return Err(self.refuse_centre("there are no measurements, which are simulated"));
            }
            (_, found) => found,
        };
        self.pose.check(detector)?;
        self.pose.check_angles(&outline.angles)?;
        let scan = Scan::new(self, image, (outline, listed), detector, centre);
        scan.check_centre()?;
        scan.check_source()?;
        Ok(Arc::new(scan))
    }

    /// What is wrong with measurements that have another number of views than there are angles.
    fn wrong_views(&self, views: usize, found: &[usize]) -> Error {
        let expected = match found.len() {
            2 => "(view, bin)",
            _ => "(view, row, column)",
        };
        let hint = match found.iter().position(|side| *side == views) {
            Some(axis) => format!(
                ", but axis {axis} has that many: the data look transposed, and {expected} is expected"
            ),
            None => format!("; one for each is expected, and data as {expected}"),
        };
        self.place.refuse(format!(
            "{views} {} for measurements of {} views (shape {found:?}){hint}",
            if self.vectors.is_some() { "positions" } else { "angles" },
            found[0]
        ))
    }

    fn angles(&self, measured: Option<&Measured>) -> Result<Vec<f64>> {
        let unit = self.unit.unwrap_or(Unit::Degrees);
        let radians: Vec<f64> = match &self.angles {
            Angles::Count(count) if *count > MOST_VIEWS => {
                let reason = format!("{count} views are given; at most {MOST_VIEWS} are possible");
                return Err(self.place.refuse(reason));
            }
            Angles::Count(count) => evenly_spaced(*count, self.arc),
            Angles::List(angles) => {
                self.check_unit(angles)?;
                angles.iter().map(|angle| unit.to_radians(*angle)).collect()
            }
            Angles::File(path) => {
                let angles = numbers::read(path).map_err(|error| self.place.refuse(error))?;
                self.check_unit(&angles)?;
                angles.into_iter().map(|angle| unit.to_radians(angle)).collect()
            }
            Angles::Measured => {
                let angles = measured.and_then(|measured| measured.angles.clone());
                let angles = angles.ok_or_else(|| {
                    self.place.refuse(format!(
                        "`angles` is missing, and the measurements have none; {} is expected",
                        Angles::expected()
                    ))
                })?;
                // The file's own unit was degrees, or it says otherwise; the job may know better.
                let degrees: Vec<f64> = angles.iter().map(|angle| angle.to_degrees()).collect();
                self.check_unit(&degrees)?;
                match self.unit {
                    Some(Unit::Radians) if covers_radians(&degrees) => degrees,
                    _ => angles,
                }
            }
        };
        Ok(radians.into_iter().map(|angle| angle + self.first_angle).collect())
    }

    /// Refuses angles that go half or all around if they are radians, unless the job says that they are degrees.
    fn check_unit(&self, angles: &[f64]) -> Result<()> {
        if self.unit.is_some() || !covers_radians(angles) {
            return Ok(());
        }
        let (low, high) = extent(angles);
        Err(self.angles_place.refuse(format!(
            "the angles go from {low:.3} to {high:.3} and look like {} in radians; degrees are expected, or `angle-unit \
             = \"radians\"` (and `angle-unit = \"degrees\"` if it is so small an arc)",
            turn_in_words(high - low)
        )))
    }
}

/// The least and the greatest of some angles.
pub(crate) fn extent(angles: &[f64]) -> (f64, f64) {
    let fold = |start, f: fn(f64, f64) -> f64| angles.iter().copied().fold(start, f);
    (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
}

/// Whether angles, with their last step or without it, go half or all around as radians.
pub(crate) fn covers_radians(angles: &[f64]) -> bool {
    let (low, high) = extent(angles);
    let arc = high - low;
    let step = arc / (angles.len().max(2) - 1) as f64;
    angles.len() >= 4 && (is_turn_in_radians(arc) || is_turn_in_radians(arc + step))
}

fn is_turn_in_radians(arc: f64) -> bool {
    [PI, TAU].iter().any(|turn| (arc / turn - 1.0).abs() < 0.01)
}

fn turn_in_words(arc: f64) -> &'static str {
    if arc < 1.5 * PI { "half a turn" } else { "a turn" }
}

/// More views than any scanner takes.
const MOST_VIEWS: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_that_go_around_as_radians_are_told_from_degrees() {
        let spread = |count: u32, arc: f64| -> Vec<f64> {
            (0..count).map(|view| f64::from(view) * arc / f64::from(count)).collect()
        };
        for (angles, are_radians) in [
            (spread(180, PI), true),
            (spread(181, TAU), true),
            ((0..=60).map(|view| f64::from(view) * PI / 60.0).collect(), true),
            (spread(180, 180.0), false),
            (spread(10, 3.0), false),
            (spread(50, 7.0), false),
            (vec![0.0, PI], false),
        ] {
            assert_eq!(covers_radians(&angles), are_radians, "{angles:?}");
        }
    }
}
