//! ONNX files and ONNX Runtime in the command: jobs on ranks, `denoise`, `evaluate`, `plan`, and what is missing. The library is
//! the one that `ORT_DYLIB_PATH` names; `make onnx` provides one.

mod jobs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use jobs::{Folder, command, deblurring, haloscope, json, text};

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../haloscope-onnx/tests/files");
    folder.canonicalize().expect("the files").join(name).display().to_string()
}

fn has_library() -> bool {
    let has = std::env::var_os("ORT_DYLIB_PATH").is_some();
    if !has {
        println!("skipped: ONNX files in the command, which need ORT_DYLIB_PATH");
    }
    has
}

/// A job with a network, for a picture of 96 × 80 pixels.
fn job(model: &str, more: &str) -> String {
    let more = format!(
        "[solver]\nmethod = 'pgd'\nrelaxation = 0.2\n[prior]\nkind = 'network'\nmodel = '{model}'\n{more}\n"
    );
    deblurring(2, &more).replace("size = [24, 20]", "size = [96, 80]")
}

/// One line on stderr, exit code 2, and these words.
fn assert_refused(output: &Output, words: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    for words in words {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn foreign_networks_reconstruct_with_the_same_bits_on_any_ranks() {
    if !has_library() {
        return;
    }
    let folder = Folder::new();
    for (name, more) in [
        ("dncnn", "patch = 48\noverlap = 8"),
        ("swin", "patch = 32\noverlap = 8"),
        ("fixed", ""),
        ("half", ""),
        ("last", "patch = 40\n[prior.onnx]\nwhite = 255\nlayout = 'nhwc'"),
    ] {
        let job = job(&file(&format!("{name}.onnx")), more);
        let alone = folder.bits(&job, &["--start-over"]);
        for ranks in ["2", "3", "5"] {
            let bits = folder.bits(&job, &["--start-over", "--ranks", ranks]);
            assert_eq!(bits, alone, "{name} on {ranks} ranks");
        }
    }
}

#[test]
fn the_built_in_denoiser_finds_the_same_image_on_both_engines_and_on_any_ranks() {
    if !has_library() {
        return;
    }
    let folder = Folder::new();
    let exported = folder.name("color.onnx");
    let done = haloscope(&["export", "builtin:color", "--out", &exported, "--dynamic"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let tiles = "patch = 48\noverlap = 16";
    let image = |model: &str, ranks: &str| {
        let out = folder.name("image.npy");
        let job = job(model, tiles).replace("folder = \"pictures\"", &format!("file = '{out}'"));
        let summary = json(&folder.run(&job, &["--start-over", "--ranks", ranks]));
        let bytes = std::fs::read(&out).expect("an image");
        let values: Vec<f32> = bytes[bytes.len() - 4 * 3 * 96 * 80..]
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
            .collect();
        (values, summary["bits"].as_str().expect("a digest").to_owned())
    };
    let (ours, _) = image("builtin:color", "1");
    let (theirs, bits) = image(&exported, "1");
    let apart = ours.iter().zip(&theirs).map(|(one, other)| (one - other).abs());
    let most = apart.fold(0.0, f32::max);
    assert!(most > 0.0 && most < 1e-4, "{most}");
    for ranks in ["2", "3", "5"] {
        assert_eq!(image(&exported, ranks).1, bits, "{ranks} ranks");
    }
}

#[test]
fn denoise_evaluate_and_plan_take_onnx_files() {
    if !has_library() {
        return;
    }
    let folder = Folder::new();
    let input = folder.name("in.png");
    let picture = image::RgbImage::from_fn(75, 50, |x, y| image::Rgb([x as u8 * 3, y as u8, 99]));
    picture.save(&input).expect("a picture");
    for (name, uses_level) in [("dncnn", false), ("swin", true), ("fixed", true), ("half", true)] {
        let (model, out) = (file(&format!("{name}.onnx")), folder.name("out.png"));
        let arguments =
            ["denoise", &input, "--out", &out, "--model", &model, "--sigma", "0.1", "--json"];
        let report = json(&haloscope(&arguments));
        assert_eq!((&report["network"], &report["sigma_used"]), (&name.into(), &uses_level.into()));
        assert_eq!(image::open(&out).expect("a picture").width(), 75);
    }
    let last = file("last.onnx");
    let arguments =
        ["evaluate", &input, "--model", &last, "--onnx", "white=255", "--levels", "25", "--json"];
    let report = json(&haloscope(&arguments));
    assert!(report["levels"][0]["psnr_db"].as_f64().is_some_and(f64::is_finite), "{report}");
    let arguments =
        ["plan", "--size", "256x256", "--model", &file("fixed.onnx"), "--ranks", "2", "--json"];
    let report = json(&haloscope(&arguments));
    assert_eq!(report["network"]["receptive_radius"], serde_json::Value::Null);
    assert_eq!(report["plan"]["overlap"], 8);
}

#[test]
fn wrong_files_and_options_are_refused_before_anything_runs() {
    if !has_library() {
        return;
    }
    let folder = Folder::new();
    for (name, more, words) in [
        ("wrong/two-images", "", "`image` and `level`"),
        ("wrong/truncated", "", "ends within a field"),
        ("wrong/wrong-channels", "", "takes 3 channels and gives 5"),
        ("dncnn", "[prior.onnx]\nlayout = 'chwn'", "nchw or nhwc is expected"),
        ("dncnn", "[prior.onnx]\nwight = 1", "the key is unknown here"),
        ("swin", "strategy = 'exact'", "onnxruntime"),
    ] {
        let output = folder.run(&job(&file(&format!("{name}.onnx")), more), &[]);
        assert_refused(&output, &[words]);
    }
    let output = folder.run(&job("builtin:color", "[prior.onnx]\nwhite = 255"), &[]);
    assert_refused(&output, &["no ONNX file"]);
}

#[test]
fn a_library_that_is_missing_too_old_or_no_library_is_one_line() {
    let folder = Folder::new();
    let path = folder.write("job.toml", job(&file("dncnn.onnx"), ""));
    let check = |library: &Path| {
        let mut command = command(&["check", &path]);
        command.env("ORT_DYLIB_PATH", library).output().expect("the command starts")
    };
    assert_refused(
        &check(Path::new("/nowhere.so")),
        &["/nowhere.so, which is no file", "pip install"],
    );
    let text = folder.write("text.so", "no library");
    assert_refused(&check(Path::new(&text)), &["cannot be loaded", "pip install"]);
    let base = "#[unsafe(no_mangle)] pub extern \"C\" fn OrtGetApiBase() -> *const Base { &raw const BASE }\n\
                #[repr(C)] pub struct Base(extern \"C\" fn(u32) -> usize, extern \"C\" fn() -> *const u8);\n\
                static BASE: Base = Base(api, version);\n\
                extern \"C\" fn api(_: u32) -> usize { 0 }\n\
                extern \"C\" fn version() -> *const u8 { c\"1.8.1\".as_ptr().cast() }\n";
    let Some(old) = library(&folder, "old", base) else { return };
    assert_refused(&check(&old), &["is version 1.8.1", "or newer is needed", "--upgrade"]);
    let Some(other) = library(&folder, "other", "") else { return };
    assert_refused(&check(&other), &["is no library of ONNX Runtime"]);
}

#[test]
fn a_gpu_that_is_not_there_ends_every_command_with_one_line_and_auto_takes_the_cpu() {
    if !has_library() {
        return;
    }
    let info = json(&haloscope(&["info", "--json"]));
    let runtime = &info["onnx_runtime"];
    assert!(
        runtime["version"].as_str().is_some_and(|version| version.starts_with("1.")),
        "{runtime}"
    );
    assert!(runtime["providers"].to_string().contains("CPUExecutionProvider"), "{runtime}");
    if runtime["gpus"].as_array().is_some_and(|gpus| !gpus.is_empty()) {
        println!("skipped: GPUs that are missing, because this machine has one");
        return;
    }
    let folder = Folder::new();
    let path = folder.write("job.toml", job("builtin:color", "patch = 48"));
    let (input, out) = (folder.name("in.png"), folder.name("out.png"));
    image::GrayImage::new(16, 16).save(&input).expect("a picture");
    let words = ["no provider for GPUs", "onnxruntime-gpu"];
    for device in ["gpu", "gpu:0"] {
        assert_refused(&haloscope(&["reconstruct", &path, "--device", device]), &words);
        assert_refused(
            &haloscope(&["reconstruct", &path, "--device", device, "--ranks", "3"]),
            &words,
        );
        assert_refused(&haloscope(&["check", &path, "--device", device]), &words);
        let arguments = ["denoise", &input, "--out", &out, "--sigma", "0.1", "--device", device];
        assert_refused(&haloscope(&arguments), &words);
        assert_refused(
            &haloscope(&["evaluate", &input, "--model", "builtin:gray", "--device", device]),
            &words,
        );
    }
    let of_file = folder.run(&job("builtin:color", "patch = 48\ndevice = 'gpu'"), &[]);
    assert_refused(&of_file, &words);
    let wrong = folder.run(&job("builtin:color", "device = 'tpu'"), &[]);
    assert_refused(&wrong, &["auto, cpu, gpu or gpu:N"]);
    let plain = folder.bits(&job("builtin:color", "patch = 48"), &["--start-over"]);
    let auto =
        folder.bits(&job("builtin:color", "patch = 48"), &["--start-over", "--device", "auto"]);
    assert_eq!(auto, plain);
}

#[test]
fn bench_device_compares_every_precision_with_the_cpu_engine() {
    if !has_library() {
        return;
    }
    let folder = Folder::new();
    let out = folder.name("device.json");
    let options = [
        "--device",
        "cpu",
        "--patches",
        "32",
        "--batches",
        "1,2",
        "--repetitions",
        "1",
        "--out",
        &out,
    ];
    let output = haloscope(&[&["bench", "device"][..], &options].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("difference from the CPU engine"));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&out).expect("a report")).expect("JSON");
    let names: Vec<_> = ["f32", "f16"].map(serde_json::Value::from).to_vec();
    let found: Vec<_> = report["precisions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["precision"].clone())
        .collect();
    assert_eq!(found, names);
    assert!(
        report["precisions"][0]["difference"].as_f64().is_some_and(|apart| apart < 1e-5),
        "{report}"
    );
    assert_eq!(report["speeds"].as_array().map(Vec::len), Some(4));
    assert!(report["transfer_bytes_per_second"].as_f64() > Some(0.0));
    assert_refused(&haloscope(&["bench", "device", "--device", "gpu:7"]), &[]);
}

/// A library with this in it, if there is a compiler.
fn library(folder: &Folder, name: &str, source: &str) -> Option<PathBuf> {
    let input = folder.write(&format!("{name}.rs"), source);
    let output = folder.path(&format!("lib{name}.so"));
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition", "2024", "--crate-type", "cdylib", &input, "-o"]).arg(&output);
    match compiler.output() {
        Ok(done) if done.status.success() => Some(output),
        Ok(done) => panic!("{}", text(&done.stderr)),
        Err(_) => {
            println!("skipped: wrong libraries of ONNX Runtime, which need rustc");
            None
        }
    }
}
