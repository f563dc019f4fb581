//! Files in the safetensors format.

use std::io::{Read, Seek, SeekFrom};

use safetensors::{Dtype, SafeTensors};

use super::element::Element;
use super::fault::{Fault, Outcome};
use super::limits::Budget;
use super::{StateDict, checked_shape};
use crate::tensor::Tensor;

/// Whether a file that begins like this can be one: the length of a header, then the header.
pub(super) fn is_likely(head: &[u8]) -> bool {
    head.get(8) == Some(&b'{')
}

/// The tensors of a file of `length` bytes.
pub(super) fn read(
    mut source: impl Read + Seek,
    length: u64,
    budget: &mut Budget<'_>,
) -> Outcome<StateDict> {
    source.seek(SeekFrom::Start(0))?;
    let mut header = [0; 8];
    source.read_exact(&mut header)?;
    let header = u64::from_le_bytes(header);
    if header > length.saturating_sub(8) {
        return Err(Fault::content(format!(
            "it is cut short: the header should have {header} bytes, the file has {length}"
        )));
    }
    if header > budget.limits().header_bytes {
        return Err(Fault::Limit(format!(
            "its header has {header} bytes; at most {} are allowed",
            budget.limits().header_bytes
        )));
    }
    source.seek(SeekFrom::Start(0))?;
    // What the file has is what is allocated, whatever it claims.
    let mut bytes = Vec::new();
    source.take(length).read_to_end(&mut bytes)?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| Fault::content(format!("not a valid safetensors file: {error}")))?;
    let mut state = StateDict::default();
    for (name, view) in file.tensors() {
        budget.count_tensor()?;
        let element = element(view.dtype()).ok_or_else(|| {
            Fault::Unsupported(format!(
                "tensor `{name}` holds {:?}; F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL \
                 are read",
                view.dtype()
            ))
        })?;
        let shape = checked_shape(&name, view.shape().to_vec(), budget.limits())?;
        budget.allocate(shape.count())?;
        let tensor = Tensor::new(shape, element.decode(view.data()))
            .map_err(|error| Fault::content(format!("tensor `{name}`: {error}")))?;
        state.insert(name, tensor);
    }
    Ok(state)
}

fn element(kind: Dtype) -> Option<Element> {
    Some(match kind {
        Dtype::F64 => Element::F64,
        Dtype::F32 => Element::F32,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::Bf16,
        Dtype::I64 => Element::I64,
        Dtype::I32 => Element::I32,
        Dtype::I16 => Element::I16,
        Dtype::I8 => Element::I8,
        Dtype::U8 => Element::U8,
        Dtype::BOOL => Element::Bool,
        _ => return None,
    })
}
