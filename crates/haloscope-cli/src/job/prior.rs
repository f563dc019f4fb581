//! The prior of a job: total variation, a denoising network, or none.
//!
//! Bits must not depend on the number of ranks, so the tiles of a network have a length of their own unless the job
//! asks for one that suits the ranks.

use std::path::Path;
use std::sync::Arc;

use haloscope::denoise::{Denoiser, NetworkDenoiser, TotalVariation};
use haloscope::distribute::distribute_with;
use haloscope::solve::{Plug, Prior, Range, TotalVariationPrior};
use haloscope::tiling::{Batch, Border, Extent, Patch, Strategy, Tiling};
use haloscope::{Array, Error, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::{Accuracy, Options};
use haloscope_nn::models::Model;
use toml::de::DeValue;

use super::document::{Place, Section, Value};

/// `[prior]`.
#[derive(Clone, Debug)]
pub struct PriorPlan {
    pub kind: PriorKind,
    /// The range that images are brought back to.
    pub clamp: Option<(f32, f32)>,
}

#[derive(Clone, Debug)]
pub enum PriorKind {
    None,
    TotalVariation { weight: f64, denoiser: TotalVariation },
    Network(NetworkPlan),
}

/// A network as a prior.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    place: Place,
    /// The path of a file, or the name of a model that the command knows.
    pub model: String,
    level: Level,
    normalise: bool,
    patch: Option<PatchLength>,
    overlap: Option<Vec<usize>>,
    strategy: Strategy,
    border: Border,
    batch: Option<usize>,
    accuracy: Accuracy,
}

/// A noise level that a denoiser is told, and where the job says so.
#[derive(Clone, Debug)]
pub struct Level {
    pub place: Place,
    pub sigma: f32,
}

#[derive(Clone, Debug)]
enum PatchLength {
    Auto,
    Pixels(Vec<usize>),
}

impl<'a> Value<'a> for PatchLength {
    fn expected() -> String {
        "a number of pixels, one for each side, or \"auto\"".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self::Auto),
            Some(_) => None,
            None => Vec::of(value).map(Self::Pixels),
        }
    }
}

/// The prior of a run, on all ranks.
#[derive(Clone, Debug)]
pub enum RankedPrior {
    None(Option<(f32, f32)>),
    TotalVariation(TotalVariationPrior, Option<(f32, f32)>),
    Network(Plug),
}

impl Default for PriorPlan {
    fn default() -> Self {
        Self { kind: PriorKind::None, clamp: None }
    }
}

impl PriorPlan {
    pub fn read(section: &Section) -> Result<Self> {
        type Read = fn(&Section) -> Result<PriorKind>;
        let kinds: [(&str, Read); 3] = [
            ("none", |_| Ok(PriorKind::None)),
            ("total-variation", |section| {
                let standard = TotalVariation::default();
                let denoiser = TotalVariation {
                    iterations: section.count("iterations")?.unwrap_or(standard.iterations),
                    tolerance: section.not_negative("tolerance")?.unwrap_or(standard.tolerance),
                };
                section.require::<f64>("weight")?;
                let weight = section.not_negative("weight")?.unwrap_or_default();
                Ok(PriorKind::TotalVariation { weight, denoiser })
            }),
            ("network", |section| NetworkPlan::read(section).map(PriorKind::Network)),
        ];
        let kind = match section.choose("kind", &kinds)? {
            Some(read) => read(section)?,
            None => PriorKind::None,
        };
        let clamp = section.range("clamp")?.map(|(low, high)| (low as f32, high as f32));
        if let PriorKind::Network(NetworkPlan { normalise: true, .. }) = kind
            && clamp.is_some()
        {
            let reason = "`clamp` and `normalise` are given; one of them is possible";
            return Err(section.place_of("clamp").refuse(reason));
        }
        Ok(Self { kind, clamp })
    }

    /// A few words on it.
    pub fn describe(&self) -> String {
        match &self.kind {
            PriorKind::None => "no prior".into(),
            PriorKind::TotalVariation { .. } => "total variation".into(),
            PriorKind::Network(network) => {
                let name = Path::new(&network.model).file_name();
                name.map_or_else(|| network.model.clone(), |name| name.display().to_string())
            }
        }
    }

    /// Whether its bits depend on the number of ranks, because the job asks for tiles that suit them.
    pub fn depends_on_ranks(&self) -> bool {
        let PriorKind::Network(network) = &self.kind else { return false };
        matches!(network.patch, Some(PatchLength::Auto))
    }

    /// The network on one rank, if it is one, for images of this shape (batch, channel, spatial…) and the levels that
    /// the method tells it, if it has its own.
    pub fn open(
        &self,
        threads: usize,
        image: &[usize],
        levels: &[Level],
    ) -> Result<Option<NetworkDenoiser>> {
        let PriorKind::Network(network) = &self.kind else { return Ok(None) };
        let denoiser = network.open(threads)?;
        network.check_image(&denoiser, image)?;
        let own = std::slice::from_ref(&network.level);
        for Level { place, sigma } in if levels.is_empty() { own } else { levels } {
            denoiser.model().check_level(*sigma).map_err(|error| place.refuse(error))?;
        }
        Ok(Some(denoiser))
    }

    /// The prior on all ranks, with what `open` returned.
    pub fn build(
        &self,
        ctx: &Context,
        image: &[usize],
        denoiser: Option<Arc<NetworkDenoiser>>,
    ) -> Result<RankedPrior> {
        match (&self.kind, denoiser) {
            (PriorKind::TotalVariation { weight, denoiser }, _) => {
                let prior = TotalVariationPrior { weight: *weight, denoiser: *denoiser };
                Ok(RankedPrior::TotalVariation(prior, self.clamp))
            }
            (PriorKind::Network(network), Some(denoiser)) => {
                let tiling = network.tiling(image, denoiser.model().network().rank());
                let shared = distribute_with(denoiser, ctx, tiling)?;
                let range = match self.clamp {
                    Some((low, high)) => Range::Clamp(low, high),
                    None if network.normalise => Range::Normalise,
                    None => Range::AsIs,
                };
                let plug = Plug::new(Arc::new(shared), network.level.sigma).range(range);
                Ok(RankedPrior::Network(plug))
            }
            _ => Ok(RankedPrior::None(self.clamp)),
        }
    }
}

impl NetworkPlan {
    fn read(section: &Section) -> Result<Self> {
        let strategies = [
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
            normalise: section.get("normalise")?.unwrap_or(false),
            patch: section.get("patch")?,
            overlap: section.get("overlap")?,
            strategy: section.choose("strategy", &strategies)?.unwrap_or_default(),
            border: section.choose("border", &borders)?.unwrap_or_default(),
            batch: section.count("batch")?,
            accuracy: section.choose("accuracy", &accuracies)?.unwrap_or(Accuracy::Fast),
        })
    }

    fn open(&self, threads: usize) -> Result<NetworkDenoiser> {
        let model = self.model()?;
        let options = Options { threads, accuracy: self.accuracy, ..Options::default() };
        NetworkDenoiser::new(model, options)
    }

    fn model(&self) -> Result<Model> {
        crate::model::open(&self.model).map_err(|error| self.place.refuse(format!("{error:#}")))
    }

    /// Refuses a network that does not take such images.
    fn check_image(&self, denoiser: &NetworkDenoiser, image: &[usize]) -> Result<()> {
        let (channels, rank) =
            (denoiser.model().image_channels(), denoiser.model().network().rank());
        let fits_whole = image.len() == rank + 2 && image[1] == channels;
        if fits_whole || channels == 1 && image.len() >= rank + 2 {
            return Ok(());
        }
        Err(self.place.refuse(Error::Shape {
            what: "the image".into(),
            expected: format!(
                "{} takes images of {channels} channels and {rank} sides",
                denoiser.name()
            ),
            found: image.to_vec(),
        }))
    }

    /// How images of this shape are cut for a network of so many sides. Unless the job says so, it does not depend on
    /// the number of ranks.
    pub fn tiling(&self, image: &[usize], sides: usize) -> Tiling {
        let spatial = &image[2..];
        // Slices of a volume do not see each other in a network of two sides.
        let is_slices = sides < spatial.len();
        let standard = |slice: usize, plane: usize, space: usize| -> Vec<usize> {
            let along = |axis: usize| match spatial.len() {
                _ if is_slices && axis + sides < spatial.len() => slice,
                3.. if !is_slices => space,
                _ => plane,
            };
            (0..spatial.len()).map(along).collect()
        };
        let patch = match &self.patch {
            Some(PatchLength::Auto) => Patch::Auto,
            Some(PatchLength::Pixels(lengths)) => Patch::Given(extent(lengths)),
            None => {
                let lengths = standard(8, 256, 64);
                let even = lengths.iter().zip(spatial).map(|(length, side)| even(*length, *side));
                Patch::Given(Extent::PerAxis(even.collect()))
            }
        };
        let overlap = match &self.overlap {
            Some(lengths) => extent(lengths),
            None if self.strategy == Strategy::Basic => 0.into(),
            None => Extent::PerAxis(standard(0, 32, 16)),
        };
        let batch = self.batch.map_or_else(Batch::default, Batch::AtMost);
        let (strategy, border) = (self.strategy, self.border);
        Tiling { strategy, patch, overlap, axes: None, border, batch }
    }
}

/// The length that cuts a side into as many parts as `longest` would, all about equally long.
fn even(longest: usize, side: usize) -> usize {
    let parts = side.div_ceil(longest);
    // A multiple of 8 suits most networks.
    side.div_ceil(parts).next_multiple_of(8.min(longest)).min(side)
}

fn extent(lengths: &[usize]) -> Extent {
    match lengths {
        [same] => Extent::Same(*same),
        each => Extent::PerAxis(each.to_vec()),
    }
}

impl RankedPrior {
    /// As something with a prox.
    pub fn prox(&self) -> Arc<dyn Prior> {
        match self.clone() {
            Self::None(clamp) => Arc::new(Clamped { inner: None, clamp }),
            Self::TotalVariation(prior, None) => Arc::new(prior),
            Self::TotalVariation(prior, clamp) => Arc::new(Clamped { inner: Some(prior), clamp }),
            Self::Network(plug) => Arc::new(plug),
        }
    }

    /// As a denoiser; the level of total variation is its weight.
    pub fn plug(&self) -> Result<Plug> {
        match self.clone() {
            Self::None(_) => {
                Err(Error::argument("prior", "there is none, so there is no denoiser"))
            }
            Self::TotalVariation(TotalVariationPrior { weight, denoiser }, clamp) => {
                let range = clamp.map_or(Range::AsIs, |(low, high)| Range::Clamp(low, high));
                Ok(Plug::new(Arc::new(denoiser), weight as f32).range(range))
            }
            Self::Network(plug) => Ok(plug),
        }
    }

    /// The range that images are brought back to, where the method itself does it.
    pub fn range(&self) -> Option<(f32, f32)> {
        match self {
            Self::None(clamp) | Self::TotalVariation(_, clamp) => *clamp,
            Self::Network(_) => None,
        }
    }

    /// The weight of total variation, if it is that.
    pub fn weight(&self) -> Option<f64> {
        match self {
            Self::TotalVariation(prior, _) => Some(prior.weight),
            _ => None,
        }
    }
}

/// A prior, or none, in a range: what its prox leaves is brought back to the range.
#[derive(Debug)]
struct Clamped {
    inner: Option<TotalVariationPrior>,
    clamp: Option<(f32, f32)>,
}

impl Prior for Clamped {
    fn prox(&self, image: &Array, step: f64) -> Result<Array> {
        let mut result = match &self.inner {
            Some(prior) => prior.prox(image, step)?,
            None => image.clone(),
        };
        if let Some((low, high)) = self.clamp {
            result.mapv_inplace(|value| value.clamp(low, high));
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_the_standard_length_are_even_and_no_longer_than_the_side() {
        assert_eq!(even(256, 384), 192);
        assert_eq!(even(256, 256), 256);
        assert_eq!(even(256, 100), 100);
        assert_eq!(even(256, 481), 248);
        assert_eq!(even(8, 189), 8);
    }
}
