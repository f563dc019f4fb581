//! `kind = "identity"`: the image itself.

use std::sync::Arc;

use haloscope::Result;
use haloscope::physics::{Identity, Physics};

use super::{Kind, Measured, Single};

#[derive(Debug)]
pub(super) struct Same;

impl Kind for Same {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        Some(measured.to_vec())
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        Ok(vec![Arc::new(Self)])
    }

    fn keeps_places(&self) -> bool {
        true
    }
}

impl Single for Same {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        Ok(Arc::new(Identity::new(image)))
    }
}
