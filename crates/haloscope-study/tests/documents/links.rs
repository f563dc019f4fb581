//! Figures in the text of links to raw results.
//!
//! A number with a unit in the text of a link to a file under `bench/runs` is right if a number of the file, in that unit, rounds to it.
//! A unit may follow the last number of a list or a range: `92.3 and 93.7 %`, `7 to 34 ms`. What is calculated from several numbers of a file
//! belongs beside the link. A wrong figure passes if another number of the file happens to round to it: large files have many. Only how many times as long as haloscope the fastest other program takes is calculated here, for each case.
//!
//! Numbers of a file have the unit that follows them in words, or that the name of their column or key has (`total_seconds`, `peak_bytes`).
//! Those without one may be shares of 1, percentages or ratios, but no times, sizes or decibels.

use std::collections::BTreeMap;

use serde_json::{Deserializer, Value};

use super::{document, fastest_peer, number_of, path, raw, rounds_to};

const UNITS: [&str; 8] = ["%", "dB", "times", "×", "s", "ms", "MB", "GB"];

/// The units of columns and keys that have one of these words in their names, of which the first counts.
const NAMES: [(&str, &str); 6] = [
    ("seconds", "s"),
    ("megabytes", "MB"),
    ("bytes", "B"),
    ("_mb", "MB"),
    ("_db", "dB"),
    ("psnr", "dB"),
];

/// A number of a raw file.
struct Number {
    value: f64,
    unit: Option<&'static str>,
}

impl Number {
    fn named(name: &str, value: f64) -> Self {
        let unit = NAMES.into_iter().find(|(word, _)| name.contains(word));
        Self { value, unit: unit.map(|(_, unit)| unit) }
    }

    /// Whether it rounds to a figure as it is written.
    fn is(&self, figure: &str, unit: &str) -> bool {
        factors(self.unit, unit).iter().any(|factor| rounds_to(self.value * factor, figure))
    }
}

/// What a number is multiplied by to be in the other unit; nothing if the two do not belong together.
fn factors(from: Option<&str>, to: &str) -> &'static [f64] {
    match (from, to) {
        (None, "%") => &[1.0, 100.0],
        (None, "times" | "×") | (Some("times"), "×") | (Some("×"), "times") => &[1.0],
        (Some(from), to) if from == to => &[1.0],
        (Some("s"), "ms") | (Some("GB"), "MB") => &[1e3],
        (Some("ms"), "s") | (Some("MB"), "GB") => &[1e-3],
        (Some("B"), "MB") => &[1e-6],
        (Some("B"), "GB") => &[1e-9],
        _ => &[],
    }
}

/// What is wrong with the figures in the links of a document, and how many there are.
pub(crate) fn check_links(text: &str) -> (Vec<String>, usize) {
    let mut files: BTreeMap<&str, Vec<Number>> = BTreeMap::new();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (words, file) in links(text) {
        for (figure, unit) in figures(words) {
            let Some(unit) = unit else { continue };
            let numbers = files.entry(file).or_insert_with(|| numbers_of(file));
            if !numbers.iter().any(|number| number.is(figure, unit)) {
                wrong.push(format!("{figure} {unit} of `{words}` is not in {file}"));
            }
            checked += 1;
        }
    }
    (wrong, checked)
}

/// The texts of links to raw files, and these files.
fn links(text: &str) -> Vec<(&str, &str)> {
    let targets = text.match_indices("](../bench/runs/").map(|(at, _)| {
        let words = text[..at].rsplit('[').next().unwrap_or_default();
        let target = text[at + "](../".len()..].split([')', '#']).next().unwrap_or_default();
        (words, target)
    });
    targets.filter(|(_, target)| path(target).is_file()).collect()
}

/// The numbers of a text and their units, without those that are parts of names, sizes and dates.
pub(crate) fn figures(text: &str) -> Vec<(&str, Option<&'static str>)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let is_begun = rest[..at].ends_with(|c: char| c.is_alphanumeric() || "._".contains(c));
        let (number, after) = number_of(&rest[at..]);
        let unit = unit_of(after);
        if !is_begun && (unit.is_some() || !after.starts_with(char::is_alphanumeric)) {
            found.push((number.trim_end_matches('.'), unit));
        }
        rest = after;
    }
    found
}

/// The unit after a number, or after the last number of its list or range.
fn unit_of(after: &str) -> Option<&'static str> {
    let is_next = |unit: &&str| {
        // A cross after a space is that of a size.
        let text = if *unit == "×" { after } else { after.trim_start() };
        text.strip_prefix(*unit).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    UNITS.into_iter().find(is_next).or_else(|| {
        let words = [",", " and", " to"];
        let next = words.into_iter().find_map(|word| after.strip_prefix(word))?;
        let next = next.strip_prefix([' ', '\n'])?;
        let (number, after) = number_of(next);
        if number.is_empty() { None } else { unit_of(after) }
    })
}

/// The numbers of a raw file.
fn numbers_of(file: &str) -> Vec<Number> {
    let text = document(file);
    let mut found = Vec::new();
    match file.rsplit('.').next() {
        Some("csv") => {
            let mut table = csv::Reader::from_reader(text.as_bytes());
            let header = table.headers().expect("a header").clone();
            for row in table.records() {
                for (name, cell) in header.iter().zip(&row.expect("a row")) {
                    found.extend(cell.parse().ok().map(|value| Number::named(name, value)));
                }
            }
        }
        Some("json" | "jsonl") => {
            // A document, or one for each line.
            for content in Deserializer::from_str(&text).into_iter::<Value>() {
                let content = content.expect("JSON");
                collect("", &content, &mut found);
                let results = content["results"].as_array();
                if results.is_some_and(|all| all.iter().all(|result| result["case"].is_string())) {
                    let ratios = raw(file);
                    let ratios = ratios.values().filter_map(fastest_peer);
                    found.extend(ratios.map(|value| Number { value, unit: Some("times") }));
                }
            }
        }
        _ => found.extend(said(&text)),
    }
    found
}

/// The numbers of a value of JSON, and those in its words.
fn collect(name: &str, value: &Value, found: &mut Vec<Number>) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| collect(name, one, found)),
        Value::Object(map) => map.iter().for_each(|(name, one)| collect(name, one, found)),
        Value::String(text) => found.extend(said(text)),
        other => found.extend(other.as_f64().map(|value| Number::named(name, value))),
    }
}

fn said(text: &str) -> Vec<Number> {
    let parsed = figures(text).into_iter().filter_map(|(number, unit)| {
        let value = number.parse().ok()?;
        Some(Number { value, unit })
    });
    parsed.collect()
}
