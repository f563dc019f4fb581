//! A job from its data to its result, on all ranks.
//!
//! `layout` and `prepare` make a problem of a job, `iterate` is the loop, and rank 0 writes what came out.

use std::path::Path;
use std::time::Instant;

use haloscope::array::extremes;
use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::{agree, agree_on_root};
use haloscope::image::Space;
use haloscope::solve::{FolderLock, State, gather_records};
use haloscope::{Array, io};
use haloscope_comm::{Collectives, Context};
use haloscope_scratch::Scratch;

use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::iterate::{Iterated, iterate};
use crate::layout::{DARK, Layout};
use crate::memory::{Expected, size};
use crate::observer::{Event, Observer};
use crate::outcome::{Ending, Outcome};
use crate::prepare::{Acquired, Distribution, Prepared};
use crate::quality::Quality;
use crate::saving::{Resuming, Saving, lock_output};
use crate::scale::Clipped;
use crate::scratch::ScratchPlan;
use crate::sections::files::is_picture;
use crate::shards::spatial_regions;
use crate::{Job, devices, report};

/// Tells an observer what is its rank's to know.
pub(crate) struct Told<'a> {
    observer: &'a mut dyn Observer,
    is_root: bool,
    stage: Instant,
}

impl<'a> Told<'a> {
    pub(crate) fn new(ctx: &Context, observer: &'a mut dyn Observer) -> Self {
        Self { observer, is_root: ctx.is_root(), stage: Instant::now() }
    }

    pub(crate) fn event(&mut self, event: Event<'_>) {
        self.observer.event(event);
    }

    pub(crate) fn stop(&mut self) -> Option<u8> {
        self.observer.stop()
    }

    /// Something that may be wrong, of the run as a whole.
    pub(crate) fn warn(&mut self, words: &str) {
        if self.is_root {
            self.observer.event(Event::Warning(words));
        }
    }

    /// Something that was found, of the run as a whole.
    pub(crate) fn note(&mut self, words: &str) {
        if self.is_root {
            self.observer.event(Event::Note(words));
        }
    }

    /// Something that only who asks for details wants to know.
    pub(crate) fn detail(&mut self, words: &str) {
        if self.is_root {
            self.observer.event(Event::Detail(words));
        }
    }

    /// A stage is over, and the next begins.
    fn end_stage(&mut self, name: &'static str) {
        let seconds = self.stage.elapsed().as_secs_f64();
        self.observer.event(Event::Stage { name, seconds });
        self.stage = Instant::now();
    }
}

impl Job {
    /// Runs the job; all ranks of `ctx` call it, and all get the image. Nothing is printed: `observer` is told.
    ///
    /// ```
    /// use haloscope_comm::Context;
    /// use haloscope_job::Job;
    ///
    /// let job = Job::builder()
    ///     .measurements(|it| it.set("phantom", "landscape").set("size", vec![32, 32]))
    ///     .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.5))
    ///     .prior("total-variation", |it| it.set("weight", 0.01))
    ///     .solver("fista", |it| it)
    ///     .stop(|it| it.set("iterations", 5))
    ///     .build()?;
    /// let outcome = job.run(&Context::solo(), &mut ())?;
    /// assert_eq!(outcome.image().shape(), [1, 3, 32, 32]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(&self, ctx: &Context, observer: &mut dyn Observer) -> Result<Outcome> {
        let mut told = Told::new(ctx, observer);
        let (job, ready) = Ready::new(ctx, self, &mut told).map_err(Error::Refused)?;
        ready.run(ctx, &job, &mut told).map_err(Error::Failed)
    }
}

/// A run before its first iteration.
struct Ready {
    prepared: Prepared,
    state: State,
    resumed_from: Option<usize>,
    saving: Option<Saving>,
    facts: Facts,
    /// The image, without its batch.
    shape: Vec<usize>,
    operators: usize,
    /// Those that run the network, rank by rank.
    devices: Vec<String>,
    /// Seconds of the preparation.
    preparation: f64,
    /// Large arrays are in files while it lives.
    scratch: Option<Scratch>,
    /// Keeps other runs out of the folder of pictures.
    _output: Option<FolderLock>,
}

impl Ready {
    /// The job with its layout settled, and its run.
    fn new(ctx: &Context, job: &Job, told: &mut Told<'_>) -> haloscope::Result<(Job, Self)> {
        // Before anything large is made, and as long as the run.
        let scratch = agree(ctx, job.open_scratch())?;
        let mut layout = Layout::of(ctx, job)?;
        told.end_stage("reading the job and its data");
        let network = agree(ctx, job.share_network(ctx, &layout.image))?;
        let devices = devices::of_ranks(ctx, network.as_deref())?;
        let (settled, choice) = job.settle(ctx, &mut layout, network.as_deref())?;
        let job = &settled;
        let mut expected = expect(ctx, job, &layout, network.as_deref())?;
        expected.layout = Some(choice);
        told.event(Event::Planned(&expected));
        agree(ctx, if ctx.is_root() { job.output.check_writable() } else { Ok(()) })?;
        let (shape, operators) = (layout.image[1..].to_vec(), layout.recipes.len());
        let facts = Facts::of(job, &layout);
        let mut saving = match job.resuming {
            Resuming::Off => None,
            resuming => Some(Saving::open(ctx, job, network.as_deref(), resuming, told)?),
        };
        let output = lock_output(ctx, job, saving.is_some(), told)?;
        let mut warnings = agree(ctx, layout.warnings(job))?;
        warnings.extend(expected.scratch.as_ref().and_then(ScratchPlan::warning));
        told.end_stage("opening the network and the folders");
        let begin = Instant::now();
        let acquired = Acquired::new(ctx, job, layout, network.as_deref(), Distribution::Both)?;
        warnings.extend(acquired.doubt.clone());
        let found = match &mut saving {
            Some(saving) => saving.resume(ctx, job, &acquired, told)?,
            None => None,
        };
        if job.solver.needs_norm() {
            told.detail(
                "the norm of the operators, from which the step follows, is estimated first",
            );
        }
        let mut prepared = Prepared::new(ctx, job, acquired, network, found.as_ref())?;
        let preparation = begin.elapsed().as_secs_f64();
        // What is refused is not warned of.
        for warning in &warnings {
            told.warn(warning);
        }
        let resumed_from = found.as_ref().map(|state| state.iteration);
        let state =
            found.or(prepared.start.take()).expect("a run that resumes nothing has a start");
        told.end_stage("preparing operators, measurements and method");
        let ready = Self {
            prepared,
            state,
            resumed_from,
            saving,
            facts,
            shape,
            operators,
            devices,
            preparation,
            scratch,
            _output: output,
        };
        Ok((settled, ready))
    }

    fn run(self, ctx: &Context, job: &Job, told: &mut Told<'_>) -> haloscope::Result<Outcome> {
        let Self { mut prepared, state, resumed_from, mut saving, facts, operators, .. } = self;
        let iterations = prepared.stopping.iterations;
        told.event(Event::Started { shape: &self.shape, operators, iterations, resumed_from });
        for note in &prepared.notes {
            told.note(note);
        }
        write_responses(ctx, job, &prepared)?;
        let iterated = iterate(ctx, &prepared, state, saving.as_mut(), told)?;
        told.end_stage("iterating");
        let statistics = ctx.comm().gather_statistics()?;
        let records = gather_records(ctx, &iterated.records)?;
        let Iterated { state, reason, seconds, qualities, stopped, is_cut_short, saved, .. } =
            iterated;
        let is_direct = job.solver.method.is_direct();
        let mut outcome = Outcome {
            job: job.name.clone(),
            method: job.solver.name,
            prior: job.prior.describe(),
            ending: match stopped {
                Some(number) => Ending::Stopped(number),
                None if is_direct => Ending::Direct,
                None => Ending::Rule(reason),
            },
            resumed_from,
            seconds: if is_direct { self.preparation } else { seconds },
            records,
            qualities,
            before: prepared.before.take(),
            before_quality: None,
            quality: None,
            truth: prepared.truth.take(),
            operators,
            devices: self.devices,
            bytes_moved: statistics.iter().map(|costs| costs.total().bytes_sent).sum(),
            bits: format!("{:016x}", state.image.digest()?),
            depends_on_ranks: job.prior.depends_on_ranks(),
            files: Vec::new(),
            pictures: Vec::new(),
            page: None,
            checkpoints: saved,
            facts,
            clamp: job.output.clamp,
            state,
        };
        if stopped.is_some() {
            return Ok(outcome);
        }
        let written = match outcome.state.image.layout().clone() {
            haloscope::image::Layout::Replicated => {
                agree_on_root(ctx, || write(job, &prepared, &mut outcome, told)).map(drop)
            }
            haloscope::image::Layout::Sharded(space) => {
                write_parts(&space, job, &prepared, &mut outcome, told)
            }
        };
        if let Err(error) = written {
            return Err(match &mut saving {
                Some(saving) => saving.rescue(ctx, &outcome.state, error),
                None => error,
            });
        }
        told.end_stage("writing the result");
        if let Some(scratch) = &self.scratch {
            let peak = size(scratch.usage().peak);
            told.detail(&format!("the files of the scratch folder had {peak} at most"));
        }
        if let Some(saving) = saving.as_mut().filter(|_| ctx.is_root() && !is_cut_short) {
            saving.finish();
        }
        Ok(outcome)
    }
}

/// What the job will take, if it fits on this machine; all ranks agree on it.
fn expect(
    ctx: &Context,
    job: &Job,
    layout: &Layout,
    network: Option<&NetworkDenoiser>,
) -> haloscope::Result<Expected> {
    let (here, processes) = (ctx.local_size(), ctx.local_size() / ctx.process_size());
    let expected = Expected::of(job, layout, ctx.size(), network)
        .and_then(|expected| expected.in_scratch(job, layout, network, here, processes));
    agree(ctx, expected.and_then(|expected| expected.check(here, processes).map(|()| expected)))
}

/// Compares the image with the truth, writes its files, pictures and page, and lets the observer write what it wants.
fn write(
    job: &Job,
    prepared: &Prepared,
    outcome: &mut Outcome,
    told: &mut Told<'_>,
) -> haloscope::Result<()> {
    let image = outcome.written();
    let mut files = Vec::new();
    for file in &job.output.files {
        if is_picture(file) {
            write_picture(file, &image, job.output.contrast, told)?;
        } else {
            io::write(file, &image, &prepared.placement.write_options())?;
        }
        files.push(file.clone());
    }
    let truth = outcome.truth.as_ref();
    let of = |image: &Array| truth.map(|truth| Quality::of(image, &truth.image, truth.range));
    let quality = of(&image).transpose()?;
    let before = outcome.before.as_ref().and_then(|before| of(&before.image)).transpose()?;
    (outcome.files, outcome.quality, outcome.before_quality) = (files, quality, before);
    if let Some(folder) = &job.output.folder {
        report::write(folder, job, outcome)?;
    }
    told.observer.conclude(outcome)
}

/// Writes what the operators alone make of the data, and of a point in the middle, in units in which a point is as bright as it is.
/// All ranks call it.
fn write_responses(ctx: &Context, job: &Job, prepared: &Prepared) -> haloscope::Result<()> {
    let (dirty, spread) = (&job.output.dirty, &job.output.point_spread);
    if dirty.is_none() && spread.is_none() {
        return Ok(());
    }
    let back = prepared.problem.adjoint()?.into_whole()?;
    let middle: Vec<usize> = (back.shape().iter().enumerate())
        .map(|(axis, side)| if axis < 2 { 0 } else { side / 2 })
        .collect();
    let mut point = Array::zeros(back.raw_dim());
    point[&middle[..]] = 1.0;
    let response = prepared.problem.normal(&point.into())?.into_whole()?;
    let peak = response[&middle[..]];
    let scale = if peak > 0.0 { 1.0 / peak } else { 1.0 };
    agree_on_root(ctx, || {
        let options = prepared.placement.write_options();
        for (file, image) in [(dirty, back), (spread, response)] {
            if let Some(file) = file {
                io::write(file, &image.mapv_into(|value| value * scale), &options)?;
            }
        }
        Ok(())
    })
    .map(drop)
}

/// Compares an image in shards with the truth, and writes its files: each rank its part. All ranks call it.
fn write_parts(
    space: &Space,
    job: &Job,
    prepared: &Prepared,
    outcome: &mut Outcome,
    told: &mut Told<'_>,
) -> haloscope::Result<()> {
    let ctx = space.context();
    let clamped = outcome.clamp.map(|range| {
        let mut image = outcome.state.image.clone();
        image.clamp(Some(range));
        image
    });
    let image = clamped.as_ref().unwrap_or(&outcome.state.image);
    if let Some((truth, range)) = &prepared.truth_part {
        outcome.quality = Some(Quality::of_parts(image, truth, *range)?);
    }
    let regions = spatial_regions(space);
    for file in &job.output.files {
        let contrast = job.output.contrast.filter(|_| is_picture(file));
        if is_picture(file) {
            let clipped = Clipped::of_parts(ctx, image.local(), contrast.unwrap_or(UNIT))?;
            warn_of_picture(file, clipped, image.extremes()?, contrast, told);
        }
        let shown = contrast.map(|contrast| with_contrast(image.local(), contrast));
        let options = if is_picture(file) {
            io::WriteOptions::default()
        } else {
            prepared.placement.write_options()
        };
        let part = shown.as_ref().unwrap_or(image.local());
        io::write_sharded(ctx, file, space.whole(), &options, &regions, Some(part))?;
        outcome.files.push(file.clone());
    }
    if job.output.folder.is_some() {
        told.note("the image is in shards, of which no pictures and no report are made");
    }
    agree_on_root(ctx, || told.observer.conclude(outcome)).map(drop)
}

/// Writes the image as a picture, in which values from 0 to 1 are shown unless there is a `contrast`.
fn write_picture(
    path: &Path,
    image: &Array,
    contrast: Option<(f32, f32)>,
    told: &mut Told<'_>,
) -> haloscope::Result<()> {
    let options = io::WriteOptions::default();
    let clipped = Clipped::of(image, contrast.unwrap_or(UNIT));
    warn_of_picture(path, clipped, extremes(image), contrast, told);
    match contrast {
        Some(contrast) => io::write(path, &with_contrast(image, contrast), &options),
        None => io::write(path, image, &options),
    }
}

/// What a picture shows if nobody says so.
const UNIT: (f32, f32) = (0.0, 1.0);

/// Says that a picture does not show the values of an image, which are from `low` to `high`.
fn warn_of_picture(
    path: &Path,
    clipped: Clipped,
    (low, high): (f32, f32),
    contrast: Option<(f32, f32)>,
    told: &mut Told<'_>,
) {
    let name = path.display().to_string();
    let range = contrast.unwrap_or(UNIT);
    let advice = format!(
        "the image has {low:.3} to {high:.3}, and `contrast` in [output] says what is black and white"
    );
    let warning = clipped.warning(&name, range, &advice).or_else(|| {
        // Nothing is cut off, and nothing is to be seen.
        (contrast.is_none() && high < DARK)
            .then(|| format!("{name} shows values from 0 to 1, and all are dark: {advice}"))
    });
    if let Some(warning) = warning {
        told.warn(&warning);
    }
}

/// The image with the first value at 0 and the second at 1.
pub(crate) fn with_contrast(image: &Array, (black, white): (f32, f32)) -> Array {
    image.mapv(|value| (value - black) / (white - black).max(f32::MIN_POSITIVE))
}
