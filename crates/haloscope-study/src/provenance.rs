//! `provenance.json`: what made the rows of a folder, and on what.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use haloscope::io::write_atomically;
use haloscope::words::sides;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::row::{Configuration, Layout, Mode, Study};
use crate::trial::{LinkSpeed, Settings, Trial};

/// The name of the file in a folder of results.
pub const PROVENANCE: &str = "provenance.json";

/// What made the rows of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The version of haloscope that began the folder; each run has its own, as its commit and its machine.
    pub version: String,
    /// The commit that it was built from, where that is known.
    pub commit: Option<String>,
    /// The machine: processor, cores, memory, instruction sets.
    pub machine: Value,
    /// What was started, in order.
    pub runs: Vec<Run>,
    /// A digest of the data of each problem.
    pub data: BTreeMap<String, String>,
    /// A digest of the image that each reconstruction found, which no number of ranks changes.
    pub images: BTreeMap<String, String>,
    /// What messages cost, by backend.
    pub links: BTreeMap<String, LinkSpeed>,
    /// The settings of other systems, by configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, Value>,
    /// The jobs of a cluster, if the rows are theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Value>,
}

/// Something that was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The study.
    pub study: Study,
    /// What is the same for all of its rows.
    pub settings: Settings,
    /// The command line.
    pub command: Vec<String>,
    /// Which definition of the problems it has, if it reconstructs any. Files that are older than this field have the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<u32>,
    /// When, in seconds since the beginning of 1970.
    pub unix_seconds: u64,
    /// The version of haloscope. Files that are older than this field do not say it, nor commit and machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The commit that it was built from, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Value>,
}

impl Run {
    /// A run that begins now.
    #[must_use]
    pub fn new(study: Study, settings: Settings, command: Vec<String>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_seconds = now.as_secs();
        let problems = Self::definition(study);
        let (version, commit, machine) = (None, None, None);
        Self { study, settings, command, problems, unix_seconds, version, commit, machine }
    }

    /// The definition of the problems that a study of this version has.
    fn definition(study: Study) -> Option<u32> {
        match study {
            Study::Scaling | Study::Counts => Some(crate::problem::DEFINITION),
            Study::Compare => Some(crate::problem::COMPARED),
            Study::Memory | Study::Batch | Study::Overlap => None,
        }
    }

    /// This run, by the version and on the machine of `origin`.
    #[must_use]
    fn of(self, origin: &Provenance) -> Self {
        Self {
            version: Some(origin.version.clone()),
            commit: origin.commit.clone(),
            machine: Some(origin.machine.clone()),
            ..self
        }
    }
}

impl Provenance {
    /// That of a folder in which there is nothing yet.
    #[must_use]
    pub fn new(version: impl Into<String>, commit: Option<String>, machine: Value) -> Self {
        Self {
            version: version.into(),
            commit,
            machine,
            runs: Vec::new(),
            data: BTreeMap::new(),
            images: BTreeMap::new(),
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            jobs: Vec::new(),
        }
    }

    /// That of a folder, if it has one.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(PROVENANCE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(&path, error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| Error::file(&path, error))
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(PROVENANCE);
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::file(&path, error))?;
        Ok(write_atomically(&path, |file| writeln!(file, "{text}"))?)
    }

    /// Adds a run by the version and on the machine of `origin`, unless rows of its study have other settings.
    pub(crate) fn begin(&mut self, folder: &Path, origin: &Self, run: &Run) -> Result<()> {
        let earlier = self.runs.iter().find(|earlier| earlier.study == run.study);
        match earlier {
            Some(earlier) if earlier.problems != run.problems => Err(Error::file(
                folder,
                "its rows were measured by an earlier version with other problems; use another folder",
            )),
            Some(earlier) if earlier.settings != run.settings => Err(Error::file(
                folder,
                format!(
                    "its rows were measured with {}; use another folder",
                    differences(&earlier.settings, &run.settings)
                ),
            )),
            _ => {
                self.runs.push(run.clone().of(origin));
                Ok(())
            }
        }
    }

    pub(crate) fn note_data(&mut self, trial: &Trial, digest: &str) -> Result<()> {
        let of = &trial.configuration;
        let problem = of.problem.map_or("landscape", crate::problem::Problem::name);
        let operators =
            of.operators.map_or_else(String::new, |count| format!(", {count} operators"));
        let (sides, volume) = (sides(&of.sides()), of_volume(&trial.settings));
        let level = of.level.as_ref().map_or_else(String::new, |level| format!(", noise {level}"));
        let key = format!("{problem} {sides}{volume}{operators}{}{level}", in_layout(of));
        note(&mut self.data, key, digest, of, OTHER_DATA)
    }

    pub(crate) fn note_image(&mut self, trial: &Trial, digest: &str) -> Result<()> {
        let of = &trial.configuration;
        let (backend, distribute) = (crate::row::Backend::Solo, None);
        // What is rounded differently in shards has keys of its own.
        let mut alone = Configuration { ranks: 1, backend, distribute, ..of.clone() };
        if alone.mode == Some(Mode::Contention) {
            // Every rank finds what one rank alone finds.
            alone.mode = Some(Mode::Strong);
        }
        let counted = if of.study == Study::Counts { ", counted" } else { "" };
        let key = format!(
            "{alone}{counted}, patches of {} and {}{}",
            alone.patch.unwrap_or_default(),
            alone.overlap.unwrap_or_default(),
            of_volume(&trial.settings)
        );
        note(&mut self.images, key, digest, of, ANOTHER_IMAGE)
    }

    /// Whether all reconstructions of the study of scaling are of the problems as this version defines them.
    #[must_use]
    pub fn has_current_problems(&self) -> bool {
        let is_current =
            |run: &Run| run.study != Study::Scaling || run.problems == Run::definition(run.study);
        self.runs.iter().all(is_current)
    }

    /// Adds that of a part of the same study, which must have made the same data and found the same images.
    pub(crate) fn merge(&mut self, part: Self, name: &str) -> Result<()> {
        for (key, digest) in part.data {
            note(&mut self.data, key.clone(), &digest, format!("{name}, {key}"), OTHER_DATA)?;
        }
        for (key, digest) in part.images {
            note(&mut self.images, key.clone(), &digest, format!("{name}, {key}"), ANOTHER_IMAGE)?;
        }
        for (backend, speed) in part.links {
            self.links.entry(backend).or_insert(speed);
        }
        self.peers.extend(part.peers);
        self.runs.extend(part.runs);
        Ok(())
    }
}

const OTHER_DATA: &str = "other data than before were made";
const ANOTHER_IMAGE: &str = "another image than before was found";

/// The settings that are others now: `iterations 10 and not 3`.
fn differences(before: &Settings, now: &Settings) -> String {
    let [before, now] = [before, now].map(|settings| serde_json::json!(settings));
    let names: BTreeSet<&String> = [&before, &now]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|map| map.keys())
        .collect();
    let different = names.into_iter().filter(|name| before[*name] != now[*name]);
    let said = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let list: Vec<String> = different
        .map(|name| format!("{name} {} and not {}", said(&before[name]), said(&now[name])))
        .collect();
    list.join(", ")
}

/// Where the image is, if not on every rank.
fn in_layout(of: &Configuration) -> &'static str {
    if of.layout == Some(Layout::Sharded) { ", in shards" } else { "" }
}

/// What is scanned, where it is not the phantom.
fn of_volume(settings: &Settings) -> String {
    settings.volume.as_ref().map_or_else(String::new, |digest| format!(" of volume {digest}"))
}

fn note(
    digests: &mut BTreeMap<String, String>,
    key: String,
    digest: &str,
    of: impl std::fmt::Display,
    complaint: &str,
) -> Result<()> {
    let known = digests.entry(key).or_insert_with(|| digest.to_owned());
    if known == digest {
        return Ok(());
    }
    Err(Error::Process {
        configuration: of.to_string(),
        reason: format!("{complaint}: its digest is {digest} and was {known}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::configuration;

    fn trial(ranks: usize) -> Trial {
        Trial {
            configuration: configuration(ranks),
            settings: Settings::default(),
            repetitions: vec![0],
            truth: None,
        }
    }

    #[test]
    fn the_same_data_and_image_are_expected_on_any_number_of_ranks() {
        let mut provenance = Provenance::new("1.0", None, Value::Null);
        provenance.note_data(&trial(1), "a").expect("the first");
        provenance.note_data(&trial(3), "a").expect("the same");
        let error = provenance.note_data(&trial(2), "b").expect_err("others").to_string();
        assert!(error.contains("2 ranks (threads): other data"), "{error}");
        provenance.note_image(&trial(1), "x").expect("the first");
        assert!(provenance.note_image(&trial(2), "y").is_err());
        let mut other = trial(2);
        other.configuration.distribute = Some(haloscope_job::Distribution::Physics);
        assert!(provenance.note_image(&other, "y").is_err(), "what ranks share changes nothing");
        let mut other = trial(2);
        other.configuration.patch = Some(16);
        provenance.note_image(&other, "y").expect("other tiles make another image");
        let mut other = trial(2);
        other.configuration.layout = Some(Layout::Sharded);
        provenance.note_data(&other, "c").expect("parts may be rounded differently");
        provenance.note_image(&other, "z").expect("parts may be rounded differently");
        other.configuration.ranks = 3;
        assert!(provenance.note_image(&other, "y").is_err(), "on any number of ranks alike");
        let mut other = trial(2);
        other.settings.volume = Some("a head".into());
        provenance.note_data(&other, "b").expect("another volume is other data");
        provenance.note_image(&other, "y").expect("another volume is another image");
    }
}
