//! A job that a program writes: the sections and keys of a job file, checked by the same reader.

use std::fmt;
use std::path::PathBuf;

use haloscope::{Error, Result};
use toml::{Table, Value};

use crate::Job;
use crate::job::SECTIONS;
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

    /// Leaves a key out, if it is there.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Self {
        self.0.remove(key);
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
///
/// A job that is nearly there is changed: [`from_text`](Self::from_text) takes that of a file, each method replaces its
/// section, and [`edit`](Self::edit) changes some keys of one. What is displayed is the file of the job.
///
/// ```
/// use haloscope_job::{Choices, JobBuilder, Problem};
///
/// let problem = Problem::Deblur;
/// let (name, sides) = ("small".to_owned(), problem.sides(48));
/// let text = problem.job(&Choices { name, sides, operators: Some(2), model: None, iterations: None });
/// let job = JobBuilder::from_text(&text)?
///     .edit("measurements", |it| it.set("seed", 7))
///     .solver("landweber", |it| it)
///     .without("prior");
/// assert!(job.to_string().contains("seed = 7"));
/// assert_eq!(job.build()?.method(), "landweber");
/// # Ok::<(), haloscope::Error>(())
/// ```
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

    /// The sections of a job file.
    pub fn from_text(text: &str) -> Result<Self> {
        let mut document: Table = text.parse().map_err(|error: toml::de::Error| {
            Error::Content { file: "job".into(), reason: error.to_string() }
        })?;
        let operators = match document.remove("operators") {
            Some(Value::Array(operators)) => operators,
            // It is no list, which the reader of jobs refuses.
            Some(other) => {
                document.insert("operators".into(), other);
                Vec::new()
            }
            None => Vec::new(),
        };
        Ok(Self { document, operators, ..Self::default() })
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

    /// `[image]`; `layout` and `shards` say how the ranks share it.
    #[must_use]
    pub fn image(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("image", keys)
    }

    /// `[measurements]`.
    #[must_use]
    pub fn measurements(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("measurements", keys)
    }

    /// `[preparation]`.
    #[must_use]
    pub fn preparation(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("preparation", keys)
    }

    /// `[memory]`; `scratch` is a folder for arrays that are larger than memory.
    #[must_use]
    pub fn memory(self, keys: impl FnOnce(Keys) -> Keys) -> Self {
        self.section("memory", keys)
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

    /// Changes keys of a section, or begins it.
    #[must_use]
    pub fn edit(self, section: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        let there = match self.document.get(section) {
            Some(Value::Table(table)) => Keys(table.clone()),
            // `image = "sharded"` is short for a key of the section.
            Some(layout) if section == "image" => Keys::default().set("layout", layout.clone()),
            _ => Keys::default(),
        };
        self.section(section, |_| keys(there))
    }

    /// Leaves a section out.
    #[must_use]
    pub fn without(mut self, section: &str) -> Self {
        self.document.remove(section);
        if section == "operators" {
            self.operators.clear();
        }
        self
    }

    /// The job, if a file with these sections would be one.
    pub fn build(self) -> Result<Job> {
        let has_checkpoints = self.document.contains_key("checkpoint");
        let name = self.name.as_deref().unwrap_or("job");
        let job = Job::parse_for_caller(name, &self.to_string(), &self.folder)?;
        Ok(if has_checkpoints { job } else { job.resuming(Resuming::Off) })
    }

    fn section(mut self, name: &str, keys: impl FnOnce(Keys) -> Keys) -> Self {
        let Keys(table) = keys(Keys::default());
        self.document.insert(name.to_owned(), Value::Table(table));
        self
    }
}

impl fmt::Display for JobBuilder {
    /// The job as a file, with its sections in the usual order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut document = self.document.clone();
        if !self.operators.is_empty() {
            document.insert("operators".into(), Value::Array(self.operators.clone()));
        }
        // What is not a section comes before all of them, as TOML has it.
        let (tables, values): (Table, Table) =
            document.into_iter().partition(|(_, value)| value.is_table() || is_list(value));
        let mut parts = Vec::new();
        if !values.is_empty() {
            parts.push(values.to_string());
        }
        let unknown = tables.keys().filter(|name| !SECTIONS.contains(&name.as_str()));
        for name in SECTIONS.into_iter().chain(unknown.map(String::as_str)) {
            if let Some(value) = tables.get(name) {
                let section: Table = [(name.to_owned(), value.clone())].into_iter().collect();
                parts.push(section.to_string());
            }
        }
        let parts: Vec<&str> = parts.iter().map(|part| part.trim()).collect();
        writeln!(f, "{}", parts.join("\n\n"))
    }
}

/// Whether a value is a list of tables.
fn is_list(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().any(Value::is_table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choices, Problem};

    fn text(problem: Problem) -> String {
        let (name, sides) = ("job".to_owned(), problem.sides(24));
        problem.job(&Choices { name, sides, operators: Some(3), model: None, iterations: None })
    }

    #[test]
    fn a_file_that_is_taken_apart_is_the_same_job() {
        for problem in Problem::ALL {
            let builder = JobBuilder::from_text(&text(problem)).expect("a job file");
            let first = builder.to_string();
            assert_eq!(JobBuilder::from_text(&first).expect("the same").to_string(), first);
            let [own, again] = [text(problem), first].map(|text| {
                let job = Job::parse("job.toml", &text, "".as_ref()).expect("a job");
                job.id(1, &[]).expect("an identity").to_string()
            });
            assert_eq!(own, again, "{problem}");
        }
    }

    #[test]
    fn sections_are_in_the_order_of_job_files() {
        let text = JobBuilder::from_text(&text(Problem::Tomography2d)).expect("a file").to_string();
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
        assert_eq!(
            heads,
            [
                "[measurements]",
                "[measurements.noise]",
                "[[operators]]",
                "[prior]",
                "[solver]",
                "[stop]",
                "[start]",
                "[output]"
            ]
        );
    }

    #[test]
    fn an_edit_keeps_the_other_keys() {
        let builder = JobBuilder::from_text(&text(Problem::Deblur)).expect("a job file");
        let edited = builder
            .edit("output", |it| it.unset("folder"))
            .edit("measurements", |it| it.set("seed", 5))
            .edit("start", |it| it.set("kind", "zeros"))
            .to_string();
        for line in
            ["file = \"job.png\"", "seed = 5", "phantom = \"landscape\"", "kind = \"zeros\""]
        {
            assert!(edited.contains(line), "{edited}");
        }
        assert!(!edited.contains("folder"), "{edited}");
    }

    #[test]
    fn what_is_no_job_is_refused_as_in_a_file() {
        assert!(JobBuilder::from_text("a = = 1").is_err());
        for (text, words) in [
            ("colour = 1", "the key is unknown"),
            ("[solvers]\nmethod = \"cg\"", "did you mean `solver`?"),
            ("", "[measurements] is missing"),
        ] {
            let builder = JobBuilder::from_text(text).expect("TOML");
            let error = builder.build().expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
