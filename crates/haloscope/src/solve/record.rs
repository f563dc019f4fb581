//! The record of each iteration.

use haloscope_comm::{Collectives, Context};

use crate::error::Result;

/// One iteration on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The number of completed iterations.
    pub iteration: usize,
    /// The data term at the point where the step evaluated it, if it did.
    pub data_term: Option<f64>,
    /// How far the image moved, relative to its norm.
    pub relative_change: f64,
    /// Where the time went.
    pub seconds: Seconds,
    /// The peak memory of the rank's process so far, in bytes, where the system reports it. Thread ranks share one
    /// process.
    pub peak_bytes: Option<u64>,
}

/// The seconds of one iteration on one rank. Data and prior include their communication.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// The whole step.
    pub total: f64,
    /// The gradient or prox of the data term.
    pub data: f64,
    /// The denoiser or other prior.
    pub prior: f64,
    /// Moving data between ranks.
    pub communication: f64,
    /// Waiting for other ranks.
    pub waiting: f64,
}

/// Gathers the records of every rank on all ranks, in the order of the ranks. All ranks must call it, each with the same
/// number of records of one run.
///
/// ```
/// use haloscope::solve::{Record, Seconds, gather_records};
/// use haloscope_comm::Context;
///
/// let waiting = Context::threads(2, |ctx| {
///     let seconds = Seconds { waiting: ctx.rank() as f64, ..Seconds::default() };
///     let (data_term, peak_bytes) = (None, None);
///     let record = Record { iteration: 1, data_term, relative_change: 0.1, seconds, peak_bytes };
///     let all = gather_records(ctx, &[record])?;
///     Ok::<_, haloscope::Error>(all.iter().map(|of_rank| of_rank[0].seconds.waiting).collect::<Vec<_>>())
/// })?;
/// assert_eq!(waiting, [[0.0, 1.0], [0.0, 1.0]]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn gather_records(ctx: &Context, records: &[Record]) -> Result<Vec<Vec<Record>>> {
    let words: Vec<u64> = records.iter().flat_map(|record| record.to_words()).collect();
    let mut all = vec![0; words.len() * ctx.size()];
    ctx.comm().all_gather_into(&words, &vec![words.len(); ctx.size()], &mut all)?;
    let of_rank = |rank: usize| {
        let words = &all[rank * words.len()..][..words.len()];
        words.as_chunks().0.iter().map(Record::from_words).collect()
    };
    Ok((0..ctx.size()).map(of_rank).collect())
}

/// The words of a record, for the ranks to send each other.
const WORDS: usize = 11;

impl Record {
    fn to_words(self) -> [u64; WORDS] {
        let Seconds { total, data, prior, communication, waiting } = self.seconds;
        [
            self.iteration as u64,
            u64::from(self.data_term.is_some()),
            self.data_term.unwrap_or_default().to_bits(),
            self.relative_change.to_bits(),
            total.to_bits(),
            data.to_bits(),
            prior.to_bits(),
            communication.to_bits(),
            waiting.to_bits(),
            u64::from(self.peak_bytes.is_some()),
            self.peak_bytes.unwrap_or_default(),
        ]
    }

    fn from_words(words: &[u64; WORDS]) -> Self {
        let number = |index: usize| f64::from_bits(words[index]);
        Self {
            iteration: words[0] as usize,
            data_term: (words[1] == 1).then_some(number(2)),
            relative_change: number(3),
            seconds: Seconds {
                total: number(4),
                data: number(5),
                prior: number(6),
                communication: number(7),
                waiting: number(8),
            },
            peak_bytes: (words[9] == 1).then_some(words[10]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_all_of_a_record() {
        let seconds =
            Seconds { total: 5.5, data: 1.5, prior: 2.5, communication: 0.25, waiting: 0.125 };
        let full = Record {
            iteration: 7,
            data_term: Some(-0.5),
            relative_change: 1e-3,
            seconds,
            peak_bytes: Some(1 << 40),
        };
        for record in [full, Record { data_term: None, peak_bytes: None, ..full }] {
            assert_eq!(Record::from_words(&record.to_words()), record);
        }
    }
}
