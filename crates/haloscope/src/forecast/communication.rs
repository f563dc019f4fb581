//! The bytes that ranks send in one iteration: the calls of `solve`, `distribute` and their parts, one after the other.

use haloscope_comm::{ElementKind, traffic};

/// What each rank sends in an iteration with a gradient of the data term, and a denoiser to which the ranks contribute
/// `parts` elements, if there is one. `terms` are the operators of each rank.
pub(super) fn iteration(elements: usize, terms: &[usize], parts: Option<&[usize]>) -> Vec<u64> {
    let ranks = terms.len();
    if ranks == 1 {
        return vec![0];
    }
    let mut sent = vec![0; ranks];
    let mut add = |call: Vec<u64>| sent.iter_mut().zip(call).for_each(|(sent, call)| *sent += call);
    // The ranks tell each other that they have not failed.
    let agree = || traffic::all_gather(&vec![1; ranks]);
    add(agree());
    add(traffic::ordered_sum(ElementKind::F32, elements, terms));
    // The value of the data term.
    add(agree());
    add(traffic::ordered_sum(ElementKind::F64, 1, terms));
    if let Some(parts) = parts {
        add(agree());
        add(traffic::all_gather(&parts.iter().map(|part| 4 * part).collect::<Vec<_>>()));
    }
    // Whether to stop: by the clock, or by the watcher's word.
    add(traffic::all_reduce(ElementKind::U64, 2, ranks));
    sent
}
