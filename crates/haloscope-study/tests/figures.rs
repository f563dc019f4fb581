//! The figures in the documents are those of the raw results that they name. `documents/mod.rs` says how tables are marked.
//!
//! With `HALOSCOPE_WRITE_FIGURES=1`, the first test writes figures that differ anew from the raw files. `make figures` runs it alone, because
//! the others read the documents meanwhile.

mod documents;

use documents::links::{check_links, figures};
use documents::{check, document, path, rewrite, says, tables};
use serde_json::Value;

/// The documents with marked tables, and how many figures they have at least.
const DOCUMENTS: [(&str, usize); 4] = [
    ("README.md", 18),
    ("docs/performance.md", 250),
    ("docs/model-card.md", 18),
    ("docs/scaling.md", 50),
];

#[test]
fn the_figures_of_the_documents_are_those_of_the_raw_files() {
    for (name, least) in DOCUMENTS {
        if std::env::var_os("HALOSCOPE_WRITE_FIGURES").is_some() {
            let text = document(name);
            let corrected = rewrite(&text);
            if corrected != text {
                println!("{name}: written anew");
                std::fs::write(path(name), corrected).expect("the document is written");
            }
        }
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

/// What is linked to is there, in all documents that name raw files.
#[test]
fn raw_files_that_are_linked_to_are_there() {
    let mut found = 0;
    for name in
        ["docs/scaling.md", "docs/performance.md", "docs/published.md", "docs/dashboards.md"]
    {
        for rest in document(name).split("](").skip(1) {
            let link = rest.split(')').next().unwrap_or_default();
            let Some(file) = link.strip_prefix("../bench/runs/") else { continue };
            let file = format!("bench/runs/{file}");
            assert!(path(&file).exists(), "{name} links to {file}, which is not there");
            found += 1;
        }
    }
    assert!(found > 30, "only {found} links");
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

/// The documents with figures in the text of links to raw files, and how many they have at least.
const LINKED: [(&str, usize); 3] =
    [("docs/published.md", 100), ("docs/performance.md", 20), ("docs/scaling.md", 10)];

#[test]
fn the_figures_in_links_are_those_of_the_raw_files() {
    for (name, least) in LINKED {
        let (wrong, checked) = check_links(&document(name));
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
        assert!(checked >= least, "{name}: only {checked} figures in links were found");
    }
}

#[test]
fn a_unit_belongs_to_all_numbers_of_its_list_or_range() {
    let found = figures("2048² has 92.3, 93 and 93.7 % (2 ranks), 2048 × 1366 takes 7 to 34 ms");
    let percent = Some("%");
    let milliseconds = Some("ms");
    assert_eq!(
        found,
        [
            ("92.3", percent),
            ("93", percent),
            ("93.7", percent),
            ("2", None),
            ("2048", None),
            ("1366", None),
            ("7", milliseconds),
            ("34", milliseconds),
        ]
    );
}

/// Figures in links that are right and what they are altered to, by document.
const ALTERED_LINKS: [(&str, &str, &str); 8] = [
    // A text, with a unit in each cell.
    ("docs/published.md", "[97.4 to 99.7 % for 1024²]", "[97.6 to 99.7 % for 1024²]"),
    ("docs/published.md", "[97.4 to 99.7 % for 1024²]", "[97.4 to 99.7 s for 1024²]"),
    // Columns of bytes.
    ("docs/published.md", "[2.40 GB on 16 ranks", "[2.41 GB on 16 ranks"),
    ("docs/published.md", "[2.40 GB on 16 ranks", "[2.40 MB on 16 ranks"),
    // Ratios of programs.
    ("docs/published.md", "[2.5 to 3.0 times]", "[2.5 to 3.1 times]"),
    // Shares of 1.
    ("docs/published.md", "[105 % (threads)]", "[106 % (threads)]"),
    ("docs/performance.md", "[1.026 times]", "[1.027 times]"),
    ("docs/scaling.md", "[up to 7.9 %]", "[up to 8.9 %]"),
];

#[test]
fn a_wrong_figure_in_a_link_is_found() {
    for (name, right, altered) in ALTERED_LINKS {
        let text = document(name);
        assert!(text.contains(right), "{name}: {right}");
        let (wrong, _) = check_links(&text.replacen(right, altered, 1));
        assert!(!wrong.is_empty(), "{altered}");
    }
}

/// Figures that are right and what they are altered to, by document.
const ALTERED: [(&str, &str, &str); 13] = [
    ("docs/performance.md", "| 701 ms |", "| 702 ms |"),
    ("docs/performance.md", "2464 ms (3.5×)", "2464 ms (3.6×)"),
    // A dash hides what was measured.
    ("docs/performance.md", "| 5.53 s (3.8×) |", "| – |"),
    ("docs/performance.md", "5.5 s, 254 MB", "5.5 s, 255 MB"),
    // The figure before has the same digit.
    ("docs/performance.md", "5.5 s, 254 MB", "5.5 s, 5 MB"),
    ("docs/performance.md", "| 98.3 |", "| 98.4 |"),
    ("docs/performance.md", "| 33.36 | 34.71 |", "| 33.36 | 34.72 |"),
    ("README.md", "[3.5 to 3.8×]", "[3.5 to 3.9×]"),
    ("docs/scaling.md", "| 3.07 | 97.4 %", "| 3.07 | 97.5 %"),
    ("docs/scaling.md", "| 327 MB |", "| 328 MB |"),
    ("docs/scaling.md", "| 56.3 % |", "| 56.4 % |"),
    ("docs/scaling.md", "| 148.5 MB |", "| 148.6 MB |"),
    ("docs/scaling.md", "31.6 → 35.5 dB", "31.6 → 35.6 dB"),
];

#[test]
fn the_end_of_a_longer_number_is_not_said() {
    let text = "sent 148.5 MB, then 5.5 MB";
    assert!(says(text, "148.5 MB") && says(text, "5.5 MB"));
    assert!(!says(text, "8.5 MB") && !says(text, "5 MB"));
}

fn wrong(text: &str) -> usize {
    let tables = tables(text).into_iter().filter(|table| !table.marker.is_empty());
    tables.map(|table| check(&table).0.len()).sum()
}

#[test]
fn a_wrong_figure_is_found_and_written_anew() {
    for (name, right, altered) in ALTERED {
        let text = document(name);
        assert!(text.contains(right), "{name}: {right}");
        let changed = text.replacen(right, altered, 1);
        assert_eq!(wrong(&changed), 1, "{altered}");
        // What is only said in words, or hidden by a dash, can be found to be wrong, and not be written.
        let is_said = right.contains("148.5") || right.contains("35.5");
        let is_written = !is_said && !altered.contains('–');
        assert_eq!(rewrite(&changed) == text, is_written, "{altered}");
    }
    let text = document("docs/performance.md");
    // Both figures of a cell, of which one gets longer.
    assert_eq!(rewrite(&text.replacen("5.5 s, 254 MB", "5.6 s, 5 MB", 1)), text);
    let row = "| DRUNet 1×3×256² | 365 ms";
    assert!(text.contains(row));
    assert_eq!(wrong(&text.replacen(row, "| DRUNet 1×3×257² | 437 ms", 1)), 1, "no such case");
}
