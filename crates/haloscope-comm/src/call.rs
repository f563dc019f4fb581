//! A collective call as data: what a rank asks for, and the signature that all ranks must agree on.
//!
//! Because a call is a value, one method ([`Communicator::execute`](crate::Communicator::execute))
//! carries all of them, decorators can wrap it, and an error can print both sides of a disagreement.

use std::fmt;

use crate::element::{ElementKind, Reduction, View, ViewMut};
use crate::error::{Error, Result};

/// The name of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// All ranks wait for each other.
    Barrier = 1,
    /// One rank's data on all ranks.
    Broadcast = 2,
    /// Element-wise reduction, the result on all ranks.
    AllReduce = 3,
    /// Element-wise reduction, a part of the result on each rank.
    ReduceScatter = 4,
    /// The parts of all ranks, on all ranks.
    AllGather = 5,
    /// Messages between neighbours.
    Exchange = 6,
    /// The sum of indexed contributions in the order of their indices.
    OrderedSum = 7,
    /// Making sub-communicators.
    Split = 8,
}

impl Operation {
    /// All operations, in the order in which tables list them.
    pub const ALL: [Self; 8] = [
        Self::Barrier,
        Self::Broadcast,
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Exchange,
        Self::OrderedSum,
        Self::Split,
    ];

    /// Its name, as in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Exchange => "exchange",
            Self::OrderedSum => "ordered_sum",
            Self::Split => "split",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A message to another rank of an [`exchange`](Call::Exchange).
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The rank that receives it.
    pub to: usize,
    /// Its elements.
    pub data: View<'a>,
}

/// A message from another rank of an [`exchange`](Call::Exchange).
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The rank that sends it.
    pub from: usize,
    /// Where its elements go; the length must be the sender's.
    pub data: ViewMut<'a>,
}

/// One term of an [`ordered_sum`](Call::OrderedSum).
#[derive(Clone, Copy, Debug)]
pub struct Contribution<'a> {
    /// Its place in the sum (an operator's number, say); each index occurs once among all ranks.
    pub index: u64,
    /// Its elements; every contribution has the length of the sum.
    pub data: View<'a>,
}

/// A request to a rank's communicator. All ranks must make the same calls in the same order.
///
/// The typed methods of [`Collectives`](crate::Collectives) are the convenient way to make one.
#[derive(Debug)]
pub enum Call<'a> {
    /// Returns when all ranks have made this call.
    Barrier,
    /// Copies `data` of `root` into `data` of all ranks.
    Broadcast {
        /// The rank that has the data.
        root: usize,
        /// Read on `root`, written elsewhere; the same length everywhere.
        data: ViewMut<'a>,
    },
    /// Replaces `data` on all ranks by its reduction over ranks, taken in rank order.
    AllReduce {
        /// How elements combine.
        reduction: Reduction,
        /// The same length everywhere.
        data: ViewMut<'a>,
    },
    /// Reduces `input` over ranks, in rank order, and leaves part `r` of the result on rank `r`.
    ReduceScatter {
        /// How elements combine.
        reduction: Reduction,
        /// The sum of `counts` elements.
        input: View<'a>,
        /// The length of each rank's part; the same list everywhere.
        counts: &'a [usize],
        /// This rank's part: `counts[rank]` elements.
        output: ViewMut<'a>,
    },
    /// Concatenates the ranks' `input`s, in rank order, on all ranks.
    AllGather {
        /// This rank's part: `counts[rank]` elements.
        input: View<'a>,
        /// The length of each rank's part; the same list everywhere.
        counts: &'a [usize],
        /// The sum of `counts` elements.
        output: ViewMut<'a>,
    },
    /// Sends and receives several messages at once; between two ranks they match in order.
    ///
    /// Every rank of the communicator takes part, with empty lists if it has no neighbour.
    Exchange {
        /// The messages of this rank.
        sends: &'a [Outgoing<'a>],
        /// The messages for this rank.
        receives: &'a mut [Incoming<'a>],
    },
    /// Adds all ranks' contributions in the order of their indices; the sum goes to all ranks.
    OrderedSum {
        /// This rank's terms, in any order; may be empty.
        contributions: &'a [Contribution<'a>],
        /// The sum; zero where there is no contribution at all.
        output: ViewMut<'a>,
    },
}

/// What the ranks of a call must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub operation: Operation,
    pub kind: Option<ElementKind>,
    pub reduction: Option<Reduction>,
    pub root: Option<u32>,
    /// Elements in all.
    pub count: u64,
    /// A hash of the parts' lengths, where there are parts.
    pub parts: u64,
}

impl Signature {
    pub(crate) fn new(operation: Operation) -> Self {
        Self { operation, kind: None, reduction: None, root: None, count: 0, parts: 0 }
    }

    pub(crate) fn of(operation: Operation, kind: ElementKind, count: usize) -> Self {
        Self { kind: Some(kind), count: count as u64, ..Self::new(operation) }
    }
}

impl fmt::Display for Signature {
    /// As the call would be written: `all_reduce(sum, f32 × 1024)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.operation)?;
        if let Some(reduction) = self.reduction {
            write!(f, "{reduction}, ")?;
        }
        if let Some(root) = self.root {
            write!(f, "root {root}, ")?;
        }
        if let Some(kind) = self.kind {
            write!(f, "{kind} × {}", self.count)?;
        }
        if self.parts != 0 {
            write!(f, ", parts #{:04x}", self.parts & 0xffff)?;
        }
        f.write_str(")")
    }
}

impl Call<'_> {
    /// The operation of this call.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Barrier => Operation::Barrier,
            Self::Broadcast { .. } => Operation::Broadcast,
            Self::AllReduce { .. } => Operation::AllReduce,
            Self::ReduceScatter { .. } => Operation::ReduceScatter,
            Self::AllGather { .. } => Operation::AllGather,
            Self::Exchange { .. } => Operation::Exchange,
            Self::OrderedSum { .. } => Operation::OrderedSum,
        }
    }

    pub(crate) fn signature(&self) -> Signature {
        let operation = self.operation();
        match self {
            // The messages of an exchange carry signatures of their own.
            Self::Barrier | Self::Exchange { .. } => Signature::new(operation),
            Self::Broadcast { root, data } => Signature {
                root: Some(*root as u32),
                ..Signature::of(operation, data.kind(), data.len())
            },
            Self::AllReduce { reduction, data } => Signature {
                reduction: Some(*reduction),
                ..Signature::of(operation, data.kind(), data.len())
            },
            Self::ReduceScatter { reduction, input, counts, .. } => Signature {
                reduction: Some(*reduction),
                parts: fingerprint(counts),
                ..Signature::of(operation, input.kind(), input.len())
            },
            Self::AllGather { output, counts, .. } => Signature {
                parts: fingerprint(counts),
                ..Signature::of(operation, output.kind(), output.len())
            },
            Self::OrderedSum { output, .. } => {
                Signature::of(operation, output.kind(), output.len())
            }
        }
    }

    /// Checks what a rank can check alone: that ranks exist, and that lengths and types fit.
    pub(crate) fn check(&self, rank: usize, size: usize) -> Result<()> {
        let operation = self.operation();
        let bad = |reason: String| Err(Error::Argument { operation: operation.name(), reason });
        let rank_exists = |what: &str, other: usize| {
            if other < size {
                return Ok(());
            }
            bad(format!("{what} is rank {other}, but the ranks are 0 to {}", size - 1))
        };
        let can_reduce = |reduction: Reduction, kind: ElementKind| {
            if reduction.is_for(kind) {
                return Ok(());
            }
            bad(format!("the {reduction} of {kind} is not a {kind}; f32 and f64 have one"))
        };
        match self {
            Self::Barrier => Ok(()),
            Self::AllReduce { reduction, data } => can_reduce(*reduction, data.kind()),
            Self::Broadcast { root, .. } => rank_exists("the root", *root),
            Self::ReduceScatter { reduction, input, counts, output } => {
                can_reduce(*reduction, input.kind())?;
                check_parts(operation, counts, (rank, size), output.as_view(), *input)
            }
            Self::AllGather { input, counts, output } => {
                check_parts(operation, counts, (rank, size), *input, output.as_view())
            }
            Self::Exchange { sends, receives } => {
                for message in *sends {
                    rank_exists("the receiver of a message", message.to)?;
                }
                for message in receives.iter() {
                    rank_exists("the sender of a message", message.from)?;
                }
                check_own_messages(rank, sends, receives)
            }
            Self::OrderedSum { contributions, output } => {
                for Contribution { index, data } in *contributions {
                    if data.kind() != output.kind() || data.len() != output.len() {
                        return bad(format!(
                            "contribution {index} has {} × {}, but the sum has {} × {}",
                            data.kind(),
                            data.len(),
                            output.kind(),
                            output.len()
                        ));
                    }
                }
                Ok(())
            }
        }
    }
}

/// `part` is this rank's part, `whole` all parts together.
fn check_parts(
    operation: Operation,
    counts: &[usize],
    (rank, size): (usize, usize),
    part: View,
    whole: View,
) -> Result<()> {
    let bad = |reason: String| Err(Error::Argument { operation: operation.name(), reason });
    if part.kind() != whole.kind() {
        return bad(format!(
            "a part is {} and the whole {}; they must be the same",
            part.kind(),
            whole.kind()
        ));
    }
    if counts.len() != size {
        return bad(format!("{} counts for {size} ranks; give one for each rank", counts.len()));
    }
    let (part, whole) = (part.len(), whole.len());
    if counts[rank] != part {
        return bad(format!(
            "this rank's part has {part} elements, but counts[{rank}] is {}",
            counts[rank]
        ));
    }
    match counts.iter().try_fold(0_usize, |sum, count| sum.checked_add(*count)) {
        None => bad(format!("the sum of the counts overflows; it must be at most {}", usize::MAX)),
        Some(sum) if sum != whole => {
            bad(format!("the whole has {whole} elements, but the counts add up to {sum}"))
        }
        Some(_) => Ok(()),
    }
}

/// A rank may send to itself; nobody but itself can then see that the lists do not match.
fn check_own_messages(rank: usize, sends: &[Outgoing], receives: &[Incoming]) -> Result<()> {
    let shape = |view: View| (view.kind(), view.len());
    let sent = sends.iter().filter(|m| m.to == rank).map(|m| shape(m.data));
    let received = receives.iter().filter(|m| m.from == rank).map(|m| shape(m.data.as_view()));
    if sent.eq(received) {
        return Ok(());
    }
    Err(Error::Argument {
        operation: Operation::Exchange.name(),
        reason: format!(
            "the messages of rank {rank} to itself differ from those it receives from itself; \
             they must match in number, type and length"
        ),
    })
}

/// FNV-1a over the counts; never 0, which means "no parts".
fn fingerprint(counts: &[usize]) -> u64 {
    let hash = counts.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, count| {
        (hash ^ *count as u64).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_reads_like_the_call() {
        let mut data = [0.0_f32; 4];
        let call = Call::AllReduce { reduction: Reduction::Max, data: ViewMut::new(&mut data) };
        assert_eq!(call.signature().to_string(), "all_reduce(max, f32 × 4)");
        let call = Call::Broadcast { root: 1, data: ViewMut::new(&mut data) };
        assert_eq!(call.signature().to_string(), "broadcast(root 1, f32 × 4)");
        assert_eq!(Call::Barrier.signature().to_string(), "barrier()");
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        let mut output = [0_u64; 1];
        let call = Call::AllGather {
            input: View::new(&[0_u64; 1]),
            counts: &[1, usize::MAX],
            output: ViewMut::new(&mut output),
        };
        let error = call.check(0, 2).expect_err("the counts overflow").to_string();
        assert!(error.contains("overflows") && error.contains("at most"), "{error}");
    }

    #[test]
    fn same_total_in_other_parts_is_another_signature() {
        let signature = |counts: &[usize]| {
            Call::AllGather {
                input: View::new(&[0_u64; 1]),
                counts,
                output: ViewMut::new(&mut [0_u64; 3]),
            }
            .signature()
        };
        assert_ne!(signature(&[1, 2]), signature(&[2, 1]));
    }
}
