//! Messages that were counted beside those that the plan of the job foretells.
//!
//! Counts need no quiet machine and no core for each rank: 64 ranks on two cores send what 64 ranks on 64 cores send. So nothing
//! here is a time.

use crate::row::{Configuration, Row, Study};
use crate::tables::{percent, table};

/// What the ranks of a configuration sent in an iteration, and what was foretold.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    /// What was counted.
    pub configuration: Configuration,
    /// Of each rank, in their order: the bytes that it sent.
    pub bytes: Vec<u64>,
    /// The same by the plan of the job.
    pub foretold_bytes: Vec<u64>,
    /// Of each rank: rounds in which it exchanged something with its neighbours.
    pub rounds: Vec<u64>,
    /// Those of them that are the network's, by the plan of the job.
    pub foretold_rounds: Vec<u64>,
    /// Of each rank: the pixels that its network computes.
    pub pixels: Vec<u64>,
    /// The most memory of a process.
    pub peak_bytes: Option<u64>,
    /// The memory of a process by the plan of the job.
    pub foretold_memory: Option<u64>,
}

impl Counts {
    /// Those of all configurations that were counted, in the order in which they first appear.
    #[must_use]
    pub fn of(rows: &[Row]) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        let counted = rows.iter().filter(|row| {
            !row.predicted && row.configuration.study == Study::Counts && row.repetition == 0
        });
        let last = |of: &Configuration| {
            let own = rows.iter().filter(|row| row.configuration == *of);
            own.filter_map(|row| row.iteration).max()
        };
        for row in counted {
            let index = found.iter().position(|one| one.configuration == row.configuration);
            let index = index.unwrap_or_else(|| {
                found.push(Self::none(&row.configuration));
                found.len() - 1
            });
            let one = &mut found[index];
            one.peak_bytes = one.peak_bytes.max(row.peak_bytes);
            one.foretold_memory = one.foretold_memory.max(row.predicted_bytes);
            if row.iteration != last(&row.configuration) {
                continue;
            }
            let put = |list: &mut Vec<u64>, value: Option<u64>| {
                if let (Some(cell), Some(value)) = (list.get_mut(row.rank), value) {
                    *cell = value;
                }
            };
            put(&mut one.bytes, row.bytes_sent);
            put(&mut one.foretold_bytes, row.predicted_bytes_sent);
            put(&mut one.rounds, row.halo_rounds);
            put(&mut one.foretold_rounds, row.predicted_halo_rounds);
            put(&mut one.pixels, row.pixels_computed);
        }
        found
    }

    fn none(configuration: &Configuration) -> Self {
        let zeros = vec![0; configuration.ranks];
        Self {
            configuration: configuration.clone(),
            bytes: zeros.clone(),
            foretold_bytes: zeros.clone(),
            rounds: zeros.clone(),
            foretold_rounds: zeros.clone(),
            pixels: zeros,
            peak_bytes: None,
            foretold_memory: None,
        }
    }

    /// Whether every rank sent what was foretold, to the byte.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.bytes == self.foretold_bytes
    }

    /// The mean over ranks of the pixels that the network computes, over the largest.
    #[must_use]
    pub fn balance(&self) -> Option<f64> {
        let most = self.pixels.iter().copied().max().filter(|most| *most > 0)?;
        let mean = self.pixels.iter().sum::<u64>() as f64 / self.pixels.len() as f64;
        Some(mean / most as f64)
    }
}

/// The counts of rows as a table; nothing if there are none.
pub(crate) fn table_of(rows: &[Row]) -> String {
    let most = |list: &[u64]| list.iter().copied().max().unwrap_or(0);
    let megabytes = |bytes: Option<u64>| {
        bytes.map_or_else(|| "-".into(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6))
    };
    let lines: Vec<Vec<String>> = Counts::of(rows)
        .iter()
        .map(|one| {
            vec![
                one.configuration.to_string(),
                one.bytes.iter().sum::<u64>().to_string(),
                one.foretold_bytes.iter().sum::<u64>().to_string(),
                if one.is_exact() { "yes".into() } else { "NO".to_owned() },
                most(&one.bytes).to_string(),
                most(&one.rounds).to_string(),
                most(&one.foretold_rounds).to_string(),
                one.balance().map_or_else(|| "-".into(), percent),
                megabytes(one.foretold_memory),
                megabytes(one.peak_bytes),
            ]
        })
        .collect();
    let headers = [
        "configuration",
        "bytes sent",
        "foretold",
        "equal",
        "by one at most",
        "rounds",
        "of the network",
        "balance",
        "memory foretold",
        "of the process",
    ];
    table(&headers, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::configuration;

    fn row(rank: usize, bytes: u64, foretold: u64, pixels: u64) -> Row {
        let of = Configuration { study: Study::Counts, ..configuration(2) };
        Row {
            iteration: Some(2),
            bytes_sent: Some(bytes),
            predicted_bytes_sent: Some(foretold),
            pixels_computed: Some(pixels),
            ..of.row(0, rank, 0.0)
        }
    }

    #[test]
    fn a_byte_too_many_is_seen_and_balance_is_that_of_pixels() {
        let rows = [row(0, 100, 100, 30), row(1, 90, 90, 10)];
        let counts = Counts::of(&rows);
        assert_eq!((counts.len(), counts[0].is_exact()), (1, true));
        assert_eq!(counts[0].balance(), Some(20.0 / 30.0));
        // The sum is the same, and the ranks differ.
        let swapped = [row(0, 90, 100, 30), row(1, 100, 90, 10)];
        assert!(!Counts::of(&swapped)[0].is_exact());
        let text = table_of(&swapped);
        assert!(text.contains("NO") && text.contains("190") && text.contains("66.7 %"), "{text}");
        assert!(table_of(&[configuration(1).row(0, 0, 1.0)]).is_empty());
    }
}
