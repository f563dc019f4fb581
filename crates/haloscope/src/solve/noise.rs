//! The noise of measurements, for methods whose levels depend on it and that are not told of it.

use haloscope_comm::{Collectives, Reduction};

use super::problem::Problem;
use crate::Array;
use crate::error::Result;
use crate::noise::estimate_deviation;

/// Data without noise are taken as exact to this part of their values.
const LEAST: f64 = 1e-3;

/// The standard deviation of the noise in the measurements, of all operators on average; all ranks call it and get the same.
///
/// `axes` says along how many of its last axes neighbours in a measurement are comparable (see [`estimate_deviation`]). `whole`
/// brings one together whose parts are on several ranks, and returns `None` for one that this rank has by itself.
pub fn estimate_noise(
    problem: &Problem,
    axes: impl Fn(usize, &Array) -> usize,
    whole: impl Fn(usize, &Array) -> Result<Option<Array>>,
) -> Result<f64> {
    let mut squares = vec![0.0; problem.operators()];
    let mut typical = vec![0.0; problem.operators()];
    for (index, part) in problem.data().iter() {
        let whole = whole(index, part)?;
        let part = whole.as_ref().unwrap_or(part);
        // What is brought together is known to all ranks, and counted by one.
        if whole.is_some() && !problem.context().is_root() {
            continue;
        }
        squares[index] = estimate_deviation(part, axes(index, part)).powi(2);
        let sum: f64 = part.iter().map(|value| f64::from(*value).powi(2)).sum();
        typical[index] = sum / part.len().max(1) as f64;
    }
    // Each number has one rank, so that the sums are exact.
    let comm = problem.context().comm();
    comm.all_reduce(Reduction::Sum, &mut squares)?;
    comm.all_reduce(Reduction::Sum, &mut typical)?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let least = (LEAST * mean(&typical).sqrt()).max(f64::MIN_POSITIVE.sqrt());
    Ok(mean(&squares).sqrt().max(least))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haloscope_comm::Context;

    use super::*;
    use crate::Error;
    use crate::distribute::distribute;
    use crate::fidelity::{Fidelities, L2};
    use crate::noise::{Noise, NoiseSource};
    use crate::physics::{Identity, Physics};

    /// The estimate for a smooth picture in other units, seen by three operators with this noise.
    fn estimate(ctx: &Context, unit: f32, sigma: f64) -> Result<f64> {
        let operators: Vec<Arc<dyn Physics>> =
            (0..3).map(|_| Arc::new(Identity::new(&[1, 64, 64])) as _).collect();
        let smooth = Array::from_shape_fn(vec![1, 1, 64, 64], |at| {
            unit * (0.5 + 0.2 * (0.05 * at[3] as f32).sin())
        });
        let measured = |operator| {
            let mut part = smooth.clone();
            Noise::gaussian(sigma)?.add(&mut part, NoiseSource { seed: 3, operator })?;
            Ok::<_, Error>(part)
        };
        let data = (0..3).map(measured).collect::<Result<Vec<_>>>()?;
        let fidelity = distribute(Fidelities::from(L2::new(1.0)?), ctx)?;
        let problem = Problem::new(distribute(operators, ctx)?, data.into(), fidelity)?;
        estimate_noise(&problem, |_, _| 2, |_, _| Ok(None))
    }

    #[test]
    fn noise_is_found_in_any_units_with_the_same_bits_on_any_number_of_ranks() {
        for unit in [1e-4_f32, 1.0, 4000.0] {
            let sigma = 0.05 * f64::from(unit);
            let alone = estimate(&Context::solo(), unit, sigma).expect("one rank");
            assert!((alone / sigma - 1.0).abs() < 0.05, "{alone} instead of {sigma}");
            for ranks in [2, 5] {
                let found = Context::threads(ranks, move |ctx| estimate(ctx, unit, sigma));
                assert_eq!(found.expect("no rank fails"), vec![alone; ranks]);
            }
        }
    }

    #[test]
    fn data_without_noise_are_exact_to_a_thousandth() {
        let found = estimate(&Context::solo(), 100.0, 0.0).expect("one rank");
        assert!((0.01..0.2).contains(&found), "{found}");
    }
}
