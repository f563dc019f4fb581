//! Ordinary objects over ranks.
//!
//! [`distribute`] turns a stack of operators, a list of them, a factory, data fidelities or a denoiser into one
//! that is used like the original, by all ranks at once, and shares the work between them. The results have
//! the same bits on any number of ranks. `README.md` in this folder says what each operation sends.
#![doc = include_str!("README.md")]

mod agree;
mod assignment;
mod back_projection;
mod dealt_rows;
mod denoiser;
mod factory;
mod fidelity;
mod gather;
mod halo;
mod map;
mod parameters;
mod rounds;
mod segments;
mod sharded_denoiser;
mod sharded_stack;
mod stack;
mod subset;
mod terms;
mod total_variation;
mod whole;
mod workers;

use haloscope_comm::Context;

use crate::error::Result;

pub use agree::{agree, agree_on_root};
pub use assignment::Assignment;
pub use back_projection::{STRIPE_PIECES, back_project, back_project_shards};
pub use denoiser::{Cutting, Dealing, DenoiserOptions, DistributedDenoiser, LocalTiles};
pub use factory::Factory;
pub use fidelity::{DistributedFidelity, FidelityFactory, FidelityReduction};
pub use gather::Gather;
pub use map::DistributedMap;
pub use parameters::{Parameter, Parameters};
pub use sharded_denoiser::ShardedNetwork;
pub use sharded_stack::{RankTraffic, ShardedStack};
pub use stack::{DistributedStack, StackOptions};
pub use terms::Terms;
pub use total_variation::DistributedTotalVariation;

pub(crate) use sharded_stack::has_pointwise_solution;
pub(crate) use subset::{Residual, Subset};
pub(crate) use workers::Workers;

/// Something that ranks can share.
pub trait Distribute: Sized {
    /// How it is shared.
    type Options: Default;
    /// What it becomes.
    type Output;

    /// Shares it between the ranks of a context; all of them call it.
    fn distribute(self, ctx: &Context, options: Self::Options) -> Result<Self::Output>;
}

/// Shares an object between the ranks of a context, with the default options.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::denoise::{Denoiser, denoiser_fn};
/// use haloscope::distribute::distribute;
/// use haloscope::physics::{Identity, Stack};
/// use haloscope_comm::Context;
///
/// let norms = Context::threads(2, |ctx| {
///     let frame = || Arc::new(Identity::new(&[1, 64, 64])) as Arc<_>;
///     let physics = distribute(Stack::new(vec![frame(), frame(), frame()])?, ctx)?;
///     let halve = distribute(denoiser_fn("halve", |image, _| Ok(image * 0.5)), ctx)?;
///
///     let image = ndarray::ArrayD::ones(vec![1, 1, 64, 64]);
///     let sum = physics.adjoint(&physics.forward(&image)?)?;
///     Ok::<_, haloscope::Error>(halve.denoise(&sum, &0.1.into())?.sum())
/// })?;
/// assert_eq!(norms, [1.5 * 64.0 * 64.0; 2]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn distribute<T: Distribute>(object: T, ctx: &Context) -> Result<T::Output> {
    object.distribute(ctx, T::Options::default())
}

/// Shares an object between the ranks of a context.
pub fn distribute_with<T: Distribute>(
    object: T,
    ctx: &Context,
    options: impl Into<T::Options>,
) -> Result<T::Output> {
    object.distribute(ctx, options.into())
}
