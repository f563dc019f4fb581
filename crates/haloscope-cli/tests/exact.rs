//! Exact networks in job files, which is the default: one part of the image for each rank, and the bits of the untiled network.

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
    // Exact is the default, in any grid.
    assert_eq!(folder.bits(&job(4, ""), &["--start-over", "--ranks", "2"]), untiled);
    let slabs = folder.bits(&job(4, "shards = [2, 1]"), &["--start-over", "--ranks", "2"]);
    assert_eq!(slabs, untiled);
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
    for words in [
        "halos         ",
        " sent in each iteration by a rank at most",
        "exact, because the strategy is given",
        "strategy = \"overlap\" would",
    ] {
        assert_eq!(printed.contains(words), !words.starts_with("strategy ="), "{words}: {printed}");
    }
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

#[test]
fn the_choice_between_exact_and_tiles_is_explained() {
    let folder = Folder::new();
    let check = |prior: &str| {
        let large = job(4, prior).replace("size = [96, 80]", "size = [288, 280]");
        let output = haloscope(&["check", &folder.write("job.toml", large), "--ranks", "2"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let printed = check("");
    assert!(printed.contains("exact, because a pass over the whole image holds "), "{printed}");
    assert!(printed.contains("strategy = \"overlap\" would take less memory"), "{printed}");
    let printed = check("patch = 144");
    assert!(printed.contains("tiles, because the patch of tiles is given"), "{printed}");
    assert!(printed.contains("strategy = \"exact\" would compute each pixel once"), "{printed}");
    // The same in a plan.
    let huge = ["plan", "--size", "16384x16384", "--model", "dncnn:8:4", "--memory-budget", "90GB"];
    let printed = text(&haloscope(&huge).stdout);
    assert!(printed.contains("exact, because a pass over the whole image in waves "), "{printed}");
    assert!(printed.contains("in waves of 144 rows, because all rows at once"), "{printed}");
    let wide = ["plan", "--size", "1024x1048576", "--model", "dncnn:64:20"];
    let printed = text(&haloscope(&[&wide[..], &["--memory-budget", "900GB"]].concat()).stdout);
    assert!(printed.contains("tiles, because a pass over the whole image holds "), "{printed}");
    assert!(printed.contains("advice     use --strategy exact: the slowest rank"), "{printed}");
}

#[test]
fn grids_that_do_not_fit_are_refused_with_those_that_do() {
    let folder = Folder::new();
    for (prior, words) in [
        ("shards = [2, 2]", "[2, 2] are 4 parts for 2 ranks; grids that fit: "),
        ("shards = [2]", "one number for each of 2 spatial axes is needed, such as [2, 1]"),
        ("shards = [1, 2]\npatch = 64", "`patch` is given; an exact denoiser has no tiles"),
        (
            "shards = [1, 2]\nstrategy = 'blend'",
            "`shards` are given; they are the parts of an exact",
        ),
        ("shards = 'many'", "the number of parts along each side, as in [2, 2]"),
    ] {
        let output = folder.run(&job(2, prior), &["--ranks", "2"]);
        assert_eq!(output.status.code(), Some(2), "{prior}");
        let error = text(&output.stderr);
        assert!(error.contains(words), "{error}");
    }
    let plan = |grid: &str| {
        let size = ["plan", "--size", "384x384", "--model", "dncnn:8:4", "--ranks", "4"];
        haloscope(&[&size[..], &["--shards", grid]].concat())
    };
    assert!(text(&plan("4x1").stdout).contains("parts      4 (4x1), at most 96x384"));
    let output = plan("3x1");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("grids that fit: [2, 2]"), "{}", text(&output.stderr));
}
