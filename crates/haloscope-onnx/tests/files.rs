//! ONNX files of others: what PyTorch exported has PyTorch's values, and what is no denoiser is refused. `make.py` in the
//! folder of the files makes them. The library is the one that `ORT_DYLIB_PATH` names.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Model, Sigma};
use haloscope_nn::{Footprint, Shape, Tensor};
use haloscope_onnx::{Device, FileOptions, OnnxRuntime, open};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

fn has_library() -> bool {
    let has = std::env::var_os("ORT_DYLIB_PATH").is_some();
    if !has {
        println!("skipped: ONNX files of others, which need ORT_DYLIB_PATH");
    }
    has
}

fn opened(name: &str, options: &[(&str, &str)]) -> Model {
    open(&folder().join(name), &with(options)).unwrap_or_else(|error| panic!("{error}"))
}

fn with(options: &[(&str, &str)]) -> FileOptions {
    let mut all = FileOptions::default();
    for (key, value) in options {
        all.set(key, value).expect("an option");
    }
    all
}

/// The image of `make.py`.
fn image(shape: &[usize]) -> Tensor {
    let shape = Shape::new(shape.to_vec()).expect("small");
    let values: Vec<f32> = (0..shape.count()).map(|at| (at * 37 % 101) as f32 / 101.0).collect();
    Tensor::new(shape, values).expect("as many")
}

fn denoise(model: &Model, image: &Tensor, level: f32) -> Vec<f32> {
    let engine = OnnxRuntime::new(Device::default()).expect("a library");
    let input = model.input(image, level).expect("it takes the image");
    let plan = engine.plan(model.network(), input.shape(), &EngineOptions::default());
    let plan = plan.unwrap_or_else(|error| panic!("{error}"));
    let mut output = vec![f32::NAN; plan.output_shape().count()];
    plan.run(input.values(), &mut output, &mut plan.scratch()).expect("it runs");
    output
}

/// The greatest difference from what PyTorch made of an image.
fn difference(name: &str, result: &[f32]) -> f32 {
    let bytes = std::fs::read(folder().join(format!("{name}.expected"))).expect("a file");
    let expected =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("4")));
    assert_eq!(expected.len(), result.len());
    expected.zip(result).map(|(one, other)| (one - other).abs()).fold(0.0, |most, apart| {
        assert!(apart.is_finite());
        f32::max(most, apart)
    })
}

/// Name, shape, how the level enters, alignment, what is said of the file, and how near the values are.
type Case = (&'static str, [usize; 4], Sigma, usize, &'static [(&'static str, &'static str)], f32);

#[test]
fn networks_have_the_values_of_pytorch() {
    if !has_library() {
        return;
    }
    let cases: [Case; 5] = [
        ("dncnn", [1, 1, 37, 50], Sigma::Ignored, 1, &[], 1e-5),
        ("swin", [1, 3, 40, 48], Sigma::Map, 8, &[], 1e-5),
        ("fixed", [1, 3, 32, 32], Sigma::Map, 1, &[], 1e-5),
        // The file computes in half precision, and PyTorch here did not.
        ("half", [1, 3, 37, 50], Sigma::Map, 1, &[], 5e-3),
        ("last", [1, 3, 37, 50], Sigma::Ignored, 1, &[("white", "255")], 1e-5),
    ];
    for (name, shape, sigma, alignment, options, accuracy) in cases {
        let model = opened(&format!("{name}.onnx"), options);
        assert_eq!((model.image_channels(), model.sigma()), (shape[1], sigma), "{name}");
        assert_eq!(
            Footprint::of(model.network()).expect("aligned").alignment,
            [alignment; 2],
            "{name}"
        );
        assert!(model.network().parameters() > 500, "{name}");
        let error = difference(name, &denoise(&model, &image(&shape), 0.1));
        assert!(error < accuracy, "{name}: {error:e}");
    }
}

#[test]
fn any_size_goes_through_any_network() {
    if !has_library() {
        return;
    }
    // Windows of 32 that overlap by 8 on either side, for a network that sees 3 pixels far.
    let model = opened("fixed.onnx", &[]);
    let error = difference("fixed-large", &denoise(&model, &image(&[1, 3, 50, 75]), 0.1));
    assert!(error < 1e-5, "{error:e}");
    let foreign = model.network().foreign().expect("a file");
    assert_eq!(foreign.fixed_sides(), Some(&[32, 32][..]));
    // Smaller than a window, and no multiple of the alignment.
    for (name, channels) in [("fixed", 3), ("swin", 3), ("dncnn", 1)] {
        let model = opened(&format!("{name}.onnx"), &[]);
        let result = denoise(&model, &image(&[2, channels, 21, 43]), 0.1);
        assert!(result.iter().all(|value| value.is_finite()), "{name}");
    }
}

#[test]
fn images_of_a_batch_have_levels_of_their_own() {
    if !has_library() {
        return;
    }
    let model = opened("swin.onnx", &[]);
    let engine = OnnxRuntime::new(Device::default()).expect("a library");
    let [first, second] =
        [0.1, 0.3].map(|level| model.input(&image(&[1, 3, 16, 24]), level).expect("small"));
    let shape = Shape::new([2, 4, 16, 24]).expect("small");
    let both = [first.values(), second.values()].concat();
    let plan = engine.plan(model.network(), &shape, &EngineOptions::default()).expect("a plan");
    let mut output = vec![0.0; plan.output_shape().count()];
    plan.run(&both, &mut output, &mut plan.scratch()).expect("it runs");
    let alone = [0.1, 0.3].map(|level| denoise(&model, &image(&[1, 3, 16, 24]), level)).concat();
    assert!(output == alone);
    assert!(output[..3 * 16 * 24] != output[3 * 16 * 24..]);
    // A level for each pixel is more than it can be told.
    let mut map = both.clone();
    map[3 * 16 * 24] = 0.2;
    let error = plan.run(&map, &mut output, &mut plan.scratch()).expect_err("a map").to_string();
    assert!(error.contains("one for each image"), "{error}");
}

#[test]
fn memory_and_work_grow_with_the_image_and_other_engines_refuse() {
    if !has_library() {
        return;
    }
    let model = opened("dncnn.onnx", &[]);
    let engine = OnnxRuntime::new(Device::default()).expect("a library");
    let plan = |side: usize| {
        let shape = Shape::new([1, 1, side, side]).expect("small");
        engine.plan(model.network(), &shape, &EngineOptions::default()).expect("a plan")
    };
    let (small, large) = (plan(64), plan(128));
    assert!((large.flops() / small.flops() - 4.0).abs() < 1e-9);
    let bytes = |side: usize| plan(side).memory().activations as f64 / (side * side) as f64;
    // Two layers of eight channels are alive at once, and the image.
    assert!((64.0..100.0).contains(&bytes(64)), "{}", bytes(64));
    assert!((bytes(64) - bytes(128)).abs() < 1.0);
    let shape = Shape::new([1, 1, 32, 32]).expect("small");
    let (cpu, options) = (Cpu::default(), EngineOptions::default());
    let network = model.network();
    for error in [
        cpu.plan(network, &shape, &options).expect_err("another's"),
        cpu.plan_waves(network, &shape, &options).expect_err("another's"),
        cpu.plan_within(Cow::Borrowed(network), &shape, &options).expect_err("another's"),
        cpu.bytes(network, &shape, &options).expect_err("another's"),
    ] {
        assert!(error.to_string().contains("onnxruntime"), "{error}");
    }
    assert!(engine.grains(model.network(), &shape, &EngineOptions::default()).is_err());
}

#[test]
fn wrong_files_are_refused_with_the_reason() {
    if !has_library() {
        return;
    }
    let cases = [
        ("no-image-output", "no denoiser"),
        ("two-images", "`image` and `level`"),
        ("three-inputs", "3 inputs"),
        ("wrong-channels", "takes 3 channels and gives 5"),
        ("unknown-operations", "999"),
        ("larger-output", "a denoiser gives the image's shape"),
        ("integers", "f32 (1) or f16 (10)"),
        ("four-at-once", "4 images at once"),
        ("huge-image", "1099511627776"),
        ("huge-weights", "more than are in the file"),
        ("weights-elsewhere", "beside the file"),
        ("huge-values", ""),
        ("not-finite", "not finite"),
        ("unknown-node", "Denoise"),
        ("truncated", "ends within a field"),
        ("no-onnx", "no ONNX file"),
        ("empty", "no graph"),
        ("absent", ""),
    ];
    for (name, reason) in cases {
        let path = folder().join(format!("wrong/{name}.onnx"));
        let error = open(&path, &FileOptions::default()).expect_err(name).to_string();
        println!("{error}");
        assert!(error.contains(reason) && error.contains(&format!("{name}.onnx")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn options_settle_what_a_file_leaves_open() {
    if !has_library() {
        return;
    }
    let two = "wrong/two-images.onnx";
    let model = opened(two, &[("image", "x"), ("level", "z")]);
    assert_eq!(model.sigma(), Sigma::Map);
    // The sum of the image and the level.
    let result = denoise(&model, &image(&[1, 1, 8, 8]), 0.25);
    let expected: Vec<f32> =
        image(&[1, 1, 8, 8]).values().iter().map(|value| value + 0.25).collect();
    assert_eq!(result, expected);
    let refused = |name: &str, options: &[(&str, &str)]| {
        open(&folder().join(name), &with(options)).expect_err("refused").to_string()
    };
    assert!(refused("dncnn.onnx", &[("image", "u")]).contains("there are noisy"));
    assert!(refused("dncnn.onnx", &[("noise", "map")]).contains("no input for it"));
    assert!(refused("dncnn.onnx", &[("channels", "3")]).contains("1 channels"));
    assert!(refused("swin.onnx", &[("alignment", "4")]).contains("no size that was tried"));
    assert_eq!(
        Footprint::of(opened("swin.onnx", &[("alignment", "16")]).network())
            .expect("aligned")
            .alignment,
        [16; 2]
    );
}
