//! A GPU that is none: a library that passes for ONNX Runtime with NVIDIA's provider, and computes on the CPU (`files/gpu.rs`).
//! What the crate does around a device runs here: counting, planning, batches, memory. What a real GPU does, does not.

use std::path::{Path, PathBuf};
use std::process::Command;

use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions, EnginePlan};
use haloscope_nn::models::{Builtin, Model};
use haloscope_nn::{Shape, Tensor};
use haloscope_onnx::{Device, FileOptions, Library, OnnxRuntime, Provider, gpus, open};

/// The variable that makes a test the process that uses the library, since a process loads one.
const CHILD: &str = "HALOSCOPE_GPU_CHILD";

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

/// Runs a test of this program again with the library and these variables; nothing without a library, or a compiler for it.
fn on_gpu(test: &str, variables: &[(&str, &str)]) {
    let Some(real) = std::env::var_os("ORT_DYLIB_PATH") else {
        println!("skipped: ONNX Runtime with a GPU, which needs ORT_DYLIB_PATH");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libgpu.so");
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition", "2024", "--crate-type", "cdylib", "-o"]).arg(&library);
    let Ok(done) = compiler.arg(files().join("gpu.rs")).output() else {
        println!("skipped: ONNX Runtime with a GPU, which needs rustc");
        return;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", test, "--nocapture"])
        .envs(variables.iter().copied())
        .env(CHILD, "1")
        .env("GPU_LIBRARY", real)
        .env("ORT_DYLIB_PATH", &library)
        .env("CUDA_VISIBLE_DEVICES", "0,1,3")
        .output()
        .expect("the child runs");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn engine() -> OnnxRuntime {
    let device = Device { provider: Provider::Cuda, index: 1, ..Device::default() };
    OnnxRuntime::new(device).expect("the library has it")
}

fn input(model: &Model, batch: usize, sides: &[usize]) -> Tensor {
    let mut random = fastrand::Rng::with_seed(7);
    let shape = Shape::image(batch, model.image_channels(), sides).expect("small");
    let image = Tensor::from_fn(shape, |_| random.f32());
    model.input(&image, 0.1).expect("it takes the image")
}

fn run(plan: &dyn EnginePlan, input: &Tensor) -> Vec<f32> {
    let mut output = vec![f32::NAN; plan.output_shape().count()];
    plan.run(input.values(), &mut output, &mut plan.scratch()).expect("it runs");
    output
}

fn plan(
    engine: &dyn Engine,
    model: &Model,
    input: &Tensor,
) -> haloscope_nn::Result<std::sync::Arc<dyn EnginePlan>> {
    let options = EngineOptions { accuracy: Accuracy::Strict, ..EngineOptions::default() };
    engine.plan(model.network(), input.shape(), &options)
}

fn assert_near(one: &[f32], other: &[f32]) {
    assert_eq!(one.len(), other.len());
    let apart = one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-4, "{apart}");
}

#[test]
fn the_library_has_the_places_of_the_bindings() {
    let source = include_str!("files/gpu.rs");
    macro_rules! check {
        ($($name:literal: $field:ident),* $(,)?) => {$(
            let place = std::mem::offset_of!(ort::sys::OrtApi, $field) / size_of::<usize>();
            let line = format!("pub const {}: usize = {place};", $name);
            assert!(source.contains(&line), "{line}");
        )*};
    }
    check!(
        "CREATE_STATUS": CreateStatus,
        "CREATE_ENV_WITH_CUSTOM_LOGGER": CreateEnvWithCustomLogger,
        "RUN": Run,
        "GET_DIMENSIONS": GetDimensions,
        "GET_TENSOR_TYPE_AND_SHAPE": GetTensorTypeAndShape,
        "RELEASE_TENSOR_TYPE_AND_SHAPE_INFO": ReleaseTensorTypeAndShapeInfo,
        "GET_AVAILABLE_PROVIDERS": GetAvailableProviders,
        "RELEASE_AVAILABLE_PROVIDERS": ReleaseAvailableProviders,
        "APPEND_CUDA": SessionOptionsAppendExecutionProvider_CUDA_V2,
        "CREATE_CUDA_OPTIONS": CreateCUDAProviderOptions,
        "UPDATE_CUDA_OPTIONS": UpdateCUDAProviderOptions,
        "RELEASE_CUDA_OPTIONS": ReleaseCUDAProviderOptions,
    );
}

#[test]
fn images_go_to_a_device_together_and_its_memory_is_told_apart() {
    if !is_child() {
        on_gpu("images_go_to_a_device_together_and_its_memory_is_told_apart", &[]);
        return;
    }
    assert_eq!(Library::load().expect("loaded").providers()[0], "CUDAExecutionProvider");
    let names: Vec<String> = gpus().expect("GPUs").iter().map(ToString::to_string).collect();
    assert_eq!(names, ["CUDA device 0", "CUDA device 1", "CUDA device 2"]);
    let engine = engine();
    assert_eq!(Engine::device(&engine), "CUDA device 1");
    assert!(engine.kind().ends_with("CUDA in f32"), "{}", engine.kind());
    let model = Builtin::Color.model().expect("built in");
    let images = input(&model, 5, &[45, 37]);
    let (cpu, gpu) = (plan(&Cpu::default(), &model, &images), plan(&engine, &model, &images));
    let gpu = gpu.expect("a plan");
    assert_near(&run(&*cpu.expect("a plan"), &images), &run(&*gpu, &images));
    let memory = gpu.memory();
    assert_eq!((memory.weights, memory.activations), (0, 0));
    assert!(memory.workspace > 0 && memory.device > 4 * model.network().parameters());
    let options = EngineOptions::default();
    let bytes = engine.bytes(model.network(), images.shape(), &options).expect("bytes");
    assert_eq!(bytes, memory.total());
    let one = plan(&engine, &model, &input(&model, 1, &[45, 37])).expect("a plan");
    assert!(one.memory().device < memory.device);
}

#[test]
fn images_that_do_not_fit_together_go_in_halves() {
    if !is_child() {
        on_gpu("images_that_do_not_fit_together_go_in_halves", &[("GPU_IMAGES", "2")]);
        return;
    }
    let model = Builtin::Gray.model().expect("built in");
    let (engine, images) = (engine(), input(&model, 9, &[33, 20]));
    let gpu = plan(&engine, &model, &images).expect("two at once fit");
    let cpu = plan(&Cpu::default(), &model, &images).expect("a plan");
    assert_near(&run(&*cpu, &images), &run(&*gpu, &images));
    // Known before the first run.
    let two = plan(&engine, &model, &input(&model, 2, &[33, 20])).expect("a plan");
    assert_eq!(gpu.memory().device, two.memory().device);
}

#[test]
fn an_image_that_does_not_fit_is_refused_when_it_is_planned() {
    if !is_child() {
        on_gpu("an_image_that_does_not_fit_is_refused_when_it_is_planned", &[("GPU_IMAGES", "0")]);
        return;
    }
    let model = Builtin::Gray.model().expect("built in");
    let error = plan(&engine(), &model, &input(&model, 4, &[33, 20])).expect_err("no memory");
    let error = error.to_string();
    assert!(error.contains("CUDA device 1: CUDA failure 2: out of memory"), "{error}");
    assert!(error.contains("make tiles smaller") && !error.contains("hostname"), "{error}");
}

#[test]
fn a_file_of_one_image_gets_one_at_a_time() {
    if !is_child() {
        on_gpu("a_file_of_one_image_gets_one_at_a_time", &[("GPU_IMAGES", "1")]);
        return;
    }
    let model = open(&files().join("fixed.onnx"), &FileOptions::default()).expect("a denoiser");
    let engine = engine();
    let cpu = OnnxRuntime::new(Device::default()).expect("the CPU");
    let images = input(&model, 3, &[20, 30]);
    let gpu = plan(&engine, &model, &images).expect("a plan");
    assert_near(
        &run(&*plan(&cpu, &model, &images).expect("a plan"), &images),
        &run(&*gpu, &images),
    );
    let one = plan(&engine, &model, &input(&model, 1, &[20, 30])).expect("a plan");
    assert_eq!(gpu.memory(), one.memory());
    let options = EngineOptions::default();
    let bytes = engine.bytes(model.network(), images.shape(), &options).expect("bytes");
    assert_eq!(bytes, gpu.memory().total());
}
