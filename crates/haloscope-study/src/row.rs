//! The table of results: one row per configuration, repetition, iteration and rank.
//!
//! The fields are the [columns](crate::columns), by name: what is measured is a [`Configuration`], and what was measured
//! is beside it. A field that does not apply is empty.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use haloscope_job::words::sides;
use haloscope_job::{DeviceChoice, Distribution};

use crate::error::{Error, Result};
use crate::problem::Problem;

/// Which study a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Study {
    /// Reconstructions on several numbers of ranks.
    Scaling,
    /// A network on images of several widths.
    Memory,
    /// An image as patches of several sizes, several at once.
    Batch,
    /// Reconstructions in haloscope and in other systems.
    Compare,
    /// Reconstructions on any number of ranks of which messages are counted and nothing is timed.
    Counts,
    /// A network on an image in tiles of several overlaps, against the network on the whole image.
    Overlap,
}

/// What grows with the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing: the same problem on more ranks.
    Strong,
    /// The image, so that each rank has the same share of it.
    Weak,
    /// The number of problems: every rank has one of its own, side by side with the others and without a word between them.
    Contention,
}

/// What ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// There is one.
    Solo,
    /// Threads of a process.
    Threads,
    /// Processes under MPI.
    Mpi,
    /// Processes that torchrun starts, of programs in Python.
    Torchrun,
}

/// Where the image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// All of it on every rank.
    Replicated,
    /// A part of it on each rank.
    Sharded,
}

/// What is measured: the columns that tell rows of different runs apart, but for the repetition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Configuration {
    /// The study.
    pub study: Study,
    /// The program: `haloscope`, or another to compare with.
    pub system: String,
    /// The problem; none where a network runs on its own.
    pub problem: Option<Problem>,
    /// What grows with the number of ranks.
    pub mode: Option<Mode>,
    /// What the ranks are.
    pub backend: Backend,
    /// The network, as [`ModelName`](haloscope_nn::models::ModelName) writes it.
    pub model: String,
    /// Rows of the image.
    pub height: usize,
    /// Columns of the image.
    pub width: usize,
    /// Slices of the image, if it is a volume.
    pub depth: Option<usize>,
    /// The side of a tile's own pixels.
    pub patch: Option<usize>,
    /// The pixels that a tile sees beyond them on either side.
    pub overlap: Option<usize>,
    /// The tiles that are denoised at once.
    pub batch: Option<usize>,
    /// What a network may take for one image: `waves`, or bytes as in `256MB`; none for the fastest plan.
    #[serde(default)]
    pub budget: Option<String>,
    /// The standard deviation of the noise in the image and the level that a network is given, where that is studied.
    #[serde(default)]
    pub level: Option<String>,
    /// The number of operators.
    pub operators: Option<usize>,
    /// What the ranks share.
    #[serde(default)]
    pub distribute: Option<Distribution>,
    /// Where the image is.
    #[serde(default)]
    pub layout: Option<Layout>,
    /// The device that was asked for, as [`DeviceChoice`] writes it; none for the CPU engine.
    #[serde(default)]
    pub device: Option<String>,
    /// The number of ranks.
    pub ranks: usize,
    /// Threads of each rank.
    pub threads: usize,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What the row is of: columns like the others.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// Whether the row was computed by the [model](crate::model) and not measured.
    pub predicted: bool,
    /// The repetition, from 0.
    pub repetition: usize,
    /// The iteration, from 1.
    pub iteration: Option<usize>,
    /// The rank.
    pub rank: usize,
    /// Seconds of the iteration, or of the whole image where nothing iterates.
    pub total_seconds: f64,
    /// Seconds of the data term, its communication included.
    pub data_seconds: Option<f64>,
    /// Seconds of the denoiser, its communication included.
    pub prior_seconds: Option<f64>,
    /// Seconds in which data moved between ranks.
    pub transfer_seconds: Option<f64>,
    /// Seconds of waiting for other ranks.
    pub waiting_seconds: Option<f64>,
    /// The least seconds of the iteration that a prediction allows for.
    #[serde(default)]
    pub low_seconds: Option<f64>,
    /// The most seconds of the iteration that a prediction allows for.
    #[serde(default)]
    pub high_seconds: Option<f64>,
    /// Bytes that the rank sent.
    pub bytes_sent: Option<u64>,
    /// What the plan of the job says that the rank sends.
    #[serde(default)]
    pub predicted_bytes_sent: Option<u64>,
    /// Rounds in which the rank exchanged borders with its neighbours.
    #[serde(default)]
    pub halo_rounds: Option<u64>,
    /// What the plan of the job says of those of the network.
    #[serde(default)]
    pub predicted_halo_rounds: Option<u64>,
    /// The most memory that the rank's process has held so far; in the studies of a network alone, what it
    /// took for the network.
    pub peak_bytes: Option<u64>,
    /// The memory that the rank's process holds after the iteration.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
    /// What the network's plan said that it would take.
    pub predicted_bytes: Option<u64>,
    /// The device that ran the network of the rank.
    #[serde(default)]
    pub device_name: Option<String>,
    /// What the plan said that it would take of the device's own memory.
    #[serde(default)]
    pub predicted_device_bytes: Option<u64>,
    /// The pixels that the rank's tiles are computed on.
    pub pixels_computed: Option<u64>,
    /// Those of them that become pixels of the image.
    pub pixels_kept: Option<u64>,
    /// The tiles that would be denoised at once if nobody said how many.
    #[serde(default)]
    pub automatic_batch: Option<u64>,
    /// How far the image in tiles is from that of the whole network: the root of the mean square.
    #[serde(default)]
    pub seam_rms: Option<f64>,
    /// The same: the largest difference of a pixel.
    #[serde(default)]
    pub seam_largest: Option<f64>,
    /// The data term before the iteration.
    pub data_term: Option<f64>,
    /// How far the image moved, relative to its norm.
    pub relative_change: Option<f64>,
    /// The quality of the image.
    pub psnr_db: Option<f64>,
}

/// What this program is called in tables.
pub(crate) const SYSTEM: &str = "haloscope";

/// What it was called in predictions of images in shards before the table had a column for them.
const SYSTEM_IN_SHARDS: &str = "haloscope-sharded";

impl Row {
    /// This row, with what tables of earlier versions do not say: their ranks shared operators and tiles, and all had the
    /// image, but for predictions that called themselves a system of their own.
    #[must_use]
    pub(crate) fn completed(mut self) -> Self {
        if self.configuration.study == Study::Scaling {
            self.configuration.distribute.get_or_insert_default();
            if self.configuration.system == SYSTEM_IN_SHARDS {
                self.configuration.system = SYSTEM.into();
                self.configuration.layout = Some(Layout::Sharded);
            }
            self.configuration.layout.get_or_insert(Layout::Replicated);
        }
        self
    }
}

impl Configuration {
    /// A row of this configuration in which nothing is measured yet.
    #[must_use]
    pub fn row(&self, repetition: usize, rank: usize, total_seconds: f64) -> Row {
        Row {
            configuration: self.clone(),
            predicted: false,
            repetition,
            iteration: None,
            rank,
            total_seconds,
            data_seconds: None,
            prior_seconds: None,
            transfer_seconds: None,
            waiting_seconds: None,
            low_seconds: None,
            high_seconds: None,
            bytes_sent: None,
            predicted_bytes_sent: None,
            halo_rounds: None,
            predicted_halo_rounds: None,
            peak_bytes: None,
            resident_bytes: None,
            predicted_bytes: None,
            device_name: None,
            predicted_device_bytes: None,
            pixels_computed: None,
            pixels_kept: None,
            automatic_batch: None,
            seam_rms: None,
            seam_largest: None,
            data_term: None,
            relative_change: None,
            psnr_db: None,
        }
    }

    /// The device for the network.
    pub(crate) fn device(&self) -> Result<DeviceChoice> {
        let Some(device) = &self.device else { return Ok(DeviceChoice::default()) };
        device.parse().map_err(|reason: String| Error::argument("device", reason))
    }

    /// This configuration with its network on a device.
    #[must_use]
    pub(crate) fn on_device(self, device: DeviceChoice) -> Self {
        let device = (device != DeviceChoice::Cpu).then(|| device.to_string());
        Self { device, ..self }
    }

    /// This configuration for an image of two spatial sides, or three, of which the first is the depth.
    #[must_use]
    pub(crate) fn with_sides(self, sides: &[usize]) -> Self {
        match *sides {
            [height, width] => Self { height, width, depth: None, ..self },
            [depth, height, width] => Self { height, width, depth: Some(depth), ..self },
            _ => self,
        }
    }

    /// The spatial sides of the image, the depth of a volume first.
    #[must_use]
    pub fn sides(&self) -> Vec<usize> {
        self.depth.into_iter().chain([self.height, self.width]).collect()
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(problem) = self.problem {
            write!(f, "{problem} ")?;
        }
        write!(f, "{}, {}", sides(&self.sides()), self.model)?;
        if let Some(device) = &self.device {
            write!(f, " on {device}")?;
        }
        match self.study {
            Study::Memory => match self.budget.as_deref() {
                None => Ok(()),
                Some("waves") => f.write_str(", in waves"),
                Some(budget) => write!(f, ", within {budget}"),
            },
            Study::Overlap => {
                let level = self.level.as_deref().unwrap_or_default();
                write!(f, ", patches of {}", self.patch.unwrap_or_default())?;
                write!(f, ", overlap {}, noise {level}", self.overlap.unwrap_or_default())
            }
            Study::Batch => write!(
                f,
                ", patches of {}, {} at once",
                self.patch.unwrap_or_default(),
                self.batch.unwrap_or_default()
            ),
            Study::Compare => {
                let ranks = if self.ranks == 1 { "rank" } else { "ranks" };
                let tiles = if self.patch.is_some() { ", in tiles" } else { "" };
                write!(f, ", {}{tiles}, {} {ranks} ({})", self.system, self.ranks, self.backend)
            }
            Study::Scaling | Study::Counts => {
                let mode = match self.mode {
                    Some(Mode::Weak) => "weak, ",
                    Some(Mode::Contention) => "side by side, ",
                    Some(Mode::Strong) | None => "",
                };
                let ranks = if self.ranks == 1 { "rank" } else { "ranks" };
                let untiled = if self.patch.is_none() { "untiled, " } else { "" };
                write!(f, ", {untiled}{mode}{} {ranks} ({})", self.ranks, self.backend)?;
                f.write_str(match self.distribute {
                    None | Some(Distribution::Both) => "",
                    Some(Distribution::Physics) => ", only physics distributed",
                    Some(Distribution::Denoiser) => ", only denoiser distributed",
                })?;
                f.write_str(if self.layout == Some(Layout::Sharded) { ", in shards" } else { "" })
            }
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Solo => "solo",
            Self::Threads => "threads",
            Self::Mpi => "mpi",
            Self::Torchrun => "torchrun",
        })
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "threads" => Ok(Self::Threads),
            "mpi" => Ok(Self::Mpi),
            _ => Err(Error::argument(
                "backend",
                format!("`{name}` is unknown; there are threads and mpi"),
            )),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replicated => "replicated",
            Self::Sharded => "sharded",
        })
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "replicated" => Ok(Self::Replicated),
            "sharded" => Ok(Self::Sharded),
            _ => Err(Error::argument(
                "layout",
                format!("`{name}` is unknown; there are replicated and sharded"),
            )),
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "strong" => Ok(Self::Strong),
            "weak" => Ok(Self::Weak),
            "contention" => Ok(Self::Contention),
            _ => Err(Error::argument(
                "mode",
                format!("`{name}` is unknown; there are strong, weak and contention"),
            )),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A configuration for tests of what is done with rows.
    pub(crate) fn configuration(ranks: usize) -> Configuration {
        Configuration {
            study: Study::Scaling,
            system: "haloscope".into(),
            problem: Some(Problem::Deblur),
            mode: Some(Mode::Strong),
            backend: Backend::Threads,
            model: "drunet".into(),
            height: 64,
            width: 64,
            depth: None,
            patch: Some(32),
            overlap: Some(8),
            batch: Some(1),
            budget: None,
            level: None,
            operators: Some(8),
            distribute: Some(Distribution::Both),
            layout: Some(Layout::Replicated),
            device: None,
            ranks,
            threads: 1,
        }
    }

    #[test]
    fn what_is_not_as_usual_is_said() {
        let of = |distribute| {
            Configuration { distribute: Some(distribute), ..configuration(2) }.to_string()
        };
        assert_eq!(of(Distribution::Both), "deblur 64x64, drunet, 2 ranks (threads)");
        assert!(of(Distribution::Physics).ends_with("(threads), only physics distributed"));
        assert!(of(Distribution::Denoiser).ends_with("(threads), only denoiser distributed"));
        let parts = Configuration { layout: Some(Layout::Sharded), ..configuration(2) };
        assert!(parts.to_string().ends_with("2 ranks (threads), in shards"), "{parts}");
        let gpu = configuration(2).on_device(DeviceChoice::Gpu(Some(1)));
        assert_eq!(gpu.to_string(), "deblur 64x64, drunet on gpu:1, 2 ranks (threads)");
        assert_eq!(configuration(2).on_device(DeviceChoice::Cpu), configuration(2));
        let whole = Configuration { patch: None, ..configuration(1) };
        assert_eq!(whole.to_string(), "deblur 64x64, drunet, untiled, 1 rank (threads)");
    }

    #[test]
    fn predictions_of_earlier_versions_become_rows_in_shards() {
        let old = |system: &str| {
            let configuration =
                Configuration { system: system.into(), layout: None, ..configuration(2) };
            configuration.row(0, 0, 1.0).completed().configuration
        };
        let parts = Configuration { layout: Some(Layout::Sharded), ..configuration(2) };
        assert_eq!((old("haloscope-sharded"), old("haloscope")), (parts, configuration(2)));
    }

    #[test]
    fn fields_are_the_columns() {
        let cells = serde_json::to_value(configuration(2).row(0, 1, 0.5)).expect("a row");
        let fields: BTreeSet<&str> =
            cells.as_object().expect("named cells").keys().map(String::as_str).collect();
        assert_eq!(fields, crate::columns::names().collect());
    }
}
