//! Who watches a run: events as data, a request to stop, and what is made of the result.

use haloscope::Result;
use haloscope::solve::Record;

use crate::memory::Expected;
use crate::outcome::Outcome;
use crate::quality::Quality;

/// Watches a run on one rank. All methods have defaults; `()` watches nothing.
///
/// Every rank has an observer of its own. What concerns the run as a whole (notes, warnings, comparisons with the truth) is
/// told to that of the first rank alone.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: Event<'_>) {
        let _ = event;
    }

    /// A reason to stop, asked for after every iteration: the number of a signal, or any other above 0. The run ends on all
    /// ranks as soon as one of them has a reason, with a checkpoint if it has a folder for them.
    fn stop(&mut self) -> Option<u8> {
        None
    }

    /// The image is found, and its files, pictures and page are written; called on the first rank. What is written here belongs to the
    /// result: an error is one of the run, whose checkpoints are then kept.
    fn conclude(&mut self, outcome: &Outcome) -> Result<()> {
        let _ = outcome;
        Ok(())
    }
}

impl Observer for () {}

/// What an [`Observer`] is told.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A stage of the run is over.
    Stage {
        /// What was done.
        name: &'static str,
        /// How long it took.
        seconds: f64,
    },
    /// What the run will take, before anything is computed.
    Planned(&'a Expected),
    /// The iterations begin.
    Started {
        /// The image, without its batch: (channel, spatial…).
        shape: &'a [usize],
        /// The number of operators.
        operators: usize,
        /// The most iterations that there will be.
        iterations: usize,
        /// The iterations of an earlier run that this one resumes from.
        resumed_from: Option<usize>,
    },
    /// Something that was found in the data or chosen for them.
    Note(&'a str),
    /// Something that may be wrong, though the run goes on.
    Warning(&'a str),
    /// Something that only who asks for details wants to know.
    Detail(&'a str),
    /// An iteration is done.
    Iteration {
        /// Its times and numbers on this rank.
        record: &'a Record,
        /// How near the truth the image is, where it was compared after this iteration.
        quality: Option<Quality>,
    },
    /// A part of a [denoising of a file](crate::FileDenoising) is done.
    Worked {
        /// The floating-point operations of the part.
        flops: f64,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// After this iteration.
        iteration: usize,
    },
}
