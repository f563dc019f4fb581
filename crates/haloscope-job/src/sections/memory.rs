//! `[memory]`: a folder for arrays that are larger than memory, and how much memory there is beside it.

use std::path::{Path, PathBuf};

use haloscope::{Error, Result};
use haloscope_scratch::{Folder, Options};

use crate::document::{Place, Section};
use crate::machine::Machine;
use crate::memory::size;
use crate::scratch::and_saved;

/// `[memory]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryPlan {
    place: Option<Place>,
    /// The folder of large arrays; without it, all are in memory.
    scratch: Option<PathBuf>,
    /// The bytes that a process should have in memory at most; without it, those that are available.
    limit: Option<u64>,
}

impl MemoryPlan {
    pub(crate) fn read(section: &Section) -> Result<Self> {
        let scratch = section.path("scratch")?;
        let limit = match section.get::<&str>("limit") {
            Ok(text) => text.map(parse_bytes).transpose(),
            // A number is one of bytes.
            Err(_) => Ok(section.count("limit")?.map(|bytes| bytes as u64)),
        };
        let limit = limit.map_err(|reason| section.place_of("limit").refuse(reason))?;
        // A key that is not known is said to be so later.
        if scratch.is_none() && limit.is_none() {
            return Ok(Self::default());
        }
        if scratch.is_none() {
            let reason = "`scratch`, the folder for large arrays, is missing; `limit` is for jobs that have one";
            return Err(section.place().refuse(reason));
        }
        Ok(Self { place: Some(section.place_of("scratch")), scratch, limit })
    }

    /// Another folder, with the limit that there was unless another is given.
    pub(crate) fn with(&self, folder: &Path, limit: Option<u64>) -> Self {
        Self { place: None, scratch: Some(folder.to_owned()), limit: limit.or(self.limit) }
    }

    /// The same folder with another limit.
    pub(crate) fn limited(&self, limit: u64) -> Option<Self> {
        self.scratch.as_ref()?;
        Some(Self { limit: Some(limit), ..self.clone() })
    }

    /// What large arrays are opened with, if they are to be in files, and what is known of the folder.
    pub(crate) fn options(&self) -> Result<Option<(Options, Folder)>> {
        let Some(folder) = &self.scratch else { return Ok(None) };
        let found = Folder::look(folder).map_err(|error| {
            let name = folder.display();
            self.refuse(format!(
                "no file can be made in {name}: {error}; a folder on a disk with room is expected"
            ))
        })?;
        let limit = self.limit.or_else(|| Machine::detect().memory_available_bytes);
        Ok(Some((Options::new(folder, limit.unwrap_or(u64::MAX)), found)))
    }

    /// Refuses files, and what is saved beside them, for which there is no room.
    pub(crate) fn check_room(&self, folder: &Path, needed: (u64, u64), free: u64) -> Result<()> {
        let (files, saved) = needed;
        if files.saturating_add(saved) <= free {
            return Ok(());
        }
        Err(self.refuse(format!(
            "the job needs about {} in {}{}, which has room for {}; free some, or use another folder",
            size(files),
            folder.display(),
            and_saved(saved),
            size(free)
        )))
    }

    pub(crate) fn refuse(&self, reason: String) -> Error {
        match &self.place {
            Some(place) => place.refuse(reason),
            None => Error::argument("scratch", reason),
        }
    }
}

/// A number of bytes with a unit, as in `"2GB"`.
///
/// # Errors
/// If it is none, with what would be accepted.
pub fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return Err(format!("`{text}` is given; the units are B, KB, MB, GB and TB")),
    };
    match digits.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok((number * unit) as u64),
        _ => Err(format!("`{text}` is given; a size such as \"2GB\" is expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("2GB"), Ok(2_000_000_000));
        assert_eq!(parse_bytes("1.5 mb"), Ok(1_500_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for bad in ["", "GB", "-1GB", "2GiB", "many"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_and_what_is_saved_beside_them_need_room_together() {
        let (plan, folder) = (MemoryPlan::default(), Path::new("scratch"));
        plan.check_room(folder, (5_000_000, 3_000_000), 8_000_000).expect("just enough");
        let error = plan.check_room(folder, (5_000_000, 3_000_000), 7_999_999);
        let error = error.expect_err("a byte is missing").to_string();
        assert!(error.contains("5 MB in scratch and 3 MB for results"), "{error}");
        let error = plan.check_room(folder, (5_000_000, 0), 1_000_000).expect_err("no room");
        assert!(error.to_string().contains("scratch, which has room for 1 MB"), "{error}");
    }
}
