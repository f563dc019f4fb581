//! What a run found, for people, for scripts and as a page.

use std::fmt::Write;

use haloscope::solve::{Record, Seconds};
use haloscope::{Error, Result};
use serde::Serialize;

use crate::devices;
use crate::facts::Facts;
use crate::outcome::Outcome;
use crate::quality::Quality;
use crate::records::{self, RankSummary};
use crate::report::{Comparison, Iteration, Picture, Report, Table, Written};
use crate::words::count;

/// The result of a run.
#[derive(Serialize)]
pub struct Summary {
    /// The name of the job, or of the demo's problem.
    pub problem: String,
    /// Without the batch.
    pub shape: Vec<usize>,
    /// The number of operators.
    pub operators: usize,
    /// The number of ranks.
    pub ranks: usize,
    /// The device that runs the network of each rank; none without a network.
    pub devices: Vec<String>,
    /// The name of the method.
    pub method: &'static str,
    /// The prior, in a few words.
    pub prior: String,
    /// Iterations of which the image is the result.
    pub iterations: usize,
    /// The iterations of an earlier run that it went on from.
    pub resumed_from: Option<usize>,
    /// Why it ended.
    pub reason: String,
    /// Of the iterations.
    pub seconds: f64,
    /// After the last iteration that knows it.
    pub data_term: Option<f64>,
    /// Of the measurements as one would look at them without a reconstruction.
    pub before: Option<Quality>,
    /// What that is: a back-projection, the first frame.
    pub before_shows: Option<String>,
    /// Of the image.
    pub after: Option<Quality>,
    /// Between ranks, in the iterations.
    pub megabytes_moved: f64,
    /// Where the time of each rank went, in all and in each iteration.
    pub per_rank: Vec<RankSummary>,
    /// A digest of the reconstruction's bits.
    pub bits: String,
    /// Whether the bits depend on the number of ranks, because the job asks for tiles that suit them.
    pub depends_on_ranks: bool,
    /// Files of the image.
    pub files: Vec<String>,
    /// Pictures for people.
    pub pictures: Vec<String>,
    /// The report.
    pub page: Option<String>,
    /// Where the checkpoints are that the run can go on from, if it was cut short.
    pub checkpoints: Option<String>,
    /// What the page says of the job, beside what is above.
    #[serde(skip)]
    pub facts: Facts,
}

impl Summary {
    /// Of a run, as far as it got.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        let of_rank =
            |(rank, records): (usize, &Vec<_>)| RankSummary::of(rank, records, &outcome.qualities);
        Self {
            problem: outcome.job.clone(),
            shape: outcome.state.image.shape()[1..].to_vec(),
            operators: outcome.operators,
            ranks: outcome.records.len(),
            devices: outcome.devices.clone(),
            method: outcome.method,
            prior: outcome.prior.clone(),
            iterations: outcome.iterations(),
            resumed_from: outcome.resumed_from,
            reason: outcome.ending.to_string(),
            seconds: outcome.seconds,
            data_term: outcome.data_term(),
            before: outcome.before_quality,
            before_shows: outcome.before.as_ref().map(|before| before.shows.clone()),
            after: outcome.quality,
            megabytes_moved: outcome.bytes_moved as f64 / 1e6,
            per_rank: outcome.records.iter().enumerate().map(of_rank).collect(),
            bits: outcome.bits.clone(),
            depends_on_ranks: outcome.depends_on_ranks,
            files: outcome.files.iter().map(|file| file.display().to_string()).collect(),
            pictures: outcome.pictures.iter().map(|file| file.display().to_string()).collect(),
            page: outcome.page.as_ref().map(|page| page.display().to_string()),
            checkpoints: outcome.checkpoints.as_ref().map(|folder| folder.display().to_string()),
            facts: outcome.facts.clone(),
        }
    }

    /// For people, in a few lines.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{}: {} pixels{} from {}, on {}\n",
            self.problem,
            self.sides("x"),
            if self.shape[0] == 3 { " in colour" } else { "" },
            count(self.operators, "operator"),
            count(self.ranks, "rank"),
        )?;
        let rows = self.qualities();
        if !rows.is_empty() {
            let length = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(16);
            writeln!(text, "{:<length$} {:>9} {:>7}", "", "PSNR", "SSIM")?;
            for (name, quality) in rows {
                writeln!(
                    text,
                    "{name:<length$} {:>6.2} dB {:>7}",
                    quality.psnr_db,
                    ssim_text(&quality)
                )?;
            }
            text.push('\n');
        }
        let resumed = self.resumed_from.map_or_else(String::new, |at| format!(" (from {at})"));
        let done = match self.iterations {
            0 => format!("{}, no iterations,", self.method),
            done => format!("{}{resumed} with {}", count(done, "iteration"), self.prior),
        };
        writeln!(
            text,
            "{done} in {:.1} s, {:.1} MB moved between ranks",
            self.seconds, self.megabytes_moved
        )?;
        if let Some(devices) = devices::describe(&self.devices) {
            writeln!(text, "device    {devices}")?;
        }
        let everywhere =
            if self.depends_on_ranks { "" } else { " (the same on any number of ranks)" };
        writeln!(text, "bits      {}{everywhere}", self.bits)?;
        if !self.files.is_empty() {
            writeln!(text, "image     {}", self.files.join(", "))?;
        }
        if !self.pictures.is_empty() {
            writeln!(text, "pictures  {}", self.pictures.join(", "))?;
        }
        if let Some(page) = &self.page {
            writeln!(text, "report    {page}")?;
        }
        if let Some(folder) = &self.checkpoints {
            writeln!(text, "cut short {}; --resume resumes from {folder}", self.reason)?;
        }
        Ok(())
    }

    /// A page for a browser, with the pictures that were written.
    pub(crate) fn to_page(&self, pictures: &[Written], outcome: &Outcome) -> Result<String> {
        let records = outcome.records.first().map_or(&[][..], Vec::as_slice);
        let qualities = &outcome.qualities;
        let mut loaded = Vec::new();
        for written in pictures {
            let png = std::fs::read(&written.path).map_err(|error| Error::File {
                file: written.path.display().to_string(),
                reason: error.to_string(),
            })?;
            let picture = Picture {
                caption: written.caption.clone(),
                png,
                scale: Some(written.scale.clone()),
                panels: written.panels.clone(),
            };
            loaded.push((written.name, picture));
        }
        let mut take = |name: &str| {
            let index = loaded.iter().position(|(other, _)| *other == name)?;
            Some(loaded.remove(index).1)
        };
        let (before, after) = (take("before"), take("after"));
        let mut pictures: Vec<Picture> = loaded.into_iter().map(|(_, picture)| picture).collect();
        let comparison = match (before, after) {
            (Some(before), Some(after)) => Some(Comparison { before, after }),
            (_, after) => {
                pictures.extend(after);
                None
            }
        };
        let row = |(name, quality): (String, Quality)| {
            vec![name, format!("{:.2} dB", quality.psnr_db), ssim_text(&quality)]
        };
        let iteration = |record: &Record| {
            let quality = qualities.iter().find(|(at, _)| *at == record.iteration);
            Iteration {
                number: record.iteration,
                data_term: record.data_term,
                psnr: quality.map(|(_, quality)| quality.psnr_db),
                ssim: quality.and_then(|(_, quality)| quality.ssim),
                seconds: parts_of(&record.seconds),
            }
        };
        Ok(Report {
            title: format!("haloscope: {}", self.problem),
            subtitle: format!("{} from {}", self.sides(" × "), count(self.operators, "operator")),
            comparison,
            pictures,
            summary: Table {
                columns: ["", "PSNR", "SSIM"].map(String::from).to_vec(),
                rows: self.qualities().into_iter().map(row).collect(),
            },
            ranks: if self.ranks > 1 { records::table(&self.per_rank) } else { Table::default() },
            components: ["data", "prior", "rest"].map(String::from).to_vec(),
            iterations: records.iter().map(iteration).collect(),
            parameters: self.parameters(),
            settings: self.facts.settings.clone(),
            footer: format!("haloscope {}", env!("CARGO_PKG_VERSION")),
        }
        .to_html())
    }

    fn sides(&self, separator: &str) -> String {
        let sides: Vec<String> = self.shape[1..].iter().map(ToString::to_string).collect();
        sides.join(separator)
    }

    fn qualities(&self) -> Vec<(String, Quality)> {
        let before = self.before_shows.clone().unwrap_or_else(|| "measurements".into());
        let rows = [(before, self.before), ("reconstruction".into(), self.after)];
        rows.into_iter().filter_map(|(name, quality)| Some((name, quality?))).collect()
    }

    /// What was done, with what, and how it ended.
    fn parameters(&self) -> Vec<(String, String)> {
        let own = [
            ("iterations", self.iterations.to_string()),
            ("ended because", self.reason.clone()),
            ("ranks", self.ranks.to_string()),
            ("seconds", format!("{:.1}", self.seconds)),
            ("bits", self.bits.clone()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let device = devices::describe(&self.devices).map(|devices| ("device".into(), devices));
        self.facts.parameters.iter().cloned().chain(own).chain(device).collect()
    }
}

/// Seconds that add up to those of the step.
fn parts_of(seconds: &Seconds) -> Vec<f64> {
    let rest = seconds.total - seconds.data - seconds.prior;
    vec![seconds.data, seconds.prior, rest.max(0.0)]
}

fn ssim_text(quality: &Quality) -> String {
    quality.ssim.map_or_else(|| "-".into(), |ssim| format!("{ssim:.3}"))
}
