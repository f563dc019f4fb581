//! `kind = "mri"` and `"mri-trajectory"`: an operator for each coil of a scan.

mod lines;
mod points;
mod sensitivities;

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::physics::Physics;
use haloscope::physics::fourier::{Cartesian, Footprint, Trajectory};
use haloscope::{Array, Result};
use haloscope_comm::Context;
use ndarray::Axis;

use self::lines::Lines;
use self::points::{Densities, Points};
use self::sensitivities::Sensitivities;
use super::{Kind, Measured, Single};
use crate::document::{Place, Section};

/// Several coils that measure at the same frequencies.
#[derive(Clone, Debug)]
struct Coils {
    place: Place,
    sensitivities: Sensitivities,
    frequencies: Frequencies,
    is_complex: bool,
}

#[derive(Clone, Debug)]
enum Frequencies {
    /// Those of a grid, at some of its lines.
    Grid(Lines),
    /// Anywhere, in radians for each pixel.
    Anywhere { points: Points, density: Option<Densities>, accuracy: f64 },
}

/// One coil.
#[derive(Debug)]
struct Coil {
    scan: Coils,
    index: usize,
}

pub(super) fn cartesian(section: &Section) -> Result<Arc<dyn Kind>> {
    read(section, Frequencies::Grid(Lines::read(section)?))
}

pub(super) fn trajectory(section: &Section) -> Result<Arc<dyn Kind>> {
    let points = Points::read_keys(section)?;
    let has_density = section.get::<bool>("density")?.unwrap_or(false);
    let density = has_density.then(Densities::default);
    let accuracy = section.positive("accuracy")?.unwrap_or(1e-5);
    read(section, Frequencies::Anywhere { points, density, accuracy })
}

fn read(section: &Section, frequencies: Frequencies) -> Result<Arc<dyn Kind>> {
    let sensitivities = Sensitivities::read(section)?;
    let is_complex = section.get::<bool>("complex")?.unwrap_or(false);
    if matches!(sensitivities, Sensitivities::Estimated(_)) && !is_complex {
        return Err(section.place_of("coils-from").refuse(
            "estimated sensitivities leave the image the phase of the first coil; `complex = true` is expected",
        ));
    }
    Ok(Arc::new(Coils { place: section.place(), sensitivities, frequencies, is_complex }))
}

impl Kind for Coils {
    fn image_shape(&self, measured: &[usize]) -> Option<Vec<usize>> {
        let channels = 1 + usize::from(self.is_complex);
        match (&self.frequencies, measured) {
            (Frequencies::Grid(_), [2, sides @ ..]) => {
                Some(std::iter::once(channels).chain(sides.iter().copied()).collect())
            }
            _ => None,
        }
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        let coil = |index| -> Arc<dyn Single> { Arc::new(Coil { scan: self.clone(), index }) };
        Ok((0..self.sensitivities.count()).map(coil).collect())
    }

    fn has_gaps(&self) -> bool {
        true
    }

    fn measures_pixels(&self) -> bool {
        false
    }

    fn is_complex(&self) -> bool {
        self.is_complex
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.sensitivities.files().to_vec();
        files.extend(match &self.frequencies {
            Frequencies::Grid(Lines::File(path)) => Some(path.clone()),
            Frequencies::Anywhere { points, .. } => points.file().cloned(),
            Frequencies::Grid(_) => None,
        });
        files
    }
}

impl Coil {
    /// The operator with this sensitivity, and without weights for densities in a draft.
    fn operator(
        &self,
        image: &[usize],
        map: Option<&Array>,
        is_draft: bool,
    ) -> Result<Arc<dyn Physics>> {
        let map = map.map(|map| &**map);
        match &self.scan.frequencies {
            Frequencies::Grid(lines) => {
                let mask = lines.mask(image)?;
                Ok(Arc::new(Cartesian::new(image, map, mask.as_deref())?))
            }
            Frequencies::Anywhere { points, density, accuracy } => {
                let points = points.read(image)?;
                let density = density.as_ref().filter(|_| !is_draft);
                let density = density.map(|density| density.get(image, &points)).transpose()?;
                let density = density.as_ref().map(|density| &density[..]);
                Ok(Arc::new(Trajectory::new(image, map, &points, density, *accuracy)?))
            }
        }
    }
}

impl Single for Coil {
    fn name(&self) -> &'static str {
        match self.scan.frequencies {
            Frequencies::Grid(_) => "mri",
            Frequencies::Anywhere { .. } => "mri-trajectory",
        }
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        let map = self.scan.sensitivities.draft(image, self.index);
        let made = map.and_then(|map| self.operator(image, map.as_ref(), true));
        made.map_err(|error| self.scan.place.refuse(error))
    }

    fn make(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        let map = self.scan.sensitivities.map(image, self.index);
        let made = map.and_then(|map| self.operator(image, map.as_ref(), false));
        made.map_err(|error| self.scan.place.refuse(error))
    }

    /// What all coils share is found once, for the first of them.
    fn share(&self, ctx: &Context, image: &[usize]) -> Result<()> {
        if self.index > 0 {
            return Ok(());
        }
        if let Sensitivities::Estimated(estimate) = &self.scan.sensitivities {
            estimate.share(ctx, image)?;
        }
        if let Frequencies::Anywhere { points, density: Some(density), .. } = &self.scan.frequencies
        {
            density.share(ctx, image, points)?;
        }
        Ok(())
    }

    fn measured_values(&self, image: &[usize]) -> usize {
        let pixels = image[1..].iter().product();
        match &self.scan.frequencies {
            Frequencies::Anywhere { points, .. } => {
                points.count(image).unwrap_or(pixels).saturating_mul(2)
            }
            Frequencies::Grid(_) => 2 * pixels,
        }
    }

    fn footprint(&self, image: &[usize], threads: usize) -> Footprint {
        let sides = &image[1..];
        let pixels: usize = sides.iter().product();
        let has_coil = !matches!(self.scan.sensitivities, Sensitivities::None);
        let mut found = match &self.scan.frequencies {
            Frequencies::Grid(lines) => {
                Footprint::cartesian(sides, has_coil, !matches!(lines, Lines::All))
            }
            Frequencies::Anywhere { density, accuracy, .. } => {
                let samples = self.measured_values(image) / 2;
                let has = [has_coil, density.is_some()];
                Footprint::trajectory(sides, samples, has, *accuracy, threads)
            }
        };
        if let Sensitivities::Estimated(_) = &self.scan.sensitivities {
            // The maps of all coils are kept. While they are made, what they come from is there, and a matrix of all pairs of coils
            // for each pixel.
            let coils = self.scan.sensitivities.files().len();
            found.applied += 8 * pixels * coils;
            found.made += 8 * pixels * coils * (coils + 2);
        }
        found
    }

    fn has_own_size(&self) -> bool {
        let has_files = !self.scan.sensitivities.files().is_empty();
        has_files || matches!(self.scan.frequencies, Frequencies::Grid(Lines::File(_)))
    }

    fn looks_like_image(&self) -> bool {
        false
    }

    fn adjoint_shows(&self) -> Option<&'static str> {
        match &self.scan.frequencies {
            // The coils' squares sum to 1, unless they are files.
            _ if matches!(self.scan.sensitivities, Sensitivities::Files(_)) => None,
            Frequencies::Grid(_) => Some("zero-filled"),
            Frequencies::Anywhere { density: Some(_), .. } => Some("density-compensated adjoint"),
            Frequencies::Anywhere { density: None, .. } => None,
        }
    }

    fn suited(&self, measured: Array) -> Array {
        match self.scan.frequencies {
            Frequencies::Grid(_) => measured,
            Frequencies::Anywhere { .. } => super::as_samples(measured),
        }
    }

    fn weigh(&self, image: &[usize], measured: Array) -> Result<Array> {
        match &self.scan.frequencies {
            Frequencies::Anywhere { points, density: Some(density), .. } => {
                let density = density.get(image, &points.read(image)?)?;
                Ok(super::weighted(measured, &density))
            }
            // What the mask leaves out is no measurement, whatever the file has there.
            Frequencies::Grid(lines) => match lines.mask(image)? {
                Some(mask) => Ok(measured * &mask.insert_axis(Axis(0))),
                None => Ok(measured),
            },
            Frequencies::Anywhere { .. } => Ok(measured),
        }
    }
}
