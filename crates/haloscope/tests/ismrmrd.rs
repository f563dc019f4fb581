//! Scans that the `ismrmrd` package wrote are sorted as the definition of the format says, and damaged ones are refused.
//! `fixtures/make_ismrmrd.py` makes the files.

#![cfg(feature = "hdf5")]

use std::path::{Path, PathBuf};

use haloscope::io::ismrmrd::{Samples, Scan, Selection};
use haloscope::io::{self, Limits, ReadOptions};
use haloscope::{Array, Error, Result};
use ndarray::Axis;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ismrmrd").join(name)
}

fn read(name: &str) -> Result<Scan> {
    Scan::read(fixture(name), &Selection::default(), &Limits::default())
}

/// What numpy made of a scan, for each coil: (2, …).
fn expected(name: &str, coils: usize) -> Vec<Array> {
    let all = io::read(fixture(name), &ReadOptions::default()).expect("committed").array;
    let all = all.index_axis_move(Axis(0), 0);
    // (2, coil or coil and plane, …).
    let each = all.len_of(Axis(1)) / coils;
    (0..coils)
        .map(|coil| {
            let part = all.slice_axis(Axis(1), (coil * each..(coil + 1) * each).into());
            let part = part.as_standard_layout().into_owned();
            if each == 1 { part.index_axis_move(Axis(1), 0) } else { part }
        })
        .collect()
}

fn assert_close(found: &[Array], expected: &[Array], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.shape(), expected.shape(), "{what}");
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-6, "{what}: {worst}");
    }
}

#[test]
fn lines_are_averaged_turned_and_brought_to_the_field_of_view() -> Result<()> {
    let scan = read("cartesian.h5")?;
    let Samples::Grid { coils, mask } = &scan.samples else { panic!("a grid") };
    assert_close(coils, &expected("cartesian.npy", 3), "coils");
    let rows: Vec<usize> = (0..12).filter(|row| mask[[0, *row, 0]] == 1.0).collect();
    assert_eq!(rows, [2, 4, 6, 7, 8, 10]);
    assert_eq!((mask.shape(), mask.sum()), (&[1, 12, 16][..], 6.0 * 16.0));
    let calibration = scan.calibration.as_deref().expect("lines for calibration");
    assert_close(calibration, &expected("cartesian-calibration.npy", 3), "calibration");
    assert_eq!(scan.counts[0], ("slices", 2));
    assert_eq!(scan.lines, [11, 6]);
    let noise = scan.noise.expect("a scan of noise");
    // 1800 numbers of 0.25: within five of their standard errors.
    assert!((noise - 0.25).abs() < 0.25 * 5.0 / 3600.0_f64.sqrt(), "{noise}");
    // Rows 2, 4, 6, 8 and 10 are means of two lines, and row 7 is one: 6 / (5 / 2 + 1).
    assert!((scan.averages - 6.0 / 3.5).abs() < 1e-12, "{}", scan.averages);
    let wide = Selection { keeps_oversampling: true, ..Selection::default() };
    let wide = Scan::read(fixture("cartesian.h5"), &wide, &Limits::default())?;
    assert_close(wide.coils(), &expected("cartesian-wide.npy", 3), "oversampled");
    let other = Selection { slice: 1, ..Selection::default() };
    let other = Scan::read(fixture("cartesian.h5"), &other, &Limits::default())?;
    assert_eq!((other.lines[0], other.calibration), (5, None));
    Ok(())
}

#[test]
fn short_lines_for_calibration_keep_the_frequencies_that_they_reach() -> Result<()> {
    let scan = read("short-calibration.h5")?;
    let calibration = scan.calibration.as_deref().expect("lines for calibration");
    assert_close(calibration, &expected("short-calibration.npy", 2), "calibration");
    assert_eq!(scan.coils()[0].shape(), [2, 12, 16]);
    Ok(())
}

/// A fixture with another text of the same length in its header.
fn with_header(name: &str, from: &str, to: &str) -> (tempfile::TempDir, PathBuf) {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(fixture(name)).expect("committed");
    let at = bytes.windows(from.len()).position(|text| text == from.as_bytes()).expect(from);
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("written");
    (folder, path)
}

#[test]
fn echoes_of_epi_without_points_are_lines() -> Result<()> {
    let (_folder, path) = with_header("cartesian.h5", ">cartesian<", ">epi      <");
    let scan = Scan::read(&path, &Selection::default(), &Limits::default())?;
    assert_eq!(scan.samples, read("cartesian.h5")?.samples);
    let (_folder, path) = with_header("cartesian.h5", ">cartesian<", ">spiral   <");
    let error = Scan::read(&path, &Selection::default(), &Limits::default()).expect_err("refused");
    assert!(error.to_string().contains("no points"), "{error}");
    Ok(())
}

#[test]
fn grids_that_no_file_of_this_length_fills_are_refused() {
    // 12 rows become 65012, of 32 samples by 3 coils.
    let (_folder, path) = with_header("cartesian.h5", "    <y>12</y>", " <y>65012</y>");
    let error = Scan::read(&path, &Selection::default(), &Limits::default()).expect_err("refused");
    assert!(error.to_string().contains("cannot be in"), "{error}");
}

#[test]
fn partial_echoes_of_a_volume_keep_their_places() -> Result<()> {
    let scan = read("volume.h5")?;
    let Samples::Grid { coils, mask } = &scan.samples else { panic!("a grid") };
    assert_close(coils, &expected("volume.npy", 2), "volume");
    assert_eq!(mask.shape(), [1, 3, 4, 10]);
    for (at, value) in mask.indexed_iter() {
        assert_eq!(*value == 1.0, at[3] >= 3, "{at:?}");
    }
    assert_eq!((scan.noise, scan.calibration), (None, None));
    Ok(())
}

#[test]
fn points_of_spokes_are_in_radians_and_in_the_order_of_axes() -> Result<()> {
    let scan = read("radial.h5")?;
    let Samples::Anywhere { coils, points, sides, are_cycles } = &scan.samples else {
        panic!("points")
    };
    assert!(*are_cycles && scan.averages == 1.0);
    assert_close(coils, &expected("radial.npy", 2), "samples");
    assert_eq!(sides, &[8, 8]);
    let options = ReadOptions { axes: io::Axes::AsStored, ..ReadOptions::default() };
    let expected = io::read_numbers(fixture("radial-points.npy"), &options)?;
    assert_eq!(points.len(), expected.len());
    assert!(points.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12));
    Ok(())
}

#[test]
fn what_a_file_does_not_have_is_said() {
    let refused = |selection: Selection, limits: &Limits| {
        let path = fixture("cartesian.h5");
        Scan::read(path, &selection, limits).expect_err("refused").to_string()
    };
    let all = Limits::default();
    let slice = refused(Selection { slice: 7, ..Selection::default() }, &all);
    assert!(slice.contains("slice 7") && slice.contains("2 slices"), "{slice}");
    let group = refused(Selection { group: "other".into(), ..Selection::default() }, &all);
    assert!(group.contains("/other/xml"), "{group}");
    let few = Limits { elements: 100, ..Limits::default() };
    assert!(refused(Selection::default(), &few).contains("limit"));
    let short = Limits { file_bytes: 1000, ..Limits::default() };
    assert!(refused(Selection::default(), &short).contains("limit"));
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files/latest.h5");
    let other = Scan::read(other, &Selection::default(), &all).expect_err("no scan").to_string();
    assert!(other.contains("ISMRMRD"), "{other}");
}

#[test]
fn damaged_files_are_refused_or_read_within_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("damaged.h5");
    let limits = Limits { elements: 1 << 20, ..Limits::default() };
    let mut random = fastrand::Rng::with_seed(3);
    let mut refused = 0;
    for name in ["cartesian.h5", "volume.h5", "radial.h5"] {
        let whole = std::fs::read(fixture(name)).expect("committed");
        for attempt in 0..48 {
            let mut bytes = whole.clone();
            if attempt % 8 == 0 {
                bytes.truncate(random.usize(0..bytes.len()));
            }
            for _ in 0..random.usize(1..12) {
                let at = random.usize(0..bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = *random.choice(&[0, 1, 0x7f, 0xff, b'9']).expect("some");
                }
            }
            std::fs::write(&path, &bytes).expect("written");
            match Scan::read(&path, &Selection::default(), &limits) {
                Ok(scan) => {
                    let values: usize = scan.coils().iter().map(Array::len).sum();
                    assert!(values <= 1 << 20, "{name} {attempt}");
                }
                Err(error) => {
                    assert!(!matches!(error, Error::Argument { .. }), "{name} {attempt}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn lists_that_lie_about_their_place_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lying.h5");
    let whole = std::fs::read(fixture("radial.h5")).expect("committed");
    // The size of the first collection of objects.
    let at = whole.windows(4).position(|bytes| bytes == b"GCOL").expect("a heap");
    for size in [u64::MAX, 1 << 40, whole.len() as u64] {
        let mut bytes = whole.clone();
        bytes[at + 8..at + 16].copy_from_slice(&size.to_le_bytes());
        std::fs::write(&path, &bytes).expect("written");
        let error = Scan::read(&path, &Selection::default(), &Limits::default());
        assert!(matches!(error, Err(Error::Content { .. })), "{size}: {error:?}");
    }
}
