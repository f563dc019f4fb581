//! The command as a user runs it: what it prints, and how it refuses.

use std::process::{Command, Output};

/// Runs `haloscope` without the variables of a launcher that may have started the tests.
fn haloscope(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"] {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied()).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(arguments: &[&str], variables: &[(&str, &str)]) -> serde_json::Value {
    let output = haloscope(arguments, variables);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

#[test]
fn help_lists_the_commands() {
    let output = haloscope(&["--help"], &[]);
    let help = text(&output.stdout);
    assert!(output.status.success());
    assert!(["demo", "info"].iter().all(|command| help.contains(command)), "{help}");
}

#[test]
fn info_describes_build_and_machine() {
    let info = json(&["info", "--json"], &[]);
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(info["cores"].as_u64() >= Some(1));
    assert_eq!(info["ranks"], 1);
    assert_eq!(info["problem"], serde_json::Value::Null);
    assert_eq!(info["mpi"].is_string(), cfg!(feature = "mpi"));
    let has = |name: &str| {
        info["features"].as_array().is_some_and(|all| all.iter().any(|feature| feature == name))
    };
    assert_eq!(has("hdf5"), cfg!(feature = "hdf5"));
    assert_eq!((has("zarr"), has("mpi")), (cfg!(feature = "zarr"), cfg!(feature = "mpi")));
}

/// A small demo, whose pictures go to a folder of its own.
fn demo(problem: &str, options: &[&str], variables: &[(&str, &str)]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments = [
        "demo",
        "--problem",
        problem,
        "--size",
        "24",
        "--iterations",
        "12",
        "--json",
        "--out",
        &out,
    ];
    let report = json(&[&arguments[..], options].concat(), variables);
    for picture in report["pictures"].as_array().expect("pictures") {
        let path = picture.as_str().expect("a path");
        image::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    report
}

#[test]
fn every_demo_improves_the_image_with_the_same_bits_on_any_number_of_ranks() {
    for problem in ["deblur", "tomography-2d", "tomography-3d", "super-resolution"] {
        let alone = demo(problem, &[], &[]);
        let decibels = |when: &str| alone[when]["psnr_db"].as_f64().expect("a number");
        assert!(decibels("after") > decibels("before") + 0.5, "{alone}");
        for ranks in ["2", "3", "5"] {
            let shared = demo(problem, &["--ranks", ranks], &[]);
            assert_eq!(shared["bits"], alone["bits"], "{problem} on {ranks} ranks");
        }
    }
}

#[test]
fn misuse_is_one_line_that_says_what_would_be_accepted() {
    for (arguments, variables, words) in [
        (&["demo", "--ranks", "0"][..], &[][..], "at least 1"),
        (&["demo", "--ranks", "99999"], &[], "at most 1024"),
        (&["demo", "--ranks", "two"], &[], "from 1 to 1024"),
        (&["demo", "--deadline", "0"], &[], "from 0.001 to 1000000000"),
        (&["demo", "--deadline", "1e19"], &[], "from 0.001 to 1000000000"),
        (&["demo", "--problem", "tomography-3d", "--size", "16384"], &[], "GB are available"),
        (&["demo", "--ranks", "2"], &[("HALOSCOPE_COMM", "mpi")], "one of the two"),
        (&["demo", "--size", "0"], &[], "16..=16384"),
        (&["demo"], &[("HALOSCOPE_COMM", "gloo")], "solo, mpi and auto"),
        (&["demo"], &[("PMI_RANK", "first")], "0 or more"),
        (&["demo"], &[("RANK", "0"), ("WORLD_SIZE", "2")], "mpirun or srun"),
        (&["demo", "--ranks", "2"], &[("PMI_RANK", "0"), ("PMI_SIZE", "2")], "one of the two"),
    ] {
        let output = haloscope(arguments, variables);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {variables:?}: {message}");
        assert!(message.contains(words), "{arguments:?} {variables:?}: {message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn files_and_numbers_that_are_wrong_are_misuse_in_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (picture, nowhere, out) = (path("picture.png"), path("nowhere"), path("out.png"));
    image::GrayImage::new(8, 8).save(&picture).expect("the picture is written");
    for (arguments, words) in [
        (&["denoise", &nowhere, "--sigma", "0.1", "--out", &out][..], "nowhere"),
        (&["denoise", &picture, "--sigma", "0.1", "--threads", "0", "--out", &out], "threads"),
        (&["denoise", &picture, "--sigma", "0.1", "--out", &path("out.gif")], "out.gif"),
        (&["denoise", &picture, "--sigma", "76/255", "--out", &out], "for 0 to 0.294"),
        (
            &["denoise", &picture, "--sigma", "0.1", "--memory-budget", "1KB", "--out", &out],
            "memory",
        ),
        (&["evaluate", &nowhere, "--model", "builtin:gray"], "nowhere"),
        (&["evaluate", &picture, &nowhere, "--model", "builtin:gray"], "nowhere"),
        (&["evaluate", &picture, "--model", &nowhere], "nowhere"),
        (&["evaluate", &picture, "--model", "builtin:gray", "--threads", "0"], "threads"),
        (&["evaluate", &picture, "--model", "builtin:gray", "--levels", "9,99"], "for 0 to 0.294"),
        (&["submit", &nowhere, "--dry-run"], "nowhere"),
        (&["submit", "--grid", &nowhere, "--dry-run", "--", "info"], "nowhere"),
        (&["bench", "predict", &path(""), "--cluster", &nowhere], "nowhere"),
        (&["bench", "predict", &path(""), "--cluster", &picture], "picture.png"),
        (&["bench", "summary", &nowhere], "nowhere"),
        (&["bench", "scaling", "--slurm", &nowhere, "--dry-run"], "nowhere"),
        (&["bench", "scaling", "--model", &nowhere, "--out", &path("study")], "nowhere"),
        (&["dashboard", &nowhere, "--out", &out], "nowhere"),
        (&["plan", "--size", "64x64", "--model", &nowhere], "nowhere"),
    ] {
        let output = haloscope(arguments, &[]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
        // What the system says is said once.
        assert!(message.matches("os error").count() <= 1, "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 1, "nothing is written beside the picture");
}

#[test]
fn choosing_one_rank_ignores_a_launcher() {
    let variables = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("HALOSCOPE_COMM", "solo")];
    assert_eq!(demo("deblur", &[], &variables)["ranks"], 1);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn launcher_without_mpi_is_an_error_that_says_how_to_rebuild() {
    let variables = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")];
    let output = haloscope(&["demo"], &variables);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("--features mpi") && message.contains("--ranks 4"), "{message}");
    // Asking for information works all the same, and says what is wrong.
    let info = json(&["info", "--json"], &variables);
    assert_eq!(info["launched"], 4);
    assert!(info["problem"].as_str().is_some_and(|problem| problem.contains("--features mpi")));
}
