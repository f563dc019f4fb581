//! The report of a run: pictures, and a page that shows them with the numbers of the run.

mod chart;
mod page;
mod pictures;

use std::path::Path;

use haloscope::{Array, Error, Result, io};
use ndarray::Axis;

use crate::Job;
use crate::layout::Truth;
use crate::outcome::Outcome;
use crate::prepare::Before;
use crate::sections::operators::Entry;
use crate::summary::Summary;
pub(crate) use page::{Comparison, Iteration, Panel, Picture, Report, Table, ValueScale};
pub(crate) use pictures::Written;

/// Writes pictures and the page to a folder, and notes them in the outcome.
pub(crate) fn write(folder: &Path, job: &Job, outcome: &mut Outcome) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::File {
        file: folder.display().to_string(),
        reason: error.to_string(),
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let (contrast, unit) = (job.output.contrast, &outcome.facts.unit);
    let (truth, before) = (outcome.truth.as_ref(), outcome.before.as_ref());
    let pictures = if job.operators.iter().any(Entry::is_complex) {
        // Pictures have no phase.
        let truth = truth.map(|truth| Truth { image: sizes(&truth.image), ..truth.clone() });
        let before = before.map(|before| Before { image: sizes(&before.image), ..before.clone() });
        let after = sizes(&outcome.written());
        pictures::write(folder, truth.as_ref(), before.as_ref(), &after, contrast, unit)?
    } else {
        pictures::write(folder, truth, before, &outcome.written(), contrast, unit)?
    };
    outcome.pictures = pictures.iter().map(|picture| picture.path.clone()).collect();
    let path = folder.join("report.html");
    let page = Summary::of(outcome).to_page(&pictures, outcome)?;
    io::write_atomically(&path, |file| file.write_all(page.as_bytes()))?;
    outcome.page = Some(path);
    Ok(())
}

/// The sizes of complex numbers, whose parts are two channels.
fn sizes(image: &Array) -> Array {
    if image.len_of(Axis(1)) != 2 {
        return image.clone();
    }
    let mut sizes = image.slice_axis(Axis(1), (0..1).into()).to_owned();
    let imaginary = image.slice_axis(Axis(1), (1..2).into());
    sizes.zip_mut_with(&imaginary, |real, imaginary| *real = real.hypot(*imaginary));
    sizes
}

/// Text for a page: neither markup nor the end of an attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in a page.
            '\0' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
