//! Forecasts are held against runs: messages to the byte, memory within a stated tolerance.

mod pnp;

use std::process::Command;

use haloscope::Error;
use haloscope::forecast::{Denoising, Forecast, Job, Method};
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
        method: Method::ProximalGradient,
        prior: Some(Denoising { denoiser: &denoiser, tiling: small.tiling.clone() }),
    };
    job.forecast().expect("a forecast")
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
            let job = small.clone();
            let sent = Context::threads(ranks, move |ctx| {
                job.run(ctx, iterations)?;
                Ok::<_, Error>(ctx.comm().statistics().total().bytes_sent)
            });
            let foretold = forecast(&small, ranks);
            let foretold = foretold.ranks.iter().map(|share| share.bytes_sent * iterations as u64);
            assert_eq!(foretold.collect::<Vec<_>>(), sent.expect("no rank fails"), "{small:?}");
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

/// The variable that makes the test below a child, on so many ranks.
const CHILD: &str = "HALOSCOPE_FORECAST_RANKS";

#[test]
#[cfg(target_os = "linux")]
fn memory_is_foretold_within_15_percent_and_the_program_itself() {
    if let Some(ranks) = std::env::var(CHILD).ok().and_then(|text| text.parse().ok()) {
        let before = peak_resident_bytes().expect("on Linux");
        Context::threads(ranks, |ctx| large().run(ctx, 2)).expect("no rank fails");
        println!("peak {} {before}", peak_resident_bytes().expect("on Linux"));
        return;
    }
    for ranks in [1, 2] {
        // A process of its own, in which no other test has used memory.
        let test = "memory_is_foretold_within_15_percent_and_the_program_itself";
        let child = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(CHILD, ranks.to_string())
            // What is larger than 32 MB is given back to the system when it is freed. The arrays of this job are smaller;
            // they are treated like those of a large one.
            .env("MALLOC_MMAP_THRESHOLD_", "65536")
            .output()
            .expect("the child runs");
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        let numbers = text.split_once("peak ").expect("the child says it").1.split_whitespace();
        let numbers: Vec<f64> = numbers.take(2).map(|word| word.parse().expect("bytes")).collect();
        let measured = numbers[0] - numbers[1];
        let foretold: usize =
            forecast(&large(), ranks).ranks.iter().map(|share| share.memory.total()).sum();
        // The code that is run for the first time, stacks, and the allocator's own take up to 16 MB.
        let (low, high) = (0.85 * foretold as f64, 1.15 * foretold as f64 + 16e6);
        assert!(
            (low..=high).contains(&measured),
            "{ranks} ranks: {:.0} MB foretold, {:.0} MB measured",
            foretold as f64 / 1e6,
            measured / 1e6
        );
    }
}
