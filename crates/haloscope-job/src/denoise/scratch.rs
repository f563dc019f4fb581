//! A scratch folder while a file is denoised.

use std::path::{Path, PathBuf};

use haloscope::{Error, Result};
use haloscope_scratch::{Folder, Options, Scratch};

use super::plan::DenoisingPlan;
use crate::memory::size;

/// A folder whose files take large arrays from now on.
pub(super) struct OpenScratch {
    folder: PathBuf,
    free: u64,
    scratch: Scratch,
}

impl OpenScratch {
    /// Opens a folder for a process that should have at most `limit` bytes in memory.
    pub(super) fn new(folder: &Path, limit: Option<usize>) -> Result<Self> {
        let refuse = |error: std::io::Error| {
            let name = folder.display();
            let reason = format!(
                "no file can be made in {name}: {error}; a folder on a disk with room is expected"
            );
            Error::argument("scratch", reason)
        };
        let found = Folder::look(folder).map_err(refuse)?;
        let limit = limit.map_or(u64::MAX, |bytes| bytes as u64);
        let scratch = Scratch::open(&Options::new(folder, limit)).map_err(refuse)?;
        Ok(Self { folder: folder.to_owned(), free: found.free, scratch })
    }

    /// Gives the folder to a plan, if it has room for what the plan keeps there.
    pub(super) fn keep(self, mut plan: DenoisingPlan) -> Result<DenoisingPlan> {
        let needed = plan.file_bytes() as u64;
        if needed > self.free {
            let reason = format!(
                "{} are needed in {}, which has room for {}; free some, or use another folder",
                size(needed),
                self.folder.display(),
                size(self.free)
            );
            return Err(Error::argument("scratch", reason));
        }
        plan.scratch = Some(self.scratch);
        Ok(plan)
    }
}
