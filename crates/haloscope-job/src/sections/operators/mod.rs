//! The operators of a job: `[[operators]]`, each of which makes one operator or several.
//!
//! An [`Entry`] is what the file says; a [`Recipe`] is one operator of it for images of a known shape, made only
//! where it is needed. An entry of several operators (blurs at several angles, groups of views) is so many recipes.
//! Each kind has a file with a [`Kind`] for what an entry says and a [`Single`] for one operator of it, and a line in
//! [`KINDS`].

mod affine;
mod blur;
mod decolorize;
mod downsampling;
mod identity;
mod inpainting;
mod mri;
mod scan;
mod varying_blur;
mod visibilities;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use haloscope::physics::fourier::Footprint;
use haloscope::physics::{Padding, Physics};
use haloscope::{Array, Error, Result};
use haloscope_comm::Context;
use ndarray::Axis;

use super::beam::{Beam, Measured, Scan};
use super::placement::Placement;
use crate::document::{Place, Section};
use crate::seen::Presence;

/// What makes the operators of an entry, by what its `kind` says.
pub(crate) const KINDS: [(&str, Read); 13] = [
    ("blur", blur::read),
    ("varying-blur", varying_blur::read),
    ("affine", affine::read),
    ("downsampling", downsampling::read),
    ("inpainting", inpainting::read),
    ("decolorize", decolorize::read),
    ("identity", |_| Ok(Arc::new(identity::Same))),
    ("parallel-beam", scan::parallel),
    ("fan-beam", scan::fan),
    ("cone-beam", scan::cone),
    ("mri", mri::cartesian),
    ("mri-trajectory", mri::trajectory),
    ("visibilities", visibilities::read),
];

type Read = fn(&Section) -> Result<Arc<dyn Kind>>;

/// What an entry says, for one kind of operators. Shapes of images are (channel, spatial…).
pub(crate) trait Kind: Send + Sync + fmt::Debug {
    /// The shape of an image that a measurement of this shape suggests.
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>>;

    /// Its operators for images of a shape; `measured` is of the entry's own measurements.
    fn operators(
        &self,
        image: &[usize],
        measured: Option<&Measured>,
    ) -> Result<Vec<Arc<dyn Single>>>;

    /// Whether each pixel that it measures is at the place of one of the image.
    fn keeps_places(&self) -> bool {
        false
    }

    /// Whether it leaves pixels out, so that differences of its neighbours tell nothing of noise.
    fn has_gaps(&self) -> bool {
        false
    }

    /// Whether its measurements are pixels in the units of the image, and not frequencies.
    fn measures_pixels(&self) -> bool {
        true
    }

    /// Whether images of two channels are complex: the real and the imaginary part.
    fn is_complex(&self) -> bool {
        false
    }

    /// Whether all of its operators have parts of one file of measurements.
    fn shares_file(&self) -> bool {
        self.beam().is_some()
    }

    /// Refuses an entry of UVFITS files of measurements that does not go with it.
    fn check_entry(&self, entry: Option<&str>) -> Result<()> {
        let _ = entry;
        Ok(())
    }

    /// Files that it needs, apart from measurements.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Where an image of a shape (channel, spatial…) is, if the entry knows.
    fn placement(&self, image: &[usize]) -> Option<Placement> {
        let _ = image;
        None
    }

    /// The beam, if its operators are groups of views, which share a file.
    fn beam(&self) -> Option<&Beam> {
        None
    }
}

/// One operator of an entry, to be made where it is needed.
pub(crate) trait Single: Send + Sync + fmt::Debug {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// The operator up to a factor, without long calculations.
    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>>;

    /// The operator.
    fn make(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        self.draft(image)
    }

    /// Finds what is the same for several operators and takes long, before any of them is made; all ranks call it.
    fn share(&self, ctx: &Context, image: &[usize]) -> Result<()> {
        let _ = (ctx, image);
        Ok(())
    }

    /// The operator for who has this part of the image, a range for each spatial axis.
    fn make_part(&self, image: &[usize], part: &[Range<usize>]) -> Result<Arc<dyn Physics>> {
        let _ = part;
        self.make(image)
    }

    /// One of the same shapes that reads the same pixels, without what it needs of files but for their shapes.
    fn outline(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        self.draft(image)
    }

    /// How many pixels of the image each measured one stands for, along a side.
    fn thinning(&self) -> usize {
        1
    }

    /// About how many values it measures of an image, without making it.
    fn measured_values(&self, image: &[usize]) -> usize {
        pixels(image)
    }

    /// The bytes that it takes itself, on so many threads: those of operators of frequencies. What others hold is little beside
    /// images.
    fn footprint(&self, image: &[usize], threads: usize) -> Footprint {
        let _ = (image, threads);
        Footprint::default()
    }

    /// Whether it is for images of one size alone.
    fn has_own_size(&self) -> bool {
        false
    }

    /// One that costs as much for each pixel, where it itself cannot be made for smaller images.
    fn stand_in(&self) -> Option<Arc<dyn Single>> {
        None
    }

    /// Its part of what its file has.
    fn own(&self, measured: &Array) -> Array {
        measured.clone()
    }

    /// Its part of what its file has, with the axes of its measurement.
    fn suited(&self, measured: Array) -> Array {
        measured
    }

    /// Its measurement, with the weights that the operator has.
    fn weigh(&self, image: &[usize], measured: Array) -> Result<Array> {
        let _ = image;
        Ok(measured)
    }

    /// Whether its measurement can be looked at in place of the image.
    fn looks_like_image(&self) -> bool {
        true
    }

    /// Whether the adjoint of all measurements can be looked at in place of the image, and what it is called.
    fn adjoint_shows(&self) -> Option<&'static str> {
        None
    }

    /// The views that it measures, of those of its file.
    fn views(&self) -> Option<Vec<usize>> {
        None
    }

    /// A part of its mask, a range for each spatial axis, if a file has it: (channel, spatial…), with one channel for all or each.
    fn mask_in_file(&self, image: &[usize], part: &[Range<usize>]) -> Option<Result<Array>> {
        let _ = (image, part);
        None
    }

    /// What is suspicious about all of its measurements.
    fn doubt(&self, presence: &Presence) -> Option<String> {
        let _ = presence;
        None
    }

    /// The scan that it is a group of.
    fn scan(&self) -> Option<&Arc<Scan>> {
        None
    }
}

/// One of `[[operators]]`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    place: Place,
    kind: Arc<dyn Kind>,
}

/// One operator, to be made where it is needed.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    place: Place,
    image: Vec<usize>,
    single: Arc<dyn Single>,
    /// The file with its measurements, counted over the whole job.
    pub file: usize,
}

impl Entry {
    pub(crate) fn read(section: &Section) -> Result<Self> {
        let kind = section.require_choice("kind", &KINDS)?(section)?;
        Ok(Self { place: section.place(), kind })
    }

    /// The shape of an image, (channel, spatial…), that a measurement of this shape suggests.
    pub(crate) fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        self.kind.image_shape(measured)
    }

    /// The operators for images of a shape (channel, spatial…). `measured` is of the entry's own measurements;
    /// `file` is where its files begin.
    pub(crate) fn recipes(
        &self,
        image: &[usize],
        measured: Option<&Measured>,
        file: usize,
    ) -> Result<Vec<Recipe>> {
        let recipe = |(index, single)| Recipe {
            place: self.place.clone(),
            image: image.to_vec(),
            single,
            file: if self.kind.shares_file() { file } else { file + index },
        };
        Ok(self.kind.operators(image, measured)?.into_iter().enumerate().map(recipe).collect())
    }

    /// Whether each pixel that it measures is at the place of one of the image.
    pub(crate) fn keeps_places(&self) -> bool {
        self.kind.keeps_places()
    }

    /// Whether it leaves pixels out, so that differences of its neighbours tell nothing of noise.
    pub(crate) fn has_gaps(&self) -> bool {
        self.kind.has_gaps()
    }

    /// Whether its measurements are pixels in the units of the image, and not frequencies.
    pub(crate) fn measures_pixels(&self) -> bool {
        self.kind.measures_pixels()
    }

    /// Refuses an entry of UVFITS files of measurements that does not go with it.
    pub(crate) fn check_entry(&self, entry: Option<&str>) -> Result<()> {
        self.kind.check_entry(entry)
    }

    /// Whether images of two channels are complex: the real and the imaginary part.
    pub(crate) fn is_complex(&self) -> bool {
        self.kind.is_complex()
    }

    /// Whether its operators are groups of views, which share a file.
    pub(crate) fn is_scan(&self) -> bool {
        self.kind.beam().is_some()
    }

    /// How its views are taken, if it is a scan.
    pub(crate) fn beam(&self) -> Option<&Beam> {
        self.kind.beam()
    }

    /// Whether it is a scan of slices and never of volumes.
    pub(crate) fn is_fan(&self) -> bool {
        self.kind.beam().is_some_and(Beam::is_fan)
    }

    /// Where an image of a shape (channel, spatial…) is, if the entry knows.
    pub(crate) fn placement(&self, image: &[usize]) -> Option<Placement> {
        self.kind.placement(image)
    }

    /// Files that it needs, apart from measurements.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.kind.files()
    }
}

impl Recipe {
    /// Where it is in the job file.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        self.single.name()
    }

    /// The scan that it is a group of.
    pub(crate) fn scan(&self) -> Option<&Arc<Scan>> {
        self.single.scan()
    }

    /// How many pixels of the image each measured one stands for, along a side.
    pub(crate) fn thinning(&self) -> usize {
        self.single.thinning()
    }

    /// About how many values it measures of an image, without making it.
    pub(crate) fn measured_values(&self) -> usize {
        self.single.measured_values(&self.image)
    }

    /// The bytes that it takes itself on so many threads.
    pub(crate) fn footprint(&self, threads: usize) -> Footprint {
        self.single.footprint(&self.image, threads)
    }

    /// The same operator for an image of at most so many pixels along each side, to find out what it costs; `None` for one
    /// that has a size of its own.
    pub(crate) fn smaller(&self, most: usize) -> Option<Self> {
        if self.single.has_own_size() {
            return None;
        }
        let single = self.single.stand_in().unwrap_or_else(|| self.single.clone());
        let step = self.thinning().max(1);
        let side = |(axis, side): (usize, &usize)| match axis {
            0 => *side,
            _ if *side <= most => *side,
            _ => most.next_multiple_of(step),
        };
        let image = self.image.iter().enumerate().map(side).collect();
        Some(Self { image, single, ..self.clone() })
    }

    /// The shape of its image, (channel, spatial…).
    pub(crate) fn image(&self) -> &[usize] {
        &self.image
    }

    /// The operator.
    pub(crate) fn make(&self) -> Result<Arc<dyn Physics>> {
        self.single.make(&self.image).map_err(|error| self.locate(error))
    }

    /// Finds what is the same for several operators and takes long, before any of them is made; all ranks call it.
    pub(crate) fn share(&self, ctx: &Context) -> Result<()> {
        self.single.share(ctx, &self.image).map_err(|error| self.locate(error))
    }

    /// The operator up to a factor, without long calculations.
    pub(crate) fn draft(&self) -> Result<Arc<dyn Physics>> {
        self.single.draft(&self.image).map_err(|error| self.locate(error))
    }

    /// The operator for who has this part of the image, a range for each spatial axis.
    pub(crate) fn make_part(&self, part: &[Range<usize>]) -> Result<Arc<dyn Physics>> {
        self.single.make_part(&self.image, part).map_err(|error| self.locate(error))
    }

    /// One of the same shapes that reads the same pixels, without what it needs of files but for their shapes.
    pub(crate) fn outline(&self) -> Result<Arc<dyn Physics>> {
        self.single.outline(&self.image).map_err(|error| self.locate(error))
    }

    /// A part of its mask, a range for each spatial axis, if a file has it: (channel, spatial…), with one channel for all or each.
    pub(crate) fn mask_in_file(&self, part: &[Range<usize>]) -> Option<Result<Array>> {
        let mask = self.single.mask_in_file(&self.image, part)?;
        Some(mask.map_err(|error| self.locate(error)))
    }

    /// What is suspicious about all of its measurements: a mask by which nothing is there.
    pub(crate) fn doubt(&self, presence: &Presence) -> Option<String> {
        self.single.doubt(presence)
    }

    /// The views that it measures, of those of its file.
    pub(crate) fn views(&self) -> Option<Vec<usize>> {
        self.single.views()
    }

    /// Its part of what its file has, with the axes of its measurement.
    pub(crate) fn suited(&self, measured: Array) -> Array {
        self.single.suited(measured)
    }

    /// Its measurement, with the weights that the operator has.
    pub(crate) fn weigh(&self, measured: Array) -> Result<Array> {
        self.single.weigh(&self.image, measured).map_err(|error| self.locate(error))
    }

    /// Whether its measurement can be looked at in place of the image.
    pub(crate) fn looks_like_image(&self) -> bool {
        self.single.looks_like_image()
    }

    /// Whether the adjoint of all measurements can be looked at in place of the image, and what it is called.
    pub(crate) fn adjoint_shows(&self) -> Option<&'static str> {
        self.single.adjoint_shows()
    }

    /// Its part of what its file has.
    pub(crate) fn own(&self, measured: &Array) -> Array {
        self.single.own(measured)
    }

    /// An error with its place, unless it has one.
    fn locate(&self, error: Error) -> Error {
        match error {
            error @ Error::Content { .. } => error,
            error => self.place.refuse(error),
        }
    }
}

fn padding(section: &Section) -> Result<Padding> {
    let paddings = [
        ("circular", Padding::Circular),
        ("reflect", Padding::Reflect),
        ("replicate", Padding::Replicate),
        ("zero", Padding::Constant),
        ("valid", Padding::Valid),
    ];
    Ok(section.choose("padding", &paddings)?.unwrap_or(Padding::Circular))
}

/// A list of complex samples, (1, 2, sample), from a file that has two rows: the real parts and the imaginary parts.
fn as_samples(measured: Array) -> Array {
    match *measured.shape() {
        [1, 1, 2, _] => measured.index_axis_move(Axis(1), 0),
        _ => measured,
    }
}

/// A list of samples times the roots of weights.
fn weighted(mut measured: Array, weights: &[f64]) -> Array {
    for mut row in measured.lanes_mut(Axis(2)) {
        row.iter_mut().zip(weights).for_each(|(value, weight)| *value *= weight.sqrt() as f32);
    }
    measured
}

/// The values of an image.
fn pixels(image: &[usize]) -> usize {
    image.iter().fold(1, |pixels: usize, side| pixels.saturating_mul(*side))
}
