//! `kind = "visibilities"`: an operator for each block of an observation by a radio interferometer.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use haloscope::io::{self, FitsHeader, Limits, Metadata, ReadOptions};
use haloscope::physics::Physics;
use haloscope::physics::fourier::{Coverage, Footprint, Visibilities, Weighting};
use haloscope::{Array, Error, Result};
use ndarray::{Axis, Slice};

use super::{Kind, Measured, Single};
use crate::document::{Place, Section, numbers};
use crate::sections::placement::Placement;

/// Radians of a second of arc.
const ARCSECOND: f64 = std::f64::consts::PI / 648_000.0;

#[derive(Debug)]
struct Observation {
    place: Place,
    /// Radians.
    cell: f64,
    places: Places,
    blocks: usize,
    weighting: Weighting,
    weights: Option<PathBuf>,
    /// Of a UVFITS file; Stokes I if it is not given.
    polarisation: Option<String>,
    /// Right ascension and declination of the middle of the image, in degrees.
    centre: Option<[f64; 2]>,
    beam: Option<PathBuf>,
    accuracy: f64,
    /// The w of all visibilities, for forecasts; none if they cannot be read.
    known: OnceLock<Option<Vec<f64>>>,
}

#[derive(Debug)]
enum Places {
    /// Numbers in a file: u, v and w of each visibility, or u and v.
    File { path: PathBuf, has_w: bool },
    /// Of an array that is made for the purpose, whose longest distance the cells just show.
    Simulated { antennas: usize, hours: f64, times: usize, declination: f64 },
}

/// One block, with what is the same for all.
#[derive(Debug)]
struct Block {
    observation: Arc<Observation>,
    index: usize,
}

pub(super) fn read(section: &Section) -> Result<Arc<dyn Kind>> {
    let cell = section.positive("cell")?.ok_or_else(|| {
        section.place().refuse("`cell` is missing: the size of a pixel in seconds of arc")
    })?;
    let file = |key| section.path(key);
    let places = match (file("uvw")?, file("uv")?, section.count("antennas")?) {
        (Some(path), None, None) => Places::File { path, has_w: true },
        (None, Some(path), None) => Places::File { path, has_w: false },
        (None, None, Some(antennas)) if antennas >= 2 => Places::Simulated {
            antennas,
            hours: section.positive("hours")?.unwrap_or(8.0),
            times: section.count("times")?.unwrap_or(60),
            declination: section.get::<f64>("declination")?.unwrap_or(-45.0),
        },
        (None, None, Some(_)) => {
            return Err(section.place_of("antennas").refuse("1 is given; 2 or more are expected"));
        }
        _ => {
            return Err(section.place().refuse(
                "one of `uvw` or `uv` (a file with three or two numbers in wavelengths for each visibility) and `antennas` (for \
                 an array that is made for the purpose) is expected",
            ));
        }
    };
    let weightings = [("natural", 0), ("uniform", 1), ("briggs", 2)];
    let robustness = section.get::<f64>("robustness")?;
    let weighting = match section.choose("weighting", &weightings)?.unwrap_or(0) {
        2 => match robustness.unwrap_or(0.0) {
            robustness if (-5.0..=5.0).contains(&robustness) => Weighting::Briggs(robustness),
            other => {
                let reason = format!("{other} is given; -5 to 5 is expected, -2 to 2 is usual");
                return Err(section.place_of("robustness").refuse(reason));
            }
        },
        _ if robustness.is_some() => {
            return Err(section.place_of("robustness").refuse(
                "it belongs to weighting = \"briggs\", and `weighting` is another; leave it out",
            ));
        }
        1 => Weighting::Uniform,
        _ => Weighting::Natural,
    };
    let (weights, polarisation) = (file("weights")?, section.get::<&str>("polarisation")?);
    if polarisation.is_some() {
        let own = match &places {
            Places::File { path, .. } => Some(path),
            Places::Simulated { .. } => None,
        };
        // One that is not there is named later, by who reads it.
        let may_have = |path: &PathBuf| !path.exists() || io::is_uvfits(path);
        if !own.into_iter().chain(&weights).any(may_have) {
            return Err(section.place_of("polarisation").refuse(
                "it belongs to UVFITS files, and neither `uvw` nor `weights` is one; leave it out",
            ));
        }
    }
    let observation = Observation {
        place: section.place(),
        cell: cell * ARCSECOND,
        places,
        blocks: section.count("blocks")?.unwrap_or(1),
        weighting,
        weights,
        polarisation: polarisation.map(str::to_owned),
        centre: read_centre(section)?,
        beam: file("beam")?,
        accuracy: section.positive("accuracy")?.unwrap_or(1e-5),
        known: OnceLock::new(),
    };
    Ok(Arc::new(Whole(Arc::new(observation))))
}

/// `phase-centre`.
fn read_centre(section: &Section) -> Result<Option<[f64; 2]>> {
    let Some(given) = section.get::<Vec<f64>>("phase-centre")? else { return Ok(None) };
    match given[..] {
        [ra, dec] if (-360.0..=360.0).contains(&ra) && (-90.0..=90.0).contains(&dec) => {
            Ok(Some([ra, dec]))
        }
        _ => Err(section.place_of("phase-centre").refuse(format!(
            "{given:?} is given; right ascension and declination in degrees are expected, as in [10.68, 41.27]"
        ))),
    }
}

#[derive(Debug)]
struct Whole(Arc<Observation>);

impl Kind for Whole {
    fn image_shape(&self, _: &[usize]) -> Option<Vec<usize>> {
        None
    }

    fn operators(&self, _: &[usize], _: Option<&Measured>) -> Result<Vec<Arc<dyn Single>>> {
        let block =
            |index| -> Arc<dyn Single> { Arc::new(Block { observation: self.0.clone(), index }) };
        Ok((0..self.0.blocks).map(block).collect())
    }

    fn has_gaps(&self) -> bool {
        true
    }

    fn shares_file(&self) -> bool {
        true
    }

    /// Values of one polarisation do not go with the flags and weights of another.
    fn check_entry(&self, entry: Option<&str>) -> Result<()> {
        let Places::File { path, .. } = &self.0.places else { return Ok(()) };
        let weights = self.0.weights.as_ref().unwrap_or(path);
        // An archive of arrays has its visibilities under this name, and a job may be for both.
        let values = entry.filter(|name| *name != "visibilities").unwrap_or("I");
        let own = self.0.polarisation.as_deref().unwrap_or("I");
        if values == own || !io::is_uvfits(weights) {
            return Ok(());
        }
        Err(self.0.place.refuse(format!(
            "`polarisation` is {own}, and `entry` of [measurements] is {values}; the same is expected for both, and I if they are not \
             given"
        )))
    }

    fn measures_pixels(&self) -> bool {
        false
    }

    fn placement(&self, image: &[usize]) -> Option<Placement> {
        let observation = &self.0;
        let centre = observation.centre.or_else(|| match &observation.places {
            Places::File { path, .. } => io::uvfits_centre(path),
            Places::Simulated { .. } => None,
        });
        let [.., rows, columns] = *image else { return None };
        let degrees = observation.cell.to_degrees();
        let fits = FitsHeader::tangent(degrees, [rows, columns], centre);
        let metadata = Metadata { fits: Some(fits), ..Metadata::default() };
        Some(Placement { metadata, ..Placement::default() })
    }

    fn files(&self) -> Vec<PathBuf> {
        let observation = &self.0;
        let places = match &observation.places {
            Places::File { path, .. } => Some(path),
            Places::Simulated { .. } => None,
        };
        let all = [places, observation.weights.as_ref(), observation.beam.as_ref()];
        all.into_iter().flatten().cloned().collect()
    }
}

impl Observation {
    /// (u, v, w) of all visibilities.
    fn uvw(&self) -> Result<Vec<[f64; 3]>> {
        Ok(match &self.places {
            Places::File { path, has_w } => {
                let (key, each) = if *has_w { ("uvw", 3) } else { ("uv", 2) };
                let values = self.numbers(path, key, each)?;
                values
                    .chunks(each)
                    .map(|at| [at[0], at[1], at.get(2).copied().unwrap_or(0.0)])
                    .collect()
            }
            Places::Simulated { antennas, hours, times, declination } => Coverage {
                antennas: *antennas,
                hours: *hours,
                times: *times,
                declination: *declination,
                longest: 0.45 / self.cell,
            }
            .uvw(),
        })
    }

    /// The w of all visibilities, read once.
    fn known_w(&self) -> Option<&[f64]> {
        let read = || Some(self.uvw().ok()?.iter().map(|[_, _, w]| *w).collect());
        self.known.get_or_init(read).as_deref()
    }

    /// (u, v, w) and weights of all visibilities, which follow from all of them.
    fn all(&self, image: &[usize]) -> Result<(Vec<[f64; 3]>, Vec<f64>)> {
        let uvw = self.uvw()?;
        let own = self.own_weights();
        let own = own.map(|path| self.numbers(path, "weights", 1)).transpose()?;
        if let Some(own) = own.as_ref().filter(|own| own.len() != uvw.len()) {
            return Err(Error::argument(
                "weights",
                format!("{} for {} visibilities; one for each is expected", own.len(), uvw.len()),
            ));
        }
        if let (Some(own), Some(path)) = (&own, self.own_weights())
            && own.iter().all(|weight| *weight == 0.0)
        {
            let reason = format!("those of {} add up to nothing: all is flagged", path.display());
            return Err(Error::argument("weights", reason));
        }
        let uv: Vec<[f64; 2]> = uvw.iter().map(|[u, v, _]| [*u, *v]).collect();
        let sides = [image[image.len() - 2], image[image.len() - 1]];
        let weights = self.weighting.weights(&uv, own.as_deref(), sides, self.cell);
        Ok((uvw, weights))
    }

    /// The file with weights: one of its own, or the UVFITS file of the places, whose flags are weights of 0.
    fn own_weights(&self) -> Option<&Path> {
        match (&self.weights, &self.places) {
            (Some(path), _) => Some(path),
            (None, Places::File { path, .. }) if io::is_uvfits(path) => Some(path),
            (None, _) => None,
        }
    }

    /// So many numbers for each visibility. UVFITS has places and weights in one file.
    fn numbers(&self, path: &Path, key: &str, each: usize) -> Result<Vec<f64>> {
        if !io::is_uvfits(path) {
            return numbers::read_wide(path, key, each);
        }
        let limits = Limits { side: Limits::NONE.side, ..Limits::default() };
        let read = io::read_uvfits(path, self.polarisation.as_deref(), &limits)?;
        Ok(match key {
            "weights" => read.weights,
            _ => read.uvw.iter().flat_map(|uvw| uvw[..each].to_vec()).collect(),
        })
    }

    /// The visibilities of a block, of so many: neighbours in time are together.
    fn range(&self, index: usize, count: usize) -> Range<usize> {
        index * count / self.blocks..(index + 1) * count / self.blocks
    }

    /// The operator of a block.
    fn block(&self, image: &[usize], index: usize) -> Result<Visibilities> {
        let (uvw, weights) = self.all(image)?;
        let range = self.range(index, uvw.len());
        let beam =
            self.beam.as_ref().map(|path| io::read(path, &ReadOptions::default())).transpose()?;
        let beam = beam.map(|beam| beam.array.index_axis_move(Axis(0), 0));
        let (uvw, weights) = (&uvw[range.clone()], &weights[range]);
        Visibilities::with(image, uvw, self.cell, Some(weights), beam.as_deref(), self.accuracy)
    }
}

impl Single for Block {
    fn name(&self) -> &'static str {
        "visibilities"
    }

    fn draft(&self, image: &[usize]) -> Result<Arc<dyn Physics>> {
        let observation = &self.observation;
        let block = observation.block(image, self.index);
        Ok(Arc::new(block.map_err(|error| observation.place.refuse(error))?))
    }

    fn measured_values(&self, image: &[usize]) -> usize {
        match self.observation.known_w() {
            Some(w) => 2 * self.observation.range(self.index, w.len()).len(),
            None => super::pixels(image),
        }
    }

    fn footprint(&self, image: &[usize], threads: usize) -> Footprint {
        let (Some(w), &[_, rows, columns]) = (self.observation.known_w(), image) else {
            return Footprint::default();
        };
        let observation = &self.observation;
        let own = &w[observation.range(self.index, w.len())];
        let sides = [rows, columns];
        let mut found =
            Footprint::visibilities(sides, own, observation.cell, observation.accuracy, threads);
        // All places and weights are read to make one block.
        found.made += (w.len() - own.len()) * 56;
        // Those of w stay.
        found.applied += w.len() * 8;
        found
    }

    fn has_own_size(&self) -> bool {
        true
    }

    fn looks_like_image(&self) -> bool {
        false
    }

    fn suited(&self, measured: Array) -> Array {
        let mut all = super::as_samples(measured);
        if all.ndim() == 3 {
            let range = self.observation.range(self.index, all.len_of(Axis(2)));
            all.slice_axis_inplace(Axis(2), Slice::from(range));
        }
        all.as_standard_layout().into_owned()
    }

    fn weigh(&self, image: &[usize], measured: Array) -> Result<Array> {
        let (_, weights) = self.observation.all(image)?;
        Ok(super::weighted(measured, &weights[self.observation.range(self.index, weights.len())]))
    }
}
