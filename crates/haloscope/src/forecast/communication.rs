//! The bytes that ranks send in one iteration: the calls of `solve`, `distribute` and their parts, one after the other.

use haloscope_comm::{ElementKind, traffic};

/// What a method asks of the data term in an iteration.
#[derive(Clone, Copy)]
pub(super) enum DataTerm {
    /// Its value and gradient.
    Gradient,
    /// The normal operator.
    Normal,
    /// Its prox, by so many iterations at most.
    Prox { iterations: usize },
}

/// What each rank sends in an iteration, at most, with a denoiser to which the ranks contribute `parts` elements, if there
/// is one. `terms` are the operators of each rank.
pub(super) fn iteration(
    elements: usize,
    terms: &[usize],
    data_term: DataTerm,
    parts: Option<&[usize]>,
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
    let sums = match data_term {
        DataTerm::Gradient | DataTerm::Normal => 1,
        // The right-hand side and the residual, which is computed anew at the beginning, at the end, and at times.
        DataTerm::Prox { iterations } => 4 + iterations + iterations / 32,
    };
    add(sums, agree());
    add(sums, traffic::ordered_sum(ElementKind::F32, elements, terms));
    match data_term {
        DataTerm::Gradient => {
            // The value of the data term.
            add(1, agree());
            add(1, traffic::ordered_sum(ElementKind::F64, 1, terms));
        }
        // Whether each rank has its measurements.
        DataTerm::Prox { .. } => add(1, agree()),
        DataTerm::Normal => (),
    }
    if let Some(parts) = parts {
        add(1, agree());
        add(1, traffic::all_gather(&parts.iter().map(|part| 4 * part).collect::<Vec<_>>()));
    }
    // Whether to stop: by the clock, or by the watcher's word.
    add(1, traffic::all_reduce(ElementKind::U64, 2, ranks));
    sent
}
