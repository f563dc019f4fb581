//! Damages files in many ways and reads them: whatever happens, there is an answer, no panic, and no
//! memory beyond what the file could justify.
//!
//! The number of attempts per seed is `HALOSCOPE_FUZZ_ATTEMPTS` (default 60).

use std::io::{Cursor, Read, Write};
use std::path::Path;

use haloscope::Error;
use haloscope::io::{self, Image, Limits, ReadOptions};

const ATTEMPTS: usize = 60;

/// Far less than these files claim. Most of it is the TIFF library's: tags of up to a mebibyte, of which
/// it makes some hundred, before it can be told of other limits; and the allocator keeps what it had.
const MEMORY_KB: u64 = 768 * 1024;

/// The files that other programs wrote, all of them small.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files");
    let mut seeds: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .expect("the fixtures are committed")
        .map(|entry| entry.expect("the fixtures can be listed").path())
        .filter(|path| path.is_file() && path.extension().is_some_and(|ending| ending != "json"))
        .map(|path| {
            let name = path.file_name().expect("files have names").to_string_lossy().into_owned();
            (name, std::fs::read(path).expect("the fixtures can be read"))
        })
        .collect();
    seeds.sort();
    assert!(seeds.len() > 50, "{} seeds", seeds.len());
    seeds
}

/// No file may take more than 2²⁰ values, which is much more than any of them has.
fn options() -> ReadOptions {
    let limits = Limits { elements: 1 << 20, ..Limits::default() };
    ReadOptions { limits, ..ReadOptions::default() }
}

fn read(bytes: Vec<u8>, name: &str) -> Result<Image, Error> {
    let entry = match name {
        "two.npz" => Some("b".to_owned()),
        "latest.h5" => Some("volume".to_owned()),
        _ => None,
    };
    io::decode("damaged", Cursor::new(bytes), &ReadOptions { entry, ..options() })
}

/// One random change, or a few.
fn damage(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    const TELLING: [u8; 10] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'9', b'-', b'(', b' '];
    for _ in 0..=random.usize(0..4) {
        if bytes.is_empty() {
            return;
        }
        // Half of the changes where headers are.
        let end = if random.bool() { bytes.len() } else { bytes.len().min(512) };
        let at = random.usize(0..end);
        let run = random.usize(0..=(bytes.len() - at).min(24));
        match random.u8(0..8) {
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
            6 => {
                let number = random.u64(..) >> random.u32(0..64);
                let width = [2, 4, 8][random.usize(0..3)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
            }
            _ => bytes[at..at + run].fill(0xff),
        }
    }
}

/// A compressed file with its contents damaged: what is inside must be read with as little trust.
fn damage_inside(bytes: &[u8], random: &mut fastrand::Rng) -> Option<Vec<u8>> {
    let mut inside = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut inside).ok()?;
    damage(&mut inside, random);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&inside).ok()?;
    packed.finish().ok()
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
    let mut random = fastrand::Rng::with_seed(20_260_201);
    let (mut good, mut bad) = (0, 0);
    let mut most = (0, String::new());
    for (name, seed) in seeds() {
        let peak_before = peak_kb();
        let mut count = |result: Result<Image, Error>| match result {
            Ok(image) => {
                assert!(image.array.len() <= 1 << 20, "{name}");
                good += 1;
            }
            Err(error) => {
                assert!(error.to_string().starts_with("damaged: "), "{name}: {error}");
                bad += 1;
            }
        };
        let step = (seed.len() / 400).max(1);
        for length in (0..seed.len()).step_by(step) {
            count(read(seed[..length].to_vec(), &name));
        }
        for _ in 0..attempts {
            let mut bytes = seed.clone();
            damage(&mut bytes, &mut random);
            count(read(bytes, &name));
            if let Some(bytes) = damage_inside(&seed, &mut random) {
                count(read(bytes, &name));
            }
        }
        let growth = peak_kb().zip(peak_before).map_or(0, |(after, before)| after - before);
        if growth > most.0 {
            most = (growth, name);
        }
    }
    println!("{good} damaged files were read, {bad} were refused");
    assert!(good > 0 && bad > 0);
    if let (Some(before), Some(after)) = (before, peak_kb()) {
        println!("address space grew by {} kB, by {} kB for {}", after - before, most.0, most.1);
        assert!(after - before < MEMORY_KB, "address space grew by {} kB", after - before);
    }
}

/// Each file of a folder is damaged in turn.
#[cfg(feature = "zarr")]
#[test]
fn damaged_zarr_folders_give_an_answer() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files");
    let attempts = std::env::var("HALOSCOPE_FUZZ_ATTEMPTS").ok().and_then(|n| n.parse().ok());
    let mut random = fastrand::Rng::with_seed(20_260_202);
    let (mut good, mut bad) = (0, 0);
    for (array, files) in [
        ("sharded.zarr", ["zarr.json", "c/0/0/0"]),
        ("blosc.zarr", ["zarr.json", "c/1/1/1"]),
        ("zstd.zarr", ["zarr.json", "c/1/0/1"]),
        ("ome.zarr", ["zarr.json", "s0/zarr.json"]),
    ] {
        for file in files {
            let folder = tempfile::tempdir().expect("a folder");
            for part in ["zarr.json", "s0/zarr.json", file] {
                let (from, to) = (fixtures.join(array).join(part), folder.path().join(part));
                std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
                if from.exists() {
                    std::fs::copy(from, to).expect("copied");
                }
            }
            let seed = std::fs::read(fixtures.join(array).join(file)).expect("committed");
            for _ in 0..attempts.unwrap_or(ATTEMPTS) / 2 {
                let mut bytes = seed.clone();
                damage(&mut bytes, &mut random);
                std::fs::write(folder.path().join(file), bytes).expect("written");
                match io::read(folder.path(), &options()) {
                    Ok(_) => good += 1,
                    Err(error) => {
                        let name = folder.path().display().to_string();
                        let message = error.to_string();
                        assert!(message.contains(&name), "{message}");
                        bad += 1;
                    }
                }
            }
        }
    }
    println!("{good} damaged folders were read, {bad} were refused");
    assert!(good > 0 && bad > 0);
}

#[test]
fn file_cut_within_its_values_is_refused() {
    for (name, seed) in seeds() {
        // Some have padding behind the values, or begin with all that is needed to read a part.
        let ending = name.rsplit('.').next().unwrap_or_default();
        let is_other = matches!(ending, "fits" | "tif" | "h5" | "npz" | "png");
        if is_other || name.starts_with("refused") {
            continue;
        }
        for cut in [1, 2, seed.len() / 3, seed.len() / 2] {
            let result = read(seed[..seed.len().saturating_sub(cut)].to_vec(), &name);
            assert!(result.is_err(), "{name} without its last {cut} bytes is still {result:?}");
        }
    }
}

#[test]
fn bombs_are_refused_before_they_are_unpacked() {
    // 348 bytes of header that announce 32767 × 32767 × 2 values, and gigabytes of zeros.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files");
    let mut header = std::fs::read(folder.join("uint8.nii")).expect("committed");
    header.truncate(352);
    for (axis, side) in [32_767_i16, 32_767, 2].iter().enumerate() {
        header[42 + 2 * axis..44 + 2 * axis].copy_from_slice(&side.to_le_bytes());
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&header).expect("memory");
    packed.write_all(&vec![0; 1 << 20]).expect("memory");
    let bytes = packed.finish().expect("memory");
    let error =
        io::decode("bomb.nii.gz", Cursor::new(bytes.clone()), &options()).expect_err("large");
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
    // With no limits, what is there is read and found to be too little.
    let free = ReadOptions { limits: Limits::NONE, ..ReadOptions::default() };
    let error = io::decode("bomb.nii.gz", Cursor::new(bytes), &free).expect_err("cut");
    assert!(error.to_string().contains("cut short"), "{error}");

    // A PNG of 100 000 × 10 000 pixels in a hundred bytes.
    let mut png = std::fs::read(folder.join("gray8.png")).expect("committed");
    png[16..20].copy_from_slice(&100_000_u32.to_be_bytes());
    png[20..24].copy_from_slice(&10_000_u32.to_be_bytes());
    let crc = {
        let mut crc = flate2::Crc::new();
        crc.update(&png[12..29]);
        crc.sum()
    };
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    let error =
        io::decode("bomb.png", Cursor::new(png), &ReadOptions::default()).expect_err("large");
    assert!(error.to_string().contains("cut short"), "{error}");
}
