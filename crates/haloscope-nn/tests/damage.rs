//! Damages the files in `tests/corpus/` in many ways and reads them: whatever happens, there is an
//! answer, no panic, and no memory beyond what the file could justify.
//!
//! The number of attempts per seed is `HALOSCOPE_FUZZ_ATTEMPTS` (default 400).

use std::io::{Cursor, Read, Write};
use std::path::Path;

use haloscope_nn::weights::{Limits, StateDict};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

const ATTEMPTS: usize = 400;

/// Far more than the small files of the corpus need, far less than they claim.
const MEMORY_KB: u64 = 192 * 1024;

fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut seeds: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .expect("the corpus is committed")
        .map(|entry| {
            let entry = entry.expect("the corpus can be listed");
            let bytes = std::fs::read(entry.path()).expect("its files can be read");
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    seeds.sort();
    assert!(seeds.len() > 20, "{} seeds", seeds.len());
    seeds
}

fn read(bytes: Vec<u8>) -> Result<StateDict, haloscope_nn::Error> {
    StateDict::read(Cursor::new(bytes), "damaged", &Limits::default())
}

/// One random change, or a few.
fn damage(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    const TELLING: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'(', b'.', b'R', b'h', b'a', b'u', 0x8a];
    for _ in 0..=random.usize(0..4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(0..bytes.len());
        let run = random.usize(0..=(bytes.len() - at).min(24));
        match random.u8(0..7) {
            0 => bytes[at] ^= 1 << random.u8(0..8),
            1 => bytes[at] = TELLING[random.usize(0..TELLING.len())],
            2 => bytes[at] = random.u8(..),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..at + run)),
            5 => {
                let copy = bytes[at..at + run].to_vec();
                let to = random.usize(0..bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => bytes[at..at + run].fill(0xff),
        }
    }
}

/// The archive with its pickle changed and its checksum right again.
fn with_pickle(archive: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).ok()?;
    let mut changed = ZipWriter::new(Cursor::new(Vec::new()));
    let mut change = Some(change);
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).ok()?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).ok()?;
        let name = entry.name().ok()?.into_owned();
        if name.ends_with("data.pkl")
            && let Some(change) = change.take()
        {
            change(&mut bytes);
        }
        changed.start_file(name, SimpleFileOptions::default()).ok()?;
        changed.write_all(&bytes).ok()?;
    }
    Some(changed.finish().ok()?.into_inner())
}

/// The largest amount of address space that the process has had, if the system tells.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    line.split_whitespace().next()?.parse().ok()
}

// One test, so that the peak is that of the readers.
#[test]
fn damaged_files_give_an_answer_without_panic_or_much_memory() {
    let attempts = std::env::var("HALOSCOPE_FUZZ_ATTEMPTS")
        .ok()
        .and_then(|attempts| attempts.parse().ok())
        .unwrap_or(ATTEMPTS);
    let before = peak_kb();
    let mut random = fastrand::Rng::with_seed(20_260_101);
    let (mut good, mut bad) = (0, 0);
    let mut count = |result: Result<StateDict, haloscope_nn::Error>| match result {
        Ok(_) => good += 1,
        Err(error) => {
            assert!(error.to_string().starts_with("damaged: "), "{error}");
            bad += 1;
        }
    };
    for (name, seed) in seeds() {
        for length in 0..seed.len().min(4096) {
            let result = read(seed[..length].to_vec());
            assert!(result.is_err(), "{name} cut to {length} bytes is still {result:?}");
        }
        for _ in 0..attempts {
            let mut bytes = seed.clone();
            damage(&mut bytes, &mut random);
            count(read(bytes));
            if let Some(bytes) = with_pickle(&seed, |pickle| damage(pickle, &mut random)) {
                count(read(bytes));
            }
        }
    }
    println!("{good} damaged files were read, {bad} were refused");
    assert!(good > 0 && bad > 0);
    if let (Some(before), Some(after)) = (before, peak_kb()) {
        println!("address space grew by {} kB", after - before);
        assert!(after - before < MEMORY_KB, "address space grew by {} kB", after - before);
    }
}
