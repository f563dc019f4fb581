//! Reductions in a fixed order: all of them are one algorithm, [`reduce_in_order`].
//!
//! The result is cut into one segment per rank. The owner of a segment receives the terms of all
//! ranks for it, frame by frame, and combines them in the order of the terms, whoever sent them. So
//! each element is computed by the same sequence of operations for any number of ranks.

use std::ops::Range;

use super::gather::{all_gather, gather_words, share_parts, split_ranges};
use super::{SMALL, layout};
use crate::call::Contribution;
use crate::element::{ElementKind, Reduction};
use crate::error::{Error, Result};
use crate::link::Link;
use crate::partition;
use crate::session::{Awaited, Session};

/// How the elements of a reduction combine.
#[derive(Clone, Copy)]
struct Rule {
    kind: ElementKind,
    reduction: Reduction,
}

impl Rule {
    /// The first term of a sum is copied: adding it to zero would turn -0 into 0.
    fn apply(self, is_first: bool, accumulator: &mut [u8], term: &[u8]) {
        if is_first {
            accumulator.copy_from_slice(term);
        } else {
            self.reduction.combine(self.kind, accumulator, term);
        }
    }

    /// What is left to do when all terms are combined.
    fn finish(self, accumulator: &mut [u8], terms: usize) {
        self.reduction.finish(self.kind, accumulator, terms);
    }

    /// An even split of `bytes` that does not cut an element.
    fn segments(self, bytes: usize, size: usize) -> Vec<Range<usize>> {
        let width = self.kind.size();
        let scale = |range: Range<usize>| range.start * width..range.end * width;
        partition::even(bytes / width, size).into_iter().map(scale).collect()
    }
}

/// Replaces `data` by its reduction over ranks, in rank order.
pub(crate) fn all_reduce<L: Link + ?Sized>(
    session: &mut Session<L>,
    kind: ElementKind,
    reduction: Reduction,
    data: &mut [u8],
) -> Result<()> {
    let rule = Rule { kind, reduction };
    let (rank, size) = (session.rank, session.size());
    let order: Vec<usize> = (0..size).collect();
    if data.len().saturating_mul(size) <= SMALL {
        let term = data.to_vec();
        gather_and_reduce(session, rule, &term, &order, data)?;
        rule.finish(data, size);
        return Ok(());
    }
    let mut segments = split_ranges(data, &rule.segments(data.len(), size));
    let own = std::mem::take(&mut segments[rank]);
    let term: Vec<&[u8]> = segments.iter().map(|segment| &**segment).collect();
    reduce_in_order(session, rule, &[term], &order, own)?;
    rule.finish(own, size);
    segments[rank] = own;
    share_parts(session, &mut segments, &order)
}

/// Reduces `input` over ranks, in rank order; `output` is this rank's range of the result.
pub(crate) fn reduce_scatter<L: Link + ?Sized>(
    session: &mut Session<L>,
    kind: ElementKind,
    reduction: Reduction,
    input: &[u8],
    ranges: &[Range<usize>],
    output: &mut [u8],
) -> Result<()> {
    let term: Vec<&[u8]> = ranges.iter().map(|range| &input[range.clone()]).collect();
    let (rule, size) = (Rule { kind, reduction }, session.size());
    let order: Vec<usize> = (0..size).collect();
    reduce_in_order(session, rule, &[term], &order, output)?;
    rule.finish(output, size);
    Ok(())
}

/// Adds the contributions of all ranks in the order of their indices.
pub(crate) fn ordered_sum<L: Link + ?Sized>(
    session: &mut Session<L>,
    kind: ElementKind,
    contributions: &[Contribution],
    output: &mut [u8],
) -> Result<()> {
    let rule = Rule { kind, reduction: Reduction::Sum };
    let mut mine: Vec<&Contribution> = contributions.iter().collect();
    mine.sort_unstable_by_key(|contribution| contribution.index);
    let order = agree_on_order(session, &mine)?;
    if order.is_empty() {
        output.fill(0);
        return Ok(());
    }
    let (rank, size) = (session.rank, session.size());
    if output.len().saturating_mul(order.len()) <= SMALL {
        let packed: Vec<&[u8]> =
            mine.iter().map(|contribution| contribution.data.bytes()).collect();
        return gather_and_reduce(session, rule, &packed.concat(), &order, output);
    }
    let ranges = rule.segments(output.len(), size);
    let terms: Vec<Vec<&[u8]>> = mine
        .iter()
        .map(|term| ranges.iter().map(|range| &term.data.bytes()[range.clone()]).collect())
        .collect();
    let mut segments = split_ranges(output, &ranges);
    reduce_in_order(session, rule, &terms, &order, segments[rank])?;
    share_parts(session, &mut segments, &(0..size).collect::<Vec<_>>())
}

/// The ranks that hold the contributions, in the order of the indices of all ranks.
fn agree_on_order<L: Link + ?Sized>(
    session: &mut Session<L>,
    mine: &[&Contribution],
) -> Result<Vec<usize>> {
    let counts = gather_words(session, &[mine.len() as u64])?;
    let ranges = layout(counts.iter().map(|count| *count as usize * size_of::<u64>()));
    let total = counts.iter().sum::<u64>() as usize;
    let mut indices = vec![0_u64; total];
    let own: Vec<u64> = mine.iter().map(|contribution| contribution.index).collect();
    let target = bytemuck::cast_slice_mut(&mut indices);
    all_gather(session, bytemuck::cast_slice(&own), &ranges, target)?;
    let owners = counts.iter().enumerate().flat_map(|(r, count)| vec![r; *count as usize]);
    let mut order: Vec<(u64, usize)> = indices.into_iter().zip(owners).collect();
    order.sort_unstable();
    // All ranks see the same list, so all of them return this error.
    if let Some(pair) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let holders = if pair[0].1 == pair[1].1 {
            format!("twice on rank {}", pair[0].1)
        } else {
            format!("on ranks {} and {}", pair[0].1, pair[1].1)
        };
        return Err(Error::Argument {
            operation: session.signature.operation.name(),
            reason: format!(
                "contribution {} is there {holders}; each index must occur once",
                pair[0].0
            ),
        });
    }
    Ok(order.into_iter().map(|(_, owner)| owner).collect())
}

/// Combines the terms of all ranks for this rank's segment.
///
/// `order[i]` is the rank that holds the i-th term of all. `terms[k][r]` is this rank's k-th term,
/// in that order, for the segment of rank r. Where the segment of this rank itself is empty in
/// `terms` but not in `output`, its only term is in `output`, to be replaced by the result.
fn reduce_in_order<L: Link + ?Sized>(
    session: &mut Session<L>,
    rule: Rule,
    terms: &[Vec<&[u8]>],
    order: &[usize],
    output: &mut [u8],
) -> Result<()> {
    let (rank, signature) = (session.rank, session.signature);
    // Frame by frame, all terms of a frame one after the other: an accumulator stays in the cache,
    // and a rank holds a few frames of the others' data at any time.
    let lane = |to: usize| {
        let segment = terms.first().map_or(0, |term| term[to].len());
        let frames = session
            .frames(segment)
            .flat_map(|range| terms.iter().map(move |term| (signature, &term[to][range.clone()])));
        Session::<L>::lane_of(to, frames)
    };
    let lanes = session.others().map(lane).collect();
    let (mut steps, mut awaited) = (Vec::new(), Vec::new());
    for frame in session.frames(output.len()) {
        let mut own_terms = 0..;
        for (place, owner) in order.iter().enumerate() {
            let own_term = (*owner == rank).then(|| own_terms.next()).flatten();
            steps.push(Step { frame: frame.clone(), is_first: place == 0, own_term });
            if own_term.is_none() {
                awaited.push(Awaited { from: *owner, len: frame.len(), signature });
            }
        }
    }
    let own_terms = terms.iter().map(|term| term[rank]).collect();
    let mut segment = Segment { rule, own_terms, output, saved: Vec::new() };
    let mut steps = steps.into_iter();
    session.transfer(lanes, &awaited, |_, payload| {
        while steps.next().is_some_and(|step| !segment.apply(&step, Some(payload))) {}
    })?;
    steps.for_each(|step| {
        segment.apply(&step, None);
    });
    Ok(())
}

/// One term for one frame of the segment.
struct Step {
    frame: Range<usize>,
    is_first: bool,
    /// Which of this rank's own terms; none if it arrives from another rank.
    own_term: Option<usize>,
}

/// This rank's segment of the result while it is being computed.
struct Segment<'d> {
    rule: Rule,
    own_terms: Vec<&'d [u8]>,
    output: &'d mut [u8],
    /// A frame of this rank's term that was in the output.
    saved: Vec<u64>,
}

impl Segment<'_> {
    /// Takes a step, and says whether it was one for the `arrived` term.
    fn apply(&mut self, step: &Step, arrived: Option<&[u8]>) -> bool {
        let accumulator = &mut self.output[step.frame.clone()];
        let in_place = self.own_terms.first().is_some_and(|t| t.len() < step.frame.end);
        match (step.own_term, arrived) {
            (Some(_), _) if in_place => {
                if !step.is_first {
                    let term = &bytemuck::cast_slice(&self.saved)[..accumulator.len()];
                    self.rule.apply(false, accumulator, term);
                }
            }
            (Some(index), _) => {
                let term = &self.own_terms[index][step.frame.clone()];
                self.rule.apply(step.is_first, accumulator, term);
            }
            (None, Some(term)) => {
                if in_place && step.is_first {
                    // The first term replaces this rank's own, whose turn comes later.
                    self.saved.resize(accumulator.len().div_ceil(8), 0);
                    bytemuck::cast_slice_mut(&mut self.saved)[..accumulator.len()]
                        .copy_from_slice(accumulator);
                }
                self.rule.apply(step.is_first, accumulator, term);
                return true;
            }
            (None, None) => debug_assert!(false, "every term of another rank has arrived"),
        }
        false
    }
}

/// The same for little data: every rank gets all terms and combines them itself.
///
/// `terms` are this rank's, one after the other.
fn gather_and_reduce<L: Link + ?Sized>(
    session: &mut Session<L>,
    rule: Rule,
    terms: &[u8],
    order: &[usize],
    output: &mut [u8],
) -> Result<()> {
    let mut lengths = vec![0; session.size()];
    for owner in order {
        lengths[*owner] += output.len();
    }
    let mut ranges = layout(lengths);
    // Words rather than bytes, for their alignment.
    let mut words = vec![0_u64; (output.len() * order.len()).div_ceil(8)];
    let gathered = &mut bytemuck::cast_slice_mut(&mut words)[..output.len() * order.len()];
    all_gather(session, terms, &ranges, gathered)?;
    for (place, owner) in order.iter().enumerate() {
        let start = ranges[*owner].start;
        ranges[*owner].start += output.len();
        rule.apply(place == 0, output, &gathered[start..start + output.len()]);
    }
    Ok(())
}
