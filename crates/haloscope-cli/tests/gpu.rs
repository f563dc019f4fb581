//! The command on a GPU that is none: a library that passes for ONNX Runtime with NVIDIA's provider and computes on the CPU
//! (`haloscope-onnx/tests/files/gpu.rs`). Everything but the GPU itself is the same as on a machine that has one.

mod jobs;

use std::path::Path;
use std::process::{Command, Output};

use jobs::{Folder, command, deblurring, haloscope, json, text};

/// Names and values.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// A machine with GPUs.
struct Machine {
    folder: Folder,
}

impl Machine {
    /// Nothing without a library to compute with, or a compiler.
    fn new() -> Option<Self> {
        if std::env::var_os("ORT_DYLIB_PATH").is_none() {
            println!("skipped: GPUs in the command, which need ORT_DYLIB_PATH");
            return None;
        }
        let folder = Folder::new();
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../haloscope-onnx/tests/files/gpu.rs");
        let mut compiler = Command::new("rustc");
        compiler.args(["--edition", "2024", "--crate-type", "cdylib", "-o"]);
        let Ok(done) = compiler.arg(folder.path("libgpu.so")).arg(source).output() else {
            println!("skipped: GPUs in the command, which need rustc");
            return None;
        };
        assert!(done.status.success(), "{}", text(&done.stderr));
        Some(Self { folder })
    }

    fn run_with(&self, arguments: &[&str], variables: Variables<'_>) -> Output {
        let real = std::env::var_os("ORT_DYLIB_PATH").expect("looked at before");
        let mut command = command(arguments);
        command.env("GPU_LIBRARY", real).env("ORT_DYLIB_PATH", self.folder.path("libgpu.so"));
        command.env("CUDA_VISIBLE_DEVICES", "0,1").envs(variables.iter().copied());
        command.output().expect("the command starts")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, &[])
    }

    fn job(&self, iterations: usize, more: &str) -> String {
        let more = format!(
            "[solver]\nmethod = 'pgd'\nrelaxation = 0.2\n[checkpoint]\niterations = 1\n\
             [prior]\nkind = 'network'\nmodel = 'builtin:color'\npatch = 48\noverlap = 8\n{more}\n"
        );
        let job = deblurring(iterations, &more).replace("size = [24, 20]", "size = [96, 80]");
        self.folder.write("job.toml", job)
    }
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
fn what_a_gpu_lacks_is_one_line_that_says_what_to_install() {
    let Some(machine) = Machine::new() else { return };
    let job = machine.job(2, "");
    let picture = machine.folder.name("in.png");
    image::RgbImage::new(40, 30).save(&picture).expect("a picture");
    let out = machine.folder.name("out.png");
    // As the library itself says it: what is missing is logged, and the call fails in general.
    let loading = "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:1539 onnxruntime::Provider& \
                   onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library \
                   libonnxruntime_providers_cuda.so with error: libcudnn.so.9: cannot open shared object file: No such file or \
                   directory\n";
    let failed = "OrtSessionOptionsAppendExecutionProvider_Cuda: Failed to load shared library\n";
    let call =
        "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:122 CudaCall CUDA failure";
    let driver = format!(
        "{call} 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=c4327188c000000 ; \
         expr=cudaSetDevice(info_.device_id); \n"
    );
    let volta = format!(
        "{call} 209: no kernel image is available for execution on the device ; GPU=0 ; \n"
    );
    let cases: [(Variables, &[&str]); 5] = [
        (
            &[("GPU_LOGS", loading), ("GPU_LACKS", failed)],
            &["libcudnn.so.9", "cuDNN, is missing", "LD_LIBRARY_PATH"],
        ),
        (
            &[("GPU_LACKS", &driver)],
            &["CUDA device 0", "driver is missing or too old", "nvidia-smi"],
        ),
        (&[("GPU_LACKS", &volta)], &["V100 needs"]),
        (&[("GPU_LACKS", failed)], &["Failed to load shared library", "onnxruntime-gpu"]),
        (&[("GPU_IMAGES", "0")], &["out of memory", "make tiles smaller"]),
    ];
    for (variables, words) in cases {
        for arguments in [
            &["reconstruct", &job, "--device", "gpu"][..],
            &["reconstruct", &job, "--device", "gpu", "--ranks", "2"],
            &["check", &job, "--device", "gpu"],
            &["denoise", &picture, "--out", &out, "--sigma", "0.1", "--device", "gpu"],
            &["bench", "device", "--device", "gpu"],
        ] {
            let output = machine.run_with(arguments, variables);
            let error = text(&output.stderr);
            assert!(
                !error.contains("hostname") && !error.contains("_src"),
                "{arguments:?}: {error}"
            );
            assert_refused(&output, words);
        }
    }
    let hidden =
        machine.run_with(&["check", &job, "--device", "gpu"], &[("CUDA_VISIBLE_DEVICES", "")]);
    assert_refused(&hidden, &["no GPU is visible to this process", "nvidia-smi"]);
    assert_refused(
        &machine.run(&["check", &job, "--device", "gpu:2"]),
        &["gpu:2; there are 2 here"],
    );
}

#[test]
fn forecasts_tell_host_and_device_apart() {
    let Some(machine) = Machine::new() else { return };
    let job = machine.job(2, "");
    let output = machine.run(&["check", &job, "--device", "gpu:1"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = said.lines().find(|line| line.starts_with("device ")).expect("a line");
    assert!(line.contains("CUDA device 1, about ") && line.contains(" of its memory"), "{line}");
    assert!(line.contains(" ms at 6 GB/s"), "{line}");
    let on_cpu = text(&haloscope(&["check", &job]).stdout);
    assert!(!on_cpu.contains("CUDA"), "{on_cpu}");

    let sizes = [
        "plan",
        "--size",
        "256x256",
        "--model",
        "builtin:color",
        "--patch",
        "128",
        "--overlap",
        "16",
    ];
    let report = json(&machine.run(&[&sizes[..], &["--device", "gpu", "--json"]].concat()));
    assert_eq!(report["network"]["device"], "CUDA device 0");
    let rank = &report["plan"]["ranks"][0];
    let tiles = report["plan"]["tiles"].as_u64().expect("a number");
    let window: u64 = report["plan"]["window"]
        .as_array()
        .expect("sides")
        .iter()
        .map(|side| side.as_u64().expect("a number"))
        .product();
    // Three colours and a map of the noise there, three colours back.
    assert_eq!(rank["device_traffic_bytes"], 28 * tiles * window);
    assert!(rank["device_bytes"].as_u64() > Some(0), "{rank}");
    assert_eq!(
        rank["memory"]["weights"],
        4 * report["network"]["parameters"].as_u64().expect("a number")
    );
    let text = text(&machine.run(&[&sizes[..], &["--device", "gpu"]].concat()).stdout);
    assert!(text.contains("device     CUDA device 0, about "), "{text}");
    let report = json(&haloscope(&[&sizes[..], &["--json"]].concat()));
    assert_eq!(report["plan"]["ranks"][0]["device_bytes"], 0);
}

#[test]
fn results_name_the_devices_and_a_run_that_resumes_on_another_is_warned() {
    let Some(machine) = Machine::new() else { return };
    let job = machine.job(2, "");
    let on_gpu =
        json(&machine.run(&["reconstruct", &job, "--device", "auto", "--json", "--ranks", "2"]));
    assert_eq!(on_gpu["devices"], serde_json::json!(["CUDA device 0", "CUDA device 0"]));
    let job = machine.job(4, "");
    let output = haloscope(&["reconstruct", &job, "--resume", "--json"]);
    let resumed = json(&output);
    assert_eq!((&resumed["resumed_from"], &resumed["devices"][0]), (&2.into(), &"the CPU".into()));
    let warning = text(&output.stderr);
    assert!(warning.contains("with ONNX Runtime") && warning.contains("CUDA in f32"), "{warning}");
    assert!(warning.contains("the bits may differ"), "{warning}");

    // On the same kind of device there is nothing to say, whichever words asked for it.
    let job = machine.job(2, "");
    machine.run(&["reconstruct", &job, "--device", "auto", "--start-over", "--json"]);
    let job = machine.job(4, "device = 'gpu:1'");
    let output = machine.run(&["reconstruct", &job, "--resume", "--json"]);
    assert_eq!(json(&output)["devices"], serde_json::json!(["CUDA device 1"]));
    assert!(!text(&output.stderr).contains("bits may differ"), "{}", text(&output.stderr));
}

#[test]
fn studies_run_on_devices_and_name_them() {
    let Some(machine) = Machine::new() else { return };
    let cases: [(&[&str], bool); 3] = [
        (&["memory", "--model", "dncnn:4:3", "--height", "16", "--widths", "16"], true),
        (
            &[
                "batch",
                "--model",
                "dncnn:4:3",
                "--size",
                "32",
                "--patches",
                "16",
                "--batches",
                "1,2",
            ],
            true,
        ),
        (
            &[
                "scaling",
                "--problem",
                "deblur",
                "--sizes",
                "32",
                "--ranks",
                "1,2",
                "--model",
                "drunet:2-2-2-2:1",
                "--patch",
                "16",
                "--overlap",
                "4",
                "--operators",
                "2",
                "--iterations",
                "2",
            ],
            false,
        ),
    ];
    for (study, has_memory) in cases {
        let out = machine.folder.name(study[0]);
        let options = ["--device", "gpu", "--repetitions", "1", "--out", &out];
        let output = machine.run(&[&["bench"], study, &options].concat());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(said.contains("on gpu") && said.contains("CUDA device 0"), "{said}");
        assert_eq!(said.contains("on device"), has_memory, "{said}");
        let rows =
            std::fs::read_to_string(machine.folder.path(study[0]).join("rows.csv")).expect("rows");
        let mut lines = rows.lines();
        let names: Vec<&str> = lines.next().expect("names").split(',').collect();
        let cell = |line: &str, name: &str| {
            let at = names.iter().position(|other| *other == name).expect("a column");
            line.split(',').nth(at).expect("a cell").to_owned()
        };
        for line in lines {
            let found = ["device", "device_name"].map(|name| cell(line, name));
            assert_eq!(found, ["gpu", "CUDA device 0"], "{line}");
            let bytes = cell(line, "predicted_device_bytes").parse::<u64>();
            assert_eq!(bytes.is_ok_and(|bytes| bytes > 0), has_memory, "{line}");
        }
    }
    let sharded =
        ["bench", "scaling", "--problem", "deblur", "--sizes", "32", "--layout", "sharded"];
    let out = machine.folder.name("sharded");
    let output = machine.run(&[&sharded[..], &["--device", "gpu", "--out", &out]].concat());
    assert_refused(&output, &["needs the CPU engine"]);
}
