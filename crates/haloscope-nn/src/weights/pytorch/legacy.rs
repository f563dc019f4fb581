//! The files of PyTorch from 0.1.10 to 1.5: five pickles one after another, then the storages.
//!
//! The pickles are a magic number, the version of the format, facts about the machine, the object
//! itself, and the list of its storages' names. The storages follow in the order of that list, each
//! as the number of its elements in 8 bytes and the elements. All is little-endian on any machine,
//! so the facts about it do not matter.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use super::pickle::{Code, Pickle, Storage, element_bytes};
use super::{Storages, tensors};
use crate::weights::StateDict;
use crate::weights::fault::{Fault, Outcome};
use crate::weights::limits::Budget;

/// The magic number in its pickle, after the protocol.
const MAGIC: &[u8] = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// The version of the format that all these files have.
const VERSION: i64 = 1001;

/// Whether a file that begins like this is one.
pub(in crate::weights) fn is_legacy(head: &[u8]) -> bool {
    // Since protocol 4 the length of the pickle comes between the protocol and the number.
    match head {
        [0x80, 2..=3, rest @ ..] => rest.starts_with(MAGIC),
        [0x80, 4..=5, 0x95, rest @ ..] => rest.get(8..).is_some_and(|at| at.starts_with(MAGIC)),
        _ => false,
    }
}

/// The tensors of a file of `length` bytes.
pub(in crate::weights) fn read(
    mut source: impl Read + Seek,
    length: u64,
    budget: &mut Budget<'_>,
) -> Outcome<StateDict> {
    let limits = budget.limits();
    source.seek(SeekFrom::Start(0))?;
    // Where the pickles end is known only when they have been read.
    let mut bytes = Vec::new();
    source.by_ref().take(length.min(limits.header_bytes)).read_to_end(&mut bytes)?;
    let more = length > bytes.len() as u64;
    let mut start = 0;
    let mut next = || {
        let pickle = Pickle::interpret(Code { bytes: &bytes, start, more }, limits)?;
        start = pickle.end();
        Ok::<_, Fault>(pickle)
    };
    let [_magic, version, _machine, object, names] = [next()?, next()?, next()?, next()?, next()?];
    match version.number() {
        Some(VERSION) => {}
        Some(other) => {
            return Err(Fault::Unsupported(format!(
                "version {other} of the format that PyTorch had before 1.6; {VERSION} is read"
            )));
        }
        None => return Err(Fault::content("the version of its format is not a number")),
    }
    let names = names
        .names()
        .ok_or_else(|| Fault::content("what should be the names of its storages is no list"))?;
    let places = places(&mut source, start as u64, length, &object, names)?;
    tensors(&object, Places { source, places }, length, budget)
}

/// Where the elements of each storage begin, the first storage being at `at`.
fn places(
    source: &mut (impl Read + Seek),
    mut at: u64,
    length: u64,
    object: &Pickle,
    names: Vec<Arc<str>>,
) -> Outcome<HashMap<Arc<str>, u64>> {
    let mut places = HashMap::new();
    for name in names {
        let wrong = |reason: String| Fault::content(format!("storage `{name}`: {reason}"));
        let claim = object
            .claim(&name)
            .ok_or_else(|| wrong("nothing in its pickle refers to it".into()))?;
        let size = element_bytes(&claim.class).ok_or_else(|| {
            Fault::Unsupported(format!(
                "storage `{name}` is a {}, whose size is not known",
                claim.class
            ))
        })?;
        source.seek(SeekFrom::Start(at))?;
        let mut count = [0; 8];
        source.read_exact(&mut count)?;
        let count = u64::from_le_bytes(count);
        if count != claim.count {
            return Err(wrong(format!("it has {count} values instead of {}", claim.count)));
        }
        // The number was read, so there are 8 bytes.
        let start = at + 8;
        at = count
            .checked_mul(size as u64)
            .and_then(|bytes| start.checked_add(bytes))
            .filter(|end| *end <= length)
            .ok_or_else(|| {
                wrong(format!(
                    "it is cut short: {count} values of {size} bytes from byte {start} of {length}"
                ))
            })?;
        if places.insert(name.clone(), start).is_some() {
            return Err(wrong("it is listed twice".into()));
        }
    }
    Ok(places)
}

/// The storages of a file.
struct Places<R> {
    source: R,
    places: HashMap<Arc<str>, u64>,
}

impl<R: Read + Seek> Storages for Places<R> {
    fn bytes(&mut self, storage: &Storage, bytes: u64) -> Outcome<Vec<u8>> {
        let start = *self
            .places
            .get(&storage.key)
            .ok_or_else(|| Fault::content(format!("the file has no storage `{}`", storage.key)))?;
        self.source.seek(SeekFrom::Start(start))?;
        // What the file has is what is allocated, whatever it claims.
        let mut raw = Vec::new();
        self.source.by_ref().take(bytes).read_to_end(&mut raw)?;
        Ok(raw)
    }
}
