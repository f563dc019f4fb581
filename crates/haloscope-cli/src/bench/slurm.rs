//! `haloscope bench scaling --slurm`: the study as jobs of a cluster, one for each allocation of a grid.
//!
//! Each job runs the same study on its own number of ranks, which `srun` starts; their rows become one table.

use std::path::Path;

use anyhow::{Context as _, Result};
use haloscope_study::slurm::{Campaign, Grid, Launch};

use crate::exit::{Code, Preparation};
use crate::invocation;
use crate::submit::{Until, run_campaign};

/// Runs this command line on every allocation of the grid in `file`, as far as is asked for.
pub(super) fn run(file: &Path, out: &Path, until: Until) -> Result<Code> {
    let grid = Grid::read(file).or_misuse()?;
    let directory = std::env::current_dir().context("the folder that this was started in")?;
    let mut command = invocation::program()?;
    command.extend(without_slurm(invocation::arguments().into_iter()));
    command.extend(of_job(&grid, &command));
    let campaign = Campaign::new("haloscope", &grid, &directory, out, Launch::Once, &command);
    run_campaign(&campaign.or_misuse()?, until)
}

/// The options of each job's study. Those of srun, and whether cores are asked for, are the same for all jobs.
fn of_job(grid: &Grid, given: &[String]) -> Vec<String> {
    let first = grid.cells().first().map(|cell| &cell.allocation);
    let has_cores = first.is_some_and(|allocation| allocation.cpus_per_task.is_some());
    let mut launcher = vec!["srun"];
    // Slurm does not pass the cores of a task on from the script to srun, and a rank would compute on one of them.
    launcher.extend(has_cores.then_some("--cpus-per-task={cpus}"));
    launcher.extend(first.iter().flat_map(|allocation| &allocation.srun).map(String::as_str));
    launcher.push("-n");
    let launcher = launcher.join(" ");
    let mut words = vec!["--backend", "mpi", "--ranks", "{ranks}", "--launcher", &launcher];
    let has_threads =
        given.iter().any(|word| word == "--threads" || word.starts_with("--threads="));
    if has_cores && !has_threads {
        words.extend(["--threads", "{cpus}"]);
    }
    words.extend(["--out", "{out}"]);
    words.into_iter().map(String::from).collect()
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

    #[test]
    fn ranks_get_the_cores_that_the_grid_asks_for() {
        let options = |grid: &str, given: &str| {
            let grid = Grid::parse(grid).expect("a grid");
            let given: Vec<String> = given.split(' ').map(String::from).collect();
            of_job(&grid, &given).join(" ")
        };
        let grid = "srun = ['--mpi=pmi2']\n[grid]\nnodes = 1\ntasks-per-node = 2\n";
        let with_cores = format!("{grid}cpus-per-task = [4, 8]\n");
        assert_eq!(
            options(&with_cores, "bench scaling"),
            "--backend mpi --ranks {ranks} --launcher srun --cpus-per-task={cpus} --mpi=pmi2 -n --threads {cpus} \
             --out {out}"
        );
        assert!(!options(&with_cores, "bench scaling --threads=2").contains("--threads"));
        assert_eq!(
            options(grid, "bench scaling"),
            "--backend mpi --ranks {ranks} --launcher srun --mpi=pmi2 -n --out {out}"
        );
    }
}
