//! The results of a study: a folder with its table and its provenance.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{Error, Result};
use super::table::Table;

pub use crate::provenance::PROVENANCE;
pub use crate::results::ROWS;

/// One folder of results, or one table.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The name of the folder or of the file.
    pub name: String,
    /// What was measured and predicted.
    pub table: Table,
    /// Version, machine, command line and so on, as the study wrote it.
    pub provenance: Option<Value>,
}

impl Run {
    /// Reads a folder with [`ROWS`] and perhaps [`PROVENANCE`], or a CSV file.
    pub fn open(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| Error::file(path, error))?;
        let (rows, provenance) = if metadata.is_dir() {
            (path.join(ROWS), read_provenance(&path.join(PROVENANCE))?)
        } else {
            (path.to_owned(), None)
        };
        Ok(Self { name: name_of(path), table: Table::read(&rows)?, provenance })
    }
}

fn read_provenance(file: &Path) -> Result<Option<Value>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| Error::file(file, error))?,
    };
    serde_json::from_str(&text).map(Some).map_err(|error| Error::Provenance {
        file: file.to_owned(),
        line: error.line(),
        column: error.column(),
        reason: error.to_string(),
    })
}

/// The last part of the path that is a name: `.` and `..` have none.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    let name = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
    name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_name_its_table_and_its_provenance() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run-1");
        std::fs::create_dir(&path).expect("a folder");
        std::fs::write(path.join(ROWS), "study,predicted,ranks,total_seconds\nscaling,false,1,1\n")
            .expect("a file");
        let run = Run::open(&path).expect("a run");
        assert_eq!((&run.name[..], run.table.rows, run.provenance), ("run-1", 1, None));
        std::fs::write(path.join(PROVENANCE), "{\"version\": \"1\"}").expect("a file");
        let provenance = Run::open(&path).expect("a run").provenance.expect("a description");
        assert_eq!(provenance["version"], "1");
        let alone = Run::open(&path.join(ROWS)).expect("a table");
        assert_eq!((&alone.name[..], alone.provenance), ("rows", None));
    }

    #[test]
    fn missing_tables_and_broken_descriptions_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Run::open(folder.path()).expect_err("no table").to_string();
        assert!(error.contains(ROWS), "{error}");
        std::fs::write(folder.path().join(PROVENANCE), "{\n\"version\" 1}").expect("a file");
        let error = Run::open(folder.path()).expect_err("no JSON").to_string();
        assert!(error.contains("provenance.json, line 2, column 11"), "{error}");
    }
}
