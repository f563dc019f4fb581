//! The pickle of an archive, with a checksum that is right: in a whole file most changes of it would
//! fail at the checksum.
#![no_main]

use std::io::{Cursor, Write};

use libfuzzer_sys::fuzz_target;
use zip::ZipWriter;
use zip::result::ZipResult;
use zip::write::SimpleFileOptions;

/// An archive with this pickle and two storages.
fn archive(pickle: &[u8]) -> ZipResult<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let storage = [0x3c; 64];
    for (name, bytes) in [("data.pkl", pickle), ("data/0", &storage), ("data/1", &storage[..24])] {
        archive.start_file(format!("archive/{name}"), SimpleFileOptions::default())?;
        archive.write_all(bytes)?;
    }
    Ok(archive.finish()?.into_inner())
}

fuzz_target!(|pickle: &[u8]| {
    haloscope_nn_fuzz::check(&archive(pickle).expect("memory can be written to"));
});
