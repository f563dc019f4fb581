//! Ranks whose calls a test sees before they are made, to end a rank between two of them or to lose what arrives.

use std::sync::atomic::{AtomicUsize, Ordering};

use haloscope_comm::{Call, Communicator, Context, Result};

/// The same context, whose calls are made by `intercept`: it gets the number of a call, from 0, the call, and the
/// communicator that makes it.
pub(crate) fn intercepted<F>(ctx: &Context, intercept: F) -> Context
where
    F: Fn(usize, Call<'_>, &dyn Communicator) -> Result<()> + Send + Sync + 'static,
{
    let calls = AtomicUsize::new(0);
    ctx.intercepted(move |call, comm| intercept(calls.fetch_add(1, Ordering::SeqCst), call, comm))
}
