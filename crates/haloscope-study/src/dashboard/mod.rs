//! Dashboards: the tables of studies as one HTML file that works without a network.
//!
//! This module reads and checks the tables and embeds them in the page. The page's own code is in `page/`: `model.js`
//! computes speedups and medians, and `charts.js` draws. The plotting library is Apache ECharts, minified, in `vendor/`;
//! `scripts/fetch-echarts` names its source. No markup in the page comes from a table: rows are JSON, which the scripts
//! show as text.

mod error;
mod run;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use haloscope_job::escape;
use haloscope_nn::models::ModelName;
use serde::Serialize;
use serde_json::Value;

pub use error::{Error, Result};
pub use run::{PROVENANCE, ROWS, Run};
pub use table::{Table, Values};

use crate::columns::{COLUMNS, Kind, names};

/// A page about some runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Dashboard {
    title: String,
    runs: Vec<Run>,
}

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const ECHARTS: &str = include_str!("vendor/echarts.min.js");

/// In the order in which the page runs them.
const SCRIPTS: &[&str] = &[
    include_str!("page/model.js"),
    include_str!("page/text.js"),
    include_str!("page/charts.js"),
    include_str!("page/evidence.js"),
    include_str!("page/draw.js"),
    include_str!("page/filters.js"),
    include_str!("page/table.js"),
    include_str!("page/main.js"),
];

impl Dashboard {
    /// A page about these runs, of which there is at least one.
    pub fn new(title: impl Into<String>, runs: Vec<Run>) -> Result<Self> {
        if runs.is_empty() {
            return Err(Error::Argument(
                "a dashboard needs at least one folder of results or table".into(),
            ));
        }
        let rows: usize = runs.iter().map(|run| run.table.rows).sum();
        if rows > table::MAX_ROWS {
            return Err(Error::Argument(format!(
                "{rows} rows in all are too many for one page; it takes {}",
                table::MAX_ROWS
            )));
        }
        Ok(Self { title: title.into(), runs: apart(runs) })
    }

    /// Reads folders of results, or tables.
    pub fn open(title: impl Into<String>, results: &[impl AsRef<Path>]) -> Result<Self> {
        let runs = results.iter().map(|path| Run::open(path.as_ref())).collect::<Result<_>>()?;
        Self::new(title, runs)
    }

    /// What the page shows.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The whole page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut page = String::with_capacity(ECHARTS.len() + (1 << 17));
        // One pass over the template, so that braces in what is put in stay text.
        let mut rest = PAGE;
        while let Some((before, after)) = rest.split_once("{{") {
            page.push_str(before);
            let (name, after) = after.split_once("}}").unwrap_or((after, ""));
            match name {
                "title" => page.push_str(&escape(&self.title)),
                "style" => page.push_str(STYLE),
                "echarts" => page.push_str(ECHARTS),
                "data" => page.push_str(&self.to_json()),
                "scripts" => page.push_str(&SCRIPTS.join("\n")),
                other => debug_assert!(false, "the template asks for {other}"),
            }
            rest = after;
        }
        page.push_str(rest);
        page
    }

    /// The names of networks with random weights: what is made with them shows how fast they are, not how good.
    fn random_models(&self) -> Vec<&str> {
        let columns = self.runs.iter().filter_map(|run| match run.table.column("model") {
            Some(Values::Text(names)) => Some(names),
            _ => None,
        });
        let names: BTreeSet<&str> = columns.flatten().flatten().map(String::as_str).collect();
        let is_random = |name: &&str| {
            name.parse::<ModelName>().is_ok_and(|network| network.has_random_weights())
        };
        names.into_iter().filter(is_random).collect()
    }

    /// The rows of all runs by column, such that no text in them can end the script element around it.
    fn to_json(&self) -> String {
        let mut columns = BTreeMap::new();
        for column in COLUMNS {
            let parts = self.runs.iter().map(|run| (run.table.rows, run.table.column(column.name)));
            if let Some(packed) = Packed::join(column.kind, parts) {
                columns.insert(column.name, packed);
            }
        }
        let data = Data {
            title: &self.title,
            order: names().collect(),
            runs: self
                .runs
                .iter()
                .map(|run| Header {
                    name: &run.name,
                    rows: run.table.rows,
                    provenance: run.provenance.as_ref(),
                })
                .collect(),
            columns,
            random: self.random_models(),
        };
        let json = serde_json::to_string(&data).expect("names, numbers and JSON become JSON");
        // These are in strings only, where the escape means the same.
        json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    }
}

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    /// The names of all columns as a table has them.
    order: Vec<&'static str>,
    runs: Vec<Header<'a>>,
    columns: BTreeMap<&'static str, Packed<'a>>,
    /// The networks whose weights are random.
    random: Vec<&'a str>,
}

#[derive(Serialize)]
struct Header<'a> {
    name: &'a str,
    rows: usize,
    provenance: Option<&'a Value>,
}

/// A column of all runs. Text is stored once, and each cell as its number.
#[derive(Serialize)]
#[serde(untagged)]
enum Packed<'a> {
    Words { words: Vec<&'a str>, codes: Vec<Option<usize>> },
    Flags(Vec<Option<bool>>),
    Counts(Vec<Option<u64>>),
    Numbers(Vec<Option<f64>>),
}

impl<'a> Packed<'a> {
    /// Nothing if no run has a value.
    fn join(kind: Kind, parts: impl Iterator<Item = (usize, Option<&'a Values>)>) -> Option<Self> {
        let mut words = Vec::new();
        let mut known = HashMap::new();
        let (mut codes, mut flags, mut counts, mut numbers) = (vec![], vec![], vec![], vec![]);
        let mut is_empty = true;
        for (rows, values) in parts {
            is_empty &= values.is_none_or(Values::is_empty);
            match values {
                Some(Values::Text(texts)) => codes.extend(texts.iter().map(|text| {
                    text.as_deref().map(|text| {
                        *known.entry(text).or_insert_with(|| {
                            words.push(text);
                            words.len() - 1
                        })
                    })
                })),
                Some(Values::Flags(values)) => flags.extend(values),
                Some(Values::Counts(values)) => counts.extend(values),
                Some(Values::Numbers(values)) => numbers.extend(values),
                None => match kind {
                    Kind::Text | Kind::Word(_) => codes.extend(vec![None; rows]),
                    Kind::Flag => flags.extend(vec![None; rows]),
                    Kind::Count => counts.extend(vec![None; rows]),
                    Kind::Amount | Kind::Number => numbers.extend(vec![None; rows]),
                },
            }
        }
        (!is_empty).then_some(match kind {
            Kind::Text | Kind::Word(_) => Self::Words { words, codes },
            Kind::Flag => Self::Flags(flags),
            Kind::Count => Self::Counts(counts),
            Kind::Amount | Kind::Number => Self::Numbers(numbers),
        })
    }
}

/// Runs of one name get numbers, so that they can be told from each other.
fn apart(mut runs: Vec<Run>) -> Vec<Run> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for run in &mut runs {
        let times = seen.entry(run.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            run.name = format!("{} ({times})", run.name);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, csv: &str) -> Run {
        let table = Table::parse(Path::new("rows.csv"), csv.as_bytes()).expect("a table");
        Run { name: name.into(), table, provenance: None }
    }

    /// The rows as the page gets them.
    fn data(page: &str) -> Value {
        let (_, rest) = page.split_once("id=\"data\">").expect("the rows");
        let (json, _) = rest.split_once("</script>").expect("their end");
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn a_page_without_runs_is_refused() {
        assert!(Dashboard::new("nothing", Vec::new()).is_err());
    }

    #[test]
    fn columns_of_several_runs_are_joined_row_by_row() {
        let first = run("a", "study,predicted,ranks,total_seconds\nscaling,false,1,2.5");
        let second = run("a", "study,predicted,ranks,total_seconds,model\nscaling,true,2,1,drunet");
        let page = Dashboard::new("two", vec![first, second]).expect("a page").to_html();
        let data = data(&page);
        assert_eq!(data["runs"][1]["name"], "a (2)");
        assert_eq!(data["columns"]["ranks"], serde_json::json!([1, 2]));
        assert_eq!(
            data["columns"]["model"],
            serde_json::json!({ "words": ["drunet"], "codes": [null, 0] })
        );
        assert_eq!(data["columns"].get("psnr_db"), None, "nobody has it");
    }

    #[test]
    fn networks_with_random_weights_are_known_to_the_page() {
        let csv = "study,predicted,ranks,total_seconds,model\nscaling,false,1,1,drunet\n\
                   scaling,false,1,1,weights/net.pth\nscaling,false,1,1,drunet\nscaling,false,1,1,something";
        let page = Dashboard::new("one", vec![run("a", csv)]).expect("a page").to_html();
        assert_eq!(data(&page)["random"], serde_json::json!(["drunet"]));
    }

    #[test]
    fn text_of_a_table_cannot_become_markup() {
        let evil = "</script><script>alert(1)</script>";
        let csv = format!(
            "study,predicted,ranks,total_seconds,model\nscaling,false,1,1,\"{evil}{{{{data}}}}&\""
        );
        let page = Dashboard::new(evil, vec![run(evil, &csv)]).expect("a page").to_html();
        assert!(!page.contains("alert(1)</script>"));
        let model = &data(&page)["columns"]["model"]["words"][0];
        assert_eq!(model.as_str(), Some(&format!("{evil}{{{{data}}}}&")[..]));
    }

    #[test]
    fn the_scripts_do_not_end_their_element_and_ask_for_nothing() {
        for script in SCRIPTS.iter().chain([&ECHARTS]) {
            assert!(!script.contains("</script") && !script.contains("<!--"));
        }
        assert!(PAGE.contains("default-src 'none'"), "the page forbids itself to load anything");
    }
}
