//! A file whose network is planned, and its run.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haloscope::denoise::{Averaged, Axes, Denoiser, NetworkDenoiser};
use haloscope::memory::{peak_resident_bytes, resident_bytes};
use haloscope::{Array, Error, Result, io};
use haloscope_nn::engine::{EngineOptions, EnginePlan, InstructionSet};
use haloscope_nn::models::{Model, Sigma};
use haloscope_nn::{Shape, Tensor};
use haloscope_scratch::Scratch;
use ndarray::{Axis, Slice};

use super::denoised::DenoisedFile;
use super::picture::Picture;
use super::pieces::{Fit, Pieces};
use super::stream::Stream;
use super::target::Target;
use super::{Deviation, FileDenoising};
use crate::memory::gigabytes;
use crate::models::OpenedModel;
use crate::observer::{Event, Observer};

/// A file that is read as far as needed and whose network is planned, by [`FileDenoising::check`].
pub struct DenoisingPlan {
    denoising: FileDenoising,
    source: Source,
    picture: Picture,
    /// (batch, channel, spatial…).
    shape: Vec<usize>,
    network: NetworkPlan,
    sigma: f32,
    /// What the network would take for the whole image at once.
    whole_bytes: usize,
    /// Where large arrays are, if not in memory.
    pub(super) scratch: Option<Scratch>,
}

/// Where the values come from.
enum Source {
    /// Memory: all pieces, and the network's input of the first.
    Memory(Pieces, Tensor),
    /// Memory: a volume whose slices along all axes are denoised.
    Axes(Box<AllSlices>),
    /// The file, band by band.
    Bands(Box<Stream>, Fit),
}

/// A network that is planned, and what that took.
struct NetworkPlan {
    name: String,
    plan: Arc<dyn EnginePlan>,
    seconds: f64,
    /// What the process held before, without the weights.
    before: Option<u64>,
    note: Option<String>,
    warning: Option<&'static str>,
}

impl fmt::Debug for DenoisingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut plan = f.debug_struct("DenoisingPlan");
        plan.field("denoising", &self.denoising).field("shape", &self.shape);
        plan.field("network", &self.network.name).finish_non_exhaustive()
    }
}

impl DenoisingPlan {
    /// The image is in memory as a whole.
    pub(super) fn in_memory(denoising: &FileDenoising) -> Result<Self> {
        let mut picture = Picture::read(denoising)?;
        let shape = picture.image.array.shape().to_vec();
        io::check_shape(&denoising.output, &shape)?;
        let opened = denoising.open_model(shape[1])?;
        let sigma = denoising.sigma(&picture, &shape, &opened.model, |rows| {
            let rows = picture.image.array.slice_axis(Axis(2), Slice::from(rows));
            Ok(rows.to_owned())
        })?;
        let values = std::mem::take(&mut picture.image.array);
        if denoising.slices != Axes::Axial {
            let values = picture.scale.apply(values);
            let (slices, network) = AllSlices::new(denoising, opened, values, sigma)?;
            let whole_bytes = network.plan.memory().total();
            return Ok(Self {
                denoising: denoising.clone(),
                source: Source::Axes(Box::new(slices)),
                picture,
                shape,
                network,
                sigma,
                whole_bytes,
                scratch: None,
            });
        }
        let pieces = Pieces::new(picture.scale.apply(values), &opened.model)?;
        let input = pieces.input(&opened.model, sigma)?;
        let before = held_without(&opened.model);
        let network = opened.model.network();
        let whole_bytes = opened.engine.bytes(network, input.shape(), &denoising.engine)?;
        let others = 2 * size_of_val(input.values());
        let room = denoising.budget(others).filter(|&budget| whole_bytes > budget);
        let network = NetworkPlan::new(denoising, opened, input.shape(), room, before)?;
        let source = Source::Memory(pieces, input);
        Ok(Self {
            denoising: denoising.clone(),
            source,
            picture,
            shape,
            network,
            sigma,
            whole_bytes,
            scratch: None,
        })
    }

    /// The image is read and written by bands.
    pub(super) fn by_bands(
        denoising: &FileDenoising,
        stream: Stream,
        whole_bytes: usize,
    ) -> Result<Self> {
        let shape = stream.shape().to_vec();
        io::check_shape(&denoising.output, &shape)?;
        let picture = stream.picture(denoising)?;
        let opened = denoising.open_model(shape[1])?;
        let sigma = denoising.sigma(&picture, &shape, &opened.model, |rows| stream.read(rows))?;
        let fit = Fit::new(&shape, &opened.model)?;
        if fit.has_map {
            opened.model.check_level(sigma)?;
        }
        let before = held_without(&opened.model);
        let input = fit.input_shape(&shape[2..])?;
        let room = denoising.budget(0);
        let network = NetworkPlan::new(denoising, opened, &input, room, before)?;
        let source = Source::Bands(Box::new(stream), fit);
        Ok(Self {
            denoising: denoising.clone(),
            source,
            picture,
            shape,
            network,
            sigma,
            whole_bytes,
            scratch: None,
        })
    }

    /// Whether the files are read and written by bands, so that the run can be stopped between them.
    #[must_use]
    pub fn is_by_bands(&self) -> bool {
        matches!(self.source, Source::Bands(..))
    }

    /// The bytes that are in files of a scratch folder at most: rows that the network keeps apart, and an image in memory with its
    /// result and a copy of each.
    pub(super) fn file_bytes(&self) -> usize {
        let copies = if self.is_by_bands() { 0 } else { 4 };
        let images = copies * size_of::<f32>() * self.shape.iter().product::<usize>();
        self.network.plan.memory().apart + images
    }

    /// The floating-point operations of the whole run, which [`Event::Worked`] counts.
    #[must_use]
    pub fn flops(&self) -> f64 {
        let runs = match &self.source {
            Source::Memory(pieces, _) => pieces.count(),
            Source::Axes(slices) => return slices.flops,
            Source::Bands(..) => 1,
        };
        self.network.plan.flops() * runs as f64
    }

    /// Denoises and writes the file; `observer` is told of notes, warnings and work done. If it asks for an end, nothing is
    /// written, and the error is [`Error::Interrupted`].
    pub fn run(self, observer: &mut dyn Observer) -> Result<DenoisedFile> {
        let Self { denoising, source, picture, shape, network, sigma, whole_bytes, scratch } = self;
        if let Some(note) = &network.note {
            observer.event(Event::Note(note));
        }
        if let Some(warning) = network.warning {
            observer.event(Event::Warning(warning));
        }
        let repeats = match &source {
            Source::Memory(pieces, _) => pieces.fit.repeats,
            Source::Axes(_) => 1,
            Source::Bands(_, fit) => fit.repeats,
        };
        if repeats > 1 {
            let warning = format!(
                "{} is for colour images and this one is gray: its noise is the same in all channels, which such networks \
                 remove badly; use a gray one, such as builtin:gray",
                network.name
            );
            observer.event(Event::Warning(&warning));
        }
        let plan = &*network.plan;
        let mut target = picture.target(&denoising.output);
        let by_bands = matches!(source, Source::Bands(..));
        let mut predicted = plan.memory().total();
        let (sigma_used, slices, seconds, measured) = match source {
            Source::Memory(pieces, input) => {
                predicted += size_of::<f32>() * plan.output_shape().count();
                let (scaled, seconds) = denoise(plan, &pieces, input, observer)?;
                // Peaks only grow, so this is the network's as long as nothing before it took more.
                let measured = network.measured();
                let result = target.convert(scaled);
                warn(&target, observer);
                io::write(&denoising.output, &result, &target.options)?;
                (pieces.fit.has_map, pieces.count(), seconds, measured)
            }
            Source::Axes(slices) => {
                predicted = slices.bytes()?;
                let (scaled, seconds) = slices.denoise(sigma, observer)?;
                let measured = network.measured();
                let result = target.convert(scaled);
                warn(&target, observer);
                io::write(&denoising.output, &result, &target.options)?;
                (slices.has_map, slices.count, seconds, measured)
            }
            Source::Bands(stream, fit) => {
                let level = (&picture.scale, sigma);
                let output = &denoising.output;
                let seconds = stream.denoise(plan, &fit, level, &mut target, output, observer)?;
                warn(&target, observer);
                (fit.has_map, 1, seconds, network.measured())
            }
        };
        let pixels: usize = shape.iter().product::<usize>() / shape[1].max(1);
        let (seconds, waves) = (seconds.as_secs_f64(), plan.waves());
        Ok(DenoisedFile {
            input: denoising.input.display().to_string(),
            output: denoising.output.display().to_string(),
            width: shape[shape.len() - 1],
            height: shape[shape.len() - 2],
            channels: shape[1],
            shape,
            slices,
            values: picture.image.describe(),
            black: picture.scale.black,
            white: picture.scale.white,
            sigma,
            sigma_in_units: f64::from(sigma) * picture.scale.range(),
            scale: picture.scale.reason,
            sigma_used,
            sigma_estimated: denoising.deviation == Deviation::Estimated,
            threads: denoising.engine.threads,
            planning_seconds: network.seconds,
            seconds,
            megapixels_per_second: pixels as f64 / 1e6 / seconds,
            waves: waves.map_or(0, |waves| waves.count),
            band_rows: waves.map(|waves| waves.band),
            by_bands,
            memory_whole_bytes: whole_bytes,
            memory_predicted_bytes: predicted,
            memory_measured_bytes: measured,
            scratch_bytes: scratch.map(|scratch| scratch.usage().peak),
            written_as: target.describe(),
            network: network.name,
        })
    }
}

/// An image, and the network that looks at it in several ways.
struct AllSlices {
    values: Array,
    denoiser: Averaged<NetworkDenoiser>,
    /// The operations of all slices, and the steps that they take.
    flops: f64,
    steps: usize,
    /// How many slices there are.
    count: usize,
    /// Whether the network takes the noise level.
    has_map: bool,
}

impl AllSlices {
    fn new(
        denoising: &FileDenoising,
        opened: OpenedModel,
        values: Array,
        sigma: f32,
    ) -> Result<(Self, NetworkPlan)> {
        let warning = InstructionSet::doubt().filter(|_| opened.engine.name() == "cpu");
        let (note, before) = (opened.note.clone(), held_without(&opened.model));
        let begin = Instant::now();
        let has_map = opened.model.sigma() == Sigma::Map;
        if has_map {
            opened.model.check_level(sigma)?;
        }
        let denoiser = opened.into_denoiser(denoising.engine.clone())?;
        let axes = denoising.slices;
        axes.check(&denoiser, values.shape()).map_err(|error| match error {
            Error::Argument { reason, .. } => Error::argument("slices", reason),
            other => other,
        })?;
        let (mut flops, mut steps, mut count) = (0.0, 0, 0);
        for shape in axes.shapes(values.shape()) {
            let plan = denoiser.plan(&shape)?;
            let runs = shape.iter().product::<usize>() / plan.output_shape().count();
            flops += plan.flops() * runs as f64;
            steps += plan.steps().len() * runs;
            count += shape[0] * if shape.len() == 5 { shape[2] } else { 1 };
        }
        let (name, plan) = (denoiser.name().to_owned(), denoiser.plan(values.shape())?);
        let seconds = begin.elapsed().as_secs_f64();
        let network = NetworkPlan { name, plan, seconds, before, note, warning };
        let denoiser = Averaged::new(denoiser, axes);
        let all = Self { values, denoiser, flops, steps, count, has_map };
        let (needed, free) = (all.bytes()?, denoising.budget(0));
        if let Some(free) =
            free.filter(|free| needed > *free && denoising.engine.memory_budget.is_none())
        {
            return Err(Error::Limit {
                file: denoising.input.display().to_string(),
                reason: format!(
                    "to look at it in several ways takes {}, and {} are free; `memory_budget` runs the network in waves, and \
                     slices = \"axial\" looks at it once",
                    gigabytes(needed as u64),
                    gigabytes(free as u64)
                ),
            });
        }
        Ok((all, network))
    }

    /// What the network and the volumes around it take.
    fn bytes(&self) -> Result<usize> {
        let bytes = self.denoiser.memory(self.values.shape())?.unwrap_or(0);
        Ok(bytes + size_of::<f32>() * self.values.len())
    }

    fn denoise(&self, sigma: f32, observer: &mut dyn Observer) -> Result<(Array, Duration)> {
        if observer.stop().is_some() {
            return Err(Error::Interrupted);
        }
        let begin = Instant::now();
        let flops = self.flops / self.steps.max(1) as f64;
        let mut step = |_: &str, _| observer.event(Event::Worked { flops });
        let result = self.denoiser.denoise_observed(&self.values, &sigma.into(), &mut step)?;
        Ok((result, begin.elapsed()))
    }
}

impl NetworkPlan {
    /// For inputs of this shape. `room` is what it may take if nothing is asked for and the whole is too large.
    fn new(
        denoising: &FileDenoising,
        OpenedModel { model, engine, note }: OpenedModel,
        input: &Shape,
        room: Option<usize>,
        before: Option<u64>,
    ) -> Result<Self> {
        let is_cpu = engine.name() == "cpu";
        let warning = InstructionSet::doubt().filter(|_| is_cpu);
        let begin = Instant::now();
        let network = model.into_network();
        let name = network.name().to_owned();
        let options = &denoising.engine;
        let plan = match room {
            // What happens to be free must not change a bit.
            Some(free) if is_cpu && options.memory_budget.is_none() => {
                let options = EngineOptions { memory_budget: Some(free), ..options.clone() };
                engine.plan_waves(&network, input, &options).map_err(|error| Error::Limit {
                    file: denoising.input.display().to_string(),
                    reason: format!(
                        "too little memory is free; `memory_budget` takes more: {error}"
                    ),
                })?
            }
            _ => engine.plan_within(Cow::Owned(network), input, options)?,
        };
        Ok(Self { name, plan, seconds: begin.elapsed().as_secs_f64(), before, note, warning })
    }

    /// What the process took at most beyond what it had before.
    fn measured(&self) -> Option<u64> {
        peak_resident_bytes().zip(self.before).map(|(peak, before)| peak.saturating_sub(before))
    }
}

/// What the process holds, without the weights of a model: its plan has them in a form of its own, in whose place these were.
fn held_without(model: &Model) -> Option<u64> {
    let weights = (model.network().parameters() * size_of::<f32>()) as u64;
    resident_bytes().map(|bytes| bytes.saturating_sub(weights))
}

/// Says what a file could not hold.
fn warn(target: &Target, observer: &mut dyn Observer) {
    if let Some(warning) = target.warning() {
        observer.event(Event::Warning(&warning));
    }
}

/// Runs the plan on all pieces.
fn denoise(
    plan: &dyn EnginePlan,
    pieces: &Pieces,
    first: Tensor,
    observer: &mut dyn Observer,
) -> Result<(Array, Duration)> {
    let mut scratch = plan.scratch();
    let mut input = first.values().to_vec();
    drop(first);
    let mut output = vec![0.0; plan.output_shape().count()];
    let mut result = Array::zeros(pieces.array.raw_dim());
    let begin = Instant::now();
    for index in 0..pieces.count() {
        if observer.stop().is_some() {
            return Err(Error::Interrupted);
        }
        if index > 0 {
            pieces.exchange(index, &mut input);
        }
        plan.run_observed(&input, &mut output, &mut scratch, &mut |step, _| {
            observer.event(Event::Worked { flops: step.flops() });
        })?;
        pieces.store(index, &output, &mut result);
    }
    Ok((result, begin.elapsed()))
}
