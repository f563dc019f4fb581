//! Radio interferometry in jobs: UVFITS files give what arrays of numpy give, results know where they are in the sky, wavelets have the
//! same bits on any number of ranks, and what is refused.

mod jobs;

use std::fs;
use std::path::{Path, PathBuf};

use haloscope::Array;
use haloscope::io::{self, Limits, ReadOptions};
use jobs::{Folder, json, text};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../haloscope/fixtures/uvfits/hands.uvfits")
}

/// Writes numbers in double precision, as numpy does.
fn write_numbers(path: &Path, shape: &str, kind: &str, numbers: impl Iterator<Item = f64>) {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers.flat_map(f64::to_le_bytes));
    fs::write(path, bytes).expect("it is written");
}

/// A job of these files.
fn observed(files: &str, uvw: &str, weights: &str, rest: &str, ending: &str) -> String {
    format!(
        "[measurements]\nfiles = {files}\n[image]\nsize = [18, 20]\nchannels = 1\n[[operators]]\nkind = 'visibilities'\ncell = 25\n\
         uvw = '{uvw}'\nweights = '{weights}'\nblocks = 3\n{rest}\n[solver]\nmethod = 'cg'\n[stop]\niterations = 3\n[output]\n\
         file = 'result.{ending}'\ndirty = 'dirty.{ending}'\npsf = 'psf.{ending}'\n"
    )
}

fn read(folder: &Folder, name: &str) -> Array {
    io::read(folder.path(name), &ReadOptions::default()).expect("a result").array
}

#[test]
fn a_uvfits_file_gives_what_arrays_of_numpy_give() {
    let folder = Folder::new();
    fs::copy(fixture(), folder.path("hands.uvfits")).expect("a copy");
    let one = "'hands.uvfits'";
    for polarisation in [None, Some("LL")] {
        let known = io::read_uvfits(fixture(), polarisation, &Limits::default()).expect("UVFITS");
        let count = known.values.len();
        let values = known.values.iter().flatten().map(|value| f64::from(*value));
        write_numbers(&folder.path("values.npy"), &format!("{count},"), "<c16", values);
        let uvw = known.uvw.iter().flatten().copied();
        write_numbers(&folder.path("uvw.npy"), &format!("{count}, 3"), "<f8", uvw);
        let weights = known.weights.iter().copied();
        write_numbers(&folder.path("weights.npy"), &format!("{count},"), "<f8", weights);
        let expected =
            folder.bits(&observed("'values.npy'", "uvw.npy", "weights.npy", "", "npy"), &[]);
        let (entry, rest) = match polarisation {
            Some(name) => (format!("{one}\nentry = '{name}'"), format!("polarisation = '{name}'")),
            None => (one.into(), String::new()),
        };
        let job = observed(&entry, "hands.uvfits", "hands.uvfits", &rest, "npy");
        for ranks in ["1", "2", "3"] {
            assert_eq!(
                folder.bits(&job, &["--ranks", ranks]),
                expected,
                "{polarisation:?} {ranks}"
            );
        }
    }
    let with = |entry: &str, rest: &str| {
        let files = if entry.is_empty() { one.into() } else { format!("{one}\nentry = '{entry}'") };
        observed(&files, "hands.uvfits", "hands.uvfits", rest, "npy")
    };
    let numpy = observed("'values.npy'", "uvw.npy", "weights.npy", "polarisation = 'RR'", "npy");
    for (job, reason) in [
        (with("XY", "polarisation = 'XY'"), "it has RR, LL"),
        // Values of one hand do not go with the flags of another.
        (
            with("", "polarisation = 'RR'"),
            "`polarisation` is RR, and `entry` of [measurements] is I",
        ),
        (with("LL", ""), "`polarisation` is I, and `entry` of [measurements] is LL"),
        (numpy, "belongs to UVFITS files"),
    ] {
        let refused = text(&folder.run(&job, &[]).stderr);
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    // Flags count without `weights`, too.
    let all = with("", "");
    let expected = folder.bits(&all, &[]);
    assert_eq!(folder.bits(&all.replace("weights = 'hands.uvfits'\n", ""), &[]), expected);
}

#[test]
fn nights_in_files_of_their_own_are_one_image() {
    let folder = Folder::new();
    fs::copy(fixture(), folder.path("a.uvfits")).expect("a copy");
    fs::copy(fixture(), folder.path("b.uvfits")).expect("a copy");
    let operator = |name: &str| {
        format!(
            "[[operators]]\nkind = 'visibilities'\ncell = 25\nuvw = '{name}.uvfits'\nweights = '{name}.uvfits'\nblocks = 2\n"
        )
    };
    let job = |names: &[&str]| {
        let files: Vec<String> = names.iter().map(|name| format!("'{name}.uvfits'")).collect();
        let operators: Vec<String> = names.iter().map(|name| operator(name)).collect();
        format!(
            "[measurements]\nfiles = [{}]\n[image]\nsize = [18, 20]\nchannels = 1\n{}[solver]\nmethod = 'cg'\n[stop]\n\
             iterations = 3\n[output]\nfile = 'result.npy'\ndirty = 'dirty.npy'\n",
            files.join(", "),
            operators.concat()
        )
    };
    json(&folder.run(&job(&["a"]), &[]));
    let one = read(&folder, "dirty.npy");
    json(&folder.run(&job(&["a", "b"]), &["--ranks", "3"]));
    // Twice the same night has the same dirty image.
    let two = read(&folder, "dirty.npy");
    let worst = one.iter().zip(&two).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let largest = one.iter().map(|value| value.abs()).fold(0.0, f32::max);
    assert!(worst < 1e-5 * largest, "{worst} {largest}");
}

/// The number or word of a card of a FITS file.
fn card(path: &Path, key: &str) -> Option<String> {
    let bytes = fs::read(path).expect("a file");
    let cards = bytes.chunks(80).take_while(|card| !card.starts_with(b"END "));
    let found =
        cards.map(String::from_utf8_lossy).find(|card| card.starts_with(&format!("{key:8}=")))?;
    Some(found[10..].split('/').next()?.trim().trim_matches('\'').trim().to_owned())
}

#[test]
fn results_are_where_the_phase_centre_is() {
    let folder = Folder::new();
    fs::copy(fixture(), folder.path("hands.uvfits")).expect("a copy");
    let number = |name: &str, key: &str| -> f64 {
        card(&folder.path(name), key).expect(key).parse().expect("a number")
    };
    for (rest, centre) in
        [("", [10.6847, 41.269]), ("phase-centre = [201.5, -43.25]", [201.5, -43.25])]
    {
        let job = observed("'hands.uvfits'", "hands.uvfits", "hands.uvfits", rest, "fits");
        json(&folder.run(&job, &["--ranks", "2"]));
        for name in ["result.fits", "dirty.fits", "psf.fits"] {
            assert_eq!(card(&folder.path(name), "CTYPE1").as_deref(), Some("RA---SIN"));
            assert_eq!(card(&folder.path(name), "CTYPE2").as_deref(), Some("DEC--SIN"));
            assert_eq!([number(name, "CRVAL1"), number(name, "CRVAL2")], centre);
            // 18 rows and 20 columns; the middle is pixel 9 and pixel 10, and FITS counts from 1.
            assert_eq!([number(name, "CRPIX1"), number(name, "CRPIX2")], [11.0, 10.0]);
            assert!((number(name, "CDELT1") - 25.0 / 3600.0).abs() < 1e-12);
        }
    }
    let simulated = "[measurements]\nphantom = 'sky'\nsize = [16, 16]\n[[operators]]\nkind = 'visibilities'\ncell = 9\nantennas = 5\n\
                     [solver]\nmethod = 'cg'\n[stop]\niterations = 2\n[output]\nfile = 'sky.fits'\n";
    json(&folder.run(simulated, &[]));
    assert_eq!(card(&folder.path("sky.fits"), "CTYPE1"), None);
    assert!((number("sky.fits", "CDELT2") - 9.0 / 3600.0).abs() < 1e-12);
    let wrong =
        folder.run(&simulated.replace("cell = 9", "cell = 9\nphase-centre = [10, 95]"), &[]);
    assert!(text(&wrong.stderr).contains("[10.68, 41.27]"), "{}", text(&wrong.stderr));
}

/// A simulated observation with a prior and a method.
fn simulated(rest: &str) -> String {
    format!(
        "[measurements]\nphantom = 'sky'\nsize = [33, 40]\nnoise = {{ gaussian = 0.01 }}\n[[operators]]\nkind = 'visibilities'\n\
         cell = 1\nantennas = 8\ntimes = 20\nblocks = 4\n{rest}\n[stop]\niterations = 4\n[output]\nfile = 'result.npy'\n"
    )
}

#[test]
fn wavelets_have_the_same_bits_on_any_number_of_ranks() {
    let sara = "[prior]\nkind = 'wavelet'\nbases = 'sara'\nweight = 0.1\nclamp = [0, inf]\n";
    for (prior, method) in [
        (sara, "[solver]\nmethod = 'primal-dual'"),
        (sara, "[fidelity]\nkind = 'ball'\nradius = 1\n[solver]\nmethod = 'primal-dual'"),
        (
            "[prior]\nkind = 'wavelet'\nweight = 0.1\nbases = ['dirac', 'db2']\n",
            "[solver]\nmethod = 'fista'",
        ),
        (
            "[prior]\nkind = 'wavelet'\nweight = 0.1\n",
            "[solver]\nmethod = 'hqs'\nlevels = [0.2, 0.02]\nnoise = 0.01",
        ),
    ] {
        let folder = Folder::new();
        let job = simulated(&format!("{prior}{method}"));
        let one = folder.bits(&job, &[]);
        for ranks in ["2", "3", "5"] {
            assert_eq!(folder.bits(&job, &["--ranks", ranks]), one, "{method} {ranks}");
        }
    }
}

#[test]
fn wavelets_and_stretches_that_cannot_be_are_refused_with_their_place() {
    let pgd = "[solver]\nmethod = 'pgd'";
    let network = "[prior]\nkind = 'network'\nmodel = 'random:dncnn:8:3'\n";
    for (rest, reason) in [
        (format!("[prior]\nkind = 'wavelet'\n{pgd}"), "weight"),
        (format!("[prior]\nkind = 'wavelet'\nweight = 1\nbases = 'db9'\n{pgd}"), "db1 to db8"),
        (format!("[prior]\nkind = 'wavelet'\nweight = 1\nbases = 4\n{pgd}"), "sara"),
        (format!("{network}stretch = 'square'\n{pgd}"), "asinh"),
        (format!("{network}dynamic-range = 100\n{pgd}"), "`stretch`"),
        (format!("{network}stretch = 'log'\ndynamic-range = -2\n{pgd}"), "above 0"),
        (
            format!(
                "[prior]\nkind = 'network'\nmodel = 'builtin:gray'\nsigma = 0.05\nstretch = 'asinh'\n{pgd}"
            ),
            "a noise level of 0.05 is 6.58 after the stretch; 0 to 0.00",
        ),
    ] {
        let folder = Folder::new();
        let output = folder.run(&simulated(&rest), &[]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{rest}: {message}");
        assert!(message.contains(reason) && message.contains("job.toml:"), "{rest}: {message}");
    }
    // Without a level, the network is told what it is without a stretch.
    let stretched = format!(
        "[prior]\nkind = 'network'\nmodel = 'builtin:gray'\nscale = 1\nstretch = 'asinh'\n{pgd}"
    );
    json(&Folder::new().run(&simulated(&stretched), &[]));
    let folder = Folder::new();
    let sharded = "image = 'sharded'\n[measurements]\nphantom = 'shepp-logan'\nsize = [32, 32]\n[[operators]]\nkind = 'identity'\n\
                   [prior]\nkind = 'wavelet'\nweight = 0.1\n[solver]\nmethod = 'fista'\n[output]\nfile = 'result.npy'\n";
    let output = folder.run(sharded, &["--ranks", "2"]);
    assert!(text(&output.stderr).contains("wavelets are coefficients"), "{}", text(&output.stderr));
    // Where the layout is left open, the image is replicated.
    json(&folder.run(&sharded.replace("'sharded'", "'auto'"), &["--ranks", "2"]));
}

#[test]
fn a_stretched_network_has_the_same_bits_on_any_number_of_ranks() {
    let folder = Folder::new();
    let job = simulated(
        "[prior]\nkind = 'network'\nmodel = 'builtin:gray'\nscale = 1\nstretch = 'asinh'\ndynamic-range = 100\n[solver]\n\
         method = 'hqs'\nlevels = [0.01, 0.001]\nnoise = 0.01",
    );
    let one = folder.bits(&job, &[]);
    assert_eq!(folder.bits(&job, &["--ranks", "3"]), one);
    assert_ne!(folder.bits(&job.replace("stretch = 'asinh'\ndynamic-range = 100\n", ""), &[]), one);
}
