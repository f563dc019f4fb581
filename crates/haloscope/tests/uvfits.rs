//! UVFITS files that astropy wrote, and what astropy reads of them (`fixtures/make_uvfits.py`); and files that are damaged.

use std::path::{Path, PathBuf};

use haloscope::io::{self, Limits, ReadOptions, Reader, UvFits};
use haloscope::{Error, Result};
use safetensors::SafeTensors;

const EXPECTED: &[u8] = include_bytes!("../fixtures/uvfits/expected.safetensors");

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/uvfits").join(name)
}

fn tensor(name: &str) -> Vec<f64> {
    let file = SafeTensors::deserialize(EXPECTED).expect("a fixture");
    let tensor = file.tensor(name).expect(name);
    let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    tensor.data().chunks(8).map(number).collect()
}

fn read(name: &str, polarisation: Option<&str>) -> Result<UvFits> {
    io::read_uvfits(fixture(name), polarisation, &Limits::default())
}

fn near(found: impl IntoIterator<Item = f64>, expected: &[f64], within: f64, what: &str) {
    let found: Vec<f64> = found.into_iter().collect();
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().fold(0.0_f64, |size, value| size.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= within * size, "{what}: {found} {expected}");
    }
}

#[test]
fn values_places_and_weights_are_those_that_astropy_reads() -> Result<()> {
    let cases = [
        ("hands.uvfits", None, "I"),
        ("hands.uvfits", Some("I"), "I"),
        ("hands.uvfits", Some("RR"), "RR"),
        ("hands.uvfits", Some("LL"), "LL"),
        ("stokes.uvfits", None, "16 bits"),
    ];
    for (file, polarisation, name) in cases {
        let found = read(file, polarisation)?;
        let expected = |what: &str| tensor(&format!("{name}.{what}"));
        // With the signs of phases of the operator.
        let stored = found.uvw.iter().flat_map(|[u, v, w]| [-u, -v, *w]);
        near(stored, &expected("uvw"), 1e-12, name);
        near(found.weights.iter().copied(), &expected("weights"), 1e-12, name);
        let values = found.values.iter().flatten().map(|value| f64::from(*value));
        near(values, &expected("values"), 1e-7, name);
        let centre = found.centre.expect("a phase centre");
        near(centre, &[10.6847, 41.269], 1e-12, name);
    }
    let hands = read("hands.uvfits", None)?;
    near(hands.frequencies.iter().copied(), &tensor("frequencies"), 1e-15, "frequencies");
    assert!(hands.weights.contains(&0.0));
    assert_eq!(io::uvfits_centre(fixture("hands.uvfits")), hands.centre);
    Ok(())
}

#[test]
fn as_measurements_they_are_two_channels() -> Result<()> {
    let options = ReadOptions { entry: Some("LL".into()), ..ReadOptions::default() };
    let image = io::read(fixture("hands.uvfits"), &options)?;
    let found = read("hands.uvfits", Some("LL"))?;
    assert_eq!(image.array.shape(), [1, 2, found.values.len()]);
    for (index, value) in found.values.iter().enumerate() {
        assert_eq!([image.array[[0, 0, index]], image.array[[0, 1, index]]], *value);
    }
    let error = Reader::open(fixture("hands.uvfits"), &options).expect_err("no parts").to_string();
    assert!(error.contains("random groups"), "{error}");
    Ok(())
}

#[test]
fn what_a_file_has_not_is_named() {
    let error = read("hands.uvfits", Some("XX")).expect_err("no XX").to_string();
    assert!(error.contains("XX") && error.contains("RR, LL"), "{error}");
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/wavelets.safetensors");
    assert!(!io::is_uvfits(&image) && io::is_uvfits(fixture("stokes.uvfits")));
    let error = io::read_uvfits(&image, None, &Limits::default()).expect_err("no FITS file");
    assert!(!error.to_string().is_empty());
    let limits = Limits { elements: 10, ..Limits::default() };
    let error = io::read_uvfits(fixture("hands.uvfits"), None, &limits).expect_err("too many");
    assert!(matches!(error, Error::Limit { .. }), "{error}");
}

/// A copy of a fixture with another value of a card.
fn with_card(key: &str, value: &str) -> (tempfile::TempDir, PathBuf) {
    let mut bytes = std::fs::read(fixture("hands.uvfits")).expect("a fixture");
    set_card(&mut bytes, key, value);
    write(&bytes)
}

fn set_card(bytes: &mut [u8], key: &str, value: &str) {
    let card = (0..bytes.len() / 80)
        .find(|card| bytes[card * 80..].starts_with(format!("{key:8}=").as_bytes()))
        .expect("a card");
    let text = format!("{:80}", format!("{key:8}= {value:>20}"));
    bytes[card * 80..][..80].copy_from_slice(text.as_bytes());
}

fn write(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("damaged.uvfits");
    std::fs::write(&path, bytes).expect("a file");
    (folder, path)
}

#[test]
fn headers_that_promise_too_much_are_refused_before_memory_is_taken() {
    for (key, value, words) in [
        ("GCOUNT", "9000000000000000000", "limit"),
        ("GCOUNT", "1000000", "cut short"),
        ("GCOUNT", "-1", "GCOUNT"),
        ("PCOUNT", "4000000000", "64"),
        ("NAXIS3", "4000000000", "2²⁸"),
        ("NAXIS3", "20000000", "cut short"),
        ("NAXIS4", "40000000", "cut short"),
        ("NAXIS3", "13", "STOKES (up to 12)"),
        ("NAXIS5", "3", "IF"),
        ("NAXIS2", "4", "COMPLEX"),
        ("BITPIX", "7", "BITPIX"),
        ("CRVAL4", "-1.4E9", "above 0"),
        ("PTYPE2", "'NOTHING '", "VV"),
    ] {
        let (_folder, path) = with_card(key, value);
        let limits = Limits { elements: 1 << 24, side: 1 << 30, ..Limits::default() };
        let error = io::read_uvfits(&path, None, &limits).expect_err(key).to_string();
        assert!(error.contains(words), "{key} = {value}: {error}");
    }
}

#[test]
fn files_of_several_sources_or_sets_of_frequencies_are_refused() -> Result<()> {
    // BASELINE differs from group to group, and DATE does not.
    for name in ["SOURCE", "FREQSEL"] {
        let (_folder, path) = with_card("PTYPE4", &format!("'{name:8}'"));
        let error = io::read_uvfits(&path, None, &Limits::default()).expect_err(name).to_string();
        assert!(error.contains("several") && error.contains(name), "{error}");
        let (_folder, path) = with_card("PTYPE5", &format!("'{name:8}'"));
        io::read_uvfits(&path, None, &Limits::default())?;
    }
    Ok(())
}

#[test]
fn antennas_with_themselves_are_flagged_without_a_baseline() -> Result<()> {
    let mut bytes = std::fs::read(fixture("hands.uvfits")).expect("a fixture");
    for (key, value) in [
        ("PTYPE4", "'ANTENNA1'"),
        ("PTYPE5", "'ANTENNA2'"),
        ("PSCAL4", "0.0"),
        ("PSCAL5", "0.0"),
        ("PZERO4", "3.0"),
        ("PZERO5", "3.0"),
    ] {
        set_card(&mut bytes, key, value);
    }
    let (_folder, path) = write(&bytes);
    let alone = io::read_uvfits(&path, Some("RR"), &Limits::default())?.weights;
    assert!(alone.iter().all(|weight| *weight == 0.0));
    Ok(())
}

#[test]
fn a_source_far_from_the_middle_at_large_w_has_the_phase_of_the_operator() -> Result<()> {
    use haloscope::physics::{Physics, fourier::Visibilities};
    use std::f64::consts::TAU;
    let mut bytes = std::fs::read(fixture("hands.uvfits")).expect("a fixture");
    // Some thousand wavelengths become 30 times as many along w.
    set_card(&mut bytes, "PSCAL3", "6E-8");
    let (_folder, path) = write(&bytes);
    let found = io::read_uvfits(&path, Some("RR"), &Limits::default())?;
    let (cell, side) = (1.2e-4, 64);
    // A pixel to the east (higher columns) and the north (higher rows).
    let (row, column) = (32 + 21, 32 + 9);
    let mut sky = haloscope::Array::zeros(vec![1, 1, side, side]);
    sky[[0, 0, row, column]] = 1.0;
    let telescope = Visibilities::new(&[1, side, side], &found.uvw, cell, 1e-6)?;
    let measured = telescope.forward(&sky)?;
    let (l, m) = (9.0 * cell, 21.0 * cell);
    let n = (1.0 - l * l - m * m).sqrt();
    let mut largest = 0.0_f64;
    for (index, [u, v, w]) in found.uvw.iter().map(|[u, v, w]| [-u, -v, *w]).enumerate() {
        // What a file has: one sign for all of u, v and w, as they are stored.
        let phase = TAU * (u * l + v * m + w * (n - 1.0));
        largest = largest.max((TAU * w * (n - 1.0)).abs());
        let [re, im] = [measured[[0, 0, index]], measured[[0, 1, index]]].map(f64::from);
        assert!((re - phase.cos() / n).abs() < 1e-3, "{index}: {re} {}", phase.cos());
        assert!((im - phase.sin() / n).abs() < 1e-3, "{index}: {im} {}", phase.sin());
    }
    // Enough that another sign of w would show.
    assert!(largest > 1.0, "{largest}");
    Ok(())
}

#[test]
fn a_value_that_is_not_finite_is_refused_unless_it_is_flagged() {
    let mut bytes = std::fs::read(fixture("hands.uvfits")).expect("a fixture");
    let found = read("hands.uvfits", Some("RR")).expect("a file");
    let good = found.weights.iter().position(|weight| *weight > 0.0).expect("one that is used");
    // Behind the header: groups of 6 parameters and 4 channels of 2 hands of 3 values.
    let has_end = |block: &[u8]| block.chunks(80).any(|card| card.starts_with(b"END      "));
    let header = bytes.chunks(2880).position(has_end).expect("an end of the header");
    let begin = (header + 1) * 2880;
    let value = begin + 4 * ((6 + 24) * (good / 4) + 6 + 6 * (good % 4));
    bytes[value..value + 4].copy_from_slice(&f32::NAN.to_be_bytes());
    let (_folder, path) = write(&bytes);
    let error =
        io::read_uvfits(&path, Some("RR"), &Limits::default()).expect_err("NaN").to_string();
    assert!(
        error.contains("not finite") && error.contains(&format!("group {}", good / 4 + 1)),
        "{error}"
    );
}

#[test]
fn damage_leads_to_errors_and_never_to_a_panic() {
    let bytes = std::fs::read(fixture("hands.uvfits")).expect("a fixture");
    let limits = Limits { elements: 1 << 22, ..Limits::default() };
    for length in (0..bytes.len()).step_by(487) {
        let (_folder, path) = write(&bytes[..length]);
        let read = io::read_uvfits(&path, None, &limits);
        assert!(read.is_err() || length > 5760, "{length}");
    }
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..400 {
        let mut damaged = bytes.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(0..damaged.len());
            damaged[at] = random.u8(..);
        }
        let (_folder, path) = write(&damaged);
        drop(io::read_uvfits(&path, None, &limits));
        drop(io::read(&path, &ReadOptions { limits: limits.clone(), ..ReadOptions::default() }));
    }
}
