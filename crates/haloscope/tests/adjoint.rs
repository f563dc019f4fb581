//! Every linear operator passes the dot test, on random shapes and parameters:
//! |⟨Ax, y⟩ − ⟨x, Aᵀy⟩| ≤ 1e-6 ‖Ax‖ ‖y‖.
//!
//! A new operator is one line in the list at the end.

use haloscope::Array;
use haloscope::array::{dot, norm};
use haloscope::physics::{Identity, LinearPhysics};
use ndarray::ArrayD;
use proptest::prelude::*;

/// A source of random shapes and parameters, which a failing case can be made from again.
type Random = fastrand::Rng;

/// Fails unless the operator and its adjoint agree on random arrays.
fn assert_adjoint(operator: &dyn LinearPhysics, random: &mut Random) {
    let batch = random.usize(1..3);
    let x = array(batch, operator.image_shape(), random);
    let y = array(batch, operator.measurement_shape(), random);
    let ax = operator.forward(&x).expect("forward");
    let aty = operator.adjoint(&y).expect("adjoint");
    let (left, right) = (inner(&ax, &y), inner(&x, &aty));
    let scale = norm(slice(&ax)) * norm(slice(&y));
    assert!(
        (left - right).abs() <= 1e-6 * scale,
        "{operator:?}: ⟨Ax, y⟩ = {left}, ⟨x, Aᵀy⟩ = {right}, ‖Ax‖ ‖y‖ = {scale}"
    );
}

fn array(batch: usize, shape: &[usize], random: &mut Random) -> Array {
    let mut full = vec![batch];
    full.extend_from_slice(shape);
    ArrayD::from_shape_fn(full, |_| random.f32() * 2.0 - 1.0)
}

fn inner(a: &Array, b: &Array) -> f64 {
    dot(slice(a), slice(b))
}

fn slice(a: &Array) -> &[f32] {
    a.as_slice().expect("operators return arrays in standard layout")
}

/// 1 or 3 channels and two or three sides.
fn image_shape(random: &mut Random) -> Vec<usize> {
    let sides = random.usize(2..4);
    let mut shape = vec![if random.bool() { 1 } else { 3 }];
    shape.extend((0..sides).map(|_| random.usize(1..if sides == 2 { 40 } else { 14 })));
    shape
}

macro_rules! adjoint_tests {
    ($($name:ident: $make:expr;)*) => { proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
        $(#[test] fn $name(seed: u64) {
            let mut random = Random::with_seed(seed);
            let make: fn(&mut Random) -> Box<dyn LinearPhysics> = $make;
            assert_adjoint(&*make(&mut random), &mut random);
        })*
    } };
}

adjoint_tests! {
    identity: |random| Box::new(Identity::new(&image_shape(random)));
}
