//! The prior of a job: total variation, a denoising network, or none.
//!
//! Bits must not depend on the number of ranks: a network is exact or has tiles of the library's standard lengths, as the
//! image and the network decide, unless the job gives other tiles or asks for ones that suit the ranks.

use std::path::Path;
use std::sync::Arc;

use haloscope::denoise::{Denoiser, NetworkDenoiser, TotalVariation};
use haloscope::distribute::{DistributedTotalVariation, ShardedNetwork, distribute_with};
use haloscope::image::{Layout, Space};
use haloscope::solve::{self, Plug, Prior, PriorForms, Range, TotalVariationPrior};
use haloscope::tiling::{Batch, Border, Extent, Overlap, Patch, Shards, Strategy, Tiling};
use haloscope::{Array, Error, Image, Result};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::{Accuracy, EngineOptions};
use haloscope_nn::models::{Model, ModelName};
use ndarray::{ArrayD, Dimension};
use toml::de::DeValue;

use crate::document::{Place, Section, Value};
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
    shards: Option<Grid>,
    accuracy: Accuracy,
}

/// `shards`: the parts of the image along each side.
#[derive(Clone, Debug)]
struct Grid(Shards);

impl<'a> Value<'a> for Grid {
    fn expected() -> String {
        "\"auto\", or the number of parts along each side, as in [2, 2]".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self(Shards::Auto)),
            Some(_) => None,
            None => Vec::of(value).map(|grid| Self(Shards::Grid(grid))),
        }
    }
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

/// The prior of a run, on all ranks.
#[derive(Clone, Debug)]
pub(crate) enum RankedPrior {
    None(Option<(f32, f32)>),
    TotalVariation(TotalVariationPrior<DistributedTotalVariation>, Option<(f32, f32)>),
    Network(Plug),
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
        // An image that turns out to be from 0 to 1 is not scaled; that it may be counts.
        let scales = matches!(&self.kind, PriorKind::Network(network)
            if network.scale != Scale::Given(0.0, 1.0));
        self.clamp.is_some() || scales
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
    ) -> Result<Option<NetworkDenoiser>> {
        let PriorKind::Network(network) = &self.kind else { return Ok(None) };
        let denoiser = network.open(threads, image)?;
        network.check_image(&denoiser, image)?;
        let own = std::slice::from_ref(&network.level);
        for Level { place, sigma } in if levels.is_empty() { own } else { levels } {
            denoiser.model().check_level(*sigma).map_err(|error| place.refuse(error))?;
        }
        Ok(Some(denoiser))
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
    ) -> Result<RankedPrior> {
        match (&self.kind, denoiser) {
            (PriorKind::TotalVariation { weight, denoiser }, _) => {
                let denoiser = DistributedTotalVariation::new(*denoiser, ctx)?;
                let prior = TotalVariationPrior { weight: *weight, denoiser };
                Ok(RankedPrior::TotalVariation(prior, self.clamp))
            }
            (PriorKind::Network(network), Some(denoiser)) => {
                let shared: Arc<dyn Denoiser> = match space {
                    Some(space) => Arc::new(ShardedNetwork::new(denoiser, space)?),
                    None => Arc::new(distribute_with(denoiser, ctx, network.tiling())?),
                };
                let range = match self.clamp {
                    Some((low, high)) => Range::Clamp(low, high),
                    None if network.scale == Scale::Range => Range::Normalise,
                    None => Range::AsIs,
                };
                let plug = Plug::new(shared, network.level.sigma).range(range);
                Ok(RankedPrior::Network(match scale {
                    Some((black, white)) => plug.scale(black, white)?,
                    None => plug,
                }))
            }
            _ => Ok(RankedPrior::None(self.clamp)),
        }
    }
}

impl NetworkPlan {
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
        let shards: Option<Grid> = section.get("shards")?;
        let is_exact = strategy == Strategy::Exact
            || strategy == Strategy::Standard && matches!(shards, Some(Grid(Shards::Grid(_))));
        let tiled =
            ["patch", "overlap", "border", "batch"].into_iter().find(|key| section.has(key));
        if let (true, Some(key)) = (is_exact, tiled) {
            let reason = format!("`{key}` is given; an exact denoiser has no tiles: leave it out");
            return Err(section.place_of(key).refuse(reason));
        }
        if shards.is_some() && !is_exact && strategy != Strategy::Standard {
            let reason = "`shards` are given; they are the parts of an exact denoiser: leave them or `strategy` out";
            return Err(section.place_of("shards").refuse(reason));
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
            shards,
            accuracy: section.choose("accuracy", &accuracies)?.unwrap_or(Accuracy::Fast),
        })
    }

    fn open(&self, threads: usize, image: &[usize]) -> Result<NetworkDenoiser> {
        let model = self.model(image)?;
        let options =
            EngineOptions { threads, accuracy: self.accuracy, ..EngineOptions::default() };
        NetworkDenoiser::new(model, options)
    }

    /// Random weights are for whatever the image is; others know their channels and sides themselves.
    fn model(&self, image: &[usize]) -> Result<Model> {
        ModelName::in_job(&self.model)
            .and_then(|name| name.open(image[1], image.len() - 2))
            .map_err(|error| self.place.refuse(error))
    }

    /// Refuses a network that does not take such images.
    fn check_image(&self, denoiser: &NetworkDenoiser, image: &[usize]) -> Result<()> {
        let (channels, rank) =
            (denoiser.model().image_channels(), denoiser.model().network().rank());
        let fits_whole = image.len() == rank + 2 && image[1] == channels;
        if fits_whole || channels == 1 && image.len() >= rank + 2 {
            return Ok(());
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

    /// The noise level that it is told by methods that have none of their own.
    pub(crate) fn sigma(&self) -> f32 {
        self.level.sigma
    }

    /// A key that says how images are cut, if there is one that leaves no choice.
    pub(crate) fn tiling_key(&self) -> Option<&'static str> {
        let is_tiled = !matches!(self.strategy, Strategy::Standard | Strategy::Exact);
        let keys = [
            ("strategy", is_tiled),
            ("patch", self.patch.is_some()),
            ("overlap", self.overlap.is_some()),
            ("batch", self.batch.is_some()),
            ("shards", matches!(self.shards, Some(Grid(Shards::Grid(_))))),
        ];
        keys.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
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
        let shards =
            self.shards.as_ref().map_or_else(Shards::default, |Grid(shards)| shards.clone());
        Tiling { strategy, patch, overlap, axes: None, border, batch, shards }
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

impl RankedPrior {
    /// As methods take it.
    pub(crate) fn forms(&self) -> PriorForms {
        let (prox, denoiser) = (self.prox(), self.plug());
        PriorForms { prox, denoiser, weight: self.weight(), range: self.range() }
    }

    /// As something with a prox.
    fn prox(&self) -> Arc<dyn Prior> {
        match self.clone() {
            Self::None(clamp) => Arc::new(Clamped { inner: None, clamp }),
            Self::TotalVariation(prior, None) => Arc::new(prior),
            Self::TotalVariation(prior, clamp) => Arc::new(Clamped { inner: Some(prior), clamp }),
            Self::Network(plug) => Arc::new(plug),
        }
    }

    /// As a denoiser; the level of total variation is its weight.
    fn plug(&self) -> Option<Plug> {
        match self.clone() {
            Self::None(_) => None,
            Self::TotalVariation(TotalVariationPrior { weight, denoiser }, clamp) => {
                let range = clamp.map_or(Range::AsIs, |(low, high)| Range::Clamp(low, high));
                Some(Plug::new(Arc::new(denoiser), weight as f32).range(range))
            }
            Self::Network(plug) => Some(plug),
        }
    }

    /// The range that images are brought back to, where the method itself does it.
    fn range(&self) -> Option<(f32, f32)> {
        match self {
            Self::None(clamp) | Self::TotalVariation(_, clamp) => *clamp,
            Self::Network(_) => None,
        }
    }

    /// The weight of total variation, if it is that.
    fn weight(&self) -> Option<f64> {
        match self {
            Self::TotalVariation(prior, _) => Some(prior.weight),
            _ => None,
        }
    }
}

/// A prior, or none, in a range: what its prox leaves is brought back to the range.
#[derive(Debug)]
struct Clamped {
    inner: Option<TotalVariationPrior<DistributedTotalVariation>>,
    clamp: Option<(f32, f32)>,
}

impl Prior for Clamped {
    fn prox(&self, image: Image, step: f64) -> Result<Image> {
        let mut result = match &self.inner {
            Some(prior) => prior.prox(image, step)?,
            None => image,
        };
        result.clamp(self.clamp);
        Ok(result)
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
