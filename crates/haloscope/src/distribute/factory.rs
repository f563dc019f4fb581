//! Operators that are made where they are needed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use haloscope_comm::{Collectives, Context};
use ndarray::{ArrayD, IxDyn};

use crate::array::Array;
use crate::error::{Error, Result};
use crate::physics::Physics;

/// Arrays by name, which all operators of a factory may need: a common kernel, the angles.
pub type Parameters = BTreeMap<String, Array>;

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

/// The parameters of rank 0, on all ranks: their names and shapes in one message, their values in another.
pub(crate) fn broadcast_parameters(ctx: &Context, parameters: Parameters) -> Result<Parameters> {
    if ctx.size() == 1 {
        return Ok(parameters);
    }
    let mut header: Vec<u64> = Vec::new();
    let mut names: Vec<u8> = Vec::new();
    let mut values: Vec<f32> = Vec::new();
    if ctx.is_root() {
        for (name, array) in &parameters {
            header.extend([name.len() as u64, array.ndim() as u64]);
            header.extend(array.shape().iter().map(|size| *size as u64));
            names.extend(name.as_bytes());
            values.extend(array.iter());
        }
    }
    ctx.comm().broadcast_list(0, &mut header)?;
    ctx.comm().broadcast_list(0, &mut names)?;
    ctx.comm().broadcast_list(0, &mut values)?;
    let read = || -> Option<Parameters> {
        let (mut header, mut names, mut values) = (&header[..], &names[..], &values[..]);
        let mut parameters = Parameters::new();
        while let [name, axes, rest @ ..] = header {
            let (shape, rest) = rest.split_at_checked(*axes as usize)?;
            let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
            let (name, later_names) = names.split_at_checked(*name as usize)?;
            let (part, later) = values.split_at_checked(shape.iter().product())?;
            let array = ArrayD::from_shape_vec(IxDyn(&shape), part.to_vec()).ok()?;
            parameters.insert(String::from_utf8(name.to_vec()).ok()?, array);
            (header, names, values) = (rest, later_names, later);
        }
        Some(parameters)
    };
    read().ok_or_else(|| Error::argument("shared parameters", "what rank 0 sent makes no list"))
}
