//! A table of a job file, whose keys are asked for by name and type.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;

use haloscope::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::suggest::{enumerate, is_near, suggest};
use super::value::{Bound, Value};
use super::{Document, Place, paths};

/// A table of the document.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(super) document: &'a Document,
    /// `operators[1]`; empty at the top.
    path: String,
    line: usize,
    pub(super) table: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// All of a document.
    pub(super) fn top(document: &'a Document, table: &'a DeTable<'a>) -> Self {
        Self { document, path: String::new(), line: 1, table, asked: RefCell::default() }
    }

    /// Gives it to `read`, and refuses what that did not ask for.
    pub(super) fn read<T>(self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let result = read(&self)?;
        self.finish()?;
        Ok(result)
    }

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

    /// ` (did you mean …?)`, if a key that is there may be a slip of one of these, none of which is.
    pub(crate) fn suggest(&self, names: &[&str]) -> String {
        let mut hints = self.table.keys().map(|key| suggest(key.get_ref(), names.iter().copied()));
        hints.find(|hint| !hint.is_empty()).unwrap_or_default()
    }

    fn inner<T>(
        &self,
        path: String,
        value: &'a Spanned<DeValue<'a>>,
        table: &'a DeTable<'a>,
        read: impl FnOnce(&Section<'a>) -> Result<T>,
    ) -> Result<T> {
        let (document, line) = (self.document, self.document.line(&value.span()));
        Section { document, path, line, table, asked: RefCell::default() }.read(read)
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

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn place_at(&self, line: usize, path: String) -> Place {
        Place { document: self.document.name.as_str().into(), line, path }
    }
}
