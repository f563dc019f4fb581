//! Several files under one name: those of a folder, or those that match a pattern.
//!
//! They come in the order of the numbers in their names: `view2.tif` is before `view10.tif`.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use haloscope::io::Format;
use haloscope::{Error, Result};

/// The files that a path in `folder` stands for. One that is no folder and no pattern stands for itself, be it there or
/// not.
pub(crate) fn expand(folder: &Path, path: &str) -> Result<Vec<PathBuf>> {
    let whole = folder.join(path);
    let is_zarr = whole.join("zarr.json").exists() || Format::of_name(path) == Some(Format::Zarr);
    if whole.is_dir() && !is_zarr {
        return list(&whole);
    }
    if !is_pattern(folder, path) {
        return Ok(vec![whole]);
    }
    let pattern = below(folder, path);
    let refused = |reason: String| Error::Content { file: path.to_owned(), reason };
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
    let found = glob::glob_with(&pattern, options)
        .map_err(|error| refused(format!("it is no pattern: {}", error.msg)))?;
    let mut files = found
        .collect::<std::result::Result<Vec<PathBuf>, _>>()
        .map_err(|error| refused(error.to_string()))?;
    if files.is_empty() {
        return Err(refused("no file matches it".into()));
    }
    sort(&mut files);
    Ok(files)
}

/// Whether a path in `folder` is a pattern. A name may have the letters of one.
pub(crate) fn is_pattern(folder: &Path, path: &str) -> bool {
    path.contains(['*', '?', '[']) && !folder.join(path).exists()
}

/// A pattern in `folder` as one that does not depend on where it is used.
pub(crate) fn below(folder: &Path, pattern: &str) -> String {
    if Path::new(pattern).is_absolute() || folder.as_os_str().is_empty() {
        return pattern.to_owned();
    }
    format!("{}/{pattern}", Pattern::escape(&folder.display().to_string()))
}

/// The pattern that stands for just these files of one folder, if there is one. They are in the order of their names, as a
/// shell lists them, or of the numbers in these.
pub(crate) fn pattern_of(files: &[PathBuf]) -> Option<String> {
    let folder = files.first()?.parent()?;
    let mut names = Vec::new();
    for file in files {
        names.push(file.file_name()?.to_str().filter(|_| file.parent() == Some(folder))?);
    }
    let (mut numbered, mut sorted) = (names.clone(), names.clone());
    numbered.sort_by(|one, other| natural(one, other));
    sorted.sort_unstable();
    if names != numbered && names != sorted {
        return None;
    }
    let shared = |one: &mut dyn Iterator<Item = char>, other: &mut dyn Iterator<Item = char>| {
        one.zip(other).take_while(|(a, b)| a == b).map(|(a, _)| a).collect::<String>()
    };
    let (first, last) = (sorted.first()?, sorted.last()?);
    // What the first and the last name in their order begin with, all begin with; ends have no such order.
    let start = shared(&mut first.chars(), &mut last.chars());
    let mut end: String = first.chars().rev().collect();
    for name in &names {
        end = shared(&mut end.chars(), &mut name.chars().rev());
    }
    let end: String = end.chars().rev().collect();
    let is_digit = |letter: char| letter.is_ascii_digit();
    let start = start.trim_end_matches(is_digit);
    let end = end.trim_start_matches(is_digit);
    let name = format!("{}*{}", Pattern::escape(start), Pattern::escape(end));
    let pattern = below(folder, &name);
    let found = expand(Path::new(""), &pattern).ok()?;
    let is_same = found
        .iter()
        .map(|file| file.file_name())
        .eq(numbered.iter().map(|name| Some(std::ffi::OsStr::new(name))));
    is_same.then_some(pattern)
}

/// The files of a folder, which are of one format; those of no format that is read do not count.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let name = folder.display().to_string();
    let failed =
        |error: std::io::Error| Error::File { file: name.clone(), reason: error.to_string() };
    let mut files = Vec::new();
    let mut formats: Vec<Format> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(format) = Format::of_name(&file) else { continue };
        if file.starts_with('.') || !path.is_file() {
            continue;
        }
        if !formats.contains(&format) {
            formats.push(format);
        }
        files.push(path);
    }
    let mut names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
    names.sort_unstable();
    match names[..] {
        [] => Err(Error::Content {
            file: name,
            reason: "the folder has no files of a format that is read".into(),
        }),
        [_] => {
            sort(&mut files);
            Ok(files)
        }
        _ => Err(Error::Content {
            file: name,
            reason: format!(
                "the folder has files of several formats ({}); select one with a pattern such as *.tif",
                names.join(", ")
            ),
        }),
    }
}

fn sort(files: &mut [PathBuf]) {
    files.sort_by(|one, other| natural(&one.to_string_lossy(), &other.to_string_lossy()));
}

/// Compares names as people count: runs of digits are numbers.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    loop {
        let (Some(a), Some(b)) = (left.chars().next(), right.chars().next()) else {
            // The same number may have been written differently.
            return left.len().cmp(&right.len()).then_with(|| one.cmp(other));
        };
        if a.is_ascii_digit() && b.is_ascii_digit() {
            let (number, rest) = digits(left);
            let (number2, rest2) = digits(right);
            // Without leading zeros the longer one is larger, however long they are.
            let order = number.len().cmp(&number2.len()).then_with(|| number.cmp(number2));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (rest, rest2);
        } else if a == b {
            (left, right) = (&left[a.len_utf8()..], &right[b.len_utf8()..]);
        } else {
            return a.cmp(&b);
        }
    }
}

/// The number that a text begins with, without leading zeros, and what follows it.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    (number.trim_start_matches('0'), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[PathBuf]) -> Vec<String> {
        files.iter().map(|f| f.file_name().expect("a name").display().to_string()).collect()
    }

    #[test]
    fn numbers_in_names_are_counted() {
        let mut files: Vec<PathBuf> = [
            "v10.tif",
            "v2.tif",
            "v001.tif",
            "v1b.tif",
            "v1.tif",
            "a.tif",
            "v2_10.tif",
            "v2_9.tif",
        ]
        .map(PathBuf::from)
        .into();
        sort(&mut files);
        let expected = [
            "a.tif",
            "v001.tif",
            "v1.tif",
            "v1b.tif",
            "v2.tif",
            "v2_9.tif",
            "v2_10.tif",
            "v10.tif",
        ];
        assert_eq!(names(&files), expected);
    }

    #[test]
    fn what_a_shell_made_of_a_pattern_is_the_pattern_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("scan [1]");
        std::fs::create_dir(&inside).expect("made");
        let files = |names: &[&str]| -> Vec<PathBuf> {
            for name in names {
                std::fs::write(inside.join(name), "").expect("written");
            }
            names.iter().map(|name| inside.join(name)).collect()
        };
        // As a shell sorts them.
        let views = files(&["v1.tif", "v10.tif", "v2.tif"]);
        let pattern = pattern_of(&views).expect("a pattern");
        assert!(pattern.ends_with("scan [[]1[]]/v*.tif"), "{pattern}");
        let found = expand(Path::new(""), &pattern).expect("files");
        assert_eq!(names(&found), ["v1.tif", "v2.tif", "v10.tif"]);
        let numbered = [0, 2, 1].map(|index| views[index].clone());
        assert_eq!(pattern_of(&numbered), Some(pattern));
        // An order of its own, or not all that match.
        assert_eq!(pattern_of(&[2, 0, 1].map(|index| views[index].clone())), None);
        assert_eq!(pattern_of(&views[..2]), None);
        assert_eq!(pattern_of(&[views[0].clone(), folder.path().join("v2.tif")]), None);
    }

    #[test]
    fn folders_and_patterns_are_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("scan [1]");
        std::fs::create_dir(&inside).expect("made");
        for name in ["v10.tif", "v9.tif", "notes.txt", ".hidden.tif", "flat [1].tif"] {
            std::fs::write(inside.join(name), "").expect("written");
        }
        let all = expand(folder.path(), "scan [1]").expect("a folder");
        assert_eq!(names(&all), ["flat [1].tif", "v9.tif", "v10.tif"]);
        // A folder whose name has the letters of a pattern.
        assert_eq!(names(&expand(&inside, "v*.tif").expect("two")), ["v9.tif", "v10.tif"]);
        assert_eq!(names(&expand(&inside, "v?.tif").expect("one")), ["v9.tif"]);
        assert_eq!(names(&expand(&inside, "flat [1].tif").expect("itself")), ["flat [1].tif"]);
        assert_eq!(names(&expand(&inside, "absent.tif").expect("itself")), ["absent.tif"]);
        let message = |path| expand(&inside, path).expect_err(path).to_string();
        assert!(message("w*.tif").contains("no file matches"), "{}", message("w*.tif"));
        std::fs::write(inside.join("v1.npy"), "").expect("written");
        let error = expand(folder.path(), "scan [1]").expect_err("two formats").to_string();
        assert!(error.contains("NPY, TIFF"), "{error}");
    }
}
