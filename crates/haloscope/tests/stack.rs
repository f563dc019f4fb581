//! Stacks: the dot test, and the same bits as a sum over ranks.

mod dense;

use std::sync::Arc;

use dense::{Dense, row};
use haloscope::array::dot;
use haloscope::physics::{Physics, Stack};
use haloscope::{Array, Measurements};
use haloscope_comm::{Collectives, Communicator, Threads};

type Random = fastrand::Rng;

fn uniform(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

/// Operators with different numbers of rows, and measurements for them.
fn problem(random: &mut Random, columns: usize) -> (Stack, Measurements) {
    let rows = [3, 1, 7, 4, 2];
    let operators = rows.map(|rows| {
        Arc::new(Dense::new(rows, columns, uniform(random, rows * columns))) as Arc<dyn Physics>
    });
    let parts = rows.map(|rows| row(&uniform(random, rows)));
    (Stack::new(operators.to_vec()).expect("a stack"), Measurements::new(parts.to_vec()))
}

fn slice(array: &Array) -> &[f32] {
    array.as_slice().expect("standard layout")
}

#[test]
fn the_adjoint_of_a_stack_passes_the_dot_test() {
    let mut random = Random::with_seed(1);
    for _ in 0..50 {
        let columns = random.usize(1..30);
        let (stack, y) = problem(&mut random, columns);
        let x = row(&uniform(&mut random, columns));
        let ax = stack.forward(&x).expect("forward");
        let parts = ax.iter().zip(y.iter());
        let left: f64 = parts.map(|((_, a), (_, b))| dot(slice(a), slice(b))).sum();
        let right = dot(slice(&x), slice(&stack.adjoint(&y).expect("adjoint")));
        let scale = (ax.squared_norm() * y.squared_norm()).sqrt();
        assert!((left - right).abs() <= 1e-6 * scale, "{left}, {right}, {scale}");
    }
}

#[test]
fn the_adjoint_has_the_bits_of_an_ordered_sum_over_ranks() {
    let mut random = Random::with_seed(2);
    // The second is too large for the communicator's way with small data.
    for columns in [10, 5000] {
        let (stack, y) = problem(&mut random, columns);
        let expected = stack.adjoint(&y).expect("adjoint");
        for size in [1, 2, 3, 7] {
            let ranks = Threads::group(size).expect("ranks");
            std::thread::scope(|scope| {
                for rank in ranks {
                    let (stack, y, expected) = (&stack, &y, &expected);
                    scope.spawn(move || {
                        let mine = (0..stack.len()).filter(|i| i % rank.size() == rank.rank());
                        let terms: Vec<(u64, Array)> = mine
                            .map(|i| {
                                let operator = stack.operators()[i].as_linear().expect("linear");
                                let part = y.get(i).expect("all are present");
                                (i as u64, operator.adjoint(part).expect("adjoint"))
                            })
                            .collect();
                        let contributions: Vec<(u64, &[f32])> =
                            terms.iter().map(|(i, term)| (*i, slice(term))).collect();
                        let mut sum = vec![0.0; columns];
                        rank.ordered_sum(&contributions, &mut sum).expect("a sum");
                        let bits =
                            |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(&sum), bits(slice(expected)), "{size} ranks");
                    });
                }
            });
        }
    }
}
