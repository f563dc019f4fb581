//! The folder of a run: `rows.csv` as the rows come, `provenance.json`, and with the feature `parquet`
//! a copy of the rows in `rows.parquet`.
//!
//! The CSV is the truth. The rows of a repetition are appended in one write, so a run that is killed leaves whole
//! repetitions behind; should the last one be torn all the same, it is dropped when the folder is opened again. A
//! run that is started again with the same settings measures what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use haloscope::io::write_atomically;
use serde_json::Value;

use crate::columns::{self, Column};
use crate::error::{Error, Result};
use crate::provenance::{Provenance, Run};
use crate::row::{Backend, Row};
use crate::torn::whole_rows;
use crate::trial::{LinkSpeed, Trial};

/// A folder of results that can grow.
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
    rows: Vec<Row>,
    file: File,
    provenance: Provenance,
}

impl Results {
    /// Opens a folder, or makes it. A folder with results of other settings for the same study is refused.
    pub fn open(folder: &Path, origin: &Provenance, run: &Run) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
        let mut provenance = match Provenance::read(folder)? {
            Some(found) => found,
            None => origin.clone(),
        };
        provenance.begin(folder, origin, run)?;
        provenance.write(folder)?;
        Self::reopen(folder)
    }

    /// Opens a folder in which there are results, to add to them what is no run of a study.
    pub fn reopen(folder: &Path) -> Result<Self> {
        let Some(provenance) = Provenance::read(folder)? else {
            return Err(Error::file(folder, "there are no results; `bench scaling` makes some"));
        };
        let path = folder.join(ROWS);
        let (rows, is_whole) = read_csv(&path)?;
        if !is_whole {
            rewrite(&path, &rows)?;
        }
        let file = append_to(&path)?;
        Ok(Self { folder: folder.to_owned(), rows, file, provenance })
    }

    /// Opens a folder for what is predicted from these results, or makes it. It says where they are from, and has none of their rows. A folder
    /// with measurements of its own is refused.
    pub fn beside(&self, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
        if read_csv(&folder.join(ROWS))?.0.iter().any(|row| !row.predicted) {
            return Err(Error::file(
                folder,
                "it has measurements; leave the folder of predictions out to add them to what they come from, or give another one",
            ));
        }
        self.provenance.write(folder)?;
        Self::reopen(folder)
    }

    /// All rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Where the files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where everything is from.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The repetitions of a trial that are still to be measured; what there is of unfinished ones is removed.
    pub fn missing(&mut self, trial: &Trial) -> Result<Vec<usize>> {
        let mut found: BTreeMap<usize, usize> = BTreeMap::new();
        let is_of_trial = |row: &&Row| !row.predicted && row.configuration == trial.configuration;
        for row in self.rows.iter().filter(is_of_trial) {
            *found.entry(row.repetition).or_default() += 1;
        }
        let whole = trial.rows_per_repetition();
        if found.values().any(|count| *count != whole) {
            self.rewrite_without(|row| {
                !row.predicted
                    && row.configuration == trial.configuration
                    && found.get(&row.repetition).is_some_and(|count| *count != whole)
            })?;
        }
        let is_there = |repetition: &usize| found.get(repetition) == Some(&whole);
        Ok(trial.repetitions.iter().copied().filter(|repetition| !is_there(repetition)).collect())
    }

    /// Adds rows, to the file at once.
    pub fn append(&mut self, rows: Vec<Row>) -> Result<()> {
        let path = self.folder.join(ROWS);
        let text = to_csv(&rows, false).map_err(|error| Error::file(&path, error))?;
        self.file
            .write_all(&text)
            .and_then(|()| self.file.flush())
            .map_err(|error| Error::file(&path, error))?;
        self.rows.extend(rows);
        Ok(())
    }

    /// Adds predicted rows; they replace those that were predicted before of the same problems, sizes and networks, of
    /// whatever cluster, because no column tells clusters apart.
    pub fn predict(&mut self, rows: Vec<Row>) -> Result<()> {
        let subject = |row: &Row| {
            let of = &row.configuration;
            (of.problem, of.sides(), of.model.clone())
        };
        let subjects: BTreeSet<_> = rows.iter().map(subject).collect();
        self.rewrite_without(|row| row.predicted && subjects.contains(&subject(row)))?;
        self.append(rows)
    }

    /// Notes what the data of a problem are; other data than before for the same problem is an error.
    pub fn note_data(&mut self, trial: &Trial, digest: &str) -> Result<()> {
        self.provenance.note_data(trial, digest)
    }

    /// Notes what image was found; another image than before, on whatever ranks, is an error.
    pub fn note_image(&mut self, trial: &Trial, digest: &str) -> Result<()> {
        self.provenance.note_image(trial, digest)
    }

    /// Notes the settings of another system.
    pub fn note_peer(&mut self, trial: &Trial, settings: Value) {
        self.provenance.peers.insert(trial.configuration.to_string(), settings);
    }

    /// Notes what messages cost.
    pub fn note_link(&mut self, backend: Backend, speed: LinkSpeed) {
        self.provenance.links.insert(backend.to_string(), speed);
    }

    /// Brings the other files up to date with the rows.
    pub fn save(&self) -> Result<()> {
        self.provenance.write(&self.folder)?;
        write_copy(&self.folder, &self.rows)
    }

    fn rewrite_without(&mut self, is_unwanted: impl Fn(&Row) -> bool) -> Result<()> {
        if !self.rows.iter().any(&is_unwanted) {
            return Ok(());
        }
        self.rows.retain(|row| !is_unwanted(row));
        let path = self.folder.join(ROWS);
        rewrite(&path, &self.rows)?;
        self.file = append_to(&path)?;
        Ok(())
    }
}

/// The name of the table in a folder of results.
pub const ROWS: &str = "rows.csv";
pub(crate) const PARQUET: &str = "rows.parquet";

/// Writes the copy of the rows in Parquet.
#[cfg(feature = "parquet")]
pub(crate) fn write_copy(folder: &Path, rows: &[Row]) -> Result<()> {
    crate::parquet::write_parquet(&folder.join(PARQUET), rows)
}

/// Removes a copy of the rows that another build wrote: it would lack the rows that came since.
#[cfg(not(feature = "parquet"))]
pub(crate) fn write_copy(folder: &Path, _rows: &[Row]) -> Result<()> {
    let path = folder.join(PARQUET);
    match std::fs::remove_file(&path) {
        Ok(()) => log::warn!(
            "removed {}, which is out of date; a build with the feature `parquet` writes it again",
            path.display()
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::file(&path, error)),
    }
    Ok(())
}

/// The rows of a results folder, or of a CSV file.
pub fn read_rows(path: &Path) -> Result<Vec<Row>> {
    let file = if path.is_dir() { path.join(ROWS) } else { path.to_owned() };
    if !file.is_file() {
        return Err(Error::file(&file, "there is no such file; a folder with rows.csv is needed"));
    }
    Ok(read_csv(&file)?.0)
}

/// The rows of a file, none if it is not there, and whether it is as it would be written now: there, with all columns and a
/// whole last row.
fn read_csv(path: &Path) -> Result<(Vec<Row>, bool)> {
    let content = match std::fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok((Vec::new(), false));
        }
        Err(error) => return Err(Error::file(path, error)),
    };
    let whole = whole_rows(path, &content);
    if whole.is_empty() {
        return Ok((Vec::new(), false));
    }
    let mut reader = csv::Reader::from_reader(whole);
    let headers = reader.headers().map_err(|error| Error::file(path, error))?;
    let Some(columns) = columns::of_study(headers.iter().map(str::as_bytes)) else {
        return Err(Error::file(
            path,
            "its columns are not those of this version; use another folder",
        ));
    };
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| Error::file(path, error))?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = parse(&columns, &record);
        rows.push(row.map_err(|reason| Error::file(path, format!("line {line}: {reason}")))?);
    }
    Ok((rows, whole.len() == content.len() && columns.len() == columns::COLUMNS.len()))
}

/// A row of cells in the order of the columns.
fn parse(columns: &[&Column], record: &csv::StringRecord) -> std::result::Result<Row, String> {
    let mut cells = serde_json::Map::new();
    for (column, text) in columns.iter().zip(record) {
        let value = column.kind.parse(text);
        let value = value.ok_or_else(|| format!("`{text}` cannot be the {}", column.name))?;
        cells.insert(column.name.into(), value);
    }
    serde_json::from_value(cells.into()).map(Row::completed).map_err(|error| error.to_string())
}

fn to_csv(rows: &[Row], has_header: bool) -> std::result::Result<Vec<u8>, csv::Error> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    if has_header {
        writer.write_record(columns::names())?;
    }
    for row in rows {
        let cells = serde_json::to_value(row).map_err(std::io::Error::from)?;
        writer.write_record(columns::names().map(|name| match &cells[name] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }))?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

fn rewrite(path: &Path, rows: &[Row]) -> Result<()> {
    let text = to_csv(rows, true).map_err(|error| Error::file(path, error))?;
    Ok(write_atomically(path, |file| file.write_all(&text))?)
}

fn append_to(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).open(path).map_err(|error| Error::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use crate::row::Configuration;
    use crate::row::tests::configuration;
    use crate::trial::Settings;

    fn origin() -> Provenance {
        Provenance::new("1.0", None, serde_json::json!({ "cores": 2 }))
    }

    fn run() -> Run {
        Run::new(crate::row::Study::Scaling, Settings::default(), vec!["bench".into()])
    }

    fn open(folder: &Path) -> Results {
        Results::open(folder, &origin(), &run()).expect("a folder of results")
    }

    /// The rows of one repetition of two iterations on `ranks` ranks.
    fn rows(ranks: usize, repetition: usize) -> Vec<Row> {
        let row = |iteration: usize, rank: usize| Row {
            iteration: Some(iteration),
            psnr_db: (rank == 0).then_some(20.25),
            ..configuration(ranks).row(repetition, rank, 0.1 + iteration as f64)
        };
        (1..=2).flat_map(|iteration| (0..ranks).map(move |rank| row(iteration, rank))).collect()
    }

    fn trial(ranks: usize) -> Trial {
        let settings = Settings { iterations: 2, ..Settings::default() };
        Trial {
            configuration: configuration(ranks),
            settings,
            repetitions: vec![0, 1, 2],
            truth: None,
        }
    }

    #[test]
    fn rows_are_there_again_and_only_the_rest_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = open(folder.path());
        results.append(rows(2, 0)).expect("appended");
        results.append(rows(2, 2)).expect("appended");
        let before = results.rows().to_vec();
        drop(results);
        let mut again = open(folder.path());
        assert_eq!(again.rows(), before);
        assert_eq!(again.missing(&trial(2)).expect("missing"), [1]);
        assert_eq!(again.missing(&trial(3)).expect("missing"), [0, 1, 2]);
    }

    #[test]
    fn a_row_is_a_line_of_cells_in_the_order_of_the_columns() {
        let row = configuration(2).row(0, 1, 0.5);
        let text = to_csv(&[row], false).expect("a line");
        assert_eq!(
            String::from_utf8(text).expect("text"),
            "scaling,false,haloscope,deblur,strong,threads,drunet,64,64,,32,8,1,,,8,both,replicated,,2,1,0,,1,0.5,,,,,,,,,,,,,,,,,,,,,,,\n"
        );
    }

    /// The text of a table as versions before `distribute`, `layout` and devices wrote it.
    fn old(text: &str) -> String {
        let later: Vec<bool> =
            columns::names().map(|name| columns::LATER.contains(&name)).collect();
        let without = |line: &str| {
            let cells = line.split(',').zip(&later).filter(|(_, is_later)| !**is_later);
            cells.map(|(cell, _)| cell).collect::<Vec<_>>().join(",") + "\n"
        };
        text.lines().map(without).collect::<String>().replace(",deblur,", ",highres-color,")
    }

    #[test]
    fn tables_of_earlier_versions_are_read_and_brought_up_to_date() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(ROWS);
        open(folder.path()).append(rows(2, 0)).expect("appended");
        let new = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, old(&new)).expect("written");
        assert_eq!(read_rows(folder.path()).expect("rows"), rows(2, 0));
        let torn = old(&new);
        std::fs::write(&path, torn.trim_end()).expect("written");
        assert_eq!(read_rows(folder.path()).expect("rows").len(), 3, "the last row is torn");

        std::fs::write(&path, old(&new)).expect("written");
        let mut results = Results::reopen(folder.path()).expect("results");
        results.append(rows(2, 1)).expect("appended");
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(text.starts_with(&new), "{text}");
        assert_eq!(read_rows(folder.path()).expect("rows"), [rows(2, 0), rows(2, 1)].concat());
    }

    #[test]
    fn problems_that_were_defined_anew_need_another_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        open(folder.path());
        let path = folder.path().join("provenance.json");
        let text = std::fs::read_to_string(&path).expect("text");
        let old: String = text.lines().filter(|line| !line.contains("\"problems\"")).collect();
        assert!(old.len() < text.len(), "{text}");
        std::fs::write(&path, old).expect("written");
        let error = Results::open(folder.path(), &origin(), &run()).expect_err("refused");
        let error = error.to_string();
        assert!(
            error.contains("with other problems") && error.contains("another folder"),
            "{error}"
        );
        // A network alone has no problem.
        let memory = Run::new(crate::row::Study::Memory, Settings::default(), vec![]);
        Results::open(folder.path(), &origin(), &memory).expect("another study");
    }

    #[test]
    fn a_cell_that_is_wrong_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = open(folder.path());
        results.append(rows(1, 0)).expect("appended");
        let path = folder.path().join(ROWS);
        let text = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, text.replace(",2.1,", ",soon,")).expect("written");
        let error = read_rows(&path).expect_err("no number").to_string();
        assert!(error.contains("line 3: `soon` cannot be the total_seconds"), "{error}");
    }

    #[test]
    fn torn_lines_and_unfinished_repetitions_are_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(ROWS);
        let mut results = open(folder.path());
        results.append(rows(2, 0)).expect("appended");
        results.append(rows(2, 1)).expect("appended");
        drop(results);
        let text = std::fs::read_to_string(&path).expect("text");
        for end in ["", "\n"] {
            std::fs::write(&path, text[..text.len() - 30].to_owned() + end).expect("torn");
            assert_eq!(read_rows(folder.path()).expect("rows").len(), 7);
            let mut again = open(folder.path());
            assert_eq!(again.rows().len(), 7);
            assert_eq!(again.missing(&trial(2)).expect("missing"), [1, 2]);
            assert_eq!(again.rows(), rows(2, 0));
            again.append(rows(2, 1)).expect("appended");
            assert_eq!(std::fs::read_to_string(&path).expect("text"), text);
        }
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_has_the_rows_of_the_csv() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = open(folder.path());
        results.append(rows(3, 0)).expect("appended");
        results.save().expect("saved");
        let parquet = crate::parquet::read_parquet(&folder.path().join(PARQUET)).expect("Parquet");
        assert_eq!(parquet, read_rows(folder.path()).expect("rows"));
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn without_parquet_no_copy_stays_that_lacks_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = open(folder.path());
        results.save().expect("saved");
        std::fs::write(folder.path().join(PARQUET), "of another build").expect("a file");
        results.append(rows(3, 0)).expect("appended");
        results.save().expect("saved");
        assert!(!folder.path().join(PARQUET).exists());
        assert_eq!(read_rows(folder.path()).expect("rows").len(), 6);
    }

    #[test]
    fn every_run_says_what_made_it_and_older_files_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        open(folder.path());
        let path = folder.path().join("provenance.json");
        let mut old: Value =
            serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
        for name in ["version", "commit", "machine"] {
            old["runs"][0].as_object_mut().expect("a run").remove(name);
        }
        std::fs::write(&path, old.to_string()).expect("written");
        let machine = serde_json::json!({ "cores": 64 });
        let now = Provenance::new("2.0", Some("abc".into()), machine.clone());
        let results = Results::open(folder.path(), &now, &run()).expect("a folder of results");
        let [first, second] = &results.provenance().runs[..] else { panic!("two runs") };
        assert_eq!((&first.version, &first.machine), (&None, &None));
        assert_eq!(second.version.as_deref(), Some("2.0"));
        assert_eq!(second.commit.as_deref(), Some("abc"));
        assert_eq!(second.machine, Some(machine));
        assert_eq!(results.provenance().version, "1.0", "what began the folder");
    }

    #[test]
    fn other_settings_need_another_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        open(folder.path());
        let mut other = run();
        other.settings.iterations = 3;
        let error =
            Results::open(folder.path(), &origin(), &other).expect_err("refused").to_string();
        assert!(error.contains("with iterations 10 and not 3; use another folder"), "{error}");
    }

    #[test]
    fn predicted_rows_replace_those_of_the_same_problem_size_and_network() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = open(folder.path());
        results.append(rows(1, 0)).expect("appended");
        let of = |configuration: Configuration, seconds| Row {
            predicted: true,
            ..configuration.row(0, 0, seconds)
        };
        let predicted = |ranks, seconds| of(configuration(ranks), seconds);
        let others = vec![
            of(configuration(64).with_sides(&[128, 128]), 4.0),
            of(Configuration { model: "dncnn".into(), ..configuration(64) }, 5.0),
            of(Configuration { problem: Some(Problem::Tomography2d), ..configuration(64) }, 6.0),
        ];
        results.predict(vec![predicted(1, 1.0), predicted(64, 2.0)]).expect("predicted");
        results.predict(others.clone()).expect("predicted");
        results.predict(vec![predicted(64, 3.0)]).expect("predicted");
        let expected = [rows(1, 0), others, vec![predicted(64, 3.0)]].concat();
        assert_eq!(read_rows(folder.path()).expect("rows"), expected);
    }
}
