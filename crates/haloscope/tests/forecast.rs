//! Forecasts are held against runs: messages to the byte, memory within a stated tolerance.

mod pnp;

use std::process::Command;

use haloscope::Error;
use haloscope::forecast::{Denoising, Forecast, Job, Method, Prior};
use haloscope::memory::peak_resident_bytes;
use haloscope::tiling::{Batch, Strategy, Tiling};
use haloscope_comm::Context;
use pnp::Small;

fn forecast(small: &Small, ranks: usize) -> Forecast {
    let denoiser = small.denoiser().expect("a network");
    let shape = vec![3, small.side, small.side];
    let job = Job {
        image: [&[1], &shape[..]].concat(),
        measurements: vec![shape; small.operators],
        ranks,
        method: small.method,
        inner_iterations: small.inner_iterations,
        prior: match small.method {
            Method::ConjugateGradient | Method::Landweber => Prior::None,
            method if method.takes_network() && small.has_network => Prior::Network(Denoising {
                denoiser: &denoiser,
                tiling: small.tiling.clone(),
                has_range: small.clamp.is_some(),
            }),
            _ => Prior::TotalVariation,
        },
    };
    job.forecast().expect("a forecast")
}

/// The bytes that each rank sends in these iterations.
fn sent(small: &Small, ranks: usize, iterations: usize) -> Vec<u64> {
    let job = small.clone();
    Context::threads(ranks, move |ctx| {
        job.run(ctx, iterations)?;
        Ok::<_, Error>(ctx.comm().statistics().total().bytes_sent)
    })
    .expect("no rank fails")
}

#[test]
fn messages_are_foretold_to_the_byte() {
    let small = Small::default();
    let tiny = Small { side: 24, operators: 2, ..small.clone() };
    let whole = Small {
        tiling: Tiling { patch: 64.into(), ..Tiling::new(Strategy::Overlap) },
        ..small.clone()
    };
    for small in [small, tiny, whole] {
        for (ranks, iterations) in [(1, 1), (2, 1), (3, 2), (5, 1)] {
            let foretold = forecast(&small, ranks);
            let foretold = foretold.ranks.iter().map(|share| share.bytes_sent * iterations as u64);
            assert_eq!(foretold.collect::<Vec<_>>(), sent(&small, ranks, iterations), "{small:?}");
        }
    }
}

#[test]
fn messages_of_every_method_are_foretold_or_bounded() {
    let clamps = [None, Some((0.0, 1.0))];
    for (method, clamp) in Method::ALL.into_iter().flat_map(|method| clamps.map(|c| (method, c))) {
        let small = Small { method, clamp, ..Small::default() };
        // The first step of conjugate gradients has more to do than the others.
        let first =
            if method == Method::ConjugateGradient { sent(&small, 3, 1) } else { vec![0; 3] };
        let second = sent(&small, 3, 2);
        for (rank, share) in forecast(&small, 3).ranks.iter().enumerate() {
            let iterations = if first[rank] > 0 { 1 } else { 2 };
            let (foretold, sent) = (iterations * share.bytes_sent, second[rank] - first[rank]);
            let is_right = if method.has_prox() {
                (foretold / 2..=foretold).contains(&sent)
            } else {
                foretold == sent
            };
            assert!(is_right, "{method} on rank {rank}: {foretold} foretold, {sent} sent");
        }
    }
}

/// A job whose arrays are much larger than the program.
fn large() -> Small {
    let tiling = Tiling {
        patch: 256.into(),
        overlap: 16.into(),
        batch: Batch::AtMost(1),
        ..Tiling::new(Strategy::Overlap)
    };
    Small { side: 512, depth: 3, channels: 32, tiling, ..Small::default() }
}

/// The variable that makes the test below a child, with a job on so many ranks.
const CHILD: &str = "HALOSCOPE_FORECAST_CHILD";
const CHILD_TEST: &str = "memory_is_foretold_within_15_percent_and_the_program_itself";

/// The method, whether a network is its prior, the ranks, and what else there is to it.
fn parse(text: &str) -> Option<(Small, usize)> {
    let words: Vec<&str> = text.split(' ').collect();
    let (method, has_network) = (words[0].parse().ok()?, words[1] == "network");
    let clamp = words.contains(&"clamp").then_some((0.0, 1.0));
    // The residual is computed anew after 32 iterations, which takes the most memory.
    let small = Small { method, has_network, inner_iterations: 33, operators: 2, clamp, ..large() };
    // A job of which the most is images: one operator, one tile, a small network.
    let images = Small {
        side: 768,
        operators: 1,
        channels: 8,
        tiling: Tiling { patch: 768.into(), ..large().tiling },
        ..small.clone()
    };
    Some((if words.contains(&"images") { images } else { small }, words[2].parse().ok()?))
}

/// The bytes that a job takes in a process of its own, in which no other test has used memory.
fn measure(job: &str) -> f64 {
    let child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", CHILD_TEST, "--nocapture", "--test-threads", "1"])
        .env(CHILD, job)
        // What is larger than 32 MB is given back to the system when it is freed. The arrays of these jobs are smaller;
        // they are treated like those of a large one.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let numbers = text.split_once("peak ").expect("the child says it").1.split_whitespace();
    let numbers: Vec<f64> = numbers.take(2).map(|word| word.parse().expect("bytes")).collect();
    numbers[0] - numbers[1]
}

#[test]
#[cfg(target_os = "linux")]
fn memory_is_foretold_within_15_percent_and_the_program_itself() {
    if let Some((job, ranks)) = std::env::var(CHILD).ok().and_then(|text| parse(&text)) {
        let before = peak_resident_bytes().expect("on Linux");
        Context::threads(ranks, move |ctx| job.run(ctx, 2)).expect("no rank fails");
        println!("peak {} {before}", peak_resident_bytes().expect("on Linux"));
        return;
    }
    let with_network = Method::ALL.into_iter().filter(|method| method.takes_network());
    let networks = with_network.map(|method| format!("{method} network 1"));
    let others =
        ["pgd network 2", "pgd variation 1", "primal-dual variation 1", "primal-dual variation 2"];
    let none = ["cg none 1", "cg none 2", "landweber none 1", "landweber none 1 clamp"];
    for job in networks.chain(others.into_iter().chain(none).map(String::from)) {
        let (small, ranks) = parse(&job).expect("a job");
        let measured = measure(&job);
        let foretold: usize =
            forecast(&small, ranks).ranks.iter().map(|share| share.memory.total()).sum();
        println!(
            "{job}: {:.0} MB foretold, {:.0} MB measured",
            foretold as f64 / 1e6,
            measured / 1e6
        );
        // The code that is run for the first time, stacks, and the allocator's own take up to 16 MB.
        let (low, high) = (0.85 * foretold as f64, 1.15 * foretold as f64 + 16e6);
        assert!((low..=high).contains(&measured), "{job}");
    }
}

/// That a denoiser is clamped takes one array of the image's size, of about eight. What the program itself takes cancels out.
#[test]
#[cfg(target_os = "linux")]
fn the_copy_of_an_image_that_is_clamped_is_foretold() {
    let foretold = |job: &str| {
        let (small, ranks) = parse(job).expect("a job");
        forecast(&small, ranks).largest_memory() as f64
    };
    let image = 4.0 * 3.0 * 768.0 * 768.0;
    let jobs = ["pgd network 1 images", "pgd network 1 images clamp"];
    assert_eq!(foretold(jobs[1]) - foretold(jobs[0]), image);
    let measured = jobs.map(measure);
    let difference = measured[1] - measured[0];
    assert!(
        (0.5 * image..1.5 * image).contains(&difference),
        "{measured:?}: {difference} instead of {image}"
    );
}
