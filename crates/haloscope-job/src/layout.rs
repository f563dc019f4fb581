//! What a job comes down to on any number of ranks: the shape of the image, the operators, where their data are.
//!
//! Made by every rank for itself, from the job and its files; nothing is sent.

use std::sync::Arc;

use haloscope::array::extremes;
use haloscope::{Array, Error, Measurements, Result};
use ndarray::{Axis, Ix2};

use crate::Job;
use crate::draft::sinogram::beam_of;
use crate::memory;
use crate::sections::beam::{Measured, Scan};
use crate::sections::files::StartPlan;
use crate::sections::measurements::{ImageFile, Source};
use crate::sections::operators::Recipe;
use crate::sections::placement::Placement;
use crate::template::short;
use crate::words::count;

/// The image and the operators of a job.
#[derive(Debug)]
pub(crate) struct Layout {
    /// (batch, channel, spatial…).
    pub image: Vec<usize>,
    pub recipes: Arc<[Recipe]>,
    pub truth: Option<Truth>,
    /// Where the image is.
    pub placement: Placement,
    /// What the files hold, in words.
    pub values: Option<String>,
    /// The scan, if the data are one.
    scan: Option<Array>,
    /// What may be wrong with the data.
    doubts: Vec<String>,
}

/// An image to compare with.
#[derive(Clone, Debug)]
pub struct Truth {
    /// (batch, channel, spatial…).
    pub image: Array,
    /// The difference between black and white.
    pub range: f64,
    /// Where its file says that it is.
    pub placement: Placement,
}

impl Layout {
    /// The layout of a job that has `here` ranks on this machine.
    pub(crate) fn of(job: &Job, here: usize) -> Result<Self> {
        match &job.measurements {
            Source::Simulation(simulation) => {
                if let Some(shape) = simulation.announced_shape() {
                    memory::check_image(&shape, here)?;
                }
                let truth = simulation.truth()?;
                let shape = truth.0.shape().to_vec();
                check_size(job, &shape)?;
                Self::new(job, shape, None, Some(truth), |_| Ok(None))
            }
            Source::Scan(scan) => {
                let (array, angles) = scan.load()?;
                let measured = Measured::of(&array, Some(angles));
                let image = image_shape(job, array.shape())?;
                memory::check_image(&image, here)?;
                Self::new(job, image, Some(array), None, |_| Ok(Some(measured.clone())))
            }
            Source::Files(files) => {
                let (first, placement, values) = files.load_first()?;
                if job.operators.iter().all(|entry| !entry.is_scan()) {
                    check_clamp(job, &first).map_err(|error| files.refuse(&error))?;
                }
                let image = image_shape(job, first.shape())?;
                memory::check_image(&image, here)?;
                let measured = |file: usize| match file {
                    0 => Ok(Some(Measured::of(&first, None))),
                    file => Ok(Some(Measured::of(&files.load(file)?, None))),
                };
                let mut layout = Self::new(job, image, None, None, measured)?;
                layout.values = Some(values);
                let doubt = match layout.recipes[0].scan() {
                    Some(_) => doubt_of_scan(&first),
                    None => layout.recipes[0].doubt(&first),
                };
                layout.doubts.extend(doubt.map(|doubt| files.doubt(&doubt)));
                if job.operators[0].keeps_places() {
                    layout.placement = layout.placement.or(placement);
                }
                let needed = layout.recipes.last().map_or(0, |recipe| recipe.file + 1);
                files.check_count(needed)?;
                Ok(layout)
            }
        }
    }

    fn new(
        job: &Job,
        image: Vec<usize>,
        scan: Option<Array>,
        simulated: Option<(Array, Placement)>,
        measured: impl Fn(usize) -> Result<Option<Measured>>,
    ) -> Result<Self> {
        let (mut recipes, mut file) = (Vec::new(), 0);
        for entry in &job.operators {
            let measured = if entry.is_scan() { measured(file)? } else { None };
            let made = entry.recipes(&image[1..], measured.as_ref(), file)?;
            file = made.last().map_or(file, |recipe: &Recipe| recipe.file + 1);
            recipes.extend(made);
        }
        check_plans(job, &recipes)?;
        job.output.check_image(&image)?;
        let truth = Truth::of(job, simulated, &image)?;
        let known = truth.as_ref().map(|truth| truth.placement.clone()).unwrap_or_default();
        let placement = known.or_pixels(recipes.iter().find_map(|recipe| recipe.scan()?.pixel()));
        Ok(Self {
            image,
            recipes: recipes.into(),
            truth,
            placement,
            values: None,
            scan,
            doubts: Vec::new(),
        })
    }

    /// What may be wrong with the job, though it can be run.
    pub(crate) fn warnings(&self, job: &Job) -> Result<Vec<String>> {
        let mut warnings = job.notices.clone();
        warnings.extend(self.doubts.iter().cloned());
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
        if start.shape() == self.image {
            return Ok(start);
        }
        Err(Error::Shape {
            what: format!("{}: the image to start from", file.path.display()),
            expected: format!("the image has {:?}", self.image),
            found: start.shape().to_vec(),
        })
    }

    /// The measurements of some operators, from the files of the job.
    pub(crate) fn read(
        &self,
        job: &Job,
        shapes: &[Vec<usize>],
        operators: impl Iterator<Item = usize>,
    ) -> Result<Measurements> {
        let mut parts = Vec::new();
        let mut last: Option<(usize, Array)> = None;
        for index in operators {
            let recipe = &self.recipes[index];
            let whole = match (&job.measurements, last.take()) {
                (_, Some((file, array))) if file == recipe.file => array,
                (Source::Files(files), _) => files.load(recipe.file)?,
                _ => self.scan.clone().unwrap_or_default(),
            };
            let part = recipe.own(&whole);
            last = Some((recipe.file, whole));
            let expected = [&self.image[..1], &shapes[index]].concat();
            if part.shape() != expected {
                return Err(recipe.place().refuse(Error::Shape {
                    what: format!("the measurement of operator {index} ({})", recipe.name()),
                    expected: format!("{expected:?} is expected for images of {:?}", self.image),
                    found: part.shape().to_vec(),
                }));
            }
            // Data without a meaning for the fidelity are not even comparable with themselves.
            if let Some(fidelity) = job.fidelity.fidelities.get(index) {
                fidelity.value(&part, &part).map_err(|error| recipe.place().refuse(error))?;
            }
            parts.push((index, part));
        }
        Measurements::partial(self.recipes.len(), parts)
    }
}

impl Truth {
    fn of(
        job: &Job,
        simulated: Option<(Array, Placement)>,
        shape: &[usize],
    ) -> Result<Option<Self>> {
        let plan = job.truth.as_ref();
        let known = match plan.and_then(|plan| Some((&plan.place, plan.file.as_ref()?))) {
            Some((place, _)) if simulated.is_some() => {
                return Err(
                    place.refuse("the image that is simulated is the truth; leave `file` out")
                );
            }
            Some((_, file)) => Some(file.load_with_placement()?),
            None => simulated,
        };
        let Some((image, placement)) = known else { return Ok(None) };
        if image.shape() != shape {
            return Err(Error::Shape {
                what: format!("{}: the truth", job.name),
                expected: format!("the image has {shape:?}"),
                found: image.shape().to_vec(),
            });
        }
        let range = plan.and_then(|plan| plan.range).unwrap_or_else(|| range_of(&image));
        Ok(Some(Self { image, range, placement }))
    }
}

/// What is suspicious about the measurements of a scan, (batch, channel, view, bin) or (batch, channel, view, row, column):
/// intensities, where line integrals are expected.
fn doubt_of_scan(measured: &Array) -> Option<String> {
    if measured.ndim() < 4 || measured.is_empty() {
        return None;
    }
    let first = measured.view().index_axis_move(Axis(0), 0).index_axis_move(Axis(0), 0);
    // A row in the middle of the detector, where the object is.
    let row = match first.ndim() {
        3 => {
            let middle = first.len_of(Axis(1)) / 2;
            first.index_axis_move(Axis(1), middle)
        }
        _ => first,
    };
    let beam = beam_of(&row.into_dimensionality::<Ix2>().ok()?)?;
    Some(format!(
        "the values look like intensities, of about {} beside the object; line integrals are expected: `flat` and `dark` make \
         them, or `logarithm = true` with `white`, the intensity of the beam",
        short(beam)
    ))
}

/// Refuses a prior that keeps the image where the measurements of it are not: those of blurs and cameras have its scale.
fn check_clamp(job: &Job, measured: &Array) -> std::result::Result<(), String> {
    let Some((low, high)) = job.prior.clamp else { return Ok(()) };
    let width = high - low;
    let far = |value: &&f32| !(low - width..=high + width).contains(*value);
    if 2 * measured.iter().filter(far).count() <= measured.len() {
        return Ok(());
    }
    let (least, most) = extremes(measured);
    Err(format!(
        "values from {least} to {most}, most of them far from the [{low}, {high}] that `clamp` of [prior] keeps the \
         image in; `white`, the value that becomes 1, brings them there, or another `clamp` takes them as they are"
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
    }
    Ok(())
}

/// Pictures have something brighter than this; what has not is in other units, attenuations for example.
pub(crate) const DARK: f32 = 0.2;

/// 1 for pictures from 0 to 1, else the difference of the extremes.
fn range_of(image: &Array) -> f64 {
    let (low, high) = extremes(image);
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
        let range = |low: f32, high: f32| {
            range_of(&Array::from_shape_vec(vec![2], vec![low, high]).expect("two values"))
        };
        assert_eq!((range(0.0, 1.0), range(0.1, 0.6), range(0.5, 0.5)), (1.0, 1.0, 1.0));
        assert_eq!((range(0.0, 0.125), range(-1.0, 1.0), range(0.0, 1000.0)), (0.125, 2.0, 1000.0));
    }
}
