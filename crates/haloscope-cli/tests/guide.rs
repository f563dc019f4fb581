//! The guide names every key and every word that a job file may have, and its examples are jobs.

mod jobs;

use std::collections::BTreeSet;
use std::path::Path;

use jobs::{Folder, haloscope, text};

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide.md");
    std::fs::read_to_string(path).expect("the guide is there")
}

/// The words that the sources ask a section for, and those that they choose from.
fn words() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../haloscope-job/src");
    let mut words = BTreeSet::new();
    let mut paths = vec![folder.join("sections"), folder.join("job.rs")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).expect("the sources");
            paths.extend(entries.map(|entry| entry.expect("a file").path()));
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("text");
        // Tests at the end of a file ask for words of their own.
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, _) in source.match_indices("(\"") {
            let before: String = source[..at].chars().rev().take(40).collect();
            let before: String = before.chars().rev().collect();
            let word: String = source[at + 2..].chars().take_while(|c| *c != '"').collect();
            let after = source[at + 2 + word.len()..].chars().nth(1);
            let asks = [
                ".get",
                ">",
                ".require",
                ".positive",
                ".not_negative",
                ".count",
                ".range",
                ".bounds",
            ]
            .into_iter()
            .chain([".choose", ".require_choice", ".path", ".paths", ".section", ".sections"])
            .any(|method| before.ends_with(method));
            let is_choice = after == Some(',') && before.ends_with([' ', '\n', '[']);
            let is_word =
                word.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit());
            if (asks || is_choice) && is_word && !word.is_empty() {
                words.insert(word);
            }
        }
    }
    // Methods declare theirs where they are.
    for method in haloscope::solve::METHODS {
        let keys = method.keys.iter().map(|key| key.name);
        let names = std::iter::once(method.name()).chain(method.aliases.iter().copied());
        words.extend(names.chain(keys).map(String::from));
    }
    words
}

#[test]
fn every_key_and_word_of_a_job_is_in_the_guide() {
    let (guide, words) = (guide(), words());
    assert!(words.len() > 80, "the sources ask for {words:?}");
    // A key is in backticks, a word in quotes, a section in brackets.
    let has = |word: &str| {
        let forms = [format!("`{word}`"), format!("\"{word}\""), format!("[{word}]")];
        forms.iter().any(|form| guide.contains(form))
    };
    let missing: Vec<&String> = words.iter().filter(|word| !has(word)).collect();
    assert!(missing.is_empty(), "the guide does not have {missing:?}");
}

#[test]
fn the_examples_of_the_guide_are_jobs() {
    let guide = guide();
    let blocks: Vec<&str> = guide
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| block.contains("[[operators]]") && block.contains("[solver]"))
        .collect();
    assert!(!blocks.is_empty(), "the guide has an example");
    for block in blocks {
        let folder = Folder::new();
        let job = folder.write("job.toml", block);
        let output = haloscope(&["check", &job]);
        assert!(output.status.success(), "{block}\n{}", text(&output.stderr));
    }
}
