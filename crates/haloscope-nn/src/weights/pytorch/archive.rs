//! The files of PyTorch since version 1.6: a zip archive with one entry for the pickle and one for
//! each storage.

use std::io::{Read, Seek};

use zip::ZipArchive;
use zip::result::ZipError;

use super::pickle::{Code, Pickle, Storage};
use super::{Storages, tensors};
use crate::weights::StateDict;
use crate::weights::fault::{Fault, Outcome};
use crate::weights::limits::Budget;

/// How every zip archive begins.
pub(in crate::weights) const ZIP: &[u8] = b"PK\x03\x04";

/// The tensors of a file, which is an archive of `length` bytes.
pub(in crate::weights) fn read(
    source: impl Read + Seek,
    length: u64,
    budget: &mut Budget<'_>,
) -> Outcome<StateDict> {
    let mut archive = ZipArchive::new(source).map_err(damaged)?;
    let folder = archive
        .file_names()
        .filter_map(|name| Some(name.ok()?.strip_suffix("data.pkl")?.to_owned()))
        .find(|folder| folder.is_empty() || folder.ends_with('/'))
        .ok_or_else(|| Fault::content("a zip archive without data.pkl; torch.save writes one"))?;
    if archive.index_for_name(&format!("{folder}constants.pkl")).is_some() {
        return Err(Fault::Unsupported(
            "it is a TorchScript program; save the model's state_dict() with torch.save".into(),
        ));
    }
    if archive.index_for_name(&format!("{folder}byteorder")).is_some() {
        let order = read_entry(&mut archive, &format!("{folder}byteorder"), 16)?;
        if order != b"little" {
            return Err(Fault::Unsupported(format!(
                "its numbers are stored in the byte order `{}`; `little` is read",
                String::from_utf8_lossy(&order)
            )));
        }
    }
    let header = budget.limits().header_bytes;
    let bytes = read_entry(&mut archive, &format!("{folder}data.pkl"), header)?;
    let pickle = Pickle::interpret(Code::whole(&bytes), budget.limits())?;
    tensors(&pickle, Entries { archive, folder }, length, budget)
}

/// The entries of an archive.
struct Entries<R> {
    archive: ZipArchive<R>,
    folder: String,
}

impl<R: Read + Seek> Storages for Entries<R> {
    fn bytes(&mut self, storage: &Storage, bytes: u64) -> Outcome<Vec<u8>> {
        let entry = format!("{}data/{}", self.folder, storage.key);
        read_entry(&mut self.archive, &entry, bytes)
    }
}

/// The bytes of an entry, of which there may be `most`.
fn read_entry(
    archive: &mut ZipArchive<impl Read + Seek>,
    name: &str,
    most: u64,
) -> Outcome<Vec<u8>> {
    let index = archive
        .index_for_name(name)
        .ok_or_else(|| Fault::content(format!("its archive has no entry `{name}`")))?;
    let entry = archive.by_index(index).map_err(damaged)?;
    // What the file has is what is allocated, whatever it claims.
    let mut bytes = Vec::new();
    let read = entry.take(most.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| Fault::content(format!("entry `{name}` is damaged ({error})")))?;
    if bytes.len() as u64 > most {
        return Err(Fault::Limit(format!("entry `{name}` has more than {most} bytes")));
    }
    Ok(bytes)
}

fn damaged(error: ZipError) -> Fault {
    match error {
        ZipError::Io(error) => error.into(),
        ZipError::UnsupportedArchive(reason) => {
            Fault::Unsupported(format!("a zip archive of an unknown kind ({reason})"))
        }
        other => Fault::content(format!("a zip archive that is cut short or damaged ({other})")),
    }
}
