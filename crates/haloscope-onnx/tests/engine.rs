//! ONNX Runtime as an engine against the CPU engine, on the library that `ORT_DYLIB_PATH` names; `make onnx` provides one.

use std::sync::Arc;

use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions, EnginePlan};
use haloscope_nn::models::{Architecture, Builtin, Dncnn, Drunet, Model, Unet};
use haloscope_nn::{Error, Shape, Stop, Tensor};
use haloscope_onnx::{Device, Library, OnnxRuntime, Precision, Provider};

/// The engine, if there is a library for it.
fn engine(precision: Precision) -> Option<OnnxRuntime> {
    if std::env::var_os("ORT_DYLIB_PATH").is_none() {
        println!("skipped: ONNX Runtime as an engine, which needs ORT_DYLIB_PATH");
        return None;
    }
    let device = Device { precision, ..Device::default() };
    Some(OnnxRuntime::new(device).expect("the library is there"))
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

fn planned(
    engine: &dyn Engine,
    model: &Model,
    input: &Tensor,
    threads: usize,
) -> Arc<dyn EnginePlan> {
    let options = EngineOptions { threads, accuracy: Accuracy::Strict, ..EngineOptions::default() };
    engine.plan(model.network(), input.shape(), &options).expect("a plan")
}

/// The greatest difference, as a part of the greatest value.
fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let greatest = |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, f32::max);
    let apart = ours.iter().zip(theirs).map(|(one, other)| (one - other).abs());
    assert!(theirs.iter().all(|value| value.is_finite()));
    greatest(&mut { apart }) / greatest(&mut ours.iter().map(|value| value.abs()))
}

fn models() -> Vec<(Model, Vec<usize>)> {
    let volume = Drunet {
        rank: 3,
        image_channels: 1,
        output_channels: 1,
        channels: [8, 12, 16, 20],
        blocks: 1,
        ..Drunet::default()
    };
    let unet = Unet { channels: vec![8, 16, 32], ..Unet::default() };
    let dncnn = Dncnn { depth: 5, channels: 16, ..Dncnn::default() };
    vec![
        (Builtin::Color.model().expect("built in"), vec![45, 37]),
        (Builtin::Gray.model().expect("built in"), vec![3, 70]),
        (volume.random(1).expect("valid"), vec![13, 10, 17]),
        (unet.random(1).expect("valid"), vec![33, 50]),
        (dncnn.random(1).expect("valid"), vec![21, 30]),
    ]
}

#[test]
fn networks_have_the_values_of_the_cpu_engine_whatever_the_size() {
    let Some(engine) = engine(Precision::F32) else { return };
    for (model, sides) in models() {
        let input = input(&model, 2, &sides);
        let cpu = run(&*planned(&Cpu::default(), &model, &input, 1), &input);
        let plan = planned(&engine, &model, &input, 1);
        let error = difference(&cpu, &run(&*plan, &input));
        assert!(error < 1e-5, "{}: {error:e}", model.network().name());
        let flops = planned(&Cpu::default(), &model, &input, 1).flops();
        assert!((plan.flops() / flops - 1.0).abs() < 0.01, "{} {flops}", plan.flops());
    }
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_batch_nor_on_other_runs() {
    let Some(engine) = engine(Precision::F32) else { return };
    for (model, sides) in models() {
        let images = input(&model, 3, &sides);
        let plan = planned(&engine, &model, &images, 1);
        let together = run(&*plan, &images);
        for threads in [2, 3, 5] {
            let result = run(&*planned(&engine, &model, &images, threads), &images);
            assert!(result == together, "{threads} threads, {}", model.network().name());
        }
        let (taken, given) = (images.values().len() / 3, together.len() / 3);
        let one = Shape::image(1, images.shape().channels(), &sides).expect("small");
        for (values, expected) in images.values().chunks(taken).zip(together.chunks(given)) {
            let image = Tensor::new(one.clone(), values.to_vec()).expect("one of them");
            assert!(run(&*planned(&engine, &model, &image, 1), &image) == expected);
        }
        // Several runs of one plan at once, each with a session of its own.
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| run(&*plan, &images))).collect();
            for result in runs {
                assert!(result.join().expect("no panic") == together);
            }
        });
    }
}

#[test]
fn half_precision_is_near_and_not_the_same() {
    let (Some(full), Some(half)) = (engine(Precision::F32), engine(Precision::F16)) else { return };
    // The built-in ones, which come first, have weights that are exact in half precision.
    for (model, sides) in models().into_iter().skip(2) {
        let input = input(&model, 1, &sides);
        let result = run(&*planned(&full, &model, &input, 1), &input);
        let error = difference(&result, &run(&*planned(&half, &model, &input, 1), &input));
        assert!((1e-6..2e-2).contains(&error), "{}: {error:e}", model.network().name());
    }
}

#[test]
fn what_a_plan_takes_is_known_and_a_budget_is_kept() {
    let Some(engine) = engine(Precision::F32) else { return };
    let model = Builtin::Color.model().expect("built in");
    let input = input(&model, 4, &[64, 64]);
    let plan = planned(&engine, &model, &input, 1);
    let memory = plan.memory();
    assert_eq!(memory.weights, 4 * model.network().parameters());
    assert_eq!(memory.device, 0);
    let bytes = |input: &Tensor| {
        engine.bytes(model.network(), input.shape(), &EngineOptions::default()).expect("bytes")
    };
    assert_eq!(bytes(&input), memory.total());
    // One image at a time is in the session, whatever the batch.
    let one = self::input(&model, 1, &[64, 64]);
    assert_eq!(planned(&engine, &model, &one, 1).memory().activations, memory.activations);
    let budget = |bytes| {
        let options = EngineOptions { memory_budget: Some(bytes), ..EngineOptions::default() };
        engine.plan(model.network(), input.shape(), &options)
    };
    assert!(budget(memory.total()).is_ok());
    let error = budget(memory.total() - 1).expect_err("too little").to_string();
    assert!(error.contains(&memory.total().to_string()), "{error}");
}

#[test]
fn what_is_missing_is_named_in_one_line_and_nothing_falls_back() {
    if engine(Precision::F32).is_none() {
        return;
    }
    let library = Library::load().expect("loaded");
    assert!(library.version().starts_with("1."), "{}", library.version());
    assert!(library.providers().contains(&"CPUExecutionProvider"));
    for provider in Provider::ALL {
        if library.providers().contains(&provider.name()) {
            continue;
        }
        let error = OnnxRuntime::new(Device { provider, ..Device::default() });
        let error = error.expect_err("the library lacks it").to_string();
        assert!(
            error.contains(provider.name()) && error.contains("pip install")
                || error.contains("macOS")
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let tf32 = Device { precision: Precision::Tf32, ..Device::default() };
    let error = OnnxRuntime::new(tf32).expect_err("a CPU").to_string();
    assert!(error.contains("tf32") && error.contains("f16"), "{error}");
}

#[test]
fn a_request_to_stop_ends_a_run_and_wrong_lengths_are_refused() {
    let Some(engine) = engine(Precision::F32) else { return };
    let model = Builtin::Gray.model().expect("built in");
    let input = input(&model, 2, &[16, 16]);
    let plan = planned(&engine, &model, &input, 1);
    let mut output = vec![0.0; plan.output_shape().count()];
    let stop = Stop::default();
    stop.request();
    let result = stop.watch(|| plan.run(input.values(), &mut output, &mut plan.scratch()));
    assert_eq!(result, Err(Error::Interrupted));
    let result = plan.run(&input.values()[1..], &mut output, &mut plan.scratch());
    assert!(result.is_err_and(|error| error.to_string().contains("2×2×16×16")));
    let mut other = Cpu::default()
        .plan(model.network(), input.shape(), &EngineOptions::default())
        .expect("a plan")
        .scratch();
    let result = plan.run(input.values(), &mut output, &mut other);
    assert!(result.is_err_and(|error| error.to_string().contains("another engine")));
}
