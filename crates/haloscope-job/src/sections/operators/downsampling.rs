//! `kind = "downsampling"`: an operator for each phase.

use std::sync::Arc;

use haloscope::Result;
use haloscope::physics::{Downsampling, DownsamplingFilter, Padding, Physics, kernels};

use super::{Kind, Measured, Single, padding, pixels};
use crate::document::Section;

#[derive(Clone, Debug)]
struct Thinning {
    factor: usize,
    filter: DownsamplingFilter,
    /// The width of a Gaussian, if it is not that of the filter.
    sigma: Option<f64>,
    padding: Padding,
    /// The first sample along each side, for each operator; all that there are if there is none.
    phases: Option<Vec<Vec<usize>>>,
}

#[derive(Debug)]
struct One {
    thinning: Thinning,
    phase: Vec<usize>,
}

pub(super) fn read(section: &Section) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Thinning::read(section)?))
}

impl Kind for Thinning {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        let (channels, sides) = measured.split_first()?;
        let sides = sides.iter().map(|side| side * self.factor);
        (self.padding != Padding::Valid).then(|| std::iter::once(*channels).chain(sides).collect())
    }

    fn operators(&self, image: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        let one = |phase| -> Arc<dyn Single> { Arc::new(One { thinning: self.clone(), phase }) };
        Ok(self.phases_of(image.len() - 1).into_iter().map(one).collect())
    }
}

impl Single for One {
    fn name(&self) -> &'static str {
        "downsampling"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        Ok(Arc::new(self.thinning.make(image, &self.phase)?))
    }

    fn thinning(&self) -> usize {
        self.thinning.factor
    }

    fn measured_values(&self, image: &[usize]) -> usize {
        pixels(image) / self.thinning.factor.max(1).saturating_pow(image.len() as u32 - 1)
    }
}

/// Every phase along each side is an operator; more than this cubed is no problem to solve.
const MOST_PHASES: usize = 64;

impl Thinning {
    fn read(section: &Section) -> Result<Self> {
        let filters = [
            ("gaussian", DownsamplingFilter::Gaussian),
            ("box", DownsamplingFilter::Box),
            ("bilinear", DownsamplingFilter::Bilinear),
            ("bicubic", DownsamplingFilter::Bicubic),
            ("sinc", DownsamplingFilter::Sinc),
            ("none", DownsamplingFilter::None),
        ];
        let factor = section.require::<usize>("factor")?;
        let phases = match section.get::<&str>("phase") {
            Ok(None) => Some(vec![Vec::new()]),
            Ok(Some("all")) if factor > MOST_PHASES => {
                return Err(section.place_of("phase").refuse(format!(
                    "\"all\" with a factor of {factor}; it is possible up to a factor of {MOST_PHASES}"
                )));
            }
            Ok(Some("all")) => None,
            _ => Some(vec![section.get("phase")?.unwrap_or_default()]),
        };
        let filter = section.choose("filter", &filters)?.unwrap_or(DownsamplingFilter::Gaussian);
        let sigma = section.positive("sigma")?;
        if sigma.is_some() && filter != DownsamplingFilter::Gaussian {
            return Err(section.place_of("sigma").refuse(
                "it is the width of a Gaussian, and `filter` is another; leave it out, or set filter = \"gaussian\"",
            ));
        }
        Ok(Self { factor, filter, sigma, padding: padding(section)?, phases })
    }

    /// The operator for images of a shape (channel, spatial…), with its first sample at a phase.
    fn make(&self, image: &[usize], phase: &[usize]) -> Result<Downsampling> {
        let gaussian = match self.sigma {
            Some(sigma) => Some(kernels::gaussian(&vec![sigma; image.len() - 1], 0.0)?),
            None => None,
        };
        let filter = gaussian.map_or_else(|| self.filter.clone(), DownsamplingFilter::Kernel);
        Downsampling::new(image, self.factor, &filter, self.padding)?.with_phase(phase)
    }

    /// The first sample along each of so many sides, for each operator.
    fn phases_of(&self, sides: usize) -> Vec<Vec<usize>> {
        let factor = self.factor.max(1);
        match &self.phases {
            Some(phases) => phases
                .iter()
                .map(|phase| if phase.is_empty() { vec![0; sides] } else { phase.clone() })
                .collect(),
            None => (0..factor.saturating_pow(sides as u32))
                .map(|index| {
                    let digit =
                        |side: usize| index / factor.pow((sides - 1 - side) as u32) % factor;
                    (0..sides).map(digit).collect()
                })
                .collect(),
        }
    }
}
