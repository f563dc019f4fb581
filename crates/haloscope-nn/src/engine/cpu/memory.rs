//! Where each value of a plan lies: values that are never alive together share memory.

use std::ops::RangeInclusive;

/// A value's size and the steps between which it must be kept, both included.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) len: usize,
    pub(crate) alive: RangeInclusive<usize>,
    /// The value whose memory this one takes over: an output that overwrites an input.
    pub(crate) overwrites: Option<usize>,
}

/// Offsets of all values and the length of the memory.
///
/// Larger values are placed first, each at the lowest offset that is free throughout its life.
pub(crate) fn assign(demands: &[Demand]) -> (Vec<usize>, usize) {
    // Chains of values that take over each other's memory are placed as one.
    let mut head: Vec<usize> = (0..demands.len()).collect();
    let mut alive: Vec<RangeInclusive<usize>> = demands.iter().map(|d| d.alive.clone()).collect();
    for (index, demand) in demands.iter().enumerate() {
        if let Some(previous) = demand.overwrites {
            head[index] = head[previous];
            let first = head[index];
            let start = *alive[first].start().min(demand.alive.start());
            let end = *alive[first].end().max(demand.alive.end());
            alive[first] = start..=end;
        }
    }
    let mut order: Vec<usize> = (0..demands.len()).filter(|&index| head[index] == index).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(demands[index].len));

    let mut offsets = vec![0; demands.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for index in order {
        let overlaps = |other: &usize| {
            alive[*other].start() <= alive[index].end()
                && alive[index].start() <= alive[*other].end()
        };
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(|&other| overlaps(other))
            .map(|&other| (offsets[other], offsets[other] + demands[other].len))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, end) in taken {
            if at + demands[index].len <= start {
                break;
            }
            at = at.max(end);
        }
        offsets[index] = at;
        total = total.max(at + demands[index].len);
        placed.push(index);
    }
    for index in 0..demands.len() {
        offsets[index] = offsets[head[index]];
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_alive_together_never_overlap_and_others_share() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let demands: Vec<Demand> = (0..random.usize(1..30))
                .map(|_| {
                    let start = random.usize(0..20);
                    let alive = start..=start + random.usize(0..6);
                    Demand { len: random.usize(1..50), alive, overwrites: None }
                })
                .collect();
            let (offsets, total) = assign(&demands);
            for (i, a) in demands.iter().enumerate() {
                assert!(offsets[i] + a.len <= total);
                for (j, b) in demands.iter().enumerate().skip(i + 1) {
                    let together =
                        a.alive.start() <= b.alive.end() && b.alive.start() <= a.alive.end();
                    let apart =
                        offsets[i] + a.len <= offsets[j] || offsets[j] + b.len <= offsets[i];
                    assert!(!together || apart);
                }
            }
            assert!(total <= demands.iter().map(|demand| demand.len).sum());
        }
    }

    #[test]
    fn an_output_that_overwrites_an_input_lies_where_it_lay() {
        let demand = |alive, overwrites| Demand { len: 10, alive, overwrites };
        let demands = [demand(0..=1, None), demand(0..=2, None), demand(1..=3, Some(0))];
        let (offsets, total) = assign(&demands);
        assert_eq!(offsets[2], offsets[0]);
        assert_ne!(offsets[1], offsets[0]);
        assert_eq!(total, 20);
    }
}
