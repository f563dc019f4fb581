//! How a configuration cuts its image: the one place that jobs, the model and the tables take tiles from.
//!
//! Windows depend on the image's sides, because those at its edges need no overlap there. So neither their size nor
//! their number follows from patch and overlap alone; the plan knows both.

use haloscope::denoise::NetworkDenoiser;
use haloscope::tiling::{Batch, Extent, Strategy, TilePlan, Tiling, standard_lengths};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;

use crate::error::Result;
use crate::row::Configuration;

/// The lengths of tiles along each side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cut {
    /// Of a tile's own pixels.
    pub patches: Vec<usize>,
    /// Of what it sees beyond them.
    pub overlaps: Vec<usize>,
}

impl Cut {
    /// How a configuration cuts images; not at all, if it has no patch. A patch that is larger than the image means all
    /// of it. Slices that the network treats one by one are cut as usual.
    pub(crate) fn of(configuration: &Configuration) -> Result<Self> {
        let sides = configuration.sides();
        let Some(patch) = configuration.patch else {
            return Ok(Self { overlaps: vec![0; sides.len()], patches: sides });
        };
        let seen = seen_sides(&configuration.model.parse()?, sides.len())?;
        let unseen = sides.len() - seen;
        let (mut patches, mut overlaps) = standard_lengths(&sides, seen);
        for (length, side) in patches.iter_mut().zip(&sides).skip(unseen) {
            *length = patch.min(*side);
        }
        overlaps[unseen..].fill(configuration.overlap.unwrap_or(0));
        Ok(Self { patches, overlaps })
    }

    /// Whether tiles see nothing but themselves.
    pub(crate) fn is_basic(&self) -> bool {
        self.overlaps.iter().all(|overlap| *overlap == 0)
    }
}

/// Whether a job that says nothing of tiles has none, because its network is exact.
pub(crate) fn is_exact(model: &ModelName, channels: usize, sides: &[usize]) -> Result<bool> {
    let network =
        NetworkDenoiser::new(model.open(channels, sides.len())?, EngineOptions::default())?;
    let image = [&[1, channels], sides].concat();
    Ok(Tiling::default().choose(&image, &network)?.is_exact())
}

/// The patch and the overlap of tiles if a study gives none, as one number for all sides that the network sees: the longest of a job that
/// asks for tiles. A job that does not ask may have slabs of a large volume instead, for which one number is not enough.
pub(crate) fn standard(model: &ModelName, sides: &[usize]) -> Result<(usize, usize)> {
    let seen = seen_sides(model, sides.len())?;
    let (patches, overlaps) = standard_lengths(sides, seen);
    let longest = |lengths: &[usize]| lengths.iter().rev().take(seen).copied().max().unwrap_or(0);
    Ok((longest(&patches), longest(&overlaps)))
}

/// Of so many sides, those that the network sees at once; one of pictures treats the slices of a volume one by one, which
/// need nothing of each other. Networks with random weights are made for all sides that there are.
fn seen_sides(model: &ModelName, sides: usize) -> Result<usize> {
    if sides < 3 || model.has_random_weights() {
        return Ok(sides);
    }
    Ok(model.open(1, sides)?.network().rank().min(sides))
}

/// The tiling of a configuration.
pub(crate) fn tiling(configuration: &Configuration) -> Result<Tiling> {
    let cut = Cut::of(configuration)?;
    let strategy = if cut.is_basic() { Strategy::Basic } else { Strategy::Overlap };
    let mut tiling = Tiling {
        patch: Extent::PerAxis(cut.patches).into(),
        overlap: Extent::PerAxis(cut.overlaps).into(),
        ..Tiling::new(strategy)
    };
    if let Some(batch) = configuration.batch {
        tiling.batch = Batch::AtMost(batch);
    }
    Ok(tiling)
}

/// The tiles of a configuration's image; its network is not built, unless its weights are trained.
pub(crate) fn plan(configuration: &Configuration) -> Result<TilePlan> {
    let alignment = configuration.model.parse::<ModelName>()?.alignment()?;
    // Channels do not matter.
    let shape: Vec<usize> = [1, 1].into_iter().chain(configuration.sides()).collect();
    Ok(tiling(configuration)?.plan(&shape, alignment, configuration.ranks)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{CompareStudy, Cutting};
    use crate::problem::Problem;
    use crate::row::tests::configuration;
    use crate::trial::Settings;

    #[test]
    fn an_image_without_patches_is_one_piece_however_large_it_is() {
        let study = CompareStudy {
            systems: vec!["haloscope".into()],
            problems: vec![Problem::Deblur],
            sizes: vec![1000.into()],
            ranks: vec![1],
            cuts: vec![Cutting::Whole],
            model: Some("drunet".parse().expect("a network")),
            operators: 2,
            threads: 1,
            repetitions: 1,
            full: false,
            settings: Settings::default(),
        };
        let mut configuration = study.trials().expect("trials").remove(0).configuration;
        let whole = plan(&configuration).expect("tiles");
        assert_eq!((whole.len(), whole.window()), (1, &[1000, 1000][..]));
        assert!(whole.notes().is_empty(), "{:?}", whole.notes());
        configuration.patch = Some(600);
        assert_eq!(plan(&configuration).expect("tiles").grid(), [2, 2]);
    }

    #[test]
    fn slices_that_a_network_treats_one_by_one_are_in_blocks_that_do_not_overlap() {
        let pictures = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../haloscope-nn/fixtures/drunet_gray.safetensors"
        );
        let of = |model: &str| {
            let volume = Configuration { model: model.into(), ..configuration(1) };
            Cut::of(&volume.with_sides(&[64, 64, 64])).expect("lengths")
        };
        let cut = |overlaps: [usize; 3], patches: [usize; 3]| Cut {
            patches: patches.to_vec(),
            overlaps: overlaps.to_vec(),
        };
        assert_eq!(of("drunet"), cut([8, 8, 8], [32, 32, 32]));
        assert_eq!(of(pictures), cut([0, 8, 8], [8, 32, 32]));
        let sides = [64, 300, 300];
        let standard =
            |model: &str| standard(&model.parse().expect("a network"), &sides).expect("lengths");
        assert_eq!((standard("drunet"), standard(pictures)), ((64, 16), (152, 32)));
    }
}
