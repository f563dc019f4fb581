//! The images that reconstructions are to find, as files for other systems.

use std::path::Path;

use haloscope::io::{self, WriteOptions};

use crate::error::{Error, Result};
use crate::trial::Trial;
use haloscope_job::words::sides;

/// Saves the image of each trial in `folder`, which it may make, and gives the trials its path. Those that are of a file keep it.
pub fn save_truths(folder: &Path, trials: &mut [Trial]) -> Result<()> {
    // Measuring processes may be started elsewhere.
    let folder = std::path::absolute(folder).map_err(|error| Error::file(folder, error))?;
    std::fs::create_dir_all(&folder).map_err(|error| Error::file(&folder, error))?;
    for trial in trials.iter_mut().filter(|trial| trial.truth.is_none()) {
        let of = &trial.configuration;
        let Some(problem) = of.problem else { continue };
        let file = folder.join(format!("truth-{problem}-{}.npy", sides(&of.sides())));
        if !file.is_file() {
            let Some(truth) = trial.job()?.simulated_truth()? else { continue };
            io::write(&file, &truth, &WriteOptions::default())?;
        }
        trial.truth = Some(file);
    }
    Ok(())
}
