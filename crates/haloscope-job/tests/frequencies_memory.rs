//! What `check` says of the memory of jobs with operators of frequencies is held against the peak of real processes that run them: grids,
//! planes of w, samples, sensitivities, and the bases of wavelets.
//!
//! Each job runs in a process of its own, small and large; the difference is arrays and nothing else.
#![cfg(target_os = "linux")]

use std::process::Command;

use haloscope::Result;
use haloscope::memory::peak_resident_bytes;
use haloscope_comm::Context;
use haloscope_job::Job;

/// The sides of the two images.
const SIDES: [i64; 2] = [64, 640];

/// The variable that makes the test a child, and its name.
const CHILD: &str = "HALOSCOPE_FREQUENCIES_JOB";
const CHILD_TEST: &str = "memory_of_operators_of_frequencies_is_foretold_within_15_percent";

/// What is run, and on how many ranks.
const CASES: [(&str, usize); 8] = [
    ("many visibilities", 1),
    ("planes of w", 1),
    ("planes of w", 2),
    ("double precision", 1),
    ("trajectory", 1),
    ("trajectory with densities", 1),
    ("coils", 1),
    ("sara", 1),
];

fn job(case: &str, side: i64) -> Result<Job> {
    let phantom = |name: &'static str| {
        Job::builder().measurements(|it| it.set("phantom", name).set("size", vec![side; 2]))
    };
    let sky = || phantom("sky");
    // The longest baseline of the simulated array is as long as cells show, so that w grows with the side if the field stays.
    let field = 2.0 * 3600.0;
    let variation = |it: haloscope_job::JobBuilder| {
        it.prior("total-variation", |it| it.set("weight", 0.01))
            .solver("primal-dual", |it| it.set("step", 1e-9))
    };
    match case {
        "many visibilities" => variation(sky().operator("visibilities", |it| {
            it.set("cell", 0.001).set("antennas", 30).set("times", side).set("blocks", 2)
        })),
        "planes of w" => variation(sky().operator("visibilities", |it| {
            it.set("cell", field / side as f64)
                .set("antennas", 12)
                .set("times", 20)
                .set("blocks", 2)
        })),
        "double precision" => variation(sky().operator("visibilities", |it| {
            it.set("cell", 0.001).set("antennas", 12).set("times", 20).set("accuracy", 1e-8)
        })),
        "trajectory" | "trajectory with densities" => {
            variation(phantom("shepp-logan").operator("mri-trajectory", |it| {
                it.set("spokes", side / 2).set("coils", 3).set("density", case != "trajectory")
            }))
        }
        "coils" => variation(
            phantom("shepp-logan").operator("mri", |it| it.set("coils", 5).set("acceleration", 2)),
        ),
        _ => sky()
            .operator("visibilities", |it| {
                it.set("cell", 0.001).set("antennas", 12).set("times", 20)
            })
            .fidelity("ball", |it| it.set("radius", 1))
            .prior("wavelet", |it| it.set("bases", "sara").set("weight", 1))
            .solver("primal-dual", |it| it),
    }
    .stop(|it| it.set("iterations", 2))
    .build()
}

/// The bytes that a job takes in a process of its own.
fn measure(words: &str) -> f64 {
    let child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", CHILD_TEST, "--nocapture", "--test-threads", "1"])
        .env(CHILD, words)
        // Small arrays are given back to the system when they are freed, as large ones are.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let (_, rest) = text.split_once("peak ").unwrap_or_else(|| {
        panic!("{words}: {text}\n{}", String::from_utf8_lossy(&child.stderr));
    });
    rest.split_whitespace().next().expect("a number").parse().expect("bytes")
}

#[test]
fn memory_of_operators_of_frequencies_is_foretold_within_15_percent() {
    if let Ok(words) = std::env::var(CHILD) {
        let parts: Vec<&str> = words.split(';').collect();
        let [case, side, ranks] = parts[..] else { panic!("{words}") };
        let job = job(case, side.parse().expect("a side")).expect("a job");
        let run = move |ctx: &Context| {
            job.run(ctx, &mut ()).map(drop).map_err(haloscope_job::Error::into_inner)
        };
        Context::threads(ranks.parse().expect("ranks"), run).expect("no rank fails");
        println!("peak {}", peak_resident_bytes().expect("on Linux"));
        return;
    }
    let mut wrong = Vec::new();
    for (case, ranks) in CASES {
        let [small, large] = SIDES.map(|side| measure(&format!("{case};{side};{ranks}")));
        let [least, most] = SIDES.map(|side| {
            let job = job(case, side).expect("a job");
            job.check(ranks).expect("a plan").expected.bytes(ranks, 1) as f64
        });
        let (measured, foretold) = (large - small, most - least);
        let image = 4.0 * (SIDES[1].pow(2) - SIDES[0].pow(2)) as f64;
        let words = format!(
            "{case} on {ranks} ranks: {:.1} MB foretold, {:.1} MB measured; {:.1} and {:.1} images",
            foretold / 1e6,
            measured / 1e6,
            foretold / image,
            measured / image
        );
        println!("{words}");
        // Thread ranks share a process, and need not reach their peaks at the same moment.
        let least = if ranks == 1 { 0.85 } else { 0.7 };
        if !(least * foretold..=1.15 * foretold).contains(&measured) {
            wrong.push(words);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
