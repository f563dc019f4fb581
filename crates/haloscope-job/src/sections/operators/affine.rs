//! `kind = "affine"`: the image turned, moved, stretched or sheared, and then blurred if a kernel is given: a view of a multi-view
//! microscope.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::Result;
use haloscope::physics::{Affine, Blur, Compose, Padding, Physics};
use toml::de::DeValue;

use super::{Kind, Measured, Single, padding};
use crate::document::{Place, Section, Value, numbers};
use crate::sections::kernel::Kernel;

#[derive(Clone, Debug)]
struct Turned {
    place: Place,
    matrix: Matrix,
    matrix_place: Place,
    /// The sides of the measurement; those of the image unless they are given.
    sides: Option<Vec<usize>>,
    blur: Option<(Kernel, Padding)>,
}

#[derive(Clone, Debug)]
enum Matrix {
    Rows(Vec<f64>),
    File(PathBuf),
}

impl<'a> Value<'a> for Matrix {
    fn expected() -> String {
        "6 numbers, or 12 for volumes (the rows of the matrix, each followed by what is added), or a file of them".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value {
            DeValue::String(path) => Some(Self::File(PathBuf::from(&**path))),
            DeValue::Array(rows) if rows.iter().all(|row| row.get_ref().is_array()) => {
                let rows: Vec<Vec<f64>> =
                    rows.iter().map(|row| Vec::of(row.get_ref())).collect::<Option<_>>()?;
                let is_whole = rows.iter().all(|row| row.len() == rows.len() + 1);
                is_whole.then(|| Self::Rows(rows.concat()))
            }
            other => Vec::of(other).map(Self::Rows),
        }
    }
}

pub(super) fn read(section: &Section) -> Result<Arc<dyn Kind>> {
    let matrix = match section.require("matrix")? {
        Matrix::File(_) => Matrix::File(section.path("matrix")?.unwrap_or_default()),
        rows @ Matrix::Rows(_) => rows,
    };
    let kernels = if section.has("kernel") { Kernel::read(section)? } else { Vec::new() };
    let blur = match &kernels[..] {
        [] => None,
        [kernel] => Some((kernel.clone(), padding(section)?)),
        several => {
            let reason = format!("{} kernels; a view has one", several.len());
            return Err(section.place_of("kernel").refuse(reason));
        }
    };
    Ok(Arc::new(Turned {
        place: section.place(),
        matrix,
        matrix_place: section.place_of("matrix"),
        sides: section.get("sides")?,
        blur,
    }))
}

impl Kind for Turned {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        self.sides.is_none().then(|| measured.to_vec())
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        Ok(vec![Arc::new(self.clone())])
    }

    fn files(&self) -> Vec<PathBuf> {
        let matrix = match &self.matrix {
            Matrix::File(path) => Some(path),
            Matrix::Rows(_) => None,
        };
        let kernel = self.blur.as_ref().and_then(|(kernel, _)| kernel.file());
        matrix.into_iter().chain(kernel).cloned().collect()
    }
}

impl Single for Turned {
    fn name(&self) -> &'static str {
        "affine"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        let rows = match &self.matrix {
            Matrix::Rows(rows) => rows.clone(),
            Matrix::File(path) => {
                numbers::read(path).map_err(|error| self.matrix_place.refuse(error))?
            }
        };
        let sides = self.sides.as_deref().unwrap_or(&image[1..]);
        let map =
            Affine::new(image, sides, &rows).map_err(|error| self.matrix_place.refuse(error))?;
        let Some((kernel, padding)) = &self.blur else { return Ok(Arc::new(map)) };
        let blur = Blur::new(map.measurement_shape(), &kernel.make(image.len() - 1)?, *padding)
            .map_err(|error| self.place.refuse(error))?;
        Ok(Arc::new(Compose::new(Arc::new(blur), Arc::new(map))?))
    }

    fn measured_values(&self, image: &[usize]) -> usize {
        let sides = self.sides.as_deref().unwrap_or(&image[1..]);
        sides.iter().fold(image[0], |values, side| values.saturating_mul(*side))
    }

    /// Where a measurement of given sides lies in a smaller image is another question.
    fn has_own_size(&self) -> bool {
        self.sides.is_some()
    }
}
