//! The bytes that each rank sends in a call, from the sizes alone, to plan jobs before they start.
//!
//! The algorithms in this folder depend only on the sizes, so what they send is known before they run; a test checks
//! that the two agree. Headers of frames are not counted, as in [`Statistics`](crate::Statistics).

use super::SMALL;
use crate::element::ElementKind;
use crate::partition;

/// What each rank sends in an all-gather of parts of these bytes.
///
/// ```
/// // The parts of three ranks, each sent to two others.
/// let parts = [1_000_000, 2_000_000, 500_000];
/// assert_eq!(haloscope_comm::traffic::all_gather(&parts), [2_000_000, 4_000_000, 1_000_000]);
/// ```
#[must_use]
pub fn all_gather(parts: &[usize]) -> Vec<u64> {
    let size = parts.len();
    if parts.iter().sum::<usize>() > SMALL {
        return parts.iter().map(|part| (part * (size - 1)) as u64).collect();
    }
    // Rounds in which a rank passes on its own part and those of the ranks after it.
    let mut up_to = vec![0];
    for part in parts.iter().chain(parts) {
        up_to.push(up_to[up_to.len() - 1] + part);
    }
    let passed_on = |rank: usize, count: usize| -> usize { up_to[rank + count] - up_to[rank] };
    let sent = |rank: usize| {
        let (mut have, mut sent) = (1, 0);
        while have < size {
            let count = have.min(size - have);
            sent += passed_on(rank, count);
            have += count;
        }
        sent as u64
    };
    (0..size).map(sent).collect()
}

/// What each of `size` ranks sends in a reduction of `count` elements whose result goes to all.
#[must_use]
pub fn all_reduce(kind: ElementKind, count: usize, size: usize) -> Vec<u64> {
    let bytes = count * kind.size();
    if bytes.saturating_mul(size) <= SMALL {
        return all_gather(&vec![bytes; size]);
    }
    reduce_and_share(kind, count, &vec![1; size])
}

/// What each rank sends in an ordered sum of `count` elements, to which it contributes so many terms.
#[must_use]
pub fn ordered_sum(kind: ElementKind, count: usize, terms: &[usize]) -> Vec<u64> {
    let (bytes, word, size) = (count * kind.size(), size_of::<u64>(), terms.len());
    let times = |factor: usize| terms.iter().map(|terms| terms * factor).collect::<Vec<usize>>();
    // The ranks agree on the order: how many terms each of them has, and which.
    let order = add(&all_gather(&vec![word; size]), &all_gather(&times(word)));
    let total: usize = terms.iter().sum();
    if total == 0 {
        return order;
    }
    if bytes.saturating_mul(total) <= SMALL {
        return add(&order, &all_gather(&times(bytes)));
    }
    add(&order, &reduce_and_share(kind, count, terms))
}

/// Each rank sends its terms for the others' segments, and then its own segment of the result.
fn reduce_and_share(kind: ElementKind, count: usize, terms: &[usize]) -> Vec<u64> {
    let size = terms.len();
    let segments = partition::even(count, size).into_iter();
    let sent = segments.zip(terms).map(|(segment, terms)| {
        let own = segment.len();
        ((terms * (count - own) + own * (size - 1)) * kind.size()) as u64
    });
    sent.collect()
}

fn add(one: &[u64], other: &[u64]) -> Vec<u64> {
    one.iter().zip(other).map(|(one, other)| one + other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::{Collectives, Communicator};
    use crate::context::Context;
    use crate::element::Reduction;
    use crate::error::Error;

    /// What each rank has sent in a call.
    fn sent(
        size: usize,
        call: impl Fn(&dyn Communicator) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Vec<u64> {
        let ranks = Context::threads(size, move |ctx| {
            call(ctx.comm())?;
            Ok::<_, Error>(ctx.comm().statistics().total().bytes_sent)
        });
        ranks.expect("no rank fails")
    }

    /// Lengths on both sides of what is small.
    const COUNTS: [usize; 5] = [0, 1, 7, 5_000, 40_003];

    #[test]
    fn all_gathers_send_what_was_foretold() {
        for size in [1, 2, 3, 5, 8] {
            for count in COUNTS {
                let counts: Vec<usize> = (0..size).map(|rank| count * rank / 2).collect();
                let parts: Vec<usize> = counts.iter().map(|count| 4 * count).collect();
                let measured = sent(size, move |comm| {
                    let mut all = vec![0.0_f32; counts.iter().sum()];
                    comm.all_gather_into(&vec![1.0; counts[comm.rank()]], &counts, &mut all)
                });
                assert_eq!(all_gather(&parts), measured, "{size} ranks, {count}");
            }
        }
    }

    #[test]
    fn reductions_send_what_was_foretold() {
        for size in [1, 2, 3, 5, 8] {
            for count in COUNTS {
                let measured = sent(size, move |comm| {
                    comm.all_reduce(Reduction::Max, &mut vec![1_u64; count])
                });
                assert_eq!(all_reduce(ElementKind::U64, count, size), measured, "{size}, {count}");
            }
        }
    }

    #[test]
    fn ordered_sums_send_what_was_foretold() {
        for size in [1, 2, 3, 5] {
            for count in COUNTS {
                for operators in [0, 1, 3, 11] {
                    let share = move |rank| partition::round_robin(operators, rank, size);
                    let terms: Vec<usize> = (0..size).map(|rank| share(rank).count()).collect();
                    let measured = sent(size, move |comm| {
                        let term = vec![1.0_f32; count];
                        let mine: Vec<(u64, &[f32])> =
                            share(comm.rank()).map(|index| (index as u64, &term[..])).collect();
                        comm.ordered_sum(&mine, &mut vec![0.0; count])
                    });
                    let foretold = ordered_sum(ElementKind::F32, count, &terms);
                    assert_eq!(foretold, measured, "{size} ranks, {count}, {operators} operators");
                }
            }
        }
    }
}
