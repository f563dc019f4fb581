//! Seconds per blur and downsampling, as lines of JSON for `bench/compare.py`.
//!
//! `bench_blur [--threads N] [--repeats N] [CASE …]`; the cases are those of `bench/peers/blur.py`.
//! `bench_blur rule` prints what the rule that chooses between direct and Fourier methods is made from.

use std::time::{Duration, Instant};

use haloscope::physics::{
    Blur, BlurMethod, Downsampling, DownsamplingFilter, LinearPhysics, Padding, kernels,
};
use haloscope::{Array, Result};

fn main() -> Result<()> {
    let (mut threads, mut repeats, mut cases) = (1, 5, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|text| text.parse::<usize>().ok());
            value.unwrap_or_else(|| panic!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--threads" => threads = number(),
            "--repeats" => repeats = number(),
            _ => cases.push(argument),
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| {
        if cases == ["rule"] { rule(repeats) } else { measure_cases(threads, repeats, &cases) }
    })
}

fn measure_cases(threads: usize, repeats: usize, chosen: &[String]) -> Result<()> {
    let plural = if threads > 1 { "s" } else { "" };
    for (name, make) in CASES {
        if !chosen.is_empty() && !chosen.iter().any(|case| case == name) {
            continue;
        }
        let operator = make()?;
        for (direction, seconds) in measure(&*operator, repeats)? {
            let case = format!("{name}, {direction}, {threads} thread{plural}");
            println!("{}", serde_json::json!({ "case": case, "seconds": seconds }));
        }
    }
    Ok(())
}

type Make = fn() -> Result<Box<dyn LinearPhysics>>;

const CASES: &[(&str, Make)] = &[
    ("circular 2048²×3, Gaussian of 139²", || {
        let kernel = kernels::gaussian(&[20.5, 8.0], 30.0)?;
        Ok(Box::new(Blur::new(&[3, 2048, 2048], &kernel, Padding::Circular)?))
    }),
    ("circular 1024²×3, kernel of 9²", || {
        let kernel = random(&[1, 1, 9, 9]);
        Ok(Box::new(Blur::new(&[3, 1024, 1024], &kernel, Padding::Circular)?))
    }),
    ("downsampling of 2048² by 2, bicubic", || {
        let (filter, padding) = (DownsamplingFilter::Bicubic, Padding::Circular);
        Ok(Box::new(Downsampling::new(&[1, 2048, 2048], 2, &filter, padding)?))
    }),
];

/// The best seconds of a forward and an adjoint.
fn measure(operator: &dyn LinearPhysics, repeats: usize) -> Result<[(&'static str, f64); 2]> {
    let with_batch = |shape: &[usize]| [&[1], shape].concat();
    let mut x = random(&with_batch(operator.image_shape()));
    let mut y = random(&with_batch(operator.measurement_shape()));
    // The first run warms up.
    let mut best = [Duration::MAX; 2];
    for _ in 0..=repeats {
        let begin = Instant::now();
        operator.forward_into(&x, &mut y)?;
        best[0] = best[0].min(begin.elapsed());
        let begin = Instant::now();
        operator.adjoint_into(&y, &mut x)?;
        best[1] = best[1].min(begin.elapsed());
    }
    Ok([("forward", best[0].as_secs_f64()), ("adjoint", best[1].as_secs_f64())])
}

/// Nanoseconds per multiplication of the direct method, and what the Fourier method would be in them.
fn rule(repeats: usize) -> Result<()> {
    for side in [32, 128, 512, 1024] {
        let shape = [1, side, side];
        let mut per_tap = Vec::new();
        for (label, kernel) in [
            ("5²", random(&[1, 1, 5, 5])),
            ("9²", random(&[1, 1, 9, 9])),
            ("21²", random(&[1, 1, 21, 21])),
            ("column × row of 2·31", kernels::uniform(&[31, 31])?),
        ] {
            let taps = if label.starts_with('c') { 62 } else { kernel.len() };
            let blur = Blur::with_method(&shape, &kernel, Padding::Circular, BlurMethod::Direct)?;
            let seconds = measure(&blur, repeats)?[0].1;
            let each = seconds / (taps * side * side) as f64 * 1e9;
            println!("{side}²: direct, {label}: {each:.4} ns per multiplication");
            per_tap.push(each);
        }
        let kernel = random(&[1, 1, 9, 9]);
        let blur = Blur::with_method(&shape, &kernel, Padding::Circular, BlurMethod::Fourier)?;
        let each = measure(&blur, repeats)?[0].1 / (side * side) as f64 * 1e9;
        println!(
            "{side}²: Fourier: {each:.3} ns per sample, {:.0} multiplications",
            each / per_tap[1]
        );
    }
    Ok(())
}

fn random(shape: &[usize]) -> Array {
    let mut random = fastrand::Rng::with_seed(1);
    Array::from_shape_fn(shape, |_| random.f32())
}
