//! Where the measurements of a job come from: files, a scan in Data Exchange layout, or a simulation; and single images.

use std::path::PathBuf;

use haloscope::array::extremes;
use haloscope::distribute::agree;
use haloscope::image::Space;
use haloscope::io::{self, Axes, Limits, ReadOptions, Reader};
use haloscope::noise::Noise;
use haloscope::phantom::{SheppLogan, Table, landscape, sky};
use haloscope::{Array, Result};
use haloscope_comm::Context;
use ndarray::Axis;

use super::data_files::{Files, check_finite, look_through};
use super::operators::Entry;
use super::placement::Placement;
use super::scan_file::ScanFile;
use crate::document::{Place, Section};
use crate::shards::spatial_regions;
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
    Sky(Vec<usize>),
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
                 layout), `phantom` or `image` (simulated) is expected{}",
                if given.is_empty() { "none".into() } else { given.join(" and ") },
                if given.is_empty() { section.suggest(&sources) } else { String::new() }
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
            Self::Scan(scan) => scan.path().display().to_string(),
            Self::Simulation(simulation) => match &simulation.image {
                KnownImage::Landscape(_) => "simulated, of a landscape".into(),
                KnownImage::SheppLogan { .. } => "simulated, of a Shepp-Logan phantom".into(),
                KnownImage::Sky(_) => "simulated, of a part of the sky".into(),
                KnownImage::File(file) => format!("simulated, of {}", file.path.display()),
            },
        }
    }

    /// The files that it reads.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Files(files) => files.paths().cloned().collect(),
            Self::Scan(scan) => vec![scan.path().clone()],
            Self::Simulation(Simulation { image: KnownImage::File(file), .. }) => {
                vec![file.path.clone()]
            }
            Self::Simulation(_) => Vec::new(),
        }
    }
}

impl Simulation {
    fn read(section: &Section) -> Result<Self> {
        type Read = fn(&Section) -> Result<KnownImage>;
        let phantoms: [(&str, Read); 3] = [
            ("landscape", |section| Ok(KnownImage::Landscape(sides(section, 2)?))),
            ("sky", |section| Ok(KnownImage::Sky(sides(section, 2)?))),
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
            KnownImage::SheppLogan { sides, .. } | KnownImage::Sky(sides) => {
                Some([&[1, 1], &sides[..]].concat())
            }
            KnownImage::File(_) => None,
        }
    }

    /// The file of the image, if it has one.
    pub(crate) fn file(&self) -> Option<&ImageFile> {
        match &self.image {
            KnownImage::File(file) => Some(file),
            KnownImage::Landscape(_) | KnownImage::SheppLogan { .. } | KnownImage::Sky(_) => None,
        }
    }

    /// The image that is to be found, and where its file says that it is.
    pub(crate) fn truth(&self) -> Result<(Array, Placement)> {
        let nowhere = |image| (image, Placement::default());
        match &self.image {
            KnownImage::File(file) => file.load_with_placement(),
            KnownImage::Landscape(sides) => landscape(sides[0], sides[1]).map(nowhere),
            KnownImage::Sky(sides) => sky(sides[0], sides[1]).map(nowhere),
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

    /// Whether ranks can read parts of it. Blocks of pixels are made of the whole.
    pub(crate) fn has_parts(&self) -> bool {
        self.shrink == 1
    }

    /// The shape of an image that has parts, and where its file says that it is, without its values.
    pub(crate) fn outline(&self) -> Result<(Vec<usize>, Placement)> {
        let reader = self.open()?;
        let nothing = reader.image(Array::zeros(vec![0; reader.shape().len()]));
        Ok((reader.shape().to_vec(), Placement::of(&nothing)))
    }

    /// This rank's part of an image that has parts; all ranks call it.
    pub(crate) fn load_part(&self, ctx: &Context, space: &Space) -> Result<Array> {
        let reader = agree(ctx, self.open())?;
        let part = reader.read_sharded(ctx, &spatial_regions(space))?;
        let part = part.unwrap_or_else(|| Array::zeros(space.own_shape()));
        agree(ctx, check_finite(&self.place, &self.path, &part))?;
        Ok(part)
    }

    /// The least and the greatest value of an image that has parts, band by band.
    pub(crate) fn extremes(&self) -> Result<(f32, f32)> {
        let mut ends = (f32::INFINITY, f32::NEG_INFINITY);
        look_through(&self.open()?, &self.place, &self.path, &mut |band| {
            let (low, high) = extremes(band);
            ends = (ends.0.min(low), ends.1.max(high));
            Ok(())
        })?;
        Ok(ends)
    }

    /// The bytes of what is read of an image that is made smaller: the original, and the first of its smaller versions.
    pub(crate) fn bytes_before_shrinking(&self) -> Result<u64> {
        if self.shrink == 1 {
            return Ok(0);
        }
        let shape = self.open()?.shape().to_vec();
        let original = shape.iter().fold(4, |bytes: u64, side| bytes.saturating_mul(*side as u64));
        Ok(original.saturating_add(original / self.shrink as u64))
    }

    fn open(&self) -> Result<Reader> {
        Reader::open(&self.path, &self.options).map_err(|error| self.place.refuse(error))
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

/// How files are read.
pub(super) fn reading(section: &Section) -> Result<ReadOptions> {
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
        // A list of samples may be as long as memory lets it be; the number of all values is limited still.
        limits: Limits { side: Limits::NONE.side, ..Limits::default() },
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
