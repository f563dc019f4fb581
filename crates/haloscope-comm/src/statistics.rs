//! The cost of communication: calls, bytes, and seconds of transfer and of waiting.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::call::Operation;

/// The cost of one operation on one rank, or merged over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// How often it was called.
    pub calls: u64,
    /// Bytes of payload that left the rank.
    pub bytes_sent: u64,
    /// Bytes of payload that reached the rank.
    pub bytes_received: u64,
    /// Time spent copying, reducing and moving data, including waiting for data already on its way.
    pub transfer: Duration,
    /// Time spent waiting for ranks that had not yet arrived at the call.
    pub waiting: Duration,
}

impl CallCost {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.transfer += other.transfer;
        self.waiting += other.waiting;
    }
}

/// The cost of each operation; prints as a table.
///
/// ```
/// use haloscope_comm::{Collectives, Communicator, Operation, Solo};
///
/// let solo = Solo::new();
/// solo.barrier()?;
/// assert_eq!(solo.statistics().cost(Operation::Barrier).calls, 1);
/// # Ok::<(), haloscope_comm::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    costs: BTreeMap<Operation, CallCost>,
}

impl Statistics {
    /// The cost of `operation`; zero if it was never called.
    #[must_use]
    pub fn cost(&self, operation: Operation) -> CallCost {
        self.costs.get(&operation).copied().unwrap_or_default()
    }

    /// The cost of all operations together.
    #[must_use]
    pub fn total(&self) -> CallCost {
        let mut total = CallCost::default();
        self.costs.values().for_each(|cost| total.add(cost));
        total
    }

    /// Adds the costs of `other`, of another rank or another communicator.
    pub fn merge(&mut self, other: &Self) {
        for (operation, cost) in &other.costs {
            self.costs.entry(*operation).or_default().add(cost);
        }
    }

    pub(crate) fn record(&mut self, operation: Operation, cost: &CallCost) {
        self.costs.entry(operation).or_default().add(cost);
    }

    /// As a list of numbers, for the ranks to send each other.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let words = |operation| {
            let cost = self.cost(operation);
            [
                cost.calls,
                cost.bytes_sent,
                cost.bytes_received,
                nanoseconds(cost.transfer),
                nanoseconds(cost.waiting),
            ]
        };
        Operation::ALL.into_iter().flat_map(words).collect()
    }

    /// The inverse of [`to_words`](Self::to_words).
    pub(crate) fn from_words(words: &[u64]) -> Self {
        let mut statistics = Self::default();
        for (operation, words) in Operation::ALL.into_iter().zip(words.as_chunks::<5>().0) {
            let [calls, bytes_sent, bytes_received, transfer, waiting] = *words;
            let cost = CallCost {
                calls,
                bytes_sent,
                bytes_received,
                transfer: Duration::from_nanos(transfer),
                waiting: Duration::from_nanos(waiting),
            };
            if calls > 0 {
                statistics.record(operation, &cost);
            }
        }
        statistics
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14} {:>9} {:>12} {:>12} {:>12} {:>12}",
            "operation", "calls", "MB sent", "MB received", "transfer s", "waiting s"
        )?;
        for (operation, cost) in &self.costs {
            writeln!(
                f,
                "{operation:<14} {:>9} {:>12.3} {:>12.3} {:>12.4} {:>12.4}",
                cost.calls,
                cost.bytes_sent as f64 / 1e6,
                cost.bytes_received as f64 / 1e6,
                cost.transfer.as_secs_f64(),
                cost.waiting.as_secs_f64(),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_every_cost() {
        let cost = CallCost {
            calls: 3,
            bytes_sent: 5,
            bytes_received: 7,
            transfer: Duration::from_micros(11),
            waiting: Duration::from_millis(13),
        };
        let mut statistics = Statistics::default();
        statistics.record(Operation::Exchange, &cost);
        let mut twice = Statistics::from_words(&statistics.to_words());
        assert_eq!(twice, statistics);
        twice.merge(&statistics);
        assert_eq!(twice.cost(Operation::Exchange).waiting, Duration::from_millis(26));
        assert_eq!(twice.total().calls, 6);
    }
}
