//! `kind = "inpainting"`: a mask from a file, or one that chance makes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haloscope::io::{ReadOptions, Reader};
use haloscope::physics::{Inpainting, Physics};
use haloscope::{Array, Error, Result};
use ndarray::Axis;

use super::identity::Same;
use super::{Kind, Measured, Single};
use crate::document::{Place, Section};
use crate::seen::Presence;

#[derive(Clone, Debug)]
struct Masked {
    place: Place,
    mask: Mask,
}

#[derive(Clone, Debug)]
enum Mask {
    File(PathBuf),
    /// This part of the pixels is missing, by this seed.
    Random(f64, u64),
}

pub(super) fn read(section: &Section) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Masked { place: section.place(), mask: Mask::read(section)? }))
}

impl Kind for Masked {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        Some(measured.to_vec())
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        Ok(vec![Arc::new(self.clone())])
    }

    fn keeps_places(&self) -> bool {
        true
    }

    fn has_gaps(&self) -> bool {
        true
    }

    fn files(&self) -> Vec<PathBuf> {
        match &self.mask {
            Mask::File(path) => vec![path.clone()],
            Mask::Random(..) => Vec::new(),
        }
    }
}

impl Single for Masked {
    fn name(&self) -> &'static str {
        "inpainting"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        let mask = self.mask.make(image).map_err(|error| self.place.refuse(error))?;
        Ok(Arc::new(Inpainting::new(image, &mask)?))
    }

    fn stand_in(&self) -> Option<Arc<dyn Single>> {
        Some(Arc::new(Same))
    }

    fn make_part(&self, image: &[usize], part: &[Range<usize>]) -> Result<Arc<dyn Physics>> {
        let mask = self.mask.part(image, part).map_err(|error| self.place.refuse(error))?;
        Ok(Arc::new(Inpainting::of_part(image, part, &mask)?))
    }

    fn outline(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        if let Mask::File(path) = &self.mask {
            open(path, image).map_err(|error| self.place.refuse(error))?;
        }
        Same.draft(image)
    }

    fn mask_in_file(&self, image: &[usize], part: &[Range<usize>]) -> Option<Result<Array>> {
        matches!(self.mask, Mask::File(_)).then(|| self.mask.part(image, part))
    }

    fn doubt(&self, presence: &Presence) -> Option<String> {
        let Mask::File(path) = &self.mask else { return None };
        let ((low, high), (least, most)) = (presence.all, presence.there);
        if least > most {
            return Some(no_pixel_is_there(path));
        }
        (most - least <= CONSTANT * (high - low) && high > low).then(|| {
            format!(
                "all pixels that {} says are there are {least}, and the others are not; 0 marks missing pixels, so the \
                 mask may be inverted",
                path.display()
            )
        })
    }
}

/// Pixels that differ by less than this part of the range of all are of one value, after a compression with loss as well.
const CONSTANT: f32 = 0.02;

impl Mask {
    fn read(section: &Section) -> Result<Self> {
        let file = section.path("mask")?;
        let missing = section.not_negative("missing")?;
        match (file, missing) {
            (Some(path), None) => Ok(Self::File(path)),
            (None, Some(part)) if part < 1.0 => {
                Ok(Self::Random(part, section.get::<usize>("seed")?.unwrap_or(0) as u64))
            }
            (None, Some(part)) => Err(section
                .place_of("missing")
                .refuse(format!("{part} is given; a part of the pixels below 1 is expected"))),
            (Some(_), Some(_)) => {
                Err(section.place().refuse("`mask` and `missing` are given; one of them is expected"))
            }
            (None, None) => Err(section.place().refuse(
                "`mask` is missing: a file in which 0 is a missing pixel; or `missing`, the part of the \
                 pixels that a mask made for the purpose leaves out",
            )),
        }
    }

    /// The mask of images of a shape, without the batch.
    fn make(&self, image: &[usize]) -> Result<Array> {
        let all: Vec<Range<usize>> = image[1..].iter().map(|side| 0..*side).collect();
        let mask = self.part(image, &all)?;
        match self {
            Self::File(path) if mask.iter().all(|present| *present == 0.0) => {
                Err(Error::argument("mask", no_pixel_is_there(path)))
            }
            _ => Ok(mask),
        }
    }

    /// A part of it, a range for each spatial axis.
    fn part(&self, image: &[usize], part: &[Range<usize>]) -> Result<Array> {
        match self {
            Self::File(path) => {
                let reader = open(path, image)?;
                if part.iter().any(Range::is_empty) {
                    let sides = part.iter().map(Range::len);
                    return Ok(Array::zeros(std::iter::once(1).chain(sides).collect::<Vec<_>>()));
                }
                // A mask says what is there, and 255 does so as well as 1; what is no number is left to be refused.
                let present = |v: f32| if v.is_finite() { f32::from(v != 0.0) } else { v };
                Ok(reader.read_region(part)?.mapv_into(present).index_axis_move(Axis(0), 0))
            }
            Self::Random(missing, seed) => {
                Inpainting::random_mask_part(image, part, *missing, *seed)
            }
        }
    }
}

fn no_pixel_is_there(path: &Path) -> String {
    format!("{} is 0 everywhere, and 0 marks missing pixels: no pixel is left", path.display())
}

/// The file of a mask for images of a shape.
fn open(path: &Path, image: &[usize]) -> Result<Reader> {
    let reader = Reader::open(path, &ReadOptions::default())?;
    let found = match reader.shape() {
        [1, mask @ ..] => mask,
        found => found,
    };
    Inpainting::check_mask(image, found)?;
    Ok(reader)
}
