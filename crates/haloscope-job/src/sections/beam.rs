//! Tomography, as a job file describes it: parallel, fan and cone beams, whose views are dealt to groups.
//!
//! A group is an operator of its own, and ranks share operators: group `g` of `n` has the views `g`, `g + n`,
//! `g + 2n` and so on. Filtered back-projection needs all views at once: [`Scan::whole`].

use std::f64::consts::{PI, TAU};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use haloscope::physics::Physics;
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, MissingArc, ParallelBeam, ParallelBeam3d, Tomography2d, Tomography3d,
    Window, evenly_spaced,
};
use haloscope::{Array, Error, Measurements, Result};
use ndarray::Axis;
use toml::de::DeValue;

use crate::document::numbers;
use crate::document::{Place, Section, Value};
use crate::words::count;

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
    /// Where the rotation axis is seen, in bins from 0; in the middle unless it is given.
    centre: Option<(Place, f64)>,
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

/// A scan with all that is to be known of it.
#[derive(Debug)]
pub(crate) struct Scan {
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

/// All views of a scan, or those of a group.
#[derive(Clone, Debug)]
pub(crate) enum Projector {
    Plane(Tomography2d),
    Space(Tomography3d),
}

/// What only the measurements know of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// The shape behind batch and channel: (view, bin) or (view, row, column).
    pub shape: Vec<usize>,
    /// The angles in radians, where a file has them.
    pub angles: Option<Vec<f64>>,
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
            centre: section.get("centre")?.map(|centre| (section.place_of("centre"), centre)),
            pixel: section.get("pixel")?,
            groups: section.count("groups")?.unwrap_or(4),
            normalise: section.get("normalise")?.unwrap_or(false),
        })
    }

    /// Whether its rays are in one plane.
    pub(crate) fn is_fan(&self) -> bool {
        matches!(self.rays, Rays::Fan(..))
    }

    /// The file that its angles are in, if they are in one.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        match &self.angles {
            Angles::File(path) => Some(path),
            _ => None,
        }
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
        let angles = self.angles(measured)?;
        let views = angles.len();
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
        let scan = Scan {
            beam: self.clone(),
            image: image.to_vec(),
            angles,
            detector: detector.to_vec(),
            factor: OnceLock::new(),
        };
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
            "{views} angles for measurements of {} views (shape {found:?}){hint}",
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

impl Scan {
    /// How many operators it is.
    pub(crate) fn groups(&self) -> usize {
        self.beam.groups
    }

    /// The size of the image's pixels along each side, if the job says anything of lengths.
    pub(crate) fn pixel(&self) -> Option<Vec<f64>> {
        let beam = &self.beam;
        let says = beam.pixel.is_some() || beam.spacing.is_some() || beam.rays != Rays::Parallel;
        says.then(|| self.pixels())
    }

    /// The size of pixels: as it is given, or the distance of bins as it is seen at the rotation axis.
    fn pixels(&self) -> Vec<f64> {
        let sides = self.image.len() - 1;
        match self.beam.pixel.as_deref() {
            Some([same]) => vec![*same; sides],
            Some(each) => each.to_vec(),
            None => {
                let spacing = self.spacing();
                let (row, column) = (spacing[0], spacing[spacing.len() - 1]);
                let side = |axis: usize| if sides == 3 && axis == 0 { row } else { column };
                (0..sides).map(|axis| side(axis) / self.magnification()).collect()
            }
        }
    }

    /// Whether its operators are scaled so that their norm is 1.
    pub(crate) fn is_normalised(&self) -> bool {
        self.beam.normalise
    }

    fn spacing(&self) -> &[f64] {
        self.beam.spacing.as_deref().filter(|spacing| !spacing.is_empty()).unwrap_or(&[1.0])
    }

    /// How much larger things at the rotation axis are on the detector.
    fn magnification(&self) -> f64 {
        match self.beam.rays {
            Rays::Parallel => 1.0,
            Rays::Fan(source, detector) | Rays::Cone(source, detector) => {
                (source + detector) / source
            }
        }
    }

    fn columns(&self) -> usize {
        self.detector.last().copied().unwrap_or(1)
    }

    /// The bin that sees the rotation axis.
    fn centre(&self) -> f64 {
        let middle = (self.columns() as f64 - 1.0) / 2.0;
        self.beam.centre.as_ref().map_or(middle, |(_, centre)| *centre)
    }

    /// The diameters of the circles that all views see, and that some do.
    fn field_of_view(&self) -> (f64, f64) {
        let spacing = self.spacing()[self.spacing().len() - 1];
        let (centre, columns) = (self.centre(), self.columns() as f64);
        let diameter = |bins: f64| {
            let distance = bins * spacing;
            2.0 * match self.beam.rays {
                Rays::Parallel => distance,
                Rays::Fan(source, detector) | Rays::Cone(source, detector) => {
                    source * (distance / (source + detector)).atan().sin()
                }
            }
        };
        let (left, right) = (centre + 0.5, columns - 0.5 - centre);
        (diameter(left.min(right)), diameter(left.max(right)))
    }

    /// How long the image is along its last two sides.
    fn breadth(&self) -> [f64; 2] {
        let (pixels, sides) = (self.pixels(), &self.image[1..]);
        let length = |from_end: usize| {
            let pixel = pixels.get(pixels.len().wrapping_sub(from_end)).copied().unwrap_or(1.0);
            sides[sides.len() - from_end] as f64 * pixel
        };
        [length(2), length(1)]
    }

    fn check_centre(&self) -> Result<()> {
        let Some((place, centre)) = &self.beam.centre else { return Ok(()) };
        let columns = self.columns();
        if (-0.5..=columns as f64 - 0.5).contains(centre) {
            return Ok(());
        }
        Err(place.refuse(format!(
            "bin {centre} is outside of the detector; the bin that sees the rotation axis is expected, from 0 to {}",
            columns.saturating_sub(1)
        )))
    }

    fn check_source(&self) -> Result<()> {
        let (Rays::Fan(source, _) | Rays::Cone(source, _)) = self.beam.rays else { return Ok(()) };
        if self.image.len() < 3 {
            return Ok(());
        }
        let [height, width] = self.breadth();
        if source > height.min(width) / 2.0 {
            return Ok(());
        }
        Err(self.beam.place.refuse(format!(
            "the source is {source} from the rotation axis and so inside the image, which is {} x {}; a larger \
             `source-distance`, or a smaller `pixel`, in the same unit, is expected",
            rounded(height),
            rounded(width)
        )))
    }

    /// What may be wrong with it, in words.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let [height, width] = self.breadth();
        let (_, seen) = self.field_of_view();
        if seen < 0.5 * height.min(width) || seen > 2.0 * height.max(width) {
            warnings.push(format!(
                "the detector sees a circle of {} and the image is {} x {}; `spacing`, `pixel` and distances are in \
                 one unit",
                rounded(seen),
                rounded(height),
                rounded(width)
            ));
        }
        if let Rays::Fan(source, _) | Rays::Cone(source, _) = self.beam.rays
            && source <= height.hypot(width) / 2.0
        {
            warnings.push(format!(
                "the source is {source} from the rotation axis and passes through the corners of the image, which is \
                 {} x {}",
                rounded(height),
                rounded(width)
            ));
        }
        warnings.iter().map(|warning| format!("{}: {warning}", self.beam.place)).collect()
    }

    /// What filtered back-projection lacks, in words.
    pub(crate) fn arc_warning(&self) -> Result<Option<String>> {
        let missing = match self.make(self.angles.clone())? {
            Projector::Plane(plane) => plane.missing_arc(),
            Projector::Space(space) => space.missing_arc(),
        };
        Ok(missing.map(|MissingArc { covered, needed }| {
            format!(
                "{}: the views cover {:.1}°, and filtered back-projection needs {:.1}° or a full turn; edges along the \
                 missing rays will be blurred or absent",
                self.beam.place,
                covered.to_degrees(),
                needed.to_degrees()
            )
        }))
    }

    /// The geometry, as names and values.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let beam = match self.beam.rays {
            Rays::Parallel => "parallel".to_owned(),
            Rays::Fan(source, detector) | Rays::Cone(source, detector) => format!(
                "{}, source {source} and detector {detector} from the rotation axis (magnification {})",
                if matches!(self.beam.rays, Rays::Fan(..)) { "fan" } else { "cone" },
                rounded(self.magnification())
            ),
        };
        let (low, high) = extent(&self.angles);
        let views = format!(
            "{}, from {:.2}° to {:.2}° (an arc of {:.2}°)",
            self.angles.len(),
            low.to_degrees(),
            high.to_degrees(),
            (high - low).to_degrees()
        );
        let middle = (self.columns() as f64 - 1.0) / 2.0;
        let centre = match self.beam.centre {
            None => format!("bin {middle}, the middle of the detector"),
            Some((_, centre)) => format!("bin {centre}; the middle of the detector is {middle}"),
        };
        let pixels = self.pixels();
        let is_same = pixels.windows(2).all(|pair| pair[0] == pair[1]);
        let pixel = match (&pixels[..], is_same) {
            ([first, ..], true) => rounded(*first),
            (each, _) => each.iter().map(|side| rounded(*side)).collect::<Vec<_>>().join(" x "),
        };
        let origin = match (&self.beam.pixel, self.beam.rays) {
            (Some(_), _) => "",
            (None, Rays::Parallel) => ", the spacing of bins",
            (None, _) => ", the spacing of bins over the magnification",
        };
        let (all, some) = self.field_of_view();
        let [height, width] = self.breadth();
        let more = if some - all > 1e-9 * some {
            format!(", {} in some views", rounded(some))
        } else {
            String::new()
        };
        let join = |values: &[f64]| {
            values.iter().map(|value| rounded(*value)).collect::<Vec<_>>().join(" x ")
        };
        let bins: Vec<f64> = self.detector.iter().map(|bins| *bins as f64).collect();
        let detector = format!("{} bins, {} apart", join(&bins), join(self.spacing()));
        let field = format!(
            "a circle of {}{more}; the image is {} x {}",
            rounded(all),
            rounded(height),
            rounded(width)
        );
        let names = ["beam", "views", "detector", "centre", "pixel", "field of view"];
        names.into_iter().zip([beam, views, detector, centre, pixel + origin, field]).collect()
    }

    /// A few of the views, at most so many, to find out what they cost.
    pub(crate) fn trial(&self, views: usize) -> Result<(Projector, usize)> {
        let every = self.angles.len().div_ceil(views.max(1)).max(1);
        let angles: Vec<f64> = self.angles.iter().step_by(every).copied().collect();
        let count = angles.len();
        Ok((self.make(angles)?, count))
    }

    /// How many views it has.
    pub(crate) fn views(&self) -> usize {
        self.angles.len()
    }

    /// How many values a group measures of an image.
    pub(crate) fn values(&self, group: usize) -> usize {
        let views = self.angles.len().saturating_sub(group).div_ceil(self.groups());
        let bins = self.detector.iter().fold(1, |bins: usize, side| bins.saturating_mul(*side));
        bins.saturating_mul(views).saturating_mul(self.image[0])
    }

    /// All views.
    pub(crate) fn whole(&self) -> Result<Projector> {
        self.make(self.angles.clone())?.scaled(self.factor()?)
    }

    /// The views of a group.
    pub(crate) fn group(&self, group: usize) -> Result<Projector> {
        self.draft(group)?.scaled(self.factor()?)
    }

    /// The views of a group, without the factor, which may take long to find.
    pub(crate) fn draft(&self, group: usize) -> Result<Projector> {
        self.make(self.angles.iter().skip(group).step_by(self.groups()).copied().collect())
    }

    /// The measurements of a group out of those of all views.
    pub(crate) fn select(&self, all: &Array, group: usize) -> Array {
        let views: Vec<usize> = (group..all.shape()[2]).step_by(self.groups()).collect();
        all.select(Axis(2), &views)
    }

    /// The measurements of all views out of those of the groups.
    pub(crate) fn join(&self, groups: &Measurements) -> Result<Array> {
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

/// A length with four digits.
fn rounded(length: f64) -> String {
    if length == 0.0 || !length.is_finite() {
        return length.to_string();
    }
    let digits = (3 - length.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{length:.digits$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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

    fn scaled(self, factor: f64) -> Result<Self> {
        Ok(match self {
            Self::Plane(plane) => Self::Plane(plane.scaled(factor)?),
            Self::Space(space) => Self::Space(space.scaled(factor)?),
        })
    }
}

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

    #[test]
    fn lengths_have_four_digits() {
        let lengths = [0.0, 0.123_456, 1.0, 75.0, 12_345.6, 0.000_123_456];
        let texts = ["0", "0.1235", "1", "75", "12346", "0.0001235"];
        assert_eq!(lengths.map(rounded), texts);
    }
}
