//! A job file as sections of keys, which are asked for by name and type.
//!
//! The one idea: a section notes what it was asked for. Whatever else is in it when it is finished is an error, and
//! the keys that were asked for are what the error suggests; no list of keys is kept beside the code that reads
//! them. Every error has the line, the key, what is there and what would be accepted.

pub(crate) mod numbers;
pub(crate) mod paths;

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haloscope::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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

/// A type that a key can have.
pub(crate) trait Value<'a>: Sized {
    /// What would be accepted: `a number`.
    fn expected() -> String;

    /// The value, if it is of this type.
    fn of(value: &'a DeValue<'a>) -> Option<Self>;
}

impl Value<'_> for f64 {
    fn expected() -> String {
        "a number".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        let number: Self = match value {
            DeValue::Float(float) => float.as_str().parse().ok()?,
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok()? as Self
            }
            _ => return None,
        };
        number.is_finite().then_some(number)
    }
}

/// A number that may be infinite.
struct Bound(f64);

impl Value<'_> for Bound {
    fn expected() -> String {
        "a number, inf or -inf".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        let infinite = match value {
            DeValue::Float(float) => match float.as_str() {
                "inf" | "+inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        infinite.or_else(|| f64::of(value)).map(Self)
    }
}

impl Value<'_> for usize {
    fn expected() -> String {
        "a whole number that is not negative".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        let integer = value.as_integer()?;
        Self::from_str_radix(integer.as_str(), integer.radix()).ok()
    }
}

impl Value<'_> for bool {
    fn expected() -> String {
        "true or false".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        value.as_bool()
    }
}

impl<'a> Value<'a> for &'a str {
    fn expected() -> String {
        "text in quotes".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        value.as_str()
    }
}

/// A list; a single value is a list of one.
impl<'a, T: Value<'a>> Value<'a> for Vec<T> {
    fn expected() -> String {
        format!("{}, or a list of such", T::expected())
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value {
            DeValue::Array(items) => items.iter().map(|item| T::of(item.get_ref())).collect(),
            single => Some(vec![T::of(single)?]),
        }
    }
}

/// A table of the document.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    document: &'a Document,
    /// `operators[1]`; empty at the top.
    path: String,
    line: usize,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
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
        let section = Section {
            document: self,
            path: String::new(),
            line: 1,
            table: table.get_ref(),
            asked: RefCell::default(),
        };
        let result = read(&section)?;
        section.finish()?;
        Ok(result)
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.text[..span.start.min(self.text.len())].matches('\n').count() + 1
    }
}

impl<'a> Section<'a> {
    /// Where it is.
    pub(crate) fn place(&self) -> Place {
        self.place_at(self.line, self.path.clone())
    }

    /// Where a key is, or the section if it is not there.
    pub(crate) fn place_of(&self, key: &str) -> Place {
        match self.table.get_key_value(key) {
            Some((key, _)) => {
                self.place_at(self.document.line(&key.span()), self.path_of(key.get_ref()))
            }
            None => self.place_at(self.line, self.path_of(key)),
        }
    }

    /// The value of a key, if it is there.
    pub(crate) fn get<T: Value<'a>>(&self, key: &'static str) -> Result<Option<T>> {
        let Some(value) = self.find(key) else { return Ok(None) };
        match T::of(value.get_ref()) {
            Some(value) => Ok(Some(value)),
            None => Err(self.unexpected(key, value, &T::expected())),
        }
    }

    /// The value of a key that must be there.
    pub(crate) fn require<T: Value<'a>>(&self, key: &'static str) -> Result<T> {
        self.get(key)?.ok_or_else(|| self.missing(key, &T::expected()))
    }

    /// A number above 0, if it is there.
    pub(crate) fn positive(&self, key: &'static str) -> Result<Option<f64>> {
        self.number_that(key, "above 0", |number| number > 0.0)
    }

    /// A number that is not negative, if it is there.
    pub(crate) fn not_negative(&self, key: &'static str) -> Result<Option<f64>> {
        self.number_that(key, "that is not negative", |number| number >= 0.0)
    }

    /// A whole number of at least 1, if it is there.
    pub(crate) fn count(&self, key: &'static str) -> Result<Option<usize>> {
        match self.get::<usize>(key)? {
            Some(0) => Err(self.place_of(key).refuse("0 is given; 1 or more is expected")),
            count => Ok(count),
        }
    }

    /// Says something about a key to the author of the file, without refusing it.
    pub(crate) fn notice(&self, key: &str, text: impl fmt::Display) {
        self.document.notices.borrow_mut().push(format!("{}: {text}", self.place_of(key)));
    }

    /// Two numbers of which the second is larger, if they are there; they may be infinite.
    pub(crate) fn bounds(&self, key: &'static str) -> Result<Option<(f64, f64)>> {
        let bounds = self.get::<Vec<Bound>>(key)?;
        match bounds.as_deref() {
            None => Ok(None),
            Some(&[Bound(low), Bound(high)]) if low < high => Ok(Some((low, high))),
            Some(other) => Err(self.place_of(key).refuse(format!(
                "{:?} is given; two numbers are expected, the smaller one first",
                other.iter().map(|Bound(bound)| *bound).collect::<Vec<_>>()
            ))),
        }
    }

    /// Two numbers of which the second is larger, if they are there.
    pub(crate) fn range(&self, key: &'static str) -> Result<Option<(f64, f64)>> {
        match self.get::<Vec<f64>>(key)?.as_deref() {
            None => Ok(None),
            Some(&[low, high]) if low < high => Ok(Some((low, high))),
            Some(other) => Err(self.place_of(key).refuse(format!(
                "{other:?} is given; two numbers are expected, the smaller one first"
            ))),
        }
    }

    /// One of some words, if it is there.
    pub(crate) fn choose<T: Clone>(
        &self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Option<T>> {
        let names = || choices.iter().map(|(name, _)| *name);
        let list = || enumerate(names());
        let Some(value) = self.find(key) else { return Ok(None) };
        let Some(word) = value.get_ref().as_str() else {
            return Err(self.unexpected(key, value, &list()));
        };
        match choices.iter().find(|(name, _)| *name == word) {
            Some((_, choice)) => Ok(Some(choice.clone())),
            None => Err(self.place_of(key).refuse(format!(
                "`{word}` is unknown{}; there are {}",
                suggest(word, names()),
                list()
            ))),
        }
    }

    /// One of some words, which must be there.
    pub(crate) fn require_choice<T: Clone>(
        &self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<T> {
        self.choose(key, choices)?
            .ok_or_else(|| self.missing(key, &enumerate(choices.iter().map(|(name, _)| *name))))
    }

    /// The path of a file or folder: relative to the job file, from the root, from `~/` or from `$VARIABLE/`.
    pub(crate) fn path(&self, key: &'static str) -> Result<Option<PathBuf>> {
        self.get::<&str>(key)?.map(|path| self.resolve(key, path)).transpose()
    }

    /// Paths, or one path.
    pub(crate) fn paths(&self, key: &'static str) -> Result<Option<Vec<PathBuf>>> {
        let Some(paths) = self.get::<Vec<&str>>(key)? else { return Ok(None) };
        paths.into_iter().map(|path| self.resolve(key, path)).collect::<Result<_>>().map(Some)
    }

    /// Files to read: for each path the file itself, all files of a folder, or those that match a pattern.
    pub(crate) fn inputs(&self, key: &'static str) -> Result<Option<Vec<Vec<PathBuf>>>> {
        let Some(paths) = self.get::<Vec<&str>>(key)? else { return Ok(None) };
        let expand = |path: &str| {
            let (folder, rest) = self.base(key, path)?;
            paths::expand(&folder, rest).map_err(|error| self.place_of(key).refuse(error))
        };
        paths.into_iter().map(expand).collect::<Result<_>>().map(Some)
    }

    fn resolve(&self, key: &str, path: &str) -> Result<PathBuf> {
        let (folder, rest) = self.base(key, path)?;
        Ok(folder.join(rest))
    }

    /// The folder that a path begins in, and the rest of it.
    fn base<'p>(&self, key: &str, path: &'p str) -> Result<(PathBuf, &'p str)> {
        if path == "~" || path.starts_with("~/") {
            return match std::env::home_dir() {
                Some(home) => Ok((home, path[1..].trim_start_matches('/'))),
                None => Err(self.place_of(key).refuse("~ is given, and there is no home folder")),
            };
        }
        let Some(path) = path.strip_prefix('$') else {
            return Ok((self.document.folder.clone(), path));
        };
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        match std::env::var_os(name) {
            Some(folder) => Ok((folder.into(), rest)),
            None => Err(self.place_of(key).refuse(format!("the variable {name} is not set"))),
        }
    }

    /// A table within this one, if it is there; it is read and finished by `read`.
    pub(crate) fn section<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Section<'a>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.unexpected(key, value, &format!("a table, as in [{key}]")));
        };
        self.inner(self.path_of(key), value, table, read).map(Some)
    }

    /// The tables of a list, each of which is read and finished by `read`; none if it is not there.
    pub(crate) fn sections<T>(
        &self,
        key: &'static str,
        mut read: impl FnMut(&Section<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let expected = format!("a list of tables, as in [[{key}]]");
        let Some(items) = value.get_ref().as_array() else {
            return Err(self.unexpected(key, value, &expected));
        };
        let read = |(index, item): (usize, &'a Spanned<DeValue<'a>>)| match item.get_ref() {
            DeValue::Table(table) => {
                let path = format!("{}[{index}]", self.path_of(key));
                self.inner(path, item, table, &mut read)
            }
            _ => Err(self.unexpected(key, item, &expected)),
        };
        items.iter().enumerate().map(read).collect()
    }

    /// Whether a key is there; it counts as asked for, so that a mistake in it is told from one in another.
    pub(crate) fn has(&self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// Whether a key is there and is a table.
    pub(crate) fn is_table(&self, key: &'static str) -> bool {
        self.find(key).is_some_and(|value| value.get_ref().is_table())
    }

    /// Refuses tables and keys with other names, before one that is misspelt is taken for one that is missing.
    pub(crate) fn refuse_all_but(&self, names: &[&str]) -> Result<()> {
        let is_known = |name: &str| names.contains(&name);
        let Some(unknown) = self.table.keys().find(|key| !is_known(key.get_ref())) else {
            return Ok(());
        };
        let name = unknown.get_ref();
        let is_section = self
            .table
            .get(&**name)
            .is_some_and(|value| matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_)));
        Err(self.place_of(name).refuse(format!(
            "the {} is unknown{}; there are {}",
            if is_section { "section" } else { "key" },
            suggest(name, names.iter().copied()),
            enumerate(names.iter().copied())
        )))
    }

    /// All keys with their values as the text has them, those of inner tables under their paths.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        for (key, value) in self.table {
            self.list(&self.path_of(key.get_ref()), value, &mut settings);
        }
        settings
    }

    fn list(&self, path: &str, value: &Spanned<DeValue>, settings: &mut Vec<(String, String)>) {
        match value.get_ref() {
            DeValue::Table(table) => {
                for (key, value) in table {
                    self.list(&format!("{path}.{}", key.get_ref()), value, settings);
                }
            }
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                for (index, item) in items.iter().enumerate() {
                    self.list(&format!("{path}[{index}]"), item, settings);
                }
            }
            plain => {
                let text = self.document.text.get(value.span()).unwrap_or_default();
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                settings.push((path.to_owned(), shorten(&text, plain)));
            }
        }
    }

    /// All that is in some of its keys, whatever the layout of the text.
    pub(crate) fn fingerprint(&self, keys: &[&str]) -> String {
        let mut text = String::new();
        for key in keys {
            if let Some(value) = self.table.get(*key) {
                text.push_str(key);
                write_value(&mut text, value.get_ref());
            }
        }
        text
    }

    fn inner<T>(
        &self,
        path: String,
        value: &'a Spanned<DeValue<'a>>,
        table: &'a DeTable<'a>,
        read: impl FnOnce(&Section<'a>) -> Result<T>,
    ) -> Result<T> {
        let section = Section {
            document: self.document,
            path,
            line: self.document.line(&value.span()),
            table,
            asked: RefCell::default(),
        };
        let result = read(&section)?;
        section.finish()?;
        Ok(result)
    }

    /// Refuses keys that nobody asked for.
    fn finish(&self) -> Result<()> {
        let asked = self.asked.borrow();
        let Some(unknown) = self.table.keys().find(|key| !asked.contains(&&**key.get_ref())) else {
            return Ok(());
        };
        let name = unknown.get_ref();
        Err(self.place_of(name).refuse(format!(
            "the key is unknown here{}; there are {}",
            suggest(name, asked.iter().copied()),
            enumerate(asked.iter().copied())
        )))
    }

    fn find(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        self.table.get(key)
    }

    fn number_that(
        &self,
        key: &'static str,
        what: &str,
        is_good: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>> {
        match self.get::<f64>(key)? {
            Some(number) if !is_good(number) => Err(self
                .place_of(key)
                .refuse(format!("{number} is given; a number {what} is expected"))),
            number => Ok(number),
        }
    }

    fn unexpected(&self, key: &str, value: &Spanned<DeValue>, expected: &str) -> Error {
        let given = self.document.text.get(value.span()).unwrap_or_default();
        let given = given.lines().next().unwrap_or_default();
        self.place_of(key).refuse(format!("{given} is given; {expected} is expected"))
    }

    fn missing(&self, key: &'static str, expected: &str) -> Error {
        // A word that is nearly the key is the likely reason.
        let near = self.table.keys().map(|key| &**key.get_ref()).find(|other| is_near(other, key));
        let hint = near.map_or_else(String::new, |near| format!(" (is `{near}` meant to be it?)"));
        let path = self.path_of(key);
        self.place_at(self.line, path)
            .refuse(format!("it is missing{hint}; {expected} is expected"))
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn place_at(&self, line: usize, path: String) -> Place {
        Place { document: self.document.name.as_str().into(), line, path }
    }
}

/// ` (did you mean …?)`, if one of the words is near.
fn suggest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> String {
    let nearest = words.min_by_key(|other| strsim::damerau_levenshtein(word, other));
    match nearest {
        Some(nearest) if is_near(word, nearest) => format!(" (did you mean `{nearest}`?)"),
        _ => String::new(),
    }
}

/// Whether one word may be a slip of the other: a third of the letters, or the beginning.
fn is_near(word: &str, other: &str) -> bool {
    let slips = strsim::damerau_levenshtein(word, other);
    slips <= word.len().max(other.len()).div_ceil(3) || (word.len() > 2 && other.starts_with(word))
}

/// The text of a value that a page has room for.
fn shorten(text: &str, value: &DeValue) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let begin: String = text.chars().take(MOST).collect();
    match value.as_array() {
        Some(items) => format!("{begin}… ({} values)", items.len()),
        None => format!("{begin}…"),
    }
}

/// `a, b and c`.
fn enumerate<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        None => "none".into(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

fn write_value(text: &mut String, value: &DeValue) {
    match value {
        DeValue::Table(table) => {
            text.push('{');
            for (key, value) in table {
                text.push_str(key.get_ref());
                write_value(text, value.get_ref());
            }
            text.push('}');
        }
        DeValue::Array(items) => {
            text.push('[');
            items.iter().for_each(|item| write_value(text, item.get_ref()));
            text.push(']');
        }
        plain => {
            let written = match plain {
                DeValue::String(string) => format!("{string:?}"),
                DeValue::Integer(integer) => integer.to_string(),
                DeValue::Float(float) => float.to_string(),
                DeValue::Datetime(time) => time.to_string(),
                other => format!("{:?}", other.as_bool()),
            };
            text.extend(["=", &written, ";"]);
        }
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
                Ok(top.fingerprint(&["a"]))
            })
        };
        let one = print("[a]\nx = [1, 2.5] # note\n").expect("read");
        assert_eq!(one, print("a = { x = [ 1,2.5 ] }").expect("read"));
        assert_ne!(one, print("a.x = [1, 2]").expect("read"));
    }
}
