//! A network as a denoiser: it is planned for each new shape, and plans are kept.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haloscope_nn::engine::{ENGINES, Engine, EngineOptions, EnginePlan, PlanStep, Scratch};
use haloscope_nn::models::{Model, Sigma};
use haloscope_nn::{Footprint, Shape};
use haloscope_scratch::{done, fetch, piece_bytes};
use ndarray::{ArrayD, IxDyn};

use super::{Denoiser, NoiseLevel, check_finite};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// The plans that are kept: those of a tiled image's full and last batch, and of some other shape.
const KEPT_PLANS: usize = 3;

/// A [`Model`] on an [`Engine`], with the options of its plans.
///
/// Ranks that are threads of one process should share one denoiser (`Arc<NetworkDenoiser>` is a denoiser too, and
/// [`Context::share`](haloscope_comm::Context::share) hands it out): weights and plans exist once then, and each run has
/// memory of its own.
///
/// A gray model denoises the channels of a colour image one by one, and one of two dimensions the slices
/// of a volume.
///
/// With a memory budget, images of which the whole would take more are denoised in
/// [waves](haloscope_nn::engine::Engine::plan_waves), which have the same bits, if these fit.
///
/// ```
/// use haloscope::denoise::{Denoiser, NetworkDenoiser};
/// use haloscope_nn::models::{Architecture, Fdncnn};
///
/// let model = Fdncnn { depth: 3, channels: 8, ..Fdncnn::default() }.random(1)?;
/// let denoiser = NetworkDenoiser::new(model, haloscope_nn::engine::EngineOptions::default())?;
/// let image = ndarray::ArrayD::ones(vec![2, 3, 16, 24]);
/// assert_eq!(denoiser.denoise(&image, &0.1.into())?.shape(), [2, 3, 16, 24]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub struct NetworkDenoiser {
    model: Model,
    engine: Arc<dyn Engine>,
    options: EngineOptions,
    alignment: usize,
    /// The most recent last.
    planned: Mutex<Vec<Planned>>,
}

/// A plan with scratch memory that is not in use.
#[derive(Clone)]
struct Planned {
    plan: Arc<dyn EnginePlan>,
    idle: Arc<Mutex<Vec<Scratch>>>,
}

impl NetworkDenoiser {
    /// A denoiser with this model on the first of [`ENGINES`]; `options` are those of all its plans.
    pub fn new(model: Model, options: EngineOptions) -> Result<Self> {
        let (_, engine) = ENGINES[0];
        Self::with_engine(model, engine(), options)
    }

    /// A denoiser with this model on an engine; `options` are those of all its plans.
    pub fn with_engine(
        model: Model,
        engine: Arc<dyn Engine>,
        options: EngineOptions,
    ) -> Result<Self> {
        let alignment =
            Footprint::of(model.network())?.alignment.iter().copied().max().unwrap_or(1);
        Ok(Self { model, engine, options, alignment, planned: Mutex::default() })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The sides of the only images that the network takes at once, if it takes no others: tiles should have them.
    #[must_use]
    pub fn fixed_sides(&self) -> Option<&[usize]> {
        self.model.network().foreign()?.fixed_sides()
    }

    /// What its plans are made with.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// The name of its engine.
    #[must_use]
    pub fn engine_name(&self) -> &str {
        self.engine.name()
    }

    /// Where its engine computes, in a few words.
    #[must_use]
    pub fn device(&self) -> String {
        self.engine.device()
    }

    /// What the bits of its results depend on beside the model and the image; see [`Engine::kind`].
    #[must_use]
    pub fn engine_kind(&self) -> String {
        self.engine.kind()
    }

    /// The plan of one run for images of this shape, (batch, channel, spatial…), which the model
    /// accepts.
    pub fn plan(&self, image: &[usize]) -> Result<Arc<dyn EnginePlan>> {
        Ok(self.planned(&self.input_shape(image)?)?.plan)
    }

    /// Refuses an image that is none, and levels that the network was not made for.
    pub fn check(&self, image: &View, level: &NoiseLevel) -> Result<()> {
        level.check(image.shape())?;
        check_finite("denoise", image)?;
        for level in level.extremes() {
            self.model.check_level(level)?;
        }
        self.input_shape(image.shape())?;
        Ok(())
    }

    /// What plans are made with.
    pub(super) fn engine(&self) -> (&dyn Engine, &EngineOptions) {
        (&*self.engine, &self.options)
    }

    /// How runs on inputs of this shape make up an image.
    pub(super) fn members(&self, shape: Shape) -> Members {
        let has_map = self.model.sigma() == Sigma::Map;
        Members { shape, channels: self.model.image_channels(), has_map }
    }

    /// The shape of the network's input: the batch, or one channel or slice of one image.
    pub(super) fn input_shape(&self, image: &[usize]) -> Result<Shape> {
        let (channels, rank) = (self.model.image_channels(), self.model.network().rank());
        let is_whole = image.len() == 2 + rank && image[1] == channels;
        let is_cut = image.len() >= 2 + rank && channels == 1;
        if !(is_whole || is_cut) || image.contains(&0) {
            return Err(Error::Shape {
                what: format!("the image of {}", self.name()),
                expected: format!(
                    "(batch, {channels}, {}) is expected",
                    if rank == 2 { "height, width" } else { "depth, height, width" }
                ),
                found: image.to_vec(),
            });
        }
        let batch = if is_whole { image[0] } else { 1 };
        let mut sizes = vec![batch, channels + usize::from(self.model.sigma() == Sigma::Map)];
        sizes.extend_from_slice(&image[image.len() - rank..]);
        Ok(Shape::new(sizes)?)
    }

    fn planned(&self, shape: &Shape) -> Result<Planned> {
        let mut plans = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plans.iter().position(|planned| planned.plan.input_shape() == shape);
        let planned = if let Some(index) = found {
            plans.remove(index)
        } else {
            let network = Cow::Borrowed(self.model.network());
            let plan = self.engine.plan_within(network, shape, &self.options)?;
            Planned { plan, idle: Arc::default() }
        };
        if plans.len() == KEPT_PLANS {
            plans.remove(0);
        }
        plans.push(planned.clone());
        Ok(planned)
    }
}

impl Denoiser for NetworkDenoiser {
    fn name(&self) -> &str {
        self.model.network().name()
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        self.denoise_observed(image, level, &mut |_, _| ())
    }

    fn denoise_observed(
        &self,
        image: &View,
        level: &NoiseLevel,
        observe: &mut dyn FnMut(&str, Duration),
    ) -> Result<Array> {
        self.check(image, level)?;
        let shape = self.input_shape(image.shape())?;
        let Planned { plan, idle } = self.planned(&shape)?;
        let lock = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().pop();
        let mut scratch = taken.unwrap_or_else(|| plan.scratch());
        let mut step = |step: &PlanStep, length| observe(step.name(), length);
        let result = self.members(shape).run(image, level, |input, output| {
            Ok(plan.run_observed(input, output, &mut scratch, &mut step)?)
        })?;
        lock().push(scratch);
        Ok(result)
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn sides(&self) -> Option<usize> {
        Some(self.model.network().rank())
    }

    fn memory(&self, shape: &[usize]) -> Result<Option<usize>> {
        Ok(Some(self.plan(shape)?.memory().total()))
    }

    fn network(&self) -> Option<&NetworkDenoiser> {
        Some(self)
    }
}

/// How the inputs of a network make up an image: batches of whole images, or one channel or slice after the other.
pub(super) struct Members {
    /// The shape of the network's input.
    shape: Shape,
    /// The channels of the image that it takes.
    channels: usize,
    /// Whether it takes a map of the noise, too.
    has_map: bool,
}

impl Members {
    /// Calls `run` with one input after the other, and puts the outputs together.
    pub(super) fn run(
        &self,
        image: &View,
        level: &NoiseLevel,
        mut run: impl FnMut(&[f32], &mut [f32]) -> Result<()>,
    ) -> Result<Array> {
        let pixels: usize = self.shape.spatial().iter().product();
        let member = self.channels * pixels;
        let members = image.len() / member;
        let parts = members / image.shape()[0];
        let values = image.as_standard_layout();
        let values = values.as_slice().expect("standard layout");
        let mut output = vec![0.0; values.len()];
        let mut input = Vec::with_capacity(self.shape.count());
        // What lies in a scratch folder is given up behind the slices.
        let together = piece_bytes().map(|bytes| bytes / 8);
        let mut begin = 0;
        for first in (0..members).step_by(self.shape.batch()) {
            input.clear();
            let end = (first + self.shape.batch()) * member;
            fetch(&values[first * member..end]);
            fetch(&output[first * member..end]);
            for index in first..first + self.shape.batch() {
                input.extend_from_slice(&values[index * member..][..member]);
                if self.has_map {
                    level.append_map(index / parts, index % parts, pixels, &mut input);
                }
            }
            run(&input, &mut output[first * member..end])?;
            let is_last = end == values.len();
            if together.is_some_and(|together| is_last || end - begin >= together) {
                done(&values[begin..end]);
                done(&output[begin..end]);
                begin = end;
            }
        }
        Ok(ArrayD::from_shape_vec(IxDyn(image.shape()), output).expect("as many as the image has"))
    }
}

impl fmt::Debug for NetworkDenoiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkDenoiser")
            .field("network", &self.name())
            .field("engine", &self.engine.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use haloscope_nn::models::{Architecture, Fdncnn};

    use super::*;

    fn gray() -> NetworkDenoiser {
        let model = Fdncnn { image_channels: 1, depth: 3, channels: 8, ..Fdncnn::default() };
        NetworkDenoiser::new(model.random(7).expect("a model"), EngineOptions::default())
            .expect("aligned")
    }

    fn ramp(shape: &[usize]) -> Array {
        let mut next = 0.0;
        ArrayD::from_shape_simple_fn(IxDyn(shape), || {
            next = (next * 1.7 + 0.31_f32).fract();
            next
        })
    }

    #[test]
    fn a_gray_network_denoises_channels_and_slices_one_by_one() {
        let denoiser = gray();
        let volume = ramp(&[2, 3, 5, 12, 10]);
        let map = ramp(&[2, 1, 5, 12, 10]);
        let whole = denoiser.denoise(&volume, &NoiseLevel::Map(map.clone())).expect("cut up");
        for (image, channel, slice) in [(0, 0, 0), (0, 2, 4), (1, 1, 3)] {
            let cut = |array: &View, channel: usize| {
                let plane =
                    array.slice(ndarray::s![image..=image, channel..=channel, slice, .., ..]);
                plane.to_owned().into_dyn()
            };
            let level = NoiseLevel::Map(cut(&map, 0));
            let alone = denoiser.denoise(&cut(&volume, channel), &level).expect("one slice");
            assert_eq!(cut(&whole, channel), alone);
        }
    }

    #[test]
    fn levels_of_images_are_maps_that_are_constant() {
        let denoiser = gray();
        let images = ramp(&[2, 1, 9, 16]);
        let mut map = Array::from_elem(IxDyn(&[2, 1, 9, 16]), 0.1);
        map.index_axis_mut(ndarray::Axis(0), 1).fill(0.4);
        let by_image = denoiser.denoise(&images, &NoiseLevel::PerImage(vec![0.1, 0.4]));
        assert_eq!(by_image, denoiser.denoise(&images, &NoiseLevel::Map(map)));
        assert_ne!(by_image, denoiser.denoise(&images, &0.1.into()));
    }

    #[test]
    fn bad_images_and_levels_are_refused() {
        let denoiser = gray();
        let mut image = ramp(&[1, 1, 8, 8]);
        for (level, words) in [(-0.1, "not negative"), (f32::NAN, "finite")] {
            let error =
                denoiser.denoise(&image, &level.into()).expect_err("a bad level").to_string();
            assert!(error.contains(words), "{error}");
        }
        image[[0, 0, 3, 3]] = f32::INFINITY;
        let error = denoiser.denoise(&image, &0.1.into()).expect_err("infinite").to_string();
        assert!(error.contains("element 27"), "{error}");
        let error =
            denoiser.denoise(&ramp(&[8, 8]), &0.1.into()).expect_err("no batch").to_string();
        assert!(error.contains("(batch, 1, height, width)"), "{error}");
    }
}
