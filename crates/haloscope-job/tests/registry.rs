//! What is registered is what the page for contributors lists, and each of it can be named in a job.

use std::path::Path;

use haloscope_job::{JobBuilder, registered};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CONTRIBUTING.md");
    std::fs::read_to_string(path).expect("the page is there")
}

#[test]
fn the_page_for_contributors_lists_what_is_registered() {
    let page = page();
    for (what, names) in registered() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let row = format!("| {what} | {} |", names.join(", "));
        assert!(page.contains(&row), "CONTRIBUTING.md has no row like this:\n{row}");
    }
}

#[test]
fn a_job_that_names_what_is_not_registered_is_told_what_is() {
    for (what, names) in registered() {
        let text = match what {
            "operators" => "[[operators]]\nkind = \"other\"\n",
            "priors" => "[[operators]]\nkind = \"identity\"\n[prior]\nkind = \"other\"\n",
            "fidelities" => "[[operators]]\nkind = \"identity\"\n[fidelity]\nkind = \"other\"\n",
            "methods" => "[[operators]]\nkind = \"identity\"\n[solver]\nmethod = \"other\"\n",
            _ => continue,
        };
        let text = format!("[measurements]\nphantom = \"landscape\"\nsize = [32, 32]\n{text}");
        let error = JobBuilder::from_text(&text).and_then(JobBuilder::build).map(drop);
        let error = error.expect_err("refused").to_string();
        for name in names {
            assert!(error.contains(name), "{what}: {name} is not in: {error}");
        }
    }
}
