//! Grids: one job for each of several allocations, written down in a TOML file.
//!
//! Lists belong together: the first values of all lists form the first job, the second ones the second. A single value
//! applies to all jobs.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use super::error::{Error, Result};
use super::script::Allocation;

/// The jobs of a study.
///
/// ```
/// use haloscope_study::slurm::Grid;
///
/// let grid = Grid::parse(r#"
///     partition = "gpu"
///     srun = ["--mpi=pmi2"]
///
///     [grid]
///     nodes          = [1, 1, 2, 4]
///     tasks-per-node = [1, 4, 4, 4]
///     gres           = ["gpu:1", "gpu:4", "gpu:4", "gpu:4"]
/// "#)?;
/// let ranks: Vec<u64> = grid.cells().iter().map(|cell| cell.allocation.ranks()).collect();
/// assert_eq!(ranks, [1, 4, 8, 16]);
/// # Ok::<(), haloscope_study::slurm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    cells: Vec<Cell>,
}

/// One job of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// `2x4` for two nodes with four tasks each; also the name of its folder.
    pub name: String,
    /// What it gets.
    pub allocation: Allocation,
}

impl Grid {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(|error| Error::file(file, error))?;
        Self::parse(&text)
            .map_err(|error| Error::Content { file: file.to_owned(), reason: error.to_string() })
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text)
            .map_err(|error| Error::argument("the grid", error.to_string().trim_end()))?;
        let columns = &file.grid;
        let length = columns.length()?;
        let mut names = HashSet::new();
        let mut cells = Vec::with_capacity(length);
        for index in 0..length {
            let allocation = Allocation {
                nodes: columns.nodes.at(index),
                tasks_per_node: columns.tasks_per_node.at(index),
                cpus_per_task: columns.cpus_per_task.as_ref().map(|list| list.at(index)),
                // An empty text is a job without devices, among others that have some.
                gres: columns
                    .gres
                    .as_ref()
                    .map(|list| list.at(index))
                    .filter(|gres| !gres.is_empty()),
                time: file.time.clone(),
                partition: file.partition.clone(),
                account: file.account.clone(),
                options: file.sbatch.clone(),
                srun: file.srun.clone(),
                setup: file.setup.clone(),
            };
            let mut name = format!("{}x{}", allocation.nodes, allocation.tasks_per_node);
            if !names.insert(name.clone()) {
                name = format!("{name}-{}", index + 1);
                names.insert(name.clone());
            }
            cells.push(Cell { name, allocation });
        }
        Ok(Self { cells })
    }

    /// The jobs, in the order of the lists.
    #[must_use]
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    time: Option<String>,
    partition: Option<String>,
    account: Option<String>,
    #[serde(default)]
    sbatch: Vec<String>,
    #[serde(default)]
    srun: Vec<String>,
    #[serde(default)]
    setup: Vec<String>,
    grid: Columns,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Columns {
    nodes: List<u32>,
    tasks_per_node: List<u32>,
    cpus_per_task: Option<List<u32>>,
    gres: Option<List<String>>,
}

/// One value for all jobs, or one for each.
#[derive(Deserialize)]
#[serde(untagged)]
enum List<T> {
    One(T),
    Each(Vec<T>),
}

impl<T: Clone> List<T> {
    fn at(&self, index: usize) -> T {
        match self {
            Self::One(value) => value.clone(),
            Self::Each(values) => values[index].clone(),
        }
    }

    fn length(&self) -> Option<usize> {
        match self {
            Self::One(_) => None,
            Self::Each(values) => Some(values.len()),
        }
    }
}

impl Columns {
    /// The number of jobs, if all lists agree on it.
    fn length(&self) -> Result<usize> {
        let lengths: Vec<(&str, usize)> = [
            ("nodes", self.nodes.length()),
            ("tasks-per-node", self.tasks_per_node.length()),
            ("cpus-per-task", self.cpus_per_task.as_ref().and_then(List::length)),
            ("gres", self.gres.as_ref().and_then(List::length)),
        ]
        .into_iter()
        .filter_map(|(name, length)| Some((name, length?)))
        .collect();
        let Some(&(first, length)) = lengths.first() else { return Ok(1) };
        if length == 0 {
            return Err(Error::argument(first, "the list is empty; a grid has at least one job"));
        }
        match lengths.iter().find(|(_, other)| *other != length) {
            Some((name, other)) => Err(Error::argument(
                *name,
                format!(
                    "the list has {other} values and that of {first} has {length}; lists are coupled and \
                     have one length, or one value without brackets for all jobs"
                ),
            )),
            None => Ok(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_values_belong_to_all_jobs() {
        let grid = Grid::parse(
            "time = \"00:10:00\"\n[grid]\nnodes = [1, 2]\ntasks-per-node = 4\ncpus-per-task = 2",
        )
        .expect("a grid");
        let names: Vec<&str> = grid.cells().iter().map(|cell| &cell.name[..]).collect();
        assert_eq!(names, ["1x4", "2x4"]);
        for cell in grid.cells() {
            assert_eq!(cell.allocation.cpus_per_task, Some(2));
            assert_eq!(cell.allocation.time.as_deref(), Some("00:10:00"));
            assert_eq!(cell.allocation.gres, None);
        }
    }

    #[test]
    fn jobs_of_one_shape_have_folders_of_their_own() {
        let text = "[grid]\nnodes = 1\ntasks-per-node = 1\ngres = [\"\", \"gpu:1\"]";
        let grid = Grid::parse(text).expect("a grid");
        let names: Vec<&str> = grid.cells().iter().map(|cell| &cell.name[..]).collect();
        assert_eq!(names, ["1x1", "1x1-2"]);
        assert_eq!(grid.cells()[0].allocation.gres, None);
        assert_eq!(grid.cells()[1].allocation.gres.as_deref(), Some("gpu:1"));
    }

    #[test]
    fn lists_of_different_lengths_and_unknown_names_are_refused() {
        for (text, words) in [
            (
                "[grid]\nnodes = [1, 2]\ntasks-per-node = [1, 2, 3]",
                "tasks-per-node: the list has 3",
            ),
            ("[grid]\nnodes = []\ntasks-per-node = 1", "nodes: the list is empty"),
            ("[grid]\nnodes = 1\ntasks = 1", "tasks"),
            ("[grid]\nnodes = 1", "tasks-per-node"),
            ("nodes = 1", "nodes"),
        ] {
            let error = Grid::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
