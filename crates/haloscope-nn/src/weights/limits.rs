//! Limits on what a file of weights may request, and a count of what it has requested so far.

use super::fault::{Fault, Outcome};

/// What a reader of untrusted files will do at most. The defaults are far above any denoiser and
/// far below what would hurt a workstation.
///
/// ```
/// use haloscope_nn::weights::Limits;
///
/// let careful = Limits { tensor_bytes: 64 << 20, ..Limits::default() };
/// assert!(careful.tensor_bytes < Limits::default().tensor_bytes);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the part that describes the tensors: a safetensors header, a pickle. Also of the names
    /// that a pickle gives to all its tensors together, which can repeat parts of it.
    pub header_bytes: u64,
    /// Bytes of all tensors together, as `f32`. Whatever this is, they may not have more than 16
    /// times the bytes of the file.
    pub tensor_bytes: u64,
    /// The number of tensors.
    pub tensors: usize,
    /// The number of axes of a tensor.
    pub axes: usize,
    /// Containers within containers.
    pub depth: usize,
    /// Steps of a pickle, which bounds the objects that it makes.
    pub objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 8 << 30,
            header_bytes: 64 << 20,
            tensor_bytes: 8 << 30,
            tensors: 100_000,
            axes: 8,
            depth: 64,
            objects: 2_000_000,
        }
    }
}

/// What is left of the limits on tensors.
pub(super) struct Budget<'a> {
    limits: &'a Limits,
    bytes: u64,
    tensors: usize,
}

impl<'a> Budget<'a> {
    /// The budget of a file of `file_bytes`.
    pub(super) fn new(limits: &'a Limits, file_bytes: u64) -> Outcome<Self> {
        if file_bytes > limits.file_bytes {
            return Err(Fault::Limit(format!(
                "it has {file_bytes} bytes; at most {} are allowed",
                limits.file_bytes
            )));
        }
        let bytes = limits.tensor_bytes.min(file_bytes.saturating_mul(16));
        Ok(Self { limits, bytes, tensors: limits.tensors })
    }

    pub(super) fn limits(&self) -> &'a Limits {
        self.limits
    }

    /// Takes the memory of `values` values, before it is allocated.
    pub(super) fn allocate(&mut self, values: usize) -> Outcome<()> {
        let bytes = (values as u64).saturating_mul(size_of::<f32>() as u64);
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => Err(Fault::Limit(format!(
                "its tensors need {bytes} bytes more, of which {} are left; at most {} in all, and \
                 16 times the size of the file, are allowed",
                self.bytes, self.limits.tensor_bytes
            ))),
        }
    }

    /// Counts one tensor.
    pub(super) fn count_tensor(&mut self) -> Outcome<()> {
        match self.tensors.checked_sub(1) {
            Some(left) => {
                self.tensors = left;
                Ok(())
            }
            None => Err(Fault::Limit(format!(
                "it has more than {} tensors, which is what is allowed",
                self.limits.tensors
            ))),
        }
    }
}
