//! Reconstructions in haloscope and in other systems.

use std::str::FromStr;

use haloscope_nn::models::ModelName;

use super::{Preset, alone, check_list, check_trials, reconstruction, trial};
use crate::error::{Error, Result};
use crate::problem::{self, Problem, Size};
use crate::row::{Backend, Configuration, SYSTEM, Study};
use crate::tiles;
use crate::trial::{Settings, Trial};

/// The system that haloscope is compared with.
const DEEPINV: &str = "deepinv";

/// Reconstructions in haloscope and in other systems, each alone on the machine.
#[derive(Clone, Debug)]
pub struct CompareStudy {
    /// The systems.
    pub systems: Vec<String>,
    /// The problems.
    pub problems: Vec<Problem>,
    /// Their sizes; those of the scaling study if none is given.
    pub sizes: Vec<Size>,
    /// The numbers of ranks, or of processes of other systems. The threads are divided among them.
    pub ranks: Vec<usize>,
    /// How images are cut.
    pub cuts: Vec<Cutting>,
    /// The network.
    pub model: Option<ModelName>,
    /// The number of operators.
    pub operators: usize,
    /// Threads.
    pub threads: usize,
    /// How often each is measured.
    pub repetitions: usize,
    /// Whether sizes that are not given are those of the full grid.
    pub full: bool,
    /// What is the same for all.
    pub settings: Settings,
}

/// How a comparison cuts images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cutting {
    /// Not at all: the network sees the whole image.
    Whole,
    /// In tiles of the usual lengths.
    Tiles,
}

impl FromStr for Cutting {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "whole" => Ok(Self::Whole),
            "tiles" => Ok(Self::Tiles),
            _ => Err(Error::argument(
                "cut",
                format!("`{name}` is unknown; there are whole and tiles"),
            )),
        }
    }
}

impl CompareStudy {
    /// One trial per problem, size and system.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("ranks", &self.ranks)?;
        let mut trials = Vec::new();
        for system in &self.systems {
            for &problem in &self.problems {
                let preset = Preset::of(problem, self.full);
                let model = preset.model_or(self.model.as_ref(), problem)?;
                for size in preset.sizes_or(&self.sizes) {
                    let sides = problem::sides(problem, &size, 1)?;
                    check_slices(system, problem, &sides)?;
                    for cut in &self.cuts {
                        let tiles = match cut {
                            Cutting::Whole => None,
                            Cutting::Tiles => {
                                let standard = tiles::standard(&model, &sides)?;
                                check_tiles(system, standard.0, &sides)?;
                                Some(standard)
                            }
                        };
                        for &ranks in &self.ranks {
                            let base = self.on_ranks(system, &model, tiles, ranks);
                            let of = reconstruction(
                                base,
                                problem,
                                &sides,
                                self.operators,
                                &self.settings,
                            )?;
                            trials.push(trial(of, &self.settings, self.repetitions));
                        }
                    }
                }
            }
        }
        check_trials(trials)
    }
}

/// Refuses scans that deepinv does not have: its slices are square.
fn check_slices(system: &str, problem: Problem, sides: &[usize]) -> Result<()> {
    let is_scan = matches!(problem, Problem::Tomography2d | Problem::Tomography3d);
    match sides {
        [.., height, width] if system == DEEPINV && is_scan && height != width => {
            let given = haloscope_job::words::sides(sides);
            let reason = format!(
                "{given}; {problem} in deepinv needs slices that are as high as wide, such as {width}x{width}"
            );
            Err(Error::argument("size", reason))
        }
        _ => Ok(()),
    }
}

/// Refuses an image that is one tile: deepinv cuts only what is larger.
fn check_tiles(system: &str, patch: usize, sides: &[usize]) -> Result<()> {
    if system != DEEPINV || sides.iter().all(|side| *side > patch) {
        return Ok(());
    }
    let given = haloscope_job::words::sides(sides);
    let reason = format!(
        "{given} in tiles; deepinv cuts only images that are larger than a tile, of {patch}"
    );
    Err(Error::argument("size", reason))
}

impl CompareStudy {
    /// The ranks of a system, with its share of the threads each.
    fn on_ranks(
        &self,
        system: &str,
        model: &ModelName,
        tiles: Option<(usize, usize)>,
        ranks: usize,
    ) -> Configuration {
        let backend = match (ranks, system) {
            (1, _) => Backend::Solo,
            (_, SYSTEM) => Backend::Threads,
            _ => Backend::Torchrun,
        };
        Configuration {
            system: system.to_owned(),
            backend,
            ranks,
            patch: tiles.map(|(patch, _)| patch),
            overlap: tiles.map(|(_, overlap)| overlap),
            batch: tiles.map(|_| 1),
            ..alone(Study::Compare, model, (self.threads / ranks).max(1))
        }
    }
}
