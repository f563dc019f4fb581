//! Whether a denoiser is exact or gets tiles, where nobody says it: one policy for the library, the command and its plans.
//!
//! The choice follows from the image and the network, never from the number of ranks or the memory of a machine, so that
//! the bits of a result do not either. Whether an exact network runs at once or in waves does not change the bits, and is decided
//! [elsewhere](NetworkDenoiser::pass).

use haloscope_nn::Footprint;

use super::{Batch, Border, Extent, Overlap, Patch, Shards, Strategy, Tiling, standard_lengths};
use crate::denoise::{Denoiser, MOST_PASS_BYTES, NetworkDenoiser};
use crate::error::Result;

/// The most bytes that a network may take in waves on one rank for an image that holds more than [`MOST_PASS_BYTES`] at once, if it
/// is to be exact by [default](Strategy::Standard): those of a DRUNet on about 13,500 columns, of any number of rows. More
/// ranks share it.
pub const MOST_WAVE_BYTES: u64 = 12_000_000_000;

/// Slabs are multiples of this many planes: the most that a convolution takes together.
const SLAB: usize = 8;

/// What a [`Tiling`] comes to for one image and denoiser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The tiling with a strategy that is not [`Strategy::Standard`].
    pub tiling: Tiling,
    /// Why it has this strategy, in words that follow "because".
    pub reason: String,
    /// The bytes that the layers of the network hold for one pass over the whole image, by the network's definition; `None`
    /// if it is no network or does not take the image.
    pub pass_bytes: Option<u64>,
}

impl Choice {
    /// Whether the denoiser is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.tiling.strategy == Strategy::Exact
    }
}

impl Tiling {
    /// This tiling for images of this shape, (batch, channel, spatial…), and this denoiser.
    ///
    /// ```
    /// use haloscope::denoise::{NetworkDenoiser, TotalVariation};
    /// use haloscope::tiling::{Strategy, Tiling};
    /// use haloscope_nn::models::{Architecture, Fdncnn};
    ///
    /// let model = Fdncnn { depth: 3, channels: 8, ..Fdncnn::default() }.random(1)?;
    /// let network = NetworkDenoiser::new(model, haloscope_nn::engine::EngineOptions::default())?;
    /// let strategy = |tiling: Tiling, side| {
    ///     tiling.choose(&[1, 3, side, side], &network).map(|choice| choice.tiling.strategy)
    /// };
    /// assert_eq!(strategy(Tiling::default(), 512)?, Strategy::Exact);
    /// assert_eq!(strategy(Tiling::default(), 65536)?, Strategy::Exact);
    /// assert_eq!(strategy(Tiling { patch: 64.into(), ..Tiling::default() }, 512)?, Strategy::Overlap);
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn choose(&self, image: &[usize], denoiser: &dyn Denoiser) -> Result<Choice> {
        let network = denoiser.network();
        let pass_bytes = network.and_then(|network| network.pass_bytes(image).ok());
        let (strategy, mut reason) = match (self.strategy, network) {
            (Strategy::Standard, None) => {
                (Strategy::Overlap, format!("{} is no network", denoiser.name()))
            }
            (Strategy::Standard, Some(network)) => self.standard(image, network, pass_bytes),
            (given, _) => (given, "the strategy is given".to_owned()),
        };
        let mut tiling = Self { strategy, ..self.clone() };
        if let (Strategy::Overlap, None, Some(fixed)) =
            (strategy, self.given(), network.and_then(NetworkDenoiser::fixed_sides))
        {
            tiling = tiling.in_windows(image, fixed);
        } else if let (Strategy::Standard, Strategy::Overlap, None, Some(held), Some(network)) =
            (self.strategy, strategy, self.given(), pass_bytes, network)
            && held > MOST_PASS_BYTES
            && network.grains(image).is_ok()
            && let Some([planes, seen]) = slabs(image, network)
        {
            let axes = Some(vec![0]);
            tiling = Self { axes, patch: planes.into(), overlap: seen.into(), ..tiling };
            reason += "; slabs have all planes that the network sees on either side, so that no seams show";
        }
        Ok(Choice { tiling, reason, pass_bytes })
    }

    /// What the standard strategy is for a network.
    fn standard(
        &self,
        image: &[usize],
        network: &NetworkDenoiser,
        pass_bytes: Option<u64>,
    ) -> (Strategy, String) {
        if self.shards != Shards::Auto {
            return (Strategy::Exact, "the shards are given".into());
        }
        if let Some(given) = self.given() {
            return (Strategy::Overlap, format!("the {given} of tiles is given"));
        }
        if let Err(error) = network.grains(image) {
            return (Strategy::Overlap, format!("parts cannot be exact: {error}"));
        }
        let most = gigabytes(MOST_PASS_BYTES);
        let held = match pass_bytes {
            Some(bytes) if bytes > MOST_PASS_BYTES => gigabytes(bytes),
            Some(bytes) => {
                let bytes = gigabytes(bytes);
                let reason =
                    format!("a pass over the whole image holds {bytes}, no more than {most}");
                return (Strategy::Exact, reason);
            }
            None => return (Strategy::Overlap, "the network does not take the image".into()),
        };
        let limit = gigabytes(MOST_WAVE_BYTES);
        match network.wave_bytes(image) {
            Ok(bytes) if bytes <= MOST_WAVE_BYTES => (
                Strategy::Exact,
                format!(
                    "a pass over the whole image in waves holds {}, no more than {limit}",
                    gigabytes(bytes)
                ),
            ),
            Ok(bytes) => (
                Strategy::Overlap,
                format!(
                    "a pass over the whole image holds {held}, and {} in waves, more than the {most} and the {limit} up to \
                     which the default is exact",
                    gigabytes(bytes)
                ),
            ),
            Err(error) => (
                Strategy::Overlap,
                format!(
                    "a pass over the whole image holds {held}, more than the {most} up to which the default is exact, and \
                     waves are not possible: {error}"
                ),
            ),
        }
    }

    /// This tiling with windows of just these sides, of which a quarter on either side is overlap.
    fn in_windows(self, image: &[usize], window: &[usize]) -> Self {
        let spatial = image.get(2..).unwrap_or_default();
        let (mut patches, mut overlaps) = standard_lengths(spatial, window.len());
        let own = spatial.len().saturating_sub(window.len());
        for (axis, side) in (own..spatial.len()).zip(window) {
            overlaps[axis] = side / 4;
            patches[axis] = side - 2 * overlaps[axis];
        }
        let (patch, overlap) = (Extent::PerAxis(patches), Extent::PerAxis(overlaps));
        Self { patch: patch.into(), overlap: overlap.into(), ..self }
    }

    /// What is said of tiles.
    fn given(&self) -> Option<&'static str> {
        match self {
            Self { patch, .. } if *patch != Patch::Standard => Some("patch"),
            Self { overlap, .. } if *overlap != Overlap::Standard => Some("overlap"),
            Self { border, .. } if *border != Border::default() => Some("border"),
            Self { batch, .. } if *batch != Batch::default() => Some("batch"),
            Self { axes: Some(_), .. } => Some("choice of axes"),
            _ => None,
        }
    }
}

/// How many planes of a volume a tile contributes and sees on either side, if the network sees few of them. Such tiles are as thick as they
/// may be to run at once on a rank, and compute no plane more than twice.
fn slabs(image: &[usize], network: &NetworkDenoiser) -> Option<[usize; 2]> {
    let footprint = Footprint::of(network.model().network()).ok()?;
    let (&[radius, _, _], &[grain, _, _]) = (&footprint.radius[..], &footprint.alignment[..])
    else {
        return None;
    };
    // Nobody knows what a foreign network sees.
    if radius == 0 {
        return None;
    }
    let seen = radius.next_multiple_of(grain);
    let block = grain.next_multiple_of(SLAB);
    let mut some = image.to_vec();
    some[2] = 4 * block;
    let of_plane = network.pass_bytes(&some).ok()? / some[2] as u64;
    let planes = (MOST_PASS_BYTES / of_plane.max(1)) as usize;
    let patch = planes.saturating_sub(2 * seen) / block * block;
    (patch >= 2 * seen).then_some([patch, seen])
}

fn gigabytes(bytes: u64) -> String {
    match bytes {
        0..100_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use haloscope_nn::engine::EngineOptions;
    use haloscope_nn::models::{Architecture, Dncnn, Drunet};

    use super::*;
    use crate::denoise::TotalVariation;

    fn network(options: EngineOptions) -> NetworkDenoiser {
        let drunet = Drunet { channels: [8, 8, 8, 8], blocks: 1, ..Drunet::default() };
        NetworkDenoiser::new(drunet.random(1).expect("valid"), options).expect("aligned")
    }

    fn chosen(tiling: &Tiling, side: usize, denoiser: &dyn Denoiser) -> (Strategy, String) {
        let choice = tiling.choose(&[1, 3, side, side], denoiser).expect("any size");
        (choice.tiling.strategy, choice.reason)
    }

    #[test]
    fn the_default_is_exact_for_networks_that_fit_at_once_or_in_waves() {
        let (tiling, network) = (Tiling::default(), network(EngineOptions::default()));
        let bytes = |side| network.pass_bytes(&[1, 3, side, side]).expect("any size");
        let (mut fits, mut exceeds) = (8, 1 << 20);
        while exceeds - fits > 1 {
            let middle = usize::midpoint(fits, exceeds);
            if bytes(middle) > MOST_PASS_BYTES { exceeds = middle } else { fits = middle }
        }
        let (strategy, reason) = chosen(&tiling, fits, &network);
        assert!(strategy == Strategy::Exact && reason.contains("no more than 5.0 GB"), "{reason}");
        let (strategy, reason) = chosen(&tiling, exceeds, &network);
        assert!(strategy == Strategy::Exact && reason.contains("in waves holds"), "{reason}");
        // The height does not matter in waves, the width does.
        let choose = |image: [usize; 4]| tiling.choose(&image, &network).expect("any size");
        assert!(choose([1, 3, 1_000_000, exceeds]).is_exact());
        let wide = choose([1, 3, 2000, 1_000_000]);
        assert!(!wide.is_exact() && wide.reason.contains("12.0 GB"), "{}", wide.reason);
        // Whoever asks gets it.
        let exact = Tiling::new(Strategy::Exact).choose(&[1, 3, 2000, 1_000_000], &network);
        assert!(exact.expect("any size").is_exact());
    }

    #[test]
    fn threads_and_budgets_do_not_change_the_choice() {
        let of = |threads, memory_budget| {
            let options = EngineOptions { threads, memory_budget, ..EngineOptions::default() };
            let choice = Tiling::default().choose(&[1, 3, 20_000, 20_000], &network(options));
            choice.expect("any size")
        };
        let first = of(1, None);
        assert!(first.is_exact());
        assert_eq!(first, of(16, None));
        assert_eq!(first, of(2, Some(1 << 20)));
    }

    #[test]
    fn a_pass_of_the_networks_that_people_use_is_known() {
        let of = |model: haloscope_nn::models::Model| {
            let network = NetworkDenoiser::new(model, EngineOptions::default()).expect("aligned");
            network.pass_bytes(&[1, 3, 2048, 2048]).expect("any size") / (2048 * 2048)
        };
        // The input of a block, what its two convolutions make of it, and the values that wait for the way up.
        assert!(
            (900..1200)
                .contains(&of(Drunet { blocks: 1, ..Drunet::default() }.random(1).expect("valid")))
        );
        assert!(of(Dncnn { depth: 4, ..Dncnn::default() }.random(1).expect("valid")) < 600);
    }

    #[test]
    fn what_cannot_be_exact_and_what_is_said_of_tiles_gives_tiles() {
        let network = network(EngineOptions::default());
        let mean = TotalVariation::default();
        let patch = Tiling { patch: 64.into(), ..Tiling::default() };
        let batch = Tiling { batch: Batch::AtMost(2), ..Tiling::default() };
        let standard = Tiling::default();
        for (tiling, denoiser, words) in [
            (&patch, &network as &dyn Denoiser, "patch"),
            (&batch, &network, "batch"),
            (&standard, &mean, "no network"),
        ] {
            let (strategy, reason) = chosen(tiling, 64, denoiser);
            assert!(strategy == Strategy::Overlap && reason.contains(words), "{reason}");
        }
        let shards = Tiling { shards: Shards::Grid(vec![2, 1]), ..Tiling::default() };
        assert_eq!(chosen(&shards, 64, &network).0, Strategy::Exact);
    }
}
