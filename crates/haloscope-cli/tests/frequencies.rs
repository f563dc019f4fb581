//! Jobs for instruments that measure frequencies: the same bits on any number of ranks, data in files as numpy writes them, and what
//! is refused.

mod jobs;

use std::fs;
use std::path::Path;

use haloscope::io::{self, Axes, ReadOptions};
use haloscope::physics::fourier::{Cartesian, Visibilities, birdcage};
use haloscope::physics::{LinearPhysics, Physics};
use haloscope::{Array, metrics};
use jobs::{Folder, json, text};

/// A simulated scan or observation of a small image.
fn simulated(phantom: &str, operator: &str, rest: &str) -> String {
    format!(
        "[measurements]\nphantom = '{phantom}'\nsize = [20, 24]\nnoise = {{ gaussian = 0.01 }}\n[[operators]]\n{operator}\n\
         {rest}\n[output]\nfile = 'result.npy'\n"
    )
}

const TOTAL_VARIATION: &str = "[prior]\nkind = 'total-variation'\nweight = 0.001\n[solver]\nmethod = 'primal-dual'\n[stop]\niterations = 5";
const HQS: &str = "[prior]\nkind = 'total-variation'\nweight = 0.001\n[solver]\nmethod = 'hqs'\nlevels = [0.2, 0.02]\nnoise = 0.01\n[stop]\niterations = 3";

#[test]
fn the_bits_are_the_same_on_any_number_of_ranks() {
    for (phantom, operator) in [
        ("shepp-logan", "kind = 'mri'\ncoils = 4\nacceleration = 2\ncalibration = 0.2"),
        ("shepp-logan", "kind = 'mri-trajectory'\ncoils = 3\nspokes = 20\ndensity = true"),
        (
            "shepp-logan",
            "kind = 'mri-trajectory'\ncoils = 2\ninterleaves = 4\nangles = 'golden'\nvariable-density = 1.5\ndensity = true",
        ),
        (
            "sky",
            "kind = 'visibilities'\ncell = 2000\nantennas = 6\ntimes = 9\nblocks = 7\nweighting = 'briggs'",
        ),
    ] {
        for method in [TOTAL_VARIATION, HQS] {
            let folder = Folder::new();
            let job = simulated(phantom, operator, method);
            let one = folder.bits(&job, &[]);
            for ranks in ["2", "3", "5", "8"] {
                assert_eq!(folder.bits(&job, &["--ranks", ranks]), one, "{operator} {ranks}");
            }
        }
    }
}

/// Writes an array of complex numbers, of which (2, …) are the parts, as numpy does.
fn write_complex(path: &Path, sides: &[usize], parts: &Array) {
    let shape: Vec<String> = sides.iter().map(ToString::to_string).collect();
    let shape = shape.join(", ") + ",";
    let header = format!("{{'descr': '<c8', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    let values: Vec<f32> = parts.iter().copied().collect();
    let (real, imaginary) = values.split_at(values.len() / 2);
    for (re, im) in real.iter().zip(imaginary) {
        bytes.extend(re.to_le_bytes());
        bytes.extend(im.to_le_bytes());
    }
    fs::write(path, bytes).expect("it is written");
}

/// Writes numbers in double precision.
fn write_numbers(path: &Path, sides: [usize; 2], numbers: &[f64]) {
    let header = format!(
        "{{'descr': '<f8', 'fortran_order': False, 'shape': ({}, {}), }}\n",
        sides[0], sides[1]
    );
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    for number in numbers {
        bytes.extend(number.to_le_bytes());
    }
    fs::write(path, bytes).expect("it is written");
}

fn read(folder: &Folder, name: &str) -> Array {
    let options = ReadOptions { axes: Axes::Automatic, ..ReadOptions::default() };
    io::read(folder.path(name), &options).expect("a result").array
}

fn picture(sides: [usize; 2]) -> Array {
    Array::from_shape_fn(vec![1, 1, sides[0], sides[1]], |at| {
        let square = |x: usize, side: usize| (x as f32 / side as f32 - 0.45).powi(2);
        (-12.0 * (square(at[2], sides[0]) + square(at[3], sides[1]))).exp()
    })
}

#[test]
fn coils_in_files_of_numpy_give_the_image() {
    let (folder, sides) = (Folder::new(), [32, 30]);
    let image = picture(sides);
    for coil in 0..3 {
        let map = birdcage(&sides, 3, coil).expect("a coil");
        let scan = Cartesian::new(&[1, sides[0], sides[1]], Some(&map), None).expect("a scan");
        let measured = scan.forward(&image).expect("frequencies");
        write_complex(&folder.path(&format!("coil-{coil}.npy")), &sides, &measured);
        write_complex(&folder.path(&format!("map-{coil}.npy")), &sides, &map);
    }
    let job = |coils: &str| {
        format!(
            "[measurements]\nfiles = 'coil-*.npy'\n[[operators]]\nkind = 'mri'\n{coils}\n[solver]\nmethod = 'cg'\n\
             [stop]\niterations = 12\n[output]\nfile = 'result.npy'\n"
        )
    };
    json(&folder.run(&job("coils = 'map-*.npy'"), &["--ranks", "2"]));
    let found = read(&folder, "result.npy");
    let error = metrics::psnr(&found, &image, 1.0).expect("a number")[0];
    assert!(error > 80.0, "{error}");
    // Estimated ones know the image up to the phase of the first coil.
    json(&folder.run(&job("coils-from = 'coil-*.npy'\ncomplex = true"), &["--ranks", "2"]));
    let found = read(&folder, "result.npy");
    for row in 12..20 {
        for column in 10..18 {
            let length = found[[0, 0, row, column]].hypot(found[[0, 1, row, column]]);
            assert!((length - image[[0, 0, row, column]]).abs() < 0.02, "{row} {column} {length}");
        }
    }
    // The first rank estimates for all.
    let estimated = job("coils-from = 'coil-*.npy'\ncomplex = true\ncalibration-width = 20");
    let one = folder.bits(&estimated, &[]);
    for ranks in ["2", "3", "5"] {
        assert_eq!(folder.bits(&estimated, &["--ranks", ranks]), one, "{ranks}");
    }
    let both = folder.run(&job("coils = 2\ncoils-from = 'coil-*.npy'"), &[]);
    assert!(text(&both.stderr).contains("one of them is expected"), "{}", text(&both.stderr));
    let few = folder.run(&job("coils = ['map-0.npy', 'map-1.npy']"), &[]);
    assert!(!few.status.success());
}

#[test]
fn blocks_of_one_file_of_visibilities_have_the_dirty_image_of_all() {
    let (folder, sides, cell) = (Folder::new(), [20, 16], 2e-3);
    let image = picture(sides);
    let mut random = 1_u64;
    let mut number = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as f64 / (1_u64 << 31) as f64 - 0.5
    };
    let uvw: Vec<[f64; 3]> =
        (0..101).map(|_| [400.0 * number(), 400.0 * number(), 90.0 * number()]).collect();
    let weights: Vec<f64> = (0..101).map(|_| 1.0 + number()).collect();
    let plain = Visibilities::new(&[1, 20, 16], &uvw, cell, 1e-7).expect("a telescope");
    let weighted =
        Visibilities::with(&[1, 20, 16], &uvw, cell, Some(&weights), None, 1e-7).expect("weights");
    let measured = plain.forward(&image).expect("visibilities");
    write_complex(&folder.path("visibilities.npy"), &[101], &measured);
    write_numbers(&folder.path("uvw.npy"), [101, 3], &uvw.concat());
    write_numbers(&folder.path("weights.npy"), [101, 1], &weights);
    let seconds = cell * 648_000.0 / std::f64::consts::PI;
    let job = |blocks: usize| {
        format!(
            "[measurements]\nfiles = 'visibilities.npy'\n[image]\nsize = [20, 16]\nchannels = 1\n[[operators]]\n\
             kind = 'visibilities'\ncell = {seconds}\nuvw = 'uvw.npy'\nweights = 'weights.npy'\nblocks = {blocks}\n\
             accuracy = 1e-7\n[solver]\nmethod = 'cg'\n[stop]\niterations = 2\n[output]\nfile = 'result.npy'\n\
             dirty = 'dirty.npy'\npsf = 'psf.npy'\n"
        )
    };
    let data = weighted.weighted(&measured).expect("weighted");
    let back = weighted.adjoint(&data).expect("a dirty image");
    let mut point = Array::zeros(back.raw_dim());
    point[[0, 0, 10, 8]] = 1.0;
    let response = weighted.normal(&point).expect("a response");
    let peak = response[[0, 0, 10, 8]];
    for (blocks, ranks) in [(1, "1"), (4, "3"), (101, "2")] {
        json(&folder.run(&job(blocks), &["--ranks", ranks]));
        for (name, expected) in [("dirty.npy", &back), ("psf.npy", &response)] {
            let found = read(&folder, name);
            let worst =
                found.iter().zip(expected).map(|(a, b)| (a - b / peak).abs()).fold(0.0, f32::max);
            let largest = expected.iter().map(|b| (b / peak).abs()).fold(0.0, f32::max);
            assert!(worst < 2e-6 * largest, "{name} {blocks} {worst} {largest}");
        }
        assert!((read(&folder, "psf.npy")[[0, 0, 10, 8]] - 1.0).abs() < 1e-6);
    }
    write_numbers(&folder.path("uvw.npy"), [100, 3], &uvw.concat()[..300]);
    let short = folder.run(&job(2), &[]);
    assert!(text(&short.stderr).contains("100 visibilities"), "{}", text(&short.stderr));
}

#[test]
fn a_ball_around_the_data_is_kept_to() {
    let folder = Folder::new();
    let job = simulated(
        "shepp-logan",
        "kind = 'mri'\ncoils = 2\nacceleration = 1.5",
        "[fidelity]\nkind = 'ball'\nradius = 0.3\n[prior]\nkind = 'total-variation'\nweight = 1\n[solver]\nmethod = 'primal-dual'\n\
         [stop]\niterations = 400",
    );
    let one = json(&folder.run(&job, &[]));
    assert!(one["after"]["psnr_db"].as_f64() > Some(20.0), "{one}");
    assert_eq!(folder.bits(&job, &["--ranks", "3"]), one["bits"]);
    let other = folder.run(&job.replace("primal-dual", "pgd"), &[]);
    assert!(text(&other.stderr).contains("ball"), "{}", text(&other.stderr));
    let without = folder.run(&job.replace("radius = 0.3", ""), &[]);
    assert!(text(&without.stderr).contains("`radius` is missing"), "{}", text(&without.stderr));
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_place() {
    for (operator, reason) in [
        ("kind = 'mri'\nacceleration = 0.5", "1 (all lines) or more"),
        ("kind = 'mri'\nacceleration = 4\ncalibration = 0.5", "0.25 or less"),
        ("kind = 'mri'\nacceleration = 4\nmask = 'mask.npy'", "one of them is expected"),
        ("kind = 'mri'\ncoils = 0", "1 or more"),
        ("kind = 'mri'\ncoils = 2\ncalibration-width = 20", "belongs to `coils-from`"),
        ("kind = 'mri-trajectory'", "`points` is missing"),
        ("kind = 'mri-trajectory'\nspokes = 3\ninterleaves = 2", "one of them is expected"),
        ("kind = 'mri-trajectory'\nspokes = 3\nturns = 2", "`interleaves` is not given"),
        (
            "kind = 'mri-trajectory'\ninterleaves = 3\nvariable-density = 0.5",
            "1 (Archimedean) to 10",
        ),
        ("kind = 'mri-trajectory'\ninterleaves = 3\nsamples = 1", "2 or more samples"),
        ("kind = 'visibilities'\nantennas = 4", "`cell` is missing"),
        ("kind = 'visibilities'\ncell = 1", "`antennas`"),
        ("kind = 'visibilities'\ncell = 1\nantennas = 1", "2 or more"),
        ("kind = 'visibilities'\ncell = 1\nantennas = 4\nrobustness = 1", "briggs"),
        ("kind = 'visibilities'\ncell = 90000\nantennas = 4", "beyond the horizon"),
    ] {
        let folder = Folder::new();
        let output = folder.run(&simulated("shepp-logan", operator, TOTAL_VARIATION), &[]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{operator}: {message}");
        assert!(message.contains(reason) && message.contains("job.toml:"), "{operator}: {message}");
    }
}

/// A scan that the `ismrmrd` package wrote, of fewer frequencies than are enough to estimate sensitivities from.
#[test]
#[cfg(feature = "hdf5")]
fn scans_of_ismrmrd_that_are_too_small_are_refused() {
    let folder = Folder::new();
    let scan =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../haloscope/fixtures/ismrmrd/cartesian.h5");
    let job = folder.path("scan.toml");
    let [job, scan] = [&job, &scan].map(|path| path.display().to_string());
    let output = jobs::haloscope(&["init", "mri", &job, "--from", &scan]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot be estimated"), "{}", text(&output.stderr));
    // Nothing is written before all is known to be good.
    assert!(!folder.path("scan-coil-0.npy").exists() && !folder.path("scan-mask.npy").exists());
    let output =
        jobs::haloscope(&["init", "mri", &job, "--force", "--slice", "5", "--from", &scan]);
    assert!(text(&output.stderr).contains("slice 5 has no lines"), "{}", text(&output.stderr));
    let output = jobs::haloscope(&["init", "denoise", &job, "--slice", "1", "--from", &scan]);
    assert!(text(&output.stderr).contains("only mri has slices"), "{}", text(&output.stderr));
}

/// Scans of a disk by the four coils of a birdcage, on a grid and along spokes.
#[test]
#[cfg(feature = "hdf5")]
fn scans_of_ismrmrd_become_jobs_that_run() {
    for (name, kind) in [("head.h5", "\"mri\""), ("head-radial.h5", "\"mri-trajectory\"")] {
        let folder = Folder::new();
        let scan =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../haloscope/fixtures/ismrmrd").join(name);
        let job = folder.path("scan.toml");
        let [path, scan] = [&job, &scan].map(|path| path.display().to_string());
        let output = jobs::haloscope(&["init", "mri", &path, "--model", "tv", "--from", &scan]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("4 coils"), "{}", text(&output.stdout));
        let taken = "taken as cycles for each pixel; they reach 100 % of the highest frequency";
        let has_points = name == "head-radial.h5";
        assert_eq!(text(&output.stdout).contains(taken), has_points, "{}", text(&output.stdout));
        let written = fs::read_to_string(&job).expect("a job");
        assert!(written.contains(&format!("kind = {kind}")), "{written}");
        let checked = jobs::haloscope(&["check", &path]);
        assert!(checked.status.success(), "{}", text(&checked.stderr));
        let other = folder.path("a patient's scan.toml").display().to_string();
        let output = jobs::haloscope(&["init", "mri", &other, "--model", "tv", "--from", &scan]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let checked = jobs::haloscope(&["check", &other]);
        assert!(checked.status.success(), "{}", text(&checked.stderr));
        let one = folder.bits(&written, &[]);
        assert_eq!(folder.bits(&written, &["--ranks", "3"]), one);
        // The disk is as bright as the rest is dark, up to its phase.
        let found = read(&folder, "scan.npy");
        let size = |row: usize, column: usize| {
            found[[0, 0, row, column]].hypot(found[[0, 1, row, column]])
        };
        let inside = [(16, 16), (14, 20), (20, 12)].map(|(row, column)| size(row, column));
        let outside = [(2, 2), (29, 16), (16, 30)].map(|(row, column)| size(row, column));
        assert!(inside.iter().all(|size| (size - 1.0).abs() < 0.3), "{name} {inside:?}");
        // Where no coil sees anything, the prior continues what is beside it.
        assert!(outside.iter().all(|size| *size < 0.2), "{name} {outside:?}");
    }
}
