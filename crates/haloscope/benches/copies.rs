//! What an iteration takes, in seconds and in memory, of methods with a network, as lines of JSON for `bench/compare.py`.
//!
//!     bench_copies [--size N] [--iterations N] [--ranks 1,2,4] [--methods pgd,hqs,fista,admm] [--networks builtin,drunet]
//!
//! Three blurs of a colour picture are undone by each method with each network on each number of thread ranks. Every case is a
//! process of its own, so that its peak is its own: this program calls itself. The first iteration plans and warms up; the
//! seconds are the fastest of the others. `images` is the peak in images of that size, without the network, its tile and the
//! program, which a run on an image of 512² shows; three of them are the measurements, and about one is the operators.
//! `make bench-copies` compares two versions, of which the older one calls the engine's options `Options`.

use std::process::Command;
use std::sync::Arc;

use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::{distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::noise::Noise;
use haloscope::phantom::landscape;
use haloscope::physics::{Blur, Padding, Physics, kernels};
use haloscope::solve::{
    Admm, Algorithm, Fista, HalfQuadratic, Plug, Problem, ProximalGradient, Range, Schedule, Start,
    State, Stopping, solve,
};
use haloscope::tiling::{Batch, Strategy, Tiling};
use haloscope::{Error, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Builtin, Drunet};

/// A case, as it is given to the process that runs it.
const CHILD: &str = "--case";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, method, network, side, ranks, iterations] = &arguments[..]
        && flag == CHILD
    {
        let number = |word: &String| word.parse().expect("the parent writes numbers");
        return run(method, network, number(side), number(ranks), number(iterations));
    }
    let request = Request::from_arguments(&arguments);
    for network in &request.networks {
        for method in &request.methods {
            for ranks in &request.ranks {
                let [_, base] = measure(method, network, 512, ranks, 2);
                let [seconds, peak] =
                    measure(method, network, request.size, ranks, request.iterations);
                let pixels = |side: usize| (12 * side * side) as f64;
                let side = request.size;
                let images = (peak - base) / (pixels(side) - pixels(512));
                let line = serde_json::json!({
                    "case": format!("{method} with {network}, {side}²×3, ranks: {ranks}"),
                    "seconds": seconds,
                    "peak_mb": peak / 1e6,
                    "images": images,
                    "images_per_rank": images / ranks.parse::<f64>().unwrap_or(1.0),
                });
                println!("{line}");
            }
        }
    }
    Ok(())
}

/// What the command line asks for.
struct Request {
    size: usize,
    iterations: usize,
    ranks: Vec<String>,
    methods: Vec<String>,
    networks: Vec<String>,
}

impl Request {
    fn from_arguments(arguments: &[String]) -> Self {
        let list = |words: &str| words.split(',').map(str::to_owned).collect::<Vec<_>>();
        let mut request = Self {
            size: 1024,
            iterations: 4,
            ranks: list("1,2,4"),
            methods: list("pgd,hqs,fista,admm"),
            networks: list("builtin,drunet"),
        };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { panic!("{pair:?} needs a value") };
            let number = || value.parse().unwrap_or_else(|_| panic!("{name} needs a number"));
            match name.as_str() {
                "--size" => request.size = number(),
                "--iterations" => request.iterations = number(),
                "--ranks" => request.ranks = list(value),
                "--methods" => request.methods = list(value),
                "--networks" => request.networks = list(value),
                _ => panic!("{name} is unknown; see the first lines of the program"),
            }
        }
        request
    }
}

/// Seconds of an iteration and bytes of a process that runs a case.
fn measure(method: &str, network: &str, side: usize, ranks: &str, iterations: usize) -> [f64; 2] {
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args([CHILD, method, network, &side.to_string(), ranks, &iterations.to_string()])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&child.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| {
        panic!("{method} with {network}: {text}{}", String::from_utf8_lossy(&child.stderr))
    })
}

/// Runs a case, and prints the seconds of an iteration and the peak.
fn run(method: &str, network: &str, side: usize, ranks: usize, iterations: usize) -> Result<()> {
    let (method, network) = (method.to_owned(), network.to_owned());
    let seconds = Context::threads(ranks, move |ctx| {
        let blur = |angle: f64| -> Result<Arc<dyn Physics>> {
            let kernel = kernels::gaussian(&[3.0, 1.0], angle)?;
            Ok(Arc::new(Blur::new(&[3, side, side], &kernel, Padding::Circular)?))
        };
        let blurs = [0.0, 60.0, 120.0].into_iter().map(blur).collect::<Result<Vec<_>>>()?;
        let physics = distribute(blurs, ctx)?;
        let truth = landscape(side, side)?;
        let data = physics.measure_terms(&truth, &[Noise::gaussian(0.03)?], 1)?.into_local()?;
        drop(truth);
        let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
        let problem = Problem::new(physics, data, fidelity)?;
        let algorithm = algorithm(&method, &network, ctx)?;
        let start = State::new(problem.start(&Start::Adjoint)?);
        let stopping = Stopping { iterations: iterations.max(2), ..Stopping::default() };
        let outcome = solve(&problem, &*algorithm, start, &stopping, None)?;
        let later = outcome.records.iter().skip(1).map(|record| record.seconds.total);
        Ok::<_, Error>(later.fold(f64::INFINITY, f64::min))
    })?;
    let peak = haloscope::memory::peak_resident_bytes().unwrap_or(0);
    println!("{} {peak}", seconds.into_iter().fold(0.0, f64::max));
    Ok(())
}

fn algorithm(method: &str, network: &str, ctx: &Context) -> Result<Box<dyn Algorithm>> {
    // The ranks of a process have one network between them.
    let denoiser = ctx.share("network", || {
        let model = match network {
            "builtin" => Builtin::Color.model()?,
            "drunet" => Drunet::default().random(1)?,
            other => panic!("`{other}` is unknown; there are builtin and drunet"),
        };
        let threads = ctx.threads_per_rank();
        NetworkDenoiser::new(model, EngineOptions { threads, ..EngineOptions::default() })
    })?;
    let tiling = Tiling {
        patch: 256.into(),
        overlap: 32.into(),
        batch: Batch::AtMost(1),
        ..Tiling::new(Strategy::Overlap)
    };
    let denoiser = Arc::new(distribute_with(denoiser, ctx, tiling)?);
    let plug = Plug::new(denoiser, 0.05).range(Range::Clamp(0.0, 1.0));
    let (step, prior) = (0.3, Arc::new(plug.clone()));
    Ok(match method {
        "pgd" => Box::new(ProximalGradient { step, prior, relaxation: None }),
        "fista" => Box::new(Fista { step, prior }),
        "admm" => Box::new(Admm { step: 1.0, prior }),
        "hqs" => {
            let schedule = Schedule::falling(0.2, 0.05, 8, 0.03, 0.23)?;
            Box::new(HalfQuadratic { prior: plug, schedule })
        }
        other => panic!("`{other}` is unknown; there are pgd, fista, hqs and admm"),
    })
}
