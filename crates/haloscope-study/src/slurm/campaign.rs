//! A grid's jobs from script to results: one folder for each job, and one table of all their rows at the end.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::error::{Error, Result};
use super::grid::{Cell, Grid};
use super::queue::{Ending, QueuedJob};
use super::script::{Allocation, Launch, Script};
use crate::columns;
use crate::dashboard::{PROVENANCE, ROWS, Table};
use crate::provenance::Provenance;
use crate::results::{read_rows, write_copy};
use crate::torn::whole_rows;

/// A command for one allocation: `{out}` becomes the job's folder of results, `{ranks}`, `{nodes}`, `{tasks}` and
/// `{cpus}` the numbers of ranks, of nodes, of ranks on each node, and of cores of each rank.
#[must_use]
pub fn fill_in(command: &[String], allocation: &Allocation, results: &Path) -> Vec<String> {
    let replaced = [
        ("{out}", results.to_string_lossy().into_owned()),
        ("{ranks}", allocation.ranks().to_string()),
        ("{nodes}", allocation.nodes.to_string()),
        ("{tasks}", allocation.tasks_per_node.to_string()),
        ("{cpus}", allocation.cpus_per_task.unwrap_or(1).to_string()),
    ];
    let fill = |word: &String| {
        replaced.iter().fold(word.clone(), |word, (name, value)| word.replace(name, value))
    };
    command.iter().map(fill).collect()
}

/// The jobs of a grid, ready to be submitted.
#[derive(Clone, Debug)]
pub struct Campaign {
    folder: PathBuf,
    jobs: Vec<(Cell, Script)>,
}

impl Campaign {
    /// Scripts that run `command` in the folder `directory` on each allocation of the grid. What [`fill_in`] knows is
    /// filled in; `{out}` is a folder of the job's own in `folder`, whose rows [`collect`](Self::collect) puts together.
    pub fn new(
        name: &str,
        grid: &Grid,
        directory: &Path,
        folder: &Path,
        launch: Launch,
        command: &[String],
    ) -> Result<Self> {
        let jobs = grid.cells().iter().map(|cell| {
            let results = directory.join(folder).join(&cell.name).join("results");
            let words = fill_in(command, &cell.allocation, &results);
            let name = format!("{name}-{}", cell.name);
            let script = Script::new(&name, &cell.allocation, directory, launch, &words)?;
            Ok((cell.clone(), script))
        });
        Ok(Self { folder: folder.to_owned(), jobs: jobs.collect::<Result<_>>()? })
    }

    /// Where the jobs have their folders, and the table in the end.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The scripts.
    pub fn scripts(&self) -> impl Iterator<Item = &Script> {
        self.jobs.iter().map(|(_, script)| script)
    }

    /// Submits all jobs. If one is refused, the error says which are in the queue already.
    pub fn submit(&self) -> Result<Vec<QueuedJob>> {
        let mut submitted: Vec<QueuedJob> = Vec::new();
        for (cell, script) in &self.jobs {
            match QueuedJob::submit(script, &self.folder.join(&cell.name)) {
                Ok(job) => submitted.push(job),
                Err(Error::Slurm { command, reason }) if !submitted.is_empty() => {
                    let ids: Vec<String> = submitted.iter().map(|job| job.id.to_string()).collect();
                    let reason = format!(
                        "{reason} (job {}; those before it are in the queue: scancel {} ends them)",
                        script.name(),
                        ids.join(" ")
                    );
                    return Err(Error::Slurm { command, reason });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(submitted)
    }

    /// Puts the rows of all jobs into one table in the campaign's folder, beside a description of the jobs, and
    /// returns how many there are. Jobs that left no table are in the description only.
    ///
    /// What jobs of a study leave becomes a folder of results like any other. That they made other data or found another
    /// image than each other is an error, as it is within a job.
    pub fn collect(&self, submitted: &[QueuedJob], endings: &[Ending]) -> Result<usize> {
        let mut text: Vec<u8> = Vec::new();
        let mut header: Option<(PathBuf, Vec<u8>)> = None;
        let mut rows = 0;
        let mut described = Vec::new();
        let mut whole: Option<Provenance> = None;
        for (((cell, _), job), ending) in self.jobs.iter().zip(submitted).zip(endings) {
            let results = job.folder.join("results");
            let file = results.join(ROWS);
            let mut found = 0;
            if file.exists() {
                found = append(&file, &mut header, &mut text)?;
                rows += found;
            }
            let study = provenance(&results.join(PROVENANCE))?;
            // Other commands may describe their results in another way.
            if let Ok(part) = serde_json::from_value::<Provenance>(study.clone()) {
                match &mut whole {
                    None => whole = Some(part),
                    Some(whole) => whole
                        .merge(part, &format!("job {}", cell.name))
                        .map_err(|error| content(&results, error))?,
                }
            }
            described.push(json!({
                "name": cell.name,
                "job": job.id,
                "nodes": cell.allocation.nodes,
                "tasks_per_node": cell.allocation.tasks_per_node,
                "cpus_per_task": cell.allocation.cpus_per_task,
                "gres": cell.allocation.gres,
                "ending": ending.word,
                "rows": found,
                "study": study,
            }));
        }
        if rows > 0 {
            replace(&self.folder.join(ROWS), &text)?;
        }
        if header.is_some_and(|(_, names)| has_columns_of_studies(&names)) {
            read_rows(&self.folder)
                .and_then(|rows| write_copy(&self.folder, &rows))
                .map_err(|error| content(&self.folder, error))?;
        }
        let description = match whole {
            Some(whole) => json!(Provenance { jobs: described, ..whole }),
            None => json!({ "jobs": described }),
        };
        replace(&self.folder.join(PROVENANCE), format!("{description:#}\n").as_bytes())?;
        Ok(rows)
    }
}

/// Whether a table is one of `haloscope bench`, and not of another program that the dashboard reads.
fn has_columns_of_studies(header: &[u8]) -> bool {
    String::from_utf8_lossy(header).trim_end().split(',').eq(columns::names())
}

/// Adds a table that has the columns of those before it.
fn append(
    file: &Path,
    header: &mut Option<(PathBuf, Vec<u8>)>,
    text: &mut Vec<u8>,
) -> Result<usize> {
    let wrong = |reason: String| Error::Content { file: file.to_owned(), reason };
    let content = std::fs::read(file).map_err(|error| Error::file(file, error))?;
    let content = whole_rows(file, &content);
    let table = Table::parse(file, content).map_err(|error| wrong(error.to_string()))?;
    let end = content.iter().position(|byte| *byte == b'\n').map_or(content.len(), |end| end + 1);
    let (names, body) = content.split_at(end);
    match header {
        None => {
            text.extend(names);
            *header = Some((file.to_owned(), names.to_owned()));
        }
        Some((first, expected)) if expected.trim_ascii_end() != names.trim_ascii_end() => {
            return Err(wrong(format!("the columns are not those of {}", first.display())));
        }
        Some(_) => (),
    }
    text.extend(body);
    if !body.ends_with(b"\n") {
        text.push(b'\n');
    }
    Ok(table.rows)
}

fn provenance(file: &Path) -> Result<Value> {
    match std::fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(Error::file(file, error)),
        Ok(text) => serde_json::from_slice(&text).map_err(|error| content(file, error)),
    }
}

fn replace(file: &Path, text: &[u8]) -> Result<()> {
    haloscope::io::write_atomically(file, |writer| writer.write_all(text))
        .map_err(|error| content(file, error))
}

fn content(file: &Path, reason: impl std::fmt::Display) -> Error {
    Error::Content { file: file.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::Run;
    use crate::results::Results;
    use crate::row::tests::configuration;
    use crate::row::{Backend, Study};
    use crate::trial::{LinkSpeed, Settings, Trial};

    fn campaign(folder: &Path) -> Campaign {
        let grid = Grid::parse("[grid]\nnodes = [1, 2]\ntasks-per-node = 2").expect("a grid");
        let command = ["haloscope", "--ranks", "{ranks}", "--out", "{out}"].map(String::from);
        let directory = Path::new("/home/ada");
        Campaign::new("study", &grid, directory, folder, Launch::Once, &command).expect("jobs")
    }

    fn jobs(folder: &Path) -> Vec<QueuedJob> {
        let job = |(id, name): (u64, &str)| QueuedJob {
            id,
            name: name.into(),
            folder: folder.join(name),
        };
        [(7, "1x2"), (8, "2x2")].map(job).into()
    }

    fn leave(folder: &Path, name: &str, rows: &str) {
        let results = folder.join(name).join("results");
        std::fs::create_dir_all(&results).expect("a folder");
        std::fs::write(results.join(ROWS), rows).expect("a file");
    }

    fn completed() -> Vec<Ending> {
        vec![Ending { word: "COMPLETED".into(), code: Some(0) }; 2]
    }

    #[test]
    fn every_job_has_a_folder_of_results() {
        let campaign = campaign(Path::new("runs"));
        let texts: Vec<&str> = campaign.scripts().map(Script::text).collect();
        assert!(texts[0].contains("--ranks 2 --out /home/ada/runs/1x2/results\n"), "{}", texts[0]);
        assert!(texts[1].contains("--job-name=study-2x2\n"), "{}", texts[1]);
    }

    #[test]
    fn rows_of_all_jobs_become_one_table() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = "study,predicted,ranks,total_seconds";
        leave(folder.path(), "1x2", &format!("{names}\nscaling,false,2,1.0"));
        leave(folder.path(), "2x2", &format!("{names}\r\nscaling,false,4,0.5\n"));
        let rows = campaign(folder.path()).collect(&jobs(folder.path()), &completed());
        assert_eq!(rows.expect("rows"), 2);
        let table = Table::read(&folder.path().join(ROWS)).expect("a table");
        assert_eq!(table.rows, 2);
        let run = crate::dashboard::Run::open(folder.path()).expect("a run");
        assert_eq!(run.provenance.expect("a description")["jobs"][1]["job"], 8);
    }

    /// What a job of a study leaves: the folder of its results.
    fn leave_study(folder: &Path, name: &str, ranks: usize, data: &str) {
        let origin = Provenance::new("1.0", None, json!({ "cores": 2 }));
        let run = Run::new(Study::Scaling, Settings::default(), vec!["bench".into()]);
        let results = folder.join(name).join("results");
        let mut results = Results::open(&results, &origin, &run).expect("a folder of results");
        let configuration = configuration(ranks);
        let rows = (0..ranks).map(|rank| configuration.row(0, rank, 1.0)).collect();
        let settings = Settings::default();
        let trial = Trial { configuration, settings, repetitions: vec![0], truth: None };
        results.note_data(&trial, data).expect("data");
        results.note_image(&trial, "image").expect("an image");
        let speed = LinkSpeed { latency_seconds: 1e-6, bytes_per_second: 1e9 };
        results.note_link(Backend::Mpi, speed);
        results.append(rows).expect("rows");
        results.save().expect("saved");
    }

    #[test]
    fn results_of_all_jobs_are_results_like_any_other() {
        let folder = tempfile::tempdir().expect("a folder");
        leave_study(folder.path(), "1x2", 2, "data");
        leave_study(folder.path(), "2x2", 4, "data");
        let rows = campaign(folder.path()).collect(&jobs(folder.path()), &completed());
        assert_eq!(rows.expect("rows"), 6);
        let results = Results::reopen(folder.path()).expect("results");
        assert_eq!(results.rows().len(), 6);
        #[cfg(feature = "parquet")]
        {
            let copy = folder.path().join(crate::results::PARQUET);
            let copy = crate::parquet::read_parquet(&copy).expect("Parquet");
            assert_eq!(copy, results.rows());
        }
        let whole = results.provenance();
        assert_eq!((whole.runs.len(), whole.jobs.len()), (2, 2));
        assert_eq!((whole.data.len(), whole.images.len(), whole.links.len()), (1, 1, 1));
    }

    #[test]
    fn jobs_that_made_other_data_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        leave_study(folder.path(), "1x2", 2, "data");
        leave_study(folder.path(), "2x2", 4, "others");
        let error = campaign(folder.path()).collect(&jobs(folder.path()), &completed());
        let error = error.expect_err("other data").to_string();
        assert!(error.contains("job 2x2") && error.contains("other data than before"), "{error}");
    }

    #[test]
    fn tables_of_other_columns_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        leave(folder.path(), "1x2", "study,predicted,ranks,total_seconds\nscaling,false,2,1.0\n");
        leave(folder.path(), "2x2", "study,predicted,total_seconds,ranks\nscaling,false,1.0,4\n");
        let error = campaign(folder.path()).collect(&jobs(folder.path()), &completed());
        let error = error.expect_err("other columns").to_string();
        assert!(error.contains("2x2") && error.contains("are not those of"), "{error}");
    }

    #[test]
    fn a_job_without_a_table_is_described() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows = campaign(folder.path()).collect(&jobs(folder.path()), &completed());
        assert_eq!(rows.expect("no rows"), 0);
        assert!(!folder.path().join(ROWS).exists());
        assert!(folder.path().join(PROVENANCE).exists());
    }
}
