//! Seconds per forward pass of whole networks, as lines of JSON for `bench/compare.py`.
//!
//! `bench_networks [--threads N] [--copies N] [--repeats N] [--strict] [--budget MB] [--instructions SET]
//! [--steps] [CASE …]`; the cases and the random weights are like those of `bench/peers/networks.py`. With `--steps` the time of each step goes to
//! stderr, steps of the same kind and size summed up at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions, EnginePlan, InstructionSet};
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Model, Unet};
use haloscope_nn::{Result, Shape};

/// A network and the shape of its input, the noise map included.
struct Case {
    name: &'static str,
    build: fn() -> Result<Model>,
    shape: &'static [usize],
}

const CASES: [Case; 6] = [
    Case { name: "DRUNet 1×3×256²", build: drunet, shape: &[1, 4, 256, 256] },
    Case { name: "DRUNet 1×3×512²", build: drunet, shape: &[1, 4, 512, 512] },
    Case { name: "DRUNet 4×3×256²", build: drunet, shape: &[4, 4, 256, 256] },
    Case { name: "DnCNN-20 1×3×256²", build: dncnn, shape: &[1, 3, 256, 256] },
    Case { name: "UNet 1×3×256²", build: unet, shape: &[1, 3, 256, 256] },
    Case { name: "DRUNet 3-D 1×1×64³", build: drunet_3d, shape: &[1, 2, 64, 64, 64] },
];

fn drunet() -> Result<Model> {
    Drunet::default().random(0)
}

fn drunet_3d() -> Result<Model> {
    let (rank, image_channels, output_channels) = (3, 1, 1);
    let channels = [32, 64, 128, 256];
    Drunet { rank, image_channels, output_channels, channels, blocks: 2, ..Drunet::default() }
        .random(0)
}

fn dncnn() -> Result<Model> {
    Dncnn::default().random(0)
}

fn unet() -> Result<Model> {
    Unet { image_channels: 3, output_channels: 3, ..Unet::default() }.random(0)
}

/// What the command line asks for.
struct Request {
    options: EngineOptions,
    instructions: InstructionSet,
    repeats: usize,
    /// Runs side by side, as ranks of one machine would; seconds are then per image.
    copies: usize,
    /// Whether to say where the time goes.
    steps: bool,
    cases: Vec<String>,
}

impl Request {
    fn from_arguments() -> Self {
        let mut request = Self {
            options: EngineOptions::default(),
            instructions: InstructionSet::detect(),
            repeats: 3,
            copies: 1,
            steps: false,
            cases: vec![],
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value = arguments.next().and_then(|text| text.parse::<usize>().ok());
                value.unwrap_or_else(|| panic!("{argument} needs a number"))
            };
            match argument.as_str() {
                "--threads" => request.options.threads = number(),
                "--copies" => request.copies = number(),
                "--repeats" => request.repeats = number(),
                "--strict" => request.options.accuracy = Accuracy::Strict,
                "--instructions" => {
                    let name = arguments.next().unwrap_or_default();
                    request.instructions = name.parse().unwrap_or_else(|error| panic!("{error}"));
                }
                "--steps" => request.steps = true,
                "--budget" => request.options.memory_budget = Some(number() * 1_000_000),
                _ => request.cases.push(argument),
            }
        }
        request
    }
}

fn main() -> Result<()> {
    let request = Request::from_arguments();
    report_peak();
    for case in CASES {
        if request.cases.is_empty() || request.cases.iter().any(|name| name == case.name) {
            measure(&case, &request)?;
        }
    }
    Ok(())
}

fn measure(case: &Case, request: &Request) -> Result<()> {
    let shape = Shape::new(case.shape)?;
    let mut random = fastrand::Rng::with_seed(1);
    let input: Vec<f32> = (0..shape.count()).map(|_| random.f32()).collect();
    let before = status_bytes("VmRSS:");
    let network = (case.build)()?.into_network();
    let begin = Instant::now();
    let engine = Cpu::with_instructions(request.instructions)?;
    let plan = engine.plan_consuming(network, &shape, &request.options)?;
    let planning = begin.elapsed();
    let count = plan.output_shape().count();
    let mut places: Vec<_> =
        (0..request.copies).map(|_| (vec![0.0; count], plan.scratch())).collect();
    let mut best = Duration::MAX;
    // The first round warms up.
    for round in 0..=request.repeats {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let (plan, input) = (&plan, &input);
            let runs: Vec<_> = (places.iter_mut())
                .map(|(output, scratch)| scope.spawn(move || plan.run(input, output, scratch)))
                .collect();
            runs.into_iter().try_for_each(|run| run.join().expect("no run panics"))
        })?;
        if round > 0 {
            best = best.min(begin.elapsed());
        }
    }
    let threads = request.options.threads;
    let seconds = best.as_secs_f64() / request.copies as f64;
    let plural = if threads > 1 { "s" } else { "" };
    let line = serde_json::json!({
        "case": format!("{}, {threads} thread{plural}", case.name),
        "seconds": seconds,
        "instructions": request.instructions.to_string(),
        "planning_seconds": planning.as_secs_f64(),
        "effective_gflops": plan.flops() / seconds / 1e9,
        "predicted_mb": (plan.memory().total() + 4 * count) as f64 / 1e6,
        "measured_mb": status_bytes("VmHWM:").saturating_sub(before) as f64 / 1e6,
        "peak_mb": status_bytes("VmHWM:") as f64 / 1e6,
    });
    println!("{line}");
    if request.steps {
        profile(&*plan, &input, request)?;
    }
    Ok(())
}

/// Prints the least time of each step, and of all steps of the same kind and size.
fn profile(plan: &dyn EnginePlan, input: &[f32], request: &Request) -> Result<()> {
    let mut output = vec![0.0; plan.output_shape().count()];
    let mut scratch = plan.scratch();
    let mut times = vec![Duration::MAX; plan.steps().len()];
    for _ in 0..=request.repeats {
        let mut index = 0;
        let mut last = processor_time();
        plan.run_observed(input, &mut output, &mut scratch, &mut |_, elapsed| {
            let now = processor_time();
            // On one thread the time on the processor is what the step took, however busy the
            // machine is; with more it would not count the others.
            let own = now.zip(last).map(|(now, last)| now.saturating_sub(last));
            let time = own.filter(|_| request.options.threads == 1).unwrap_or(elapsed);
            (last, times[index]) = (now, times[index].min(time));
            index += 1;
        })?;
    }
    let mut groups: BTreeMap<String, (u32, Duration, f64)> = BTreeMap::new();
    for (step, &time) in plan.steps().iter().zip(&times) {
        eprintln!("{:8.3} ms  {step:?}", time.as_secs_f64() * 1e3);
        let key = format!("{:5.2} GFLOP {}", step.flops() / 1e9, step.method());
        let (count, sum, flops) = groups.entry(key).or_default();
        (*count, *sum, *flops) = (*count + 1, *sum + time, *flops + step.flops());
    }
    for (key, (count, sum, flops)) in groups {
        eprintln!(
            "{count:3} × {key}: {:.2} ms each, {:.1} ms in all, {:.0} GFLOP/s",
            (sum / count).as_secs_f64() * 1e3,
            sum.as_secs_f64() * 1e3,
            flops / sum.as_secs_f64() / 1e9
        );
    }
    let sum: Duration = times.iter().sum();
    eprintln!("sum of the steps' least times: {:.1} ms", sum.as_secs_f64() * 1e3);
    Ok(())
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

/// What one core does at most, as a line of its own that is not a case.
#[cfg(target_arch = "x86_64")]
fn report_peak() {
    /// Twelve sums of eight floats: enough to keep two multiply-add units busy.
    #[target_feature(enable = "avx2,fma")]
    fn multiply_add(rounds: usize, factor: f32) -> [[f32; 8]; 12] {
        let mut sums = [[1.0_f32; 8]; 12];
        for _ in 0..rounds {
            for sum in &mut sums {
                for value in sum {
                    *value = value.mul_add(factor, 0.5);
                }
            }
        }
        sums
    }

    if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("fma") {
        return;
    }
    let rounds = 2_000_000;
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let begin = Instant::now();
        // SAFETY: the features are there.
        std::hint::black_box(unsafe { multiply_add(rounds, std::hint::black_box(0.5)) });
        best = best.min(begin.elapsed());
    }
    let gflops = (rounds * 12 * 8 * 2) as f64 / best.as_secs_f64() / 1e9;
    eprintln!("multiply-add peak of one core: {gflops:.0} GFLOP/s");
}

#[cfg(not(target_arch = "x86_64"))]
fn report_peak() {}

/// A field of the process's status; 0 where the system has none.
fn status_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
