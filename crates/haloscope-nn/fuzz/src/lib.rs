//! What every target checks: a file of any content gives tensors that it can justify, or an error
//! that names the file.

use std::io::Cursor;

use haloscope_nn::weights::{Limits, StateDict};

/// Reads `bytes` as a file.
///
/// # Panics
/// If the reader does, or if what it says cannot be.
pub fn check(bytes: &[u8]) {
    match StateDict::read(Cursor::new(bytes), "fuzzed", &Limits::default()) {
        Ok(state) => {
            for (name, tensor) in state.iter() {
                // `Limits` promise at most 16 bytes for each byte of the file.
                let count = tensor.values().len();
                assert!(count <= 4 * bytes.len(), "{name}: {count} of {} bytes", bytes.len());
                assert_eq!(count, tensor.shape().count(), "{name}");
            }
        }
        Err(error) => assert!(error.to_string().starts_with("fuzzed: "), "{error}"),
    }
}
