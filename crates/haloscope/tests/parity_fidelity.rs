//! Fidelities, norms and least squares against deepinv 0.5.0: `fixtures/make_fidelity.py`.

mod dense;

use dense::{Dense, relative, row};
use haloscope::Array;
use haloscope::fidelity::{Amplitude, Ball, Fidelity, L1, L2, Poisson};
use haloscope::least_squares::{
    LeastSquaresOptions, LinearSolver, NormOptions, prox_l2, pseudo_inverse, squared_norm,
};
use serde_json::Value;

fn fixture() -> Value {
    serde_json::from_str(include_str!("../fixtures/fidelity.json")).expect("the fixture is JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn array(value: &Value) -> Array {
    row(&numbers(value).iter().map(|number| *number as f32).collect::<Vec<_>>())
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn fidelities_agree_with_deepinv() {
    let fixture = fixture();
    let (u, y) = (array(&fixture["u"]), array(&fixture["y"]));
    let [gamma, gain, background] =
        ["gamma", "gain", "background"].map(|name| number(&fixture[name]));
    let poisson = |gain| Poisson::new(gain, background).expect("valid");
    // deepinv's gradient of the Poisson likelihood is gain² times the derivative of its value.
    let cases: [(&str, Box<dyn Fidelity>, f64); 7] = [
        ("l2", Box::new(L2::new(0.4).expect("valid")), 1.0),
        ("l1", Box::new(L1), 1.0),
        ("poisson_unit", Box::new(poisson(1.0)), 1.0),
        ("poisson_data", Box::new(poisson(gain)), gain * gain),
        ("poisson_counts", Box::new(poisson(gain).of_counts()), gain * gain),
        ("ball", Box::new(Ball::new(1.5).expect("valid")), 1.0),
        ("amplitude", Box::new(Amplitude), 1.0),
    ];
    for (name, fidelity, gradient_factor) in cases {
        let case = &fixture["fidelities"][name];
        let value = fidelity.value(&u, &y).expect("value");
        let expected = number(&case["value"]);
        // An indicator that is infinite here is 1e16 there.
        let agrees = (value - expected).abs() <= 1e-5 * expected.abs();
        assert!(
            agrees || (value == f64::INFINITY && expected > 9e15),
            "{name}: {value}, {expected}"
        );
        let parts = [
            ("gradient", fidelity.gradient(&u, &y), gradient_factor),
            ("prox", fidelity.prox(&u, &y, gamma), 1.0),
            ("prox_conjugate", fidelity.prox_conjugate(&u, &y, gamma), 1.0),
        ];
        for (part, found, factor) in parts {
            if case[part].is_null() {
                continue;
            }
            let found = found.expect(part) * factor as f32;
            let error = relative(&found, &numbers(&case[part]));
            assert!(error <= 1e-5, "{part} of {name}: {error}");
        }
    }
}

#[test]
fn solvers_and_norms_agree_with_deepinv() {
    let fixture = fixture();
    let size = |name| fixture[name].as_u64().expect("a size") as usize;
    let entries = numbers(&fixture["matrix"]).iter().map(|entry| *entry as f32).collect();
    let operator = Dense::new(size("rows"), size("columns"), entries);
    let (data, center) = (array(&fixture["data"]), array(&fixture["center"]));
    let methods = [
        ("CG", LinearSolver::ConjugateGradient),
        ("lsqr", LinearSolver::Lsqr),
        ("BiCGStab", LinearSolver::Bicgstab),
        ("minres", LinearSolver::Minres),
    ];
    for (name, method) in methods {
        let options =
            LeastSquaresOptions { method, tolerance: 1e-6, ..LeastSquaresOptions::default() };
        let found = pseudo_inverse(&operator, &data, &options).expect("solved");
        let expected = numbers(&fixture["solvers"][name]["pseudo_inverse"]);
        let error = relative(&found.image, &expected);
        assert!(error <= 1e-5, "pseudo-inverse by {name}: {error}, {:?}", found.report);
        let gamma = number(&fixture["gamma"]);
        let found = prox_l2(&operator, &center, &data, gamma, &options).expect("solved");
        let error = relative(&found.image, &numbers(&fixture["solvers"][name]["prox"]));
        assert!(error <= 1e-5, "prox by {name}: {error}, {:?}", found.report);
    }
    let options = NormOptions { tolerance: 1e-4, ..NormOptions::default() };
    let norm = squared_norm(&operator, &options).expect("norm");
    let expected = number(&fixture["squared_norm"]);
    assert!((norm.estimate - expected).abs() <= 1e-5 * expected, "{norm:?}, {expected}");
}
