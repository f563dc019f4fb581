//! The kernels of a blur, as a job file describes them.

use std::path::{Path, PathBuf};

use haloscope::physics::kernels;
use haloscope::{Array, Error, Result, io};
use ndarray::{ArrayViewD, Axis};

use crate::document::{Place, Section};
use crate::words::count;

/// A kernel that is made when the dimensions of the image are known.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    place: Place,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    /// A standard deviation for all sides or for each, and an angle in degrees.
    Gaussian(Vec<f64>, f64),
    /// A length in pixels, and an angle in degrees.
    Motion(f64, f64),
    /// Pixels along a side, and a seed.
    Shake(usize, u64),
    /// Pixels along all sides or along each.
    Uniform(Vec<usize>),
    File(PathBuf),
}

impl Kernel {
    /// The kernels of a section: one for each angle that it has.
    pub(super) fn read(section: &Section) -> Result<Vec<Self>> {
        type Read = fn(&Section) -> Result<Vec<Shape>>;
        let kinds: [(&str, Read); 5] = [
            ("gaussian", |section| {
                let sigma = section.require::<Vec<f64>>("sigma")?;
                let shape = |angle| Shape::Gaussian(sigma.clone(), angle);
                Ok(angles(section)?.into_iter().map(shape).collect())
            }),
            ("motion", |section| {
                let length = section.require::<f64>("length")?;
                let shape = |angle| Shape::Motion(length, angle);
                Ok(angles(section)?.into_iter().map(shape).collect())
            }),
            ("shake", |section| {
                let side = section.get("size")?.unwrap_or(15);
                let seeds = section.get::<Vec<usize>>("seed")?.unwrap_or_else(|| vec![0]);
                Ok(seeds.into_iter().map(|seed| Shape::Shake(side, seed as u64)).collect())
            }),
            ("uniform", |section| Ok(vec![Shape::Uniform(section.require("size")?)])),
            ("file", |section| {
                section.require::<Vec<&str>>("file")?;
                let paths = section.paths("file")?.unwrap_or_default();
                Ok(paths.into_iter().map(Shape::File).collect())
            }),
        ];
        let shapes = section.require_choice("kernel", &kinds)?(section)?;
        if shapes.is_empty() {
            return Err(section.place().refuse("an empty list makes no kernel"));
        }
        let place = section.place_of("kernel");
        Ok(shapes.into_iter().map(|shape| Self { place: place.clone(), shape }).collect())
    }

    /// The kernels for images of so many sides, each as (1, channel, spatial…): a file may have several, along a first axis.
    pub(super) fn make_list(&self, sides: usize) -> Result<Vec<Array>> {
        let Shape::File(path) = &self.shape else { return Ok(vec![self.make(sides)?]) };
        let options = io::ReadOptions { axes: io::Axes::AsStored, ..io::ReadOptions::default() };
        let stored = io::read(path, &options).map_err(|error| self.place.refuse(error))?.array;
        if stored.ndim() != sides + 1 {
            return Ok(vec![self.make(sides)?]);
        }
        let one = |kernel: ArrayViewD<f32>| {
            let kernel = kernel.to_owned().insert_axis(Axis(0)).insert_axis(Axis(0));
            let kernel = check_sum(path, kernel).and_then(|kernel| kernels::normalised(&kernel));
            kernel.map_err(|error| self.place.refuse(error))
        };
        stored.outer_iter().map(one).collect()
    }

    /// The kernel for images of so many sides, as (1, channel, spatial…).
    pub(super) fn make(&self, sides: usize) -> Result<Array> {
        let kernel = match &self.shape {
            Shape::Gaussian(sigma, angle) => kernels::gaussian(&self.along(sigma, sides)?, *angle),
            Shape::Motion(length, angle) => kernels::straight_motion(*length, *angle),
            Shape::Shake(side, seed) => kernels::random_motion(*side, *seed),
            Shape::Uniform(size) => kernels::uniform(&self.along(size, sides)?),
            Shape::File(path) => io::read(path, &io::ReadOptions::default())
                .and_then(|image| check_sum(path, image.array))
                .and_then(|kernel| kernels::normalised(&kernel)),
        };
        let kernel = kernel.map_err(|error| self.place.refuse(error))?;
        if kernel.ndim() != sides + 2 {
            let found = kernel.ndim() - 2;
            return Err(self.place.refuse(format!(
                "a kernel of {} for images of {sides} sides",
                count(found, "side")
            )));
        }
        Ok(kernel)
    }

    /// The file that it is in, if it is in one.
    pub(super) fn file(&self) -> Option<&PathBuf> {
        match &self.shape {
            Shape::File(path) => Some(path),
            _ => None,
        }
    }

    /// One value for each side.
    fn along<T: Copy>(&self, values: &[T], sides: usize) -> Result<Vec<T>> {
        match values {
            [same] => Ok(vec![*same; sides]),
            each if each.len() == sides => Ok(each.to_vec()),
            other => Err(self.place.refuse(format!(
                "{} values for the sides of the kernel; the image has {sides}, and one value is for all of them",
                other.len()
            ))),
        }
    }
}

/// Refuses a kernel that no brightness is left of, or less than none: one from which a background was subtracted, or whose
/// sign is wrong. Brought to a sum of 1 it would turn the image upside down.
fn check_sum(path: &Path, kernel: Array) -> Result<Array> {
    let sum: f64 = kernel.iter().map(|&value| f64::from(value)).sum();
    if sum > 0.0 {
        return Ok(kernel);
    }
    Err(Error::Content {
        file: path.display().to_string(),
        reason: format!("the samples of the kernel sum to {sum}; a sum above 0 is expected"),
    })
}

fn angles(section: &Section) -> Result<Vec<f64>> {
    Ok(section.get("angle")?.unwrap_or_else(|| vec![0.0]))
}
