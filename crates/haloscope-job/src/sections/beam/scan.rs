//! A scan for images of a known shape, whose views are dealt to groups.
//!
//! A group is an operator of its own, and ranks share operators: group `g` of `n` has the views `g`, `g + n`,
//! `g + 2n` and so on. Filtered back-projection is planned for all views: [`Scan::whole`].

use std::sync::{Arc, OnceLock};

use haloscope::distribute::{Factory, ShardedStack, agree, distribute};
use haloscope::image::Space;
use haloscope::least_squares::LinearMap;
use haloscope::physics::Stack;
use haloscope::physics::tomography::unit_factor;
use haloscope::{Array, Error, Result};
use haloscope_comm::Context;
use ndarray::Axis;

use super::describe::rounded;
use super::positions::{Outline, Positions};
use super::{Beam, Projector, Rays};

/// A scan with all that is to be known of it.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(super) beam: Beam,
    /// For images of this shape, (channel, spatial…).
    pub(super) image: Vec<usize>,
    /// How its rays go, how far bins are apart, and the angles of all views.
    pub(super) outline: Outline,
    /// The positions of all views, if the job lists them.
    pub(super) listed: Option<Positions>,
    pub(super) detector: Vec<usize>,
    /// The bin that sees the rotation axis, if it is known.
    pub(super) known_centre: Option<f64>,
    /// What makes the norm of all views together 1, once it is known.
    factor: OnceLock<f64>,
}

impl Scan {
    pub(super) fn new(
        beam: &Beam,
        image: &[usize],
        (outline, listed): (Outline, Option<Positions>),
        detector: &[usize],
        known_centre: Option<f64>,
    ) -> Self {
        let (beam, image, detector) = (beam.clone(), image.to_vec(), detector.to_vec());
        Self { beam, image, outline, listed, detector, known_centre, factor: OnceLock::new() }
    }

    /// How many operators it is.
    pub(crate) fn groups(&self) -> usize {
        self.beam.groups
    }

    /// Whether its views do no more than go around the rotation axis.
    pub(crate) fn goes_around(&self) -> bool {
        self.listed.is_none() && !self.beam.pose.is_general()
    }

    /// The size of the image's pixels along each side, if the job says anything of lengths.
    pub(crate) fn pixel(&self) -> Option<Vec<f64>> {
        let beam = &self.beam;
        let says = beam.pixel.is_some()
            || beam.spacing.is_some()
            || beam.vectors.is_some()
            || beam.rays != Rays::Parallel;
        says.then(|| self.pixels())
    }

    /// The size of pixels: as it is given, or the distance of bins as it is seen at the rotation axis.
    pub(super) fn pixels(&self) -> Vec<f64> {
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

    pub(super) fn spacing(&self) -> &[f64] {
        &self.outline.spacing
    }

    /// How much larger things at the rotation axis are on the detector.
    pub(super) fn magnification(&self) -> f64 {
        match self.outline.rays {
            Rays::Parallel => 1.0,
            Rays::Fan(source, detector) | Rays::Cone(source, detector) => {
                (source + detector) / source
            }
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.detector.last().copied().unwrap_or(1)
    }

    /// The bin that sees the rotation axis.
    pub(super) fn centre(&self) -> f64 {
        let middle = (self.columns() as f64 - 1.0) / 2.0;
        self.known_centre.unwrap_or(middle)
    }

    pub(super) fn check_centre(&self) -> Result<()> {
        let (Some((place, _)), Some(centre)) = (&self.beam.centre, self.known_centre) else {
            return Ok(());
        };
        let columns = self.columns();
        if (-0.5..=columns as f64 - 0.5).contains(&centre) {
            return Ok(());
        }
        Err(place.refuse(format!(
            "bin {centre} is outside of the detector; the bin that sees the rotation axis is expected, from 0 to {}",
            columns.saturating_sub(1)
        )))
    }

    pub(super) fn check_source(&self) -> Result<()> {
        let (Rays::Fan(source, _) | Rays::Cone(source, _)) = self.outline.rays else {
            return Ok(());
        };
        // Sources at listed positions may be anywhere, and operators look at each.
        if self.image.len() < 3 || self.listed.is_some() {
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

    /// A few of the views, at most so many, to find out what they cost.
    pub(crate) fn trial(&self, views: usize) -> Result<(Projector, usize)> {
        let every = self.views().div_ceil(views.max(1)).max(1);
        let some: Vec<usize> = (0..self.views()).step_by(every).collect();
        Ok((self.make(&some)?, some.len()))
    }

    /// How many views it has.
    pub(crate) fn views(&self) -> usize {
        self.outline.angles.len()
    }

    /// How many values a group measures of an image.
    pub(crate) fn values(&self, group: usize) -> usize {
        let views = self.views().saturating_sub(group).div_ceil(self.groups());
        let bins = self.detector.iter().fold(1, |bins: usize, side| bins.saturating_mul(*side));
        bins.saturating_mul(views).saturating_mul(self.image[0])
    }

    /// All views.
    pub(crate) fn whole(&self) -> Result<Projector> {
        self.make_all()?.scaled(self.factor())
    }

    /// The views of a group.
    pub(crate) fn group(&self, group: usize) -> Result<Projector> {
        self.draft(group)?.scaled(self.factor())
    }

    /// The views of a group, without the factor, which may take long to find.
    pub(crate) fn draft(&self, group: usize) -> Result<Projector> {
        self.make(&self.views_of(group))
    }

    /// The numbers of the views of a group.
    pub(crate) fn views_of(&self, group: usize) -> Vec<usize> {
        (group..self.views()).step_by(self.groups()).collect()
    }

    /// The measurements of a group out of those of all views.
    pub(crate) fn select(&self, all: &Array, group: usize) -> Array {
        let views: Vec<usize> = (group..all.shape()[2]).step_by(self.groups()).collect();
        let part = all.select(Axis(2), &views);
        if part.is_standard_layout() { part } else { part.as_standard_layout().into_owned() }
    }

    /// Finds the factor that makes the norm of all views together 1, if the job asks for it; all ranks call it and share
    /// the work.
    pub(crate) fn normalise(self: &Arc<Self>, ctx: &Context) -> Result<()> {
        if !self.beam.normalise || self.factor.get().is_some() {
            return Ok(());
        }
        let scan = self.clone();
        let draft = move |group, _: &_, _: &_| scan.draft(group).map(Projector::into_physics);
        let views = distribute(Factory::new(self.groups(), draft), ctx)?;
        self.normalise_by(&views.as_map()?)
    }

    /// The same for images in shards.
    pub(crate) fn normalise_in_shards(&self, space: &Arc<Space>) -> Result<()> {
        if !self.beam.normalise || self.factor.get().is_some() {
            return Ok(());
        }
        let draft = |group| self.draft(group).map(Projector::into_physics);
        let views = (0..self.groups()).map(draft).collect::<Result<Vec<_>>>();
        let views = agree(space.context(), views.and_then(Stack::new))?;
        self.normalise_by(&ShardedStack::new(views, space)?)
    }

    fn normalise_by<M: LinearMap>(&self, views: &M) -> Result<()> {
        let factor = unit_factor(views).map_err(|error| match error {
            error @ Error::Argument { .. } => self.beam.place.refuse(error),
            error => error,
        })?;
        self.factor.get_or_init(|| factor);
        Ok(())
    }

    /// What line integrals are multiplied with: 1 until [`normalise`](Self::normalise) has found another.
    fn factor(&self) -> f64 {
        self.factor.get().copied().unwrap_or(1.0)
    }

    pub(super) fn make_all(&self) -> Result<Projector> {
        self.make(&(0..self.views()).collect::<Vec<_>>())
    }

    /// The projector of some views.
    fn make(&self, views: &[usize]) -> Result<Projector> {
        self.project(views).map_err(|error| match &self.beam.vectors {
            Some(vectors) => vectors.refuse(error),
            None => self.beam.place.refuse(error),
        })
    }
}
