//! `kind = "parallel-beam"`, `"fan-beam"` and `"cone-beam"`: an operator for each group of a scan's views.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::physics::Physics;
use haloscope::{Array, Result};

use super::{Kind, Measured, Single};
use crate::document::Section;
use crate::sections::beam::{Beam, Projector, Rays, Scan};

#[derive(Debug)]
struct Group {
    scan: Arc<Scan>,
    index: usize,
}

pub(super) fn parallel(section: &Section) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Beam::read(section, Rays::Parallel)?))
}

pub(super) fn fan(section: &Section) -> Result<Arc<dyn Kind>> {
    let (source, detector) = distances(section)?;
    Ok(Arc::new(Beam::read(section, Rays::Fan(source, detector))?))
}

pub(super) fn cone(section: &Section) -> Result<Arc<dyn Kind>> {
    let (source, detector) = distances(section)?;
    Ok(Arc::new(Beam::read(section, Rays::Cone(source, detector))?))
}

impl Kind for Beam {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        let (channels, sides) = measured.split_first()?;
        let sides = self.sides(&Measured { shape: sides.to_vec(), ..Measured::default() })?;
        Some(std::iter::once(*channels).chain(sides).collect())
    }

    fn operators(
        &self,
        image: &[usize],
        measured: Option<&Measured>,
    ) -> Result<Vec<Arc<dyn Single>>> {
        let scan = self.scan(image, measured)?;
        let group = |index| -> Arc<dyn Single> { Arc::new(Group { scan: scan.clone(), index }) };
        Ok((0..scan.groups()).map(group).collect())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.file().cloned().into_iter().collect()
    }

    fn beam(&self) -> Option<&Beam> {
        Some(self)
    }
}

impl Single for Group {
    fn name(&self) -> &'static str {
        "tomography"
    }

    fn draft(&self, _: &[usize]) -> Result<Arc<dyn Physics>> {
        self.scan.draft(self.index).map(Projector::into_physics)
    }

    fn make(&self, _: &[usize]) -> Result<Arc<dyn Physics>> {
        self.scan.group(self.index).map(Projector::into_physics)
    }

    fn measured_values(&self, _: &[usize]) -> usize {
        self.scan.values(self.index)
    }

    fn has_own_size(&self) -> bool {
        true
    }

    fn own(&self, measured: &Array) -> Array {
        self.scan.select(measured, self.index)
    }

    fn views(&self) -> Option<Vec<usize>> {
        Some(self.scan.views_of(self.index))
    }

    fn scan(&self) -> Option<&Arc<Scan>> {
        Some(&self.scan)
    }
}

/// From source and detector to the rotation axis.
fn distances(section: &Section) -> Result<(f64, f64)> {
    if section.has("vectors") {
        // The positions of the views say them.
        return Ok((f64::NAN, f64::NAN));
    }
    let (source, detector): (f64, f64) =
        (section.require("source-distance")?, section.require("detector-distance")?);
    section.positive("source-distance")?;
    if source + detector <= 0.0 {
        return Err(section.place_of("detector-distance").refuse(format!(
            "{detector} is given, which is behind the source at {source}; more than {} is expected",
            -source
        )));
    }
    Ok((source, detector))
}
