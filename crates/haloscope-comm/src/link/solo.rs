//! The link of a rank that is alone: nobody to send to.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Channel, Frame, Header, Link};
use crate::error::{Error, Result};
use crate::ranks::Ranks;

/// One rank, alone. Every call works and none waits.
///
/// ```
/// use haloscope_comm::{Collectives, Communicator, Reduction, Solo};
///
/// let solo = Solo::new();
/// let mut values = [1.0_f32, 2.0];
/// solo.all_reduce(Reduction::Sum, &mut values)?;
/// assert_eq!(values, [1.0, 2.0]);
/// # Ok::<(), haloscope_comm::Error>(())
/// ```
pub type Solo = Ranks<SoloLink>;

impl Solo {
    /// A world of one rank.
    #[must_use]
    pub fn new() -> Self {
        Self::world(SoloLink::default().into())
    }
}

impl Default for Solo {
    fn default() -> Self {
        Self::new()
    }
}

/// The link of [`Solo`].
#[derive(Debug, Default)]
pub struct SoloLink {
    failure: Mutex<Option<Error>>,
}

impl Link for SoloLink {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn frame_bytes(&self) -> usize {
        1 << 20
    }

    fn enter(&self, _: Channel, _: u64) {}

    fn try_send(&self, _: usize, _: Header, _: &[u8]) -> Result<bool> {
        unreachable!("there is no other rank")
    }

    fn prepare(&self, _: Channel, _: usize) -> Result<()> {
        unreachable!("there is no other rank")
    }

    fn try_receive(&self, _: Channel, _: usize) -> Result<Option<Frame>> {
        unreachable!("there is no other rank")
    }

    fn recycle(&self, _: Frame) {}

    fn flushed(&self, _: Channel) -> Result<bool> {
        Ok(true)
    }

    fn mark(&self) -> u64 {
        0
    }

    fn wait(&self, _: u64, _: Duration, _: Instant) {}

    fn failure(&self) -> Option<Error> {
        self.failure.lock().ok()?.clone()
    }

    fn fail(&self, error: &Error) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert_with(|| error.clone());
        }
    }

    fn has_left(&self, _: usize) -> bool {
        false
    }

    fn absent(&self, _: Channel, _: u64, _: &[usize]) -> Vec<usize> {
        Vec::new()
    }

    fn close(&self, _: Channel) {}

    fn abort(&self, error: &Error) {
        self.fail(error);
    }
}
