//! A study's table, read from CSV and checked cell by cell.
//!
//! Values are kept by column, as the page gets them. Unknown columns are skipped and reported, so that a table of a
//! later version can still be shown; anything else that is wrong is an error with file, line and column.

use std::fmt::Display;
use std::path::Path;

use csv::StringRecord;
use haloscope_job::Problem;

use super::error::{Error, Result};
use crate::columns::{COLUMNS, Column, Kind, names};
use crate::torn::whole_rows;

/// More rows than this would make a page that no browser opens in reasonable time.
pub(super) const MAX_ROWS: usize = 500_000;

/// The rows of a study, by column.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// How many there are.
    pub rows: usize,
    /// The columns that are known, in the order of [`COLUMNS`].
    pub columns: Vec<(&'static str, Values)>,
    /// The names of columns that are not known.
    pub ignored: Vec<String>,
}

/// The cells of a column; `None` where they are empty.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Text and words.
    Text(Vec<Option<String>>),
    /// Flags.
    Flags(Vec<Option<bool>>),
    /// Whole numbers.
    Counts(Vec<Option<u64>>),
    /// Other numbers.
    Numbers(Vec<Option<f64>>),
}

impl Table {
    /// Reads and checks a file, but for a last row that is torn.
    pub fn read(file: &Path) -> Result<Self> {
        let bytes = std::fs::read(file).map_err(|error| Error::file(file, error))?;
        Self::parse(file, whole_rows(file, &bytes))
    }

    /// Checks the content of `file`.
    pub fn parse(file: &Path, content: &[u8]) -> Result<Self> {
        let at = |line: u64, column: Option<&str>, reason: String| Error::Table {
            file: file.to_owned(),
            line,
            column: column.map(Into::into),
            reason,
        };
        let mut reader = csv::ReaderBuilder::new().from_reader(content);
        let header = reader.headers().map_err(|error| at(line_of(&error), None, say(&error)))?;
        if header.iter().all(|name| name.trim().is_empty()) {
            return Err(at(
                1,
                None,
                format!("the file is empty; a table of a study begins with {}", first_names()),
            ));
        }
        let header = header.clone();
        let (mut cells, ignored) =
            arrange(&header).map_err(|(name, reason)| at(1, Some(name), reason))?;

        let mut record = StringRecord::new();
        let mut rows = 0;
        while reader
            .read_record(&mut record)
            .map_err(|error| at(line_of(&error), None, say(&error)))?
        {
            let line = record.position().map_or(0, csv::Position::line);
            if rows == MAX_ROWS {
                let reason = format!("there are more than {MAX_ROWS} rows; split the table");
                return Err(at(line, None, reason));
            }
            for cell in &mut cells {
                let text = record.get(cell.index).unwrap_or_default().trim();
                let text = if cell.column.name == "problem" { current_name(text) } else { text };
                let read = cell.values.push(cell.column.kind, text);
                read.map_err(|reason| at(line, Some(cell.column.name), reason))?;
            }
            check_row(&cells, rows).map_err(|(name, reason)| at(line, Some(name), reason))?;
            rows += 1;
        }
        if rows == 0 {
            return Err(at(2, None, "there is a first line with names, but no row".into()));
        }
        let columns = cells.into_iter().map(|cell| (cell.column.name, cell.values)).collect();
        Ok(Self { rows, columns, ignored })
    }

    /// The column of a name, if the table has it.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Values> {
        self.columns.iter().find(|(column, _)| *column == name).map(|(_, values)| values)
    }
}

/// What a problem is called now.
fn current_name(problem: &str) -> &str {
    match Problem::named(problem) {
        Some(known) => known.name(),
        None => problem,
    }
}

/// A column while it is read, and where it is in the file.
struct Cells {
    column: &'static Column,
    index: usize,
    values: Values,
}

/// The column to blame, and what is wrong.
type Blame = (&'static str, String);

/// The known columns of a header and the names of the others.
fn arrange(header: &StringRecord) -> std::result::Result<(Vec<Cells>, Vec<String>), Blame> {
    let mut cells = Vec::new();
    for column in COLUMNS {
        let mut places = header.iter().enumerate().filter(|(_, name)| name.trim() == column.name);
        let Some((index, _)) = places.next() else {
            if column.is_needed {
                let reason = format!(
                    "the column is missing; a table of a study begins with {}",
                    first_names()
                );
                return Err((column.name, reason));
            }
            continue;
        };
        if places.next().is_some() {
            return Err((column.name, "the column is there twice".into()));
        }
        cells.push(Cells { column, index, values: Values::new(column.kind) });
    }
    let is_known = |name: &str| names().any(|known| known == name.trim());
    let ignored = header.iter().filter(|name| !is_known(name)).map(Into::into).collect();
    Ok((cells, ignored))
}

/// What a row must have so that the charts of its study can show it.
fn check_row(cells: &[Cells], row: usize) -> std::result::Result<(), Blame> {
    let find = |name: &str| cells.iter().find(|cell| cell.column.name == name);
    let has = |name: &str| find(name).is_some_and(|cell| cell.values.has(row));
    for name in ["study", "predicted"] {
        if !has(name) {
            return Err((name, "the cell is empty; every row needs it".into()));
        }
    }
    let study = match find("study").map(|cell| &cell.values) {
        Some(Values::Text(values)) => values[row].as_deref().unwrap_or_default(),
        _ => "",
    };
    for choice in needs_of(study) {
        if !choice.iter().any(|name| has(name)) {
            let names = choice.join(" or ");
            return Err((choice[0], format!("a row of the study {study} needs {names}")));
        }
    }
    let count = |name: &str| match find(name).map(|cell| &cell.values) {
        Some(Values::Counts(values)) => values[row],
        _ => None,
    };
    match (count("rank"), count("ranks")) {
        (_, Some(0)) => Err(("ranks", "there is at least 1 rank, not 0".into())),
        (Some(rank), Some(ranks)) if rank >= ranks => {
            Err(("rank", format!("{rank} is not one of {ranks} ranks, which count from 0")))
        }
        _ => Ok(()),
    }
}

/// The columns of which a row of a study fills at least one, for each thing that its charts need.
fn needs_of(study: &str) -> &'static [&'static [&'static str]] {
    match study {
        "scaling" => &[&["ranks"], &["total_seconds"]],
        "memory" => &[&["width"], &["peak_bytes", "predicted_bytes"]],
        "batch" => &[&["batch"], &["total_seconds"]],
        "compare" => &[&["system"], &["total_seconds"]],
        _ => &[],
    }
}

impl Values {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text | Kind::Word(_) => Self::Text(Vec::new()),
            Kind::Flag => Self::Flags(Vec::new()),
            Kind::Count => Self::Counts(Vec::new()),
            Kind::Amount | Kind::Number => Self::Numbers(Vec::new()),
        }
    }

    fn has(&self, row: usize) -> bool {
        match self {
            Self::Text(values) => values[row].is_some(),
            Self::Flags(values) => values[row].is_some(),
            Self::Counts(values) => values[row].is_some(),
            Self::Numbers(values) => values[row].is_some(),
        }
    }

    /// Whether no row has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(values) => values.iter().all(Option::is_none),
            Self::Flags(values) => values.iter().all(Option::is_none),
            Self::Counts(values) => values.iter().all(Option::is_none),
            Self::Numbers(values) => values.iter().all(Option::is_none),
        }
    }

    /// Adds a cell, or says what would be accepted.
    fn push(&mut self, kind: Kind, text: &str) -> std::result::Result<(), String> {
        let wrong = |accepted: &dyn Display| format!("{text:?} is not {accepted}");
        let is_empty = text.is_empty();
        match self {
            Self::Text(values) => {
                if let Kind::Word(words) = kind
                    && !is_empty
                    && !words.contains(&text)
                {
                    return Err(wrong(&format!("one of {}", words.join(", "))));
                }
                values.push((!is_empty).then(|| text.into()));
            }
            Self::Flags(values) => values.push(match text {
                "" => None,
                "true" => Some(true),
                "false" => Some(false),
                _ => return Err(wrong(&"true or false")),
            }),
            Self::Counts(values) => values.push(match text.parse() {
                Ok(count) => Some(count),
                Err(_) if is_empty => None,
                Err(_) => return Err(wrong(&"a whole number from 0")),
            }),
            Self::Numbers(values) => values.push(match text.parse::<f64>() {
                // Iterations that diverged write NaN, which is no point of a chart.
                Ok(number) if kind == Kind::Number => number.is_finite().then_some(number),
                Ok(number) if number.is_finite() && number >= 0.0 => Some(number),
                Err(_) if is_empty => None,
                Err(_) if kind == Kind::Number => return Err(wrong(&"a number")),
                _ => return Err(wrong(&"a number from 0")),
            }),
        }
        Ok(())
    }
}

fn first_names() -> String {
    format!("{},…", names().take(4).collect::<Vec<_>>().join(","))
}

fn line_of(error: &csv::Error) -> u64 {
    error.position().map_or(1, csv::Position::line)
}

/// What is wrong, without the place, which is said apart.
fn say(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the line has {len} cells, and the first line {expected_len}")
        }
        csv::ErrorKind::Utf8 { err, .. } => {
            format!("cell {} is not UTF-8 text", err.field() + 1)
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "study,predicted,ranks,rank,total_seconds,width,peak_bytes,predicted_bytes";

    fn table(rows: &[&str]) -> Result<Table> {
        let text = [&[NAMES], rows].concat().join("\n");
        Table::parse(Path::new("rows.csv"), text.as_bytes())
    }

    #[test]
    fn cells_become_values_and_empty_ones_nothing() {
        let table = table(&["scaling,false,2,1,0.5,,,", "memory,true,,,,64,,1000"]).expect("rows");
        assert_eq!(table.rows, 2);
        assert_eq!(table.column("ranks"), Some(&Values::Counts(vec![Some(2), None])));
        assert_eq!(table.column("total_seconds"), Some(&Values::Numbers(vec![Some(0.5), None])));
        assert_eq!(table.column("predicted"), Some(&Values::Flags(vec![Some(false), Some(true)])));
        assert!(table.column("peak_bytes").is_some_and(Values::is_empty));
        assert_eq!(table.column("psnr_db"), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_file_line_and_column() {
        for (row, column, words) in [
            ("scaling,false,two,0,0.5,,,", "ranks", "\"two\" is not a whole number"),
            ("scaling,false,-2,0,0.5,,,", "ranks", "from 0"),
            ("scaling,maybe,2,0,0.5,,,", "predicted", "true or false"),
            ("sailing,false,2,0,0.5,,,", "study", "scaling, memory, batch, compare"),
            (",false,2,0,0.5,,,", "study", "every row"),
            ("scaling,false,2,0,-0.5,,,", "total_seconds", "a number from 0"),
            ("scaling,false,2,0,inf,,,", "total_seconds", "a number from 0"),
            ("scaling,false,2,0,,,,", "total_seconds", "needs total_seconds"),
            ("scaling,false,,0,0.5,,,", "ranks", "needs ranks"),
            ("scaling,false,0,0,0.5,,,", "ranks", "at least 1"),
            ("scaling,false,2,2,0.5,,,", "rank", "not one of 2 ranks"),
            ("memory,false,,,,64,,", "peak_bytes", "peak_bytes or predicted_bytes"),
        ] {
            let error = table(&["scaling,false,1,0,1.0,,,", row]).expect_err(row).to_string();
            let place = format!("rows.csv, line 3, column {column}: ");
            assert!(error.starts_with(&place) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn lines_of_another_length_and_text_that_is_none_are_refused() {
        let error = table(&["scaling,false"]).expect_err("a short line").to_string();
        assert_eq!(error, "rows.csv, line 2: the line has 2 cells, and the first line 8");
        let bytes = [NAMES.as_bytes(), b"\nscaling,false,1,0,1.0,,,\n\xff,false,1,0,1,,,"].concat();
        let error = Table::parse(Path::new("rows.csv"), &bytes).expect_err("no text").to_string();
        assert_eq!(error, "rows.csv, line 3: cell 1 is not UTF-8 text");
    }

    #[test]
    fn empty_files_and_headers_without_rows_are_refused() {
        for (text, words) in [
            ("", "line 1: the file is empty; a table of a study begins with study,predicted"),
            ("\n\n", "line 1: the file is empty"),
            (NAMES, "line 2: there is a first line with names, but no row"),
            ("study,total_seconds\nscaling,1", "line 1, column predicted: the column is missing"),
            ("study,study\nscaling,1", "line 1, column study: the column is there twice"),
        ] {
            let error =
                Table::parse(Path::new("rows.csv"), text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn problems_have_their_current_names() {
        let text = "study,predicted,total_seconds,ranks,problem\nscaling,false,1,1,highres-color\n\
                    scaling,false,1,1,mri";
        let table = Table::parse(Path::new("rows.csv"), text.as_bytes()).expect("rows");
        let names = vec![Some("deblur".to_owned()), Some("mri".to_owned())];
        assert_eq!(table.column("problem"), Some(&Values::Text(names)));
    }

    #[test]
    fn columns_of_later_versions_are_left_out_and_named() {
        let text = "study,predicted,total_seconds,ranks,colour\nscaling,false,1,1,red";
        let table = Table::parse(Path::new("rows.csv"), text.as_bytes()).expect("rows");
        assert_eq!(table.ignored, ["colour"]);
        assert_eq!(table.columns.len(), 4);
    }

    #[test]
    fn numbers_that_diverged_are_no_points() {
        let text = "study,predicted,total_seconds,ranks,data_term\nscaling,false,1,1,NaN";
        let table = Table::parse(Path::new("rows.csv"), text.as_bytes()).expect("rows");
        assert!(table.column("data_term").is_some_and(Values::is_empty));
    }
}
