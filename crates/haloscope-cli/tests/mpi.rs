//! The command under mpirun, from the launcher in `MPIRUN` (default `mpirun`).
//!
//! `HALOSCOPE_KILLS` sets how often a process is killed; 4 by default.

mod jobs;
#[path = "../../haloscope/tests/launcher/mod.rs"]
mod launcher;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use haloscope_study::results::read_rows;
use haloscope_study::row::Row;
use jobs::{Folder, PRIMAL_DUAL, deblurring, wait_for};
use launcher::end_when_alone;

fn launch(ranks: usize, arguments: &[&str]) -> Command {
    let launcher = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let mut command = Command::new(launcher);
    command
        .args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_haloscope")])
        .args(arguments)
        // Open MPI refuses to run as root, and to run more ranks than cores, unless told to.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

fn mpirun(ranks: usize, arguments: &[&str]) -> Output {
    launch(ranks, arguments).output().expect("the launcher starts")
}

fn json(ranks: usize, arguments: &[&str]) -> serde_json::Value {
    let output = mpirun(ranks, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One document: only rank 0 speaks.
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

#[test]
fn info_names_the_ranks_and_the_library() {
    let info = json(2, &["info", "--json"]);
    assert_eq!(info["ranks"], 2);
    assert_eq!(info["problem"], serde_json::Value::Null);
    let library = info["mpi"].as_str().expect("a library");
    assert!(library.starts_with("Open MPI") || library.starts_with("MPICH"), "{library}");
}

#[test]
fn demo_gives_the_bits_of_one_rank_on_1_to_4_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    for problem in ["deblur", "tomography-2d", "tomography-3d", "super-resolution"] {
        let bits = |ranks| {
            let arguments = [
                "demo",
                "--problem",
                problem,
                "--size",
                "24",
                "--iterations",
                "8",
                "--json",
                "--out",
                &out,
            ];
            let demo = json(ranks, &arguments);
            assert_eq!(demo["ranks"], ranks);
            demo["bits"].clone()
        };
        let one = bits(1);
        assert!((2..=4).all(|ranks| bits(ranks) == one), "{problem}");
    }
}

#[test]
fn misuse_ends_all_processes_with_a_code_other_than_0() {
    let output = mpirun(2, &["demo", "--ranks", "2"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("one of the two"));
}

#[test]
fn a_job_gives_the_bits_of_one_rank_on_1_to_3_processes() {
    let folder = Folder::new();
    let job = deblurring(8, PRIMAL_DUAL);
    let expected = folder.bits(&job, &[]);
    for ranks in 1..=3 {
        let summary = json(ranks, &["reconstruct", &folder.name("job.toml"), "--json"]);
        assert_eq!(
            (&summary["bits"], &summary["ranks"]),
            (&expected.clone().into(), &ranks.into())
        );
    }
}

#[test]
fn an_exact_job_gives_the_bits_of_one_tile_on_1_to_4_processes() {
    let folder = Folder::new();
    let job = |tiles: &str| {
        let more = format!(
            "[solver]\nmethod = 'pgd'\n[prior]\nkind = 'network'\nmodel = 'builtin:color'\n{tiles}\n"
        );
        deblurring(2, &more).replace("size = [24, 20]", "size = [96, 80]")
    };
    let untiled = folder.bits(&job("strategy = 'basic'\npatch = [96, 80]"), &[]);
    let exact = folder.write("job.toml", job("strategy = 'exact'"));
    for ranks in 1..=4 {
        let summary = json(ranks, &["reconstruct", &exact, "--json", "--start-over"]);
        assert_eq!((&summary["bits"], &summary["ranks"]), (&untiled.clone().into(), &ranks.into()));
    }
}

#[test]
fn a_job_that_is_wrong_is_refused_once_for_all_processes() {
    let folder = Folder::new();
    let job = folder.write("job.toml", deblurring(8, PRIMAL_DUAL).replace("weight", "wieght"));
    let output = mpirun(2, &["reconstruct", &job]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert_eq!(message.matches("is `wieght` meant to be it?").count(), 1, "{message}");
}

/// The processes of a job, without its launcher.
fn processes_of(job: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0');
        if words.next() == Some(env!("CARGO_BIN_EXE_haloscope")) && words.any(|word| word == job) {
            found.push(entry.file_name().display().to_string());
        }
    }
    found
}

/// When a signal is sent.
enum When {
    After(Duration),
    /// As soon as there is a checkpoint.
    Saved,
}

/// Runs `job.toml` on two processes and sends one of them a signal, if told which and when. Gives the digest if it
/// ends well.
fn run_job(folder: &Folder, signal: Option<(&str, usize, When)>) -> Option<String> {
    let job = folder.name("job.toml");
    let mut running = launch(2, &["reconstruct", &job, "--json", "--resume"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the launcher starts");
    let name = job.clone();
    let _watched = end_when_alone(running.id(), move || processes_of(&name).is_empty());
    if let Some((signal, which, after)) = signal {
        let mut has_ended = || running.try_wait().is_ok_and(|status| status.is_some());
        wait_for("the job", || processes_of(&job).len() == 2 || has_ended());
        match after {
            When::After(time) => std::thread::sleep(time),
            When::Saved => wait_for("a checkpoint", || !folder.checkpoints().is_empty()),
        }
        if let Some(process) = processes_of(&job).get(which) {
            // It may be gone by now.
            let _ = Command::new("kill").args([signal, process]).output();
        }
    }
    let output = running.wait_with_output().expect("it ends");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    output.status.success().then(|| summary["bits"].as_str().expect("a digest").to_owned())
}

#[test]
fn a_job_whose_processes_are_killed_at_random_times_goes_on_to_the_same_bits() {
    let kills: usize =
        std::env::var("HALOSCOPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let text = deblurring(60, PRIMAL_DUAL) + "\n[checkpoint]\niterations = 1\n";
    let begin = Instant::now();
    let mut folder = Folder::new();
    let expected = folder.bits(&text, &[]);
    let whole = begin.elapsed();
    folder = Folder::new();
    let (mut killed, mut state) = (0, begin.elapsed().as_nanos() as u64);
    while killed < kills {
        folder.write("job.toml", &text);
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let after = whole.mul_f64((state >> 33) as f64 / (1_u64 << 31) as f64);
        match run_job(&folder, Some(("-KILL", (state >> 60) as usize % 2, When::After(after)))) {
            // It was faster.
            Some(bits) => {
                assert_eq!(bits, expected);
                folder = Folder::new();
            }
            None => killed += 1,
        }
    }
    folder.write("job.toml", &text);
    assert_eq!(run_job(&folder, None).as_deref(), Some(&expected[..]));
}

#[test]
fn a_signal_to_one_process_ends_all_with_a_checkpoint() {
    let folder = Folder::new();
    let text =
        deblurring(1_000_000, PRIMAL_DUAL).replace("folder = \"pictures\"", "file = \"a.npy\"");
    let text = text + "\n[checkpoint]\niterations = 1\n";
    folder.write("job.toml", &text);
    assert_eq!(run_job(&folder, Some(("-TERM", 1, When::Saved))), None);
    let latest = folder.checkpoints().pop().expect("a checkpoint");
    let name = latest.file_stem().expect("a name").display().to_string();
    let done: usize = name.trim_start_matches("iteration-").parse().expect("a number");
    folder.write("job.toml", text.replace("1000000", &(done + 2).to_string()));
    assert!(run_job(&folder, None).is_some());
}

/// A small study of processes, in a folder.
fn study(folder: &Path, arguments: &str) -> Command {
    let launcher = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    command
        .current_dir(folder)
        .args(
            "bench scaling --out results --model drunet:2-2-2-2:1 --overlap 4 --operators 4"
                .split(' '),
        )
        .args(["--iterations", "2", "--launcher", &format!("{launcher} -n")])
        .args(arguments.split_whitespace())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

fn rows(folder: &Path) -> Vec<Row> {
    read_rows(&folder.join("results")).unwrap_or_default()
}

#[test]
fn a_study_on_processes_finds_the_images_of_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = "--problem deblur --sizes 32 --patch 16 --repetitions 1 --ranks 1,2,3 --backend threads,mpi";
    let output = study(folder.path(), arguments).output().expect("the study starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Both kinds of ranks, two iterations, on one, two and three ranks; other images would have been an error.
    assert_eq!(rows(folder.path()).len(), 2 * 2 * 6);
    let text = std::fs::read(folder.path().join("results/provenance.json")).expect("provenance");
    let facts: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(facts["images"].as_object().map(serde_json::Map::len), Some(1), "{facts}");
    assert!(facts["links"]["mpi"]["latency_seconds"].as_f64() > Some(0.0), "{facts}");
}

#[test]
fn a_study_on_processes_scans_the_volume_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let volume = folder.path().join("volume.nii.gz");
    let values = haloscope::Array::from_shape_fn(vec![1, 1, 12, 10, 8], |at| at[2] as f32);
    haloscope::io::write(&volume, &values, &haloscope::io::WriteOptions::default())
        .expect("a file");
    let arguments = "--volume volume.nii.gz --sizes 16 --patch 8 --repetitions 1 --ranks 1,2 --backend threads,mpi";
    let output = study(folder.path(), arguments).output().expect("the study starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Other data or images of processes than of threads would have been an error.
    assert_eq!(rows(folder.path()).len(), 2 * 2 * 3);
}

/// The processes that a process has started, and those that they have.
fn descendants(process: &str) -> Vec<String> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children: Vec<String> =
        list.unwrap_or_default().split_whitespace().map(String::from).collect();
    let further: Vec<String> = children.iter().flat_map(|child| descendants(child)).collect();
    [children, further].concat()
}

#[test]
fn a_study_that_is_interrupted_ends_its_processes() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let folder = tempfile::tempdir().expect("a folder");
        let arguments =
            "--problem deblur --sizes 32 --patch 16 --repetitions 500 --ranks 2 --backend mpi";
        let mut running = study(folder.path(), arguments).spawn().expect("the study starts");
        wait_for("rows", || !rows(folder.path()).is_empty());
        let process = running.id().to_string();
        let started = descendants(&process);
        assert!(started.len() >= 3, "the launcher and two ranks: {started:?}");
        let sent = Command::new("kill").args([signal, &process]).status().expect("kill");
        assert!(sent.success(), "the study was over too soon");
        assert_eq!(running.wait().expect("it ends").code(), Some(code));
        let kept = rows(folder.path()).len();
        assert!(kept > 0 && kept.is_multiple_of(4), "whole repetitions, and not {kept} rows");
        // A launcher that has ended may leave it to the system to bury its ranks.
        let is_left = |process: &String| Path::new("/proc").join(process).exists();
        wait_for("the end of all processes", || !started.iter().any(is_left));
    }
}
