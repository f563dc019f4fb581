//! The memory that a plan must fit in: what each rank may take, or else what this machine has for all ranks together.
//!
//! [`Job::check`](crate::Job::check) compares in the same way, so that a job that is planned here is not refused there.

use std::fmt;

use super::describe::megabytes;
use crate::machine::Machine;

/// The memory that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// So many bytes for each rank, on whatever machines.
    Budget(usize),
    /// So many bytes for all ranks, which are threads of one process on this machine.
    Machine(u64),
    /// The system does not tell.
    Unknown,
}

impl Room {
    /// The budget, if there is one, or else what is free here.
    pub(super) fn new(budget: Option<usize>) -> Self {
        let of_machine =
            || Machine::detect().memory_available_bytes.map_or(Self::Unknown, Self::Machine);
        budget.map_or_else(of_machine, Self::Budget)
    }

    /// Whether ranks fit of which the largest takes so many bytes, and all together so many.
    pub(super) fn holds(self, largest: usize, together: usize) -> bool {
        match self {
            Self::Budget(bytes) => largest <= bytes,
            Self::Machine(bytes) => together as u64 <= bytes,
            Self::Unknown => true,
        }
    }

    /// The bytes that are free here, if they are what counts.
    pub(super) fn available_bytes(self) -> Option<u64> {
        match self {
            Self::Machine(bytes) => Some(bytes),
            Self::Budget(_) | Self::Unknown => None,
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Budget(bytes) => write!(f, "{} on each rank", megabytes(bytes as f64)),
            Self::Machine(bytes) => {
                write!(f, "the {} that are available on this machine", megabytes(bytes as f64))
            }
            Self::Unknown => f.write_str("the memory of this machine, which is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_machine_and_not_the_budget() {
        assert!(Room::Machine(400).holds(100, 400) && !Room::Machine(399).holds(100, 400));
        assert!(Room::Budget(100).holds(100, 400) && !Room::Budget(99).holds(100, 100));
        assert!(Room::Unknown.holds(usize::MAX, usize::MAX));
    }

    #[test]
    fn a_budget_counts_instead_of_the_machine() {
        assert_eq!(Room::new(Some(7)), Room::Budget(7));
        assert_ne!(Room::new(None), Room::Budget(7));
    }
}
