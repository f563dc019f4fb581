//! `haloscope bench scaling --slurm`: the study as jobs of a cluster, one for each allocation of a grid.
//!
//! Each job runs the same study on its own number of ranks, which `srun` starts; their rows become one table.

use std::path::Path;

use anyhow::{Context as _, Result};
use haloscope_study::slurm::{Campaign, Grid, Launch};

use crate::exit::Code;
use crate::submit::{Until, run_campaign};

/// Runs this command line on every allocation of the grid in `file`, as far as is asked for.
pub fn run(file: &Path, out: &Path, until: Until) -> Result<Code> {
    let grid = Grid::read(file)?;
    let directory = std::env::current_dir().context("the folder that this was started in")?;
    let program = std::env::current_exe().context("the path of this program")?;
    // The options of srun are those of the file, which are the same for all of its jobs.
    let options = grid.cells().first().map_or(&[][..], |cell| &cell.allocation.srun);
    let launcher = format!("srun {} -n", options.join(" "));
    let mut command = vec![program.display().to_string()];
    command.extend(without_slurm(std::env::args().skip(1)));
    let of_job =
        ["--backend", "mpi", "--ranks", "{ranks}", "--launcher", &launcher, "--out", "{out}"];
    command.extend(of_job.map(String::from));
    let campaign = Campaign::new("haloscope", &grid, &directory, out, Launch::Once, &command)?;
    run_campaign(&campaign, until)
}

/// The words of a command line, but for the options that are about jobs and not about what they measure.
fn without_slurm(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for word in words {
        let is_option = |name: &str| word == name || word.starts_with(&format!("{name}="));
        if std::mem::take(&mut is_value) || word == "--dry-run" {
            continue;
        }
        if is_option("--slurm") || is_option("--out") {
            is_value = !word.contains('=');
            continue;
        }
        kept.push(word);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_get_the_options_of_the_study_only() {
        let line = "bench scaling --slurm grid.toml --sizes 64 --out=here --dry-run --problem x --out there";
        let words = without_slurm(line.split(' ').map(String::from));
        assert_eq!(words.join(" "), "bench scaling --sizes 64 --problem x");
    }
}
