//! `haloscope dashboard`: the tables of studies as one page for a browser.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use haloscope::io;
use haloscope_study::dashboard::Dashboard;

use crate::exit::Preparation;
use haloscope_job::words::count;

/// The options of `haloscope dashboard`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folders written by `haloscope bench`, or CSV files with the same columns
    #[arg(required = true)]
    results: Vec<PathBuf>,

    /// File for the page, which needs no other files
    #[arg(long, short, value_name = "FILE.html", default_value = "dashboard.html")]
    out: PathBuf,

    /// Heading of the page
    #[arg(long, default_value = "haloscope studies")]
    title: String,
}

/// Reads the tables and writes the page.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let dashboard = Dashboard::open(&arguments.title, &arguments.results).or_misuse()?;
    let mut rows = 0;
    for run in dashboard.runs() {
        rows += run.table.rows;
        if !run.table.ignored.is_empty() {
            log::warn!("{}: ignoring unknown columns: {}", run.name, run.table.ignored.join(", "));
        }
    }
    let page = dashboard.to_html();
    io::write_atomically(&arguments.out, |file| file.write_all(page.as_bytes()))
        .with_context(|| arguments.out.display().to_string())?;
    crate::print(&format!(
        "{} of {}\nwritten   {} ({:.1} MB)\n",
        count(rows, "row"),
        count(dashboard.runs().len(), "run"),
        arguments.out.display(),
        page.len() as f64 / 1e6
    ))
}
