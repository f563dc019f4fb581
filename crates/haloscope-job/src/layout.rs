//! What a job comes down to on any number of ranks: the shape of the image, the operators, where their data are.
//!
//! The first rank looks at the files; what the others need to know of them is a few numbers, which it sends. What it had to
//! read for that it keeps until [`acquire`](crate::acquire) wants it.

use std::collections::BTreeMap;
use std::sync::Arc;

use haloscope::array::extremes;
use haloscope::distribute::{agree, agree_on_root};
use haloscope::{Array, Error, Result};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::InstructionSet;
use ndarray::{Axis, Ix2};
use serde::{Deserialize, Serialize};

use crate::Job;
use crate::draft::sinogram::beam_of;
use crate::memory;
use crate::sections::beam::{Beam, Measured, Scan};
use crate::sections::data_files::{Kept, Origin, middle_row};
use crate::sections::files::StartPlan;
use crate::sections::measurements::{ImageFile, Source};
use crate::sections::operators::{Entry, Recipe};
use crate::sections::placement::Placement;
use crate::sections::prior::PriorKind;
use crate::seen::{Presence, Seen};
use crate::shards::AcquiredShards;
use crate::template::short;
use crate::words::count;

/// The image and the operators of a job.
#[derive(Debug)]
pub(crate) struct Layout {
    /// (batch, channel, spatial…).
    pub image: Vec<usize>,
    pub recipes: Arc<[Recipe]>,
    /// What images are compared with, on the first rank.
    pub truth: Option<Truth>,
    /// The difference between black and white of the truth, if there is one, on every rank.
    pub range: Option<f64>,
    /// Where the image is, as the first rank knows it.
    pub placement: Placement,
    /// What the first file of measurements says of itself, on the first rank.
    pub origin: Option<Origin>,
    /// What is known of the scans, by the number of their files.
    pub scans: BTreeMap<usize, Scanned>,
    /// What the first rank has read, by the number of the file.
    pub kept: BTreeMap<usize, Kept>,
}

/// What is known of the measurements of a scan without their values.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Scanned {
    /// (batch, channel, view, …).
    pub shape: Vec<usize>,
    /// The bits of the angles in radians, where a file has them.
    angles: Option<Vec<u64>>,
    /// The bits of the bin that sees the rotation axis, where the job wants it to be found.
    centre: Option<u64>,
    /// Whether the first rank has all of it, because nothing less told the shape.
    pub is_dealt: bool,
}

/// What the ranks need to know of the files.
#[derive(Debug, Deserialize, Serialize)]
struct Facts {
    image: Vec<usize>,
    scans: BTreeMap<usize, Scanned>,
    /// The bits of the range of the truth.
    range: Option<u64>,
}

/// An image to compare with.
#[derive(Clone, Debug)]
pub struct Truth {
    /// (batch, channel, spatial…).
    pub image: Array,
    /// The difference between black and white.
    pub range: f64,
    /// Where its file says that it is.
    pub(crate) placement: Placement,
}

impl Layout {
    /// The layout of a job; all ranks call it.
    pub(crate) fn of(ctx: &Context, job: &Job) -> Result<Self> {
        let here = ctx.local_size();
        let in_parts = job.may_be_sharded(ctx.size());
        let first = agree_on_root(ctx, || Self::survey(job, here, in_parts))?;
        if ctx.size() == 1 {
            return first.ok_or_else(|| Error::argument("ranks", "there is no first one"));
        }
        let broken = |error: serde_json::Error| Error::argument("layout", error.to_string());
        let mut facts = match &first {
            Some(layout) => serde_json::to_vec(&layout.facts()).map_err(broken)?,
            None => Vec::new(),
        };
        ctx.comm().broadcast_list(0, &mut facts)?;
        let layout = match first {
            Some(layout) => Ok(layout),
            None => (serde_json::from_slice(&facts).map_err(broken))
                .and_then(|facts| Self::follow(job, here, in_parts, facts)),
        };
        agree(ctx, layout)
    }

    /// The layout of a job that has `here` ranks on this machine, as the first of them finds it in the files. Of an image that may
    /// be `in_parts`, no measurement is read as a whole.
    pub(crate) fn survey(job: &Job, here: usize, in_parts: bool) -> Result<Self> {
        let mut layout = match &job.measurements {
            Source::Simulation(simulation) => {
                if let Some(shape) = simulation.announced_shape() {
                    memory::check_image(job, &shape, if in_parts { 1 } else { here })?;
                }
                if let Some(file) = job.truth_in_parts().filter(|_| in_parts) {
                    let (shape, _) = file.outline()?;
                    check_size(job, &shape)?;
                    return Self::new(job, shape, |_, _| Ok(None))?.with_truth_in_parts(job, file);
                }
                let truth = simulation.truth()?;
                let shape = truth.0.shape().to_vec();
                check_size(job, &shape)?;
                return Self::new(job, shape, |_, _| Ok(None))?.with_truth(job, Some(truth));
            }
            Source::Scan(file) => {
                let measured = file.survey()?;
                let shape = [&[1, 1], &measured.shape[..]].concat();
                let image = image_shape(job, &shape)?;
                memory::check_image(job, &image, if in_parts { 1 } else { here })?;
                let scanned = Scanned::new(shape, measured.angles.as_deref(), false);
                Self::new(job, image, |_, beam| {
                    let row = |_: &[usize]| file.load_row();
                    scanned.clone().with_centre(beam, row).map(Some)
                })?
            }
            Source::Files(files) if in_parts && !job.has_scan() => {
                let (shape, origin) = files.outline(0)?;
                let mut layout = Self::new(job, image_shape(job, &shape)?, |_, _| Ok(None))?;
                files.check_count(layout.recipes.last().map_or(0, |recipe| recipe.file + 1))?;
                layout.origin = Some(origin);
                layout
            }
            Source::Files(files) => {
                let first = files.survey(0)?;
                let has_scan =
                    job.operators.iter().any(|entry| entry.is_scan() || !entry.measures_pixels());
                if let (Kept::Whole(first), false) = (&first.kept, has_scan) {
                    Seen::of(job, first).check(job).map_err(|error| files.refuse(&error))?;
                }
                let image = image_shape(job, &first.shape)?;
                memory::check_image(job, &image, if in_parts { 1 } else { here })?;
                let (shape, mut kept) = (first.shape, BTreeMap::from([(0, first.kept)]));
                let scanned = |file: usize, beam: &Beam| {
                    let shape = if file == 0 {
                        shape.clone()
                    } else {
                        let other = files.survey(file)?;
                        kept.insert(file, other.kept);
                        other.shape
                    };
                    let is_dealt = matches!(kept.get(&file), Some(Kept::Whole(_)));
                    let row = |shape: &[usize]| match &kept[&file] {
                        Kept::Whole(all) => Ok(middle_row(all.view())),
                        Kept::View(first) => files.load_row(file, shape, first),
                    };
                    Scanned::new(shape, None, is_dealt).with_centre(beam, row).map(Some)
                };
                let mut layout = Self::new(job, image, scanned)?;
                layout.kept = kept;
                let needed = layout.recipes.last().map_or(0, |recipe| recipe.file + 1);
                files.check_count(needed)?;
                layout.origin = Some(first.origin);
                layout
            }
        };
        layout = match job.truth_in_parts().filter(|_| in_parts) {
            Some(file) => layout.with_truth_in_parts(job, file)?,
            None => layout.with_truth(job, None)?,
        };
        if let Some(origin) = layout.origin.as_ref().filter(|_| job.operators[0].keeps_places()) {
            layout.placement = std::mem::take(&mut layout.placement).or(origin.placement.clone());
        }
        Ok(layout)
    }

    /// The layout of a job of which nothing is read or made if the shape of its image is known before; a truth is taken to go from
    /// 0 to 1.
    pub(crate) fn outline(job: &Job) -> Result<Self> {
        let announced = match &job.measurements {
            Source::Simulation(simulation) => simulation.announced_shape(),
            _ => None,
        };
        let Some(shape) = announced else { return Self::survey(job, 1, job.is_sharded()) };
        check_size(job, &shape)?;
        let layout = Self::new(job, shape, |_, _| Ok(None))?;
        Ok(Self { range: Some(1.0), ..layout })
    }

    /// The layout of a job as the other ranks have it.
    fn follow(job: &Job, here: usize, in_parts: bool, facts: Facts) -> Result<Self> {
        if !in_parts {
            memory::check_image(job, &facts.image, here)?;
        }
        let layout = Self::new(job, facts.image, |file, _| Ok(facts.scans.get(&file).cloned()))?;
        Ok(Self { range: facts.range.map(f64::from_bits), ..layout })
    }

    /// Reads what a survey in parts left out, for an image that turned out to be replicated; the first rank calls it.
    pub(crate) fn read_first(&mut self, job: &Job) -> Result<()> {
        if job.is_sharded() {
            return Ok(());
        }
        if self.range.is_some() && self.truth.is_none() {
            let simulated = match &job.measurements {
                Source::Simulation(simulation) => Some(simulation.truth()?),
                _ => None,
            };
            self.truth = Truth::of(job, simulated, &self.image)?;
        }
        let Source::Files(files) = &job.measurements else { return Ok(()) };
        if !self.kept.is_empty() {
            return Ok(());
        }
        let first = files.survey(0)?;
        let are_pixels = job.operators.iter().all(Entry::measures_pixels);
        if let (Kept::Whole(first), true) = (&first.kept, are_pixels) {
            Seen::of(job, first).check(job).map_err(|error| files.refuse(&error))?;
        }
        self.kept.insert(0, first.kept);
        Ok(())
    }

    fn facts(&self) -> Facts {
        let (image, scans) = (self.image.clone(), self.scans.clone());
        Facts { image, scans, range: self.range.map(f64::to_bits) }
    }

    fn new(
        job: &Job,
        image: Vec<usize>,
        mut scanned: impl FnMut(usize, &Beam) -> Result<Option<Scanned>>,
    ) -> Result<Self> {
        let (mut recipes, mut file) = (Vec::new(), 0);
        let mut scans = BTreeMap::new();
        for entry in &job.operators {
            let scanned = match entry.beam() {
                Some(beam) => scanned(file, beam)?,
                None => None,
            };
            let measured = scanned.as_ref().map(Scanned::measured);
            let made = entry.recipes(&image[1..], measured.as_ref(), file)?;
            scans.extend(scanned.map(|scanned| (file, scanned)));
            file = made.last().map_or(file, |recipe: &Recipe| recipe.file + 1);
            recipes.extend(made);
        }
        check_plans(job, &recipes)?;
        job.output.check_image(&image)?;
        let pixel = recipes.iter().find_map(|recipe| recipe.scan()?.pixel());
        Ok(Self {
            image,
            recipes: recipes.into(),
            truth: None,
            range: None,
            placement: Placement::default().or_pixels(pixel),
            origin: None,
            scans,
            kept: BTreeMap::new(),
        })
    }

    /// The layout with the truth of the job, if it has one.
    fn with_truth(mut self, job: &Job, simulated: Option<(Array, Placement)>) -> Result<Self> {
        self.truth = Truth::of(job, simulated, &self.image)?;
        if let Some(truth) = &self.truth {
            self.range = Some(truth.range);
            let pixel = self.recipes.iter().find_map(|recipe| recipe.scan()?.pixel());
            self.placement = truth.placement.clone().or_pixels(pixel);
        }
        if let Some(known) =
            job.operators.first().and_then(|first| first.placement(&self.image[1..]))
        {
            self.placement = std::mem::take(&mut self.placement).or(known);
        }
        Ok(self)
    }

    /// The layout with a truth that ranks read in parts, of which only the range is known.
    fn with_truth_in_parts(mut self, job: &Job, file: &ImageFile) -> Result<Self> {
        if let (Some(plan), Source::Simulation(_)) = (&job.truth, &job.measurements)
            && plan.file.is_some()
        {
            return Err(plan.refuse_second());
        }
        let (shape, placement) = file.outline()?;
        check_truth(job, &shape, &self.image)?;
        let (low, high) = file.extremes()?;
        let given = job.truth.as_ref().and_then(|plan| plan.range);
        self.range = Some(given.unwrap_or_else(|| range_of(low, high)));
        let pixel = self.recipes.iter().find_map(|recipe| recipe.scan()?.pixel());
        self.placement = placement.or_pixels(pixel);
        Ok(self)
    }

    /// What is suspicious about the measurements of the first operator.
    pub(crate) fn doubt(&self, job: &Job, first: &Array) -> Option<String> {
        let Source::Files(files) = &job.measurements else { return None };
        let recipe = &self.recipes[0];
        let doubt = if recipe.scan().is_some() {
            doubt_of_scan(first)
        } else {
            let all: Vec<_> = first.shape()[2..].iter().map(|side| 0..*side).collect();
            let mask = recipe.mask_in_file(&all).and_then(Result::ok);
            mask.and_then(|mask| recipe.doubt(&Presence::of(first, &mask)))
        };
        doubt.map(|doubt| files.doubt(&doubt))
    }

    /// The same of measurements in parts, on the first rank; all ranks call it.
    pub(crate) fn doubt_in_shards(
        &self,
        ctx: &Context,
        job: &Job,
        acquired: &AcquiredShards,
    ) -> Result<Option<String>> {
        let (Source::Files(files), Some(first)) = (&job.measurements, acquired.data.get(0)) else {
            return Ok(None);
        };
        if job.has_scan() {
            return Ok(ctx.is_root().then(|| self.doubt(job, first)).flatten());
        }
        let own = &acquired.physics.measured()[0].own()[2..];
        let Some(mask) = self.recipes[0].mask_in_file(own) else { return Ok(None) };
        let presence = Presence::of(first, &agree(ctx, mask)?).on_all(ctx)?;
        let doubt = self.recipes[0].doubt(&presence).filter(|_| ctx.is_root());
        Ok(doubt.map(|doubt| files.doubt(&doubt)))
    }

    /// What may be wrong with the job, though it can be run.
    pub(crate) fn warnings(&self, job: &Job) -> Result<Vec<String>> {
        let mut warnings = job.notices.clone();
        if let PriorKind::Network(_) = job.prior.kind {
            warnings.extend(InstructionSet::doubt().map(Into::into));
        }
        let mut last: Option<&Arc<Scan>> = None;
        for scan in self.recipes.iter().filter_map(Recipe::scan) {
            if last.is_some_and(|last| Arc::ptr_eq(last, scan)) {
                continue;
            }
            warnings.extend(scan.warnings());
            if matches!(job.start, StartPlan::BackProjection(..)) {
                warnings.extend(scan.arc_warning()?);
            }
            last = Some(scan);
        }
        Ok(warnings)
    }

    /// The image to start from.
    pub(crate) fn load_start(&self, file: &ImageFile) -> Result<Array> {
        let start = file.load()?;
        self.check_start(file, start.shape()).map(|()| start)
    }

    /// Refuses an image to start from that has another shape.
    pub(crate) fn check_start(&self, file: &ImageFile, found: &[usize]) -> Result<()> {
        if found == self.image {
            return Ok(());
        }
        Err(Error::Shape {
            what: format!("{}: the image to start from", file.path.display()),
            expected: format!("the image has {:?}", self.image),
            found: found.to_vec(),
        })
    }
}

impl Scanned {
    fn new(shape: Vec<usize>, angles: Option<&[f64]>, is_dealt: bool) -> Self {
        let angles = angles.map(|angles| angles.iter().map(|angle| angle.to_bits()).collect());
        Self { shape, angles, centre: None, is_dealt }
    }

    /// With the rotation axis of a beam, if it is to be found, in a row of the detector in all views that `row` gives.
    fn with_centre(
        mut self,
        beam: &Beam,
        row: impl FnOnce(&[usize]) -> Result<Array>,
    ) -> Result<Self> {
        if beam.seeks_centre() {
            let found = beam.find_centre(&row(&self.shape)?, &self.measured())?;
            self.centre = Some(found.to_bits());
        }
        Ok(self)
    }

    fn measured(&self) -> Measured {
        let bits = self.angles.as_ref();
        Measured {
            shape: self.shape.get(2..).unwrap_or_default().to_vec(),
            angles: bits.map(|bits| bits.iter().map(|bits| f64::from_bits(*bits)).collect()),
            centre: self.centre.map(f64::from_bits),
        }
    }
}

impl Truth {
    fn of(
        job: &Job,
        simulated: Option<(Array, Placement)>,
        shape: &[usize],
    ) -> Result<Option<Self>> {
        let plan = job.truth.as_ref();
        let known = match plan.and_then(|plan| Some((plan, plan.file.as_ref()?))) {
            Some((plan, _)) if simulated.is_some() => return Err(plan.refuse_second()),
            Some((_, file)) => Some(file.load_with_placement()?),
            None => simulated,
        };
        let Some((image, placement)) = known else { return Ok(None) };
        check_truth(job, image.shape(), shape)?;
        let range = plan.and_then(|plan| plan.range).unwrap_or_else(|| {
            let (low, high) = extremes(&image);
            range_of(low, high)
        });
        Ok(Some(Self { image, range, placement }))
    }
}

/// Refuses a truth of another shape than the image.
fn check_truth(job: &Job, found: &[usize], image: &[usize]) -> Result<()> {
    if found == image {
        return Ok(());
    }
    Err(Error::Shape {
        what: format!("{}: the truth", job.name),
        expected: format!("the image has {image:?}"),
        found: found.to_vec(),
    })
}

/// What is suspicious about the measurements of a scan, (batch, channel, view, bin) or (batch, channel, view, row, column):
/// intensities, where line integrals are expected.
fn doubt_of_scan(measured: &Array) -> Option<String> {
    if measured.ndim() < 4 || measured.is_empty() {
        return None;
    }
    let row = middle_row(measured.view());
    let row = row.index_axis(Axis(0), 0).index_axis_move(Axis(0), 0);
    let beam = beam_of(&row.into_dimensionality::<Ix2>().ok()?)?;
    Some(format!(
        "the values look like intensities, of about {} beside the object; line integrals are expected: `flat` and `dark` make \
         them, or `logarithm = true` with `white`, the intensity of the beam",
        short(beam)
    ))
}

/// Refuses what depends on the operators: a list of noises, and a start that needs a scan.
fn check_plans(job: &Job, recipes: &[Recipe]) -> Result<()> {
    if let Source::Simulation(simulation) = &job.measurements {
        simulation.check_noise(recipes.len())?;
    }
    if let StartPlan::BackProjection(place, _) = &job.start {
        let groups = recipes[0].scan().map(|scan| scan.groups());
        if groups != Some(recipes.len()) {
            return Err(place.refuse("filtered back-projection needs a scan as the only operator"));
        }
        if !recipes[0].scan().is_some_and(|scan| scan.goes_around()) {
            return Err(place.refuse(
                "filtered back-projection needs views that go around an axis, and those of `vectors`, `tilt` and `pitch` do not; \
                 start from zeros, with a method that iterates",
            ));
        }
    }
    Ok(())
}

/// Pictures have something brighter than this; what has not is in other units, attenuations for example.
pub(crate) const DARK: f32 = 0.2;

/// 1 for pictures from 0 to 1, else the difference of the extremes.
fn range_of(low: f32, high: f32) -> f64 {
    let is_picture = low >= 0.0 && (DARK..=1.0).contains(&high);
    if is_picture || high <= low { 1.0 } else { f64::from(high - low) }
}

/// The shape of the image, with its batch, that the job says or that the first measurement suggests.
fn image_shape(job: &Job, measured: &[usize]) -> Result<Vec<usize>> {
    let suggested = job.operators[0].image_shape(&measured[1..]);
    let channels = job.image.channels.or(suggested.as_ref().map(|shape| shape[0]));
    let sides = job.image.size.clone().or(suggested.map(|shape| shape[1..].to_vec()));
    let (Some(channels), Some(sides)) = (channels, sides) else {
        return Err(Error::Content {
            file: job.name.clone(),
            reason: format!(
                "[image] is missing: measurements of shape {measured:?} do not determine the size of the image; \
                 `size` and `channels` are expected"
            ),
        });
    };
    Ok([vec![measured[0], channels], sides].concat())
}

/// Refuses an `[image]` that is not the one that is simulated.
fn check_size(job: &Job, truth: &[usize]) -> Result<()> {
    let plan = &job.image;
    let differs = plan.size.as_ref().is_some_and(|size| truth[2..] != **size)
        || plan.channels.is_some_and(|channels| truth[1] != channels);
    match &plan.place {
        Some(place) if differs => Err(place.refuse(format!(
            "the simulated image has {} and the sides {:?}; leave [image] out",
            count(truth[1], "channel"),
            &truth[2..]
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_that_of_pictures_or_of_the_values() {
        let found = [(0.0, 1.0), (0.1, 0.6), (0.5, 0.5), (0.0, 0.125), (-1.0, 1.0), (0.0, 1000.0)];
        let found = found.map(|(low, high)| range_of(low, high));
        assert_eq!(found, [1.0, 1.0, 1.0, 0.125, 2.0, 1000.0]);
    }
}
