//! The operators of a job: `[[operators]]`, each of which makes one operator or several.
//!
//! An [`Entry`] is what the file says; a [`Recipe`] is one operator of it for images of a known shape, made only
//! where it is needed. An entry of several operators (blurs at several angles, groups of views) is so many recipes.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::array::extremes;
use haloscope::io::{self, ReadOptions};
use haloscope::physics::{
    Blur, Decolorize, Downsampling, DownsamplingFilter, Identity, Inpainting, Padding, Physics,
    kernels,
};
use haloscope::{Array, Error, Result};
use ndarray::Axis;

use super::beam::{Beam, Measured, Projector, Rays, Scan};
use super::kernel::Kernel;
use crate::document::{Place, Section};

/// One of `[[operators]]`.
#[derive(Clone, Debug)]
pub struct Entry {
    place: Place,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Blur(Vec<Kernel>, Padding),
    Downsampling(Thinning),
    Inpainting(Mask),
    /// Weights of the channels, if they are not those of colours.
    Decolorize(Option<Vec<f32>>),
    Identity,
    Beam(Beam),
}

#[derive(Clone, Debug)]
struct Thinning {
    factor: usize,
    filter: DownsamplingFilter,
    /// The width of a Gaussian, if it is not that of the filter.
    sigma: Option<f64>,
    padding: Padding,
    /// The first sample along each side, for each operator; all that there are if there is none.
    phases: Option<Vec<Vec<usize>>>,
}

#[derive(Clone, Debug)]
enum Mask {
    File(PathBuf),
    /// This part of the pixels is missing, by this seed.
    Random(f64, u64),
}

/// One operator, to be made where it is needed.
#[derive(Clone, Debug)]
pub struct Recipe {
    place: Place,
    image: Vec<usize>,
    what: What,
    /// The file with its measurements, counted over the whole job.
    pub file: usize,
}

#[derive(Clone, Debug)]
enum What {
    Blur(Kernel, Padding),
    Downsampling(Thinning, Vec<usize>),
    Inpainting(Mask),
    Decolorize(Option<Vec<f32>>),
    Identity,
    Group(Arc<Scan>, usize),
}

const PADDINGS: [(&str, Padding); 5] = [
    ("circular", Padding::Circular),
    ("reflect", Padding::Reflect),
    ("replicate", Padding::Replicate),
    ("zero", Padding::Constant),
    ("valid", Padding::Valid),
];

impl Entry {
    pub fn read(section: &Section) -> Result<Self> {
        type Read = fn(&Section) -> Result<Kind>;
        let kinds: [(&str, Read); 8] = [
            ("blur", |section| Ok(Kind::Blur(Kernel::read(section)?, padding(section)?))),
            ("downsampling", |section| Thinning::read(section).map(Kind::Downsampling)),
            ("inpainting", |section| Mask::read(section).map(Kind::Inpainting)),
            ("decolorize", |section| {
                let weights = section.get::<Vec<f64>>("weights")?;
                let single = |weights: Vec<f64>| weights.into_iter().map(|w| w as f32).collect();
                Ok(Kind::Decolorize(weights.map(single)))
            }),
            ("identity", |_| Ok(Kind::Identity)),
            ("parallel-beam", |section| beam(section, Rays::Parallel)),
            ("fan-beam", |section| {
                let (source, detector) = distances(section)?;
                beam(section, Rays::Fan(source, detector))
            }),
            ("cone-beam", |section| {
                let (source, detector) = distances(section)?;
                beam(section, Rays::Cone(source, detector))
            }),
        ];
        let kind = section.require_choice("kind", &kinds)?(section)?;
        Ok(Self { place: section.place(), kind })
    }

    /// The shape of an image, (channel, spatial…), that a measurement of this shape suggests.
    pub fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        let (channels, sides) = measured.split_first()?;
        match &self.kind {
            Kind::Blur(_, Padding::Valid) => None,
            Kind::Blur(..) | Kind::Identity | Kind::Inpainting(_) => Some(measured.to_vec()),
            Kind::Downsampling(thinning) if thinning.padding != Padding::Valid => {
                let sides = sides.iter().map(|side| side * thinning.factor);
                Some(std::iter::once(*channels).chain(sides).collect())
            }
            Kind::Downsampling(_) => None,
            Kind::Decolorize(weights) => {
                let channels = weights.as_ref().map_or(3, Vec::len);
                Some(std::iter::once(channels).chain(sides.iter().copied()).collect())
            }
            Kind::Beam(beam) => {
                let measured = Measured { shape: sides.to_vec(), angles: None };
                let sides = beam.sides(&measured)?;
                Some(std::iter::once(*channels).chain(sides).collect())
            }
        }
    }

    /// The operators for images of a shape (channel, spatial…). `measured` is of the entry's own measurements;
    /// `file` is where its files begin.
    pub fn recipes(
        &self,
        image: &[usize],
        measured: Option<&Measured>,
        file: usize,
    ) -> Result<Vec<Recipe>> {
        let whats: Vec<What> = match &self.kind {
            Kind::Blur(kernels, padding) => {
                kernels.iter().map(|kernel| What::Blur(kernel.clone(), *padding)).collect()
            }
            Kind::Downsampling(thinning) => {
                let phases = thinning.phases_of(image.len() - 1);
                phases.into_iter().map(|p| What::Downsampling(thinning.clone(), p)).collect()
            }
            Kind::Inpainting(mask) => vec![What::Inpainting(mask.clone())],
            Kind::Decolorize(weights) => vec![What::Decolorize(weights.clone())],
            Kind::Identity => vec![What::Identity],
            Kind::Beam(beam) => {
                let scan = beam.scan(image, measured)?;
                (0..scan.groups()).map(|group| What::Group(scan.clone(), group)).collect()
            }
        };
        let recipe = |(index, what)| Recipe {
            place: self.place.clone(),
            image: image.to_vec(),
            what,
            // The groups of a scan share its file; all others have one each.
            file: if self.is_scan() { file } else { file + index },
        };
        Ok(whats.into_iter().enumerate().map(recipe).collect())
    }

    /// Whether each pixel that it measures is at the place of one of the image.
    pub fn keeps_places(&self) -> bool {
        match &self.kind {
            Kind::Blur(_, padding) => *padding != Padding::Valid,
            Kind::Inpainting(_) | Kind::Decolorize(_) | Kind::Identity => true,
            Kind::Downsampling(_) | Kind::Beam(_) => false,
        }
    }

    /// Whether it leaves pixels out, so that differences of its neighbours tell nothing of noise.
    pub fn has_gaps(&self) -> bool {
        matches!(self.kind, Kind::Inpainting(_))
    }

    /// Whether its operators are groups of views, which share a file.
    pub fn is_scan(&self) -> bool {
        matches!(self.kind, Kind::Beam(_))
    }

    /// Whether it is a scan of slices and never of volumes.
    pub fn is_fan(&self) -> bool {
        matches!(&self.kind, Kind::Beam(beam) if beam.is_fan())
    }

    /// Files that it needs, apart from measurements.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.kind {
            Kind::Blur(kernels, _) => kernels.iter().filter_map(Kernel::file).cloned().collect(),
            Kind::Inpainting(Mask::File(path)) => vec![path.clone()],
            Kind::Beam(beam) => beam.file().cloned().into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl Recipe {
    /// Where it is in the job file.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match &self.what {
            What::Blur(..) => "blur",
            What::Downsampling(..) => "downsampling",
            What::Inpainting(_) => "inpainting",
            What::Decolorize(_) => "decolorize",
            What::Identity => "identity",
            What::Group(..) => "tomography",
        }
    }

    /// The scan that it is a group of.
    pub fn scan(&self) -> Option<&Arc<Scan>> {
        match &self.what {
            What::Group(scan, _) => Some(scan),
            _ => None,
        }
    }

    /// How many pixels of the image each measured one stands for, along a side.
    pub fn thinning(&self) -> usize {
        match &self.what {
            What::Downsampling(thinning, _) => thinning.factor,
            _ => 1,
        }
    }

    /// About how many values it measures of an image, without making it.
    pub fn measured_values(&self) -> usize {
        let pixels = self.image.iter().fold(1, |pixels: usize, side| pixels.saturating_mul(*side));
        match &self.what {
            What::Group(scan, group) => scan.values(*group),
            What::Downsampling(thinning, _) => {
                pixels / thinning.factor.max(1).saturating_pow(self.image.len() as u32 - 1)
            }
            What::Decolorize(_) => pixels / self.image[0].max(1),
            What::Blur(..) | What::Inpainting(_) | What::Identity => pixels,
        }
    }

    /// The same operator for an image of at most so many pixels along each side, to find out what it costs; `None` for one
    /// that has a size of its own.
    pub fn smaller(&self, most: usize) -> Option<Self> {
        let what = match &self.what {
            What::Group(..) => return None,
            // As quick as it.
            What::Inpainting(_) => What::Identity,
            other => other.clone(),
        };
        let step = self.thinning().max(1);
        let side = |(axis, side): (usize, &usize)| match axis {
            0 => *side,
            _ if *side <= most => *side,
            _ => most.next_multiple_of(step),
        };
        let image = self.image.iter().enumerate().map(side).collect();
        Some(Self { image, what, ..self.clone() })
    }

    /// The shape of its image, (channel, spatial…).
    pub fn image(&self) -> &[usize] {
        &self.image
    }

    /// The operator.
    pub fn make(&self) -> Result<Arc<dyn Physics>> {
        let made = match &self.what {
            What::Group(scan, group) => scan.group(*group).map(Projector::into_physics),
            _ => self.draft(),
        };
        made.map_err(|error| self.locate(error))
    }

    /// What is suspicious about its measurements, (batch, channel, spatial…): a mask by which nothing is there.
    pub fn doubt(&self, measured: &Array) -> Option<String> {
        let What::Inpainting(mask @ Mask::File(path)) = &self.what else { return None };
        // What is wrong with the mask itself is said elsewhere.
        let mask = mask.make(&self.image).ok()?;
        let mask = mask.broadcast(measured.raw_dim())?;
        let (low, high) = extremes(measured);
        let (mut least, mut most) = (f32::INFINITY, f32::NEG_INFINITY);
        for (value, _) in measured.iter().zip(&mask).filter(|(_, present)| **present != 0.0) {
            (least, most) = (least.min(*value), most.max(*value));
        }
        (most - least <= CONSTANT * (high - low) && high > low).then(|| {
            format!(
                "all pixels that {} says are there are {least}, and the others are not; 0 marks missing pixels, so the \
                 mask may be inverted",
                path.display()
            )
        })
    }

    /// The operator up to a factor, without long calculations.
    pub fn draft(&self) -> Result<Arc<dyn Physics>> {
        self.build().map_err(|error| self.locate(error))
    }

    /// Its part of what its file has.
    pub fn own(&self, measured: &Array) -> Array {
        match &self.what {
            What::Group(scan, group) => scan.select(measured, *group),
            _ => measured.clone(),
        }
    }

    fn build(&self) -> Result<Arc<dyn Physics>> {
        let image = &self.image;
        Ok(match &self.what {
            What::Blur(kernel, padding) => {
                Arc::new(Blur::new(image, &kernel.make(image.len() - 1)?, *padding)?)
            }
            What::Downsampling(thinning, phase) => Arc::new(thinning.make(image, phase)?),
            What::Inpainting(mask) => {
                let mask = mask.make(image).map_err(|error| self.place.refuse(error))?;
                Arc::new(Inpainting::new(image, &mask)?)
            }
            What::Decolorize(None) => Arc::new(Decolorize::new(image)?),
            What::Decolorize(Some(weights)) => Arc::new(Decolorize::with_weights(image, weights)?),
            What::Identity => Arc::new(Identity::new(image)),
            What::Group(scan, group) => scan.draft(*group)?.into_physics(),
        })
    }

    /// An error with its place, unless it has one.
    fn locate(&self, error: Error) -> Error {
        match error {
            error @ Error::Content { .. } => error,
            error => self.place.refuse(error),
        }
    }
}

/// Pixels that differ by less than this part of the range of all are of one value, after a compression with loss as well.
const CONSTANT: f32 = 0.02;

/// Every phase along each side is an operator; more than this cubed is no problem to solve.
const MOST_PHASES: usize = 64;

impl Thinning {
    fn read(section: &Section) -> Result<Self> {
        let filters = [
            ("gaussian", DownsamplingFilter::Gaussian),
            ("box", DownsamplingFilter::Box),
            ("bilinear", DownsamplingFilter::Bilinear),
            ("bicubic", DownsamplingFilter::Bicubic),
            ("sinc", DownsamplingFilter::Sinc),
            ("none", DownsamplingFilter::None),
        ];
        let factor = section.require::<usize>("factor")?;
        let phases = match section.get::<&str>("phase") {
            Ok(None) => Some(vec![Vec::new()]),
            Ok(Some("all")) if factor > MOST_PHASES => {
                return Err(section.place_of("phase").refuse(format!(
                    "\"all\" with a factor of {factor}; it is possible up to a factor of {MOST_PHASES}"
                )));
            }
            Ok(Some("all")) => None,
            _ => Some(vec![section.get("phase")?.unwrap_or_default()]),
        };
        let filter = section.choose("filter", &filters)?.unwrap_or(DownsamplingFilter::Gaussian);
        let sigma = section.positive("sigma")?;
        if sigma.is_some() && filter != DownsamplingFilter::Gaussian {
            return Err(section.place_of("sigma").refuse(
                "it is the width of a Gaussian, and `filter` is another; leave it out, or set filter = \"gaussian\"",
            ));
        }
        Ok(Self { factor, filter, sigma, padding: padding(section)?, phases })
    }

    /// The operator for images of a shape (channel, spatial…), with its first sample at a phase.
    fn make(&self, image: &[usize], phase: &[usize]) -> Result<Downsampling> {
        let gaussian = match self.sigma {
            Some(sigma) => Some(kernels::gaussian(&vec![sigma; image.len() - 1], 0.0)?),
            None => None,
        };
        let filter = gaussian.map_or_else(|| self.filter.clone(), DownsamplingFilter::Kernel);
        Downsampling::new(image, self.factor, &filter, self.padding)?.with_phase(phase)
    }

    /// The first sample along each of so many sides, for each operator.
    fn phases_of(&self, sides: usize) -> Vec<Vec<usize>> {
        let factor = self.factor.max(1);
        match &self.phases {
            Some(phases) => phases
                .iter()
                .map(|phase| if phase.is_empty() { vec![0; sides] } else { phase.clone() })
                .collect(),
            None => (0..factor.saturating_pow(sides as u32))
                .map(|index| {
                    let digit =
                        |side: usize| index / factor.pow((sides - 1 - side) as u32) % factor;
                    (0..sides).map(digit).collect()
                })
                .collect(),
        }
    }
}

impl Mask {
    fn read(section: &Section) -> Result<Self> {
        let file = section.path("mask")?;
        let missing = section.not_negative("missing")?;
        match (file, missing) {
            (Some(path), None) => Ok(Self::File(path)),
            (None, Some(part)) if part < 1.0 => {
                Ok(Self::Random(part, section.get::<usize>("seed")?.unwrap_or(0) as u64))
            }
            (None, Some(part)) => Err(section
                .place_of("missing")
                .refuse(format!("{part} is given; a part of the pixels below 1 is expected"))),
            (Some(_), Some(_)) => {
                Err(section.place().refuse("`mask` and `missing` are given; one of them is expected"))
            }
            (None, None) => Err(section.place().refuse(
                "`mask` is missing: a file in which 0 is a missing pixel; or `missing`, the part of the \
                 pixels that a mask made for the purpose leaves out",
            )),
        }
    }

    /// The mask of images of a shape, without the batch.
    fn make(&self, image: &[usize]) -> Result<Array> {
        match self {
            Self::File(path) => {
                // A mask says what is there, and 255 does so as well as 1; what is no number is left to be refused.
                let present = |v: f32| if v.is_finite() { f32::from(v != 0.0) } else { v };
                let mask = io::read(path, &ReadOptions::default())?.array.mapv_into(present);
                Ok(if mask.shape()[0] == 1 { mask.index_axis_move(Axis(0), 0) } else { mask })
            }
            Self::Random(part, seed) => Inpainting::random_mask(image, *part, *seed),
        }
    }
}

fn padding(section: &Section) -> Result<Padding> {
    Ok(section.choose("padding", &PADDINGS)?.unwrap_or(Padding::Circular))
}

fn beam(section: &Section, rays: Rays) -> Result<Kind> {
    Beam::read(section, rays).map(Kind::Beam)
}

/// From source and detector to the rotation axis.
fn distances(section: &Section) -> Result<(f64, f64)> {
    let (source, detector): (f64, f64) =
        (section.require("source-distance")?, section.require("detector-distance")?);
    section.positive("source-distance")?;
    if source + detector <= 0.0 {
        return Err(section.place_of("detector-distance").refuse(format!(
            "{detector} is given, which is behind the source at {source}; more than {} is expected",
            -source
        )));
    }
    Ok((source, detector))
}
