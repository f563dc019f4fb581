//! The columns of a study's table: their names, what they hold, and which of them a row cannot do without.
//!
//! A table has one row for each configuration, repetition, iteration and rank. A cell is empty where the column
//! does not apply to the row's study.

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number from 0.
    Count,
    /// A number that is not negative.
    Amount,
    /// Any number.
    Number,
}

/// A column that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in the first line of the table.
    pub name: &'static str,
    /// What its cells are.
    pub kind: Kind,
    /// Whether a table without it is refused.
    pub is_needed: bool,
}

/// The studies that write rows.
pub const STUDIES: &[&str] = &["scaling", "memory", "batch", "compare"];

/// All columns, in the order in which they are written.
pub const COLUMNS: &[Column] = &[
    needed("study", Kind::Word(STUDIES)),
    needed("predicted", Kind::Flag),
    column("system", Kind::Text),
    column("problem", Kind::Text),
    column("mode", Kind::Word(&["strong", "weak"])),
    column("backend", Kind::Text),
    column("model", Kind::Text),
    column("height", Kind::Count),
    column("width", Kind::Count),
    column("depth", Kind::Count),
    column("patch", Kind::Count),
    column("overlap", Kind::Count),
    column("batch", Kind::Count),
    column("operators", Kind::Count),
    column("ranks", Kind::Count),
    column("threads", Kind::Count),
    column("repetition", Kind::Count),
    column("iteration", Kind::Count),
    column("rank", Kind::Count),
    needed("total_seconds", Kind::Amount),
    column("data_seconds", Kind::Amount),
    column("prior_seconds", Kind::Amount),
    column("transfer_seconds", Kind::Amount),
    column("waiting_seconds", Kind::Amount),
    column("bytes_sent", Kind::Count),
    column("peak_bytes", Kind::Count),
    column("predicted_bytes", Kind::Count),
    column("pixels_computed", Kind::Count),
    column("pixels_kept", Kind::Count),
    column("data_term", Kind::Number),
    column("relative_change", Kind::Number),
    column("psnr_db", Kind::Number),
];

/// The columns of which a row of a study fills at least one, for each thing that its charts need.
#[must_use]
pub fn needs_of(study: &str) -> &'static [&'static [&'static str]] {
    match study {
        "scaling" => &[&["ranks"], &["total_seconds"]],
        "memory" => &[&["width"], &["peak_bytes", "predicted_bytes"]],
        "batch" => &[&["batch"], &["total_seconds"]],
        "compare" => &[&["system"], &["total_seconds"]],
        _ => &[],
    }
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_needed: false }
}

const fn needed(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_needed: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_those_that_studies_write() {
        let read: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let written: Vec<&str> = crate::row::COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(read, written);
    }
}
