//! Operators and denoisers over MPI processes give the bits of one rank, and so do jobs whose processes are killed.
//!
//! Runs `distributed_rank`, `checkpoint_job` and `quickstart` under the launcher in `MPIRUN` (default `mpirun`), which must belong
//! to the MPI library of the build. `HALOSCOPE_KILLS` sets how often a process is killed; 6 by default.

mod launcher;
mod suite;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use haloscope_comm::Context;
use launcher::end_when_alone;

#[test]
fn every_operation_has_the_same_bits_on_1_to_4_processes() {
    let alone: Vec<String> = suite::facts(&Context::solo())
        .expect("one rank")
        .into_iter()
        .map(|(name, bits)| format!("{bits:016x} {name}"))
        .collect();
    for ranks in 1..=4 {
        let output = launch(ranks, "distributed_rank").output().expect("the launcher starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let facts: Vec<&str> = text.lines().collect();
        assert_eq!(facts, alone, "{ranks} processes");
    }
}

#[test]
fn the_quick_start_prints_the_same_numbers_on_1_to_4_processes() {
    let print = |ranks| {
        let output = launch(ranks, "quickstart").output().expect("the launcher starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let alone = print(1);
    assert_eq!(alone.lines().count(), 6, "{alone}");
    for ranks in 2..=4 {
        assert_eq!(print(ranks), alone, "{ranks} processes");
    }
}

#[test]
fn a_process_that_ends_between_two_layers_of_an_exact_denoiser_is_named_by_the_others() {
    for (fault, ranks, words) in
        [("panic", 3, "panicked"), ("stall", 2, "did not arrive"), ("panic", 4, "panicked")]
    {
        let output = launch(ranks, "distributed_rank").arg(fault).output();
        let output = output.expect("the launcher starts");
        assert!(!output.status.success(), "{fault} of {ranks}");
        // Launchers pass on what processes print on either stream.
        let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        let last = format!("rank {}", ranks - 1);
        for rank in 0..ranks - 1 {
            let line = text.lines().find(|line| line.contains(&format!("[{rank}] got: ")));
            let line = line.unwrap_or_else(|| panic!("rank {rank} says nothing:\n{text}"));
            assert!(line.contains(&last) && line.contains(words), "{line}");
        }
    }
}

/// Processes of an example under the launcher.
fn launch(ranks: usize, example: &str) -> Command {
    let launcher = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("the target folder");
    let mut command = Command::new(launcher);
    command
        .args(["-n", &ranks.to_string()])
        .arg(folder.join("examples").join(example))
        // Open MPI refuses to run as root, and to run more ranks than cores, unless told to.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

/// Whether a job in a folder has processes.
fn has_processes(folder: &Path) -> bool {
    let entries = std::fs::read_dir("/proc").expect("a list of processes");
    entries.filter_map(Result::ok).any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0');
        words.next().is_some_and(|program| program.ends_with("/checkpoint_job"))
            && words.any(|word| Path::new(word) == folder)
    })
}

/// Runs the job on two processes and kills one of them, if told which and when. Gives the digest if it ends well.
fn run_job(folder: &Path, layout: &str, kill: Option<(usize, Duration)>) -> Option<String> {
    let mut job = launch(2, "checkpoint_job")
        .arg(folder)
        .args(["40", "2", layout])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the launcher starts");
    let of_job = folder.to_owned();
    let _watched = end_when_alone(job.id(), move || !has_processes(&of_job));
    let (mut processes, mut digest) = (Vec::new(), None);
    for line in BufReader::new(job.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        digest = line.strip_prefix("digest ").map(str::to_owned).or(digest);
        processes.extend(line.strip_prefix("process ").map(str::to_owned));
        if let (Some((which, after)), 2, None) = (kill, processes.len(), &digest) {
            std::thread::sleep(after);
            let killed = Command::new("kill").args(["-9", &processes[which]]).output();
            killed.expect("the signal is sent");
        }
    }
    let ended_well = job.wait().expect("it ends").success();
    digest.filter(|_| ended_well)
}

#[test]
fn a_job_whose_processes_are_killed_at_random_times_goes_on_to_the_same_bits() {
    let kills: usize =
        std::env::var("HALOSCOPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let folder = || tempfile::tempdir().expect("a folder");
    let begin = Instant::now();
    let expected = run_job(folder().path(), "replicated", None).expect("a digest");
    let whole = begin.elapsed();
    let mut random = fastrand::Rng::with_seed(12);
    for layout in ["replicated", "sharded"] {
        let (mut current, mut killed) = (folder(), 0);
        while killed < kills {
            let after = whole.mul_f64(0.5 * random.f64());
            match run_job(current.path(), layout, Some((random.usize(..2), after))) {
                // It was faster.
                Some(digest) => {
                    assert_eq!(digest, expected, "{layout}");
                    current = folder();
                }
                None => killed += 1,
            }
        }
        let resumed = run_job(current.path(), layout, None);
        assert_eq!(resumed.as_deref(), Some(&expected[..]), "{layout}");
    }
}

#[test]
fn a_job_that_ends_on_3_processes_resumes_on_5_in_either_layout() {
    let run = |ranks, folder: &Path, iterations: &str, layout: &str| {
        let mut job = launch(ranks, "checkpoint_job");
        let output = job.arg(folder).args([iterations, "1", layout]).output();
        let output = output.expect("the launcher starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        let digest = text.lines().find_map(|line| line.strip_prefix("digest "));
        digest.unwrap_or_else(|| panic!("no digest: {text}")).to_owned()
    };
    let folder = || tempfile::tempdir().expect("a folder");
    let expected = run(1, folder().path(), "8", "replicated");
    for first in ["replicated", "sharded"] {
        for second in ["replicated", "sharded"] {
            let folder = folder();
            assert_ne!(run(3, folder.path(), "5", first), expected);
            let kept = std::fs::read_dir(folder.path()).expect("a folder").count();
            assert!(kept > 0, "{first}: there is no checkpoint");
            assert_eq!(run(5, folder.path(), "8", second), expected, "{first}, then {second}");
        }
    }
}
