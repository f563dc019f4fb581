//! A job file as sections of keys, which are asked for by name and type.
//!
//! The one idea: a section notes what it was asked for. Whatever else is in it when it is finished is an error, and
//! the keys that were asked for are what the error suggests; no list of keys is kept beside the code that reads
//! them. Every error has the line, the key, what is there and what would be accepted.

pub(crate) mod numbers;
pub(crate) mod paths;
mod section;
mod suggest;
mod text;
mod value;

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haloscope::{Error, Result};
use toml::de::DeTable;

pub(crate) use section::Section;
pub(crate) use value::Value;

/// The text of a job file, and where it is.
#[derive(Debug)]
pub(crate) struct Document {
    /// What messages call it.
    pub name: String,
    pub text: String,
    /// What paths in it are relative to.
    pub folder: PathBuf,
    /// What its author should know, though it is no mistake.
    pub notices: RefCell<Vec<String>>,
}

/// A place in a job file, for messages: `job.toml:12: operators[1].sigma`.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    document: Arc<str>,
    line: usize,
    path: String,
}

impl Place {
    /// What is wrong there.
    pub(crate) fn refuse(&self, reason: impl fmt::Display) -> Error {
        Error::Content { file: self.to_string(), reason: reason.to_string() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.document, self.line, self.path)
    }
}

impl Document {
    /// A document from its text.
    pub(crate) fn new(name: impl Into<String>, text: impl Into<String>, folder: &Path) -> Self {
        let (name, text) = (name.into(), text.into());
        Self { name, text, folder: folder.to_owned(), notices: RefCell::default() }
    }

    /// A document from a file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::File { file: name.clone(), reason: error.to_string() })?;
        Ok(Self::new(name, text, path.parent().unwrap_or(Path::new(""))))
    }

    /// Gives all of the document to `read`, and refuses what it did not ask for.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Section) -> Result<T>) -> Result<T> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let line = error.span().map_or(1, |span| self.line(&span));
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            Error::Content { file: format!("{}:{line}", self.name), reason: message }
        })?;
        Section::top(self, table.get_ref()).read(read)
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.text[..span.start.min(self.text.len())].matches('\n').count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document::new("job.toml", text, Path::new("there"))
    }

    fn refusal(text: &str, read: impl FnOnce(&Section) -> Result<()>) -> String {
        document(text).read(read).expect_err("it is refused").to_string()
    }

    #[test]
    fn keys_that_nobody_asked_for_are_refused_with_line_and_suggestion() {
        let message = refusal("[solver]\nstep = 1\nitertions = 3\n", |top| {
            let read = |solver: &Section| {
                solver.get::<f64>("step")?;
                solver.get::<usize>("iterations").map(|_| ())
            };
            top.section("solver", read).map(|_| ())
        });
        assert_eq!(
            message,
            "job.toml:3: solver.itertions: the key is unknown here (did you mean `iterations`?); there are \
             step and iterations"
        );
    }

    #[test]
    fn values_of_another_type_are_refused_with_what_is_expected() {
        let message = refusal("a = 1\nstep = \"fast\"", |top| {
            top.get::<f64>("a")?;
            top.get::<f64>("step").map(|_| ())
        });
        assert_eq!(message, "job.toml:2: step: \"fast\" is given; a number is expected");
        let message = refusal("sides = [1, -2]", |top| top.get::<Vec<usize>>("sides").map(|_| ()));
        assert!(message.contains("[1, -2] is given; a whole number"), "{message}");
        assert!(refusal("x = inf", |top| top.get::<f64>("x").map(|_| ())).contains("inf is given"));
    }

    #[test]
    fn a_missing_key_names_the_slip_that_may_be_it() {
        let message = refusal("wieght = 1", |top| top.require::<f64>("weight").map(|_| ()));
        assert!(message.contains("it is missing (is `wieght` meant to be it?)"), "{message}");
    }

    #[test]
    fn words_are_chosen_from_a_list() {
        let choices = [("pgd", 1), ("fista", 2)];
        let message =
            refusal("method = 'fitsa'", |top| top.require_choice("method", &choices).map(|_| ()));
        assert!(message.contains("did you mean `fista`?); there are pgd and fista"), "{message}");
    }

    #[test]
    fn what_is_no_toml_is_refused_with_its_line() {
        let message = refusal("a = 1\nb = = 2\n", |_| Ok(()));
        assert!(message.starts_with("job.toml:2: "), "{message}");
    }

    #[test]
    fn a_section_that_is_misspelt_is_named_before_one_that_is_missing() {
        let text = "[measurements]\nfiles = 'a.npy'\n\n[sovler]\nmethod = 'cg'\n";
        let message = refusal(text, |top| top.refuse_all_but(&["measurements", "solver"]));
        assert_eq!(
            message,
            "job.toml:4: sovler: the section is unknown (did you mean `solver`?); there are measurements and solver"
        );
        let message = refusal("itertions = 3", |top| top.refuse_all_but(&["image"]));
        assert_eq!(message, "job.toml:1: itertions: the key is unknown; there are image");
    }

    #[test]
    fn settings_are_all_keys_under_their_paths() {
        let angles: Vec<String> = (0..100).map(|angle| angle.to_string()).collect();
        let text = format!(
            "[prior]\nkind = 'network' # note\n[[operators]]\nsigma = [1.5,\n  0.7]\nangles = [{}]\n",
            angles.join(", ")
        );
        let settings = document(&text)
            .read(|top| {
                top.section("prior", |prior| prior.get::<&str>("kind").map(|_| ()))?;
                top.sections("operators", |one| {
                    one.get::<Vec<f64>>("sigma")?;
                    one.get::<Vec<f64>>("angles").map(|_| ())
                })?;
                Ok(top.settings())
            })
            .expect("a document");
        let find = |name: &str| {
            let found = settings.iter().find(|(key, _)| key == name).expect("it is listed");
            found.1.clone()
        };
        assert_eq!(find("prior.kind"), "'network'");
        assert_eq!(find("operators[0].sigma"), "[1.5, 0.7]");
        assert!(find("operators[0].angles").ends_with("… (100 values)"));
    }

    #[test]
    fn a_fingerprint_does_not_depend_on_layout_and_comments() {
        let print = |text: &str| {
            document(text).read(|top| {
                top.section("a", |a| a.get::<Vec<f64>>("x").map(|_| ()))?;
                Ok(top.fingerprint(&["a"], &[]))
            })
        };
        let one = print("[a]\nx = [1, 2.5] # note\n").expect("read");
        assert_eq!(one, print("a = { x = [ 1,2.5 ] }").expect("read"));
        assert_ne!(one, print("a.x = [1, 2]").expect("read"));
    }
}
