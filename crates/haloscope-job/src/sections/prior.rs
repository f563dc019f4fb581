//! The prior of a job: total variation, a denoising network, or none.
//!
//! Bits must not depend on the number of ranks: a network is exact or has tiles of the library's standard lengths, as the
//! image and the network decide, unless the job gives other tiles or asks for ones that suit the ranks.

use std::path::Path;
use std::sync::Arc;

use haloscope::denoise::{Denoiser, NetworkDenoiser, TotalVariation};
use haloscope::distribute::{ShardedNetwork, distribute_with};
use haloscope::image::{Layout, Space};
use haloscope::solve::{self, Plug, PriorForms, Range, TotalVariationPrior};
use haloscope::tiling::{Batch, Border, Extent, Overlap, Patch, Shards, Strategy, Tiling};
use haloscope::{Array, Error, Image, Result};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::{Accuracy, EngineOptions};
use haloscope_nn::models::ModelName;
use haloscope_onnx::FileOptions;
use ndarray::{ArrayD, Dimension};
use toml::de::DeValue;

use crate::device::DeviceChoice;
use crate::document::{Place, Section, Value};
use crate::models::{ModelOptions, OpenedModel};
use crate::shards::Grid;
use crate::words::count;

/// `[prior]`.
#[derive(Clone, Debug)]
pub(crate) struct PriorPlan {
    pub kind: PriorKind,
    /// The range that images are brought back to.
    pub clamp: Option<(f32, f32)>,
}

#[derive(Clone, Debug)]
pub(crate) enum PriorKind {
    None,
    TotalVariation { weight: f64, denoiser: TotalVariation },
    Network(Box<NetworkPlan>),
}

type ReadPrior = fn(&Section) -> Result<PriorKind>;

/// What reads a prior, by what its `kind` says.
pub(crate) const PRIORS: [(&str, ReadPrior); 3] = [
    ("none", |_| Ok(PriorKind::None)),
    ("total-variation", read_total_variation),
    ("network", |section| Ok(PriorKind::Network(Box::new(NetworkPlan::read(section)?)))),
];

fn read_total_variation(section: &Section) -> Result<PriorKind> {
    let standard = TotalVariation::default();
    let denoiser = TotalVariation {
        iterations: section.count("iterations")?.unwrap_or(standard.iterations),
        tolerance: section.not_negative("tolerance")?.unwrap_or(standard.tolerance),
    };
    section.require::<f64>("weight")?;
    let weight = section.not_negative("weight")?.unwrap_or_default();
    Ok(PriorKind::TotalVariation { weight, denoiser })
}

/// A network as a prior.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPlan {
    place: Place,
    /// The path of a file, or the name of a model that the command knows.
    pub model: String,
    level: Level,
    scale: Scale,
    patch: Option<PatchLength>,
    overlap: Option<Vec<usize>>,
    strategy: Strategy,
    border: Border,
    batch: Option<usize>,
    /// A key that describes tiles, and where it is.
    tiled: Option<(&'static str, Place)>,
    /// The parts of an exact network along each side, of which `[prior]` says so only in older jobs.
    grid: Option<Grid>,
    /// The most bytes that an exact network may take on a rank.
    memory_budget: Option<usize>,
    accuracy: Accuracy,
    /// What is said of an ONNX file.
    file: FileOptions,
    device: DeviceChoice,
}

/// What a network takes for black and white.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// 0 and 1, if the image to begin with is about there, else what suits it.
    Auto,
    /// The extremes of the image, anew in every iteration.
    Range,
    Given(f32, f32),
}

impl<'a> Value<'a> for Scale {
    fn expected() -> String {
        "\"auto\", \"range\", the value above 0 that is white, or [black, white]".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value.as_str() {
            Some("auto") => return Some(Self::Auto),
            Some("range") => return Some(Self::Range),
            _ => (),
        }
        let (black, white) = match Vec::<f64>::of(value)?[..] {
            [white] => (0.0, white as f32),
            [black, white] => (black as f32, white as f32),
            _ => return None,
        };
        (black < white).then_some(Self::Given(black, white))
    }
}

/// A noise level that a denoiser is told, and where the job says so.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub place: Place,
    pub sigma: f32,
}

#[derive(Clone, Debug)]
enum PatchLength {
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

impl Default for PriorPlan {
    fn default() -> Self {
        Self { kind: PriorKind::None, clamp: None }
    }
}

impl PriorPlan {
    pub(crate) fn read(section: &Section) -> Result<Self> {
        let kind = match section.choose("kind", &PRIORS)? {
            Some(read) => read(section)?,
            None => PriorKind::None,
        };
        let clamp = section.bounds("clamp")?.map(|(low, high)| (low as f32, high as f32));
        if let PriorKind::Network(network) = &kind
            && network.scale == Scale::Range
            && clamp.is_some()
        {
            let reason = "`clamp` and `scale = \"range\"` are given; one of them is possible";
            return Err(section.place_of("clamp").refuse(reason));
        }
        Ok(Self { kind, clamp })
    }

    /// The grid that `[prior]` gives, as older jobs do.
    pub(crate) fn take_grid(&mut self) -> Option<Grid> {
        match &mut self.kind {
            PriorKind::Network(network) => network.grid.take(),
            _ => None,
        }
    }

    /// Lets a network work on the parts that the job asks for.
    pub(crate) fn cut_into(&mut self, grid: Option<&Grid>) -> Result<()> {
        if let (PriorKind::Network(network), Some(grid)) = (&mut self.kind, grid) {
            if grid.is_given() {
                network.check_grid(grid)?;
            }
            network.grid = Some(grid.clone());
        }
        Ok(())
    }

    /// Lets a network that has a grid take the one that suits the ranks, and stay exact.
    pub(crate) fn leave_grid_open(&mut self) {
        if let PriorKind::Network(network) = &mut self.kind
            && network.grid.take().is_some_and(|grid| grid.is_given())
        {
            network.strategy = Strategy::Exact;
        }
    }

    /// A few words on it.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            PriorKind::None => "no prior".into(),
            PriorKind::TotalVariation { .. } => "total variation".into(),
            PriorKind::Network(network) => {
                let name = Path::new(&network.model).file_name();
                name.map_or_else(|| network.model.clone(), |name| name.display().to_string())
            }
        }
    }

    /// What it is to a method.
    pub(crate) fn form(&self) -> solve::PriorKind {
        match self.kind {
            PriorKind::None => solve::PriorKind::None,
            PriorKind::TotalVariation { .. } => solve::PriorKind::TotalVariation,
            PriorKind::Network(_) => solve::PriorKind::Network,
        }
    }

    /// Whether images are clamped or scaled around a network.
    pub(crate) fn has_range(&self) -> bool {
        self.clamp.is_some() || self.may_scale()
    }

    /// Whether images may be scaled around a network. One that turns out to be from 0 to 1 is not.
    pub(crate) fn may_scale(&self) -> bool {
        matches!(&self.kind, PriorKind::Network(network)
            if network.scale != Scale::Given(0.0, 1.0))
    }

    /// Whether its bits depend on the number of ranks, because the job asks for tiles that suit them.
    pub(crate) fn depends_on_ranks(&self) -> bool {
        let PriorKind::Network(network) = &self.kind else { return false };
        matches!(network.patch, Some(PatchLength::Auto))
    }

    /// The network on one rank, if it is one, for images of this shape (batch, channel, spatial…) and the levels that
    /// the method tells it, if it has its own.
    pub(crate) fn open(
        &self,
        threads: usize,
        image: &[usize],
        levels: &[Level],
        local_rank: usize,
    ) -> Result<Option<Opened>> {
        let PriorKind::Network(network) = &self.kind else { return Ok(None) };
        let opened = network.open(threads, image, local_rank)?;
        let denoiser = &opened.denoiser;
        network.check_image(denoiser, image)?;
        let own = std::slice::from_ref(&network.level);
        for Level { place, sigma } in if levels.is_empty() { own } else { levels } {
            denoiser.model().check_level(*sigma).map_err(|error| place.refuse(error))?;
        }
        Ok(Some(opened))
    }

    /// Lets a network run on another device.
    pub(crate) fn run_on(&mut self, device: DeviceChoice) {
        if let PriorKind::Network(network) = &mut self.kind {
            network.device = device;
        }
    }

    /// The values that are black and white to a network, for an image to begin with of these [robust extremes](robust_extremes):
    /// those that the job gives, or those that suit it. `None` where there is no network, or where every iteration finds them anew.
    pub(crate) fn scale(
        &self,
        start: impl FnOnce() -> Result<(f32, f32)>,
    ) -> Result<Option<(f32, f32)>> {
        let PriorKind::Network(network) = &self.kind else { return Ok(None) };
        match network.scale {
            Scale::Range => Ok(None),
            Scale::Given(black, white) => Ok(Some((black, white))),
            Scale::Auto => start().map(|extremes| Some(suitable_scale(extremes))),
        }
    }

    /// What the job's author should know of a scale that was found for an image to begin with. Pictures may be dark; scans
    /// have units, and water is 0.2 in one of them.
    pub(crate) fn scale_note(
        &self,
        (black, white): (f32, f32),
        start: impl FnOnce() -> Result<(f32, f32)>,
        is_scan: bool,
    ) -> Result<Option<String>> {
        let PriorKind::Network(network) = &self.kind else { return Ok(None) };
        if network.scale != Scale::Auto {
            return Ok(None);
        }
        if (black, white) == (0.0, 1.0) {
            if !is_scan {
                return Ok(None);
            }
            let (_, greatest) = start()?;
            return Ok((greatest < DIM).then(|| {
                let most = brief(two_digits(greatest));
                format!(
                    "the image has values up to about {most}, which the network takes as they are; if that is its white \
                     in these units, `scale` in [prior] says so: scale = {most}"
                )
            }));
        }
        Ok(Some(format!(
            "networks expect images from 0 to 1, and this one has other values: {} and {} are 0 and 1 to the network; `scale` \
             in [prior] sets others, as in scale = [{}, {}]",
            brief(black),
            brief(white),
            brief(black),
            brief(white)
        )))
    }

    /// What the job's author should know of a range that does not suit the image to begin with.
    pub(crate) fn clamp_note(
        &self,
        start: impl FnOnce() -> Result<(f32, f32)>,
    ) -> Result<Option<String>> {
        let Some((low, high)) = self.clamp else { return Ok(None) };
        let (least, greatest) = start()?;
        let is_cut = greatest - high > 0.5 * (greatest - least).max(high - low)
            || low - least > 0.5 * (greatest - least).max(high - low);
        Ok(is_cut.then(|| {
            format!(
                "`clamp` in [prior] keeps the image from {} to {}, and the starting image goes from about {} to about \
                 {}; give the range of its values, or none: clamp = [0, inf]",
                brief(low),
                brief(high),
                brief(least),
                brief(greatest)
            )
        }))
    }

    /// The prior on all ranks, with what `open` and `scale` returned, for images that are in shards if they have a space.
    pub(crate) fn build(
        &self,
        ctx: &Context,
        denoiser: Option<Arc<NetworkDenoiser>>,
        scale: Option<(f32, f32)>,
        space: Option<&Arc<Space>>,
    ) -> Result<PriorForms> {
        match (&self.kind, denoiser) {
            (PriorKind::TotalVariation { weight, denoiser }, _) => {
                let prior = TotalVariationPrior { weight: *weight, denoiser: *denoiser };
                PriorForms::total_variation(prior, self.clamp, ctx)
            }
            (PriorKind::Network(network), Some(denoiser)) => {
                let shared: Arc<dyn Denoiser> = match space {
                    Some(space) => Arc::new(ShardedNetwork::new(denoiser, space)?),
                    None => Arc::new(distribute_with(denoiser, ctx, network.tiling())?),
                };
                let range = Range::of(self.clamp, network.scale == Scale::Range);
                let plug = Plug::new(shared, network.level.sigma).range(range);
                Ok(PriorForms::denoiser(match scale {
                    Some((black, white)) => plug.scale(black, white)?,
                    None => plug,
                }))
            }
            _ => Ok(PriorForms::none(self.clamp)),
        }
    }
}

/// Refuses a key of tiles beside what leaves none.
fn refuse_tiles(key: &str, place: &Place) -> Error {
    place.refuse(format!("`{key}` is given; an exact denoiser has no tiles: leave it out"))
}

impl NetworkPlan {
    /// Refuses a grid of parts beside what asks for tiles.
    fn check_grid(&self, grid: &Grid) -> Result<()> {
        match (self.strategy, &self.tiled) {
            (Strategy::Exact, _) | (Strategy::Standard, None) => Ok(()),
            (Strategy::Standard, Some((key, place))) => Err(refuse_tiles(key, place)),
            _ => Err(grid.place.refuse(
                "`shards` are given; they are the parts of an exact denoiser: leave them or `strategy` out",
            )),
        }
    }

    fn read(section: &Section) -> Result<Self> {
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
        Ok(Self {
            place: section.place_of("model"),
            model: beside.map_or_else(|| name.to_owned(), |path| path.display().to_string()),
            level: Level {
                place: section.place_of("sigma"),
                sigma: section.not_negative("sigma")?.unwrap_or(0.05) as f32,
            },
            scale: read_scale(section)?,
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
            device: read_device(section)?,
        })
    }

    fn open(&self, threads: usize, image: &[usize], local_rank: usize) -> Result<Opened> {
        let opened = self.opened(image, local_rank)?;
        let note = opened.note.clone();
        let (accuracy, memory_budget) = (self.accuracy, self.memory_budget);
        let options = EngineOptions { threads, accuracy, memory_budget };
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

    /// Refuses a network that does not take such images.
    fn check_image(&self, denoiser: &NetworkDenoiser, image: &[usize]) -> Result<()> {
        let (channels, rank) =
            (denoiser.model().image_channels(), denoiser.model().network().rank());
        let fits_whole = image.len() == rank + 2 && image[1] == channels;
        if fits_whole || channels == 1 && image.len() >= rank + 2 {
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

/// `scale`, or what it was called before.
fn read_scale(section: &Section) -> Result<Scale> {
    let scale = section.get("scale")?;
    let Some(normalise) = section.get::<bool>("normalise")? else {
        return Ok(scale.unwrap_or(Scale::Auto));
    };
    if scale.is_some() {
        let reason = "`scale` and its old name `normalise` are given; `scale` is expected";
        return Err(section.place_of("normalise").refuse(reason));
    }
    let (scale, words) =
        if normalise { (Scale::Range, "\"range\"") } else { (Scale::Given(0.0, 1.0), "1") };
    section.notice(
        "normalise",
        format!("`normalise` of a prior is called `scale` now; write scale = {words}"),
    );
    Ok(scale)
}

/// The values that should be 0 and 1 to a network: just these for images that are about there, else about the least and the
/// greatest value; 0 stays black where it may.
fn suitable_scale((least, greatest): (f32, f32)) -> (f32, f32) {
    let is_picture = least >= -0.3 && (0.2..=1.7).contains(&greatest);
    let width = greatest - least;
    // A flat image says nothing.
    if is_picture || !(width.is_finite() && width > 0.0) {
        return (0.0, 1.0);
    }
    let black = if greatest > 0.0 && (-0.3 * greatest..=0.5 * greatest).contains(&least) {
        0.0
    } else {
        least
    };
    (two_digits(black), two_digits(greatest))
}

/// A scan whose values are below this may be in units in which 1 means nothing.
const DIM: f32 = 0.6;

/// About the least and the greatest value, without what few pixels or noise add: percentiles of means over blocks.
///
/// All ranks that share the image call it. The means, which are a sixteenth of a picture, come together on all of them.
pub(crate) fn robust_extremes(image: &Image) -> Result<(f32, f32)> {
    let mut means = block_means(image.local());
    if let Layout::Sharded(space) = image.layout() {
        means = space.context().comm().all_gather(&means)?.concat();
    }
    means.sort_unstable_by(f32::total_cmp);
    let tail = (TAIL * means.len() as f64) as usize;
    let greatest = means.len().checked_sub(tail + 1).and_then(|at| means.get(at));
    Ok(match (means.get(tail), greatest) {
        (Some(least), Some(greatest)) => (*least, *greatest),
        _ => (0.0, 0.0),
    })
}

/// Pixels along each side of a block.
pub(crate) const BLOCK: usize = 4;

/// What is left out of the means at either end.
const TAIL: f64 = 0.005;

fn block_means(image: &Array) -> Vec<f32> {
    let shape = image.shape();
    let blocks: Vec<usize> = shape
        .iter()
        .enumerate()
        .map(|(axis, side)| if axis < 2 { *side } else { side.div_ceil(BLOCK) })
        .collect();
    let mut sums = ArrayD::<f64>::zeros(blocks.clone());
    let mut counts = ArrayD::<u32>::zeros(blocks);
    let mut place = [0; 8];
    for (at, value) in image.indexed_iter() {
        let axes = at.ndim().min(place.len());
        for axis in 0..axes {
            place[axis] = if axis < 2 { at[axis] } else { at[axis] / BLOCK };
        }
        sums[&place[..axes]] += f64::from(*value);
        counts[&place[..axes]] += 1;
    }
    sums.iter().zip(&counts).map(|(sum, count)| (sum / f64::from(*count)) as f32).collect()
}

/// A value that can be written in a few digits, so that what is printed is what is used.
fn two_digits(value: f32) -> f32 {
    brief(value).parse().unwrap_or(value)
}

fn brief(value: f32) -> String {
    match format!("{value:.1e}").parse::<f32>() {
        Ok(short) => short.to_string(),
        Err(_) => value.to_string(),
    }
}

fn extent(lengths: &[usize]) -> Extent {
    match lengths {
        [same] => Extent::Same(*same),
        each => Extent::PerAxis(each.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extremes(image: Array) -> (f32, f32) {
        robust_extremes(&image.into()).expect("one rank")
    }

    #[test]
    fn pictures_stay_and_other_units_are_scaled_to_them() {
        // Half black, half white, with a bright pixel that is no part of it.
        let image =
            |black: f32, white: f32| {
                let mut image = Array::from_shape_fn(vec![1, 1, 64, 64], |at| {
                    if at[3] < 32 { black } else { white }
                });
                image[[0, 0, 5, 5]] = 100.0 * white;
                suitable_scale(extremes(image))
            };
        for (black, white) in [(0.0, 1.0), (0.0, 0.4), (0.1, 1.2), (-0.2, 0.9), (0.0, 0.0)] {
            assert_eq!(image(black, white), (0.0, 1.0), "{black} {white}");
        }
        assert_eq!(image(0.0, 0.0052), (0.0, 0.0052));
        assert_eq!(image(-0.0001, 0.0052), (0.0, 0.0052));
        assert_eq!(image(0.0, 4096.0), (0.0, 4100.0));
        assert_eq!(image(-1000.0, 2000.0), (-1000.0, 2000.0));
        assert_eq!(image(1000.0, 1100.0), (1000.0, 1100.0));
        assert_eq!(image(-3.0, -2.0), (-3.0, -2.0));
    }

    #[test]
    fn a_range_that_cuts_most_of_an_image_off_is_noted() {
        let plan = |low, high| PriorPlan { clamp: Some((low, high)), ..PriorPlan::default() };
        let image = Array::from_shape_fn(vec![1, 1, 32, 32], |at| at[3] as f32);
        let note = |low, high, image: &Array| {
            plan(low, high).clamp_note(|| Ok(extremes(image.clone()))).expect("extremes")
        };
        assert!(note(0.0, 1.0, &image).is_some_and(|note| note.contains("0 to 1")));
        assert_eq!(note(0.0, 40.0, &image), None);
        assert_eq!(note(0.0, f32::INFINITY, &image), None);
        assert_eq!(note(0.0, 1.0, &(image * 0.001)), None);
    }
}
