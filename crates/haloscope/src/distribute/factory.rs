//! Operators that are made where they are needed.

use std::fmt;
use std::sync::Arc;

use haloscope_comm::Context;

use super::Parameters;
use crate::error::Result;
use crate::physics::Physics;

/// The function of a [`Factory`].
type Make = dyn Fn(usize, &Context, &Parameters) -> Result<Arc<dyn Physics>> + Send + Sync;

/// A function that makes operators, called only for those that a rank owns.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::distribute::{Factory, distribute};
/// use haloscope::physics::Identity;
/// use haloscope_comm::Context;
///
/// let counts = Context::threads(2, |ctx| {
///     let factory = Factory::new(3, |_index, _ctx, _shared| {
///         Ok(Arc::new(Identity::new(&[1, 8, 8])))
///     });
///     Ok::<_, haloscope::Error>(distribute(factory, ctx)?.local_indices().count())
/// })?;
/// assert_eq!(counts, [2, 1]);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone)]
pub struct Factory {
    pub(crate) count: usize,
    pub(crate) make: Arc<Make>,
    pub(crate) shared: Parameters,
}

impl Factory {
    /// A factory of `count` operators. `make` gets the index of the operator, the rank's context and the
    /// shared parameters.
    pub fn new<F>(count: usize, make: F) -> Self
    where
        F: Fn(usize, &Context, &Parameters) -> Result<Arc<dyn Physics>> + Send + Sync + 'static,
    {
        Self { count, make: Arc::new(make), shared: Parameters::new() }
    }

    /// With parameters that `make` gets: those of rank 0, whatever the other ranks give here.
    #[must_use]
    pub fn shared(mut self, parameters: Parameters) -> Self {
        self.shared = parameters;
        self
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory").field("count", &self.count).finish_non_exhaustive()
    }
}
