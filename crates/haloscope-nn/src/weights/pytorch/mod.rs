//! Files that `torch.save` writes: a pickle that describes tensors, and the raw bytes of the
//! storages that they are views of.
//!
//! The pickle is interpreted by [`pickle`], which can make tensors and plain containers and
//! nothing else; [`archive`] and [`legacy`] find it and the storages in the two kinds of files;
//! here storages become tensors.

mod archive;
mod legacy;
mod pickle;

use std::collections::HashMap;
use std::sync::Arc;

use super::fault::{Fault, Outcome};
use super::limits::Budget;
use super::{StateDict, checked_shape};
use crate::tensor::Tensor;
pub(super) use archive::{ZIP, read as read_archive};
pub(super) use legacy::{is_legacy, read as read_legacy};
use pickle::{Layout, Pickle, Storage};

/// Where the storages of a file are.
trait Storages {
    /// The bytes of a storage, of which there should be `bytes`.
    fn bytes(&mut self, storage: &Storage, bytes: u64) -> Outcome<Vec<u8>>;
}

/// The tensors that a pickle describes, in a file of `length` bytes.
fn tensors(
    pickle: &Pickle,
    storages: impl Storages,
    length: u64,
    budget: &mut Budget<'_>,
) -> Outcome<StateDict> {
    let mut views = Views { storages, length, read: HashMap::new() };
    let mut state = StateDict::default();
    for (name, layout) in pickle.tensors(budget.limits())? {
        budget.count_tensor()?;
        let tensor = views.tensor(&name, &layout, budget)?;
        if state.get(&name).is_some() {
            return Err(Fault::content(format!("two tensors are named `{name}`")));
        }
        state.insert(name, tensor);
    }
    Ok(state)
}

/// The storages of a file, each read once.
struct Views<S> {
    storages: S,
    length: u64,
    read: HashMap<Arc<str>, (Storage, Arc<[f32]>)>,
}

impl<S: Storages> Views<S> {
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
        let raw = self.storages.bytes(storage, bytes).map_err(|fault| match fault {
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
