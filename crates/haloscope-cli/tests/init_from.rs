//! `haloscope init --from`: jobs that are written for data as strangers have them, and run as they are.

mod jobs;

use haloscope::io::{self, Sample, WriteOptions};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::{SheppLogan, Table, landscape};
use haloscope::physics::Physics;
use haloscope::physics::tomography::{ParallelBeam, Tomography2d};
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
            after > 24.0 && after > before + 2.0,
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
            after > 24.0 && after > before + 2.0,
            "{what}: {before:.2} to {after:.2} dB\n{job}"
        );
    }
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
    let lines =
        |angles: &[f64]| angles.iter().map(|angle| format!("{angle:.6}\n")).collect::<String>();
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
    let wide = job.replace("filter = \"box\"", "filter = \"gaussian\"\nsigma = 0.7");
    let after = decibels(&run(&folder, &wide, &truth), "after");
    assert!(after > before, "{before:.2} to {after:.2} dB");
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
    refused("tomography-2d", &[&volume], "a sinogram (view, bin) is expected");
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
