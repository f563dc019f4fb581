//! Clusters with Slurm: batch scripts, submitting and following them, and grids of jobs whose rows become one table.
//!
//! Slurm is called through its commands (`sbatch`, `squeue`, `sacct`, `scontrol`), which every cluster has. Nothing here
//! cancels a job; when following stops, the user is told how to cancel it.

mod campaign;
mod error;
mod follow;
mod grid;
mod queue;
mod script;

pub use campaign::{Campaign, fill_in};
pub use error::{Error, Result};
pub use follow::{Event, Watch, follow};
pub use grid::{Cell, Grid};
pub use queue::{Ending, QueuedJob, State};
pub use script::{Allocation, Launch, OUTPUT, STATUS, Script, quote};
