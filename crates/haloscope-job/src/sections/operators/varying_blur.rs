//! `kind = "varying-blur"`: a blur whose kernel changes across the image, known at the nodes of a grid.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::Result;
use haloscope::physics::{Padding, Physics, VaryingBlur};

use super::{Kind, Measured, Single, padding};
use crate::document::{Place, Section};
use crate::sections::kernel::Kernel;

#[derive(Clone, Debug)]
struct Varying {
    place: Place,
    kernels: Vec<Kernel>,
    grid: Vec<usize>,
    padding: Padding,
}

pub(super) fn read(section: &Section) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Varying {
        place: section.place(),
        kernels: Kernel::read(section)?,
        grid: section.require("grid")?,
        padding: padding(section)?,
    }))
}

impl Kind for Varying {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        self.keeps_places().then(|| measured.to_vec())
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        Ok(vec![Arc::new(self.clone())])
    }

    fn keeps_places(&self) -> bool {
        self.padding != Padding::Valid
    }

    fn files(&self) -> Vec<PathBuf> {
        self.kernels.iter().filter_map(Kernel::file).cloned().collect()
    }
}

impl Single for Varying {
    fn name(&self) -> &'static str {
        "varying blur"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        let mut kernels = Vec::new();
        for kernel in &self.kernels {
            kernels.extend(kernel.make_list(image.len() - 1)?);
        }
        let blur = VaryingBlur::new(image, &self.grid, &kernels, self.padding);
        Ok(Arc::new(blur.map_err(|error| self.place.refuse(error))?))
    }

    /// Its grid may not fit into smaller images.
    fn has_own_size(&self) -> bool {
        true
    }
}
