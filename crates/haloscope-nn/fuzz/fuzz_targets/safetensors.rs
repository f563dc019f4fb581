//! Files that can be safetensors.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // Anything else goes to another reader, which has a target of its own.
    if bytes.get(8) != Some(&b'{') || bytes.starts_with(b"PK") {
        return Corpus::Reject;
    }
    haloscope_nn_fuzz::check(bytes);
    Corpus::Keep
});
