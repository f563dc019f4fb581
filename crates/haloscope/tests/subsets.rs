//! SIRT, OS-SART, MLEM and OSEM against their definitions in f64, and on ranks.

mod dense;

use std::sync::Arc;

use dense::Dense;
use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, L2, Poisson};
use haloscope::physics::{Physics, Stack};
use haloscope::solve::{
    Algorithm, ExpectationMaximisation, Problem, Sirt, Start, State, Stopping, solve,
};
use haloscope::{Array, Measurements, Result};
use haloscope_comm::Context;

const COLUMNS: usize = 6;
const ROWS: [usize; 5] = [4, 3, 5, 2, 4];

/// Matrices that see each pixel, one of them with a row of zeros.
fn matrices() -> Vec<Dense> {
    let mut random = fastrand::Rng::with_seed(3);
    ROWS.iter()
        .enumerate()
        .map(|(index, rows)| {
            let entries = (0..rows * COLUMNS)
                .map(|at| if index == 1 && at < COLUMNS { 0.0 } else { random.f32() })
                .collect();
            Dense::new(*rows, COLUMNS, entries)
        })
        .collect()
}

fn truth() -> Vec<f64> {
    vec![1.0, 3.0, 0.5, 2.0, 4.0, 1.5]
}

fn data(matrices: &[Dense]) -> Vec<Vec<f64>> {
    let noise = |index: usize, row: usize| 0.02 * ((index * 7 + row * 3) % 5) as f64;
    let measured = |(index, matrix): (usize, &Dense)| {
        let rows = apply(matrix, &truth()).into_iter().enumerate();
        rows.map(|(row, value)| value + noise(index, row)).collect()
    };
    matrices.iter().enumerate().map(measured).collect()
}

fn apply(matrix: &Dense, x: &[f64]) -> Vec<f64> {
    let row = |row: &[f32]| row.iter().zip(x).map(|(a, x)| f64::from(*a) * x).sum();
    matrix.entries.chunks(COLUMNS).map(row).collect()
}

fn adjoint(matrix: &Dense, y: &[f64]) -> Vec<f64> {
    let column = |column: usize| {
        y.iter()
            .enumerate()
            .map(move |(row, y)| f64::from(matrix.entries[row * COLUMNS + column]) * y)
    };
    (0..COLUMNS).map(|at| column(at).sum()).collect()
}

/// `f(matrix, data, x)` of the matrices of a subset, added up.
fn sum(subset: impl Iterator<Item = usize>, f: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
    subset.fold(vec![0.0; COLUMNS], |sum, index| {
        sum.iter().zip(f(index)).map(|(sum, term)| sum + term).collect()
    })
}

/// The definition, with the sums of columns of all matrices over the number of subsets.
fn expected(is_sirt: bool, subsets: usize, iterations: usize) -> Vec<f64> {
    let (matrices, data) = (matrices(), data(&matrices()));
    let columns = sum(0..matrices.len(), |i| adjoint(&matrices[i], &vec![1.0; ROWS[i]]));
    let mut x = vec![1.0; COLUMNS];
    for at in 0..iterations * subsets {
        let subset = (at % subsets..matrices.len()).step_by(subsets);
        let back = sum(subset, |index| {
            let predicted = apply(&matrices[index], &x);
            let rows = apply(&matrices[index], &[1.0; COLUMNS]);
            let residual =
                predicted.iter().zip(&data[index]).zip(rows).map(|((u, y), row)| {
                    match (is_sirt, row > 0.0) {
                        (true, true) => (y - u) / row,
                        (true, false) => 0.0,
                        (false, _) => {
                            if *y == 0.0 {
                                0.0
                            } else {
                                y / (u + 0.1)
                            }
                        }
                    }
                });
            adjoint(&matrices[index], &residual.collect::<Vec<_>>())
        });
        for ((x, back), column) in x.iter_mut().zip(back).zip(&columns) {
            let scaled = back * subsets as f64 / column;
            *x = if is_sirt { *x + 0.9 * scaled } else { *x * scaled };
        }
    }
    x
}

fn found(ctx: &Context, is_sirt: bool, subsets: usize, iterations: usize) -> Result<Array> {
    let matrices = matrices();
    let measured = data(&matrices).into_iter().map(|y| {
        let y: Vec<f32> = y.into_iter().map(|y| y as f32).collect();
        Array::from_shape_vec(vec![1, 1, y.len()], y).expect("a row")
    });
    let measured = Measurements::new(measured.collect());
    let operators = matrices.into_iter().map(|matrix| Arc::new(matrix) as Arc<dyn Physics>);
    let physics = distribute(Stack::new(operators.collect())?, ctx)?;
    let fidelity = if is_sirt {
        Fidelities::from(L2::new(0.5)?)
    } else {
        Fidelities::from(Poisson::new(1.0, 0.1)?)
    };
    let problem = Problem::new(physics, measured, distribute(fidelity, ctx)?)?;
    let method: Box<dyn Algorithm> = if is_sirt {
        Box::new(Sirt::new(&problem, 0.9, subsets, None)?)
    } else {
        Box::new(ExpectationMaximisation::new(&problem, subsets, None)?)
    };
    let mut start = problem.start(&Start::Zeros)?;
    start.map(|_| 1.0);
    let stopping = Stopping { iterations, ..Stopping::default() };
    let outcome = solve(&problem, &*method, State::new(start), &stopping, None)?;
    outcome.state.image.into_whole()
}

#[test]
fn steps_are_those_of_the_definition_and_have_the_same_bits_on_any_number_of_ranks() {
    for (is_sirt, subsets) in [(true, 1), (true, 2), (true, 5), (false, 1), (false, 3)] {
        let expected = expected(is_sirt, subsets, 4);
        let alone = found(&Context::solo(), is_sirt, subsets, 4).expect("it runs");
        for (found, expected) in alone.iter().zip(&expected) {
            let error = (f64::from(*found) - expected).abs() / expected;
            assert!(error < 1e-5, "{is_sirt} {subsets}: {found} for {expected}");
        }
        for ranks in [2, 3, 5, 8] {
            let all = Context::threads(ranks, move |ctx| found(ctx, is_sirt, subsets, 4));
            assert!(all.expect("no rank fails").iter().all(|image| *image == alone), "{ranks}");
        }
    }
}

#[test]
fn both_converge_to_what_was_measured() {
    for (is_sirt, subsets) in [(true, 1), (true, 5), (false, 1)] {
        let image = found(&Context::solo(), is_sirt, subsets, 3000).expect("it runs");
        let (matrices, data) = (matrices(), data(&matrices()));
        let x: Vec<f64> = image.iter().map(|value| f64::from(*value)).collect();
        let residual: f64 = (0..ROWS.len())
            .flat_map(|index| {
                let (predicted, y) = (apply(&matrices[index], &x), data[index].clone());
                predicted.into_iter().zip(y).map(|(u, y)| (u - y).powi(2)).collect::<Vec<_>>()
            })
            .sum();
        // The noise is a hundredth of the data; counts have a background.
        assert!(residual.sqrt() < if is_sirt { 0.3 } else { 0.8 }, "{is_sirt}: {residual}");
    }
}

#[test]
fn too_many_subsets_and_negative_operators_are_refused() {
    let error = found(&Context::solo(), true, 6, 1).expect_err("5 operators").to_string();
    assert!(error.contains("6 subsets of 5 operators"), "{error}");
    let negative: Arc<dyn Physics> = Arc::new(Dense::new(2, 2, vec![1.0, -2.0, 0.5, 1.0]));
    let ctx = Context::solo();
    let physics = distribute(Stack::new(vec![negative]).expect("one"), &ctx).expect("ranks");
    let data = Measurements::new(vec![Array::ones(vec![1, 1, 2])]);
    let fidelity = distribute(Fidelities::from(L2::default()), &ctx).expect("ranks");
    let problem = Problem::new(physics, data, fidelity).expect("a problem");
    let error = Sirt::new(&problem, 1.0, 1, None).expect_err("negative").to_string();
    assert!(error.contains("negative weights"), "{error}");
}
