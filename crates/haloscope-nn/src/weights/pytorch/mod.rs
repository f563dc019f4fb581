//! Files that `torch.save` writes: a zip archive of a pickle and the raw bytes of its storages.
//!
//! The pickle is interpreted by [`pickle`], which can make tensors and plain containers and
//! nothing else; here its storages are found in the archive and become values.

mod pickle;

use std::collections::HashMap;
use std::io::{Read, Seek};
use std::sync::Arc;

use zip::ZipArchive;
use zip::result::ZipError;

use super::fault::{Fault, Outcome};
use super::limits::Budget;
use super::{StateDict, checked_shape};
use crate::tensor::Tensor;
use pickle::{Layout, Pickle, Storage};

/// How every zip archive begins.
pub(super) const ZIP: &[u8] = b"PK\x03\x04";

/// How files begin that PyTorch wrote before version 1.6: a pickle of its magic number.
pub(super) const OLD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// The tensors of a file, which is an archive of `length` bytes.
pub(super) fn read(
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
    let pickle = Pickle::interpret(&bytes, budget.limits())?;
    let mut storages = Storages { archive, folder, length, read: HashMap::new() };
    let mut state = StateDict::default();
    for (name, layout) in pickle.tensors(budget.limits())? {
        budget.count_tensor()?;
        let tensor = storages.tensor(&name, &layout, budget)?;
        if state.get(&name).is_some() {
            return Err(Fault::content(format!("two tensors are named `{name}`")));
        }
        state.insert(name, tensor);
    }
    Ok(state)
}

/// The storages of an archive, each read once.
struct Storages<R> {
    archive: ZipArchive<R>,
    folder: String,
    length: u64,
    read: HashMap<Arc<str>, (Storage, Arc<[f32]>)>,
}

impl<R: Read + Seek> Storages<R> {
    fn tensor(&mut self, name: &str, layout: &Layout, budget: &mut Budget<'_>) -> Outcome<Tensor> {
        let wrong = |reason: String| Fault::content(format!("tensor `{name}`: {reason}"));
        let shape = checked_shape(name, layout.sizes.clone(), budget.limits())?;
        let count = shape.count();
        let end = extent(layout).filter(|end| *end <= layout.storage.count).ok_or_else(|| {
            wrong(format!(
                "shape {shape} with strides {:?} from {} does not fit its storage of {} values",
                layout.strides, layout.offset, layout.storage.count
            ))
        })?;
        debug_assert!(count == 0 || end > layout.offset);
        let values = self.values(name, &layout.storage, budget)?;
        if layout.offset == 0 && count == values.len() && is_row_major(layout) {
            return Tensor::new(shape, values).map_err(|error| wrong(error.to_string()));
        }
        budget.allocate(count)?;
        Tensor::new(shape, gather(&values, layout, count)).map_err(|error| wrong(error.to_string()))
    }

    fn values(
        &mut self,
        name: &str,
        storage: &Storage,
        budget: &mut Budget<'_>,
    ) -> Outcome<Arc<[f32]>> {
        if let Some((known, values)) = self.read.get(&storage.key) {
            if known == storage {
                return Ok(values.clone());
            }
            return Err(Fault::content(format!(
                "tensor `{name}`: storage `{}` is described in two ways",
                storage.key
            )));
        }
        let bytes = (storage.count as u64).saturating_mul(storage.element.bytes() as u64);
        if bytes > self.length {
            return Err(Fault::content(format!(
                "tensor `{name}`: storage `{}` of {bytes} bytes in a file of {}",
                storage.key, self.length
            )));
        }
        budget.allocate(storage.count)?;
        let entry = format!("{}data/{}", self.folder, storage.key);
        let raw = read_entry(&mut self.archive, &entry, bytes).map_err(|fault| match fault {
            Fault::Content(reason) => Fault::Content(format!("tensor `{name}`: {reason}")),
            other => other,
        })?;
        if raw.len() as u64 != bytes {
            return Err(Fault::content(format!(
                "tensor `{name}`: storage `{}` has {} bytes instead of {bytes}",
                storage.key,
                raw.len()
            )));
        }
        let values: Arc<[f32]> = storage.element.decode(&raw).into();
        self.read.insert(storage.key.clone(), (storage.clone(), values.clone()));
        Ok(values)
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

/// One more than the last place of its storage that a tensor uses; none if that overflows.
fn extent(layout: &Layout) -> Option<usize> {
    if layout.sizes.contains(&0) {
        return Some(layout.offset);
    }
    let axes = layout.sizes.iter().zip(&layout.strides);
    axes.map(|(size, stride)| (size - 1).checked_mul(*stride))
        .try_fold(layout.offset, |sum, reach| sum.checked_add(reach?))?
        .checked_add(1)
}

/// Whether the values lie in the order of the axes without gaps. The stride of an axis of size 1
/// does not matter.
fn is_row_major(layout: &Layout) -> bool {
    if layout.sizes.contains(&0) {
        return true;
    }
    let mut expected = 1;
    for (&size, &stride) in layout.sizes.iter().zip(&layout.strides).rev() {
        if size != 1 && stride != expected {
            return false;
        }
        expected *= size;
    }
    true
}

/// The values of a tensor in row-major order.
fn gather(values: &[f32], layout: &Layout, count: usize) -> Vec<f32> {
    let rank = layout.sizes.len();
    let mut at = vec![0; rank];
    let mut place = layout.offset;
    let mut gathered = Vec::with_capacity(count);
    for _ in 0..count {
        gathered.push(values[place]);
        for axis in (0..rank).rev() {
            at[axis] += 1;
            // The stride of an axis of size 1 can be anything, so the sums in between may wrap.
            place = place.wrapping_add(layout.strides[axis]);
            if at[axis] < layout.sizes[axis] {
                break;
            }
            place = place.wrapping_sub(layout.strides[axis].wrapping_mul(layout.sizes[axis]));
            at[axis] = 0;
        }
    }
    gathered
}
