//! The resources of the machine that this process may use, as needed to place ranks and threads.

use std::num::NonZero;
use std::thread;

/// The cores that this process may run on, for telling whether ranks of one machine share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// How many.
    pub count: usize,
    /// Which, as the system lists them; empty where it does not say.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    pub list: String,
}

impl Cores {
    pub(crate) fn detect() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Self {
            count: thread::available_parallelism().map_or(1, NonZero::get),
            list: list.unwrap_or_default().trim().into(),
        }
    }
}

/// The name of this machine, to tell which ranks share one.
#[cfg(feature = "mpi")]
pub(crate) fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default().trim().into()
}
