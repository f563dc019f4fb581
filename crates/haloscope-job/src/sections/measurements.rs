//! Where the measurements of a job come from: files, a scan in Data Exchange layout, or a simulation.
//!
//! A measurement is a file; that of a scan may be several, one for each view, which [`super::stack`] puts together.

use std::path::PathBuf;

use haloscope::array::extremes;
use haloscope::io::{self, Axes, Image, ReadOptions, Scaling};
use haloscope::noise::Noise;
use haloscope::phantom::{SheppLogan, Table, landscape};
use haloscope::{Array, Result};
use ndarray::Axis;

use super::beam::Measured;
use super::operators::Entry;
use super::placement::Placement;
use super::stack::{Frames, Stacking};
use crate::document::{Place, Section};
use crate::words;

/// `[measurements]`.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// One file for each operator; all views of a scan are in one.
    Files(Files),
    /// The one scan of a file.
    Scan(ScanFile),
    /// What the operators make of a known image.
    Simulation(Simulation),
}

/// Measurements in files of any format.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    place: Place,
    /// What the job lists: the files of each path, folder or pattern, and later those of each measurement.
    groups: Vec<Vec<PathBuf>>,
    options: ReadOptions,
    stacking: Stacking,
    frames: Option<Box<Frames>>,
    /// Whether they are of scans.
    is_scan: bool,
}

/// A scan in HDF5, with the frames that are needed to make line integrals of it.
#[derive(Clone, Debug)]
pub(crate) struct ScanFile {
    place: Place,
    path: PathBuf,
    /// The row of the detector that is the slice, if the image is one.
    row: Option<usize>,
}

/// An image that is known, and the noise of its measurements.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    place: Place,
    image: KnownImage,
    /// One for all operators, or one for each.
    pub noise: Vec<Noise>,
    pub seed: u64,
}

/// An image that a job knows: a phantom, or one from a file.
#[derive(Clone, Debug)]
enum KnownImage {
    Landscape(Vec<usize>),
    SheppLogan { sides: Vec<usize>, points: usize },
    File(ImageFile),
}

/// An image from a file, with what is done to its values.
#[derive(Clone, Debug)]
pub(crate) struct ImageFile {
    place: Place,
    pub path: PathBuf,
    options: ReadOptions,
    /// Blocks of so many pixels along each side become their mean.
    shrink: usize,
}

impl Source {
    pub(crate) fn read(section: &Section) -> Result<Self> {
        let sources = ["files", "scan", "phantom", "image"];
        let given: Vec<&str> = sources.into_iter().filter(|key| section.has(key)).collect();
        match given[..] {
            ["files"] => Files::read(section).map(Self::Files),
            ["scan"] => ScanFile::read(section).map(Self::Scan),
            ["phantom" | "image"] => Simulation::read(section).map(Self::Simulation),
            _ => Err(section.place().refuse(format!(
                "{} is given; one of `files` (measured data), `scan` (an HDF5 file in Data Exchange \
                 layout), `phantom` or `image` (simulated) is expected",
                if given.is_empty() { "none".into() } else { given.join(" and ") }
            ))),
        }
    }

    /// Deals files to the operators of the job.
    pub(crate) fn suit(&mut self, operators: &[Entry]) -> Result<()> {
        match self {
            Self::Files(files) => files.suit(operators),
            _ => Ok(()),
        }
    }

    /// A few words on it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Files(files) => files.describe(),
            Self::Scan(scan) => scan.path.display().to_string(),
            Self::Simulation(simulation) => match &simulation.image {
                KnownImage::Landscape(_) => "simulated, of a landscape".into(),
                KnownImage::SheppLogan { .. } => "simulated, of a Shepp-Logan phantom".into(),
                KnownImage::File(file) => format!("simulated, of {}", file.path.display()),
            },
        }
    }

    /// The files that it reads.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Files(files) => {
                let frames = files.frames.iter().flat_map(|frames| frames.files());
                files.groups.iter().flatten().chain(frames).cloned().collect()
            }
            Self::Scan(scan) => vec![scan.path.clone()],
            Self::Simulation(Simulation { image: KnownImage::File(file), .. }) => {
                vec![file.path.clone()]
            }
            Self::Simulation(_) => Vec::new(),
        }
    }
}

impl Files {
    fn read(section: &Section) -> Result<Self> {
        let groups = section.inputs("files")?.unwrap_or_default();
        let place = section.place_of("files");
        if groups.is_empty() {
            return Err(place.refuse("an empty list; one or more are expected"));
        }
        let mut options = reading(section)?;
        let frames = Frames::read(section)?.map(Box::new);
        if let Some(frames) = frames.as_ref().filter(|frames| frames.has_frames()) {
            if options.white.is_some() && frames.has_flat() {
                return Err(section.place_of("white").refuse(
                    "`white` and `flat` are given; flat frames say what is 1, so leave `white` out",
                ));
            }
            // Counts and frames alike, whatever their types: as they are stored, unless the job says otherwise of both.
            options.white = options.white.or(Some(1.0));
        }
        let stacking = Stacking::read(section)?;
        Ok(Self { place, groups, options, stacking, frames, is_scan: false })
    }

    /// Deals files to operators: all of them are the views of an only scan; of several scans each has what the job
    /// lists in one place; each other operator has one file.
    fn suit(&mut self, operators: &[Entry]) -> Result<()> {
        self.is_scan = operators.iter().all(Entry::is_scan);
        self.stacking.is_fan = operators.iter().any(Entry::is_fan);
        match operators {
            _ if !self.is_scan && self.stacking.is_given() => {
                return Err(self
                    .place
                    .refuse("`order` and `row` are for scans alone; leave them out"));
            }
            [_] if self.is_scan => self.groups = vec![self.groups.concat()],
            _ if self.is_scan => (),
            _ => self.groups = self.groups.concat().into_iter().map(|path| vec![path]).collect(),
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let count: usize = self.groups.iter().map(Vec::len).sum();
        let frames = self.frames.iter().map(|frames| frames.describe(self.is_scan));
        let files = format!("{count} file{}", if count == 1 { "" } else { "s" });
        std::iter::once(files).chain(frames).collect::<Vec<_>>().join(", ")
    }

    /// What is wrong with them.
    pub(crate) fn refuse(&self, reason: &str) -> haloscope::Error {
        self.place.refuse(reason)
    }

    /// What may be wrong with them, in words.
    pub(crate) fn doubt(&self, doubt: &str) -> String {
        format!("{}: {doubt}", self.place)
    }

    /// One measurement, with the axes (batch, channel, …).
    pub(crate) fn load(&self, index: usize) -> Result<Array> {
        Ok(self.load_with_origin(index)?.0)
    }

    /// The first measurement, where its file says that it is, and what the file holds, in words.
    pub(crate) fn load_first(&self) -> Result<(Array, Placement, String)> {
        let (array, origin) = self.load_with_origin(0)?;
        let (low, high) = extremes(&array);
        let becomes = if self.frames.is_some() { "; as measurements" } else { ":" };
        let hint = if origin.is_count && high > 1.5 && self.frames.is_none() && !self.is_scan {
            "; `white` is the value that becomes 1"
        } else {
            ""
        };
        Ok((array, origin.placement, format!("{}{becomes} {low} to {high}{hint}", origin.what)))
    }

    /// A measurement, and what the first of its files says.
    fn load_with_origin(&self, index: usize) -> Result<(Array, Origin)> {
        let Some(paths) = self.groups.get(index) else {
            return Err(self.place.refuse(format!(
                "{} for more operators; one for each operator, or for each scan, is expected",
                self.count()
            )));
        };
        let (mut origin, mut plain) = (None, None);
        let is_plain = paths.len() == 1 && !self.stacking.is_given();
        let mut stack = self.stacking.stack(paths.len());
        for path in paths {
            let read = io::read(path, &self.options).map_err(|error| self.place.refuse(error))?;
            check_finite(&self.place, path, &read.array)?;
            origin.get_or_insert_with(|| Origin::of(&read));
            if is_plain {
                plain = Some(read.array);
                continue;
            }
            let refuse = |reason| self.place.refuse(format!("{}: {reason}", path.display()));
            if let (Some(_), [_], &[_, _, views, bins]) =
                (self.stacking.row, &paths[..], read.array.shape())
            {
                return Err(refuse(format!(
                    "`row` picks one of (view, row, column), and the file has the sides [{views}, {bins}]"
                )));
            }
            stack.push(&read.array).map_err(refuse)?;
        }
        let (array, frame) = if let Some(array) = plain {
            // Behind the batch, and of scans behind the views.
            let frame = array.shape()[if self.is_scan { 3 } else { 1 }..].to_vec();
            (array, frame)
        } else {
            let frame = stack.frame();
            (stack.finish().map_err(|reason| self.place.refuse(reason))?, frame)
        };
        let Some(origin) = origin else { return Err(self.place.refuse("there are no files")) };
        let stacking = self.is_scan.then_some(self.stacking);
        match &self.frames {
            None => Ok((array, origin)),
            Some(frames) => Ok((frames.apply(array, &frame, stacking, &self.options)?, origin)),
        }
    }

    /// Refuses files that no operator has.
    pub(crate) fn check_count(&self, needed: usize) -> Result<()> {
        if needed == self.groups.len() {
            return Ok(());
        }
        Err(self.place.refuse(format!(
            "{} for {needed} operator{}; one for each operator, or for each scan, is expected",
            self.count(),
            if needed == 1 { "" } else { "s" }
        )))
    }

    fn count(&self) -> String {
        let count = self.groups.len();
        format!("{count} file{}", if count == 1 { "" } else { "s" })
    }
}

/// What a file of measurements says, apart from its values.
struct Origin {
    /// The file in words.
    what: String,
    placement: Placement,
    /// Whether values are integers as they are stored, so that they are counts.
    is_count: bool,
}

impl Origin {
    fn of(image: &Image) -> Self {
        Self {
            what: image.describe(),
            placement: Placement::of(image),
            is_count: image.scaling == Scaling::NONE && !image.sample.is_float(),
        }
    }
}

impl ScanFile {
    fn read(section: &Section) -> Result<Self> {
        Ok(Self {
            place: section.place_of("scan"),
            path: section.path("scan")?.unwrap_or_default(),
            row: section.get("row")?,
        })
    }

    /// The line integrals of a row, (1, 1, view, bin), or of all rows, (1, 1, view, row, column), and the angles.
    #[cfg(feature = "hdf5")]
    pub(crate) fn load(&self) -> Result<(Array, Vec<f64>)> {
        let refuse = |error| self.place.refuse(error);
        let scan = io::exchange::Scan::read(&self.path, &io::Limits::default()).map_err(refuse)?;
        // (row, 1, view, column)
        let integrals = scan.line_integrals().map_err(refuse)?;
        check_finite(&self.place, &self.path, &integrals)?;
        let rows = integrals.shape()[0];
        let array = match self.row {
            Some(row) if row < rows => {
                integrals.index_axis(Axis(0), row).insert_axis(Axis(0)).to_owned()
            }
            Some(row) => {
                let reason = format!("row {row} of a detector of {rows} rows, counted from 0");
                return Err(self.place.refuse(reason));
            }
            None => integrals.permuted_axes(vec![1, 2, 0, 3]).insert_axis(Axis(0)),
        };
        Ok((array.as_standard_layout().into_owned(), scan.angles))
    }

    #[cfg(not(feature = "hdf5"))]
    pub(crate) fn load(&self) -> Result<(Array, Vec<f64>)> {
        let _ = self.row;
        Err(self.place.refuse(format!(
            "{}: scans in HDF5 need a build with the feature `hdf5`",
            self.path.display()
        )))
    }
}

impl Simulation {
    fn read(section: &Section) -> Result<Self> {
        type Read = fn(&Section) -> Result<KnownImage>;
        let phantoms: [(&str, Read); 2] = [
            ("landscape", |section| Ok(KnownImage::Landscape(sides(section, 2)?))),
            ("shepp-logan", |section| {
                let points = section.count("points")?.unwrap_or(3);
                Ok(KnownImage::SheppLogan { sides: sides(section, 3)?, points })
            }),
        ];
        let image = match section.choose("phantom", &phantoms)? {
            Some(read) => read(section)?,
            None => KnownImage::File(ImageFile::read(section, "image")?),
        };
        let mut noise = if section.is_table("noise") {
            section.section("noise", read_noise)?.into_iter().collect()
        } else {
            section.sections("noise", read_noise).map_err(|error| match section.get::<f64>("noise") {
                Ok(Some(sigma)) => section.place_of("noise").refuse(format!(
                    "{sigma} is given; the kind of noise is expected, as in {{ gaussian = {sigma} }}"
                )),
                _ => error,
            })?
        };
        if noise.is_empty() {
            noise.push(Noise::gaussian(0.0)?);
        }
        let seed = section.get::<usize>("seed")?.unwrap_or(0) as u64;
        Ok(Self { place: section.place(), image, noise, seed })
    }

    /// Refuses a list of noises that is not one for each operator.
    pub(crate) fn check_noise(&self, operators: usize) -> Result<()> {
        match self.noise.len() {
            1 => Ok(()),
            count if count == operators => Ok(()),
            count => Err(self.place.refuse(format!(
                "`noise` has {} for {}; one, or one for each, is expected",
                words::count(count, "kind"),
                words::count(operators, "operator")
            ))),
        }
    }

    /// The shape of the image, (batch, channel, spatial…), if it is known before it is made.
    pub(crate) fn announced_shape(&self) -> Option<Vec<usize>> {
        match &self.image {
            KnownImage::Landscape(sides) => Some([&[1, 3], &sides[..]].concat()),
            KnownImage::SheppLogan { sides, .. } => Some([&[1, 1], &sides[..]].concat()),
            KnownImage::File(_) => None,
        }
    }

    /// The image that is to be found, and where its file says that it is.
    pub(crate) fn truth(&self) -> Result<(Array, Placement)> {
        let nowhere = |image| (image, Placement::default());
        match &self.image {
            KnownImage::File(file) => file.load_with_placement(),
            KnownImage::Landscape(sides) => landscape(sides[0], sides[1]).map(nowhere),
            KnownImage::SheppLogan { sides, points } => {
                SheppLogan::new(Table::Modified).with_points(*points).draw(sides).map(nowhere)
            }
        }
        .map_err(|error| match error {
            error @ haloscope::Error::Content { .. } => error,
            error => self.place.refuse(error),
        })
    }
}

impl ImageFile {
    /// The file under a key, which must be there, with the keys beside it that say how it is read.
    pub(crate) fn read(section: &Section, key: &'static str) -> Result<Self> {
        section.require::<&str>(key)?;
        let path = section.path(key)?.unwrap_or_default();
        let options = reading(section)?;
        let shrink = section.count("shrink")?.unwrap_or(1);
        Ok(Self { place: section.place_of(key), path, options, shrink })
    }

    pub(crate) fn load(&self) -> Result<Array> {
        Ok(self.load_with_placement()?.0)
    }

    /// The image, and where its file says that it is.
    pub(crate) fn load_with_placement(&self) -> Result<(Array, Placement)> {
        let read = io::read(&self.path, &self.options).map_err(|error| self.place.refuse(error))?;
        check_finite(&self.place, &self.path, &read.array)?;
        let placement = Placement::of(&read);
        match shrunk(read.array, self.shrink) {
            Some(image) => {
                let sides = image.ndim() - 2;
                Ok((image, placement.shrunk(self.shrink, sides)))
            }
            None => Err(self
                .place
                .refuse(format!("it has no blocks of {} pixels along each side", self.shrink))),
        }
    }
}

impl Measured {
    /// What an array of measurements knows of its scan.
    pub(crate) fn of(array: &Array, angles: Option<Vec<f64>>) -> Self {
        Self { shape: array.shape().get(2..).unwrap_or_default().to_vec(), angles }
    }
}

/// How files are read.
fn reading(section: &Section) -> Result<ReadOptions> {
    let axes = [
        ("automatic", Axes::Automatic),
        ("spatial", Axes::Spatial),
        ("channel-first", Axes::ChannelFirst),
        ("channel-last", Axes::ChannelLast),
    ];
    Ok(ReadOptions {
        axes: section.choose("axes", &axes)?.unwrap_or_default(),
        entry: section.get::<&str>("entry")?.map(str::to_owned),
        white: section.positive("white")?,
        ..ReadOptions::default()
    })
}

/// The sides of a phantom: one number for a square, or one for each of up to `most`.
fn sides(section: &Section, most: usize) -> Result<Vec<usize>> {
    let size = section.require::<Vec<usize>>("size")?;
    match &size[..] {
        [side] => Ok(vec![*side; 2]),
        sides if sides.len() <= most && !sides.is_empty() => Ok(size),
        _ => Err(section.place_of("size").refuse(format!(
            "{size:?} is given; one number, or one for each of 2 to {most} sides, is expected"
        ))),
    }
}

fn read_noise(section: &Section) -> Result<Noise> {
    let gaussian = section.not_negative("gaussian")?;
    let poisson = section.positive("poisson")?;
    let uniform = section.not_negative("uniform")?;
    match (gaussian, poisson, uniform) {
        (sigma, None, None) => Noise::gaussian(sigma.unwrap_or(0.0)),
        (None, Some(gain), None) => Noise::poisson(gain),
        (Some(sigma), Some(gain), None) => Noise::poisson_gaussian(gain, sigma),
        (None, None, Some(amplitude)) => Noise::uniform(amplitude),
        _ => Err(section.place().refuse("uniform noise goes with no other kind")),
    }
}

pub(crate) fn check_finite(place: &Place, path: &std::path::Path, array: &Array) -> Result<()> {
    match array.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(index) => Err(place.refuse(format!(
            "{}: element {index} of {:?} is not a finite number",
            path.display(),
            array.shape()
        ))),
    }
}

/// The means of blocks; what is left over at the ends is left out.
fn shrunk(mut image: Array, factor: usize) -> Option<Array> {
    if factor == 1 {
        return Some(image);
    }
    for axis in 2..image.ndim() {
        let blocks = image.shape()[axis] / factor;
        let mut shape = image.shape().to_vec();
        shape[axis] = blocks;
        let mut mean = Array::zeros(shape);
        for index in 0..blocks * factor {
            let mut to = mean.index_axis_mut(Axis(axis), index / factor);
            to.scaled_add(1.0 / factor as f32, &image.index_axis(Axis(axis), index));
        }
        image = mean;
    }
    (!image.is_empty()).then_some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_their_means() {
        let image = Array::from_shape_fn(vec![1, 1, 2, 5], |at| (at[2] * 5 + at[3]) as f32);
        let half = shrunk(image.clone(), 2).expect("two blocks");
        assert_eq!(half.shape(), [1, 1, 1, 2]);
        assert_eq!(half.iter().copied().collect::<Vec<_>>(), [3.0, 5.0]);
        assert!(shrunk(image, 3).is_none());
    }
}
