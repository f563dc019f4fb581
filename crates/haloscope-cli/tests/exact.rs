//! `strategy = "exact"` in job files: one part of the image for each rank, and the bits of the untiled network.

mod jobs;

use jobs::{Folder, deblurring, haloscope, json, text};

/// A job with the built-in network.
fn job(iterations: usize, tiles: &str) -> String {
    let more = format!(
        "[solver]\nmethod = 'pgd'\n[prior]\nkind = 'network'\nmodel = 'builtin:color'\n{tiles}\n\
         [checkpoint]\niterations = 2\n"
    );
    deblurring(iterations, &more).replace("size = [24, 20]", "size = [96, 80]")
}

#[test]
fn exact_jobs_have_the_bits_of_one_tile_on_any_ranks_and_resume_on_others() {
    let folder = Folder::new();
    let untiled = job(4, "strategy = 'basic'\npatch = [96, 80]");
    let untiled = folder.bits(&untiled, &["--start-over"]);
    let exact = job(4, "strategy = 'exact'");
    for ranks in ["1", "2", "3", "5"] {
        let bits = folder.bits(&exact, &["--start-over", "--ranks", ranks]);
        assert_eq!(bits, untiled, "{ranks} ranks");
    }
    folder.bits(&job(3, "strategy = 'exact'"), &["--start-over", "--ranks", "3"]);
    let resumed = json(&folder.run(&exact, &["--resume", "--ranks", "5"]));
    assert_eq!((&resumed["resumed_from"], &resumed["bits"]), (&2.into(), &untiled.into()));
}

#[test]
fn check_and_plan_say_how_the_image_is_cut() {
    let folder = Folder::new();
    let path = folder.write("job.toml", job(4, "strategy = 'exact'"));
    let output = haloscope(&["check", &path, "--ranks", "4"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(printed.contains("exact, in 2x2 parts (largest load 1."), "{printed}");
    assert!(printed.contains("for 4 ranks together"), "{printed}");
    let arguments =
        ["plan", "--size", "384x384", "--model", "dncnn", "--strategy", "exact", "--ranks", "4"];
    let output = haloscope(&arguments);
    assert!(text(&output.stdout).contains("parts      4 (2x2), at most 192x192"), "{output:?}");
    let report = json(&haloscope(&[&arguments[..], &["--json"]].concat()));
    assert_eq!(report["plan"]["work_multiplier"], 1.0);
    // Two faces of 192 pixels: 4 bytes for each of 3 + 19 × 64 channels, and once more a corner of 64 or 3 channels.
    assert!(report["plan"]["bytes_sent_per_iteration"].as_u64() > Some(4 * 2 * 192 * 4 * 1219));
}

#[test]
fn tiles_that_an_exact_job_does_not_have_are_refused() {
    for tiles in ["patch = 64", "overlap = 8", "batch = 2", "border = 'zero'"] {
        let folder = Folder::new();
        let output = folder.run(&job(2, &format!("strategy = 'exact'\n{tiles}")), &[]);
        let key = tiles.split(' ').next().expect("a key");
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        assert!(
            error.contains(&format!("`{key}` is given; an exact denoiser has no tiles")),
            "{error}"
        );
    }
}
