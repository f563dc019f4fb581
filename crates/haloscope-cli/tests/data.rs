//! The jobs of `examples/jobs`, on real data at a reduced size; skipped where the data are not.

mod jobs;

use std::path::Path;

use jobs::{Folder, json};

/// The text of a job, if there are data for it.
fn example(name: &str) -> Option<String> {
    if std::env::var_os("HALOSCOPE_DATA").is_none() {
        println!("skipped: {name}, which needs HALOSCOPE_DATA");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs");
    Some(std::fs::read_to_string(folder.join(name)).expect("the example is there"))
}

/// The job with some lines replaced, each of which must be there.
fn smaller(job: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(job, |job, (from, to)| {
        assert!(job.contains(from), "{from} is in the job");
        job.replace(from, to)
    })
}

#[cfg(feature = "hdf5")]
#[test]
fn the_tooth_is_reconstructed_with_the_same_bits_on_2_ranks() {
    let Some(job) = example("tooth.toml") else { return };
    let job = smaller(job, &[("iterations = 100", "iterations = 2")]);
    let folder = Folder::new();
    let summary = json(&folder.run(&job, &[]));
    assert_eq!(summary["shape"], serde_json::json!([1, 640, 640]));
    assert_eq!(folder.bits(&job, &["--ranks", "2"]), summary["bits"]);
}

#[test]
fn the_brain_comes_out_better_than_by_back_projection_on_2_ranks() {
    let Some(job) = example("brain.toml") else { return };
    let changes = [
        ("shrink = 3 ", "shrink = 8 "),
        ("detector = [100, 140]", "detector = [38, 54]"),
        ("source-distance = 270", "source-distance = 100"),
        ("detector-distance = 70", "detector-distance = 25"),
        ("iterations = 60", "iterations = 20"),
    ];
    let summary = json(&Folder::new().run(&smaller(job, &changes), &["--ranks", "2"]));
    let decibels = |when: &str| summary[when]["psnr_db"].as_f64().expect("a number");
    assert!(decibels("after") > decibels("before") + 1.0, "{summary}");
}
