//! `kind = "mri"` and `"mri-trajectory"`: an operator for each coil of a scan.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use haloscope::io::{self, Axes, ReadOptions};
use haloscope::physics::Physics;
use haloscope::physics::fourier::{
    Calibration, Cartesian, Footprint, Trajectory, birdcage, radial,
};
use haloscope::{Array, Error, Result};
use ndarray::Axis;

use super::{Kind, Measured, Single};
use crate::document::{Place, Section, numbers};

/// Several coils that measure at the same frequencies.
#[derive(Clone, Debug)]
struct Coils {
    place: Place,
    sensitivities: Sensitivities,
    frequencies: Frequencies,
    is_complex: bool,
}

#[derive(Clone, Debug)]
enum Sensitivities {
    /// One coil that sees all pixels alike.
    None,
    /// So many coils of a birdcage, for simulations.
    Birdcage(usize),
    /// A file for each coil: (2, spatial…).
    Files(Vec<PathBuf>),
    /// From the middle of what each coil measured: a file for each, (2, row, column), and what came of them.
    Estimated(Vec<PathBuf>, Arc<OnceLock<Vec<Array>>>),
}

#[derive(Clone, Debug)]
enum Frequencies {
    /// Those of a grid, at some of its lines.
    Grid(Lines),
    /// Anywhere, in radians for each pixel.
    Anywhere { points: Points, has_density: bool, accuracy: f64 },
}

#[derive(Clone, Debug)]
enum Lines {
    All,
    /// A file with what each frequency is multiplied with.
    File(PathBuf),
    /// One line of so many along the first axis, by chance, and this part of them in the middle.
    Random {
        acceleration: f64,
        calibration: f64,
        seed: u64,
    },
}

#[derive(Clone, Debug)]
enum Points {
    /// Numbers in a file: as many for each sample as the image has axes.
    File(PathBuf),
    /// Lines through frequency 0, each of so many samples.
    Radial { spokes: usize, samples: Option<usize> },
}

/// One coil.
#[derive(Debug)]
struct Coil {
    scan: Coils,
    index: usize,
}

pub(super) fn cartesian(section: &Section) -> Result<Arc<dyn Kind>> {
    let file = section.path("mask")?;
    let acceleration = section.positive("acceleration")?;
    let lines = match (file, acceleration) {
        (Some(_), Some(_)) => {
            return Err(section
                .place()
                .refuse("`mask` and `acceleration` are given; one of them is expected"));
        }
        (Some(path), None) => Lines::File(path),
        (None, Some(acceleration)) if acceleration >= 1.0 => {
            let calibration = section.not_negative("calibration")?.unwrap_or(0.08);
            if calibration * acceleration > 1.0 {
                return Err(section.place_of("calibration").refuse(format!(
                    "{calibration} of the lines in the middle are more than one of {acceleration}; {} or less is expected",
                    1.0 / acceleration
                )));
            }
            let seed = section.get::<usize>("seed")?.unwrap_or(0) as u64;
            Lines::Random { acceleration, calibration, seed }
        }
        (None, Some(acceleration)) => {
            return Err(section
                .place_of("acceleration")
                .refuse(format!("{acceleration} is given; 1 (all lines) or more is expected")));
        }
        (None, None) => Lines::All,
    };
    read(section, Frequencies::Grid(lines))
}

pub(super) fn trajectory(section: &Section) -> Result<Arc<dyn Kind>> {
    let points = match (section.path("points")?, section.count("spokes")?) {
        (Some(path), None) => Points::File(path),
        (None, Some(spokes)) => Points::Radial { spokes, samples: section.count("samples")? },
        (Some(_), Some(_)) => {
            return Err(section
                .place()
                .refuse("`points` and `spokes` are given; one of them is expected"));
        }
        (None, None) => {
            return Err(section.place().refuse(
                "`points` is missing: a file with radians for each pixel, as many for each sample as the image has sides; or \
                 `spokes`, the number of lines of a radial scan",
            ));
        }
    };
    let has_density = section.get::<bool>("density")?.unwrap_or(false);
    let accuracy = section.positive("accuracy")?.unwrap_or(1e-5);
    read(section, Frequencies::Anywhere { points, has_density, accuracy })
}

fn read(section: &Section, frequencies: Frequencies) -> Result<Arc<dyn Kind>> {
    let inputs = |key| Ok::<_, Error>(section.inputs(key)?.map(|groups| groups.concat()));
    let estimated = inputs("coils-from")?;
    let coils = match section.get::<usize>("coils") {
        Ok(None) if estimated.is_some() => {
            Sensitivities::Estimated(estimated.unwrap_or_default(), Arc::default())
        }
        _ if estimated.is_some() => {
            return Err(section
                .place()
                .refuse("`coils` and `coils-from` are given; one of them is expected"));
        }
        Ok(Some(0)) => {
            return Err(section.place_of("coils").refuse("0 is given; 1 or more is expected"));
        }
        Ok(Some(count)) => Sensitivities::Birdcage(count),
        Ok(None) => Sensitivities::None,
        Err(_) => match inputs("coils")?.unwrap_or_default() {
            files if files.is_empty() => {
                return Err(section
                    .place_of("coils")
                    .refuse("an empty list; one or more are expected"));
            }
            files => Sensitivities::Files(files),
        },
    };
    let is_complex = section.get::<bool>("complex")?.unwrap_or(false);
    if let Sensitivities::Estimated(files, _) = &coils {
        let refuse = |reason: &str| Err(section.place_of("coils-from").refuse(reason));
        if files.is_empty() {
            return refuse("an empty list; one or more are expected");
        }
        if !is_complex {
            return refuse(
                "estimated sensitivities leave the image the phase of the first coil; `complex = true` is expected",
            );
        }
    }
    Ok(Arc::new(Coils { place: section.place(), sensitivities: coils, frequencies, is_complex }))
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
        let count = match &self.sensitivities {
            Sensitivities::None => 1,
            Sensitivities::Birdcage(count) => *count,
            Sensitivities::Files(files) | Sensitivities::Estimated(files, _) => files.len(),
        };
        let coil = |index| -> Arc<dyn Single> { Arc::new(Coil { scan: self.clone(), index }) };
        Ok((0..count).map(coil).collect())
    }

    fn has_gaps(&self) -> bool {
        true
    }

    fn measures_pixels(&self) -> bool {
        false
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = match &self.sensitivities {
            Sensitivities::Files(files) | Sensitivities::Estimated(files, _) => files.clone(),
            _ => Vec::new(),
        };
        files.extend(match &self.frequencies {
            Frequencies::Grid(Lines::File(path))
            | Frequencies::Anywhere { points: Points::File(path), .. } => Some(path.clone()),
            _ => None,
        });
        files
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
        let scan = &self.scan;
        let map = match &scan.sensitivities {
            Sensitivities::None => None,
            Sensitivities::Birdcage(count) => Some(birdcage(&image[1..], *count, self.index)?),
            Sensitivities::Files(files) => {
                Some(parts(&files[self.index]).map_err(|error| scan.place.refuse(error))?)
            }
            Sensitivities::Estimated(files, maps) => {
                let made = estimate(files, maps).map_err(|error| scan.place.refuse(error))?;
                Some(made[self.index].clone())
            }
        };
        let map = map.as_deref();
        match &scan.frequencies {
            Frequencies::Grid(lines) => {
                let mask = lines.mask(image).map_err(|error| scan.place.refuse(error))?;
                Ok(Arc::new(Cartesian::new(image, map, mask.as_deref())?))
            }
            Frequencies::Anywhere { points, has_density, accuracy } => {
                let points = points.read(image).map_err(|error| scan.place.refuse(error))?;
                let density =
                    has_density.then(|| Trajectory::density(&image[1..], &points)).transpose()?;
                Ok(Arc::new(Trajectory::new(image, map, &points, density.as_deref(), *accuracy)?))
            }
        }
    }

    fn measured_values(&self, image: &[usize]) -> usize {
        match &self.scan.frequencies {
            Frequencies::Anywhere { points: Points::Radial { spokes, samples }, .. } => {
                2 * spokes * samples.unwrap_or_else(|| across(image))
            }
            _ => 2 * image[1..].iter().product::<usize>(),
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
            Frequencies::Anywhere { has_density, accuracy, .. } => {
                let samples = self.measured_values(image) / 2;
                let has = [has_coil, *has_density];
                Footprint::trajectory(sides, samples, has, *accuracy, threads)
            }
        };
        if let Sensitivities::Estimated(files, _) = &self.scan.sensitivities {
            // The maps of all coils are kept; what they come from is there while they are made.
            found.applied += 8 * pixels * files.len();
            found.made += 16 * pixels * files.len();
        }
        found
    }

    fn has_own_size(&self) -> bool {
        let files = matches!(
            self.scan.sensitivities,
            Sensitivities::Files(_) | Sensitivities::Estimated(..)
        );
        files || matches!(self.scan.frequencies, Frequencies::Grid(Lines::File(_)))
    }

    fn looks_like_image(&self) -> bool {
        false
    }

    fn suited(&self, measured: Array) -> Array {
        match self.scan.frequencies {
            Frequencies::Grid(_) => measured,
            Frequencies::Anywhere { .. } => super::as_samples(measured),
        }
    }

    fn weigh(&self, image: &[usize], measured: Array) -> Result<Array> {
        match &self.scan.frequencies {
            Frequencies::Anywhere { points, has_density: true, .. } => {
                let density = Trajectory::density(&image[1..], &points.read(image)?)?;
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

/// The real and the imaginary parts in a file: (2, spatial…).
fn parts(path: &Path) -> Result<Array> {
    let options = ReadOptions { axes: Axes::ChannelFirst, ..ReadOptions::default() };
    Ok(io::read(path, &options)?.array.index_axis_move(Axis(0), 0))
}

/// The sensitivities of coils from what they measured, once for all of them.
fn estimate<'a>(files: &[PathBuf], maps: &'a OnceLock<Vec<Array>>) -> Result<&'a [Array]> {
    if let Some(made) = maps.get() {
        return Ok(made);
    }
    let measured = files.iter().map(|path| parts(path)).collect::<Result<Vec<_>>>()?;
    let made = Calibration::default().sensitivities(&measured)?;
    Ok(maps.get_or_init(|| made))
}

impl Lines {
    /// What each frequency is multiplied with, (1, spatial…).
    fn mask(&self, image: &[usize]) -> Result<Option<Array>> {
        let mut shape = image.to_vec();
        shape[0] = 1;
        match self {
            Self::All => Ok(None),
            Self::File(path) => {
                let read =
                    io::read(path, &ReadOptions::default())?.array.index_axis_move(Axis(0), 0);
                if let Some(value) = read.iter().find(|value| !value.is_finite()) {
                    let reason = format!("the mask holds {value}; finite numbers are expected");
                    return Err(Error::Content { file: path.display().to_string(), reason });
                }
                if read.shape() == shape {
                    return Ok(Some(read.mapv(|value| f32::from(value != 0.0))));
                }
                Err(Error::Shape {
                    what: format!("{}: the mask", path.display()),
                    expected: format!("{shape:?} is expected"),
                    found: read.shape().to_vec(),
                })
            }
            Self::Random { acceleration, calibration, seed } => {
                let lines = shape[1];
                let middle = ((lines as f64 * calibration).round() as usize).min(lines);
                let wanted =
                    ((lines as f64 / acceleration).round() as usize).max(1).saturating_sub(middle);
                let first = (lines - middle) / 2;
                let mut others: Vec<usize> =
                    (0..lines).filter(|line| !(first..first + middle).contains(line)).collect();
                let mut random = *seed;
                for index in 0..wanted.min(others.len()) {
                    let left = others.len() - index;
                    others.swap(index, index + (next(&mut random) % left as u64) as usize);
                }
                others.truncate(wanted);
                others.extend(first..first + middle);
                Ok(Some(Array::from_shape_fn(shape, |at| f32::from(others.contains(&at[1])))))
            }
        }
    }
}

/// `SplitMix64`, so that a seed means the same lines for good.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Points {
    fn read(&self, image: &[usize]) -> Result<Vec<f64>> {
        match self {
            Self::File(path) => numbers::read_wide(path, "points", image.len() - 1),
            Self::Radial { spokes, samples } if image.len() == 3 => {
                Ok(radial(*spokes, samples.unwrap_or_else(|| across(image)), 0.0))
            }
            Self::Radial { .. } => Err(Error::argument(
                "spokes",
                format!(
                    "a radial scan is of planes, and the image has the sides {:?}; `points` takes any",
                    &image[1..]
                ),
            )),
        }
    }
}

/// The samples of a spoke: twice the longest side, so that its ends are the highest frequencies.
fn across(image: &[usize]) -> usize {
    2 * image[1..].iter().copied().max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_lines_are_as_many_as_asked_for_and_have_the_middle() -> Result<()> {
        let lines = Lines::Random { acceleration: 4.0, calibration: 0.1, seed: 3 };
        let mask = lines.mask(&[1, 80, 5])?.expect("a mask");
        let kept: Vec<usize> = (0..80).filter(|line| mask[[0, *line, 0]] == 1.0).collect();
        assert_eq!(kept.len(), 20);
        assert!((36..44).all(|line| kept.contains(&line)));
        assert_eq!(mask.sum(), 100.0);
        assert_eq!(lines.mask(&[1, 80, 5])?, Some(mask.clone()));
        let other = Lines::Random { acceleration: 4.0, calibration: 0.1, seed: 4 };
        assert_ne!(other.mask(&[1, 80, 5])?, Some(mask));
        Ok(())
    }
}
