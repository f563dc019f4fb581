//! Seconds per projection and back-projection, as lines of JSON for `bench/compare.py`.
//!
//! `bench_tomography [--threads N] [--repeats N] [CASE …]`; the cases are those of
//! `bench/peers/tomography.py`.

use std::f64::consts::{PI, TAU};
use std::time::{Duration, Instant};

use haloscope::physics::LinearPhysics;
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, ParallelBeam, Tomography2d, Tomography3d, evenly_spaced,
};
use haloscope::{Array, Result};

fn main() -> Result<()> {
    let (mut threads, mut repeats, mut names) = (1, 3, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|text| text.parse::<usize>().ok());
            value.unwrap_or_else(|| panic!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--threads" => threads = number(),
            "--repeats" => repeats = number(),
            _ => names.push(argument),
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    pool.install(|| {
        let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
        if wanted("parallel") {
            let scan = ParallelBeam::new(evenly_spaced(512, PI), 1024);
            measure(
                "parallel 1024², 512 views",
                &Tomography2d::new(&[1, 1024, 1024], scan)?,
                threads,
                repeats,
            )?;
        }
        if wanted("fan") {
            let scan = FanBeam::new(evenly_spaced(512, TAU), 1024, 2048.0, 1024.0);
            let scan = FanBeam { spacing: 1.5, ..scan };
            measure(
                "fan 1024², 512 views",
                &Tomography2d::new(&[1, 1024, 1024], scan)?,
                threads,
                repeats,
            )?;
        }
        if wanted("cone") {
            let scan = ConeBeam::new(evenly_spaced(100, TAU), [128, 128], 256.0, 128.0);
            let scan = ConeBeam { spacing: [1.5; 2], ..scan };
            let operator = Tomography3d::new(&[1, 128, 128, 128], scan)?;
            measure("cone 128³, 100 views", &operator, threads, repeats)?;
        }
        if wanted("large-cone") {
            let scan = ConeBeam::new(evenly_spaced(24, TAU), [256, 256], 512.0, 256.0);
            let scan = ConeBeam { spacing: [1.5; 2], ..scan };
            let operator = Tomography3d::new(&[1, 256, 256, 256], scan)?;
            measure("cone 256³, 24 views", &operator, threads, repeats)?;
        }
        Ok(())
    })
}

fn measure(name: &str, operator: &dyn LinearPhysics, threads: usize, repeats: usize) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut image = Array::zeros([&[1], operator.image_shape()].concat());
    image.mapv_inplace(|_| random.f32());
    let mut measurement = operator.forward(&image)?;
    let forward = best(repeats, || operator.forward_into(&image, &mut measurement))?;
    let adjoint = best(repeats, || operator.adjoint_into(&measurement, &mut image))?;
    let plural = if threads > 1 { "s" } else { "" };
    for (what, seconds) in [("forward", forward), ("adjoint", adjoint)] {
        let case = format!("{name}, {what}, {threads} thread{plural}");
        println!("{}", serde_json::json!({ "case": case, "seconds": seconds }));
    }
    Ok(())
}

/// The shortest of some runs, after one that warms up.
fn best(repeats: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = Duration::MAX;
    for round in 0..=repeats {
        let begin = Instant::now();
        run()?;
        if round > 0 {
            best = best.min(begin.elapsed());
        }
    }
    Ok(best.as_secs_f64())
}
