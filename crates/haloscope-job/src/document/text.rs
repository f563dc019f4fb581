//! A section as text: for reports, and for telling jobs apart.

use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::Section;

impl Section<'_> {
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

    /// All that is in some of its keys, whatever the layout of the text. Plain values at the paths `but` do not count, nor does
    /// a table that has no others.
    pub(crate) fn fingerprint(&self, keys: &[&str], but: &[&str]) -> String {
        let mut text = String::new();
        for key in keys {
            match self.table.get(*key).map(Spanned::get_ref) {
                None => (),
                Some(DeValue::Table(table)) if but.iter().any(|path| is_within(path, key)) => {
                    let counts = |name: &str| !but.contains(&&*format!("{key}.{name}"));
                    let counted: Vec<_> =
                        table.iter().filter(|(name, _)| counts(name.get_ref())).collect();
                    if !table.is_empty() && counted.is_empty() {
                        continue;
                    }
                    text.push_str(key);
                    write_table(&mut text, counted);
                }
                Some(_) if but.contains(key) => (),
                Some(value) => {
                    text.push_str(key);
                    write_value(&mut text, value);
                }
            }
        }
        text
    }
}

/// Whether a path is that of a table or of something in it.
fn is_within(path: &str, table: &str) -> bool {
    path.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
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

fn write_table<'a>(
    text: &mut String,
    table: impl IntoIterator<Item = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)>,
) {
    text.push('{');
    for (key, value) in table {
        text.push_str(key.get_ref());
        write_value(text, value.get_ref());
    }
    text.push('}');
}

fn write_value(text: &mut String, value: &DeValue) {
    match value {
        DeValue::Table(table) => write_table(text, table),
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
