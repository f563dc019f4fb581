//! Studies of networks alone: memory by width, batches of patches, and the overlap of tiles.

use std::str::FromStr;

use haloscope_job::{DeviceChoice, parse_bytes};
use haloscope_nn::models::ModelName;

use super::{alone, check_list, check_trials, trial};
use crate::error::{Error, Result};
use crate::row::{Configuration, Study};
use crate::tiles;
use crate::trial::{Settings, Trial};

/// What a network may take for one image.
///
/// ```
/// use haloscope_study::plan::Budget;
///
/// let budgets: Vec<Budget> = ["whole", "waves", "256MB"].iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
/// assert_eq!(budgets[2], Budget::Bytes(256_000_000));
/// # Ok::<(), haloscope_study::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// What the fastest plan for the whole image takes.
    Whole,
    /// What waves of rows take.
    Waves,
    /// So many bytes.
    Bytes(u64),
}

impl Budget {
    /// As tables have it.
    pub(crate) fn column(self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Waves => Some("waves".into()),
            Self::Bytes(bytes) if bytes.is_multiple_of(1_000_000) => {
                Some(format!("{}MB", bytes / 1_000_000))
            }
            Self::Bytes(bytes) => Some(format!("{bytes}B")),
        }
    }

    /// That of a table.
    pub(crate) fn of_column(column: Option<&str>) -> Result<Self> {
        column.map_or(Ok(Self::Whole), str::parse)
    }
}

impl FromStr for Budget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "whole" => Ok(Self::Whole),
            "waves" => Ok(Self::Waves),
            _ => parse_bytes(text).map(Self::Bytes).map_err(|reason| {
                Error::argument("budget", format!("{reason}; whole and waves are accepted too"))
            }),
        }
    }
}

/// Networks on images of several widths.
#[derive(Clone, Debug)]
pub struct MemoryStudy {
    /// The networks.
    pub models: Vec<ModelName>,
    /// Rows of the image.
    pub height: usize,
    /// Columns of the image.
    pub widths: Vec<usize>,
    /// What each network may take for an image.
    pub budgets: Vec<Budget>,
    /// The device for the network.
    pub device: DeviceChoice,
    /// Threads.
    pub threads: usize,
    /// How often each is timed.
    pub repetitions: usize,
    /// What is the same for all.
    pub settings: Settings,
}

impl MemoryStudy {
    /// The widths from half of `longest` to it in steps of 64, which every network likes, and of 68, which DRUNet
    /// must pad: the two grids that show whether memory depends on anything but the number of pixels.
    #[must_use]
    pub fn widths(longest: usize) -> Vec<usize> {
        let steps = [64, 68].map(|step| (longest / 2..=longest).step_by(step));
        let mut widths: Vec<usize> = steps.into_iter().flatten().collect();
        widths.sort_unstable();
        widths.dedup();
        widths
    }

    /// One trial per network and width.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("widths", &self.widths)?;
        check_list("height", &[self.height])?;
        if self.device != DeviceChoice::Cpu && self.budgets != [Budget::Whole] {
            let reason = format!("{}; waves and budgets need the CPU engine", self.device);
            return Err(Error::argument("device", reason));
        }
        let mut trials = Vec::new();
        for model in &self.models {
            for budget in &self.budgets {
                for &width in &self.widths {
                    let configuration = Configuration {
                        height: self.height,
                        width,
                        budget: budget.column(),
                        ..alone(Study::Memory, model, self.threads).on_device(self.device)
                    };
                    trials.push(trial(configuration, &self.settings, self.repetitions));
                }
            }
        }
        check_trials(trials)
    }
}

/// An image as patches, several of which are denoised at once.
#[derive(Clone, Debug)]
pub struct BatchStudy {
    /// The networks.
    pub models: Vec<ModelName>,
    /// The side of the image.
    pub size: usize,
    /// The sides of patches.
    pub patches: Vec<usize>,
    /// How many are denoised at once.
    pub batches: Vec<usize>,
    /// The pixels that a patch sees beyond its own.
    pub overlap: usize,
    /// The device for the network.
    pub device: DeviceChoice,
    /// Threads.
    pub threads: usize,
    /// How often each is timed.
    pub repetitions: usize,
    /// What is the same for all.
    pub settings: Settings,
}

impl BatchStudy {
    /// One trial per patch and batch; batches of more patches than the image has are left out.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("size", &[self.size])?;
        check_list("patches", &self.patches)?;
        check_list("batches", &self.batches)?;
        let mut trials = Vec::new();
        for model in &self.models {
            for &patch in &self.patches {
                let base = Configuration {
                    height: self.size,
                    width: self.size,
                    patch: Some(patch),
                    overlap: Some(self.overlap),
                    ..alone(Study::Batch, model, self.threads).on_device(self.device)
                };
                let tiles = tiles::plan(&base)?.len();
                for &batch in self.batches.iter().filter(|batch| **batch <= tiles) {
                    let configuration = Configuration { batch: Some(batch), ..base.clone() };
                    trials.push(trial(configuration, &self.settings, self.repetitions));
                }
            }
        }
        check_trials(trials)
    }
}

/// A network on an image in tiles of several overlaps, against the network on the whole image.
#[derive(Clone, Debug)]
pub struct OverlapStudy {
    /// The networks.
    pub models: Vec<ModelName>,
    /// The side of the image.
    pub size: usize,
    /// The sides of patches.
    pub patches: Vec<usize>,
    /// The pixels that a patch sees beyond its own.
    pub overlaps: Vec<usize>,
    /// Standard deviations of the noise, where white is 1; networks are given the same.
    pub levels: Vec<f64>,
    /// Threads.
    pub threads: usize,
    /// How often each is timed.
    pub repetitions: usize,
    /// What is the same for all.
    pub settings: Settings,
}

impl OverlapStudy {
    /// One trial per network, patch, overlap and level.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("size", &[self.size])?;
        check_list("patches", &self.patches)?;
        // Networks are given numbers of single precision.
        let is_level = |level: &f64| (*level as f32).is_finite() && *level as f32 > 0.0;
        if self.levels.is_empty() || !self.levels.iter().all(is_level) {
            let reason = format!(
                "{:?} were given; at least one is needed, all above 0 and at most {:e}",
                self.levels,
                f32::MAX
            );
            return Err(Error::argument("levels", reason));
        }
        let mut trials = Vec::new();
        for model in &self.models {
            for &patch in &self.patches {
                for level in &self.levels {
                    for &overlap in &self.overlaps {
                        let configuration = Configuration {
                            height: self.size,
                            width: self.size,
                            patch: Some(patch),
                            overlap: Some(overlap),
                            level: Some(level.to_string()),
                            ..alone(Study::Overlap, model, self.threads)
                        };
                        tiles::plan(&configuration)?;
                        trials.push(trial(configuration, &self.settings, self.repetitions));
                    }
                }
            }
        }
        check_trials(trials)
    }
}
