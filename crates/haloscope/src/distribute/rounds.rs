//! A sum over the operators of all ranks that never holds more than two terms of each rank.
//!
//! The operators are taken in rounds, in which every rank has at most one. Each rank owns a segment of the sum: in a round it
//! receives the others' terms for its segment and adds them in the order of the operators. At the end the segments are gathered,
//! unless the caller goes on with its own. So every element is computed by the same additions as in an ordered sum of all terms
//! at once, and the same bytes are sent; a rank holds three images at most, however many operators it owns.
//!
//! A rank computes the term of the next round before it waits for the others in this one, so that it need not wait in each round
//! for the slowest operator of that round.

use std::ops::Range;

use haloscope_comm::{Collectives, Context, partition};
use ndarray::IxDyn;

use super::agree::agree;
use super::stack::check_term;
use crate::array::{Array, add_scaled, slice_mut};
use crate::error::Result;

/// Consecutive operators of which no rank owns two. `None` if ranks would wait for each other's operators: then all terms are
/// computed before any is sent.
pub(super) fn rounds(owners: &[usize]) -> Option<Vec<Range<usize>>> {
    let ranks = owners.iter().max()? + 1;
    let mut counts = vec![0; ranks];
    for owner in owners {
        counts[*owner] += 1;
    }
    let most = counts.into_iter().max()?;
    let mut rounds = Vec::new();
    let mut begin = 0;
    for end in 1..=owners.len() {
        if owners.get(end).is_none_or(|next| owners[begin..end].contains(next)) {
            rounds.push(begin..end);
            begin = end;
        }
    }
    (rounds.len() == most).then_some(rounds)
}

/// The sum of `term(index)` over all operators, in their order, on all ranks; `term` is called for the rank's own.
pub(super) fn sum(
    ctx: &Context,
    owners: &[usize],
    rounds: &[Range<usize>],
    shape: &[usize],
    term: impl FnMut(usize) -> Result<Array>,
) -> Result<Array> {
    let segments = partition::even(shape.iter().product(), ctx.size());
    let own = own_segment(ctx, owners, rounds, &segments, &mut Vec::new(), shape, term)?;
    let _span = ctx.span("reduction");
    let mut image = blank(shape);
    gather(ctx, &segments, &own, &mut image)?;
    Ok(image)
}

/// Fills the image of which each rank has its segment, on all ranks.
pub(super) fn gather(
    ctx: &Context,
    segments: &[Range<usize>],
    own: &[f32],
    image: &mut Array,
) -> Result<()> {
    let counts: Vec<usize> = segments.iter().map(Range::len).collect();
    Ok(ctx.comm().all_gather_into(own, &counts, slice_mut(image))?)
}

/// This rank's segment of the sum. What others send is put into `arrived`, which the next sum can use again.
pub(super) fn own_segment(
    ctx: &Context,
    owners: &[usize],
    rounds: &[Range<usize>],
    segments: &[Range<usize>],
    arrived: &mut Vec<Vec<f32>>,
    shape: &[usize],
    mut term: impl FnMut(usize) -> Result<Array>,
) -> Result<Vec<f32>> {
    let rank = ctx.rank();
    let own = segments[rank].clone();
    let mut sum = vec![0.0_f32; own.len()];
    arrived.resize_with(ctx.size(), Vec::new);
    // A rank that fails goes on with zeros, so that nobody waits for it; in the end all know.
    let mut outcome = Ok(());
    let mut make = |round: &Range<usize>| {
        let index = round.clone().find(|index| owners[*index] == rank)?;
        if outcome.is_ok() {
            match term(index).and_then(|term| check_term(term, shape)) {
                Ok(term) => return Some(term),
                Err(error) => outcome = Err(error),
            }
        }
        Some(blank(shape))
    };
    let mut next = rounds.first().and_then(&mut make);
    for (place, round) in rounds.iter().enumerate() {
        let mine = next;
        next = rounds.get(place + 1).and_then(&mut make);
        let _span = ctx.span("reduction");
        let values = mine.as_ref().map_or(&[][..], |term| term.as_slice().unwrap_or(&[]));
        let others = (0..ctx.size()).filter(|to| *to != rank && !segments[*to].is_empty());
        let sends: Vec<(usize, &[f32])> = match &mine {
            Some(_) => others.map(|to| (to, &values[segments[to].clone()])).collect(),
            None => Vec::new(),
        };
        let comes =
            |from: usize| from != rank && !own.is_empty() && owners[round.clone()].contains(&from);
        let mut receives: Vec<(usize, &mut [f32])> = Vec::new();
        for (from, buffer) in arrived.iter_mut().enumerate().filter(|(from, _)| comes(*from)) {
            buffer.resize(own.len(), 0.0);
            receives.push((from, buffer));
        }
        ctx.comm().exchange(&sends, &mut receives)?;
        for index in round.clone() {
            let owner = owners[index];
            let part = if owner == rank { &values[own.clone()] } else { &arrived[owner] };
            // Adding the first to zero would turn −0 into 0.
            if index == 0 {
                sum.copy_from_slice(part);
            } else {
                add_scaled(&mut sum, 1.0, part);
            }
        }
    }
    agree(ctx, outcome)?;
    Ok(sum)
}

fn blank(shape: &[usize]) -> Array {
    Array::zeros(IxDyn(shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn rounds_have_each_rank_once_and_none_waits_for_another() {
        assert_eq!(rounds(&[0, 1, 2, 0, 1]), Some(vec![0..3, 3..5]));
        assert_eq!(rounds(&[0, 0, 0]), Some(vec![0..1, 1..2, 2..3]));
        assert_eq!(rounds(&[1, 0, 0, 1]), Some(vec![0..2, 2..4]));
        assert_eq!(rounds(&[0, 1, 2]).as_deref(), Some(std::slice::from_ref(&(0..3))));
        // In blocks, the second rank would wait for all of the first's.
        assert_eq!(rounds(&[0, 0, 1, 1]), None);
        assert_eq!(rounds(&[]), None);
    }

    /// Sums of numbers whose order shows in the bits.
    #[test]
    fn sums_have_the_bits_of_an_ordered_sum_on_any_number_of_ranks() {
        let value = |index: usize, at: usize| {
            let mut random = fastrand::Rng::with_seed((index * 1000 + at) as u64);
            if (index + at).is_multiple_of(5) {
                -0.0
            } else {
                (random.f32() - 0.5) * 10_f32.powi(random.i32(-4..5))
            }
        };
        let array = move |index: usize, shape: &[usize]| {
            let mut at = 0;
            Array::from_shape_simple_fn(shape, || {
                at += 1;
                value(index, at)
            })
        };
        for (operators, shape) in [(7, vec![1, 3, 5, 4]), (11, vec![2, 1, 3]), (4, vec![1, 1, 2])] {
            let mut expected = array(0, &shape);
            (1..operators).for_each(|index| expected += &array(index, &shape));
            for ranks in [1, 2, 3, 5, 8] {
                let owners: Vec<usize> = (0..operators).map(|index| index % ranks).collect();
                let Some(rounds) = rounds(&owners) else { continue };
                let shape = shape.clone();
                let sums = Context::threads(ranks, move |ctx| {
                    sum(ctx, &owners, &rounds, &shape, |index| Ok(array(index, &shape)))
                });
                for sum in sums.expect("no rank fails") {
                    let bits = |array: &Array| {
                        array.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
                    };
                    assert_eq!(bits(&sum), bits(&expected), "{ranks} ranks, {operators} operators");
                }
            }
        }
    }

    #[test]
    fn a_rank_that_fails_in_any_round_fails_all_with_its_reason() {
        for bad in 0..5 {
            let errors = Context::threads(2, move |ctx| {
                let owners = [0, 1, 0, 1, 0];
                let rounds = rounds(&owners).expect("two for some");
                let term = |index: usize| match index {
                    index if index == bad => Err(Error::argument("blur", "no kernel")),
                    _ => Ok(blank(&[1, 1, 4])),
                };
                let error =
                    sum(ctx, &owners, &rounds, &[1, 1, 4], term).expect_err("one has failed");
                // Communication goes on.
                assert_eq!(agree(ctx, Ok(7)), Ok(7));
                Ok::<_, Error>(error.to_string())
            });
            let errors = errors.expect("no rank fails");
            assert!(errors.iter().all(|error| error.contains("blur: no kernel")), "{errors:?}");
        }
        let shapes = Context::threads(2, |ctx| {
            let (owners, rounds) = ([0, 1, 0, 1], [0..2, 2..4]);
            let error = sum(ctx, &owners, &rounds, &[1, 1, 4], |_| Ok(blank(&[1, 1, 5])));
            Ok::<_, Error>(error.expect_err("another shape").to_string())
        });
        assert!(shapes.expect("no rank fails").iter().all(|error| error.contains("[1, 1, 5]")));
    }
}
