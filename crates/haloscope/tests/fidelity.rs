//! What every fidelity must fulfil: gradients are slopes of values, proxes minimise what a prox
//! minimises, and those of conjugates fulfil Moreau's identity.

mod dense;

use std::sync::Arc;

use dense::{Dense, row};
use haloscope::fidelity::{Amplitude, Ball, Fidelities, Fidelity, L1, L2, Poisson};
use haloscope::physics::{Physics, Stack};
use haloscope::{Array, Error, Measurements, Result};
use proptest::prelude::*;

type Random = fastrand::Rng;

/// Sizes from 0.1 to 10 and more.
fn size(random: &mut Random) -> f64 {
    10_f64.powf(random.f64() * 2.0 - 1.0)
}

/// All fidelities, with random parameters.
fn all(random: &mut Random) -> Vec<Box<dyn Fidelity>> {
    let poisson = Poisson::new(size(random), random.f64() * 2.0).expect("valid");
    vec![
        Box::new(L2::new(size(random)).expect("valid")),
        Box::new(L1),
        Box::new(poisson),
        Box::new(poisson.of_counts()),
        Box::new(Ball::new(size(random)).expect("valid")),
        Box::new(Amplitude),
    ]
}

fn positive(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.f32() * 3.0 + 0.05).collect()
}

fn f64s(array: &Array) -> Vec<f64> {
    array.iter().map(|v| f64::from(*v)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gradients_are_the_slopes_of_values(seed: u64) {
        let mut random = Random::with_seed(seed);
        let (u, y) = (positive(&mut random, 1), positive(&mut random, 1));
        prop_assume!((u[0] - y[0]).abs() > 0.02);
        for fidelity in all(&mut random) {
            let Ok(gradient) = fidelity.gradient(&row(&u), &row(&y)) else {
                prop_assert_eq!(fidelity.name(), "ball");
                continue;
            };
            // The step as it is after rounding to f32.
            let (above, below) = (u[0] * 1.001, u[0] * 0.999);
            let value = |u: f32| fidelity.value(&row(&[u]), &row(&y)).expect("value");
            let slope = (value(above) - value(below)) / (f64::from(above) - f64::from(below));
            let found = f64::from(gradient[[0, 0, 0]]);
            prop_assert!(
                (found - slope).abs() <= 1e-4 * (1.0 + slope.abs()),
                "{fidelity:?} at {u:?}, {y:?}: {found}, slope {slope}"
            );
        }
    }

    #[test]
    fn proxes_minimise(seed: u64) {
        let mut random = Random::with_seed(seed);
        let gamma = size(&mut random);
        let y = positive(&mut random, 3);
        let u: Vec<f32> = (0..3).map(|_| random.f32() * 8.0 - 4.0).collect();
        for fidelity in all(&mut random) {
            let prox = fidelity.prox(&row(&u), &row(&y), gamma).expect("prox");
            let objective = |v: &Array| -> f64 {
                let distance: f64 = v.iter().zip(&u).map(|(v, u)| (f64::from(*v) - f64::from(*u)).powi(2)).sum();
                gamma * fidelity.value(v, &row(&y)).expect("value") + 0.5 * distance
            };
            let least = objective(&prox);
            prop_assert!(least.is_finite(), "{fidelity:?}: {prox} is not allowed");
            // The objective is convex: no worse than all near and far points is minimal.
            for _ in 0..60 {
                let reach = 10_f32.powf(random.f32() * 4.0 - 3.0);
                let other = prox.mapv(|v| v + (random.f32() * 2.0 - 1.0) * reach);
                let value = objective(&other);
                prop_assert!(
                    value >= least - 1e-6 * (1.0 + least.abs()),
                    "{fidelity:?}, γ = {gamma}: {prox} gives {least}, {other} gives {value}"
                );
            }
        }
    }

    #[test]
    fn gradients_at_the_prox_balance_the_distance(seed: u64) {
        let mut random = Random::with_seed(seed);
        let gamma = size(&mut random);
        let (u, y) = (positive(&mut random, 8), positive(&mut random, 8));
        for fidelity in all(&mut random) {
            let prox = fidelity.prox(&row(&u), &row(&y), gamma).expect("prox");
            // L1 has a corner where its prox is mostly found, and rounding moves amplitudes of about 0.
            let Ok(gradient) = fidelity.gradient(&prox, &row(&y)) else { continue };
            if fidelity.name() == "l1" {
                continue;
            }
            for ((v, u), slope) in f64s(&prox).iter().zip(&u).zip(f64s(&gradient)) {
                let pull = v - f64::from(*u) + gamma * slope;
                // The rounding of v to f32 moves steep slopes.
                let scale = 1.0 + gamma * slope.abs() / v.abs().max(1e-3);
                prop_assert!(pull.abs() <= 1e-3 * scale, "{fidelity:?}, γ = {gamma}: {v}, {u}: {pull}");
            }
        }
    }

    #[test]
    fn proxes_of_conjugates_fulfil_moreaus_identity(seed: u64) {
        let mut random = Random::with_seed(seed);
        let gamma = size(&mut random);
        let y = positive(&mut random, 5);
        let u: Vec<f32> = (0..5).map(|_| random.f32() * 8.0 - 4.0).collect();
        for fidelity in all(&mut random) {
            // u = prox of γd at u + γ · (prox of d*/γ at u/γ)
            let direct = fidelity.prox(&row(&u), &row(&y), gamma).expect("prox");
            let scaled = row(&u) / gamma as f32;
            let conjugate = fidelity.prox_conjugate(&scaled, &row(&y), 1.0 / gamma).expect("prox");
            for ((a, b), u) in f64s(&direct).iter().zip(f64s(&conjugate)).zip(&u) {
                let sum = a + gamma * b;
                let scale = 1.0 + f64::from(u.abs()) + a.abs();
                prop_assert!((sum - f64::from(*u)).abs() <= 1e-5 * scale, "{fidelity:?}: {sum}, {u}");
            }
        }
    }
}

#[test]
fn the_conjugate_prox_of_l1_stays_in_the_unit_box() {
    let (u, y) = (row(&[-5.0, -0.2, 0.0, 0.3, 7.0]), row(&[0.0; 5]));
    let dual = L1.prox_conjugate(&u, &y, 0.8).expect("prox");
    assert!(
        dual.iter().zip([-1.0, -0.2, 0.0, 0.3, 1.0]).all(|(a, b)| (a - b).abs() < 1e-6),
        "{dual}"
    );
}

#[test]
fn arrays_of_other_shapes_and_steps_without_meaning_are_refused() {
    let (u, y) = (row(&[1.0; 3]), row(&[1.0; 4]));
    for fidelity in all(&mut Random::with_seed(1)) {
        assert!(matches!(fidelity.value(&u, &y), Err(Error::Shape { .. })), "{fidelity:?}");
        assert!(fidelity.gradient(&u, &y).is_err(), "{fidelity:?}");
        assert!(matches!(fidelity.prox(&u, &y, 1.0), Err(Error::Shape { .. })), "{fidelity:?}");
        for gamma in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(fidelity.prox(&u, &u, gamma).is_err(), "{fidelity:?}");
            assert!(fidelity.prox_conjugate(&u, &u, gamma).is_err(), "{fidelity:?}");
        }
    }
}

#[test]
fn memory_order_does_not_matter() {
    let standard =
        Array::from_shape_fn(vec![2, 3, 4], |i| (i[0] + 2 * i[1] + 3 * i[2]) as f32 + 1.0);
    let mut turned = Array::zeros(vec![4, 3, 2]).reversed_axes();
    turned.assign(&standard);
    let y = &standard * 0.5;
    for fidelity in all(&mut Random::with_seed(2)) {
        assert_eq!(fidelity.value(&turned, &y), fidelity.value(&standard, &y));
        assert_eq!(fidelity.prox(&turned, &y, 0.3), fidelity.prox(&standard, &y, 0.3));
    }
}

/// `(B x)²`, element by element: an operator that is not linear.
#[derive(Debug)]
struct Intensity(Dense);

impl Physics for Intensity {
    fn name(&self) -> &'static str {
        "intensity"
    }

    fn image_shape(&self) -> &[usize] {
        self.0.image_shape()
    }

    fn measurement_shape(&self) -> &[usize] {
        self.0.measurement_shape()
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        self.0.apply_forward(batch, image, measurement)?;
        for y in measurement {
            *y *= *y;
        }
        Ok(())
    }

    fn apply_vjp(&self, batch: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
        let mut weighted = vec![0.0; v.len()];
        self.0.apply_forward(batch, image, &mut weighted)?;
        weighted.iter_mut().zip(v).for_each(|(w, v)| *w *= 2.0 * v);
        self.0.apply_vjp(batch, image, &weighted, result)
    }
}

#[test]
fn the_gradient_on_a_stack_is_the_slope_of_its_value() {
    let mut random = Random::with_seed(3);
    let mut dense = || Dense::new(5, 4, positive(&mut random, 20));
    let stack =
        Stack::new(vec![Arc::new(dense()), Arc::new(Intensity(dense())), Arc::new(dense())])
            .expect("a stack");
    let list = Fidelities::each(vec![
        Arc::new(L2::new(0.5).expect("valid")),
        Arc::new(Amplitude),
        Arc::new(Poisson::new(0.7, 0.1).expect("valid")),
    ]);
    let image = row(&positive(&mut random, 4));
    let truth = row(&positive(&mut random, 4));
    let data: Measurements = stack.forward(&truth).expect("forward");
    let gradient = list.gradient(&stack, &image, &data).expect("gradient");
    let value = |image: &Array| list.value(&stack, image, &data).expect("value");
    for i in 0..4 {
        let (mut above, mut below) = (image.clone(), image.clone());
        above[[0, 0, i]] *= 1.01;
        below[[0, 0, i]] *= 0.99;
        let step = f64::from(above[[0, 0, i]]) - f64::from(below[[0, 0, i]]);
        let slope = (value(&above) - value(&below)) / step;
        let found = f64::from(gradient[[0, 0, i]]);
        assert!((found - slope).abs() <= 1e-3 * (1.0 + slope.abs()), "{i}: {found}, slope {slope}");
    }
}
