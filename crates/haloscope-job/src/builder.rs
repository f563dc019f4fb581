//! A job that a program writes: the sections and keys of a job file, checked by the same reader.

use std::path::PathBuf;

use haloscope::Result;
use toml::{Table, Value};

use crate::Job;
use crate::saving::Resuming;

/// The keys of a section, by the names that job files have for them.
#[derive(Clone, Debug, Default)]
pub struct Keys(Table);

impl Keys {
    /// Sets a key; values are what TOML has: numbers, text, booleans, lists, and [`Keys`] for a table.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }
}

impl From<Keys> for Value {
    fn from(keys: Keys) -> Self {
        Self::Table(keys.0)
    }
}

/// Makes a job of sections; [`Job::builder`] begins one.
///
/// Each method takes a function that sets the keys of its section. What a job file may leave out may be left out here; so
/// may `[output]`, because the caller gets the image. [`build`](Self::build) refuses what a job file with the same content
/// is refused for.
#[derive(Clone, Debug, Default)]
pub struct JobBuilder {
    name: Option<String>,
    folder: PathBuf,
    document: Table,
    operators: Vec<Value>,
}

impl JobBuilder {
    /// Keys for a table within a section: `noise = { gaussian = 0.02 }`.
    #[must_use]
    pub fn keys() -> Keys {
        Keys::default()
    }

    /// What messages call the job.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// What paths in the job are relative to; without it, the current folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }

    /// `[image]`.
    #[must_use]
    pub fn image(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("image", keys)
    }

    /// `[measurements]`.
    #[must_use]
    pub fn measurements(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("measurements", keys)
    }

    /// One of `[[operators]]`, of this kind.
    #[must_use]
    pub fn operator(mut self, kind: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.operators.push(keys(Keys::default().set("kind", kind)).into());
        self
    }

    /// `[fidelity]`, of this kind.
    #[must_use]
    pub fn fidelity(self, kind: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("fidelity", |all| keys(all.set("kind", kind)))
    }

    /// `[prior]`, of this kind.
    #[must_use]
    pub fn prior(self, kind: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("prior", |all| keys(all.set("kind", kind)))
    }

    /// `[solver]`, with this method.
    #[must_use]
    pub fn solver(self, method: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("solver", |all| keys(all.set("method", method)))
    }

    /// `[stop]`.
    #[must_use]
    pub fn stop(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("stop", keys)
    }

    /// `[start]`, of this kind.
    #[must_use]
    pub fn start(self, kind: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("start", |all| keys(all.set("kind", kind)))
    }

    /// `[truth]`.
    #[must_use]
    pub fn truth(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("truth", keys)
    }

    /// `[output]`.
    #[must_use]
    pub fn output(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("output", keys)
    }

    /// `[checkpoint]`. Without it, the run of a built job neither reads nor writes checkpoints.
    #[must_use]
    pub fn checkpoint(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("checkpoint", keys)
    }

    /// The job, if a file with these sections would be one.
    pub fn build(mut self) -> Result<Job> {
        let has_checkpoints = self.document.contains_key("checkpoint");
        if !self.operators.is_empty() {
            self.document.insert("operators".into(), Value::Array(self.operators));
        }
        let name = self.name.as_deref().unwrap_or("job");
        let job = Job::parse_for_caller(name, &self.document.to_string(), &self.folder)?;
        Ok(if has_checkpoints { job } else { job.resuming(Resuming::Off) })
    }

    fn section(mut self, name: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        let Keys(table) = keys(Keys::default());
        self.document.insert(name.to_owned(), Value::Table(table));
        self
    }
}
