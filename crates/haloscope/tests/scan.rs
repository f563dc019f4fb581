//! Scans in Data Exchange layout, as h5py writes them.
#![cfg(feature = "hdf5")]

use std::path::{Path, PathBuf};

use haloscope::io::Limits;
use haloscope::io::exchange::{Scan, ScanReader};

#[test]
fn scan_becomes_line_integrals() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files/scan.h5");
    let scan = Scan::read(&path, &Limits::default()).expect("readable");
    assert_eq!(scan.projections.shape(), [5, 2, 6]);
    assert!((scan.angles[1] - 36_f64.to_radians()).abs() < 1e-12);
    let sinograms = scan.line_integrals().expect("whole");
    assert_eq!(sinograms.shape(), [2, 1, 5, 6]);
    // Counts of 300 + 11 in a beam from 100 to 600.
    assert!((sinograms[[0, 0, 0, 0]] + (211.0_f32 / 500.0).ln()).abs() < 1e-6);
    // Angle 1, row 1, column 2 is value 20 of the file.
    let counts = 300.0 + (20 * 37 + 11) as f32 % 251.0;
    assert!((sinograms[[1, 0, 1, 2]] + ((counts - 100.0) / 500.0).ln()).abs() < 1e-6);
    let small = Limits { elements: 10, ..Limits::default() };
    assert!(Scan::read(&path, &small).is_err());
    let other = path.with_file_name("latest.h5");
    let error = Scan::read(other, &Limits::default()).expect_err("no scan").to_string();
    assert!(error.contains("/exchange/data"), "{error}");
}

#[test]
fn tooth_is_read() {
    let Some(data) = std::env::var_os("HALOSCOPE_DATA").map(PathBuf::from) else {
        println!("skipped: the scan of a tooth needs HALOSCOPE_DATA");
        return;
    };
    let scan = Scan::read(data.join("ct/tomopy_tooth.h5"), &Limits::default()).expect("readable");
    assert_eq!(scan.projections.shape(), [181, 2, 640]);
    let sinograms = scan.line_integrals().expect("whole");
    assert!(sinograms.iter().all(|value| value.is_finite()));
    let mean = sinograms.mean().expect("values");
    assert!((0.1..2.0).contains(&mean), "{mean}");
}

#[test]
fn parts_of_a_scan_are_those_of_the_whole() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files/scan.h5");
    // (row, 1, angle, column)
    let whole = Scan::read(&path, &Limits::default()).and_then(|scan| scan.line_integrals());
    let whole = whole.expect("readable");
    let reader = ScanReader::open(&path, &Limits::default()).expect("readable");
    assert_eq!((reader.shape(), reader.angles().len()), ([5, 2, 6], 5));
    let lists: [&[usize]; 3] = [&[0, 2, 4], &[], &[1, 3]];
    for rows in [0..2, 1..2] {
        let parts = reader.line_integrals(&lists, rows.clone()).expect("readable");
        for (list, part) in lists.iter().zip(parts) {
            assert_eq!(part.shape(), [list.len(), rows.len(), 6]);
            for ((view, row, column), value) in
                part.into_dimensionality::<ndarray::Ix3>().expect("three axes").indexed_iter()
            {
                assert_eq!(*value, whole[[rows.start + row, 0, list[view], column]]);
            }
        }
    }
    for (views, rows) in [(&[5][..], 0..2), (&[0], 0..3), (&[2, 1], 0..1)] {
        let error = reader.line_integrals(&[views], rows).expect_err("not there").to_string();
        assert!(error.contains("frames of 2 rows"), "{error}");
    }
}
