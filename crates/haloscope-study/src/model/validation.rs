//! Compares the model with measurements that it did not see.

use std::path::Path;

use haloscope::io::write_atomically;

use super::{Cluster, Contention, Costs, Layout, Workload, family, measured, predict};
use crate::error::{Error, Result};
use crate::figures::{Summary, summarise};
use crate::row::{Backend, Configuration, Mode, Row};
use crate::trial::LinkSpeed;
use haloscope_job::words::sides;

/// The file of a results folder with the errors of the model.
pub const VALIDATION: &str = "validation.csv";

/// What is different between a measurement and those that the model was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unseen {
    /// The number of ranks.
    Ranks,
    /// The size of the image that costs come from.
    Size,
    /// What grows with the ranks.
    Mode,
    /// What the ranks are.
    Backend,
    /// Where the image is.
    Layout,
    /// How much ranks slow each other down: it was not measured, or for another problem.
    Contention,
}

impl Unseen {
    /// In tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ranks => "ranks",
            Self::Size => "size",
            Self::Mode => "mode",
            Self::Backend => "backend",
            Self::Layout => "layout",
            Self::Contention => "contention",
        }
    }
}

/// A measured configuration with what the model says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// What was measured.
    pub configuration: Configuration,
    /// Seconds of an iteration, measured.
    pub measured: f64,
    /// Seconds of an iteration, predicted.
    pub predicted: f64,
    /// The interval of the prediction.
    pub interval: (f64, f64),
    /// What the model did not see.
    pub unseen: Vec<Unseen>,
}

impl Validation {
    /// How far the prediction is off, relative to the measurement.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.predicted - self.measured).abs() / self.measured
    }

    /// Whether the measurement is in the interval of the prediction.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        (self.interval.0..=self.interval.1).contains(&self.measured)
    }

    /// What the model did not see, in words.
    #[must_use]
    pub fn unseen_words(&self) -> String {
        self.unseen.iter().map(|unseen| unseen.name()).collect::<Vec<_>>().join(" ")
    }
}

/// Compares the model with all measurements that it did not get its costs from, on a machine with so
/// many cores and links that cost what `link` says: other numbers of ranks of the same image, and other sizes, whose costs come from the
/// nearest smaller one. Ranks that had to share a core are left out.
pub fn validate(
    rows: &[Row],
    cores: usize,
    link: impl Fn(Backend) -> Option<LinkSpeed>,
) -> Result<Vec<Validation>> {
    let summaries = summarise(rows);
    let contention = Contention::of(&summaries, cores);
    let all: Vec<&Summary> = measured(&summaries).collect();
    let mut validations = Vec::new();
    for summary in &all {
        let configuration = &summary.configuration;
        if configuration.ranks * configuration.threads > cores {
            continue;
        }
        let sources = [of_same_size(&all, configuration), of_smaller_size(&all, configuration)];
        for source in sources.into_iter().flatten() {
            if source.configuration == *configuration {
                continue;
            }
            let speed = match (configuration.ranks, link(configuration.backend)) {
                (_, Some(speed)) => speed,
                // Nothing is sent.
                (1, None) => LinkSpeed { latency_seconds: 1e-6, bytes_per_second: 1e9 },
                (_, None) => continue,
            };
            let found = compare(summary, source, &contention, speed)?;
            // One rank by threads, by processes and in a weak study is one and the same.
            if !found.unseen.is_empty() {
                validations.push(found);
            }
        }
    }
    Ok(validations)
}

fn compare(
    of: &Summary,
    source: &Summary,
    contention: &Contention,
    speed: LinkSpeed,
) -> Result<Validation> {
    let configuration = &of.configuration;
    let cluster = Cluster::one_node("this machine", configuration.ranks, speed);
    let layout = configuration.layout.unwrap_or(Layout::Replicated);
    let costs = Costs::from_summary(source, contention)?;
    let workload = Workload::of(configuration)?;
    let found = predict(&workload, &costs, contention, &cluster, configuration.ranks, layout)?;
    let seen = &source.configuration;
    let is_stretched = configuration.mode == Some(Mode::Weak) && configuration.ranks > 1;
    let differences = [
        (Unseen::Ranks, seen.ranks != configuration.ranks),
        (Unseen::Size, seen.sides() != configuration.sides() && !is_stretched),
        (Unseen::Mode, is_stretched),
        (Unseen::Backend, configuration.ranks > 1 && configuration.backend == Backend::Mpi),
        (Unseen::Layout, seen.layout != configuration.layout),
        (Unseen::Contention, !found.has_own_contention),
    ];
    let unseen = differences.iter().filter(|(_, is_unseen)| *is_unseen);
    Ok(Validation {
        configuration: configuration.clone(),
        measured: of.total.value,
        predicted: found.total,
        interval: (found.low, found.high),
        unseen: unseen.map(|(unseen, _)| *unseen).collect(),
    })
}

/// What must be the same between a measurement and the one that costs are taken from, but for the size.
fn kind(of: &Configuration) -> Configuration {
    Configuration {
        mode: None,
        // The overlap of tiles follows from the size, like the patch.
        patch: of.patch.map(|_| 0),
        overlap: None,
        ..family(of)
    }
}

/// The image that one rank has, of a study in which it grows with the ranks.
fn share(of: &Configuration) -> Vec<usize> {
    let mut sides = of.sides();
    if of.mode == Some(Mode::Weak) && of.ranks > 0 {
        let longer = if sides.len() == 3 { 0 } else { sides.len() - 1 };
        sides[longer] /= of.ranks;
    }
    sides
}

/// The same image on the fewest ranks, in the same layout if there is one, by threads before processes. Of an image that grows, the
/// part that one rank has.
fn of_same_size<'a>(all: &[&'a Summary], of: &Configuration) -> Option<&'a Summary> {
    all.iter()
        .filter(|other| {
            let seen = &other.configuration;
            kind(seen) == kind(of)
                && share(seen) == share(of)
                && (seen.patch, seen.overlap) == (of.patch, of.overlap)
                && (seen.ranks == 1 || seen.mode == of.mode)
        })
        .min_by_key(|other| preference(other, of))
        .copied()
}

/// The largest smaller image on one rank.
fn of_smaller_size<'a>(all: &[&'a Summary], of: &Configuration) -> Option<&'a Summary> {
    let pixels = |sides: Vec<usize>| sides.into_iter().product::<usize>();
    let own = pixels(of.sides());
    let is_smaller = |other: &&&Summary| {
        let seen = &other.configuration;
        of.mode == Some(Mode::Strong)
            && seen.ranks == 1
            && kind(seen) == kind(of)
            && pixels(seen.sides()) < own
    };
    let smaller = all.iter().filter(is_smaller);
    let largest = smaller.map(|other| pixels(other.configuration.sides())).max()?;
    let smaller = all.iter().filter(is_smaller);
    smaller
        .filter(|other| pixels(other.configuration.sides()) == largest)
        .min_by_key(|other| preference(other, of))
        .copied()
}

/// The order in which predictions take costs, too.
fn preference(other: &Summary, of: &Configuration) -> (bool, usize, Backend) {
    super::preference(other, of.layout.unwrap_or(Layout::Replicated))
}

/// Writes the validations as a table; where there are none, removes that of earlier rows.
pub fn write_validation(folder: &Path, validations: &[Validation]) -> Result<()> {
    let path = folder.join(VALIDATION);
    if validations.is_empty() {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file(&path, error))
            }
            _ => Ok(()),
        };
    }
    let broken = |error: csv::Error| Error::file(&path, error);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = [
        "problem",
        "model",
        "size",
        "mode",
        "backend",
        "layout",
        "patch",
        "ranks",
        "threads",
        "measured_seconds",
        "predicted_seconds",
        "low_seconds",
        "high_seconds",
        "error",
        "is_inside",
        "unseen",
    ];
    writer.write_record(header).map_err(broken)?;
    for one in validations {
        let of = &one.configuration;
        let record = [
            of.problem.map_or_else(String::new, |problem| problem.to_string()),
            of.model.clone(),
            sides(&of.sides()),
            if of.mode == Some(Mode::Weak) { "weak".into() } else { "strong".to_owned() },
            of.backend.to_string(),
            of.layout.map_or_else(String::new, |layout| layout.to_string()),
            of.patch.map_or_else(String::new, |patch| patch.to_string()),
            of.ranks.to_string(),
            of.threads.to_string(),
            one.measured.to_string(),
            one.predicted.to_string(),
            one.interval.0.to_string(),
            one.interval.1.to_string(),
            one.error().to_string(),
            one.is_inside().to_string(),
            one.unseen_words(),
        ];
        writer.write_record(record).map_err(broken)?;
    }
    let text = writer.into_inner().map_err(|error| Error::file(&path, error))?;
    Ok(write_atomically(&path, |file| std::io::Write::write_all(file, &text))?)
}
