//! How a configuration cuts its image: the one place that measurements, the model and the tables take tiles from.
//!
//! Windows depend on the image's sides, because those at its edges need no overlap there. So neither their size nor
//! their number follows from patch and overlap alone; the plan knows both.

use haloscope::tiling::{Batch, Extent, Strategy, TilePlan, Tiling};

use crate::error::Result;
use crate::row::Configuration;
use haloscope_nn::models::ModelName;

/// How a configuration cuts images; not at all, if it has no patch.
pub fn tiling(configuration: &Configuration) -> Tiling {
    let overlap = configuration.overlap.unwrap_or(0);
    let strategy = if overlap == 0 { Strategy::Basic } else { Strategy::Overlap };
    // A patch that is larger than the image would be reported as a surprise; here it means all of it.
    let patch = |side: usize| configuration.patch.map_or(side, |patch| patch.min(side));
    let patches = configuration.sides().into_iter().map(patch).collect();
    let mut tiling = Tiling {
        patch: Extent::PerAxis(patches).into(),
        overlap: overlap.into(),
        ..Tiling::new(strategy)
    };
    if let Some(batch) = configuration.batch {
        tiling.batch = Batch::AtMost(batch);
    }
    tiling
}

/// The tiles of a configuration's image; its network is not built, unless it is in a file.
pub fn plan(configuration: &Configuration) -> Result<TilePlan> {
    let alignment = configuration.model.parse::<ModelName>()?.alignment()?;
    // Channels do not matter.
    let shape: Vec<usize> = [1, 1].into_iter().chain(configuration.sides()).collect();
    Ok(tiling(configuration).plan(&shape, alignment, configuration.ranks)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Settings;
    use crate::plan::CompareStudy;
    use crate::problem::Problem;

    #[test]
    fn an_image_without_patches_is_one_piece_however_large_it_is() {
        let study = CompareStudy {
            systems: vec!["haloscope".into()],
            problems: vec![Problem::HighresColor],
            sizes: vec![1000],
            model: Some("drunet".parse().expect("a network")),
            operators: 2,
            threads: 1,
            repetitions: 1,
            full: false,
            settings: Settings::default(),
        };
        let mut configuration = study.jobs().expect("jobs").remove(0).configuration;
        let whole = plan(&configuration).expect("tiles");
        assert_eq!((whole.len(), whole.window()), (1, &[1000, 1000][..]));
        assert!(whole.notes().is_empty(), "{:?}", whole.notes());
        configuration.patch = Some(600);
        assert_eq!(plan(&configuration).expect("tiles").grid(), [2, 2]);
    }
}
