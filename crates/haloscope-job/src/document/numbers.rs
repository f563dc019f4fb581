//! Lists of numbers in files: text, or an array in any format that is read.
//!
//! In text, numbers are separated by white space, commas or lines, and what follows a # is a comment.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use haloscope::io::{self, Axes, Format, Limits, ReadOptions, Reader};
use haloscope::{Error, Result};
use ndarray::ArrayD;

/// A text of more bytes is no list that anybody would write.
const MOST_BYTES: u64 = 64 << 20;

/// The numbers of a file, in their order. One whose ending is of no other format is text, unless it is none.
pub(crate) fn read(path: &Path) -> Result<Vec<f64>> {
    let name = path.display().to_string();
    if Format::of_name(&name).is_none()
        && let Some(text) = text_of(path, &name)?
    {
        return parse(&name, &text);
    }
    let options = ReadOptions { axes: Axes::AsStored, ..ReadOptions::default() };
    let image = io::read(path, &options)?;
    Ok(image.array.iter().map(|number| f64::from(*number)).collect())
}

/// The same in double precision, also where the file is NPY or NPZ, for lists as long as memory holds: so many numbers for each of
/// something. Of an archive of several arrays it is the one called `key`.
pub(crate) fn read_wide(path: &Path, key: &str, each: usize) -> Result<Vec<f64>> {
    let name = path.display().to_string();
    let Some(format) = Format::of_name(&name) else { return check_each(path, read(path)?, each) };
    let found = read_array(path, format, key)?;
    // An image of one channel is a table as well.
    let sides: Vec<usize> = found.shape().iter().copied().filter(|side| *side != 1).collect();
    if let [_, .., last] = sides[..]
        && (sides.len() > 2 || last != each)
    {
        return Err(Error::Content {
            file: name,
            reason: format!(
                "an array of shape {:?}; {each} for each is expected, along the last axis",
                found.shape()
            ),
        });
    }
    check_each(path, found.into_iter().collect(), each)
}

/// How many numbers [`read_wide`] would find, from the header of an array; none if it cannot be read.
pub(crate) fn count_wide(path: &Path, key: &str) -> Option<usize> {
    let Some(format) = Format::of_name(&path.display().to_string()) else {
        return read(path).ok().map(|numbers| numbers.len());
    };
    if format == Format::Npz {
        return read_array(path, format, key).ok().map(|numbers| numbers.len());
    }
    let limits = Limits { side: Limits::NONE.side, ..Limits::default() };
    let options = ReadOptions { limits, axes: Axes::AsStored, ..ReadOptions::default() };
    Reader::open(path, &options).ok().map(|reader| reader.shape().iter().product())
}

fn check_each(path: &Path, found: Vec<f64>, each: usize) -> Result<Vec<f64>> {
    if found.len().is_multiple_of(each.max(1)) {
        return Ok(found);
    }
    Err(Error::Content {
        file: path.display().to_string(),
        reason: format!("it has {} numbers; {each} for each are expected", found.len()),
    })
}

fn read_array(path: &Path, format: Format, key: &str) -> Result<ArrayD<f64>> {
    let limits = Limits { side: Limits::NONE.side, ..Limits::default() };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    if format != Format::Npz {
        return io::read_numbers(path, &options);
    }
    let named = ReadOptions { entry: Some(key.into()), ..options.clone() };
    io::read_numbers(path, &named)
        .or_else(|error| io::read_numbers(path, &options).map_err(|_| error))
}

/// What a file says, if it is text.
fn text_of(path: &Path, name: &str) -> Result<Option<String>> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(length) if length as u64 > MOST_BYTES => Err(Error::Limit {
            file: name.into(),
            reason: format!("it has more than {MOST_BYTES} bytes of text"),
        }),
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(Error::File { file: name.into(), reason: error.to_string() }),
    }
}

fn parse(name: &str, text: &str) -> Result<Vec<f64>> {
    // Some programs begin a text with a mark of its encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut numbers = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.split_once('#').map_or(line, |(content, _)| content);
        let separators = |letter: char| letter == ',' || letter.is_whitespace();
        for word in content.split(separators).filter(|word| !word.is_empty()) {
            match word.parse::<f64>() {
                Ok(number) if number.is_finite() => numbers.push(number),
                _ => {
                    return Err(Error::Content {
                        file: format!("{name}:{}", index + 1),
                        reason: format!("{word:?} is not a number"),
                    });
                }
            }
        }
    }
    if numbers.is_empty() {
        let reason = "it has no numbers; they are separated by white space, commas or lines";
        return Err(Error::Content { file: name.into(), reason: reason.into() });
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_separated_by_spaces_commas_or_lines() {
        let expected = Some(vec![0.0, 1.5, -2.0, 30.0]);
        for text in
            ["0 1.5 -2 3e1", "0,1.5,-2,30\n", "# degrees\r\n0\r\n1.5\r\n\r\n-2 # here\r\n30,"]
        {
            assert_eq!(parse("a.txt", text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn words_are_refused_with_their_lines() {
        let message = |text| parse("a.txt", text).expect_err("refused").to_string();
        assert_eq!(message("0\n1, two"), "a.txt:2: \"two\" is not a number");
        assert!(message("nan").contains("a.txt:1"));
        assert!(message("# nothing\n").contains("no numbers"));
    }

    #[test]
    fn an_archive_has_its_numbers_under_the_name_of_the_key() {
        let two = concat!(env!("CARGO_MANIFEST_DIR"), "/../haloscope/fixtures/files/two.npz");
        let error = read_wide(Path::new(two), "a", 5).expect_err("no fives").to_string();
        assert!(error.contains("5 for each"), "{error}");
        let error = read_wide(Path::new(two), "uvw", 3).expect_err("no such array").to_string();
        assert!(error.contains("no array uvw"), "{error}");
    }
}
