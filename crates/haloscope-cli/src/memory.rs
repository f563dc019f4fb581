//! What a job will take of the machine's memory, before it takes it.
//!
//! A prediction from counts of arrays: those of every method, those of the method and the prior at hand, and for each
//! operator of a rank its measurements and its term of the gradient. The image is on every rank.

use haloscope::{Error, Result};

use crate::job::Job;
use crate::machine::Machine;

/// Arrays of the image's size that every run holds: the image, the one before, gradient, start, truth and two to
/// compare.
const IMAGES: usize = 8;

/// Arrays of the size of an operator's measurements: the data, what is expected, and their difference.
const MEASUREMENTS: usize = 3;

/// Bytes on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    pub images: u64,
    pub measurements: u64,
    pub network: u64,
}

impl Prediction {
    /// For images of this shape, with its batch, and operators that measure so many values each, of which a rank has
    /// the share of the first rank.
    pub fn new(job: &Job, image: &[usize], measured: &[usize], ranks: usize) -> Self {
        let bytes = |values: u64| values.saturating_mul(4);
        let pixels = image.iter().fold(1_u64, |product, side| product.saturating_mul(*side as u64));
        let own = measured.iter().step_by(ranks.max(1));
        let (operators, values) = own.fold((0, 0), |(count, sum): (u64, u64), values| {
            (count + 1, sum.saturating_add(*values as u64))
        });
        let sides = image.len().saturating_sub(2);
        let arrays = (IMAGES + job.solver.method.images(sides, &job.prior)) as u64 + 2 * operators;
        Self {
            images: bytes(pixels.saturating_mul(arrays)),
            measurements: bytes(values.saturating_mul(MEASUREMENTS as u64)),
            network: 0,
        }
    }

    pub fn total(&self) -> u64 {
        self.images.saturating_add(self.measurements).saturating_add(self.network)
    }

    /// Refuses what does not fit on this machine, `ranks` times.
    pub fn check(&self, ranks: usize) -> Result<()> {
        let needed = self.total().saturating_mul(ranks as u64);
        match Machine::detect().memory_available_bytes {
            Some(available) if needed > available => Err(Error::argument(
                "memory",
                format!(
                    "the job needs about {} on this machine and {} are available; use a smaller image, fewer \
                     ranks, or more machines",
                    gigabytes(needed),
                    gigabytes(available)
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// In megabytes where gigabytes would say nothing.
pub fn size(bytes: u64) -> String {
    if bytes < 1_000_000_000 { format!("{:.0} MB", bytes as f64 / 1e6) } else { gigabytes(bytes) }
}

pub fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
