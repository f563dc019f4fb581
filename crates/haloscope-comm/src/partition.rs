//! Which rank gets which piece of work: round-robin for operators, balanced contiguous blocks for tiles.
//!
//! These are pure functions of the number of pieces, their costs and the number of ranks, so that every rank
//! computes the same answer without asking the others.

use std::ops::Range;

use crate::error::{Error, Result};

/// The pieces of `count` that `rank` of `size` gets when they are dealt like cards.
///
/// ```
/// let mine: Vec<usize> = haloscope_comm::partition::round_robin(7, 1, 3).collect();
/// assert_eq!(mine, [1, 4]);
/// ```
pub fn round_robin(count: usize, rank: usize, size: usize) -> impl Iterator<Item = usize> {
    (rank..count).step_by(size.max(1))
}

/// `count` pieces of equal cost as `size` contiguous blocks whose lengths differ by at most one.
///
/// ```
/// assert_eq!(haloscope_comm::partition::even(7, 3), [0..3, 3..5, 5..7]);
/// ```
#[must_use]
pub fn even(count: usize, size: usize) -> Vec<Range<usize>> {
    let (quotient, remainder) = (count / size, count % size);
    let start = |rank: usize| rank * quotient + rank.min(remainder);
    (0..size).map(|rank| start(rank)..start(rank + 1)).collect()
}

/// Pieces with the given costs as `size` contiguous blocks, the most expensive of which is as cheap
/// as a contiguous partition allows. No block is empty unless there are fewer pieces than blocks.
///
/// ```
/// let blocks = haloscope_comm::partition::contiguous(&[1.0, 1.0, 1.0, 5.0], 2)?;
/// assert_eq!(blocks, [0..3, 3..4]);
/// # Ok::<(), haloscope_comm::Error>(())
/// ```
pub fn contiguous(costs: &[f64], size: usize) -> Result<Vec<Range<usize>>> {
    let bad = |reason: String| Err(Error::Argument { operation: "contiguous", reason });
    if size == 0 {
        return bad("0 blocks; there must be at least one".into());
    }
    if let Some(index) = costs.iter().position(|cost| !cost.is_finite() || *cost < 0.0) {
        return bad(format!(
            "the cost of piece {index} is {}; costs must be finite and not negative",
            costs[index]
        ));
    }
    // Bisect on the cost of the dearest block: filling blocks greedily up to it tells whether it
    // can be reached. Halving stops when neighbouring floating-point numbers are left.
    let (mut low, mut high) = (0.0, costs.iter().sum::<f64>().max(f64::MIN_POSITIVE));
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        match fill(costs, size, middle) {
            Some(_) => high = middle,
            None => low = middle,
        }
    }
    Ok(fill(costs, size, high).unwrap_or_else(|| even(costs.len(), size)))
}

/// Fills blocks from the left up to `limit`, one piece at least, leaving one for each later block.
fn fill(costs: &[f64], size: usize, limit: f64) -> Option<Vec<Range<usize>>> {
    let mut blocks = Vec::with_capacity(size);
    let mut start = 0;
    for rank in 0..size {
        let reserve = costs.len().saturating_sub(size - rank - 1);
        let mut end = start;
        let mut block = 0.0;
        while end < costs.len() && (end == start || (end < reserve && block + costs[end] <= limit))
        {
            block += costs[end];
            end += 1;
        }
        if block > limit {
            return None;
        }
        blocks.push(start..end);
        start = end;
    }
    (start == costs.len()).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dearest(costs: &[f64], blocks: &[Range<usize>]) -> f64 {
        blocks.iter().map(|block| costs[block.clone()].iter().sum()).fold(0.0, f64::max)
    }

    /// The best partition there is, by trying all.
    fn best(costs: &[f64], size: usize) -> f64 {
        if size == 1 {
            return costs.iter().sum();
        }
        (0..=costs.len())
            .map(|end| costs[..end].iter().sum::<f64>().max(best(&costs[end..], size - 1)))
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn contiguous_blocks_are_as_cheap_as_the_best_of_all_partitions() {
        let mut random = fastrand::Rng::with_seed(7);
        for case in 0..400 {
            let costs: Vec<f64> =
                (0..random.usize(0..9)).map(|_| f64::from(random.u8(0..6))).collect();
            let size = random.usize(1..5);
            let blocks = contiguous(&costs, size).expect("valid costs");
            assert_eq!(blocks.len(), size, "case {case}");
            assert_eq!(blocks[0].start, 0);
            assert_eq!(blocks[size - 1].end, costs.len());
            assert!(blocks.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(
                dearest(&costs, &blocks) <= best(&costs, size) * (1.0 + 1e-12),
                "case {case}: {costs:?} over {size}: {blocks:?}"
            );
        }
    }

    #[test]
    fn no_block_is_empty_while_there_are_pieces() {
        for count in 0..12 {
            for size in 1..9 {
                let blocks = contiguous(&vec![1.0; count], size).expect("valid costs");
                let filled = blocks.iter().filter(|block| !block.is_empty()).count();
                assert_eq!(filled, count.min(size), "{count} pieces, {size} blocks: {blocks:?}");
            }
        }
    }

    #[test]
    fn round_robin_deals_every_piece_once() {
        for (count, size) in [(0, 1), (5, 8), (8, 5), (7, 3)] {
            let mut dealt: Vec<usize> =
                (0..size).flat_map(|rank| round_robin(count, rank, size)).collect();
            dealt.sort_unstable();
            assert_eq!(dealt, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn costs_that_are_not_numbers_are_refused() {
        let error = contiguous(&[1.0, f64::NAN], 2).expect_err("a cost is not a number");
        assert!(error.to_string().contains("piece 1 is NaN"), "{error}");
    }
}
