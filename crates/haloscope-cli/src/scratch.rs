//! `--scratch` and `--memory-limit`: large arrays in files of a folder.

use std::path::PathBuf;

use haloscope_job::{Job, parse_bytes};

/// Where large arrays are.
#[derive(clap::Args, Clone)]
pub(crate) struct ScratchArguments {
    /// Folder on a disk for arrays that are larger than memory; overrides `scratch` in [memory]. The result has the same bits
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Memory of each process beside the scratch folder, e.g. 2GB; by default what is free
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "scratch")]
    memory_limit: Option<u64>,
}

impl ScratchArguments {
    /// The job with its arrays where the options say.
    pub(crate) fn apply(&self, job: Job) -> Job {
        match &self.scratch {
            Some(folder) => job.in_scratch(folder, self.memory_limit),
            None => job,
        }
    }
}
