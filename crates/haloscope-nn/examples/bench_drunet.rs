//! Times a network with random weights and says where the time goes.
//!
//! `cargo run --release --example bench_drunet -- [SIZE] [THREADS] [REPETITIONS] [BATCH] [BUDGET_MB]
//! [MODEL]`, with the models `drunet`, `dncnn`, `unet` and `drunet3d`. Times are minima over the
//! repetitions. With `STEPS` in the environment every step is listed, with `STRICT` the accuracy is
//! strict.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haloscope_nn::Shape;
use haloscope_nn::engine::{Accuracy, Options, Plan};
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Unet};

fn main() -> Result<(), haloscope_nn::Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let [size, threads] = [number(0, 256), number(1, 1)];
    let [repetitions, batch, budget] = [number(2, 5), number(3, 1), number(4, 0)];
    let name = arguments.get(5).map_or("drunet", String::as_str);
    let volume = Drunet { rank: 3, image_channels: 1, output_channels: 1, ..Drunet::default() };
    let model = match name {
        "dncnn" => Dncnn::default().random(1)?,
        "unet" => Unet::default().random(1)?,
        "drunet3d" => volume.random(1)?,
        _ => Drunet::default().random(1)?,
    };
    let network = model.network();
    let shape = Shape::image(batch, network.input_channels(), &vec![size; network.rank()])?;
    let strict = std::env::var_os("STRICT").is_some();
    let options = Options {
        threads,
        memory_budget: (budget > 0).then_some(budget * 1_000_000),
        accuracy: if strict { Accuracy::Strict } else { Accuracy::Fast },
        ..Options::default()
    };
    let before = resident("VmRSS");
    let start = Instant::now();
    let plan = Plan::new(network, &shape, &options)?;
    println!(
        "{name} {shape}, {threads} threads: planned in {:.3} s",
        start.elapsed().as_secs_f64()
    );
    let memory = plan.memory();
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    println!(
        "memory: weights {:.1} MB, activations {:.1} MB, workspace {:.1} MB; {:.1} GFLOP",
        megabytes(memory.weights),
        megabytes(memory.activations),
        megabytes(memory.workspace),
        plan.flops() / 1e9
    );

    let mut scratch = plan.scratch();
    let input: Vec<f32> = (0..plan.input_shape().count()).map(|i| (i % 97) as f32 / 97.0).collect();
    let mut output = vec![0.0; plan.output_shape().count()];
    let mut best = Duration::MAX;
    let mut steps = vec![Duration::MAX; plan.steps().len()];
    for _ in 0..repetitions {
        let start = Instant::now();
        let mut index = 0;
        let mut last = processor_time();
        plan.run_observed(&input, &mut output, &mut scratch, &mut |_, time| {
            let now = processor_time();
            // On one thread the time on the processor is what the step took, however busy the
            // machine is.
            let own = now.and_then(|now| last.map(|last| now.saturating_sub(last)));
            let time = own.filter(|_| threads == 1).unwrap_or(time);
            last = now;
            steps[index] = time.min(steps[index]);
            index += 1;
        })?;
        best = best.min(start.elapsed());
    }
    let gigaflops = plan.flops() / best.as_secs_f64() / 1e9;
    println!("run: {:.1} ms, {gigaflops:.0} effective GFLOP/s", best.as_secs_f64() * 1e3);
    if let (Some(before), Some(after)) = (before, resident("VmHWM")) {
        println!(
            "predicted {:.1} MB, measured {:.1} MB",
            megabytes(memory.total() + (input.len() + output.len()) * 4),
            megabytes(after - before)
        );
    }
    breakdown(&plan, &steps);
    Ok(())
}

/// The memory of the process, where the system tells: now (`VmRSS`) or at most so far (`VmHWM`).
fn resident(which: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(which))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The time that this thread has spent on a processor, where the system tells.
fn processor_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock exists on Linux, and the structure is valid.
        let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
        (status == 0).then_some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanoseconds))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Prints the time of steps of the same kind and size.
fn breakdown(plan: &Plan, times: &[Duration]) {
    let mut groups: BTreeMap<String, (u32, Duration, f64)> = BTreeMap::new();
    for (step, time) in plan.steps().iter().zip(times) {
        if std::env::var_os("STEPS").is_some() {
            println!("{:8.3} ms  {step:?}", time.as_secs_f64() * 1e3);
        }
        let key = format!("{:5.2} GFLOP {}", step.flops() / 1e9, step.method());
        let group = groups.entry(key).or_default();
        *group = (group.0 + 1, group.1 + *time, group.2 + step.flops());
    }
    for (key, (count, time, flops)) in groups {
        println!(
            "{count:3} × {key}: {:.2} ms each, {:.1} ms in all, {:.0} GFLOP/s",
            (time / count).as_secs_f64() * 1e3,
            time.as_secs_f64() * 1e3,
            flops / time.as_secs_f64() / 1e9
        );
    }
    let sum: Duration = times.iter().sum();
    println!("sum of the steps' minima: {:.1} ms", sum.as_secs_f64() * 1e3);
}
