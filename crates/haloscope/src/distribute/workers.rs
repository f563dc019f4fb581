//! The threads of a rank.
//!
//! Operators share their work with rayon, in whatever pool they are called from. Each rank has a pool of
//! its own with the threads that its context grants, so that ranks of one machine do not take each
//! other's cores.

use std::fmt;
use std::sync::Arc;

use haloscope_comm::Context;
use haloscope_nn::Stop;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// A rank's pool; cheap to clone.
#[derive(Clone)]
pub(crate) struct Workers {
    pool: Arc<ThreadPool>,
}

impl Workers {
    /// As many threads as the context grants.
    pub(crate) fn new(ctx: &Context) -> Result<Self> {
        let rank = ctx.rank();
        let pool = ThreadPoolBuilder::new()
            .num_threads(ctx.threads_per_rank())
            .thread_name(move |index| format!("rank {rank}, worker {index}"))
            .build()
            .map_err(|error| Error::argument("threads", error.to_string()))?;
        Ok(Self { pool: Arc::new(pool) })
    }

    /// Runs `work` there, which watches the request to stop that this thread watches.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let stop = Stop::current();
        self.pool.install(|| stop.watch(work))
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.pool.current_num_threads()).finish()
    }
}
