//! The prior of a job: total variation, wavelets, a denoising network, or none.
//!
//! Bits must not depend on the number of ranks: a network is exact or has tiles of the library's standard lengths, as the
//! image and the network decide, unless the job gives other tiles or asks for ones that suit the ranks.

mod network;
mod scale;
mod total_variation;
mod wavelet;

use std::path::Path;
use std::sync::Arc;

use haloscope::Result;
use haloscope::denoise::{Axes, NetworkDenoiser, TotalVariation, Wavelets};
use haloscope::image::Space;
use haloscope::solve::{self, PriorForms, TotalVariationPrior};
use haloscope::tiling::Strategy;
use haloscope_comm::Context;

use self::network::{NetworkPlan, Opened, PatchLength};
use self::scale::{DIM, Scale, brief, suitable_scale, two_digits};
use crate::device::DeviceChoice;
use crate::document::Section;
use crate::shards::Grid;

pub(crate) use self::network::Level;
pub(crate) use self::scale::{BLOCK, robust_extremes};

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
    Wavelets { weight: f64, denoiser: Wavelets },
    Network(Box<NetworkPlan>),
}

type ReadPrior = fn(&Section) -> Result<PriorKind>;

/// What reads a prior, by what its `kind` says.
pub(crate) const PRIORS: [(&str, ReadPrior); 4] = [
    ("none", |_| Ok(PriorKind::None)),
    ("total-variation", total_variation::read),
    ("wavelet", wavelet::read),
    ("network", |section| Ok(PriorKind::Network(Box::new(NetworkPlan::read(section)?)))),
];

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
            PriorKind::Wavelets { denoiser, .. } => format!("wavelets ({})", denoiser.bases),
            PriorKind::Network(network) => {
                let name = Path::new(&network.model).file_name();
                let name =
                    name.map_or_else(|| network.model.clone(), |name| name.display().to_string());
                match network.axes {
                    Axes::Axial => name,
                    Axes::All => name + " along all axes",
                    Axes::Ensemble => name + " in eight turns and mirror images",
                }
            }
        }
    }

    /// What it is to a method.
    pub(crate) fn form(&self) -> solve::PriorKind {
        match self.kind {
            PriorKind::None => solve::PriorKind::None,
            PriorKind::TotalVariation { .. } => solve::PriorKind::TotalVariation,
            PriorKind::Wavelets { .. } => solve::PriorKind::Wavelets,
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
            if network.scale != Scale::Given(0.0, 1.0) || network.stretch.is_some())
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
        for level in if levels.is_empty() { own } else { levels } {
            network.check_level(denoiser.model(), level)?;
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
            (PriorKind::Wavelets { weight, denoiser }, _) => {
                Ok(PriorForms::wavelets(*weight, *denoiser, self.clamp))
            }
            (PriorKind::Network(network), Some(denoiser)) => {
                network.build(ctx, denoiser, scale, self.clamp, space)
            }
            _ => Ok(PriorForms::none(self.clamp)),
        }
    }
}

#[cfg(test)]
mod tests {
    use haloscope::Array;

    use super::*;

    #[test]
    fn a_range_that_cuts_most_of_an_image_off_is_noted() {
        let plan = |low, high| PriorPlan { clamp: Some((low, high)), ..PriorPlan::default() };
        let image = Array::from_shape_fn(vec![1, 1, 32, 32], |at| at[3] as f32);
        let note = |low, high, image: &Array| {
            plan(low, high).clamp_note(|| robust_extremes(&image.clone().into())).expect("extremes")
        };
        assert!(note(0.0, 1.0, &image).is_some_and(|note| note.contains("0 to 1")));
        assert_eq!(note(0.0, 40.0, &image), None);
        assert_eq!(note(0.0, f32::INFINITY, &image), None);
        assert_eq!(note(0.0, 1.0, &(image * 0.001)), None);
    }
}
