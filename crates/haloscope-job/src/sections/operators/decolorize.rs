//! `kind = "decolorize"`: one channel of several.

use std::sync::Arc;

use haloscope::Result;
use haloscope::physics::{Decolorize, Physics};

use super::{Kind, Measured, Single, pixels};
use crate::document::Section;

/// Weights of the channels, if they are not those of colours.
#[derive(Clone, Debug)]
struct Gray(Option<Vec<f32>>);

pub(super) fn read(section: &Section) -> Result<Arc<dyn Kind>> {
    let weights = section.get::<Vec<f64>>("weights")?;
    let single = |weights: Vec<f64>| weights.into_iter().map(|weight| weight as f32).collect();
    Ok(Arc::new(Gray(weights.map(single))))
}

impl Kind for Gray {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        let (_, sides) = measured.split_first()?;
        let channels = self.0.as_ref().map_or(3, Vec::len);
        Some(std::iter::once(channels).chain(sides.iter().copied()).collect())
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        Ok(vec![Arc::new(self.clone())])
    }

    fn keeps_places(&self) -> bool {
        true
    }
}

impl Single for Gray {
    fn name(&self) -> &'static str {
        "decolorize"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        Ok(Arc::new(match &self.0 {
            None => Decolorize::new(image)?,
            Some(weights) => Decolorize::with_weights(image, weights)?,
        }))
    }

    fn measured_values(&self, image: &[usize]) -> usize {
        pixels(image) / image[0].max(1)
    }
}
