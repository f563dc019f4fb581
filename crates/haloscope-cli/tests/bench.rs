//! `haloscope bench` as a user runs it: studies on tiny sizes, stopped and continued.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use haloscope_study::parquet::read_parquet;
use haloscope_study::results::read_rows;
use haloscope_study::row::{Row, Study};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"] {
        command.env_remove(name);
    }
    command.arg("bench").args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bench(arguments: &[&str]) -> Output {
    let output = command(arguments).output().expect("the command starts");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

const TINY: &str = "--problem highres-color,tomography-2d --sizes 32 --model drunet:2-2-2-2:1 --patch 16 --overlap 4 \
                    --operators 4 --iterations 2 --repetitions 2";

/// A tiny scaling study, with further options.
fn scaling<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["scaling", "--out", out];
    arguments.extend(TINY.split_whitespace());
    arguments.extend(more);
    arguments
}

/// The rows of a folder, the same in both files.
fn rows(folder: &Path) -> Vec<Row> {
    let rows = read_rows(folder).expect("rows");
    assert_eq!(read_parquet(&folder.join("rows.parquet")).expect("Parquet"), rows);
    rows
}

fn provenance(folder: &Path) -> serde_json::Value {
    let text = std::fs::read(folder.join("provenance.json")).expect("provenance");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn scaling_measures_every_rank_and_goes_on_with_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let first = bench(&scaling(&out, &["--ranks", "1,2"]));
    let measured = rows(folder.path());
    // Two problems, two repetitions of two iterations, on one rank and on two.
    assert_eq!(measured.len(), 2 * 2 * 2 * 3);
    assert!(text(&first.stdout).contains("efficiency"), "{}", text(&first.stdout));
    assert!(
        text(&first.stdout).contains("The model of larger machines"),
        "{}",
        text(&first.stdout)
    );
    let facts = provenance(folder.path());
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    assert!(facts["links"]["threads"]["bytes_per_second"].as_f64() > Some(0.0), "{facts}");
    assert_eq!(facts["data"].as_object().map(serde_json::Map::len), Some(2), "{facts}");

    let second = bench(&scaling(&out, &["--ranks", "1,2,3"]));
    let more = rows(folder.path());
    assert_eq!(more[..measured.len()], measured, "what was there stays");
    assert_eq!(more.len(), 2 * 2 * 2 * 6);
    assert_eq!(text(&second.stderr).matches("was there").count(), 4, "{}", text(&second.stderr));

    let other = command(&scaling(&out, &["--seed", "5"])).output().expect("the command starts");
    assert!(!other.status.success() && text(&other.stderr).contains("another folder"));
}

#[test]
fn interrupted_studies_keep_their_rows_and_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments = scaling(&out, &["--ranks", "1,2"]);
    let mut study = command(&arguments);
    std::os::unix::process::CommandExt::process_group(&mut study, 0);
    let mut child = study.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    let begin = Instant::now();
    let has_rows = || read_rows(folder.path()).is_ok_and(|rows| !rows.is_empty());
    while !has_rows() && begin.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // As a terminal does: to the study and to the process that measures.
    let group = format!("-{}", child.id());
    let killed = Command::new("kill").args(["-INT", "--", &group]).status().expect("kill");
    assert!(killed.success() || child.try_wait().is_ok_and(|status| status.is_some()));
    child.wait().expect("it ends");
    let kept = read_rows(folder.path()).expect("rows");
    assert!(!kept.is_empty());

    bench(&arguments);
    let all = rows(folder.path());
    assert_eq!(all[..kept.len()], kept, "what was measured before stays");
    assert_eq!(all.len(), 2 * 2 * 2 * 3);
}

#[test]
fn studies_of_networks_share_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let memory =
        ["memory", "--model", "dncnn:4:3,unet:2-4", "--height", "16", "--widths", "16,24,28"];
    let batch =
        ["batch", "--model", "dncnn:4:3", "--size", "32", "--patches", "16", "--batches", "1,2"];
    let shared = ["--out", &out, "--repetitions", "1", "--threads", "1"];
    let first = bench(&[&memory[..], &shared].concat());
    assert!(text(&first.stdout).contains("straight line"), "{}", text(&first.stdout));
    let second = bench(&[&batch[..], &shared].concat());
    assert!(text(&second.stdout).contains("patches/s"), "{}", text(&second.stdout));
    let rows = rows(folder.path());
    let count = |study| rows.iter().filter(|row| row.study == study).count();
    assert_eq!((count(Study::Memory), count(Study::Batch)), (6, 2));
    let summary = text(&bench(&["summary", &out]).stdout);
    assert!(summary.contains("Memory") && summary.contains("Batches"), "{summary}");
}

#[test]
fn a_comparison_without_deepinv_says_that_it_skips() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments = "compare --problem super-resolution --sizes 16 --model dncnn:4:3 --operators 2 --iterations 2 \
                     --repetitions 1 --python there/is/no/python --out";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.push(&out);
    let output = bench(&arguments);
    assert!(text(&output.stderr).contains("skipped: deepinv"), "{}", text(&output.stderr));
    assert_eq!(rows(folder.path()).len(), 2);
}

#[test]
fn predictions_are_marked_and_their_error_is_stated() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("results").display().to_string();
    let cluster = folder.path().join("cluster.toml");
    std::fs::write(
        &cluster,
        "name = 'four nodes'\nnodes = 4\nranks_per_node = 16\n\
         within = { latency_seconds = 1e-6, bytes_per_second = 1e10 }\n\
         between = { latency_seconds = 2e-6, bytes_per_second = 1e10 }\n",
    )
    .expect("a file");
    bench(&scaling(&out, &["--ranks", "1,2"]));
    let cluster = cluster.display().to_string();
    let predict = ["predict", &out, "--cluster", &cluster, "--sizes", "64", "--ranks", "1,64,128"];
    for _ in 0..2 {
        let output = bench(&predict);
        let said = text(&output.stdout);
        assert!(said.contains("PREDICTED") && said.contains("off by at most"), "{said}");
        assert!(text(&output.stderr).contains("has 64 ranks; more are left out"));
        let rows = rows(Path::new(&out));
        // Two problems, two layouts, two numbers of ranks; the second time they replace the first.
        let predicted: Vec<&Row> = rows.iter().filter(|row| row.predicted).collect();
        assert_eq!(predicted.len(), 2 * 2 * 2);
        assert!(predicted.iter().all(|row| row.height == 64 && row.total_seconds > 0.0));
    }
}

#[test]
fn misuse_is_one_line_that_says_what_would_be_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    for (arguments, words) in [
        (&["scaling", "--problem", "mri"][..], "highres-color"),
        (&["scaling", "--model", "vgg"], "dncnn:64:20"),
        (&["scaling", "--ranks", "0"], "at least 1"),
        (&["scaling", "--sizes", "4"], "from 8"),
        (&["scaling", "--operators", "500", "--problem", "tomography-2d"], "1 to 100"),
        (&["batch", "--batches", "0"], "at least 1"),
        (&["scaling", "--backend", "gloo"], "threads and mpi"),
    ] {
        let output = command(&[arguments, &["--out", &out]].concat()).output().expect("it starts");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
    assert!(
        std::fs::read_dir(folder.path()).expect("a folder").next().is_none(),
        "nothing is written"
    );
    let missing = command(&["summary", &out]).output().expect("it starts");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("rows.csv"));
}

#[cfg(not(feature = "mpi"))]
#[test]
fn processes_need_a_build_with_mpi() {
    let output = command(&["scaling", "--backend", "mpi"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--features mpi"), "{}", text(&output.stderr));
}

#[test]
fn deepinv_is_compared_where_a_python_has_it() {
    let Ok(python) = std::env::var("HALOSCOPE_PYTHON") else {
        println!("skipped: a comparison with deepinv, which needs HALOSCOPE_PYTHON");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments = "compare --problem highres-color,tomography-3d --sizes 16 --model drunet:2-2-2-2:1 --operators 2 \
                     --iterations 2 --repetitions 1 --threads 1";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.extend(["--python", &python, "--out", &out]);
    let output = bench(&arguments);
    assert!(text(&output.stderr).contains("skipped: tomography-3d in deepinv"));
    let systems: Vec<String> = rows(folder.path()).into_iter().map(|row| row.system).collect();
    assert_eq!(systems.iter().filter(|system| *system == "haloscope").count(), 4);
    assert_eq!(systems.iter().filter(|system| *system == "deepinv").count(), 2);
    assert!(text(&output.stdout).contains("times ours"), "{}", text(&output.stdout));
}
