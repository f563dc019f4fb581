//! Times of visibilities of an observation and of its dirty image: `bench_visibilities FOLDER --threads N --accuracy A`.
//!
//! The folder has `truth.npy` and `uv.npy` (visibility, 2), in wavelengths for cells of one second of arc. What is measured of the truth goes to
//! `forward.npy`, and the adjoint of that to `adjoint.npy`. `bench/radio.py` makes the folder and compares with other libraries.

use std::path::Path;
use std::time::Instant;

use haloscope::io::{self, ReadOptions, WriteOptions};
use haloscope::physics::fourier::Visibilities;
use haloscope::physics::{LinearPhysics, Physics};
use haloscope::{Array, Result};

/// Radians of a second of arc.
const CELL: f64 = std::f64::consts::PI / 648_000.0;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut folder, mut threads, mut accuracy) = (String::new(), 1, 1e-5);
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            "--threads" => threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            "--accuracy" => {
                accuracy = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1e-5);
            }
            _ => folder = argument,
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| run(Path::new(&folder), accuracy))
}

fn run(folder: &Path, accuracy: f64) -> Result<()> {
    let truth = io::read(folder.join("truth.npy"), &ReadOptions::default())?.array;
    let uv = io::read_numbers(folder.join("uv.npy"), &ReadOptions::default())?;
    let uv: Vec<f64> = uv.into_iter().collect();
    let uvw: Vec<[f64; 3]> = uv.chunks(2).map(|at| [at[0], at[1], 0.0]).collect();
    let begin = Instant::now();
    let telescope = Visibilities::new(&truth.shape()[1..], &uvw, CELL, accuracy)?;
    println!("{{\"case\": \"plan\", \"seconds\": {}}}", begin.elapsed().as_secs_f64());
    let measured = timed("forward", || telescope.forward(&truth))?;
    let back = timed("adjoint", || telescope.adjoint(&measured))?;
    let options = WriteOptions::default();
    io::write(folder.join("forward.npy"), &measured.insert_axis(ndarray::Axis(0)), &options)?;
    io::write(folder.join("adjoint.npy"), &back, &options)
}

/// The best of many times.
fn timed(name: &str, work: impl Fn() -> Result<Array>) -> Result<Array> {
    let mut result = work()?;
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let begin = Instant::now();
        result = work()?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    println!("{{\"case\": \"{name}\", \"seconds\": {best}}}");
    Ok(result)
}
