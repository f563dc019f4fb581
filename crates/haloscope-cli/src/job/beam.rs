//! Tomography, as a job file describes it: parallel, fan and cone beams, whose views are dealt to groups.
//!
//! A group is an operator of its own, and ranks share operators: group `g` of `n` has the views `g`, `g + n`,
//! `g + 2n` and so on. Filtered back-projection needs all views at once: [`Scan::whole`].

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use haloscope::physics::Physics;
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, ParallelBeam, ParallelBeam3d, Tomography2d, Tomography3d, Window,
    evenly_spaced,
};
use haloscope::{Array, Error, Measurements, Result};
use ndarray::Axis;
use toml::de::DeValue;

use super::document::{Place, Section, Value};
use super::numbers;

/// How rays go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rays {
    Parallel,
    /// Distances of source and detector from the rotation axis.
    Fan(f64, f64),
    Cone(f64, f64),
}

/// A scan as the job file has it.
#[derive(Clone, Debug)]
pub struct Beam {
    place: Place,
    rays: Rays,
    angles: Angles,
    /// Radians.
    first_angle: f64,
    arc: f64,
    /// Bins, or rows and columns.
    detector: Option<Vec<usize>>,
    spacing: Vec<f64>,
    /// Where the rotation axis is seen, in bins from 0; in the middle unless it is given.
    centre: Option<f64>,
    /// Of size 1 unless it is given.
    pixel: Option<Vec<f64>>,
    groups: usize,
    normalise: bool,
}

/// A scan with all that is to be known of it.
#[derive(Debug)]
pub struct Scan {
    beam: Beam,
    /// For images of this shape, (channel, spatial…).
    image: Vec<usize>,
    /// Radians.
    angles: Vec<f64>,
    detector: Vec<usize>,
    /// What makes the norm of all views together 1, once it is known.
    factor: OnceLock<f64>,
}

#[derive(Clone, Debug)]
enum Angles {
    /// So many, equally spaced.
    Count(usize),
    Degrees(Vec<f64>),
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
            other => Self::Degrees(Vec::of(other)?),
        })
    }
}

/// All views of a scan, or those of a group.
#[derive(Clone, Debug)]
pub enum Projector {
    Plane(Tomography2d),
    Space(Tomography3d),
}

/// What only the measurements know of a scan.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The shape behind batch and channel: (view, bin) or (view, row, column).
    pub shape: Vec<usize>,
    /// The angles in radians, where a file has them.
    pub angles: Option<Vec<f64>>,
}

impl Beam {
    pub fn read(section: &Section, rays: Rays) -> Result<Self> {
        let angles = match section.get("angles")? {
            Some(Angles::File(_)) => Angles::File(section.path("angles")?.unwrap_or_default()),
            angles => angles.unwrap_or(Angles::Measured),
        };
        let turn = if rays == Rays::Parallel { 180.0 } else { 360.0 };
        Ok(Self {
            place: section.place(),
            rays,
            angles,
            first_angle: section.get::<f64>("first-angle")?.unwrap_or(0.0).to_radians(),
            arc: section.positive("arc")?.unwrap_or(turn).to_radians(),
            detector: section.get("detector")?,
            spacing: section.get("spacing")?.unwrap_or_else(|| vec![1.0]),
            centre: section.get("centre")?,
            pixel: section.get("pixel")?,
            groups: section.count("groups")?.unwrap_or(4),
            normalise: section.get("normalise")?.unwrap_or(false),
        })
    }

    /// Whether its rays are in one plane.
    pub fn is_fan(&self) -> bool {
        matches!(self.rays, Rays::Fan(..))
    }

    /// The file that its angles are in, if they are in one.
    pub fn file(&self) -> Option<&PathBuf> {
        match &self.angles {
            Angles::File(path) => Some(path),
            _ => None,
        }
    }

    /// The sides of the image that a detector suggests.
    pub fn sides(&self, measured: &Measured) -> Option<Vec<usize>> {
        match self.detector.as_deref().or(measured.shape.get(1..))? {
            [bins] => Some(vec![*bins; 2]),
            [rows, columns] => Some(vec![*rows, *columns, *columns]),
            _ => None,
        }
    }

    /// The scan of images of a shape (channel, spatial…), with what the measurements know, if there are any yet.
    pub fn scan(&self, image: &[usize], measured: Option<&Measured>) -> Result<Arc<Scan>> {
        let angles = self.angles(measured)?;
        let views = angles.len();
        let found = measured.and_then(|measured| measured.shape.first().copied());
        if let Some(found) = found.filter(|found| *found != views) {
            return Err(self.place.refuse(format!(
                "{views} angles for measurements of {found} views; one for each is expected"
            )));
        }
        if self.groups > views {
            return Err(self.place.refuse(format!(
                "{} groups of {views} views; at most as many groups as views are possible",
                self.groups
            )));
        }
        let shape = measured.and_then(|measured| measured.shape.get(1..));
        let Some(detector) = self.detector.as_deref().or(shape) else {
            return Err(self.place.refuse("`detector` is missing: the bins, or rows and columns"));
        };
        Ok(Arc::new(Scan {
            beam: self.clone(),
            image: image.to_vec(),
            angles,
            detector: detector.to_vec(),
            factor: OnceLock::new(),
        }))
    }

    fn angles(&self, measured: Option<&Measured>) -> Result<Vec<f64>> {
        let radians: Vec<f64> = match &self.angles {
            Angles::Count(count) if *count > MOST_VIEWS => {
                let reason = format!("{count} views are given; at most {MOST_VIEWS} are possible");
                return Err(self.place.refuse(reason));
            }
            Angles::Count(count) => evenly_spaced(*count, self.arc),
            Angles::Degrees(degrees) => degrees.iter().map(|angle| angle.to_radians()).collect(),
            Angles::File(path) => {
                let degrees = numbers::read(path).map_err(|error| self.place.refuse(error))?;
                degrees.into_iter().map(f64::to_radians).collect()
            }
            Angles::Measured => {
                let angles = measured.and_then(|measured| measured.angles.clone());
                angles.ok_or_else(|| {
                    self.place.refuse(format!(
                        "`angles` is missing, and the measurements have none; {} is expected",
                        Angles::expected()
                    ))
                })?
            }
        };
        Ok(radians.into_iter().map(|angle| angle + self.first_angle).collect())
    }
}

/// More views than any scanner takes.
const MOST_VIEWS: usize = 1_000_000;

impl Scan {
    /// How many operators it is.
    pub fn groups(&self) -> usize {
        self.beam.groups
    }

    /// The size of the image's pixels along each side, if it is given.
    pub fn pixel(&self) -> Option<Vec<f64>> {
        match self.beam.pixel.as_deref()? {
            [same] => Some(vec![*same; self.image.len() - 1]),
            each => Some(each.to_vec()),
        }
    }

    /// Whether its operators are scaled so that their norm is 1.
    pub fn is_normalised(&self) -> bool {
        self.beam.normalise
    }

    /// The geometry in names and values, for reports.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        let mut add = |name, value: String| facts.push((name, value));
        let beam = &self.beam;
        let rays = match beam.rays {
            Rays::Parallel => "parallel".to_owned(),
            Rays::Fan(source, detector) => {
                format!("fan, source at {source}, detector at {detector}")
            }
            Rays::Cone(source, detector) => {
                format!("cone, source at {source}, detector at {detector}")
            }
        };
        let degrees = |angle: Option<&f64>| angle.copied().unwrap_or(0.0).to_degrees();
        let (first, last) = (degrees(self.angles.first()), degrees(self.angles.last()));
        let columns = self.detector.last().copied().unwrap_or(1);
        let centre = beam.centre.unwrap_or((columns as f64 - 1.0) / 2.0);
        let join = |values: &[f64]| {
            let values: Vec<String> = values.iter().map(f64::to_string).collect();
            values.join(" × ")
        };
        let bins: Vec<f64> = self.detector.iter().map(|bins| *bins as f64).collect();
        add("beam", rays);
        add("views", self.angles.len().to_string());
        add("angles", format!("{first:.2}° to {last:.2}°"));
        add("detector", format!("{} bins", join(&bins)));
        add("detector spacing", join(&beam.spacing));
        add("centre", format!("bin {centre}"));
        add("pixel size", join(beam.pixel.as_deref().unwrap_or(&[1.0])));
        facts
    }

    /// How many values a group measures of an image.
    pub fn values(&self, group: usize) -> usize {
        let views = self.angles.len().saturating_sub(group).div_ceil(self.groups());
        let bins = self.detector.iter().fold(1, |bins: usize, side| bins.saturating_mul(*side));
        bins.saturating_mul(views).saturating_mul(self.image[0])
    }

    /// All views.
    pub fn whole(&self) -> Result<Projector> {
        self.make(self.angles.clone())?.scaled(self.factor()?)
    }

    /// The views of a group.
    pub fn group(&self, group: usize) -> Result<Projector> {
        self.draft(group)?.scaled(self.factor()?)
    }

    /// The views of a group, without the factor, which may take long to find.
    pub fn draft(&self, group: usize) -> Result<Projector> {
        self.make(self.angles.iter().skip(group).step_by(self.groups()).copied().collect())
    }

    /// The measurements of a group out of those of all views.
    pub fn select(&self, all: &Array, group: usize) -> Array {
        let views: Vec<usize> = (group..all.shape()[2]).step_by(self.groups()).collect();
        all.select(Axis(2), &views)
    }

    /// The measurements of all views out of those of the groups.
    pub fn join(&self, groups: &Measurements) -> Result<Array> {
        let parts: Vec<&Array> = groups.iter().map(|(_, part)| part).collect();
        let Some(first) = parts.first().filter(|_| parts.len() == self.groups()) else {
            return Err(self.beam.place.refuse("filtered back-projection is for one scan alone"));
        };
        let mut shape = first.shape().to_vec();
        shape[2] = self.angles.len();
        let mut all = Array::zeros(shape);
        for view in 0..self.angles.len() {
            let part = parts[view % parts.len()].index_axis(Axis(2), view / parts.len());
            all.index_axis_mut(Axis(2), view).assign(&part);
        }
        Ok(all)
    }

    fn factor(&self) -> Result<f64> {
        if !self.beam.normalise {
            return Ok(1.0);
        }
        if let Some(factor) = self.factor.get() {
            return Ok(*factor);
        }
        let factor = match self.make(self.angles.clone())? {
            Projector::Plane(plane) => plane.normalised()?.factor(),
            Projector::Space(space) => space.normalised()?.factor(),
        };
        Ok(*self.factor.get_or_init(|| factor))
    }

    fn make(&self, angles: Vec<f64>) -> Result<Projector> {
        self.project(angles).map_err(|error| self.beam.place.refuse(error))
    }

    fn project(&self, angles: Vec<f64>) -> Result<Projector> {
        let (beam, image) = (&self.beam, &self.image);
        let (spacing, pixels) = (&beam.spacing, beam.pixel.as_deref().unwrap_or(&[1.0]));
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
        self.beam.centre.map_or(0.0, |centre| (bins as f64 - 1.0) / 2.0 - centre)
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
    pub fn filtered_back_projection(&self, views: &Array, window: Window) -> Result<Array> {
        match self {
            Self::Plane(plane) => plane.filtered_back_projection(views, window),
            Self::Space(space) => space.filtered_back_projection(views, window),
        }
    }

    /// As an operator of a stack.
    pub fn into_physics(self) -> Arc<dyn Physics> {
        match self {
            Self::Plane(plane) => Arc::new(plane),
            Self::Space(space) => Arc::new(space),
        }
    }

    fn scaled(self, factor: f64) -> Result<Self> {
        Ok(match self {
            Self::Plane(plane) => Self::Plane(plane.scaled(factor)?),
            Self::Space(space) => Self::Space(space.scaled(factor)?),
        })
    }
}
