//! `haloscope denoise` on pictures and weights that the test makes.

mod jobs;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn haloscope(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    command.args(arguments).output().expect("the command starts")
}

fn write_identity(path: &Path) {
    fs::write(path, jobs::identity_network()).expect("weights are written");
}

#[test]
fn identity_gives_the_picture_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (input, output, model) = (path("in.png"), path("out.png"), path("model.safetensors"));
    write_identity(Path::new(&model));
    let colour = image::RgbImage::from_fn(37, 21, |x, y| image::Rgb([x as u8, y as u8 * 7, 200]));
    let gray = image::GrayImage::from_fn(9, 50, |x, y| image::Luma([(x * y) as u8]));
    for picture in [image::DynamicImage::from(colour), image::DynamicImage::from(gray)] {
        picture.save(&input).expect("the picture is written");
        let arguments =
            ["denoise", &input, "--out", &output, "--model", &model, "--sigma", "25/255", "--json"];
        let done = haloscope(&arguments);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let report: serde_json::Value =
            serde_json::from_slice(&done.stdout).expect("the report is JSON");
        assert_eq!(report["network"], "dncnn");
        assert_eq!(report["sigma_used"], false);
        assert!(report["memory_predicted_bytes"].as_u64() > Some(0));
        let back = image::open(&output).expect("the result is a picture");
        assert_eq!(back.color(), picture.color());
        assert_eq!(back.as_bytes(), picture.as_bytes());
    }
}

#[test]
fn formats_may_differ_between_input_and_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let model = path("model.safetensors");
    write_identity(Path::new(&model));
    let gray = image::GrayImage::from_fn(19, 25, |x, y| image::Luma([(x * y / 2) as u8]));
    gray.save(path("in.png")).expect("the picture is written");
    let mut input = path("in.png");
    // Each result is the next input.
    for name in ["a.tif", "b.npy", "c.fits", "d.nii.gz", "e.npz", "f.png"] {
        let output = path(name);
        let done =
            haloscope(&["denoise", &input, "--out", &output, "--model", &model, "--sigma", "0.1"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        input = output;
    }
    let back = image::open(input).expect("the result is a picture");
    assert_eq!(back.as_bytes(), gray.as_raw());
}

#[test]
fn refusals_name_the_file_and_write_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (input, output, model) = (path("in.png"), path("out.png"), path("model.safetensors"));
    write_identity(Path::new(&model));
    image::GrayImage::new(8, 8).save(&input).expect("the picture is written");
    fs::write(path("text.png"), "not a picture").expect("written");
    fs::write(path("cut.safetensors"), [200, 0, 0, 0, 0, 0, 0, 0, b'{']).expect("written");
    for (input, output, model, sigma, code, words) in [
        (&input, &output, &model, "25", 2, "25/255"),
        (&path("none.png"), &output, &model, "0.1", 2, "none.png"),
        (&path("text.png"), &output, &model, "0.1", 2, "not a PNG"),
        (&input, &output, &path("none.pth"), "0.1", 2, "none.pth"),
        (&input, &output, &path("cut.safetensors"), "0.1", 2, "cut.safetensors"),
        (&input, &output, &input, "0.1", 2, "not a file of weights"),
        (&input, &path("no/out.png"), &model, "0.1", 2, "there is no folder"),
        (&input, &path("out.doc"), &model, "0.1", 2, "out.doc"),
    ] {
        let done =
            haloscope(&["denoise", input, "--out", output, "--model", model, "--sigma", sigma]);
        let message = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{message}");
        assert!(message.contains(words), "{words}: {message}");
        assert!(!Path::new(output).exists());
    }
}

#[test]
fn images_that_are_no_numbers_are_refused_with_how_many() {
    let folder = jobs::Folder::new();
    let model = folder.write("model.safetensors", jobs::identity_network());
    let value = |index| [0.5, f32::NAN, f32::INFINITY][usize::from(index > 60) + index / 63];
    let input = folder.write("in.npy", jobs::npy(&[8, 8], value));
    let output = folder.name("out.npy");
    for arguments in [
        &["denoise", &input, "--out", &output, "--model", &model, "--sigma", "0.1"][..],
        &["evaluate", &input, "--model", &model],
    ] {
        let done = haloscope(arguments);
        let message = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{message}");
        assert!(message.contains("in.npy: 3 of its 64 values are NaN or infinite"), "{message}");
        assert!(!message.contains("step size"), "{message}");
    }
    assert!(!Path::new(&output).exists());
}

#[test]
fn more_threads_than_a_system_starts_are_refused() {
    let run = ["--out", "out.png", "--sigma", "0.1"];
    for arguments in [
        [&["denoise", "in.png"][..], &run].concat(),
        vec!["evaluate", "in.png", "--model", "builtin:gray"],
        vec!["plan", "--size", "64x64", "--model", "dncnn", "--channels", "1"],
        vec!["bench", "batch"],
        vec!["bench", "memory"],
        vec!["bench", "compare"],
        vec!["bench", "scaling"],
    ] {
        for threads in ["0", "50000"] {
            let done = haloscope(&[&arguments[..], &["--threads", threads]].concat());
            let message = String::from_utf8_lossy(&done.stderr);
            assert!(matches!(done.status.code(), Some(1 | 2)), "{arguments:?}: {message}");
            assert!(message.contains("a number from 1 to"), "{arguments:?}: {message}");
        }
    }
}

/// A picture of a ramp with noise, and the same without.
fn write_ramps(folder: &Path) -> [String; 2] {
    let mut state = 1_u32;
    let mut uniform = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24)
    };
    let clean = image::RgbImage::from_fn(80, 64, |x, y| {
        image::Rgb([60 + x as u8, 60 + y as u8, 60 + (x + y) as u8 / 2])
    });
    let mut noisy = clean.clone();
    for value in noisy.iter_mut() {
        // Nearly normal, with a standard deviation of 25.
        let sum: f64 = (0..12).map(|_| uniform()).sum();
        *value = (f64::from(*value) + 25.0 * (sum - 6.0)).clamp(0.0, 255.0) as u8;
    }
    let names = ["noisy.png", "clean.png"].map(|name| folder.join(name).display().to_string());
    noisy.save(&names[0]).expect("the picture is written");
    clean.save(&names[1]).expect("the picture is written");
    names
}

#[test]
fn without_a_model_the_built_in_one_removes_noise() {
    let folder = tempfile::tempdir().expect("a folder");
    let [noisy, clean] = write_ramps(folder.path());
    let output = folder.path().join("out.png").display().to_string();
    let error = |name: &str| -> f64 {
        let open = |name| image::open(name).expect("a picture").to_rgb8();
        let pairs = open(name).into_raw().into_iter().zip(open(&clean).into_raw());
        pairs.map(|(a, b)| (f64::from(a) - f64::from(b)).powi(2)).sum()
    };
    for model in [&[][..], &["--model", "builtin:color"], &["--model", "builtin:gray"]] {
        let arguments =
            [&["denoise", &noisy, "--out", &output, "--sigma", "25/255"], model].concat();
        let done = haloscope(&arguments);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // Less than a tenth of the noise's power is left.
        assert!(10.0 * error(&output) < error(&noisy), "{model:?}");
    }
}

#[test]
fn built_in_models_say_what_they_are_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let [noisy, _] = write_ramps(folder.path());
    let output = folder.path().join("out.png").display().to_string();
    for (model, sigma, words) in [
        ("builtin:colour", "0.1", "builtin:gray and builtin:volume"),
        ("builtin:color", "0.5", "for 0 to 0.294"),
    ] {
        let arguments = ["denoise", &noisy, "--out", &output, "--sigma", sigma, "--model", model];
        let done = haloscope(&arguments);
        let message = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn evaluate_measures_a_folder_of_images() {
    let folder = tempfile::tempdir().expect("a folder");
    write_ramps(folder.path());
    fs::write(folder.path().join("names.txt"), "clean").expect("written");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (images, only, missing) = (path(""), path("names.txt"), path("missing.txt"));
    let common = ["evaluate", &images, "--model", "builtin:color", "--json"];
    let done = haloscope(&[&common[..], &["--only", &only, "--levels", "25,50"]].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(report["images"], 1);
    for (level, noisy) in report["levels"].as_array().expect("levels").iter().zip([20.17, 14.15]) {
        let figure = |name: &str| level[name].as_f64().expect("a number");
        assert!((figure("noisy_psnr_db") - noisy).abs() < 0.2, "{level}");
        assert!(figure("psnr_db") > noisy + 8.0, "{level}");
        assert!(figure("ssim") > 0.8, "{level}");
    }

    fs::write(&missing, "clean absent").expect("written");
    for (arguments, words) in [
        (vec!["--only", &missing], "1 of the 2 named images"),
        (vec!["--only", "nowhere.txt"], "nowhere.txt"),
        (vec!["--levels", "100"], "for 0 to 0.294"),
    ] {
        let done = haloscope(&[&common[..], &arguments].concat());
        let message = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn an_image_that_exceeds_the_budget_runs_in_waves_and_gives_the_same_file() {
    use haloscope::io::{self, Sample, WriteOptions};

    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let report = |input: &str, output: &str, more: &[&str]| {
        let level = ["--sigma", "25/255", "--threads", "2", "--json"];
        let done = haloscope(&[&["denoise", input, "--out", output], &level[..], more].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice::<serde_json::Value>(&done.stdout).expect("the report is JSON")
    };
    let ramp = |at: ndarray::IxDyn| (7 * at[1] + at[2] * at[3]) as f32 % 251.0 + 4.0;
    for (input, outputs, sample, channels) in [
        ("gray.npy", ["a.npy", "b.npy"], Sample::F32, 1),
        ("colour.tif", ["a.tif", "b.tif"], Sample::U16, 3),
        ("picture.png", ["a.png", "b.png"], Sample::U8, 1),
    ] {
        let (input, [whole, waves]) = (path(input), outputs.map(path));
        let image = ndarray::ArrayD::from_shape_fn(vec![1, channels, 1501, 21], ramp);
        let options = WriteOptions { sample: Some(sample), raw: true, ..WriteOptions::default() };
        io::write(&input, &image, &options).expect("it is written");
        let axes: &[&str] =
            if channels == 1 && input.ends_with("npy") { &["--axes", "automatic"] } else { &[] };
        let all = report(&input, &whole, axes);
        assert_eq!((&all["waves"], &all["by_bands"]), (&0.into(), &false.into()));
        let bytes = all["memory_whole_bytes"].as_u64().expect("bytes");
        let budget = format!("{}B", bytes * 4 / 5);
        let cut = report(&input, &waves, &[&["--memory-budget", &budget], axes].concat());
        assert!(cut["waves"].as_u64() > Some(1), "{cut}");
        assert!(cut["memory_predicted_bytes"].as_u64() < Some(bytes), "{cut}");
        // A picture is unpacked from its start, and is in memory as a whole.
        assert_eq!(cut["by_bands"], !input.ends_with("png"), "{cut}");
        let read = |name: &str| fs::read(name).expect("the result is there");
        assert!(read(&whole) == read(&waves), "{input}: the files differ");
        for key in ["white", "black", "scale", "sigma", "written_as", "values"] {
            assert_eq!(all[key], cut[key]);
        }
        let words = haloscope(
            &[&["denoise", &input, "-o", &waves, "-s", "0.1", "--memory-budget", &budget], axes]
                .concat(),
        );
        let words = String::from_utf8_lossy(&words.stdout).into_owned();
        assert!(words.contains("because the whole image would take"), "{words}");
    }
}
