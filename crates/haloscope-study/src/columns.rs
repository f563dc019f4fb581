//! The columns of a study's table: their names, their types, and which of them are required.
//!
//! Everything that writes, reads or shows tables uses these columns; a test compares them with the fields of a
//! [`Row`](crate::row::Row).

use serde_json::Value;

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

impl Kind {
    /// The value that a text stands for; nothing for an empty one.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        match self {
            _ if text.is_empty() => Some(Value::Null),
            Self::Text | Self::Word(_) => Some(text.into()),
            Self::Flag => text.parse::<bool>().ok().map(Value::from),
            Self::Count => text.parse::<u64>().ok().map(Value::from),
            Self::Amount | Self::Number => text.parse::<f64>().ok().map(Value::from),
        }
    }
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
const STUDIES: &[&str] = &["scaling", "memory", "batch", "compare", "counts", "overlap"];

/// All columns, in the order in which they are written.
pub const COLUMNS: &[Column] = &[
    needed("study", Kind::Word(STUDIES)),
    needed("predicted", Kind::Flag),
    column("system", Kind::Text),
    column("problem", Kind::Text),
    column("mode", Kind::Word(&["strong", "weak", "contention"])),
    column("backend", Kind::Text),
    column("model", Kind::Text),
    column("height", Kind::Count),
    column("width", Kind::Count),
    column("depth", Kind::Count),
    column("patch", Kind::Count),
    column("overlap", Kind::Count),
    column("batch", Kind::Count),
    column("budget", Kind::Text),
    column("level", Kind::Text),
    column("operators", Kind::Count),
    column("distribute", Kind::Word(&["both", "physics", "denoiser"])),
    column("layout", Kind::Word(&["replicated", "sharded"])),
    column("device", Kind::Text),
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
    column("low_seconds", Kind::Amount),
    column("high_seconds", Kind::Amount),
    column("bytes_sent", Kind::Count),
    column("predicted_bytes_sent", Kind::Count),
    column("halo_rounds", Kind::Count),
    column("predicted_halo_rounds", Kind::Count),
    column("peak_bytes", Kind::Count),
    column("resident_bytes", Kind::Count),
    column("predicted_bytes", Kind::Count),
    column("device_name", Kind::Text),
    column("predicted_device_bytes", Kind::Count),
    column("pixels_computed", Kind::Count),
    column("pixels_kept", Kind::Count),
    column("automatic_batch", Kind::Count),
    column("seam_rms", Kind::Amount),
    column("seam_largest", Kind::Amount),
    column("data_term", Kind::Number),
    column("relative_change", Kind::Number),
    column("psnr_db", Kind::Number),
];

/// The columns that tables of earlier versions do not have.
pub(crate) const LATER: &[&str] = &[
    "distribute",
    "layout",
    "device",
    "device_name",
    "predicted_device_bytes",
    "budget",
    "level",
    "low_seconds",
    "high_seconds",
    "predicted_bytes_sent",
    "halo_rounds",
    "predicted_halo_rounds",
    "resident_bytes",
    "automatic_batch",
    "seam_rms",
    "seam_largest",
];

/// The columns of a table that studies wrote, this version or an earlier one, if these are their names.
pub(crate) fn of_study<'a>(names: impl Iterator<Item = &'a [u8]>) -> Option<Vec<&'static Column>> {
    let names: Vec<&[u8]> = names.collect();
    let is_there =
        |column: &&Column| !LATER.contains(&column.name) || names.contains(&column.name.as_bytes());
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_there).collect();
    columns.iter().map(|column| column.name.as_bytes()).eq(names).then_some(columns)
}

/// The names of all columns.
pub fn names() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|column| column.name)
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_needed: false }
}

const fn needed(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_needed: true }
}
