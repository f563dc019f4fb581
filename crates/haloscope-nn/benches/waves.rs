//! DRUNet in waves against the whole image: memory and seconds, as lines of JSON.
//!
//! `bench_waves [--threads N] [--budget MB] [--repeats N] [--compare] [--apart] [--plan] WIDTH HEIGHT …`. Waves read an image that is never in
//! memory and drop the result, so the peak of the process is theirs and that of the weights; each height is best measured
//! by a process of its own. With `--apart`, rows of skip connections are kept apart; with `--plan`, nothing runs. With `--compare` the whole image runs in turn with the waves, and bits are compared.

use std::ops::Range;
use std::time::{Duration, Instant};

use haloscope_nn::engine::{Cpu, Engine, EngineOptions, EnginePlan};
use haloscope_nn::models::{Architecture, Drunet};
use haloscope_nn::{Result, Shape};

fn main() -> Result<()> {
    let mut options = EngineOptions::default();
    let (mut repeats, mut compares, mut runs, mut sizes) = (1, false, true, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|text| text.parse::<usize>().ok());
            value.unwrap_or_else(|| panic!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--threads" => options.threads = number(),
            "--budget" => options.memory_budget = Some(number() * 1_000_000),
            "--repeats" => repeats = number(),
            "--compare" => compares = true,
            "--apart" => options.skips_apart = true,
            "--plan" => runs = false,
            size => sizes.push(size.parse().unwrap_or_else(|_| panic!("{size} is not a size"))),
        }
    }
    let (width, heights) = sizes.split_first().expect("a width and heights");
    let model = Drunet::default().random(0)?;
    let engine = Cpu::default();
    for &height in heights {
        let shape = Shape::new([1, 4, height, *width])?;
        let plan = engine.plan_waves(model.network(), &shape, &options)?;
        let waves = plan.waves().expect("it was asked for");
        let mut line = serde_json::json!({
            "width": width, "height": height, "threads": options.threads,
            "band": waves.band, "waves": waves.count, "delay": waves.delay(),
            "predicted_mb": plan.memory().total() as f64 / 1e6,
            "activations_mb": plan.memory().activations as f64 / 1e6,
            "apart_mb": plan.memory().apart as f64 / 1e6,
        });
        if compares {
            let whole = EngineOptions { memory_budget: None, ..options.clone() };
            let whole = engine.plan(model.network(), &shape, &whole)?;
            let [waves, whole] = compare([&*plan, &*whole], repeats)?;
            line["whole_seconds"] = whole.as_secs_f64().into();
            line["seconds"] = waves.as_secs_f64().into();
            line["ratio"] = (waves.as_secs_f64() / whole.as_secs_f64()).into();
        } else if runs {
            line["seconds"] = stream(&*plan)?.as_secs_f64().into();
            // The network's own weights and the program are in memory, too.
            line["own_weights_mb"] = (model.network().parameters() as f64 * 4e-6).into();
            line["peak_mb"] = peak_megabytes().into();
        }
        println!("{line}");
    }
    Ok(())
}

/// The least seconds of both plans in turn, after a round that warms up and compares the results.
fn compare(plans: [&dyn EnginePlan; 2], repeats: usize) -> Result<[Duration; 2]> {
    let mut random = fastrand::Rng::with_seed(1);
    let input: Vec<f32> = (0..plans[0].input_shape().count()).map(|_| random.f32()).collect();
    let mut scratches = plans.map(EnginePlan::scratch);
    let mut outputs = plans.map(|plan| vec![0.0; plan.output_shape().count()]);
    let mut best = [Duration::MAX; 2];
    for round in 0..=repeats {
        for (index, plan) in plans.iter().enumerate() {
            let begin = Instant::now();
            plan.run(&input, &mut outputs[index], &mut scratches[index])?;
            if round > 0 {
                best[index] = best[index].min(begin.elapsed());
            }
        }
    }
    let equal = outputs[0].iter().zip(&outputs[1]).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(equal, "waves have other bits than the whole");
    Ok(best)
}

/// Runs waves on an image that is made band by band.
fn stream(plan: &dyn EnginePlan) -> Result<Duration> {
    let begin = Instant::now();
    let mut random = fastrand::Rng::with_seed(1);
    let mut read = |_: Range<usize>, band: &mut [f32]| {
        band.fill_with(|| random.f32());
        Ok(())
    };
    plan.run_bands(&mut read, &mut |_, _| Ok(()), &mut plan.scratch(), &mut |_, _| ())?;
    Ok(begin.elapsed())
}

/// The most memory that the process has had; 0 where the system does not tell.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024e-6
}
