//! The iterative methods against dense solutions in f64, and what they do where there is no good
//! solution.

mod dense;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use dense::{Dense, norm, relative, row};
use haloscope::least_squares::{
    Ending, LeastSquaresOptions, LinearSolver, NormOptions, System, prox_l2, pseudo_inverse, solve,
    squared_norm,
};
use haloscope::physics::{Blur, Identity, LinearPhysics, Padding, Physics, Stack, kernels};
use haloscope::{Array, Error, Measurements, Result};
use proptest::prelude::*;

const METHODS: [LinearSolver; 4] = [
    LinearSolver::ConjugateGradient,
    LinearSolver::Lsqr,
    LinearSolver::Minres,
    LinearSolver::Bicgstab,
];

type Random = fastrand::Rng;

fn uniform(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

/// A matrix of this rank at most, with columns that shrink by `decay` one after another.
fn matrix(random: &mut Random, rows: usize, columns: usize, rank: usize, decay: f32) -> Dense {
    let (left, right) = (uniform(random, rows * rank), uniform(random, rank * columns));
    let entry = |i: usize, j: usize| -> f32 {
        (0..rank).map(|k| left[i * rank + k] * right[k * columns + j]).sum()
    };
    let entries = (0..rows * columns)
        .map(|e| entry(e / columns, e % columns) * decay.powi((e % columns) as i32));
    Dense::new(rows, columns, entries.collect())
}

fn options(method: LinearSolver) -> LeastSquaresOptions<'static> {
    LeastSquaresOptions {
        method,
        tolerance: 1e-6,
        max_iterations: 500,
        ..LeastSquaresOptions::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn proxes_are_those_of_dense_solutions(seed: u64) {
        let mut random = Random::with_seed(seed);
        let (rows, columns) = (random.usize(1..13), random.usize(1..13));
        let rank = random.usize(1..=rows.min(columns));
        let operator = matrix(&mut random, rows, columns, rank, 0.8);
        let (z, y) = (uniform(&mut random, columns), uniform(&mut random, rows));
        let gamma = 10_f64.powf(f64::from(random.f32()) * 3.0 - 1.0);
        let mut b = operator.adjoint_f64(&y);
        b.iter_mut().zip(&z).for_each(|(b, z)| *b += f64::from(*z) / gamma);
        let expected = operator.solve_f64(&b, 1.0 / gamma);
        let (values, _) = dense::eigen(operator.normal());
        let largest = values.iter().copied().fold(0.0, f64::max);
        let condition = 1.0 + largest * gamma;
        // What f32 leaves of the right-hand side when its terms cancel.
        let rounding = 1e-6 * (largest.sqrt() * norm(&y) + norm(&z) / gamma) / norm(&b);
        for method in METHODS {
            let found = prox_l2(&operator, &row(&z), &row(&y), gamma, &options(method)).expect("prox");
            let residual = found.report.residual.expect("iterated");
            prop_assert!(residual <= 1e-6 + 2.0 * rounding, "{method}: {:?}", found.report);
            prop_assert_eq!(found.report.converged(), residual <= 1e-6);
            // ‖x − x*‖ ≤ ‖H⁻¹‖ ‖r‖ and ‖x*‖ ≥ ‖b‖ / ‖H‖.
            let error = relative(&found.image, &expected);
            let bound = condition * (residual + rounding);
            prop_assert!(error <= bound, "{method}: {error} above {bound}, {:?}", found.report);
        }
    }

    #[test]
    fn pseudo_inverses_are_of_least_norm_for_any_shape_and_rank(seed: u64) {
        let mut random = Random::with_seed(seed);
        let (rows, columns) = (random.usize(1..10), random.usize(1..10));
        // Well-conditioned on its range: an identity in random coordinates, of any rank.
        let rank = random.usize(1..=rows.min(columns));
        let mut operator = matrix(&mut random, rows, columns, rank, 1.0);
        for k in 0..rank {
            operator.entries[k * columns + k] += 3.0;
        }
        let (values, _) = dense::eigen(operator.normal());
        let largest = values.iter().copied().fold(0.0, f64::max);
        // Between "zero" and "not small" nothing in f32 could tell the rank.
        prop_assume!(values.iter().all(|v| *v < 1e-12 * largest || *v > 1e-3 * largest));
        let y = uniform(&mut random, rows);
        let b = operator.adjoint_f64(&y);
        let expected = operator.solve_f64(&b, 0.0);
        // The condition number of the normal equations is below 10³ on their range.
        let rounding = 1e-6 * largest.sqrt() * norm(&y) / norm(&b);
        for method in METHODS {
            let found = pseudo_inverse(&operator, &row(&y), &options(method)).expect("pseudo-inverse");
            let error = relative(&found.image, &expected);
            let bound = 1e3 * (found.report.residual.expect("iterated") + rounding);
            prop_assert!(error <= bound, "{method}: {error} above {bound}, {:?}", found.report);
        }
    }
}

#[test]
fn a_rank_deficient_operator_without_a_reachable_tolerance_does_not_blow_up() {
    let mut random = Random::with_seed(4);
    let operator = matrix(&mut random, 12, 10, 3, 1.0);
    let y = uniform(&mut random, 12);
    let expected = operator.solve_f64(&operator.adjoint_f64(&y), 0.0);
    for method in METHODS {
        let options =
            LeastSquaresOptions { tolerance: 0.0, max_iterations: 2000, ..options(method) };
        let found = pseudo_inverse(&operator, &row(&y), &options).expect("a report");
        assert!(relative(&found.image, &expected) < 1e-4, "{method}: {:?}", found.report.stop);
        assert!(found.report.iterations < 2000, "{method} went on: {:?}", found.report.stop);
    }
}

#[test]
fn an_ill_conditioned_operator_is_solved_or_reported_and_residuals_are_true() {
    let mut random = Random::with_seed(5);
    // Columns shrink to 3·10⁻⁴: the normal equations have a condition number above 10⁷.
    let operator = matrix(&mut random, 14, 12, 12, 0.5);
    let y = uniform(&mut random, 14);
    let b = operator.adjoint_f64(&y);
    let size = b.iter().map(|b| b * b).sum::<f64>().sqrt();
    for method in METHODS {
        let found = pseudo_inverse(&operator, &row(&y), &options(method)).expect("a report");
        let normal = operator.normal();
        let residual = normal.iter().zip(&b).map(|(line, b)| {
            let product: f64 = line.iter().zip(&found.image).map(|(a, x)| a * f64::from(*x)).sum();
            (product - b).powi(2)
        });
        let residual = residual.sum::<f64>().sqrt() / size;
        let reported = found.report.residual.expect("iterated");
        assert!(found.image.iter().all(|x| x.is_finite()), "{method}");
        assert!((residual - reported).abs() < 1e-5, "{method}: {residual}, reported {reported}");
        assert_eq!(found.report.converged(), reported <= 1e-6, "{method}: {:?}", found.report.stop);
        assert!(reported < 1e-3, "{method}: {reported}, {:?}", found.report.stop);
    }
}

#[test]
fn a_zero_right_hand_side_gives_zero_without_iterations() {
    let operator = matrix(&mut Random::with_seed(6), 4, 3, 3, 1.0);
    for method in METHODS {
        let found = pseudo_inverse(&operator, &row(&[0.0; 4]), &options(method)).expect("zero");
        assert_eq!(found.image, row(&[0.0; 3]), "{method}");
        assert_eq!((found.report.stop, found.report.iterations), (Ending::Converged, 0));
    }
}

#[test]
fn a_zero_operator_gives_zero() {
    let operator = Dense::new(2, 3, vec![0.0; 6]);
    for method in METHODS {
        let found = pseudo_inverse(&operator, &row(&[1.0; 2]), &options(method)).expect("zero");
        assert_eq!(found.image, row(&[0.0; 3]), "{method}");
    }
    let norm = squared_norm(&operator, &NormOptions::default()).expect("norm");
    assert_eq!((norm.lower, norm.upper), (0.0, 0.0));
}

#[test]
fn one_by_one_is_a_division() {
    let operator = Dense::new(1, 1, vec![-4.0]);
    for method in METHODS {
        let found = pseudo_inverse(&operator, &row(&[2.0]), &options(method)).expect("a number");
        assert!((found.image[[0, 0, 0]] + 0.5).abs() < 1e-6, "{method}");
        assert!(found.report.converged(), "{method}");
    }
}

#[test]
fn values_that_are_not_finite_are_errors() {
    let operator = matrix(&mut Random::with_seed(7), 3, 3, 3, 1.0);
    let broken = Dense::new(2, 2, vec![1.0, 0.0, f32::NAN, 1.0]);
    for method in METHODS {
        for bad in [f32::NAN, f32::INFINITY] {
            let error = pseudo_inverse(&operator, &row(&[1.0, bad, 0.0]), &options(method));
            assert!(matches!(error, Err(Error::Numeric { .. })), "{method}: {error:?}");
        }
        let error = prox_l2(&broken, &row(&[1.0; 2]), &row(&[1.0; 2]), 1.0, &options(method));
        assert!(matches!(error, Err(Error::Numeric { .. })), "{method}: {error:?}");
    }
    assert!(matches!(squared_norm(&broken, &NormOptions::default()), Err(Error::Numeric { .. })));
}

#[test]
fn wrong_shapes_and_parameters_are_refused() {
    let operator = matrix(&mut Random::with_seed(8), 3, 2, 2, 1.0);
    for method in METHODS {
        let y = row(&[1.0; 3]);
        assert!(pseudo_inverse(&operator, &row(&[1.0; 2]), &options(method)).is_err());
        assert!(prox_l2(&operator, &row(&[1.0; 3]), &y, 1.0, &options(method)).is_err());
        for gamma in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(prox_l2(&operator, &row(&[1.0; 2]), &y, gamma, &options(method)).is_err());
        }
        let start = row(&[0.0; 5]);
        let options = LeastSquaresOptions { start: Some(&start), ..options(method) };
        assert!(pseudo_inverse(&operator, &y, &options).is_err());
        let options = LeastSquaresOptions { start: None, tolerance: f64::NAN, ..options };
        assert!(pseudo_inverse(&operator, &y, &options).is_err());
    }
    let options = NormOptions { failure: 0.0, ..NormOptions::default() };
    assert!(squared_norm(&operator, &options).is_err());
    let options = NormOptions { max_iterations: 0, ..NormOptions::default() };
    assert!(squared_norm(&operator, &options).is_err());
}

#[test]
fn iterations_begin_at_the_start_and_find_the_nearest_solution() {
    // x₀ + x₁ = 2: the solution nearest to (3, 1) is (2, 0).
    let operator = Dense::new(1, 2, vec![1.0, 1.0]);
    let start = row(&[3.0, 1.0]);
    for method in METHODS {
        let options = LeastSquaresOptions { start: Some(&start), ..options(method) };
        let found = pseudo_inverse(&operator, &row(&[2.0]), &options).expect("solved");
        assert!(relative(&found.image, &[2.0, 0.0]) < 1e-6, "{method}: {}", found.image);
        let again = LeastSquaresOptions { start: Some(&found.image), ..options };
        let found = pseudo_inverse(&operator, &row(&[2.0]), &again).expect("solved");
        assert_eq!(found.report.iterations, 0, "{method}");
    }
}

#[test]
fn a_watcher_sees_each_iteration_and_can_stop() {
    let mut random = Random::with_seed(9);
    let operator = matrix(&mut random, 30, 20, 20, 0.9);
    let y = row(&uniform(&mut random, 30));
    for method in METHODS {
        let seen = Cell::new(0);
        let watch = |step: &haloscope::least_squares::LinearIteration| {
            seen.set(seen.get() + 1);
            assert_eq!(step.iteration, seen.get());
            if step.iteration == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = LeastSquaresOptions { watch: Some(&watch), ..options(method) };
        let found = pseudo_inverse(&operator, &y, &options).expect("a report");
        assert_eq!(found.report.stop, Ending::Watcher, "{method}");
        assert_eq!((found.report.iterations, found.report.history.len()), (3, 3), "{method}");
        let options = LeastSquaresOptions { watch: None, max_iterations: 2, ..options };
        let found = pseudo_inverse(&operator, &y, &options).expect("a report");
        assert_eq!((found.report.stop, found.report.iterations), (Ending::IterationLimit, 2));
        let options = LeastSquaresOptions { max_iterations: 0, ..options };
        let found = pseudo_inverse(&operator, &y, &options).expect("a report");
        assert_eq!((found.report.stop, found.report.iterations), (Ending::IterationLimit, 0));
    }
}

#[test]
fn a_stack_has_the_solution_of_the_matrix_that_it_makes() {
    let mut random = Random::with_seed(10);
    let whole = matrix(&mut random, 9, 6, 6, 0.9);
    let part = |range: std::ops::Range<usize>| {
        let rows = range.len();
        Arc::new(Dense::new(rows, 6, whole.entries[range.start * 6..range.end * 6].to_vec()))
            as Arc<dyn Physics>
    };
    let stack = Stack::new(vec![part(0..2), part(2..6), part(6..9)]).expect("a stack");
    let y = uniform(&mut random, 9);
    let data = Measurements::new(vec![row(&y[..2]), row(&y[2..6]), row(&y[6..])]);
    let expected = whole.solve_f64(&whole.adjoint_f64(&y), 0.0);
    let z = row(&[0.5; 6]);
    for method in METHODS {
        let found = pseudo_inverse(&stack, &data, &options(method)).expect("solved");
        assert!(relative(&found.image, &expected) < 1e-3, "{method}: {:?}", found.report);
        let one = prox_l2(&whole, &z, &row(&y), 2.0, &options(method)).expect("solved").image;
        let other = prox_l2(&stack, &z, &data, 2.0, &options(method)).expect("solved").image;
        let one: Vec<f64> = one.iter().map(|v| f64::from(*v)).collect();
        assert!(relative(&other, &one) < 1e-5, "{method}");
    }
    let norms = [
        squared_norm(&whole, &NormOptions::default()).expect("norm").estimate,
        squared_norm(&stack, &NormOptions::default()).expect("norm").estimate,
    ];
    assert!((norms[0] - norms[1]).abs() < 1e-5 * norms[0], "{norms:?}");
}

#[test]
fn closed_forms_are_used_unless_a_start_asks_for_the_nearest_solution() {
    let operator = Identity::new(&[1, 3]);
    let y = row(&[1.0, 2.0, 3.0]);
    let found = pseudo_inverse(&operator, &y, &LeastSquaresOptions::default()).expect("solved");
    assert_eq!((found.report.stop, found.image), (Ending::ClosedForm, y.clone()));
    let start = row(&[9.0; 3]);
    let options = LeastSquaresOptions { start: Some(&start), ..LeastSquaresOptions::default() };
    let found = pseudo_inverse(&operator, &y, &options).expect("solved");
    assert_eq!(found.report.stop, Ending::Converged);
}

/// A square matrix as a system, symmetric or not.
struct Square(Dense);

impl System for Square {
    fn apply(&self, x: &Array) -> Result<Array> {
        self.0.forward(x)
    }
}

#[test]
fn bicgstab_solves_systems_that_are_not_symmetric() {
    let system = Square(Dense::new(3, 3, vec![4.0, 1.0, 0.0, -2.0, 3.0, 1.0, 0.0, -1.0, 5.0]));
    let x = row(&[1.0, -2.0, 0.5]);
    let b = system.0.forward(&x).expect("forward");
    let found = solve(&system, &b, &options(LinearSolver::Bicgstab)).expect("solved");
    assert!(found.report.converged(), "{:?}", found.report);
    assert!(relative(&found.image, &[1.0, -2.0, 0.5]) < 1e-5, "{}", found.image);
    assert!(solve(&system, &b, &options(LinearSolver::Lsqr)).is_err());
}

#[test]
fn minres_solves_indefinite_systems_and_conjugate_gradients_say_what_is_wrong() {
    let system = Square(Dense::new(2, 2, vec![0.0, 1.0, 1.0, 0.0]));
    let b = row(&[2.0, 1.0]);
    let found = solve(&system, &b, &options(LinearSolver::Minres)).expect("solved");
    assert!(found.report.converged());
    assert!(relative(&found.image, &[1.0, 2.0]) < 1e-6, "{}", found.image);
    let negative = Square(Dense::new(2, 2, vec![-1.0, 0.0, 0.0, 1.0]));
    let found = solve(&negative, &row(&[2.0, 1.0]), &options(LinearSolver::ConjugateGradient));
    let report = found.expect("a report").report;
    assert!(matches!(report.stop, Ending::Breakdown(_)), "{report:?}");
}

#[test]
fn a_rotation_breaks_bicgstab_down_with_a_reason_and_a_finite_image() {
    // ⟨x, H x⟩ = 0 for all x: the first direction is orthogonal to the residual.
    let system = Square(Dense::new(2, 2, vec![0.0, 1.0, -1.0, 0.0]));
    let found =
        solve(&system, &row(&[1.0, 0.0]), &options(LinearSolver::Bicgstab)).expect("a report");
    assert!(matches!(found.report.stop, Ending::Breakdown(_)), "{:?}", found.report);
    assert!(found.image.iter().all(|x| x.is_finite()));
}

#[test]
fn results_have_the_same_bits_on_any_number_of_threads() {
    let shape = [1, 300, 300];
    let frame: Arc<dyn Physics> = Arc::new(Identity::new(&shape));
    let stack = Stack::new(vec![frame; 3]).expect("a stack");
    let mut random = Random::with_seed(12);
    let part = Array::from_shape_fn(vec![1, 1, 300, 300], |_| random.f32());
    let data = Measurements::new(vec![part.clone(), &part * 0.3, &part - 1.0]);
    for method in METHODS {
        let on = |threads| {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                prox_l2(&stack, &part, &data, 0.7, &options(method)).expect("solved").image
            })
        };
        assert_eq!(on(1), on(2), "{method}");
        assert_eq!(on(1), on(3), "{method}");
    }
}

#[test]
fn the_bounds_of_a_norm_hold_for_all_seeds_and_the_estimate_converges() {
    let mut random = Random::with_seed(13);
    let operator = matrix(&mut random, 25, 20, 20, 0.9);
    let exact = operator.squared_norm_f64();
    for seed in 0..50 {
        for max_iterations in [1, 3, 10, 300] {
            let options =
                NormOptions { seed, max_iterations, tolerance: 1e-4, ..NormOptions::default() };
            let norm = squared_norm(&operator, &options).expect("norm");
            assert!(norm.lower <= exact * (1.0 + 1e-6), "{norm:?}, exactly {exact}");
            assert!(norm.upper >= exact * (1.0 - 1e-6), "{norm:?}, exactly {exact}");
            assert!(norm.lower <= norm.estimate && norm.estimate <= norm.upper);
            if max_iterations == 300 {
                assert!(norm.converged, "{norm:?}");
                assert!((norm.estimate - exact).abs() < 1e-5 * exact, "{norm:?}, exactly {exact}");
            }
        }
    }
    let first = squared_norm(&operator, &NormOptions::default()).expect("norm");
    assert_eq!(first, squared_norm(&operator, &NormOptions::default()).expect("norm"));
}

/// Eigenvalues of a blur lie close together at the top. A stack does not know the norm of its only operator.
#[test]
fn the_norm_of_a_blur_takes_a_few_dozen_iterations() {
    let kernel = kernels::gaussian(&[1.5, 1.5], 0.0).expect("a kernel");
    let blur = Blur::new(&[1, 200, 160], &kernel, Padding::Circular).expect("a blur");
    let exact = blur.exact_squared_norm().expect("known");
    let stack = Stack::new(vec![Arc::new(blur)]).expect("a stack");
    let options = NormOptions { tolerance: 1e-2, ..NormOptions::default() };
    let norm = squared_norm(&stack, &options).expect("norm");
    assert!(norm.converged && norm.iterations < 40, "{norm:?}");
    assert!(norm.estimate <= exact * (1.0 + 1e-5), "{norm:?}, exactly {exact}");
    assert!(norm.estimate >= 0.99 * exact && norm.upper >= exact, "{norm:?}, exactly {exact}");
}
