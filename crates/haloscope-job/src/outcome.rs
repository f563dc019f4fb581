//! What a run found, and how it went.

use std::borrow::Cow;
use std::path::PathBuf;

use haloscope::Array;
use haloscope::solve::{Reason, Record, State};

use crate::facts::Facts;
use crate::layout::Truth;
use crate::prepare::Before;
use crate::quality::Quality;

/// What a run found, and how it went. All ranks have the image, or their parts of it; files, comparisons and pictures are the
/// first rank's.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The name of the job.
    pub job: String,
    /// The name of the method.
    pub method: &'static str,
    /// The prior, in a few words.
    pub prior: String,
    /// What was found, and all that the method needs to go on from it.
    pub state: State,
    /// Why it ended.
    pub ending: Ending,
    /// The iterations of an earlier run that this one resumed from.
    pub resumed_from: Option<usize>,
    /// The time of the iterations, without comparisons and checkpoints.
    pub seconds: f64,
    /// The records of all ranks, in their order.
    pub records: Vec<Vec<Record>>,
    /// How near the truth the image was after some iterations.
    pub qualities: Vec<(usize, Quality)>,
    /// The measurements as one would look at them without a reconstruction, if pictures are wanted.
    pub before: Option<Before>,
    /// How near the truth those are.
    pub before_quality: Option<Quality>,
    /// How near the truth the image is.
    pub quality: Option<Quality>,
    /// What the image is compared with, on the first rank.
    pub truth: Option<Truth>,
    /// The number of operators.
    pub operators: usize,
    /// The device that runs the network of each rank; none without a network.
    pub devices: Vec<String>,
    /// Bytes that ranks have sent each other in the iterations.
    pub bytes_moved: u64,
    /// A digest of the image's bits.
    pub bits: String,
    /// Whether the bits depend on the number of ranks, because the job asks for tiles that suit them.
    pub depends_on_ranks: bool,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// Pictures for people, in the job's folder.
    pub pictures: Vec<PathBuf>,
    /// The report, in the job's folder.
    pub page: Option<PathBuf>,
    /// Where a checkpoint is that the run can be resumed from, if it was cut short.
    pub checkpoints: Option<PathBuf>,
    /// What the job comes down to, for reports.
    pub facts: Facts,
    pub(crate) clamp: Option<(f32, f32)>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a rule of the job.
    Rule(Reason),
    /// The method has no iterations.
    Direct,
    /// An observer asked for it, with this number.
    Stopped(u8),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rule(reason) => reason.fmt(f),
            Self::Direct => f.write_str("filtered back-projection has no iterations"),
            Self::Stopped(number) => write!(f, "it was asked to stop ({number})"),
        }
    }
}

impl Outcome {
    /// What was found, (batch, channel, spatial…); of an image in shards this rank's part.
    #[must_use]
    pub fn image(&self) -> &Array {
        self.state.image.local()
    }

    /// Iterations of which the image is the result, those of an earlier run included.
    #[must_use]
    pub fn iterations(&self) -> usize {
        self.state.iteration
    }

    /// The data term after the last iteration that knows it.
    #[must_use]
    pub fn data_term(&self) -> Option<f64> {
        self.records.first()?.iter().rev().find_map(|record| record.data_term)
    }

    /// The image as it is written: in the range that `clamp` of `[output]` asks for, if it does.
    #[must_use]
    pub fn written(&self) -> Cow<'_, Array> {
        match self.clamp {
            Some((low, high)) => Cow::Owned(self.image().mapv(|value| value.clamp(low, high))),
            None => Cow::Borrowed(self.image()),
        }
    }
}
