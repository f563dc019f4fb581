//! Fidelities: how far the predicted measurements of an image are from the data.
//!
//! A fidelity `d(u, y)` compares `u = A x` with the data `y` and knows nothing of `A`; the provided
//! functions with a `physics` apply the chain rule. All fidelities here are convex in `u`. Values are
//! sums over all elements, including the batch.

mod amplitude;
mod ball;
mod l1;
mod l2;
mod list;
mod poisson;

use std::borrow::Cow;
use std::fmt;

use haloscope_scratch::{Visited, in_pieces};
use rayon::prelude::*;

use crate::array::{Array, View, slice_mut, standard, update};
use crate::error::{Error, Result};
use crate::image::{Layout, Sum, sum_of};
use crate::physics::Physics;

pub use amplitude::Amplitude;
pub use ball::Ball;
pub use l1::L1;
pub use l2::L2;
pub use list::Fidelities;
pub use poisson::Poisson;

/// A distance between measurements `u = A x` and data `y`, convex in `u`.
pub trait Fidelity: Send + Sync + fmt::Debug {
    /// Its name in messages and job files: `l2`.
    fn name(&self) -> &str;

    /// `d(u, y)`, which may be infinite.
    fn value(&self, u: &View, y: &View) -> Result<f64>;

    /// A factor, and this rank's share of a sum: the factor times the sum is `d(u, y)`, of measurements that ranks may have in
    /// parts. All ranks that share them call it.
    ///
    /// # Errors
    /// If they are in parts, and the fidelity needs them as a whole.
    fn value_share(&self, layout: &Layout, u: &View, y: &View) -> Result<(f64, Sum)> {
        self.check_whole(layout)?;
        let mut sum = Sum::default();
        sum.add(self.value(u, y)?);
        Ok((1.0, sum))
    }

    /// [`gradient`](Self::gradient) of measurements that ranks may have in parts, as [`value_share`](Self::value_share).
    fn gradient_share(&self, layout: &Layout, u: &View, y: &View) -> Result<Array> {
        self.check_whole(layout)?;
        self.gradient(u, y)
    }

    /// [`prox`](Self::prox) of measurements that ranks may have in parts, as [`value_share`](Self::value_share).
    fn prox_share(&self, layout: &Layout, u: &View, y: &View, gamma: f64) -> Result<Array> {
        self.check_whole(layout)?;
        self.prox(u, y, gamma)
    }

    /// Refuses measurements in parts.
    fn check_whole(&self, layout: &Layout) -> Result<()> {
        match layout {
            Layout::Replicated => Ok(()),
            Layout::Sharded(_) => Err(Error::argument(
                self.name(),
                "this fidelity compares whole measurements, and these are in shards; replicate the image",
            )),
        }
    }

    /// `∇d(u, y)` with respect to `u`.
    fn gradient(&self, u: &View, y: &View) -> Result<Array> {
        let _ = (u, y);
        Err(Error::argument(self.name(), "this fidelity has no gradient; use its prox"))
    }

    /// The minimiser of `γ d(v, y) + ½‖v − u‖²` over `v`.
    fn prox(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        let _ = (u, y, gamma);
        Err(Error::argument(self.name(), "this fidelity has no prox; use its gradient"))
    }

    /// The prox of the convex conjugate, by Moreau's identity:
    /// `prox of γd* at u = u − γ · (prox of d/γ at u/γ)`.
    fn prox_conjugate(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        self.prox_conjugate_share(&Layout::Replicated, u, y, gamma)
    }

    /// The same for measurements that ranks may have in parts, as [`value_share`](Self::value_share).
    fn prox_conjugate_share(
        &self,
        layout: &Layout,
        u: &View,
        y: &View,
        gamma: f64,
    ) -> Result<Array> {
        check_gamma(self.name(), gamma)?;
        let scaled = standard(u * (1.0 / gamma) as f32);
        let mut prox = standard(self.prox_share(layout, &scaled, y, 1.0 / gamma)?);
        drop(scaled);
        let factor = gamma as f32;
        update(slice_mut(&mut prox), &in_order(u), |prox, u| *prox = u - *prox * factor);
        Ok(prox)
    }

    /// `w` where `d(u, y) = w/2 ‖u − y‖²`: then the prox of `d(A·, y)` is a linear system.
    fn quadratic_weight(&self) -> Option<f64> {
        None
    }

    /// Measured over expected counts at `u`, for the likelihood of counts; `None` for all others.
    fn count_ratio(&self, u: &View, y: &View) -> Option<Result<Array>> {
        let _ = (u, y);
        None
    }

    /// The least second derivative of `d(·, y)` where it is smallest, for a fidelity that is smooth there and has no bound on
    /// its curvature elsewhere: a step of one over it, times `‖A‖⁻²`, is where backtracking begins. `None` for all others.
    fn curvature_at_best(&self, y: &View) -> Option<f64> {
        let _ = y;
        None
    }

    /// `d(A x, y)`.
    fn value_at(&self, physics: &dyn Physics, image: &View, y: &View) -> Result<f64> {
        self.value(&physics.forward(image)?, y)
    }

    /// `Jᵀ ∇d(A x, y)`, where `J` is the derivative of `A` at the image.
    fn gradient_at(&self, physics: &dyn Physics, image: &View, y: &View) -> Result<Array> {
        physics.vjp(image, &self.gradient(&physics.forward(image)?, y)?)
    }
}

/// The elements of `u` and `y`, which must have one shape.
struct Pair<'a> {
    shape: &'a [usize],
    u: Cow<'a, [f32]>,
    y: Cow<'a, [f32]>,
}

impl<'a> Pair<'a> {
    fn new(name: &str, u: &'a View, y: &'a View) -> Result<Self> {
        if u.shape() == y.shape() {
            return Ok(Self { shape: u.shape(), u: in_order(u), y: in_order(y) });
        }
        Err(Error::Shape {
            what: format!("the measurement of {name}"),
            expected: format!("the data have {:?}, which is expected", y.shape()),
            found: u.shape().to_vec(),
        })
    }

    /// The largest size of a finite element of `u`, of all ranks that have a part of it. It is the same in whichever order they
    /// are compared.
    fn largest(&self, layout: &Layout) -> Result<f64> {
        let sizes = self.u.par_iter().map(|u| u.abs()).filter(|size| size.is_finite());
        let (_, largest) = layout.extremes((0.0, sizes.reduce(|| 0.0, f32::max)))?;
        Ok(f64::from(largest))
    }

    /// The elements of a row.
    fn row(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// `Σ f(uᵢ, yᵢ)`.
    fn sum(&self, f: impl Fn(f64, f64) -> f64 + Sync) -> Sum {
        sum_of([&self.u, &self.y], self.row(), |[u, y]| f(f64::from(u), f64::from(y)))
    }

    /// The array of `f(uᵢ, yᵢ)`.
    fn map(&self, f: impl Fn(f32, f32) -> f32 + Sync) -> Array {
        const PIECE: usize = 1 << 14;
        let mut result = Array::zeros(self.shape);
        let values = result.as_slice_mut().expect("an array that was just made is contiguous");
        let visited = [Visited::of(&self.u), Visited::of(&self.y), Visited::of(values)];
        in_pieces(values.len(), &visited, |piece| {
            let (u, y) = (&self.u[piece.clone()], &self.y[piece.clone()]);
            let pieces = u.par_chunks(PIECE).zip(y.par_chunks(PIECE));
            values[piece].par_chunks_mut(PIECE).zip(pieces).for_each(|(values, (u, y))| {
                for (value, (&u, &y)) in values.iter_mut().zip(u.iter().zip(y)) {
                    *value = f(u, y);
                }
            });
        });
        result
    }

    /// The first pair for which `is_bad` holds.
    fn find(&self, is_bad: impl Fn(f32, f32) -> bool + Sync) -> Option<(usize, f32, f32)> {
        let pairs = self.u.par_iter().zip(&*self.y);
        let i = pairs.position_first(|(&u, &y)| is_bad(u, y))?;
        Some((i, self.u[i], self.y[i]))
    }
}

fn in_order(array: &View) -> Cow<'_, [f32]> {
    match array.as_slice() {
        Some(slice) => slice.into(),
        None => array.iter().copied().collect::<Vec<_>>().into(),
    }
}

/// The value of a measurement that is here as a whole.
fn whole_value((factor, sum): (f64, Sum)) -> f64 {
    factor * sum.value()
}

fn check_gamma(name: &str, gamma: f64) -> Result<()> {
    check_positive(name, "the step γ of its prox", gamma)
}

fn check_positive(name: &str, parameter: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Error::argument(name, format!("{parameter} is {value}; it must be finite and above 0")))
}
