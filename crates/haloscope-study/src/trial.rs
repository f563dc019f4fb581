//! The request to a measuring process, and its answers.
//!
//! Every configuration is measured in its own process, so that its peak memory is its own and a failure affects nothing
//! else. The request is one JSON document; the answers are lines of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::row::{Backend, Configuration, Row, Study};

/// What is the same for all configurations of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Iterations that are measured.
    pub iterations: usize,
    /// Iterations before, that are not.
    pub warm_up: usize,
    /// The standard deviation of the measurements' noise; the problem's own if none is given.
    pub noise: Option<f64>,
    /// The noise level that the denoiser is given.
    pub sigma: f64,
    /// The seed of all that is random.
    pub seed: u64,
    /// The digest of the [`Volume`](crate::volume::Volume) that is scanned, if it is not the phantom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { iterations: 10, warm_up: 1, noise: None, sigma: 0.05, seed: 1, volume: None }
    }
}

/// A configuration, and which repetitions of it are to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What is measured.
    pub configuration: Configuration,
    /// What is the same for all.
    pub settings: Settings,
    /// Which repetitions.
    pub repetitions: Vec<usize>,
    /// The file of the image that is to be found; if there is none, the problem makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<PathBuf>,
}

impl Trial {
    /// The rows that each repetition has.
    #[must_use]
    pub(crate) fn rows_per_repetition(&self) -> usize {
        match self.configuration.study {
            Study::Scaling | Study::Compare => self.configuration.ranks * self.settings.iterations,
            // The first iteration is not comparable.
            Study::Counts => self.configuration.ranks * self.settings.iterations.saturating_sub(1),
            Study::Memory | Study::Batch | Study::Overlap => 1,
        }
    }
}

/// What a measuring process is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// To measure a configuration.
    Trial(Box<Trial>),
    /// What messages between two ranks cost.
    Link(Backend),
}

/// What a measuring process says, a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The digest of the truth and of all measurements, which depends on nothing but the problem.
    Data(String),
    /// A repetition is done.
    Repetition {
        /// The rows of all its iterations and ranks.
        rows: Vec<Row>,
        /// The digest of the image that was found.
        image: Option<String>,
    },
    /// What messages between two ranks cost.
    Link(LinkSpeed),
    /// The settings of another system: versions, and how it computes.
    Peer(Value),
}

/// What a message costs: `latency + bytes / bandwidth`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpeed {
    /// Seconds for a message of no length.
    pub latency_seconds: f64,
    /// Bytes per second that a rank sends while it receives as many.
    pub bytes_per_second: f64,
}
