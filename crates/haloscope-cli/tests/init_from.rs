//! `haloscope init --from`: jobs that are written for data as strangers have them, and run as they are.

mod jobs;

use haloscope::io::{self, Sample, WriteOptions};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::{SheppLogan, Table, landscape};
use haloscope::physics::Physics;
use haloscope::physics::tomography::{
    ParallelBeam, ParallelBeam3d, Tomography2d, Tomography3d, evenly_spaced,
};
use haloscope::{Array, Measurements};
use jobs::{Folder, haloscope, json, text};
use ndarray::Axis;
use serde_json::Value;

/// The job that is written for some data.
fn job_from(folder: &Folder, problem: &str, data: &[&str], options: &[&str]) -> String {
    let job = folder.name("job.toml");
    let data: Vec<String> = data.iter().map(|name| folder.name(name)).collect();
    let data: Vec<&str> = data.iter().map(String::as_str).collect();
    let arguments = [&["init", problem, &job], options, &["--from"], &data[..]].concat();
    let output = haloscope(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::read_to_string(&job).expect("the job")
}

/// The number that a key has in a job.
fn number(job: &str, key: &str) -> f64 {
    let line = job.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
    let line = line.unwrap_or_else(|| panic!("no {key} in\n{job}"));
    line.split('#').next().expect("a value").trim().parse().expect("a number")
}

/// What comes out of a job, compared with the truth.
fn run(folder: &Folder, job: &str, truth: &Array) -> Value {
    io::write(folder.path("truth.npy"), truth, &WriteOptions::default()).expect("the truth");
    json(&folder.run(&format!("{job}\n[truth]\nfile = 'truth.npy'\n"), &[]))
}

fn decibels(summary: &Value, when: &str) -> f64 {
    summary[when]["psnr_db"].as_f64().unwrap_or_else(|| panic!("no number in {summary}"))
}

/// Attenuations of a few thousandths per pixel in the middle of a slice of this side.
fn slice(side: usize) -> Array {
    let inner = side * 5 / 8;
    let phantom = SheppLogan::new(Table::Modified).draw(&[inner, inner]).expect("a phantom");
    let mut slice = Array::zeros(vec![1, 1, side, side]);
    let from = (side - inner) / 2;
    for (at, value) in phantom.indexed_iter() {
        slice[[0, 0, from + at[2], from + at[3]]] = 0.006 * value;
    }
    slice
}

/// Its sinogram at some degrees, whose axis is at a bin.
fn sinogram(slice: &Array, degrees: &[f64], centre: f64) -> Array {
    let bins = slice.shape()[3];
    let mut scan =
        ParallelBeam::new(degrees.iter().map(|angle| angle.to_radians()).collect(), bins);
    scan.offset = (bins as f64 - 1.0) / 2.0 - centre;
    let operator = Tomography2d::new(&slice.shape()[1..], scan).expect("an operator");
    operator.forward(slice).expect("a sinogram")
}

fn with_noise(mut array: Array, noise: Noise) -> Array {
    noise.add(&mut array, NoiseSource { seed: 11, operator: 0 }).expect("noise");
    array
}

fn gaussian(sigma: f64) -> Noise {
    Noise::gaussian(sigma).expect("noise")
}

#[cfg(feature = "hdf5")]
#[test]
fn a_scan_with_flat_and_dark_frames_runs_as_its_job_is_written() {
    use hdf5_pure::FileBuilder;

    const VIEWS: usize = 91;
    const BINS: usize = 96;
    let truth = slice(BINS);
    let degrees: Vec<f64> = (0..VIEWS).map(|view| 2.0 * view as f64).collect();
    let integrals = sinogram(&truth, &degrees, 42.6);
    // Three rows, of which the middle one has the object; 20000 photons, and a dark current of 100.
    let mut counts = Array::zeros(vec![VIEWS, 3, BINS]);
    for (at, value) in integrals.indexed_iter() {
        for (row, part) in [0.0, 1.0, 0.3].into_iter().enumerate() {
            counts[[at[2], row, at[3]]] = 20_000.0 * (-part * value).exp();
        }
    }
    let counts = with_noise(counts, Noise::poisson(1.0).expect("noise")) + 100.0;
    let frames = |value: f32| vec![value; 2 * 3 * BINS];
    let mut builder = FileBuilder::new();
    let mut group = builder.create_group("exchange");
    let shape = [VIEWS as u64, 3, BINS as u64];
    group
        .create_dataset("data")
        .with_f32_data(counts.as_slice().expect("counts"))
        .with_shape(&shape);
    let shape = [2, 3, BINS as u64];
    group.create_dataset("data_white").with_f32_data(&frames(20_100.0)).with_shape(&shape);
    group.create_dataset("data_dark").with_f32_data(&frames(100.0)).with_shape(&shape);
    group.create_dataset("theta").with_f64_data(&degrees).with_shape(&[VIEWS as u64]);
    builder.add_group(group.finish());
    let folder = Folder::new();
    folder.write("scan.h5", builder.finish().expect("a file"));

    for options in [&[][..], &["--model", "tv", "--force"]] {
        let job = job_from(&folder, "tomography-2d", &["scan.h5"], options);
        assert!((number(&job, "centre") - 42.6).abs() < 0.3, "{job}");
        assert_eq!(number(&job, "row"), 1.0);
        let summary = run(&folder, &job, &truth);
        let (before, after) = (decibels(&summary, "before"), decibels(&summary, "after"));
        assert!(
            after > 23.5 && after > before + 2.0,
            "{options:?}: {before:.2} to {after:.2} dB\n{job}"
        );
    }
    let job = job_from(&folder, "tomography-3d", &["scan.h5"], &["--force"]);
    assert!(!job.contains("\nrow = ") && (number(&job, "centre") - 42.6).abs() < 0.3, "{job}");
    assert!(haloscope(&["check", &folder.name("job.toml")]).status.success());
}

#[test]
fn sinograms_are_understood_whichever_way_they_lie() {
    let truth = slice(80);
    let degrees: Vec<f64> = (0..60).map(|view| 3.0 * f64::from(view)).collect();
    let clean = sinogram(&truth, &degrees, 43.0);
    let counts = with_noise(
        clean.mapv(|value| 50_000.0 * (-value).exp()),
        Noise::poisson(1.0).expect("noise"),
    );
    let noisy = with_noise(clean, gaussian(0.003));
    let turned = |array: &Array| {
        array.clone().permuted_axes(vec![0, 1, 3, 2]).as_standard_layout().into_owned()
    };
    for (what, data) in [
        ("integrals", noisy.clone()),
        ("turned", turned(&noisy)),
        ("counts", counts.clone()),
        ("turned counts", turned(&counts)),
    ] {
        let folder = Folder::new();
        let plane = data.index_axis(Axis(0), 0).index_axis_move(Axis(0), 0).to_owned();
        io::write(folder.path("data.npy"), &plane, &WriteOptions::default()).expect("data");
        let job = job_from(&folder, "tomography-2d", &["data.npy"], &["--model", "tv"]);
        assert!((number(&job, "centre") - 43.0).abs() < 0.5, "{what}: {job}");
        assert_eq!((number(&job, "angles"), number(&job, "arc")), (60.0, 180.0), "{what}");
        let summary = run(&folder, &job, &truth);
        let (before, after) = (decibels(&summary, "before"), decibels(&summary, "after"));
        assert!(
            after > 23.5 && after > before + 2.0,
            "{what}: {before:.2} to {after:.2} dB\n{job}"
        );
    }
}

/// Files of one view each are a scan, however they are named to the command.
#[test]
fn views_in_files_of_their_own_are_a_scan() {
    let truth = slice(80);
    let degrees: Vec<f64> = (0..60).map(|view| 3.0 * f64::from(view)).collect();
    let data = with_noise(sinogram(&truth, &degrees, 43.0), gaussian(0.003));
    let folder = Folder::new();
    std::fs::create_dir(folder.path("views")).expect("a folder");
    for (view, bins) in data.axis_iter(Axis(2)).enumerate() {
        // Of three rows, the middle one has the object; names are not padded with zeros.
        let bins = bins.insert_axis(Axis(2));
        let rows = [bins.mapv(|v| 0.1 * v), bins.to_owned(), bins.mapv(|v| 0.2 * v)];
        let rows: Vec<_> = rows.iter().map(|row| row.view()).collect();
        let frame = ndarray::concatenate(Axis(2), &rows).expect("one size");
        let path = folder.path(&format!("views/view_{view}.tif"));
        io::write(path, &frame, &WriteOptions::default()).expect("a view");
    }
    let mut all: Vec<String> = (0..60).map(|view| format!("views/view_{view}.tif")).collect();
    // As a shell lists them: view_10 before view_2.
    all.sort();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut bits = Vec::new();
    for (given, written) in [
        (&["views"][..], "/views'"),
        (&["views/*.tif"], "/views/*.tif'"),
        (&all, "/views/view_*.tif'"),
    ] {
        let job = job_from(&folder, "tomography-2d", given, &["--model", "tv", "--force"]);
        let files = job.lines().find(|line| line.starts_with("files = ")).expect("files");
        assert!(files.ends_with(written), "{files}");
        assert!((number(&job, "centre") - 43.0).abs() < 0.5, "{job}");
        let numbers = ["row", "angles", "arc"].map(|key| number(&job, key));
        assert_eq!(numbers, [1.0, 60.0, 180.0], "{job}");
        let summary = run(&folder, &job, &truth);
        let (before, after) = (decibels(&summary, "before"), decibels(&summary, "after"));
        assert!(after > 23.5 && after > before + 2.0, "{before:.2} to {after:.2} dB\n{job}");
        bits.push(summary["bits"].clone());
    }
    assert!(bits.iter().all(|one| *one == bits[0]), "{bits:?}");
}

/// Projections (view, row, column) of a volume at this side, over a part of a turn.
fn projections(truth: &Array, views: usize, turn: f64) -> Array {
    let (rows, side) = (truth.shape()[2], truth.shape()[4]);
    let mut scan =
        ParallelBeam3d::new(evenly_spaced(views, turn * std::f64::consts::TAU), [rows, side]);
    scan.offset[1] = 2.0;
    let operator = Tomography3d::new(&truth.shape()[1..], scan).expect("an operator");
    with_noise(operator.forward(truth).expect("projections"), gaussian(0.002))
}

/// A volume of attenuations: a slice, which fades up and down, and to one side.
fn volume(side: usize) -> Array {
    let slice = slice(side);
    Array::from_shape_fn(vec![1, 1, 5, side, side], |at| {
        let part = [0.4, 0.7, 1.0, 0.8, 0.5][at[2]] * (0.5 + at[4] as f32 / side as f32);
        part * slice[[0, 0, at[3], at[4]]]
    })
}

/// A drafted job is valid, and runs for some iterations; how near it comes to the truth.
fn check_and_run(folder: &Folder, job: &str, truth: &Array) -> f64 {
    let output = haloscope(&["check", &folder.name("job.toml")]);
    assert!(output.status.success(), "{}\n{job}", text(&output.stderr));
    assert!(job.contains("\niterations = 150\n"), "{job}");
    let short = job.replace("\niterations = 150\n", "\niterations = 20\n");
    decibels(&run(folder, &short, truth), "after")
}

#[test]
fn projections_all_around_run_as_their_job_is_written() {
    let truth = volume(48);
    let data = projections(&truth, 90, 1.0);
    let folder = Folder::new();
    io::write(folder.path("scan.npy"), &data, &WriteOptions::default()).expect("a scan");
    let job = job_from(&folder, "tomography-3d", &["scan.npy"], &["--model", "tv"]);
    assert!(job.contains("kind = \"parallel-beam\"\n") && number(&job, "arc") == 360.0, "{job}");
    assert!((number(&job, "centre") - 21.5).abs() < 0.5, "{job}");
    let psnr = check_and_run(&folder, &job, &truth);
    assert!(psnr > 24.0, "{psnr:.2} dB\n{job}");
    // For a cone, the lines of the comment are in its place.
    let mut cone = job.replace("kind = \"parallel-beam\"\n", "").replace("\"fbp\"", "\"fdk\"");
    let mut lines = String::new();
    for key in ["kind = ", "source-distance = ", "detector-distance = ", "spacing = "] {
        let line = job.lines().find_map(|line| line.strip_prefix("#   ")?.strip_prefix(key));
        lines.extend([key, line.unwrap_or_else(|| panic!("no {key} in\n{job}")), "\n"]);
    }
    cone = cone.replace("[[operators]]\n", &format!("[[operators]]\n{lines}"));
    folder.write("job.toml", &cone);
    let output = haloscope(&["check", &folder.name("job.toml")]);
    assert!(output.status.success(), "{}\n{cone}", text(&output.stderr));
    assert!(text(&output.stdout).contains("magnification 2"), "{}", text(&output.stdout));
}

#[test]
fn projections_that_are_intensities_become_line_integrals() {
    let truth = volume(48);
    let data = projections(&truth, 60, 0.5);
    let folder = Folder::new();
    let counts = |beam: f32| data.mapv(|value| (beam * (-value).exp()).round());
    let options = WriteOptions { sample: Some(Sample::U16), raw: true, ..WriteOptions::default() };
    io::write(folder.path("stack.tif"), &counts(40_000.0), &options).expect("a stack");
    // Pictures are read from 0 to 1, and white is in the numbers that they store.
    std::fs::create_dir(folder.path("pictures")).expect("a folder");
    for (view, frame) in counts(40_000.0).axis_iter(Axis(2)).enumerate() {
        let path = folder.path(&format!("pictures/{view:03}.png"));
        io::write(path, &frame.to_owned(), &options).expect("a picture");
    }
    for given in ["stack.tif", "pictures"] {
        let job = job_from(&folder, "tomography-3d", &[given], &["--model", "tv", "--force"]);
        assert!((number(&job, "white") / 40_000.0 - 1.0).abs() < 0.01, "{job}");
        assert!(job.contains("\nlogarithm = true") && !job.contains("\nrow = "), "{job}");
        assert!((number(&job, "centre") - 21.5).abs() < 0.5, "{job}");
        let psnr = check_and_run(&folder, &job, &truth);
        assert!(psnr > 24.0, "{given}: {psnr:.2} dB\n{job}");
    }
}

#[cfg(feature = "hdf5")]
#[test]
fn arrays_of_plain_hdf5_files_are_found_or_asked_for() {
    use hdf5_pure::FileBuilder;

    let truth = slice(80);
    let degrees: Vec<f64> = (0..60).map(|view| 3.0 * f64::from(view)).collect();
    let data = with_noise(sinogram(&truth, &degrees, 43.0), gaussian(0.003));
    let folder = Folder::new();
    let write = |name: &str, arrays: &[&str]| {
        let mut builder = FileBuilder::new();
        let mut group = builder.create_group("entry");
        for array in arrays {
            let values = data.as_slice().expect("a sinogram");
            group.create_dataset(array).with_f32_data(values).with_shape(&[60, 80]);
        }
        // No image.
        group.create_dataset("angles").with_f64_data(&degrees).with_shape(&[60]);
        builder.add_group(group.finish());
        folder.write(name, builder.finish().expect("a file"))
    };
    write("one.h5", &["sinogram"]);
    let two = write("two.h5", &["sinogram", "other"]);
    let ask = |job: &str| haloscope(&["init", "tomography-2d", job, "--from", &two]);
    let output = ask(&folder.name("job.toml"));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--entry") && said.contains("entry/other"), "{said}");
    for (name, options) in
        [("one.h5", &["--force"][..]), ("two.h5", &["--force", "--entry", "entry/sinogram"])]
    {
        let options = [options, &["--model", "tv"]].concat();
        let job = job_from(&folder, "tomography-2d", &[name], &options);
        assert!(job.contains("\nentry = 'entry/sinogram'\n"), "{job}");
        assert!((number(&job, "centre") - 43.0).abs() < 0.5, "{job}");
        let psnr = check_and_run(&folder, &job, &truth);
        assert!(psnr > 22.0, "{name}: {psnr:.2} dB\n{job}");
    }
}

#[test]
fn one_of_several_arrays_of_numpy_is_chosen() {
    let two = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../haloscope/fixtures/files/two.npz")
        .display()
        .to_string();
    let folder = Folder::new();
    let job = folder.name("job.toml");
    let init =
        |more: &[&str]| haloscope(&[&["init", "denoise", &job, "--from", &two], more].concat());
    let output = init(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--entry"), "{}", text(&output.stderr));
    let output = init(&["--entry", "b"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(&job).expect("the job");
    assert!(written.contains("\nentry = 'b'\n"), "{written}");
    // It is for data alone.
    assert_eq!(haloscope(&["init", "denoise", "--entry", "b"]).status.code(), Some(2));
}

#[test]
fn angles_of_a_file_are_those_of_the_job() {
    let truth = slice(80);
    // Not equally spaced, so that nobody can guess them.
    let degrees: Vec<f64> =
        (0..60).map(|view| 3.0 * f64::from(view) + f64::from(view % 3)).collect();
    let data = with_noise(sinogram(&truth, &degrees, 43.0), gaussian(0.003));
    let folder = Folder::new();
    io::write(folder.path("data.npy"), &data, &WriteOptions::default()).expect("data");
    let lines = |angles: &[f64]| {
        angles.iter().map(|angle| format!("{angle:.6}")).collect::<Vec<_>>().join("\n")
    };
    let radians: Vec<f64> = degrees.iter().map(|angle| angle.to_radians()).collect();
    folder.write("degrees.txt", lines(&degrees));
    folder.write("radians.txt", lines(&radians));
    for (name, unit) in [("degrees.txt", false), ("radians.txt", true)] {
        let file = folder.name(name);
        let options = ["--angles", &file, "--model", "tv", "--force"];
        let job = job_from(&folder, "tomography-2d", &["data.npy"], &options);
        assert!(job.contains(&format!("angles = '{file}'")) && !job.contains("\narc = "), "{job}");
        assert_eq!(job.contains("angle-unit = \"radians\""), unit, "{job}");
        let after = decibels(&run(&folder, &job, &truth), "after");
        assert!(after > 24.0, "{name}: {after:.2} dB\n{job}");
    }
    folder.write("few.txt", "1 2 3");
    let refused = |problem: &str, expected: &str| {
        let (job, few, data) =
            (folder.name("other.toml"), folder.name("few.txt"), folder.name("data.npy"));
        let output = haloscope(&["init", problem, &job, "--angles", &few, "--from", &data]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    };
    refused("tomography-2d", "3 angles for 60 views");
    refused("denoise", "only scans have angles");
}

#[test]
fn comments_of_a_cone_are_keys_of_its_operator() {
    // Projections over a full turn are taken for those of a cone.
    let truth = slice(48);
    let degrees: Vec<f64> = (0..48).map(|view| 7.5 * f64::from(view)).collect();
    let row = sinogram(&truth, &degrees, 24.5);
    let plane = row.index_axis(Axis(0), 0).index_axis_move(Axis(0), 0).to_owned();
    let views = plane.view().insert_axis(Axis(1));
    let projections = ndarray::concatenate(Axis(1), &[views.view(), views.view(), views.view()]);
    let folder = Folder::new();
    let options = WriteOptions::default();
    io::write(folder.path("data.npy"), &projections.expect("projections"), &options).expect("data");
    let job = job_from(&folder, "tomography-3d", &["data.npy"], &["--model", "tv"]);
    assert!(job.contains("kind = \"cone-beam\""), "{job}");
    folder.write(
        "job.toml",
        job.replace("# source-d", "source-d").replace("# detector-d", "detector-d"),
    );
    let output = haloscope(&["check", &folder.name("job.toml")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn twelve_bits_in_a_picture_of_sixteen_become_white() {
    let truth = landscape(64, 80).expect("a picture");
    let noisy = with_noise(truth.clone(), gaussian(0.08)).mapv(|value| value.clamp(0.0, 1.0));
    let folder = Folder::new();
    let stored = noisy.mapv(|value| (4095.0 * value).round());
    let options = WriteOptions { sample: Some(Sample::U16), raw: true, ..WriteOptions::default() };
    io::write(folder.path("camera.tif"), &stored, &options).expect("a file");
    // The same as an array with the colours last, as most programs have it.
    let last = stored
        .index_axis(Axis(0), 0)
        .permuted_axes(vec![1, 2, 0])
        .as_standard_layout()
        .into_owned();
    let options = WriteOptions { sample: Some(Sample::U16), ..WriteOptions::default() };
    io::write(folder.path("camera.npy"), &last, &options).expect("a file");
    for name in ["camera.tif", "camera.npy"] {
        let job = job_from(&folder, "denoise", &[name], &["--force"]);
        let noise = number(&job, "noise");
        assert!((0.06..0.1).contains(&noise), "{name}: {job}");
        let summary = run(&folder, &job, &truth);
        let (before, after) = (decibels(&summary, "before"), decibels(&summary, "after"));
        assert!(
            before > 20.0 && after > before + 4.0,
            "{name}: {before:.2} to {after:.2} dB\n{job}"
        );
    }
}

#[test]
fn results_have_the_kind_of_the_data_and_never_their_name() {
    let truth = landscape(32, 32).expect("a picture");
    let gray = truth.index_axis(Axis(1), 1).insert_axis(Axis(1)).to_owned();
    // A few stars are much brighter than all else.
    let mut sky = gray.mapv(|value| 40.0 * value);
    sky[[0, 0, 7, 9]] = 9000.0;
    let folder = Folder::new();
    let deep = |raw| WriteOptions { sample: Some(Sample::U16), raw, ..WriteOptions::default() };
    let counts = gray.mapv(|value| (60_000.0 * value).round());
    io::write(folder.path("job.tif"), &counts, &deep(true)).expect("a file");
    io::write(folder.path("deep.png"), &gray, &deep(false)).expect("a file");
    io::write(folder.path("plain.png"), &gray, &WriteOptions::default()).expect("a file");
    io::write(folder.path("sky.fits"), &sky, &WriteOptions::default()).expect("a file");
    for (data, result, clamp) in [
        ("job.tif", "job-result.tif", "[0, 1]"),
        ("deep.png", "job.tif", "[0, 1]"),
        ("plain.png", "job.png", "[0, 1]"),
        ("sky.fits", "job.fits", "[0, inf]"),
    ] {
        let job = job_from(&folder, "deblur", &[data], &["--model", "tv", "--force"]);
        assert!(job.contains(&format!("file = \"{result}\"")), "{data}: {job}");
        assert!(job.contains(&format!("clamp = {clamp}")), "{data}: {job}");
        let output = haloscope(&["check", &folder.name("job.toml")]);
        assert!(output.status.success(), "{data}: {}", text(&output.stderr));
    }
}

#[test]
fn black_pixels_are_missing_pixels() {
    let truth = landscape(64, 64).expect("a picture");
    let mut damaged =
        with_noise(truth.clone(), gaussian(0.02)).mapv(|value| value.clamp(0.02, 1.0));
    for (index, mut pixel) in damaged.lanes_mut(Axis(1)).into_iter().enumerate() {
        if index * 7919 % 10 < 4 {
            pixel.fill(0.0);
        }
    }
    let folder = Folder::new();
    io::write(folder.path("damaged.png"), &damaged, &WriteOptions::default()).expect("a picture");
    let job = job_from(&folder, "inpainting", &["damaged.png"], &[]);
    let mask =
        io::read(folder.path("job-mask.png"), &io::ReadOptions::default()).expect("a mask").array;
    assert!((mask.mean().expect("values") - 0.6).abs() < 0.01);
    let after = decibels(&run(&folder, &job, &truth), "after");
    assert!(after > 24.0, "{after:.2} dB\n{job}");
}

#[test]
fn pixels_that_are_no_numbers_are_missing_pixels() {
    let truth = landscape(48, 48).expect("a picture").mean_axis(Axis(1)).expect("channels");
    let truth = truth.insert_axis(Axis(1));
    let mut damaged = with_noise(truth.clone(), gaussian(0.02));
    for (index, value) in damaged.iter_mut().enumerate() {
        if index * 7919 % 10 < 4 {
            *value = f32::NAN;
        }
    }
    let folder = Folder::new();
    io::write(folder.path("nan.npy"), &damaged, &WriteOptions::default()).expect("data");
    let (name, data) = (folder.name("job.toml"), folder.name("nan.npy"));
    let output = haloscope(&["init", "inpainting", &name, "--from", &data]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let job = std::fs::read_to_string(&name).expect("the job");
    // What is printed is what is written.
    let noise = job.lines().find_map(|line| line.strip_prefix("noise = ")).expect("a level");
    let noise = noise.split('#').next().expect("a value").trim();
    let words = format!("a standard deviation of {noise}, estimated");
    assert!(text(&output.stdout).contains(&words), "{words}: {}", text(&output.stdout));
    let after = decibels(&run(&folder, &job, &truth), "after");
    assert!(after > 24.0, "{after:.2} dB\n{job}");
    // Other problems have no use for them, and the message is of the data.
    let job = folder.name("other.toml");
    let refused = haloscope(&["init", "denoise", &job, "--from", &data]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("nan.npy") && said.contains("not a finite number"), "{said}");
    assert!(!said.contains("other.toml"), "{said}");
}

#[test]
fn holes_in_a_jpeg_are_found_and_doubted() {
    let mut damaged = landscape(64, 64).expect("a picture").mapv(|value| value.clamp(0.3, 1.0));
    damaged.slice_axis_mut(Axis(3), (16..32).into()).fill(0.0);
    let folder = Folder::new();
    io::write(folder.path("damaged.jpg"), &damaged, &WriteOptions::default()).expect("a picture");
    let (name, data) = (folder.name("job.toml"), folder.name("damaged.jpg"));
    let output = haloscope(&["init", "inpainting", &name, "--from", &data]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.contains("JPEG smears"), "{said}");
    let mask = io::read(folder.path("job-mask.png"), &io::ReadOptions::default()).expect("a mask");
    let part = mask.array.mean().expect("values");
    assert!((0.7..0.8).contains(&part), "{part}");
}

#[test]
fn frames_get_an_operator_each() {
    let truth = landscape(64, 64).expect("a picture");
    let frames: Measurements = (0..4)
        .map(|frame| with_noise(truth.clone(), gaussian(0.01 + 0.001 * f64::from(frame))))
        .collect::<Vec<_>>()
        .into();
    let folder = Folder::new();
    let names = ["a.png", "b.png", "c.png", "d.png"];
    for ((_, frame), name) in frames.iter().zip(names) {
        io::write(folder.path(name), frame, &WriteOptions::default()).expect("a frame");
    }
    let job = job_from(&folder, "deblur", &names[..2], &[]);
    assert_eq!(job.matches("[[operators]]").count(), 2, "{job}");
    let job = job_from(&folder, "super-resolution", &names, &["--force"]);
    assert!(job.contains("phase = \"all\"") && job.contains("factor = 2"), "{job}");
    assert!(job.contains("filter = \"box\""), "{job}");
    for problem in ["deblur", "super-resolution"] {
        job_from(&folder, problem, &names[..1], &["--force"]);
        let output = haloscope(&["check", &folder.name("job.toml")]);
        assert!(output.status.success(), "{problem}: {}", text(&output.stderr));
    }
}

#[test]
fn a_large_image_from_frames_of_a_sensor_beats_a_frame_that_is_enlarged() {
    let truth = landscape(64, 64).expect("a picture");
    let folder = Folder::new();
    let names = ["a.png", "b.png", "c.png", "d.png"];
    for (index, name) in names.into_iter().enumerate() {
        let (down, right) = (index / 2, index % 2);
        // Each pixel of the sensor is the mean over two by two.
        let frame = Array::from_shape_fn(vec![1, 3, 32, 32], |at| {
            let side = |axis: usize, from: usize| [0, 1].map(|i| (2 * at[axis] + from + i).min(63));
            let rows = side(2, down).into_iter();
            let pixels = rows.flat_map(|y| side(3, right).map(|x| truth[[0, at[1], y, x]]));
            pixels.sum::<f32>() / 4.0
        });
        let frame = with_noise(frame, gaussian(0.01));
        io::write(folder.path(name), &frame, &WriteOptions::default()).expect("a frame");
    }
    let job = folder.name("job.toml");
    let files = names.map(|name| folder.name(name));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let output = haloscope(&[&["init", "super-resolution", &job, "--from"], &files[..]].concat());
    assert!(text(&output.stdout).contains("[64, 64], 3 channels"), "{}", text(&output.stdout));
    let job = std::fs::read_to_string(&job).expect("the job");
    let summary = run(&folder, &job, &truth);
    let (before, after) = (decibels(&summary, "before"), decibels(&summary, "after"));
    assert!(after > before + 3.0, "{before:.2} to {after:.2} dB\n{job}");
    // The width of a Gaussian can be given, and belongs to no other filter.
    let [usual, narrow] = ["", "\nsigma = 0.7"].map(|sigma| {
        let other = format!("filter = \"gaussian\"{sigma}");
        decibels(&run(&folder, &job.replace("filter = \"box\"", &other), &truth), "after")
    });
    assert!(narrow > usual + 3.0, "{narrow:.2} and {usual:.2} dB");
    folder.write("job.toml", job.replace("filter = \"box\"", "filter = \"box\"\nsigma = 0.7"));
    let refused = haloscope(&["check", &folder.name("job.toml")]);
    assert!(text(&refused.stderr).contains("the width of a Gaussian"), "{}", text(&refused.stderr));
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_would_be_accepted() {
    let folder = Folder::new();
    let volume =
        SheppLogan::new(Table::Modified).with_points(1).draw(&[12, 20, 20]).expect("a volume");
    io::write(folder.path("volume.npy"), &volume, &WriteOptions::default()).expect("a volume");
    let job = folder.name("job.toml");
    let refused = |problem: &str, data: &[&str], expected: &str| {
        let output = haloscope(&[&["init", problem, &job, "--from"], data].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{problem}: {said}");
        assert!(said.contains(expected), "{problem}: {said}");
    };
    let volume = folder.name("volume.npy");
    let photo = landscape(20, 20).expect("a picture");
    io::write(folder.path("photo.png"), &photo, &WriteOptions::default()).expect("a picture");
    refused("tomography-2d", &[&folder.name("photo.png")], "of a sinogram (view, bin)");
    io::write(folder.path("plane.npy"), &slice(20), &WriteOptions::default()).expect("a plane");
    refused("tomography-3d", &[&folder.name("plane.npy")], "tomography-2d takes a sinogram");
    refused("tomography-2d", &[&folder.name("view*.tif")], "no file matches it");
    refused("denoise", &[&volume, &volume], "one is expected");
    refused("denoise", &[&folder.name("none.png")], "none.png");
    folder.write("job.toml", "mine");
    refused("denoise", &[&volume], "--force");
    assert_eq!(std::fs::read_to_string(&job).expect("the file"), "mine");
}

#[cfg(feature = "hdf5")]
#[test]
fn the_centre_of_a_real_scan_is_found() {
    let Some(data) = std::env::var_os("HALOSCOPE_DATA") else {
        println!("skipped: the tooth, which needs HALOSCOPE_DATA");
        return;
    };
    let scan = std::path::Path::new(&data).join("ct/tomopy_tooth.h5").display().to_string();
    let folder = Folder::new();
    let job = folder.name("tooth.toml");
    let output = haloscope(&["init", "tomography-2d", &job, "--from", &scan]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let job = std::fs::read_to_string(&job).expect("the job");
    assert!((number(&job, "centre") - 296.0).abs() <= 0.75, "{job}");
}
