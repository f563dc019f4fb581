//! Total variation as a prior.

use haloscope::Result;
use haloscope::denoise::TotalVariation;

use super::PriorKind;
use crate::document::Section;

pub(super) fn read(section: &Section) -> Result<PriorKind> {
    let standard = TotalVariation::default();
    let denoiser = TotalVariation {
        iterations: section.count("iterations")?.unwrap_or(standard.iterations),
        tolerance: section.not_negative("tolerance")?.unwrap_or(standard.tolerance),
    };
    section.require::<f64>("weight")?;
    let weight = section.not_negative("weight")?.unwrap_or_default();
    Ok(PriorKind::TotalVariation { weight, denoiser })
}
