//! Whole files that `torch.save` writes, in both of its formats.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haloscope_nn_fuzz::check(bytes));
