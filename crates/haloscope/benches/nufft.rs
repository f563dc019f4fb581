//! Times of non-uniform Fourier transforms, planned once: `bench_nufft --threads N`.
//!
//! `bench/peers/nufft.py` runs the same cases in other libraries; `make bench-nufft` compares them.

use std::time::Instant;

use haloscope::fourier::{Complex, Nufft, Real};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut threads = 1;
    while let Some(argument) = arguments.next() {
        if argument == "--threads" {
            threads = arguments.next().and_then(|count| count.parse().ok()).expect("a number");
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| {
        for (sides, count) in [
            (&[512, 512][..], 1_000_000),
            (&[512, 512][..], 100_000),
            (&[96, 96, 96][..], 1_000_000),
        ] {
            run::<f32>(sides, count, 1e-3);
            run::<f32>(sides, count, 1e-5);
            run::<f64>(sides, count, 1e-9);
        }
    });
}

fn run<T: Real>(sides: &[usize], count: usize, accuracy: f64) {
    let mut random = fastrand::Rng::with_seed(1);
    let points: Vec<f64> =
        (0..count * sides.len()).map(|_| (random.f64() - 0.5) * std::f64::consts::TAU).collect();
    let plan = Nufft::<T>::new(sides, &points, accuracy).expect("a plan");
    let mut scratch = plan.scratch();
    let mut value = || {
        let mut part = || T::from_f64(random.f64() - 0.5).unwrap_or_default();
        Complex::new(part(), part())
    };
    let mut image: Vec<Complex<T>> = (0..sides.iter().product()).map(|_| value()).collect();
    let mut samples: Vec<Complex<T>> = (0..count).map(|_| value()).collect();
    let name = format!(
        "{} pixels, {count} samples, {accuracy:.0e}",
        sides.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ")
    );
    for direction in ["image to samples", "samples to image"] {
        let (mut best, mut cores) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..4 {
            let (begin, used) = (Instant::now(), core_seconds());
            match direction {
                "image to samples" => plan.forward(&image, &mut samples, &mut scratch),
                _ => plan.adjoint(&samples, &mut image, &mut scratch),
            }
            .expect("a transform");
            best = best.min(begin.elapsed().as_secs_f64());
            cores = cores.min(core_seconds() - used);
        }
        println!(
            "{{\"case\": \"{name}: {direction}\", \"seconds\": {best}, \"core_seconds\": {cores}}}"
        );
    }
}

/// Seconds of all cores that this process has had, which a busy machine disturbs less than the clock; 0 where they are not known.
fn core_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").map(|threads| {
        let of_thread = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        };
        threads.filter_map(|thread| of_thread(thread.ok()?)).sum::<f64>()
    });
    threads.unwrap_or(0.0) * 1e-9
}
