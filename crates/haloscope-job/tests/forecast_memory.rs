//! What `check` says of a job's memory is held against the peak of real processes that run it: scans in files and
//! simulations, on one rank and on several.
//!
//! Each job runs in a process of its own, small and large; the difference is arrays and nothing else.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use haloscope::io::{self, WriteOptions};
use haloscope::memory::peak_resident_bytes;
use haloscope::{Array, Result};
use haloscope_comm::Context;
use haloscope_job::{Job, JobBuilder};

/// The sides of the two volumes.
const SIDES: [usize; 2] = [24, 112];

/// The variable that makes the test a child, and its name.
const CHILD: &str = "HALOSCOPE_FORECAST_JOB";
const CHILD_TEST: &str = "memory_of_jobs_with_scans_is_foretold_within_10_percent";

/// What is run, and on how many ranks.
const CASES: [(&str, usize); 7] = [
    ("direct from one file", 1),
    ("direct from one file", 3),
    ("direct from views", 2),
    ("variation from views", 3),
    ("simulated", 2),
    ("in shards", 1),
    ("in shards", 3),
];

fn views(side: usize) -> usize {
    side / 2
}

/// The volumes of a scan, in one file and in one for each view.
fn write(folder: &Path, side: usize) -> Result<()> {
    let all = Array::from_shape_fn(vec![1, 1, views(side), side, side], |at| {
        (at[2] + at[3] % 5 + at[4]) as f32 / side as f32
    });
    io::write(folder.join(format!("scan-{side}.npy")), &all, &WriteOptions::default())?;
    let volume = Array::from_shape_fn(vec![1, 1, side, side, side], |at| (at[2] + at[4]) as f32);
    io::write(folder.join(format!("volume-{side}.npy")), &volume, &WriteOptions::default())?;
    std::fs::create_dir(folder.join(format!("views-{side}"))).expect("a folder");
    for (view, values) in all.axis_iter(ndarray::Axis(2)).enumerate() {
        let path = folder.join(format!("views-{side}/{view:03}.npy"));
        io::write(path, &values.to_owned(), &WriteOptions::default())?;
    }
    Ok(())
}

fn job(case: &str, folder: &Path, side: usize) -> Result<Job> {
    let scan = |builder: JobBuilder, files: String| {
        builder
            .measurements(|it| it.set("files", files))
            .operator("parallel-beam", |it| it.set("angles", views(side) as i64).set("groups", 4))
    };
    let builder = Job::builder().folder(folder);
    let variation = |builder: JobBuilder| {
        builder
            .prior("total-variation", |it| it.set("weight", 0.01).set("iterations", 2))
            .solver("fista", |it| it.set("step", 1e-4))
            .stop(|it| it.set("iterations", 2))
    };
    match case {
        "direct from one file" => scan(builder, format!("scan-{side}.npy")).solver("fbp", |it| it),
        "direct from views" => scan(builder, format!("views-{side}/*.npy")).solver("fbp", |it| it),
        "variation from views" => {
            variation(scan(builder, format!("views-{side}/*.npy"))).start("fbp", |it| it)
        }
        "in shards" => variation(builder)
            .image(|it| it.set("layout", "sharded"))
            .measurements(|it| it.set("files", vec![format!("volume-{side}.npy"); 2]))
            .operator("identity", |it| it)
            .operator("identity", |it| it),
        _ => variation(builder.measurements(|it| {
            it.set("phantom", "shepp-logan").set("size", vec![side as i64; 3]).set("points", 1)
        }))
        .operator("identity", |it| it)
        .operator("identity", |it| it),
    }
    .build()
}

/// The bytes that a job takes in a process of its own.
fn measure(words: &str) -> f64 {
    let child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", CHILD_TEST, "--nocapture", "--test-threads", "1"])
        .env(CHILD, words)
        // What is larger than 32 MB is given back to the system when it is freed. The arrays of these jobs are smaller;
        // they are treated like those of a large one.
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
fn memory_of_jobs_with_scans_is_foretold_within_10_percent() {
    if let Ok(words) = std::env::var(CHILD) {
        let parts: Vec<&str> = words.split(';').collect();
        let [case, folder, side, ranks] = parts[..] else { panic!("{words}") };
        let job = job(case, Path::new(folder), side.parse().expect("a side")).expect("a job");
        let run = move |ctx: &Context| {
            job.run(ctx, &mut ()).map(drop).map_err(haloscope_job::Error::into_inner)
        };
        Context::threads(ranks.parse().expect("ranks"), run).expect("no rank fails");
        println!("peak {}", peak_resident_bytes().expect("on Linux"));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for side in SIDES {
        write(folder.path(), side).expect("a scan");
    }
    let mut wrong = Vec::new();
    for (case, ranks) in CASES {
        let words = |side: usize| format!("{case};{};{side};{ranks}", folder.path().display());
        let [small, large] = SIDES.map(|side| measure(&words(side)));
        let [least, most] = SIDES.map(|side| {
            let job = job(case, folder.path(), side).expect("a job");
            job.check(ranks).expect("a plan").expected.bytes(ranks, 1) as f64
        });
        let (measured, foretold) = (large - small, most - least);
        let image = 4.0 * (SIDES[1].pow(3) - SIDES[0].pow(3)) as f64;
        let words = format!(
            "{case} on {ranks} ranks: {:.1} MB foretold, {:.1} MB measured; {:.2} and {:.2} images",
            foretold / 1e6,
            measured / 1e6,
            foretold / image,
            measured / image
        );
        println!("{words}");
        if !(0.9 * foretold..=1.1 * foretold).contains(&measured) {
            wrong.push(words);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
