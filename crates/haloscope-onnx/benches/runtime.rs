//! Seconds per forward pass on ONNX Runtime's CPU provider through this crate, as lines of JSON for `bench/compare.py`.
//!
//! `bench_runtime run --threads N [--repeats N]`, or `bench_runtime export FOLDER`, which writes the same networks as files
//! for `bench/peers/exported.py`, which runs them in Python.

use std::time::{Duration, Instant};

use haloscope_nn::engine::{Engine, EngineOptions};
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Model, Sigma, Unet};
use haloscope_nn::{Result, Shape};
use haloscope_onnx::{Device, OnnxRuntime, Size, encode};

/// A network by the name of its file, with the shape of its input, the noise map included.
type Case = (&'static str, fn() -> Result<Model>, [usize; 4]);

const CASES: [Case; 3] = [
    ("DRUNet-256", || Drunet::default().random(0), [1, 4, 256, 256]),
    ("DnCNN-20-256", || Dncnn::default().random(0), [1, 3, 256, 256]),
    (
        "UNet-256",
        || Unet { image_channels: 3, output_channels: 3, ..Unet::default() }.random(0),
        [1, 3, 256, 256],
    ),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: usize| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    match &arguments[..] {
        [word, folder] if word == "export" => export(folder),
        [word, ..] if word == "run" => run(number("--threads", 1), number("--repeats", 3)),
        _ => panic!("run --threads N, or export FOLDER, is needed"),
    }
}

fn export(folder: &str) -> Result<()> {
    for (name, build, shape) in CASES {
        let size = Size::Fixed { batch: shape[0], sides: shape[2..].to_vec() };
        let network = Model::new(build()?.into_network(), Sigma::Ignored);
        let file = format!("{folder}/{name}.onnx");
        std::fs::write(&file, encode(&network, &size)?)
            .unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    Ok(())
}

fn run(threads: usize, repeats: usize) -> Result<()> {
    let engine = OnnxRuntime::new(Device::default())?;
    for (name, build, shape) in CASES {
        let shape = Shape::new(shape)?;
        let mut random = fastrand::Rng::with_seed(1);
        let input: Vec<f32> = (0..shape.count()).map(|_| random.f32()).collect();
        let options = EngineOptions { threads, ..EngineOptions::default() };
        let plan = engine.plan_consuming(build()?.into_network(), &shape, &options)?;
        let mut output = vec![0.0; plan.output_shape().count()];
        let mut scratch = plan.scratch();
        let mut best = Duration::MAX;
        // The first round warms up.
        for round in 0..=repeats {
            let begin = Instant::now();
            plan.run(&input, &mut output, &mut scratch)?;
            if round > 0 {
                best = best.min(begin.elapsed());
            }
        }
        println!(
            "{{\"case\": \"{name}, {threads} threads\", \"seconds\": {}}}",
            best.as_secs_f64()
        );
    }
    Ok(())
}
