//! A communicator around another, which makes the calls in its place: to record them, or to fail on purpose in a test.

use std::sync::Arc;
use std::time::Duration;

use crate::call::Call;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::statistics::Statistics;

/// What is done with the calls of a communicator.
pub(crate) trait Intercept: Send + Sync {
    /// Makes a call on `inner`, or does not.
    fn execute(&self, call: Call<'_>, inner: &dyn Communicator) -> Result<()>;

    /// Splits `inner`; nothing is done with the calls of the parts.
    fn split(
        &self,
        color: Option<u64>,
        key: u64,
        inner: &dyn Communicator,
    ) -> Result<Option<Arc<dyn Communicator>>> {
        inner.split(color, key)
    }
}

impl<F> Intercept for F
where
    F: Fn(Call<'_>, &dyn Communicator) -> Result<()> + Send + Sync,
{
    fn execute(&self, call: Call<'_>, inner: &dyn Communicator) -> Result<()> {
        self(call, inner)
    }
}

/// A communicator whose calls are made by someone else.
pub(crate) struct Intercepted<I> {
    pub inner: Arc<dyn Communicator>,
    pub by: I,
}

impl<I: Intercept> Communicator for Intercepted<I> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn execute(&self, call: Call<'_>) -> Result<()> {
        self.by.execute(call, &*self.inner)
    }

    fn split(&self, color: Option<u64>, key: u64) -> Result<Option<Arc<dyn Communicator>>> {
        self.by.split(color, key, &*self.inner)
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn set_deadline(&self, deadline: Duration) {
        self.inner.set_deadline(deadline);
    }

    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    fn reset_statistics(&self) {
        self.inner.reset_statistics();
    }

    fn abort(&self, reason: &str) -> Error {
        self.inner.abort(reason)
    }

    fn leave(&self) {
        self.inner.leave();
    }
}
