//! The bytes that ranks send in one iteration: the calls of `solve`, `distribute` and their parts, one after the other.

use crate::image::Sum;
use haloscope_comm::{ElementKind, partition, traffic};

/// What a method asks of the data term in an iteration.
#[derive(Clone, Copy)]
pub(super) enum DataTerm {
    /// Its value and gradient, and so many more values.
    Gradient { values: usize },
    /// The normal operator.
    Normal,
    /// Its prox, by so many iterations at most.
    Prox { iterations: usize },
    /// The prox of its conjugate on the measurements, and their adjoint.
    Dual,
    /// What is projected back of so many subsets of the operators.
    Subsets { count: usize },
}

/// What each rank sends in an iteration, at most, with a denoiser to which the ranks contribute so many elements in each of its
/// `passes`, if there is one. `terms` are the operators of each rank; the image has so many elements in rows of `row`.
pub(super) fn iteration(
    elements: usize,
    row: usize,
    terms: &[usize],
    data_term: DataTerm,
    passes: &[Vec<usize>],
) -> Vec<u64> {
    let ranks = terms.len();
    if ranks == 1 {
        return vec![0];
    }
    let mut sent = vec![0; ranks];
    let mut add = |times: usize, call: Vec<u64>| {
        let add = |(sent, call): (&mut u64, u64)| {
            *sent = sent.saturating_add(call.saturating_mul(times as u64));
        };
        sent.iter_mut().zip(call).for_each(add);
    };
    // The ranks tell each other that they have not failed.
    let agree = || traffic::all_gather(&vec![1; ranks]);
    let is_divided = terms.iter().sum::<usize>() > 1;
    // The residual is computed anew at the beginning, at the end, and at times.
    let residuals = |iterations: usize| 3 + iterations / 32;
    let sums = match data_term {
        DataTerm::Gradient { .. } | DataTerm::Normal | DataTerm::Dual => 1,
        DataTerm::Subsets { count } => count,
        // Of the first prox the right-hand side.
        DataTerm::Prox { .. } if is_divided => 1,
        DataTerm::Prox { iterations } => 1 + residuals(iterations) + iterations,
    };
    add(sums, agree());
    match data_term {
        // Every operator has one turn; each subset ends with an image.
        DataTerm::Subsets { count } => add_subsets(&mut add, elements, terms, count),
        _ => add(sums, sum_of_images(elements, terms)),
    }
    match data_term {
        // Every rank has its own rows, which are gathered for the operators, and in the end.
        DataTerm::Prox { iterations } if is_divided => {
            let rows = partition::even(elements / row.max(1), ranks).into_iter();
            let segments: Vec<usize> = rows.map(|rows| row * rows.len()).collect();
            let applications = residuals(iterations) + iterations;
            add(applications, agree());
            add(applications, own_segments(elements, &segments, terms));
            add(applications + 1, gathered(&segments));
            let products = 2 + residuals(iterations) + 3 * iterations;
            add(products, traffic::all_reduce(ElementKind::U64, Sum::WORDS, ranks));
        }
        DataTerm::Gradient { values } => {
            // The values of the data term.
            add(1 + values, agree());
            add(1 + values, traffic::ordered_sum(ElementKind::F64, 1, terms));
        }
        // Whether each rank has its duals.
        DataTerm::Dual => add(1, agree()),
        DataTerm::Prox { .. } | DataTerm::Normal | DataTerm::Subsets { .. } => (),
    }
    for parts in passes {
        add(1, agree());
        add(1, traffic::all_gather(&parts.iter().map(|part| 4 * part).collect::<Vec<_>>()));
    }
    // Whether to stop: by the clock, or by the watcher's word.
    add(1, traffic::all_reduce(ElementKind::U64, 2, ranks));
    sent
}

/// What each rank sends for a sum over the operators, of which ranks have so many.
fn sum_of_images(elements: usize, terms: &[usize]) -> Vec<u64> {
    let segments = partition::even(elements, terms.len()).into_iter();
    let segments: Vec<usize> = segments.map(|segment| segment.len()).collect();
    let terms = own_segments(elements, &segments, terms).into_iter();
    terms.zip(gathered(&segments)).map(|(terms, gathered)| terms + gathered).collect()
}

/// What each rank sends for sums over so many subsets of the operators, in which every operator has one turn.
fn add_subsets(
    add: &mut impl FnMut(usize, Vec<u64>),
    elements: usize,
    terms: &[usize],
    subsets: usize,
) {
    let segments = partition::even(elements, terms.len()).into_iter();
    let segments: Vec<usize> = segments.map(|segment| segment.len()).collect();
    add(1, own_segments(elements, &segments, terms));
    add(subsets, gathered(&segments));
}

/// What each rank sends so that all have their segments of a sum: the others' segments of its own terms.
fn own_segments(elements: usize, segments: &[usize], terms: &[usize]) -> Vec<u64> {
    let sent = segments.iter().zip(terms);
    sent.map(|(segment, terms)| (4 * terms * (elements - segment)) as u64).collect()
}

/// What each rank sends of its segment.
fn gathered(segments: &[usize]) -> Vec<u64> {
    traffic::all_gather(&segments.iter().map(|segment| 4 * segment).collect::<Vec<_>>())
}

/// What each rank sends for a prox of total variation by so many iterations at most, whose rows the ranks share.
pub(super) fn total_variation(image: &[usize], ranks: usize, iterations: usize) -> Vec<u64> {
    if ranks == 1 || image.len() < 4 {
        return vec![0; ranks];
    }
    let (channels, axes) = (image[1], image.len() - 2);
    let length: usize = image[3..].iter().product();
    let rows: Vec<usize> =
        partition::even(image[2], ranks).into_iter().map(|rows| rows.len()).collect();
    let filled = rows.iter().filter(|rows| **rows > 0).count();
    // Two sums in every iteration but the first; in the end the rows themselves, channel by channel.
    let sums = traffic::all_reduce(ElementKind::U64, 2 * Sum::WORDS, ranks);
    let result =
        traffic::all_gather(&rows.iter().map(|rows| 4 * rows * length).collect::<Vec<_>>());
    let rank = |rank: usize| {
        // All of a row's dual to the rank before, and one axis of it to the rank after, if they have rows.
        let before = if rank > 0 && rank < filled { axes } else { 0 };
        let after = usize::from(rank + 1 < filled);
        let halo = (4 * channels * length * (before + after)) as u64;
        let one = (halo.saturating_mul(iterations.max(1) as u64))
            .saturating_add(sums[rank].saturating_mul(iterations.saturating_sub(1) as u64))
            .saturating_add(channels as u64 * result[rank]);
        one.saturating_mul(image[0] as u64)
    };
    (0..ranks).map(rank).collect()
}
