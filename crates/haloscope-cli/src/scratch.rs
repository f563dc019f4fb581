//! `--scratch` and `--memory-limit`: large arrays in files of a folder.

use std::path::PathBuf;

use haloscope::{Error, Result};
use haloscope_job::{Job, parse_bytes};

/// Where large arrays are.
#[derive(clap::Args, Clone)]
pub(crate) struct ScratchArguments {
    /// Folder on a disk for arrays that are larger than memory; overrides `scratch` in [memory]. The result has the same bits
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Memory of each process beside the scratch folder, e.g. 2GB; overrides `limit` in [memory]. By default what is free
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
}

impl ScratchArguments {
    /// The job with its arrays where the options say.
    pub(crate) fn apply(&self, job: Job) -> Result<Job> {
        match (&self.scratch, self.memory_limit) {
            (Some(folder), limit) => Ok(job.in_scratch(folder, limit)),
            (None, Some(limit)) => job.with_memory_limit(limit).ok_or_else(|| {
                let reason = "it is for jobs with a scratch folder: add --scratch DIR, or `scratch` in [memory]";
                Error::argument("--memory-limit", reason)
            }),
            (None, None) => Ok(job),
        }
    }
}
