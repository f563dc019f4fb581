//! A network as a prior: the keys of `[prior]` that describe it, its tiles and its device.

use std::sync::Arc;

use haloscope::denoise::{Averaged, Axes, Denoiser, NetworkDenoiser};
use haloscope::distribute::{ShardedNetwork, distribute_with};
use haloscope::image::Space;
use haloscope::solve::{Plug, PriorForms, Range, Stretch};
use haloscope::tiling::{Batch, Border, Extent, Overlap, Patch, Shards, Strategy, Tiling};
use haloscope::{Error, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::{Accuracy, EngineOptions};
use haloscope_nn::models::{Model, ModelName};
use haloscope_onnx::FileOptions;
use toml::de::DeValue;

use super::scale::Scale;
use crate::device::DeviceChoice;
use crate::document::{Place, Section, Value};
use crate::models::{ModelOptions, OpenedModel};
use crate::shards::Grid;
use crate::template;
use crate::words::count;

/// A network as a prior.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPlan {
    place: Place,
    /// The path of a file, or the name of a model that the command knows.
    pub model: String,
    pub(super) level: Level,
    pub(super) scale: Scale,
    pub(super) stretch: Option<Stretch>,
    pub(super) patch: Option<PatchLength>,
    overlap: Option<Vec<usize>>,
    pub(super) strategy: Strategy,
    border: Border,
    batch: Option<usize>,
    /// A key that describes tiles, and where it is.
    tiled: Option<(&'static str, Place)>,
    /// The parts of an exact network along each side, of which `[prior]` says so only in older jobs.
    pub(super) grid: Option<Grid>,
    /// The most bytes that an exact network may take on a rank.
    memory_budget: Option<usize>,
    accuracy: Accuracy,
    /// What is said of an ONNX file.
    file: FileOptions,
    /// The slices of a volume that a network of pictures sees.
    pub axes: Axes,
    axes_place: Place,
    pub(super) device: DeviceChoice,
}

/// A noise level that a denoiser is told, and where the job says so.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub place: Place,
    pub sigma: f32,
}

#[derive(Clone, Debug)]
pub(super) enum PatchLength {
    Standard,
    Auto,
    Pixels(Vec<usize>),
}

impl<'a> Value<'a> for PatchLength {
    fn expected() -> String {
        "a number of pixels, one for each side, \"standard\" or \"auto\"".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value.as_str() {
            Some("standard") => Some(Self::Standard),
            Some("auto") => Some(Self::Auto),
            Some(_) => None,
            None => Vec::of(value).map(Self::Pixels),
        }
    }
}

/// A network on one rank.
pub(crate) struct Opened {
    pub denoiser: NetworkDenoiser,
    /// Which device runs it and why, where that was left open.
    pub note: Option<String>,
}

/// Refuses a key of tiles beside what leaves none.
fn refuse_tiles(key: &str, place: &Place) -> Error {
    place.refuse(format!("`{key}` is given; an exact denoiser has no tiles: leave it out"))
}

impl NetworkPlan {
    /// Refuses a grid of parts beside what asks for tiles.
    pub(super) fn check_grid(&self, grid: &Grid) -> Result<()> {
        match (self.strategy, &self.tiled) {
            (Strategy::Exact, _) | (Strategy::Standard, None) => Ok(()),
            (Strategy::Standard, Some((key, place))) => Err(refuse_tiles(key, place)),
            _ => Err(grid.place.refuse(
                "`shards` are given; they are the parts of an exact denoiser: leave them or `strategy` out",
            )),
        }
    }

    pub(super) fn read(section: &Section) -> Result<Self> {
        let strategies = [
            ("standard", Strategy::Standard),
            ("exact", Strategy::Exact),
            ("overlap", Strategy::Overlap),
            ("blend", Strategy::Blend),
            ("basic", Strategy::Basic),
        ];
        let borders = [
            ("reflect", Border::Reflect),
            ("replicate", Border::Replicate),
            ("circular", Border::Circular),
            ("zero", Border::Zero),
            ("inside", Border::Inside),
        ];
        let accuracies = [("fast", Accuracy::Fast), ("strict", Accuracy::Strict)];
        let strategy = section.choose("strategy", &strategies)?.unwrap_or_default();
        let tiled =
            ["patch", "overlap", "border", "batch"].into_iter().find(|key| section.has(key));
        let memory_budget = section.count("memory_budget")?;
        let tiled = tiled.map(|key| (key, section.place_of(key)));
        if let (Strategy::Exact, Some((key, place))) = (strategy, &tiled) {
            return Err(refuse_tiles(key, place));
        }
        let is_tiled = !matches!(strategy, Strategy::Standard | Strategy::Exact);
        if memory_budget.is_some() && (is_tiled || tiled.is_some()) {
            return Err(section.place_of("memory_budget").refuse(
                "`memory_budget` is given; it is for an exact denoiser, and tiles are asked for: leave it out, and take a \
                 smaller `patch` or `batch`",
            ));
        }
        let grid = Grid::read(section)?;
        if grid.is_some() {
            section.notice(
                "shards",
                "`shards` stand beside `image` now, before the first section, whichever layout the image has",
            );
        }
        let name = section.require::<&str>("model")?;
        // A file next to the job file goes before a name that the command knows.
        let beside = section.path("model")?.filter(|path| path.exists());
        let stretch = read_stretch(section)?;
        // What the network is told does not depend on the stretch unless the job says so.
        let usual = 0.05 / stretch.map_or(1.0, |stretch| stretch.slope());
        Ok(Self {
            place: section.place_of("model"),
            model: beside.map_or_else(|| name.to_owned(), |path| path.display().to_string()),
            level: Level {
                place: section.place_of("sigma"),
                sigma: section.not_negative("sigma")?.unwrap_or(usual) as f32,
            },
            scale: Scale::read(section)?,
            stretch,
            patch: section.get("patch")?,
            overlap: section.get("overlap")?,
            strategy,
            border: section.choose("border", &borders)?.unwrap_or_default(),
            batch: section.count("batch")?,
            tiled,
            grid,
            memory_budget,
            accuracy: section.choose("accuracy", &accuracies)?.unwrap_or(Accuracy::Fast),
            file: section.section("onnx", read_file_options)?.unwrap_or_default(),
            axes: section.choose("axes", &Axes::NAMES)?.unwrap_or_default(),
            axes_place: section.place_of("axes"),
            device: read_device(section)?,
        })
    }

    pub(super) fn open(
        &self,
        threads: usize,
        image: &[usize],
        local_rank: usize,
    ) -> Result<Opened> {
        let opened = self.opened(image, local_rank)?;
        let note = opened.note.clone();
        let (accuracy, memory_budget) = (self.accuracy, self.memory_budget);
        let options =
            EngineOptions { threads, accuracy, memory_budget, ..EngineOptions::default() };
        Ok(Opened { denoiser: opened.into_denoiser(options)?, note })
    }

    /// Random weights are for whatever the image is; others know their channels and sides themselves.
    fn opened(&self, image: &[usize], local_rank: usize) -> Result<OpenedModel> {
        let options = ModelOptions { file: self.file.clone(), device: self.device, local_rank };
        ModelName::in_job(&self.model)
            .map_err(Error::from)
            .and_then(|name| OpenedModel::open(&name, image[1], image.len() - 2, &options))
            .map_err(|error| self.place.refuse(error))
    }

    /// The prior on all ranks, for images that are in shards if they have a space.
    pub(super) fn build(
        &self,
        ctx: &Context,
        denoiser: Arc<NetworkDenoiser>,
        scale: Option<(f32, f32)>,
        clamp: Option<(f32, f32)>,
        space: Option<&Arc<Space>>,
    ) -> Result<PriorForms> {
        let shared: Arc<dyn Denoiser> = if let Some(space) = space {
            Arc::new(ShardedNetwork::new(denoiser, space)?)
        } else {
            let dealt = distribute_with(denoiser, ctx, self.tiling())?;
            match self.axes {
                Axes::Axial => Arc::new(dealt),
                axes => Arc::new(Averaged::new(dealt, axes)),
            }
        };
        let range = Range::of(clamp, self.scale == Scale::Range);
        let mut plug = Plug::new(shared, self.level.sigma).range(range);
        if let Some(stretch) = self.stretch {
            plug = plug.stretch(stretch);
        }
        Ok(PriorForms::denoiser(match scale {
            Some((black, white)) => plug.scale(black, white)?,
            None => plug,
        }))
    }

    /// Refuses a network that does not take such images.
    pub(super) fn check_image(&self, denoiser: &NetworkDenoiser, image: &[usize]) -> Result<()> {
        let (channels, rank) =
            (denoiser.model().image_channels(), denoiser.model().network().rank());
        let fits_whole = image.len() == rank + 2 && image[1] == channels;
        if fits_whole || channels == 1 && image.len() >= rank + 2 {
            self.axes.check(denoiser, image).map_err(|error| self.axes_place.refuse(error))?;
            return self.check_budget(denoiser, image);
        }
        let advice = match image {
            _ if cfg!(not(feature = "builtin")) => "",
            [_, 3, _, _] => "; model = \"builtin:color\" takes this one",
            [_, _, _, _, ..] => "; model = \"builtin:gray\" takes this one",
            _ => "",
        };
        Err(self.place.refuse(Error::Shape {
            what: "the image".into(),
            expected: format!(
                "{} takes images of {} and {}{advice}",
                denoiser.name(),
                count(channels, "channel"),
                count(rank, "side")
            ),
            found: image.to_vec(),
        }))
    }

    /// Refuses a memory budget for tiles, whose bits it could change.
    fn check_budget(&self, denoiser: &NetworkDenoiser, image: &[usize]) -> Result<()> {
        if self.memory_budget.is_none() {
            return Ok(());
        }
        let choice = self.tiling().choose(image, denoiser)?;
        if choice.is_exact() {
            return Ok(());
        }
        Err(self.place.refuse(format!(
            "`memory_budget` is given; it is for an exact denoiser, and this one has tiles, because {}: leave it out",
            choice.reason
        )))
    }

    /// What the network itself is told of a noise level.
    pub(super) fn told(&self, sigma: f32) -> f32 {
        self.stretch.map_or(sigma, |stretch| (f64::from(sigma) * stretch.slope()) as f32)
    }

    /// Refuses a level that the network was not trained for, in the units of the image.
    pub(super) fn check_level(&self, model: &Model, Level { place, sigma }: &Level) -> Result<()> {
        let told = self.told(*sigma);
        let Err(error) = model.check_level(told) else { return Ok(()) };
        let Some(slope) = self.stretch.map(|stretch| stretch.slope()) else {
            return Err(place.refuse(error));
        };
        let [low, high] = [model.levels().start(), model.levels().end()]
            .map(|level| template::short(f64::from(*level) / slope));
        Err(place.refuse(format!(
            "a noise level of {sigma} is {} after the stretch; {low} to {high} is accepted",
            template::short(f64::from(told))
        )))
    }

    /// The noise level that it is told by methods that have none of their own.
    pub(crate) fn sigma(&self) -> f32 {
        self.level.sigma
    }

    /// A key that asks for tiles, if there is one.
    pub(crate) fn tiling_key(&self) -> Option<&'static str> {
        let is_tiled = !matches!(self.strategy, Strategy::Standard | Strategy::Exact);
        is_tiled.then_some("strategy").or(self.tiled.as_ref().map(|(key, _)| *key))
    }

    /// How images are cut. What the job leaves open is the library's standard, which does not depend on the number of
    /// ranks; [`Tiling::choose`] settles it.
    pub(crate) fn tiling(&self) -> Tiling {
        let patch = match &self.patch {
            None | Some(PatchLength::Standard) => Patch::Standard,
            Some(PatchLength::Auto) => Patch::Auto,
            Some(PatchLength::Pixels(lengths)) => extent(lengths).into(),
        };
        let overlap = self.overlap.as_ref().map_or(Overlap::Standard, |all| extent(all).into());
        let batch = self.batch.map_or_else(Batch::default, Batch::AtMost);
        let (strategy, border) = (self.strategy, self.border);
        let shards = self.grid.as_ref().map_or_else(Shards::default, |grid| grid.shards.clone());
        Tiling { strategy, patch, overlap, axes: None, border, batch, shards }
    }
}

/// `stretch` and `dynamic-range`.
fn read_stretch(section: &Section) -> Result<Option<Stretch>> {
    type Make = fn(f64) -> Result<Stretch>;
    let curves: [(&str, Make); 2] = [("asinh", Stretch::asinh), ("log", Stretch::log)];
    let range = section.get::<f64>("dynamic-range")?;
    let place = section.place_of("dynamic-range");
    match (section.choose("stretch", &curves)?, range) {
        (Some(make), range) => {
            make(range.unwrap_or(1e3)).map(Some).map_err(|error| place.refuse(error))
        }
        (None, Some(_)) => Err(place
            .refuse("it belongs to `stretch`, which is missing: \"asinh\" or \"log\" is expected")),
        (None, None) => Ok(None),
    }
}

/// `device`.
fn read_device(section: &Section) -> Result<DeviceChoice> {
    let Some(text) = section.get::<&str>("device")? else { return Ok(DeviceChoice::default()) };
    text.parse().map_err(|reason: String| section.place_of("device").refuse(reason))
}

/// `[prior.onnx]`.
fn read_file_options(section: &Section) -> Result<FileOptions> {
    let mut options = FileOptions::default();
    for key in FileOptions::KEYS {
        if let Some(Setting(value)) = section.get(key)? {
            options.set(key, &value).map_err(|reason| section.place_of(key).refuse(reason))?;
        }
    }
    Ok(options)
}

/// A word or a number, as text.
struct Setting(String);

impl<'a> Value<'a> for Setting {
    fn expected() -> String {
        "a word in quotes or a number".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        let text = value.as_str().map(str::to_owned);
        text.or_else(|| f64::of(value).map(|number| number.to_string())).map(Self)
    }
}

fn extent(lengths: &[usize]) -> Extent {
    match lengths {
        [same] => Extent::Same(*same),
        each => Extent::PerAxis(each.to_vec()),
    }
}
