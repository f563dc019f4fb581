//! The figures in README.md, docs/performance.md and docs/model-card.md are those of the raw results that they name.
//!
//! A comment before a table says how to check it:
//!
//! - `<!-- raw: FILE -->`: rows are cases of the file, columns its programs, and a cell holds the program's best time,
//!   in brackets its ratio to haloscope (with `, against PEER`, the peer's ratio to it), memory and PSNR.
//! - `<!-- scaling: FILE -->`: rows are problems of a study, columns a mode and a backend, cells efficiencies in percent.
//! - `<!-- ratios -->`: a cell links to a file and holds the range, over the cases whose names begin with one of the
//!   words in the row's own comment, of how many times as long as haloscope the fastest other program takes.
//! - `<!-- demo: FOLDER -->`: rows are problems of the demo; their cells are the PSNR before, with total variation, and with
//!   the built-in denoiser, of the problem's files in the folder.
//! - `<!-- quality: FOLDER -->`: rows are sets of images and noise levels (an empty set is that of the row above); the columns
//!   `noisy` and `**builtin**` are the PSNR in the set's file in the folder.
//!
//! A figure is right if the raw value rounds to it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use haloscope_study::figures::{scaling, summarise};
use haloscope_study::results::read_rows;
use haloscope_study::row::Mode;
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

fn document(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
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

/// Whether a value rounds to the number as it is written.
fn rounds_to(value: f64, written: &str) -> bool {
    let Ok(number) = written.parse::<f64>() else { return false };
    let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let step = 10_f64.powi(-i32::try_from(decimals).expect("few decimals"));
    (value - number).abs() <= step * (0.5 + 1e-9)
}

/// A table: the comment before it, the header's cells, and the cells of each row.
struct Table {
    marker: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The tables of a text; one without a marker has an empty one.
fn tables(text: &str) -> Vec<Table> {
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
                header: cells(rows[0]),
                rows: rows[2..].iter().map(|row| cells(row)).collect(),
            });
        }
        at += rows.len().max(1);
    }
    tables
}

/// What is wrong with the figures of a table, and how many there are.
fn check(table: &Table) -> (Vec<String>, usize) {
    match table.marker.split_once(": ") {
        Some(("raw", of)) => match of.split_once(", against ") {
            Some((file, peer)) => check_times(table, &raw(file), Some(peer)),
            None => check_times(table, &raw(of), None),
        },
        Some(("scaling", file)) => check_scaling(table, file),
        Some(("demo", folder)) => check_demo(table, folder),
        Some(("quality", folder)) => check_quality(table, folder),
        None if table.marker == "ratios" => check_ratios(table),
        _ => panic!("the marker `{}` is not known", table.marker),
    }
}

fn check_times(table: &Table, best: &Best, against: Option<&str>) -> (Vec<String>, usize) {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for row in &table.rows {
        let is_case = |case: &&String| {
            // The raw files that there are write one rank so.
            let case = case.replace(", 1 ranks", ", 1 rank");
            case.strip_prefix(&row[0]).is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
        };
        let cases: Vec<&String> = best.keys().filter(is_case).collect();
        let [case] = cases[..] else {
            wrong.push(format!("`{}` is {} cases of the raw file", row[0], cases.len()));
            continue;
        };
        for (program, cell) in table.header.iter().zip(row).skip(1) {
            let result = best[case].get(program);
            for figure in cell.split([',', '(', ')']).map(str::trim).filter(|part| !part.is_empty())
            {
                checked += 1;
                if !is_figure(figure, result, &best[case], against) {
                    wrong.push(format!(
                        "{case}, {program}: {figure}, but the raw result is {result:?}"
                    ));
                }
            }
        }
    }
    (wrong, checked)
}

/// Whether one part of a cell is what the raw result says.
fn is_figure(
    figure: &str,
    result: Option<&Value>,
    case: &BTreeMap<String, Value>,
    against: Option<&str>,
) -> bool {
    let Some(result) = result else { return figure == "–" };
    let field = |name: &str| result[name].as_f64();
    let end = figure.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(figure.len());
    let (number, unit) = figure.split_at(end);
    let value = match unit.trim() {
        "s" => Some(seconds(result)),
        "ms" => Some(seconds(result) * 1e3),
        "µs" => Some(seconds(result) * 1e6),
        "MB" => field("peak_mb"),
        "dB" => field("psnr_db"),
        "×" => match against {
            Some(peer) => case.get(peer).map(|peer| seconds(peer) / seconds(result)),
            None => case.get("haloscope").map(|ours| seconds(result) / seconds(ours)),
        },
        _ => None,
    };
    value.is_some_and(|value| rounds_to(value, number))
}

fn check_scaling(table: &Table, file: &str) -> (Vec<String>, usize) {
    let rows = read_rows(&path(file)).expect("rows of a study");
    let figures = scaling(&summarise(&rows));
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for row in &table.rows {
        let problem = row[0].split(',').next().unwrap_or_default();
        for (column, cell) in table.header.iter().zip(row).skip(1) {
            let found: Vec<f64> = figures
                .iter()
                .filter(|figure| {
                    let of = &figure.summary.configuration;
                    let mode = match of.mode {
                        Some(Mode::Strong) => "strong",
                        Some(Mode::Weak) => "weak",
                        None => "",
                    };
                    !figure.summary.predicted
                        && of.ranks == 2
                        && of.problem.is_some_and(|of| of.to_string() == problem)
                        && format!("{mode}, {}", of.backend) == *column
                })
                .map(|figure| 100.0 * figure.efficiency)
                .collect();
            checked += 1;
            if found.len() != 1 || !rounds_to(found[0], cell) {
                wrong.push(format!("{problem}, {column}: {cell}, but the rows say {found:?}"));
            }
        }
    }
    (wrong, checked)
}

fn check_demo(table: &Table, folder: &str) -> (Vec<String>, usize) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for row in &table.rows {
        let problem = row[0].trim_matches('`');
        let psnr = |prior: &str, when: &str| {
            let file = format!("{folder}/{problem}-{prior}.json");
            let result: Value = serde_json::from_str(&document(&file)).expect("JSON");
            result[when]["psnr_db"].as_f64().expect("a PSNR")
        };
        let raw = [psnr("builtin", "before"), psnr("tv", "after"), psnr("builtin", "after")];
        for (value, written) in raw.into_iter().zip(&row[1..]) {
            count += 1;
            if !rounds_to(value, written) {
                wrong.push(format!("{problem}: {written} is written, and the file has {value}"));
            }
        }
    }
    (wrong, count)
}

fn check_quality(table: &Table, folder: &str) -> (Vec<String>, usize) {
    let column = |name: &str| table.header.iter().position(|cell| cell == name).expect("a column");
    let columns = [("noisy_psnr_db", column("noisy")), ("psnr_db", column("**builtin**"))];
    let (mut wrong, mut count, mut set) = (Vec::new(), 0, String::new());
    for row in &table.rows {
        if let Some(name) = row[0].split(',').next().filter(|name| !name.is_empty()) {
            set = name.to_lowercase();
        }
        let result: Value =
            serde_json::from_str(&document(&format!("{folder}/{set}.json"))).expect("JSON");
        let sigma: f64 = row[1].parse().expect("a level");
        let levels = result["levels"].as_array().expect("levels");
        let level = levels.iter().find(|level| level["sigma"] == sigma).expect("the level");
        for (key, index) in columns {
            count += 1;
            let (value, written) =
                (level[key].as_f64().expect("a PSNR"), row[index].trim_matches('*'));
            if !rounds_to(value, written) {
                wrong.push(format!(
                    "{set}, {sigma}: {written} is written, and the file has {value}"
                ));
            }
        }
    }
    (wrong, count)
}

fn check_ratios(table: &Table) -> (Vec<String>, usize) {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for row in &table.rows {
        let words = row[0].split_once("<!-- ").and_then(|(_, rest)| rest.split_once(" -->"));
        let words: Vec<&str> =
            words.map(|(words, _)| words.split("; ").collect()).unwrap_or_default();
        for cell in &row[1..] {
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
            let (low, high) = range.split_once(" to ").unwrap_or((range, range));
            checked += 1;
            let is_right = extremes
                .into_iter()
                .zip([low, high])
                .all(|(value, written)| value.is_some_and(|value| rounds_to(value, written)));
            if !is_right {
                wrong.push(format!("{}: {range}, but {file} says {extremes:?}", row[0]));
            }
        }
    }
    (wrong, checked)
}

/// The ratio of the fastest other program to haloscope.
fn fastest_peer(programs: &BTreeMap<String, Value>) -> Option<f64> {
    let ours = seconds(programs.get("haloscope")?);
    let others = programs.iter().filter(|(name, _)| !name.starts_with("haloscope"));
    others.map(|(_, result)| seconds(result) / ours).reduce(f64::min)
}

#[test]
fn the_figures_of_the_documents_are_those_of_the_raw_files() {
    for (name, least) in
        [("README.md", 9), ("docs/performance.md", 250), ("docs/model-card.md", 18)]
    {
        let marked = tables(&document(name)).into_iter().filter(|table| !table.marker.is_empty());
        let (mut wrong, mut checked) = (Vec::new(), 0);
        for (more, figures) in marked.map(|table| check(&table)) {
            wrong.extend(more);
            checked += figures;
        }
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
        assert!(checked >= least, "{name}: only {checked} figures were found");
    }
}

/// The page of measurements has one table without raw results, and says so.
#[test]
fn every_table_of_measurements_names_its_raw_file() {
    let text = document("docs/performance.md");
    let unmarked = tables(&text).iter().filter(|table| table.marker.is_empty()).count();
    assert_eq!(unmarked, text.matches("no raw file").count());
}

/// The guide says what the example of a brain gives.
#[test]
fn the_figures_of_the_brain_are_those_of_its_run() {
    let run = "bench/runs/2026-11-16-amd-epyc/quality/brain.json";
    let result: Value = serde_json::from_str(&document(run)).expect("JSON");
    let psnr = |when: &str| result[when]["psnr_db"].as_f64().expect("a PSNR");
    let words = format!("{:.1} dB for back-projection and {:.1} dB", psnr("before"), psnr("after"));
    let guide = document("docs/guide.md");
    assert!(guide.contains(&words) && guide.contains(run), "{words}");
}

#[test]
fn a_wrong_figure_is_found() {
    let text = document("docs/performance.md");
    for (right, altered) in [
        ("| 791 ms |", "| 792 ms |"),
        ("2878 ms (3.6×)", "2878 ms (3.7×)"),
        ("5.5 s, 254 MB", "5.5 s, 255 MB"),
        ("| 98.3 |", "| 98.4 |"),
        ("| 33.36 | 34.71 |", "| 33.36 | 34.72 |"),
        ("| DRUNet 1×3×256² | 437 ms", "| DRUNet 1×3×257² | 437 ms"),
    ] {
        assert!(text.contains(right), "{right}");
        let tables = tables(&text.replacen(right, altered, 1));
        let wrong: usize = tables
            .iter()
            .filter(|table| !table.marker.is_empty())
            .map(|table| check(table).0.len())
            .sum();
        assert_eq!(wrong, 1, "{altered}");
    }
    let readme = document("README.md").replacen("[3.2 to 3.9×]", "[3.2 to 4.0×]", 1);
    let wrong = tables(&readme).iter().find(|table| table.marker == "ratios").map(check);
    assert_eq!(wrong.map(|(wrong, _)| wrong.len()), Some(1));
}
