//! Files that other programs wrote come out as those programs say, what we write comes back, and what
//! is wrong with a file is said with its name. `fixtures/make_files.py` makes the files.

use std::path::{Path, PathBuf};

use haloscope::io::{self, Axes, Format, Limits, ReadOptions, Sample, WriteOptions};
use haloscope::{Array, Error};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files")
}

fn read(path: impl AsRef<Path>) -> haloscope::Result<io::Image> {
    io::read(path, &ReadOptions::default())
}

fn numbers(value: &serde_json::Value) -> Vec<f64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|value| value.as_f64().expect("a number")).collect()
}

fn is_built(feature: &str) -> bool {
    match feature {
        "hdf5" => cfg!(feature = "hdf5"),
        "zarr" => cfg!(feature = "zarr"),
        other => panic!("{other}"),
    }
}

#[test]
fn files_of_other_programs_come_out_as_those_say() {
    let text = std::fs::read_to_string(fixtures().join("expected.json")).expect("committed");
    let all: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).expect("JSON");
    assert!(all.len() > 50);
    for (name, expected) in &all {
        let options = ReadOptions {
            entry: expected["entry"].as_str().map(Into::into),
            ..ReadOptions::default()
        };
        let image = io::read(fixtures().join(name), &options);
        if let Some(feature) = expected["feature"].as_str()
            && !is_built(feature)
        {
            let error = image.expect_err("not in this build").to_string();
            assert!(error.contains(name) && error.contains(feature), "{error}");
            continue;
        }
        let image = image.expect(name);
        let shape: Vec<u64> = image.array.shape().iter().map(|&side| side as u64).collect();
        assert_eq!(serde_json::json!(shape), expected["shape"], "{name}");
        assert!(image.array.is_standard_layout(), "{name}");
        let step = expected["tolerance"].as_f64().unwrap_or(1e-6);
        let close = |a: f64, b: f64, size: f64| (a - b).abs() <= step * size;
        for (a, b) in image.array.iter().zip(numbers(&expected["first"])) {
            assert!(close(f64::from(*a), b, 1.0 + b.abs()), "{name}: {a} {b}");
        }
        let count = image.array.len() as f64;
        let sum: f64 = image.array.iter().map(|&value| f64::from(value)).sum();
        let weigh = |(at, &value): (usize, &f32)| (at + 1) as f64 * f64::from(value);
        let weighted: f64 = image.array.iter().enumerate().map(weigh).sum();
        let (expected_sum, expected_weighted) = (&expected["sum"], &expected["weighted"]);
        let size = 1.0 + sum.abs() / count;
        let expected_sum = expected_sum.as_f64().expect("a number");
        assert!(close(sum, expected_sum, size * count), "{name}: {sum} {expected_sum}");
        let expected_weighted = expected_weighted.as_f64().expect("a number");
        let bound = size * count * count;
        assert!(close(weighted, expected_weighted, bound), "{name}: {weighted}");
        if let Some(spacing) = expected.get("spacing") {
            assert_eq!(image.spacing.as_deref(), Some(&numbers(spacing)[..]), "{name}");
        }
        if let Some(rows) = expected.get("affine") {
            let affine = image.affine.expect(name);
            for (row, expected) in affine.iter().zip(rows.as_array().expect("rows")) {
                for (a, b) in row.iter().zip(numbers(expected)) {
                    assert!((a - b).abs() < 1e-5, "{name}: {affine:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_read_is_refused_with_the_reason() {
    for (name, words) in [
        ("refused-transparent.png", "transparent"),
        ("refused-text.npy", "<U1"),
        ("refused-two.nii", "NIfTI-2"),
        ("refused-tiles.fits", "tiles"),
    ] {
        let error = read(fixtures().join(name)).expect_err(name);
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(name) && message.contains(words), "{message}");
    }
    let error = read(fixtures().join("two.npz")).expect_err("two arrays").to_string();
    assert!(error.contains("entry") && error.contains(r#""a", "b""#), "{error}");
}

#[test]
fn blank_values_of_fits_are_not_numbers() {
    let image = read(fixtures().join("blank.fits")).expect("readable");
    assert!(image.array[[0, 0, 0, 0]].is_nan());
    assert_eq!(image.array[[0, 0, 0, 1]], 0.5 * 48.0 + 3.0);
    let raw = ReadOptions { raw: true, ..ReadOptions::default() };
    let image = io::read(fixtures().join("blank.fits"), &raw).expect("readable");
    assert_eq!(image.array[[0, 0, 0, 0]], 11.0);
}

#[test]
fn content_counts_and_not_the_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("really-a-png.nii.gz");
    std::fs::copy(fixtures().join("gray8.png"), &path).expect("copied");
    assert_eq!(read(&path).expect("readable").format, Format::Png);
    std::fs::write(&path, "plain text").expect("written");
    let error = read(&path).expect_err("text").to_string();
    assert!(error.contains("really-a-png.nii.gz: it is not a PNG"), "{error}");
    let error = read(folder.path()).expect_err("a folder").to_string();
    assert!(error.contains("zarr.json"), "{error}");
    let error = io::write(
        folder.path().join("x.doc"),
        &Array::zeros(vec![1, 1, 2, 2]),
        &WriteOptions::default(),
    );
    assert!(error.expect_err("unknown").to_string().contains(".nii.gz"));
}

#[test]
fn raw_values_are_those_of_the_file() {
    let raw = ReadOptions { raw: true, ..ReadOptions::default() };
    for (name, first) in
        [("gray8.png", 11.0), ("gray16.png", 11.0 * 257.0), ("stack-uint16.tif", 11.0)]
    {
        let image = io::read(fixtures().join(name), &raw).expect(name);
        assert_eq!(image.array.first(), Some(&first), "{name}");
    }
}

#[test]
fn axes_are_what_the_caller_says() {
    let volume = fixtures().join("volume.npy");
    for (axes, shape) in [
        (Axes::Automatic, &[1, 1, 3, 4, 5][..]),
        (Axes::Spatial, &[1, 1, 3, 4, 5]),
        (Axes::ChannelFirst, &[1, 3, 4, 5]),
        (Axes::ChannelLast, &[1, 5, 3, 4]),
        (Axes::AsStored, &[3, 4, 5]),
    ] {
        let image =
            io::read(&volume, &ReadOptions { axes, ..ReadOptions::default() }).expect("read");
        assert_eq!(image.array.shape(), shape);
        assert!(image.array.is_standard_layout());
    }
    let last = ReadOptions { axes: Axes::ChannelLast, ..ReadOptions::default() };
    let image = io::read(&volume, &last).expect("read");
    // Value 1 of the file is the second channel of the first pixel.
    assert_eq!(image.array[[0, 1, 0, 0]], 48.0);
}

/// Values that all types below hold: multiples of 1/255 in pictures, integers in the others.
fn sample_array(shape: &[usize], white: f32) -> Array {
    let mut at = 0_u32;
    Array::from_shape_simple_fn(shape, || {
        at += 1;
        (at * 37 % 120) as f32 / white
    })
}

#[test]
fn what_is_written_comes_back() {
    use Sample::{F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let folder = tempfile::tempdir().expect("a folder");
    let flat: &[&[usize]] = &[&[1, 1, 6, 7], &[1, 3, 6, 7], &[1, 1, 1, 1]];
    let solid: &[&[usize]] = &[&[1, 1, 2, 6, 7], &[1, 3, 4, 6, 7]];
    let batch: &[&[usize]] = &[&[2, 3, 6, 7], &[2, 1, 3, 4, 5]];
    let integers = &[U8, I8, U16, I16, U32, I32, U64, I64, F32, F64];
    let all = &[U8, I8, U16, I16, U32, I32, U64, I64, F16, F32, F64];
    for (ending, samples, shapes) in [
        ("png", &[U8, U16][..], vec![flat]),
        ("tif", &[U8, U16, F32], vec![flat, solid]),
        ("npy", all, vec![flat, solid, batch]),
        ("npz", all, vec![flat, solid, batch]),
        ("nii", integers, vec![flat, solid]),
        ("nii.gz", integers, vec![flat, solid]),
        ("fits", &[F32], vec![flat, solid, batch]),
        #[cfg(feature = "hdf5")]
        ("h5", &[F32], vec![flat, solid, batch]),
        #[cfg(feature = "zarr")]
        ("zarr", &[F32], vec![flat, solid, batch]),
    ] {
        for (&sample, shape) in samples.iter().flat_map(|sample| {
            shapes.iter().flat_map(|shapes| shapes.iter()).map(move |shape| (sample, shape))
        }) {
            let array = sample_array(shape, if ending == "png" { 255.0 } else { 1.0 });
            let path = folder.path().join(format!("file.{ending}"));
            let options = WriteOptions { sample: Some(sample), ..WriteOptions::default() };
            io::write(&path, &array, &options).expect(ending);
            let image = read(&path).expect(ending);
            assert_eq!(image.sample, sample, "{ending} {shape:?}");
            assert_eq!(image.array.shape(), *shape, "{ending} {sample:?}");
            let largest = (&image.array - &array).fold(0.0_f32, |most, d| most.max(d.abs()));
            assert!(largest < 1e-6, "{ending} {sample:?} {shape:?}: {largest}");
            if sample != samples[0] {
                continue;
            }
            // A view in another order of memory is written as what it shows.
            let mut turned = array.clone();
            turned.swap_axes(shape.len() - 1, shape.len() - 2);
            let turned_sides = turned.as_standard_layout().into_owned();
            io::write(&path, &turned, &options).expect(ending);
            let image = read(&path).expect(ending);
            let largest = (&image.array - &turned_sides).fold(0.0_f32, |most, d| most.max(d.abs()));
            assert!(largest < 1e-6, "{ending} {sample:?} {shape:?} turned: {largest}");
        }
    }
}

#[test]
fn jpeg_comes_back_nearly() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file.jpeg");
    for channels in [1, 3] {
        let array =
            Array::from_shape_fn(vec![1, channels, 40, 50], |at| (at[2] + at[3]) as f32 / 90.0);
        io::write(&path, &array, &WriteOptions::default()).expect("written");
        let image = read(&path).expect("readable");
        let largest = (&image.array - &array).fold(0.0_f32, |most, d| most.max(d.abs()));
        assert!(largest < 0.03, "{largest}");
    }
}

#[test]
fn voxel_sizes_and_places_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let original = read(fixtures().join("series.nii.gz")).expect("readable");
    let path = folder.path().join("copy.nii");
    io::write(&path, &original.array, &original.write_options(&path)).expect("written");
    let copy = read(&path).expect("readable");
    assert_eq!(copy.spacing, original.spacing);
    assert_eq!(copy.affine, original.affine);
    assert_eq!(copy.array, original.array);
    let path = folder.path().join("copy.fits");
    let volume = read(fixtures().join("float32.nii")).expect("readable");
    io::write(&path, &volume.array, &volume.write_options(&path)).expect("written");
    assert_eq!(read(&path).expect("readable").spacing, volume.spacing);
}

#[test]
fn limits_are_kept_before_anything_is_read() {
    let with = |limits| ReadOptions { limits, ..ReadOptions::default() };
    for name in [
        "gray8.png",
        "stack-uint8.tif",
        "little-f4.npy",
        "one.npz",
        "int16.nii",
        "series.nii.gz",
        "radio.fits",
        "gray.jpg",
    ] {
        let path = fixtures().join(name);
        for (limits, words) in [
            (Limits { file_bytes: 10, ..Limits::default() }, "bytes"),
            (Limits { elements: 10, ..Limits::default() }, "10 elements"),
            (Limits { side: 2, ..Limits::default() }, "limit for sides is 2"),
        ] {
            let error = io::read(&path, &with(limits)).expect_err(name);
            assert!(matches!(error, Error::Limit { .. }), "{name}: {error:?}");
            let message = error.to_string();
            assert!(message.contains(name) && message.contains(words), "{message}");
        }
    }
}

#[test]
fn shapes_that_a_format_cannot_hold_are_refused_before_writing() {
    let folder = tempfile::tempdir().expect("a folder");
    for (ending, shape) in [
        ("png", vec![1, 2, 4, 4]),
        ("png", vec![2, 1, 4, 4]),
        ("jpg", vec![1, 1, 4, 4, 4]),
        ("tif", vec![2, 1, 4, 4]),
        ("nii", vec![2, 1, 4, 4]),
        ("nii", vec![1, 1, 1, 40_000]),
        ("fits", vec![4]),
        ("npy", vec![1, 1, 0, 4]),
    ] {
        let path = folder.path().join(format!("file.{ending}"));
        let error = io::write(&path, &Array::zeros(shape), &WriteOptions::default());
        let error = error.expect_err(ending);
        assert!(matches!(error, Error::Shape { .. }), "{error:?}");
        assert!(!path.exists());
    }
    let deep = WriteOptions { sample: Some(Sample::F32), ..WriteOptions::default() };
    let error = io::write(folder.path().join("a.png"), &Array::zeros(vec![1, 1, 2, 2]), &deep);
    assert!(error.expect_err("floats").to_string().contains("8-bit unsigned, 16-bit unsigned"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 0);
}

/// What nibabel, astropy and numpy say about files of instruments and simulations.
#[test]
fn files_of_instruments_come_out_as_other_programs_say() {
    let Some(data) = std::env::var_os("HALOSCOPE_DATA").map(PathBuf::from) else {
        println!("skipped: files of instruments need HALOSCOPE_DATA");
        return;
    };
    let sum = |image: &io::Image| image.array.iter().map(|&value| f64::from(value)).sum::<f64>();
    let brain = read(data.join("volumes/mni152_t1.nii.gz")).expect("readable");
    assert_eq!(brain.array.shape(), [1, 1, 189, 233, 197]);
    assert_eq!(brain.array[[0, 0, 80, 120, 100]], 175.0);
    assert_eq!(sum(&brain), 333_468_829.0);
    assert_eq!(brain.affine.expect("placed")[1], [0.0, 1.0, 0.0, -134.0]);
    let brain = read(data.join("volumes/ch2better.nii.gz")).expect("readable");
    assert_eq!(sum(&brain), 1_222_013_263.0);
    assert_eq!(brain.spacing, Some(vec![0.5; 3]));
    let galaxy = read(data.join("radio/M31_256.fits")).expect("readable");
    assert_eq!(galaxy.array.shape(), [1, 1, 256, 256]);
    assert!((sum(&galaxy) - 1_495.430_548_792_213).abs() < 1e-6);
    let options =
        ReadOptions { axes: Axes::AsStored, entry: Some("vv".into()), ..ReadOptions::default() };
    let path = data.join("radio/meerkat_simulation_1h_uv_only.npz");
    let antennas = io::read(path, &options).expect("readable");
    assert_eq!(antennas.array.shape(), [30_240]);
    assert!((sum(&antennas) + 11_870.58).abs() < 0.1);
}

/// Needs the right to mount a small file system; says so when it does not have it.
#[cfg(target_os = "linux")]
#[test]
fn full_disk_leaves_the_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(folder.path())
        .output();
    if !mount.is_ok_and(|done| done.status.success()) {
        println!("skipped: a file system of 256 kB cannot be mounted here");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        for ending in ["npy", "npz", "nii", "nii.gz", "tif", "fits", "png"] {
            let path = folder.path().join(format!("file.{ending}"));
            let small = sample_array(&[1, 1, 8, 8], 255.0);
            io::write(&path, &small, &WriteOptions::default()).expect(ending);
            let mut random = fastrand::Rng::with_seed(1);
            let large = Array::from_shape_simple_fn(vec![1, 1, 700, 700], || random.f32());
            let error = io::write(&path, &large, &WriteOptions::default()).expect_err(ending);
            assert!(matches!(error, Error::File { .. }), "{error:?}");
            assert!(error.to_string().contains(&format!("file.{ending}: cannot write it")));
            let back = read(&path).expect(ending);
            assert!((&back.array - &small).iter().all(|d| d.abs() < 1e-6));
            let files = std::fs::read_dir(folder.path()).expect("a list").count();
            assert_eq!(files, 1, "{ending}");
            std::fs::remove_file(&path).expect("removed");
        }
    });
    let unmounted = std::process::Command::new("umount").arg(folder.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    outcome.expect("every format leaves the old file");
}
