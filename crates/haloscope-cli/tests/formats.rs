//! Data as strangers write them: counts of cameras and scanners in the formats and units of their programs, through
//! `denoise` and through jobs.

mod jobs;

use std::fs;
use std::path::Path;
use std::process::Output;

use haloscope::Array;
use haloscope::io::{self, ReadOptions, Sample, WriteOptions};
use haloscope::metrics::psnr;
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::{SheppLogan, Table};
use haloscope::physics::tomography::{ParallelBeam3d, Tomography3d, evenly_spaced};
use haloscope::physics::{Blur, Padding, Physics};
use jobs::{Folder, command, edited, haloscope, json, npy, text};
use ndarray::Axis;

fn read(path: impl AsRef<Path>) -> io::Image {
    io::read(path, &ReadOptions::default()).expect("readable")
}

fn write(folder: &Folder, name: &str, array: &Array, sample: Sample) -> String {
    let options = WriteOptions { sample: Some(sample), raw: true, ..WriteOptions::default() };
    io::write(folder.path(name), array, &options).expect(name);
    folder.name(name)
}

fn add_noise(array: &mut Array, sigma: f64) {
    let noise = Noise::gaussian(sigma).expect("a level");
    noise.add(array, NoiseSource { seed: 5, operator: 0 }).expect("noise");
}

fn stderr(output: &Output) -> String {
    text(&output.stderr)
}

/// A smooth image from 0.1 to 0.9, and the same with noise of 25/255.
fn noisy_and_clean() -> [Array; 2] {
    let clean = Array::from_shape_fn(vec![1, 1, 64, 80], |at| {
        let (y, x) = (at[2] as f32 / 64.0, at[3] as f32 / 80.0);
        0.5 + 0.4 * (5.0 * y).sin() * (4.0 * x).cos()
    });
    let mut noisy = clean.clone();
    add_noise(&mut noisy, 25.0 / 255.0);
    [noisy, clean]
}

fn error(one: &Array, other: &Array) -> f64 {
    one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

#[test]
fn denoise_finds_the_scale_of_any_data_and_keeps_their_units() {
    let folder = Folder::new();
    let [noisy, clean] = noisy_and_clean();
    let deep = |array: &Array, white: f32| array.mapv(|v| (v * white).round().clamp(0.0, white));
    for (name, sample, white, expected, out, written) in [
        // 12 bits of a camera in 16 of a file.
        ("camera.tif", Sample::U16, 4095.0, 4095.0, "camera-out.tif", Sample::U16),
        ("counts.npy", Sample::U16, 65_535.0, 65_535.0, "counts-out.npy", Sample::U16),
        ("signed.npy", Sample::I32, 1023.0, 1023.0, "signed-out.npy", Sample::I32),
        ("small.nii", Sample::U8, 255.0, 255.0, "small-out.nii", Sample::U8),
        ("photo.tif", Sample::U8, 255.0, 255.0, "photo-out.tif", Sample::U8),
        ("deep.png", Sample::U16, 65_535.0, 65_535.0, "deep-out.png", Sample::U16),
        ("deep.png", Sample::U16, 65_535.0, 65_535.0, "deep-out.tif", Sample::U16),
        // Few photons: between counts there is much.
        ("photons.npy", Sample::U16, 20.0, 20.0, "photons-out.npy", Sample::F32),
    ] {
        let input = write(&folder, name, &deep(&noisy, white), sample);
        let output = folder.name(out);
        let report =
            json(&haloscope(&["denoise", &input, "-o", &output, "-s", "25/255", "--json"]));
        let chosen = report["white"].as_f64().expect("a number");
        assert!((chosen / expected - 1.0).abs() < 0.1, "{name}: {report}");
        let units = report["sigma_in_units"].as_f64().expect("a number");
        assert!((units / (25.0 / 255.0 * chosen) - 1.0).abs() < 1e-5, "{report}");
        let result = read(&output);
        assert_eq!(result.sample, written, "{name}");
        let result = if sample == Sample::U16 && out.ends_with("png") {
            result.array
        } else {
            result.array / white
        };
        assert!(8.0 * error(&result, &clean) < error(&noisy, &clean), "{name}");
    }
    // Floats of a telescope, of 16 bits and from 0 to 1.
    let values = |white: f32| noisy.mapv(|value| value * white);
    for (name, white, sample) in [
        ("sky.fits", 1000.0, Sample::F32),
        ("mu.fits", 0.005, Sample::F32),
        ("half.npy", 1.0, Sample::F16),
        ("unit.npy", 1.0, Sample::F32),
    ] {
        let input = write(&folder, name, &values(white), sample);
        let output = folder.name(&format!("out-{name}"));
        let report =
            json(&haloscope(&["denoise", &input, "-o", &output, "-s", "25/255", "--json"]));
        let result = read(&output);
        assert_eq!(result.sample, sample, "{name}");
        let result = result.array.mapv(|value| value / white);
        assert!(8.0 * error(&result, &clean) < error(&noisy, &clean), "{name}: {report}");
    }
    // What was chosen is printed.
    let arguments = ["denoise", &folder.name("camera.tif"), "-o", &folder.name("again.tif")];
    let done = haloscope(&[&arguments[..], &["--noise", "401.5"]].concat());
    let words = text(&done.stdout);
    assert!(done.status.success(), "{}", stderr(&done));
    for part in [
        "TIFF, 16-bit unsigned, as stored; 0 is 0 and 4095 is 1 for the network (12 bits)",
        "sigma is 401.5000 in these units",
        "again.tif (TIFF, 16-bit unsigned)",
        // Height and width, as everywhere.
        "camera.tif (64x80, gray)",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let same = read(folder.path("again.tif")).array;
    assert!(error(&same, &read(folder.path("camera-out.tif")).array) < 0.01 * same.len() as f64);
}

#[test]
fn denoise_takes_the_scale_that_is_given() {
    let folder = Folder::new();
    let model = folder.write("model.safetensors", jobs::identity_network());
    let counts = Array::from_shape_fn(vec![1, 1, 8, 9], |at| (at[2] * 9 + at[3]) as f32 * 40.0);
    let input = write(&folder, "in.png", &counts, Sample::U16);
    let run = |out: &str, more: &[&str]| {
        let output = folder.name(out);
        let arguments = ["denoise", &input, "-o", &output, "-s", "0.1", "-m", &model, "--json"];
        let done = haloscope(&[&arguments[..], more].concat());
        (json(&done), stderr(&done))
    };
    let (report, message) = run("out.png", &["--white", "4095"]);
    assert_eq!(
        (report["white"].as_f64(), report["scale"].as_str()),
        (Some(4095.0), Some("as given"))
    );
    assert!(message.is_empty(), "{message}");
    // The same picture, and in another format what it is to those who read it.
    let stored = ReadOptions { white: Some(1.0), ..ReadOptions::default() };
    assert_eq!(io::read(folder.path("out.png"), &stored).expect("read").array, counts);
    run("out.npy", &["--white", "4095"]);
    let largest = (read(folder.path("out.npy")).array * 65_535.0 - &counts)
        .fold(0.0, |m: f32, d| m.max(d.abs()));
    assert!(largest < 0.01, "{largest}");
    let (report, _) = run("out.tif", &["--normalise"]);
    assert_eq!((report["black"].as_f64(), report["white"].as_f64()), (Some(0.0), Some(2840.0)));
    for (arguments, words) in [
        (&["--white", "0"][..], "above 0"),
        (&["--white", "10", "--normalise"], "cannot be used with"),
        (&["--noise", "3"], "cannot be used with"),
    ] {
        let output = folder.name("no.png");
        let all = [&["denoise", &input, "-o", &output, "-s", "0.1"], arguments].concat();
        let done = haloscope(&all);
        assert_eq!(done.status.code(), Some(2));
        assert!(stderr(&done).contains(words), "{}", stderr(&done));
    }
    let output = folder.name("no.png");
    let done = haloscope(&["denoise", &input, "-o", &output, "--noise", "3000", "--white", "2000"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        stderr(&done).contains("more than the 2000 between black and white"),
        "{}",
        stderr(&done)
    );
}

#[test]
fn denoise_warns_of_what_a_picture_cuts_off() {
    let folder = Folder::new();
    let model = folder.write("model.safetensors", jobs::identity_network());
    let input = folder.write("in.npy", npy(&[8, 50], |index| index as f32));
    let output = folder.name("out.png");
    let run = |more: &[&str]| {
        let arguments = ["denoise", &input, "-o", &output, "-s", "0.1", "-m", &model];
        let done = haloscope(&[&arguments[..], more].concat());
        assert!(done.status.success(), "{}", stderr(&done));
        stderr(&done)
    };
    let message = run(&["--white", "100"]);
    assert!(message.contains("0 % are below and 75 % above"), "{message}");
    assert!(message.contains("out.png") && message.contains("--white"), "{message}");
    let message = run(&[]);
    assert!(!message.contains("above"), "{message}");
}

#[test]
fn denoise_takes_stacks_slice_by_slice() {
    let folder = Folder::new();
    let [noisy, _] = noisy_and_clean();
    let slice = |depth: usize| noisy.mapv(|value| (4095.0 * value + 90.0 * depth as f32).round());
    let slices: Vec<Array> = (0..3).map(slice).collect();
    let views: Vec<_> = slices.iter().map(|slice| slice.view().insert_axis(Axis(2))).collect();
    let stack = ndarray::concatenate(Axis(2), &views).expect("one size");
    let level = ["--white", "4500", "-s", "0.1", "--json"];
    for (name, out) in [("stack.tif", "stack-out.tif"), ("stack.npy", "stack-out.nii.gz")] {
        let input = write(&folder, name, &stack, Sample::U16);
        let output = folder.name(out);
        let report = json(&haloscope(&[&["denoise", &input, "-o", &output], &level[..]].concat()));
        assert_eq!(report["slices"], 3, "{report}");
        let whole = read(&output).array;
        assert_eq!(whole.shape(), [1, 1, 3, 64, 80]);
        for (depth, slice) in slices.iter().enumerate() {
            let input = write(&folder, "slice.npy", slice, Sample::U16);
            let output = folder.name("slice-out.npy");
            json(&haloscope(&[&["denoise", &input, "-o", &output], &level[..]].concat()));
            assert_eq!(whole.index_axis(Axis(2), depth), read(&output).array, "{name} {depth}");
        }
    }
    // A picture holds no stack, which is said before the work.
    let done = haloscope(&[
        "denoise",
        &folder.name("stack.tif"),
        "-o",
        &folder.name("a.png"),
        "-s",
        "0.1",
    ]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("a.png"), "{}", stderr(&done));
}

#[test]
fn denoise_asks_which_array_and_which_axes() {
    let folder = Folder::new();
    let model = folder.write("model.safetensors", jobs::identity_network());
    let output = folder.name("out.npy");
    let run = |input: &str, more: &[&str]| {
        let arguments = ["denoise", input, "-o", &output, "-s", "0.1", "-m", &model, "--json"];
        haloscope(&[&arguments[..], more].concat())
    };
    let two = Path::new(env!("CARGO_MANIFEST_DIR")).join("../haloscope/fixtures/files/two.npz");
    let two = two.display().to_string();
    let done = run(&two, &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("--entry"), "{}", stderr(&done));
    let report = json(&run(&two, &["--entry", "b"]));
    assert_eq!(report["shape"], serde_json::json!([1, 1, 2, 2]));

    let colour = folder.write("colour.npy", npy(&[12, 10, 3], |index| index as f32 / 360.0));
    let done = run(&colour, &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("--axes channel-last"), "{}", stderr(&done));
    for (axes, shape) in [
        ("channel-last", serde_json::json!([1, 3, 12, 10])),
        ("spatial", serde_json::json!([1, 1, 12, 10, 3])),
    ] {
        assert_eq!(json(&run(&colour, &["--axes", axes]))["shape"], shape);
    }
}

#[test]
fn denoise_does_not_write_over_its_input() {
    let folder = Folder::new();
    let model = folder.write("model.safetensors", jobs::identity_network());
    let input = folder.write("in.npy", npy(&[8, 8], |index| index as f32));
    let before = fs::read(&input).expect("bytes");
    fs::create_dir(folder.path("other")).expect("a folder");
    for output in [input.clone(), folder.name("other/../in.npy")] {
        let done = haloscope(&["denoise", &input, "-o", &output, "-s", "0.1", "-m", &model]);
        assert_eq!(done.status.code(), Some(2));
        assert!(stderr(&done).contains("written over the input"), "{}", stderr(&done));
    }
    assert_eq!(fs::read(&input).expect("bytes"), before);
}

#[test]
fn denoise_says_before_the_work_what_cannot_be_written() {
    let folder = Folder::new();
    let model = folder.write("model.safetensors", jobs::identity_network());
    let input = folder.write("in.npy", npy(&[8, 8], |index| index as f32));
    let run = |output: &str| {
        let output = folder.name(output);
        haloscope(&["denoise", &input, "-o", &output, "-s", "0.1", "-m", &model])
    };
    let mut cases =
        vec![("none/out.npy", "there is no folder"), ("out.txt", "does not say what to write")];
    if cfg!(not(feature = "zarr")) {
        cases.push(("out.zarr", "needs a build with the feature `zarr`"));
    }
    for (output, words) in cases {
        let done = run(output);
        assert_eq!(done.status.code(), Some(2), "{output}: {}", stderr(&done));
        assert!(stderr(&done).contains(words), "{output}: {}", stderr(&done));
    }
    assert!(run("out.npy").status.success());
}

#[test]
fn a_header_of_the_sky_comes_out_with_the_result() {
    let folder = Folder::new();
    let model = folder.write("model.safetensors", jobs::identity_network());
    let mut sky = b"SIMPLE  =                    T".to_vec();
    for card in ["BITPIX  =                  -32", "NAXIS   =                    2"]
        .into_iter()
        .chain(["NAXIS1  =                    8", "NAXIS2  =                    8"])
        .chain([
            "CTYPE1  = 'RA---TAN'",
            "CRVAL1  =              10.6847",
            "OBJECT  = 'M 31'",
            "END",
        ])
    {
        sky.resize(sky.len().next_multiple_of(80), b' ');
        sky.extend(card.as_bytes());
    }
    sky.resize(2880, b' ');
    sky.extend((0..64).flat_map(|index| (index as f32 * 20.0).to_be_bytes()));
    sky.resize(5760, 0);
    let input = folder.write("sky.fits", &sky);
    let output = folder.name("out.fits");
    json(&haloscope(&["denoise", &input, "-o", &output, "-s", "0.1", "-m", &model, "--json"]));
    let job = "[measurements]\nfiles = 'sky.fits'\n[[operators]]\nkind = 'identity'\n[solver]\nmethod = 'cg'\n\
               [stop]\niterations = 2\n[output]\nfile = ['job.fits', 'job.npy']\n";
    json(&folder.run(job, &[]));
    for name in ["out.fits", "job.fits"] {
        let bytes = fs::read(folder.path(name)).expect("bytes");
        let header = String::from_utf8_lossy(&bytes[..2880]).into_owned();
        for card in ["CTYPE1  = 'RA---TAN'", "CRVAL1  =              10.6847", "OBJECT  = 'M 31'"] {
            assert_eq!(header.matches(card).count(), 1, "{name}: {header}");
        }
        assert!((read(folder.path(name)).array[[0, 0, 7, 7]] - 1260.0).abs() < 1.0, "{name}");
    }
    // One image of one channel is two axes to other programs.
    let array = fs::read(folder.path("job.npy")).expect("bytes");
    assert!(String::from_utf8_lossy(&array[..80]).contains("'shape': (8, 8)"));
}

#[test]
fn photon_counts_are_the_same_in_a_stack_of_tiff_and_in_numpy() {
    let folder = Folder::new();
    // About 60 photons in the beads of a light-sheet microscope, 4 between them.
    let truth = Array::from_shape_fn(vec![1, 1, 6, 20, 24], |at| {
        let distance = |centre: [f32; 3]| -> f32 {
            (0..3).map(|axis| (at[2 + axis] as f32 - centre[axis]).powi(2)).sum()
        };
        let beads = [[3.0, 6.0, 7.0], [2.0, 14.0, 15.0]].map(|c| (-distance(c) / 8.0).exp());
        4.0 + 60.0 * beads.iter().sum::<f32>()
    });
    let kernel = Array::from_shape_fn(vec![1, 1, 3, 3, 3], |at| {
        [0.25, 0.5, 0.25][at[2]] * [0.25, 0.5, 0.25][at[3]] * [0.25, 0.5, 0.25][at[4]]
    });
    let blur = Blur::new(&[1, 6, 20, 24], &kernel, Padding::Reflect).expect("a blur");
    let mut counts = blur.forward(&truth).expect("blurred");
    let noise = Noise::poisson(1.0).expect("photons");
    noise.add(&mut counts, NoiseSource { seed: 3, operator: 0 }).expect("noise");
    write(&folder, "stack.tif", &counts, Sample::U16);
    write(&folder, "stack.npy", &counts, Sample::U16);
    folder.write("kernel.npy", npy(&[3, 3, 3], |index| kernel.as_slice().expect("whole")[index]));
    let job = |name: &str| {
        edited(
            &folder,
            &["deblur", "--model", "tv"],
            &[
                ("phantom", &format!("files = '{name}'")),
                ("size", ""),
                ("noise", ""),
                ("kernel", "kernel = 'file'\nfile = 'kernel.npy'"),
                ("sigma", ""),
                ("angle", ""),
                ("padding", "padding = 'reflect'\n[fidelity]\nkind = 'poisson'"),
                ("weight", "weight = 0.15"),
                ("clamp", "clamp = [0.5, 1000]"),
                ("method", "method = 'pgd'"),
                ("iterations", "iterations = 30"),
                ("file", "file = 'out.tif'"),
                ("folder", ""),
            ],
        )
    };
    let bits = folder.bits(&job("stack.npy"), &[]);
    assert_eq!(folder.bits(&job("stack.tif"), &[]), bits);
    assert_eq!(folder.bits(&job("stack.tif"), &["--ranks", "3"]), bits);
    let found = read(folder.path("out.tif")).array;
    let of = |image: &Array| psnr(image, &truth, 64.0).expect("a quality")[0];
    assert!(of(&found) > of(&counts) + 2.0, "{} {}", of(&found), of(&counts));
    let check = haloscope(&["check", &folder.name("job.toml")]);
    let words = text(&check.stdout);
    assert!(words.contains("TIFF, 16-bit unsigned, as stored: "), "{words}");
}

#[test]
fn a_microscope_of_12_bits_is_deblurred_by_a_network() {
    let folder = Folder::new();
    let truth = Array::from_shape_fn(vec![1, 1, 72, 80], |at| {
        let (y, x) = (at[2] as f32, at[3] as f32);
        let cell = |cy: f32, cx: f32, r: f32| f32::from((y - cy).hypot(x - cx) < r);
        0.1 + 0.5 * cell(24.0, 26.0, 13.0)
            + 0.3 * cell(24.0, 26.0, 5.0)
            + 0.6 * cell(50.0, 56.0, 11.0)
    });
    let kernel = Array::from_shape_fn(vec![1, 1, 11, 11], |at| {
        let square = (at[2] as f32 - 5.0).powi(2) + (at[3] as f32 - 5.0).powi(2);
        (-square / (2.0 * 1.6 * 1.6)).exp()
    });
    let kernel = &kernel / kernel.sum();
    let blur = Blur::new(&[1, 72, 80], &kernel, Padding::Circular).expect("a blur");
    let mut blurred = blur.forward(&truth).expect("blurred");
    add_noise(&mut blurred, 0.01);
    let counts = blurred.mapv(|value| (value * 4095.0).round().clamp(0.0, 4095.0));
    let job = |name: &str| {
        edited(
            &folder,
            &["deblur"],
            &[
                ("phantom", &format!("files = '{name}'\nwhite = 4095")),
                ("size", ""),
                ("noise", ""),
                ("sigma", "sigma = 1.6"),
                ("angle", ""),
                ("model", "model = 'builtin:gray'"),
                ("noise", "noise = 0.01"),
                ("levels", "levels = [0.15, 0.01]"),
                ("file", "file = 'out.npy'"),
                ("folder", ""),
            ],
        )
    };
    // The same whatever the file is: 16 bits of TIFF and of PNG with 12 in them, and integers of numpy.
    let mut bits = Vec::new();
    for name in ["cells.tif", "cells.png", "cells.npy"] {
        write(&folder, name, &counts, Sample::U16);
        bits.push(folder.bits(&job(name), &[]));
    }
    assert!(bits[1..].iter().all(|other| *other == bits[0]), "{bits:?}");
    let of = |image: &Array| psnr(image, &truth, 1.0).expect("a quality")[0];
    let found = of(&read(folder.path("out.npy")).array);
    assert!(found > of(&blurred) + 4.0, "{found} {}", of(&blurred));
    let check = haloscope(&["check", &folder.name("job.toml")]);
    assert!(
        text(&check.stdout).contains("NPY, 16-bit unsigned, 4095 is 1: "),
        "{}",
        text(&check.stdout)
    );
}

/// Counts of a detector behind a phantom, (1, 1, view, row, column), and its flat and dark frames, (row, column).
fn scan() -> (Array, Array, Array) {
    let phantom =
        SheppLogan::new(Table::Modified).with_points(1).draw(&[4, 16, 16]).expect("drawn");
    let beam = ParallelBeam3d::new(evenly_spaced(12, std::f64::consts::PI), [4, 20]);
    let operator = Tomography3d::new(&[1, 4, 16, 16], beam).expect("a scan");
    let integrals = operator.forward(&phantom).expect("projected");
    // An uneven beam and an uneven detector, which would leave rings.
    let flat =
        Array::from_shape_fn(vec![4, 20], |at| 30_000.0 + (900 * at[0] + 300 * at[1]) as f32);
    let dark = Array::from_shape_fn(vec![4, 20], |at| 100.0 + (7 * at[1] % 30) as f32);
    let counts = Array::from_shape_fn(vec![1, 1, 12, 4, 20], |at| {
        let part = (-0.05 * integrals[[0, 0, at[2], at[3], at[4]]]).exp();
        let (flat, dark) = (flat[[at[3], at[4]]], dark[[at[3], at[4]]]);
        (dark + (flat - dark) * part).round()
    });
    (counts, flat, dark)
}

const BEAM: &str = "[[operators]]\nkind = 'parallel-beam'\nangles = 12\ngroups = 3\n[solver]\nmethod = 'landweber'\n\
                    [stop]\niterations = 3\n[output]\nfile = 'out.npy'\n";

#[test]
fn a_scan_is_the_same_in_one_file_or_many_of_any_order_and_format() {
    let folder = Folder::new();
    let (counts, flat, dark) = scan();
    let spread = |frame: &Array| {
        // Two frames whose mean it is.
        let frame = frame.view().insert_axis(Axis(0)).insert_axis(Axis(0)).insert_axis(Axis(0));
        let (low, high) = (&frame - 2.0, &frame + 2.0);
        ndarray::concatenate(Axis(2), &[low.view(), high.view()]).expect("one size")
    };
    // As numpy has it, line integrals computed elsewhere.
    let integrals = Array::from_shape_fn(counts.raw_dim(), |at| {
        let (flat, dark) = (flat[[at[3], at[4]]], dark[[at[3], at[4]]]);
        -((counts[&at] - dark) / (flat - dark)).ln()
    });
    write(&folder, "integrals.npy", &integrals, Sample::F32);
    write(&folder, "counts.npy", &counts, Sample::U16);
    let sinograms =
        counts.clone().permuted_axes(vec![0, 1, 3, 2, 4]).as_standard_layout().into_owned();
    write(&folder, "sinograms.tif", &sinograms, Sample::U16);
    write(&folder, "flat.tif", &spread(&flat), Sample::U16);
    write(&folder, "dark.tif", &spread(&dark), Sample::U16);
    fs::create_dir(folder.path("views")).expect("a folder");
    fs::create_dir(folder.path("rows")).expect("a folder");
    // Not padded with zeros: view_10 is behind view_9.
    for (view, projection) in counts.axis_iter(Axis(2)).enumerate() {
        let (tif, png) = (format!("views/view_{view}.tif"), format!("p{view}.png"));
        write(&folder, &tif, &projection.to_owned(), Sample::U16);
        write(&folder, &png, &projection.to_owned(), Sample::U16);
    }
    for (row, sinogram) in sinograms.axis_iter(Axis(2)).enumerate() {
        write(&folder, &format!("rows/row{row}.npy"), &sinogram.to_owned(), Sample::U16);
    }
    let frame = |frame: &Array| frame.clone().insert_axis(Axis(0)).insert_axis(Axis(0));
    write(&folder, "flat.png", &frame(&flat), Sample::U16);
    write(&folder, "dark.npy", &frame(&dark), Sample::F32);
    fs::write(folder.path("views/notes.txt"), "taken on a rainy day").expect("written");

    let frames = "flat = 'flat.tif'\ndark = 'dark.tif'\n";
    let job = |files: &str, more: &str| format!("[measurements]\nfiles = {files}\n{more}{BEAM}");
    let bits = folder.bits(&job("'counts.npy'", frames), &[]);
    let list: Vec<String> = (0..12).map(|view| format!("'views/view_{view}.tif'")).collect();
    let list = format!("[{}]", list.join(", "));
    let home = "'~/views/view_*.tif'";
    for (files, more) in [
        ("'views'", frames),
        ("'views/*.tif'", frames),
        (home, frames),
        ("['views/view_?.tif', 'views/view_1?.tif']", frames),
        (&list, frames),
        ("'p*.png'", "flat = 'flat.png'\ndark = '~/dark.npy'\n"),
        (
            "'rows'",
            "order = 'row-view-column'\nflat = ['flat.png', 'flat.tif']\ndark = 'dark.npy'\n",
        ),
        (
            "'sinograms.tif'",
            "order = 'row-view-column'\nflat = 'flat.png'\ndark = 'dark.npy'\nlogarithm = true\n",
        ),
    ] {
        let path = folder.write("job.toml", job(files, more));
        let run = |options: &[&str]| {
            let all = [&["reconstruct", &path, "--json"], options].concat();
            let output = command(&all).env("HOME", folder.path("")).output().expect("it starts");
            json(&output)["bits"].as_str().expect("a digest").to_owned()
        };
        assert_eq!(run(&[]), bits, "{files} {more}");
        if files == "'views'" {
            assert_eq!(run(&["--ranks", "3"]), bits);
        }
    }
    // Within rounding, it is what anybody else makes of the frames.
    let found = read(folder.path("out.npy")).array;
    json(&folder.run(&job("'integrals.npy'", ""), &[]));
    let expected = read(folder.path("out.npy")).array;
    let (_, most) = haloscope::array::extremes(&expected);
    assert!(most > 0.0 && (&found - &expected).iter().all(|d| d.abs() < 1e-4 * most));

    // One row of it.
    let row = "row = 1\n";
    let bits = folder.bits(&job("'views'", &format!("{frames}{row}")), &[]);
    let summary = json(&folder.run(&job("'views'", &format!("{frames}{row}")), &[]));
    assert_eq!(summary["shape"], serde_json::json!([1, 20, 20]));
    let sinograms =
        format!("order = 'row-view-column'\nflat = 'flat.png'\ndark = 'dark.npy'\n{row}");
    assert_eq!(folder.bits(&job("'rows'", &sinograms), &[]), bits);
    // Counts without a beam that was measured: `white` is the beam.
    let check = |more: &str| {
        let path = folder.write("job.toml", job("'views'", more));
        text(&haloscope(&["check", &path]).stdout)
    };
    let words = check(frames);
    for part in [
        "12 files, dark frames subtracted, divided by flat frames, line integrals by the logarithm",
        "TIFF, 16-bit unsigned, as stored; as measurements ",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let words = check("white = 30000\nlogarithm = true\n");
    assert!(words.contains("TIFF, 16-bit unsigned, 30000 is 1; as measurements "), "{words}");
}

#[test]
fn what_makes_no_scan_is_refused_with_the_reason() {
    let folder = Folder::new();
    let (counts, flat, _) = scan();
    fs::create_dir(folder.path("views")).expect("a folder");
    for (view, projection) in counts.axis_iter(Axis(2)).enumerate() {
        write(&folder, &format!("views/view_{view}.tif"), &projection.to_owned(), Sample::U16);
    }
    let frame = |frame: &Array| frame.clone().insert_axis(Axis(0)).insert_axis(Axis(0));
    write(&folder, "flat.tif", &frame(&flat), Sample::U16);
    write(&folder, "other.tif", &frame(&flat.t().to_owned()), Sample::U16);
    folder.write("mixed.npy", npy(&[3, 3], |_| 1.0));
    folder.write("sinogram.npy", npy(&[12, 20], |_| 1.0));
    let identity = BEAM.replace("parallel-beam'\nangles = 12\ngroups = 3", "identity'");
    let thirteen = BEAM.replace("angles = 12", "angles = 13");
    for (measurements, operators, words) in [
        ("files = 'views/none*.tif'", BEAM, &["no file matches it", "none*.tif"][..]),
        ("files = '.'", BEAM, &["several formats (NPY, TIFF)"]),
        (
            "files = ['views', 'flat.tif']\nrow = 9",
            BEAM,
            &["`row` is 9, and the detector has 4 rows"],
        ),
        ("files = ['views', 'other.tif']", &thirteen, &["other.tif", "[20, 4]", "[4, 20]"]),
        ("files = 'views'\nflat = 'other.tif'", BEAM, &["measurements.flat", "[20, 4]", "[4, 20]"]),
        ("files = 'views'\nflat = 'flat.tif'\nwhite = 3", BEAM, &["flat frames say what is 1"]),
        ("files = 'views'\nflat = 'absent.tif'", BEAM, &["measurements.flat", "absent.tif"]),
        ("files = 'views'\norder = 'column-first'", BEAM, &["view-row-column and row-view-column"]),
        ("files = 'sinogram.npy'\nrow = 0", BEAM, &["`row` picks one of (view, row, column)"]),
        ("files = 'views'\norder = 'row-view-column'", &identity, &["for scans alone"]),
        ("files = ['views', 'flat.tif']", BEAM, &["12 angles for measurements of 13 views"]),
    ] {
        let path = folder.write("job.toml", format!("[measurements]\n{measurements}\n{operators}"));
        let done = haloscope(&["check", &path]);
        assert_eq!(done.status.code(), Some(2), "{measurements}: {}", stderr(&done));
        for word in words {
            assert!(stderr(&done).contains(word), "{word}: {}", stderr(&done));
        }
    }
}

#[test]
fn counts_that_a_clamp_would_cut_off_are_refused_with_the_remedy() {
    let folder = Folder::new();
    let photo = Array::from_shape_fn(vec![1, 3, 8, 9], |at| (20 * at[2] + 9 * at[3]) as f32);
    write(&folder, "photo.tif", &photo, Sample::U8);
    let job = |white: &str| {
        format!(
            "[measurements]\nfiles = 'photo.tif'\n{white}[[operators]]\nkind = 'identity'\n[prior]\nkind = 'none'\n\
             clamp = [0, 1]\n[solver]\nmethod = 'pgd'\n[stop]\niterations = 2\n[output]\nfile = 'out.tif'\n"
        )
    };
    let done = folder.run(&job(""), &["--ranks", "2"]);
    assert_eq!(done.status.code(), Some(2));
    let message = stderr(&done);
    assert!(
        message.contains("values from 0 to 212, most of them far from the [0, 1]"),
        "{message}"
    );
    assert!(message.contains("`white`"), "{message}");
    json(&folder.run(&job("white = 255\n"), &[]));
    let found = read(folder.path("out.tif")).array * 255.0;
    assert!((&found - &photo).iter().all(|difference| difference.abs() < 0.01));
}

#[test]
fn flat_frames_are_for_cameras_as_well() {
    let folder = Folder::new();
    let flat = Array::from_shape_fn(vec![1, 1, 8, 9], |at| 1000.0 + (at[2] * 9 + at[3]) as f32);
    write(&folder, "flat.tif", &flat, Sample::U16);
    write(&folder, "image.tif", &flat.mapv(|value| (value * 0.5).round()), Sample::U16);
    let job = "[measurements]\nfiles = 'image.tif'\nflat = 'flat.tif'\n[[operators]]\nkind = 'identity'\n[solver]\n\
               method = 'cg'\n[stop]\niterations = 2\n[output]\nfile = 'out.npy'\n";
    json(&folder.run(job, &[]));
    let found = read(folder.path("out.npy")).array;
    assert!(found.iter().all(|value| (value - 0.5).abs() < 1e-3), "{found}");
}

/// A picture of 0 to 1 and an array of counts are not subtracted from each other.
#[test]
fn dark_frames_without_flat_ones_have_the_units_of_the_measurements() {
    let folder = Folder::new();
    let dark = Array::from_shape_fn(vec![1, 1, 8, 9], |at| 10.0 + at[3] as f32);
    let counts = &dark + 100.0;
    write(&folder, "dark.npy", &dark, Sample::F32);
    write(&folder, "dark.png", &dark, Sample::U8);
    for (name, sample) in [("image.png", Sample::U8), ("image.tif", Sample::U16)] {
        write(&folder, name, &counts, sample);
        for (dark, white, expected) in
            [("dark.npy", "", 100.0), ("dark.png", "", 100.0), ("dark.npy", "white = 200\n", 0.5)]
        {
            let job = format!(
                "[measurements]\nfiles = '{name}'\ndark = '{dark}'\n{white}[[operators]]\nkind = 'identity'\n\
                 [solver]\nmethod = 'cg'\n[stop]\niterations = 2\n[output]\nfile = 'out.npy'\n"
            );
            json(&folder.run(&job, &[]));
            let found = read(folder.path("out.npy")).array;
            let is_near = |value: &f32| (value / expected - 1.0).abs() < 1e-3;
            assert!(found.iter().all(is_near), "{name} {dark} {white}: {found}");
        }
    }
}

#[test]
fn a_picture_of_counts_says_how_much_of_it_is_white() {
    let folder = Folder::new();
    folder.write("in.npy", npy(&[8, 50], |index| index as f32));
    let job = |contrast: &str| {
        format!(
            "[measurements]\nfiles = 'in.npy'\n[[operators]]\nkind = 'identity'\n[solver]\nmethod = 'cg'\n[stop]\n\
             iterations = 2\n[output]\nfile = 'out.png'\n{contrast}"
        )
    };
    let message = stderr(&folder.run(&job(""), &[]));
    assert!(message.contains("0 % are below and 100 % above"), "{message}");
    let message = stderr(&folder.run(&job("contrast = [100, 300]\n"), &[]));
    assert!(message.contains("25 % are below and 24 % above"), "{message}");
    let message = stderr(&folder.run(&job("contrast = [0, 399]\n"), &[]));
    assert!(!message.contains("above"), "{message}");
}
