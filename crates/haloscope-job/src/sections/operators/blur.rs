//! `kind = "blur"`: an operator for each kernel.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::Result;
use haloscope::physics::{Blur, Padding, Physics};

use super::{Kind, Measured, Single, padding};
use crate::document::Section;
use crate::sections::kernel::Kernel;

#[derive(Debug)]
struct Blurs {
    kernels: Vec<Kernel>,
    padding: Padding,
}

#[derive(Debug)]
struct One {
    kernel: Kernel,
    padding: Padding,
}

pub(super) fn read(section: &Section) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Blurs { kernels: Kernel::read(section)?, padding: padding(section)? }))
}

impl Kind for Blurs {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        self.keeps_places().then(|| measured.to_vec())
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        let one = |kernel: &Kernel| -> Arc<dyn Single> {
            Arc::new(One { kernel: kernel.clone(), padding: self.padding })
        };
        Ok(self.kernels.iter().map(one).collect())
    }

    fn keeps_places(&self) -> bool {
        self.padding != Padding::Valid
    }

    fn files(&self) -> Vec<PathBuf> {
        self.kernels.iter().filter_map(Kernel::file).cloned().collect()
    }
}

impl Single for One {
    fn name(&self) -> &'static str {
        "blur"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        Ok(Arc::new(Blur::new(image, &self.kernel.make(image.len() - 1)?, self.padding)?))
    }
}
