//! Tables in documents and the raw results that they name.
//!
//! A comment before a table says how to check it:
//!
//! - `<!-- raw: FILE -->`: rows are cases of the file, columns its programs, and a cell holds the program's best time,
//!   in brackets its ratio to haloscope (with `, against PEER`, the peer's ratio to it), memory and PSNR. A dash is right where the file has
//!   no such result.
//! - `<!-- scaling: FILE -->`: rows are problems of a study with their sizes (`deblur, 512²`, `deblur, 2048 × 1366`), columns a mode and a
//!   backend (`strong, mpi`, and `strong, mpi, sharded` for images in shards), cells efficiencies of two ranks in percent.
//! - `<!-- ratios -->`: a cell links to a file and holds the range, over the cases whose names begin with one of the
//!   words in the row's own comment, of how many times as long as haloscope the fastest other program takes.
//! - `<!-- demo: FOLDER -->`: rows are problems of the demo; their cells are the PSNR before, with total variation, and with
//!   the built-in denoiser, of the problem's files in the folder.
//! - `<!-- quality: FOLDER -->`: rows are sets of images and noise levels (an empty set is that of the row above); the columns
//!   `noisy` and `**builtin**` are the PSNR in the set's file in the folder.
//! - `<!-- slabs: FILE, FILE -->`: rows are cases of the files, of threads and of processes; columns are seconds and shares in percent.
//! - `<!-- peaks: FILE -->`: columns are numbers of ranks, rows layouts and a formula of them; cells the largest peak in MB.
//! - `<!-- predicted: FOLDER -->`: rows are sizes, with a number of ranks unless it is 64, columns a machine and a layout; cells the
//!   efficiency in the printed predictions.
//! - `<!-- said: FILE, FILE -->`: every figure of the cells is a value of the files, or one that they say in words.
//!
//! A figure is right if the raw value rounds to it. What rounds can be written: `rewrite` puts the raw values in the places of all figures,
//! with as many decimals as are there. `links` checks figures in the text of links.

pub(crate) mod links;

use std::collections::BTreeMap;
use std::path::PathBuf;

use haloscope_study::figures::{scaling, summarise};
use haloscope_study::results::read_rows;
use haloscope_study::row::{Layout, Mode};
use serde_json::Value;

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

pub(crate) fn document(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A table: the comment before it, the line of its first row in the text, the header's cells, and the cells of each row.
pub(crate) struct Table {
    pub marker: String,
    line: usize,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A number as it is written in a cell, and what it should be.
#[derive(Debug)]
pub(crate) struct Figure {
    row: usize,
    column: usize,
    /// Where it begins in its cell.
    at: usize,
    written: String,
    value: Option<f64>,
}

impl Figure {
    /// The number `written`, which is a part of the cell.
    fn new((row, column): (usize, usize), cell: &str, written: &str, value: Option<f64>) -> Self {
        let at = written.as_ptr().addr().checked_sub(cell.as_ptr().addr());
        let at = at.filter(|at| cell[*at..].starts_with(written)).expect("a part of the cell");
        Self { row, column, at, written: written.to_owned(), value }
    }

    fn is_right(&self) -> bool {
        match self.value {
            Some(value) => rounds_to(value, &self.written),
            // There is no such result, and the cell says so.
            None => self.written == "–",
        }
    }

    /// The number that should be there, with as many decimals as are there.
    fn corrected(&self) -> Option<String> {
        let decimals = self.written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        // A dash does not say how what it hides is written.
        let value = self.value.filter(|_| !self.is_right() && self.written != "–");
        value.map(|value| format!("{value:.decimals$}"))
    }
}

/// Whether a value rounds to the number as it is written.
fn rounds_to(value: f64, written: &str) -> bool {
    let Ok(number) = written.parse::<f64>() else { return false };
    let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let step = 10_f64.powi(-i32::try_from(decimals).expect("few decimals"));
    (value - number).abs() <= step * (0.5 + 1e-9)
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The tables of a text; one without a marker has an empty one.
pub(crate) fn tables(text: &str) -> Vec<Table> {
    let lines: Vec<&str> = text.lines().collect();
    let mut tables = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let rows: Vec<&str> =
            lines[at..].iter().take_while(|line| line.starts_with('|')).copied().collect();
        if rows.len() > 2 {
            let marker = at.checked_sub(1).map_or("", |before| lines[before]);
            let marker = marker.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            tables.push(Table {
                marker: marker.unwrap_or_default().to_owned(),
                line: at + 2,
                header: cells(rows[0]),
                rows: rows[2..].iter().map(|row| cells(row)).collect(),
            });
        }
        at += rows.len().max(1);
    }
    tables
}

/// What is wrong with the figures of a table, and how many there are.
pub(crate) fn check(table: &Table) -> (Vec<String>, usize) {
    let figures = figures(table);
    let wrong = figures.iter().filter(|figure| !figure.is_right()).map(|figure| {
        let (row, column) = (&table.rows[figure.row][0], table.header.get(figure.column));
        format!(
            "{row}, {column:?}: {} is written, and the raw value is {:?}",
            figure.written, figure.value
        )
    });
    (wrong.collect(), figures.len())
}

/// The text with the raw values in the places of all figures of its marked tables.
pub(crate) fn rewrite(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    for table in tables(text).iter().filter(|table| !table.marker.is_empty()) {
        for row in 0..table.rows.len() {
            let line = &mut lines[table.line + row];
            let own = figures(table).into_iter().filter(|figure| figure.row == row);
            let mut wrong: Vec<(Figure, String)> =
                own.filter_map(|figure| figure.corrected().map(|right| (figure, right))).collect();
            // From the last one on, so that those before stay where they are. One number may be both ends of a range.
            wrong.sort_by_key(|(figure, _)| std::cmp::Reverse((figure.column, figure.at)));
            wrong.dedup_by_key(|(figure, _)| (figure.column, figure.at));
            for (figure, right) in wrong {
                // The cell is what comes after as many bars, without the spaces around it.
                let Some((bar, _)) = line.match_indices('|').nth(figure.column) else { continue };
                let spaces = line[bar + 1..].len() - line[bar + 1..].trim_start().len();
                let start = bar + 1 + spaces + figure.at;
                line.replace_range(start..start + figure.written.len(), &right);
            }
        }
    }
    lines.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
}

fn figures(table: &Table) -> Vec<Figure> {
    match table.marker.split_once(": ") {
        Some(("raw", of)) => match of.split_once(", against ") {
            Some((file, peer)) => times(table, &raw(file), Some(peer)),
            None => times(table, &raw(of), None),
        },
        Some(("scaling", file)) => efficiencies(table, file),
        Some(("demo", folder)) => demos(table, folder),
        Some(("quality", folder)) => qualities(table, folder),
        Some(("slabs", files)) => slabs(table, files),
        Some(("peaks", file)) => peaks(table, file),
        Some(("predicted", folder)) => predictions(table, folder),
        Some(("said", file)) => said(table, file),
        None if table.marker == "ratios" => ratios(table),
        _ => panic!("the marker `{}` is not known", table.marker),
    }
}

/// The number at the beginning of a text, and what follows it.
fn number_of(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// The fastest result of each program in each case.
type Best = BTreeMap<String, BTreeMap<String, Value>>;

fn raw(file: &str) -> Best {
    let content: Value = serde_json::from_str(&document(file)).expect("raw results are JSON");
    let mut best = Best::new();
    for result in content["results"].as_array().expect("a list of results") {
        let case = result["case"].as_str().expect("a case").to_owned();
        let program = result["peer"].as_str().unwrap_or("haloscope").to_owned();
        let kept = best.entry(case).or_default().entry(program).or_insert_with(|| result.clone());
        if seconds(result) < seconds(kept) {
            *kept = result.clone();
        }
    }
    best
}

fn seconds(result: &Value) -> f64 {
    result["seconds"].as_f64().expect("seconds are a number")
}

fn times(table: &Table, best: &Best, against: Option<&str>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let is_case = |case: &&String| {
            // The raw files that there are write one rank so.
            let case = case.replace(", 1 ranks", ", 1 rank");
            case.strip_prefix(&row[0]).is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
        };
        let cases: Vec<&String> = best.keys().filter(is_case).collect();
        let [case] = cases[..] else {
            figures.push(Figure::new((index, 0), &row[0], &row[0], None));
            continue;
        };
        for (column, (program, cell)) in table.header.iter().zip(row).enumerate().skip(1) {
            let result = best[case].get(program);
            for part in cell.split([',', '(', ')']).map(str::trim).filter(|part| !part.is_empty()) {
                let (number, unit) = number_of(part);
                let written = if number.is_empty() { part } else { number };
                let value = result.and_then(|result| match written {
                    // The dash hides a result.
                    "–" => Some(seconds(result)),
                    _ => of_unit(unit, result, &best[case], against),
                });
                figures.push(Figure::new((index, column), cell, written, value));
            }
        }
    }
    figures
}

/// What a raw result says in a unit.
fn of_unit(
    unit: &str,
    result: &Value,
    case: &BTreeMap<String, Value>,
    against: Option<&str>,
) -> Option<f64> {
    match unit.trim() {
        "s" => Some(seconds(result)),
        "ms" => Some(seconds(result) * 1e3),
        "µs" => Some(seconds(result) * 1e6),
        "MB" => result["peak_mb"].as_f64(),
        "dB" => result["psnr_db"].as_f64(),
        "×" => match against {
            Some(peer) => case.get(peer).map(|peer| seconds(peer) / seconds(result)),
            None => case.get("haloscope").map(|ours| seconds(result) / seconds(ours)),
        },
        _ => None,
    }
}

fn efficiencies(table: &Table, file: &str) -> Vec<Figure> {
    let rows = read_rows(&path(file)).expect("rows of a study");
    let all = scaling(&summarise(&rows));
    let mut figures = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let (problem, size) = row[0].split_once(", ").expect("a problem and its size");
        let side = |text: &str| number_of(text).0.parse::<usize>().expect("the side of an image");
        let (height, width) = (side(size), side(size.split("× ").last().unwrap_or(size)));
        for (place, (column, cell)) in table.header.iter().zip(row).enumerate().skip(1) {
            let found: Vec<f64> = all
                .iter()
                .filter(|figure| {
                    let of = &figure.summary.configuration;
                    let mode = match of.mode {
                        Some(Mode::Strong) => "strong",
                        Some(Mode::Weak) => "weak",
                        Some(Mode::Contention) | None => "",
                    };
                    let is_sharded = of.layout == Some(Layout::Sharded);
                    let layout = if is_sharded { ", sharded" } else { "" };
                    !figure.summary.predicted
                        && of.ranks == 2
                        && of.problem.is_some_and(|of| of.to_string() == problem)
                        // What grows with the ranks is another side than the height.
                        && of.height == height
                        && (of.width == width || mode == "weak")
                        && format!("{mode}, {}{layout}", of.backend) == *column
                })
                .map(|figure| 100.0 * figure.efficiency)
                .collect();
            let value = found.first().copied().filter(|_| found.len() == 1);
            figures.push(Figure::new((index, place), cell, cell, value));
        }
    }
    figures
}

fn demos(table: &Table, folder: &str) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let problem = row[0].trim_matches('`');
        let psnr = |prior: &str, when: &str| {
            let file = format!("{folder}/{problem}-{prior}.json");
            let result: Value = serde_json::from_str(&document(&file)).expect("JSON");
            result[when]["psnr_db"].as_f64()
        };
        let raw = [psnr("builtin", "before"), psnr("tv", "after"), psnr("builtin", "after")];
        let places = raw.into_iter().zip(&row[1..]).enumerate();
        figures.extend(
            places.map(|(at, (value, cell))| Figure::new((index, at + 1), cell, cell, value)),
        );
    }
    figures
}

fn qualities(table: &Table, folder: &str) -> Vec<Figure> {
    let column = |name: &str| table.header.iter().position(|cell| cell == name).expect("a column");
    let columns = [("noisy_psnr_db", column("noisy")), ("psnr_db", column("**builtin**"))];
    let (mut figures, mut set) = (Vec::new(), String::new());
    for (index, row) in table.rows.iter().enumerate() {
        if let Some(name) = row[0].split(',').next().filter(|name| !name.is_empty()) {
            set = name.to_lowercase();
        }
        let result: Value =
            serde_json::from_str(&document(&format!("{folder}/{set}.json"))).expect("JSON");
        let sigma: f64 = row[1].parse().expect("a level");
        let levels = result["levels"].as_array().expect("levels");
        let level = levels.iter().find(|level| level["sigma"] == sigma).expect("the level");
        for (key, at) in columns {
            let written = row[at].trim_matches('*');
            figures.push(Figure::new((index, at), &row[at], written, level[key].as_f64()));
        }
    }
    figures
}

fn ratios(table: &Table) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let words = row[0].split_once("<!-- ").and_then(|(_, rest)| rest.split_once(" -->"));
        let words: Vec<&str> =
            words.map(|(words, _)| words.split("; ").collect()).unwrap_or_default();
        for (column, cell) in row.iter().enumerate().skip(1) {
            let link = cell.strip_prefix('[').and_then(|cell| cell.strip_suffix(')'));
            let Some((range, file)) = link.and_then(|link| link.split_once("×](")) else {
                continue;
            };
            let ratios = raw(file)
                .iter()
                .filter(|(case, _)| words.iter().any(|word| case.starts_with(word)))
                .filter_map(|(_, programs)| fastest_peer(programs))
                .collect::<Vec<f64>>();
            let extremes = [f64::min, f64::max].map(|of| ratios.iter().copied().reduce(of));
            let ends: Vec<&str> = range.split(" to ").collect();
            // One number is both ends.
            let ends = if ends.len() == 1 { vec![ends[0], ends[0]] } else { ends };
            for (written, value) in ends.into_iter().zip(extremes) {
                figures.push(Figure::new((index, column), cell, written, value));
            }
        }
    }
    figures
}

/// The ratio of the fastest other program to haloscope.
fn fastest_peer(programs: &BTreeMap<String, Value>) -> Option<f64> {
    let ours = seconds(programs.get("haloscope")?);
    let others = programs.iter().filter(|(name, _)| !name.starts_with("haloscope"));
    others.map(|(_, result)| seconds(result) / ours).reduce(f64::min)
}

/// The lines of a file of JSON.
fn lines(file: &str) -> Vec<Value> {
    let text = document(file);
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn slabs(table: &Table, files: &str) -> Vec<Figure> {
    let all: Vec<Value> = files.split(", ").flat_map(lines).collect();
    let mut figures = Vec::new();
    let mut ranks = "";
    for (index, row) in table.rows.iter().enumerate() {
        ranks = match &row[0][..] {
            "" => ranks,
            "threads" => "threads",
            _ => "MPI",
        };
        let case = row[1].split(',').next().unwrap_or_default();
        let is_case = |line: &&Value| {
            let name = line["case"].as_str().unwrap_or_default();
            name.contains(&format!(", {ranks}, ")) && name.ends_with(case)
        };
        let found = all.iter().find(is_case);
        let of = |key: &str| found.and_then(|line| line[key].as_f64());
        let messages = of("exchange_seconds").zip(of("seconds")).map(|(part, all)| part / all);
        let values = [of("seconds"), of("share_of_the_machine"), of("plain_efficiency"), messages];
        for (at, value) in values.into_iter().enumerate() {
            let value = if at == 0 { value } else { value.map(|share| 100.0 * share) };
            let cell = &row[at + 2];
            figures.push(Figure::new((index, at + 2), cell, number_of(cell).0, value));
        }
    }
    figures
}

fn peaks(table: &Table, file: &str) -> Vec<Figure> {
    let all = lines(file);
    let mut figures = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let layout = row[0].trim_matches('`').trim_matches('"');
        for (column, cell) in row.iter().enumerate().skip(1) {
            let ranks: f64 = table.header[column].parse().expect("a number of ranks");
            let value = if let Some((fixed, divided)) = row[0].split_once(" + ") {
                let of = |text: &str| number_of(text).0.parse::<f64>().ok();
                of(fixed).zip(of(divided)).map(|(fixed, divided)| fixed + divided / ranks)
            } else {
                let line = all
                    .iter()
                    .find(|line| line["layout"] == layout && line["ranks"].as_f64() == Some(ranks));
                let peaks = line.and_then(|line| line["peak_mb"].as_array());
                peaks.and_then(|list| list.iter().filter_map(Value::as_f64).reduce(f64::max))
            };
            figures.push(Figure::new((index, column), cell, number_of(cell).0, value));
        }
    }
    figures
}

fn predictions(table: &Table, folder: &str) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let (size, ranks) = match row[0].split_once(", ") {
            Some((size, ranks)) => (size, ranks.trim_end_matches(" ranks")),
            None => (row[0].as_str(), "64"),
        };
        let problem = match size.strip_suffix('³') {
            Some(side) => {
                format!("tomography-3d {side}x{side}x{side}, drunet:32-64-128-256:2, untiled")
            }
            None => ["deblur ", "x", ", drunet, untiled"].join(size.trim_end_matches('²')),
        };
        for (column, cell) in row.iter().enumerate().skip(1) {
            let Some((machine, layout)) = table.header[column].split_once(", ") else { continue };
            let file = match machine {
                "cores" => "predict-cpu.txt",
                "GPUs" => "predict-gpu.txt",
                _ => continue,
            };
            let parts = if layout == "sharded" { ", in shards" } else { "" };
            let begin = format!("{problem}, {ranks} ranks (mpi){parts} ");
            let text = document(&format!("{folder}/{file}"));
            let line = text.lines().find(|line| line.starts_with(&begin));
            let percent = line.and_then(|line| line.split_once(" %")).and_then(|(before, _)| {
                before.rsplit(' ').next().and_then(|number| number.parse().ok())
            });
            figures.push(Figure::new((index, column), cell, number_of(cell).0, percent));
        }
    }
    figures
}

fn said(table: &Table, files: &str) -> Vec<Figure> {
    let text: String = files.split(", ").map(document).collect();
    let mut values = Vec::new();
    // A document, or one for each line.
    for content in
        serde_json::Deserializer::from_str(&text).into_iter::<Value>().map_while(Result::ok)
    {
        leaves(&content, &mut values);
    }
    let mut figures = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate().skip(1) {
            let bytes = cell.as_bytes();
            let starts = (0..bytes.len()).filter(|&at| {
                let is_begun =
                    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'.');
                bytes[at].is_ascii_digit() && !is_begun && cell.is_char_boundary(at)
            });
            for start in starts {
                let (number, rest) = number_of(&cell[start..]);
                let unit = rest.trim_start().split([' ', ',', ':', ')']).next().unwrap_or_default();
                let scale = match unit {
                    "GB" => 1e-9,
                    "MB" => 1e-6,
                    "ms" => 1e3,
                    "s" | "dB" => 1.0,
                    _ => continue,
                };
                let is_said = says(&text, &format!("{number} {unit}"));
                let own = number.parse::<f64>().ok().filter(|_| is_said);
                let leaf = values
                    .iter()
                    .map(|value| value * scale)
                    .find(|value| rounds_to(*value, number));
                figures.push(Figure::new((index, column), cell, number, own.or(leaf)));
            }
        }
    }
    figures
}

/// Whether a text has the words, and not as the end of a longer number.
pub(crate) fn says(text: &str, words: &str) -> bool {
    let is_whole = |before: &str| !before.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    text.match_indices(words).any(|(at, _)| is_whole(&text[..at]))
}

/// All numbers of a JSON document.
fn leaves(value: &Value, found: &mut Vec<f64>) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| leaves(one, found)),
        Value::Object(map) => map.values().for_each(|one| leaves(one, found)),
        other => found.extend(other.as_f64()),
    }
}
