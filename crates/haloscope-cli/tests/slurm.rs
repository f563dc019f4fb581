//! `haloscope submit` with a real Slurm, which `scripts/slurm-test` starts: `make slurm` runs these tests.
//!
//! They run one after the other: the cluster is this machine.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A demo that takes a moment.
const DEMO: [&str; 6] = ["demo", "--size", "24", "--iterations", "8", "--json"];

fn is_there() -> bool {
    let is_there = std::env::var_os("SLURM_CONF").is_some();
    if !is_there {
        eprintln!("skipped: jobs of Slurm, which make slurm runs");
    }
    is_there
}

/// The command, in a folder of its own.
fn haloscope(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    command.current_dir(folder).args(arguments);
    command
}

fn submit(folder: &Path, options: &[&str], command: &[&str]) -> Output {
    let arguments = [&["submit"], options, &["--"], command].concat();
    haloscope(folder, &arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    report(&text(&output.stdout))
}

/// The document in what a job prints; warnings of its ranks are around it.
fn report(output: &str) -> Value {
    let (begin, end) = (output.find('{').expect(output), output.rfind('}').expect(output));
    serde_json::from_str(&output[begin..=end]).expect("the output has JSON")
}

/// What the queue holds.
fn queue() -> String {
    let output = Command::new("squeue").arg("--noheader").output().expect("squeue starts");
    text(&output.stdout)
}

#[test]
fn a_demo_on_two_nodes_has_the_bits_of_one_rank() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let alone = json(&haloscope(folder.path(), &DEMO).output().expect("the command starts"));
    for (nodes, tasks) in [(1, 2), (2, 1), (2, 2)] {
        let (nodes_text, tasks_text) = (nodes.to_string(), tasks.to_string());
        let options = ["--nodes", &nodes_text, "--tasks-per-node", &tasks_text, "--time", "5"];
        let output = submit(folder.path(), &options, &[&DEMO[..], &["--out", "{out}"]].concat());
        let demo = json(&output);
        assert_eq!(demo["ranks"], nodes * tasks);
        assert_eq!(demo["bits"], alone["bits"]);
        assert!(text(&output.stderr).contains("has ended: COMPLETED"), "{}", text(&output.stderr));
        assert!(folder.path().join("haloscope-slurm/results/after.png").exists());
    }
}

#[test]
fn a_job_that_fails_is_an_error_that_names_its_output() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = submit(folder.path(), &["--tasks-per-node", "2"], &["demo", "--size", "3"]);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("ended as FAILED with code 2"), "{complaint}");
    assert!(complaint.contains("output.txt"), "{complaint}");
    assert!(text(&output.stdout).contains("--size"), "what the job said is shown");
}

#[test]
fn what_slurm_refuses_is_said() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = submit(folder.path(), &["--partition", "moon"], &DEMO);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint.starts_with("haloscope: sbatch: ") && complaint.contains("partition"),
        "{complaint}"
    );
}

#[test]
fn an_interruption_leaves_the_job_running_and_says_how_to_end_it() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let long = ["submit", "--", "demo", "--size", "256", "--iterations", "100000"];
    let mut child = haloscope(folder.path(), &long)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let begin = Instant::now();
    while !queue().contains(" R ") {
        assert!(begin.elapsed() < Duration::from_mins(2), "the job does not run: {}", queue());
        std::thread::sleep(Duration::from_millis(100));
    }
    let pid = child.id().to_string();
    let interrupt = Command::new("kill").args(["-INT", &pid]).status().expect("kill starts");
    assert!(interrupt.success());
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said)
        .expect("text");
    assert_eq!(status.code(), Some(130), "{said}");
    let cancel = said.split('`').nth(1).expect(&said).to_owned();
    assert!(cancel.starts_with("scancel ") && queue().contains(" R "), "{said}{}", queue());
    let id = cancel.trim_start_matches("scancel ");
    assert!(Command::new("scancel").arg(id).status().expect("scancel starts").success());
    while !queue().is_empty() {
        assert!(begin.elapsed() < Duration::from_mins(4), "the job does not end: {}", queue());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_grid_runs_a_job_for_each_allocation() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let grid = "time = \"5\"\n[grid]\nnodes = [1, 1, 2]\ntasks-per-node = [1, 2, 2]\n";
    std::fs::write(folder.path().join("grid.toml"), grid).expect("a file");
    let command = [&DEMO[..], &["--out", "{out}"]].concat();
    let output = submit(folder.path(), &["--grid", "grid.toml", "--out", "jobs"], &command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let demo = |name: &str| -> Value {
        let file = folder.path().join("jobs").join(name).join("output.txt");
        report(&std::fs::read_to_string(file).expect("an output"))
    };
    let found: Vec<Value> = ["1x1", "1x2", "2x2"].map(demo).into();
    let ranks: Vec<&Value> = found.iter().map(|demo| &demo["ranks"]).collect();
    assert_eq!(ranks, [1, 2, 4]);
    assert!(found.iter().all(|demo| demo["bits"] == found[0]["bits"]));
    let described = std::fs::read(folder.path().join("jobs/provenance.json")).expect("a file");
    let described: Value = serde_json::from_slice(&described).expect("JSON");
    assert_eq!(described["jobs"][2]["ending"], "COMPLETED");
}

#[test]
fn a_study_on_a_cluster_leaves_one_table() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let grid = "srun = [\"--mpi=pmi2\"]\n[grid]\nnodes = [1, 1, 2]\ntasks-per-node = [1, 2, 2]\n";
    std::fs::write(folder.path().join("grid.toml"), grid).expect("a file");
    let study = [
        "bench",
        "scaling",
        "--slurm",
        "grid.toml",
        "--problem",
        "deblur",
        "--sizes",
        "32",
        "--model",
        "drunet:4-4-4-4:1",
        "--patch",
        "16",
        "--overlap",
        "4",
        "--iterations",
        "2",
        "--repetitions",
        "1",
        "--out",
        "jobs",
    ];
    let output = haloscope(folder.path(), &study).output().expect("the command starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    // Two iterations on 1, 2 and 4 ranks.
    assert!(text(&output.stdout).starts_with("3 jobs, 14 rows\n"), "{}", text(&output.stdout));
    let summary =
        haloscope(folder.path(), &["bench", "summary", "jobs"]).output().expect("it starts");
    assert!(text(&summary.stdout).contains("4 ranks (mpi)"), "{}", text(&summary.stderr));
    assert_eq!(folder.path().join("jobs/rows.parquet").exists(), cfg!(feature = "parquet"));
    let page = haloscope(folder.path(), &["dashboard", "jobs"]).output().expect("it starts");
    assert!(text(&page.stdout).starts_with("14 rows of 1 run\n"), "{}", text(&page.stderr));
}
