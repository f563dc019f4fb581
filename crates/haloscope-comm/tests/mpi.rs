//! Real MPI processes: the facts of `suite`, endurance, and every way in which a process can fail.
//!
//! Runs `rank_process` under the launcher in `MPIRUN` (default `mpirun`), which must belong to the
//! MPI library of the build. `HALOSCOPE_FAULT_REPEATS` repeats the faults (default 2).

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a run printed and how it ended.
struct Outcome {
    code: Option<i32>,
    text: String,
}

/// How long a run may take before it counts as hanging; runs with faults take seconds.
const HANGING: Duration = Duration::from_mins(2);

fn run(ranks: usize, arguments: &[&str]) -> Outcome {
    run_with(ranks, &[], &[], arguments)
}

fn run_with(
    ranks: usize,
    settings: &[(&str, &str)],
    launcher_options: &[&str],
    arguments: &[&str],
) -> Outcome {
    let launcher = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let program = rank_process();
    // Some launchers leave processes behind when they are killed themselves, so none is piped here.
    let log = std::env::temp_dir().join(format!(
        "haloscope-mpi-{}-{ranks}-{}",
        std::process::id(),
        arguments.join("-")
    ));
    let file = std::fs::File::create(&log).expect("a temporary file");
    let mut child = Command::new(&launcher)
        .args(["-n", &ranks.to_string()])
        .args(launcher_options)
        .arg(program)
        .args(arguments)
        // Open MPI refuses to run as root, and to run more ranks than cores, unless told to.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a second handle"))
        .stderr(file)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {launcher}: {error}"));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the launcher can be waited for") {
            break status;
        }
        if begin.elapsed() > HANGING {
            let _ = child.kill();
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("{ranks} ranks with {arguments:?} hang; so far:\n{text}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = String::from_utf8_lossy(&std::fs::read(&log).expect("the log")).into_owned();
    let _ = std::fs::remove_file(&log);
    Outcome { code: status.code(), text }
}

/// The example is built beside the test: `target/*/examples` next to `target/*/deps`.
fn rank_process() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("the target folder");
    let program = folder.join("examples/rank_process");
    assert!(program.exists(), "{} is missing: build with --examples", program.display());
    program
}

fn succeeds(ranks: usize, arguments: &[&str], words: &str) {
    let Outcome { code, text } = run(ranks, arguments);
    assert_eq!(code, Some(0), "{ranks} ranks with {arguments:?}:\n{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn facts_hold_on_1_to_4_processes() {
    for ranks in 1..=4 {
        succeeds(ranks, &["facts", "262144"], &format!("15 facts hold on {ranks} ranks"));
    }
}

/// As if MPI could count to a few hundred only.
#[test]
fn facts_hold_when_messages_are_split() {
    for ranks in [2, 3] {
        succeeds(ranks, &["facts", "1000"], "facts hold");
    }
}

/// More than fits on the way at once, between more than two ranks.
#[test]
fn large_data_arrives_whole() {
    for ranks in 2..=4 {
        succeeds(ranks, &["large"], "");
    }
}

#[test]
fn hundred_thousand_collectives_leave_memory_flat() {
    succeeds(2, &["endurance"], "100000 calls");
    succeeds(3, &["endurance"], "100000 calls");
}

#[test]
fn work_of_rank_0_may_take_longer_than_the_deadline() {
    succeeds(3, &["patience"], "3 ranks have waited");
}

#[test]
fn mpi_of_the_program_is_used_and_left_alone() {
    succeeds(2, &["attached"], "attached and left");
}

#[test]
fn ranks_come_and_go_until_the_process_exits() {
    for ranks in 1..=3 {
        succeeds(ranks, &["joined"], "joined and left");
    }
}

fn repeats() -> usize {
    std::env::var("HALOSCOPE_FAULT_REPEATS").map_or(2, |text| text.parse().expect("a number"))
}

/// The job ends with a code other than 0, every surviving rank says `words`, and nothing is left.
fn fails(fault: &str, words: &str) {
    for repeat in 0..repeats() {
        let ranks = [3, 2, 4][repeat % 3];
        let outcome = run(ranks, &[fault]);
        assert_ne!(outcome.code, Some(0), "{}", outcome.text);
        survivors_say(ranks, &outcome, words);
        nothing_is_left(fault);
    }
}

/// All ranks but the last name it, with `words`.
fn survivors_say(ranks: usize, Outcome { text, .. }: &Outcome, words: &str) {
    let failed = format!("rank {}", ranks - 1);
    for survivor in 0..ranks - 1 {
        let line = text.lines().find(|line| line.contains(&format!("[{survivor}] got: ")));
        let line = line.unwrap_or_else(|| panic!("rank {survivor} says nothing:\n{text}"));
        assert!(line.contains(&failed) && line.contains(words), "{line}");
    }
}

fn nothing_is_left(fault: &str) {
    let is_ours = |id: &str| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let mut words = command.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"/rank_process"))
            && words.next() == Some(fault.as_bytes())
    };
    let begin = Instant::now();
    loop {
        let left: Vec<String> = std::fs::read_dir("/proc")
            .expect("a /proc folder")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()) && is_ours(id))
            .collect();
        if left.is_empty() {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "processes {left:?} are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn panic_of_a_process_reaches_all_others() {
    fails("panic", "panicked");
}

#[test]
fn early_return_of_a_process_is_noticed() {
    fails("return", "left while other ranks still needed it");
}

#[test]
fn stalled_process_is_named_at_the_deadline() {
    fails("stall", "did not arrive within 2");
}

#[test]
fn stopped_process_is_named_and_ended() {
    fails("stop", "did not arrive within 2");
}

#[test]
fn abort_ends_every_process_with_its_reason() {
    fails("abort", "ended the job: the disk is full");
}

#[test]
fn different_calls_are_an_error_on_all_processes_that_names_both() {
    fails("mismatch", "all_reduce(max, f32 × 99999)");
    fails("mismatch", "all_reduce(sum, f32 × 100000)");
}

#[test]
fn process_that_exits_reaches_all_others() {
    fails("exit", "exited in the middle of the job");
}

/// The launcher notices by itself that a process died, and ends the others.
#[test]
fn killed_process_does_not_leave_others_running() {
    for repeat in 0..repeats() {
        let Outcome { code, text } = run([3, 2, 4][repeat % 3], &["kill"]);
        assert_ne!(code, Some(0), "{text}");
        nothing_is_left("kill");
    }
}

/// Where the launcher leaves the others alone, as srun does, they notice by themselves.
#[test]
fn killed_process_is_named_by_those_that_outlive_it() {
    if std::env::var("MPIRUN").is_ok_and(|launcher| launcher.contains("mpich")) {
        println!("skipped: this launcher always ends the other processes");
        return;
    }
    for repeat in 0..repeats() {
        let ranks = [3, 2, 4][repeat % 3];
        // Told to let the others live, the launcher takes the job for a success in the end.
        let outcome = run_with(ranks, &[], &["--enable-recovery"], &["kill"]);
        survivors_say(ranks, &outcome, "did not arrive within 2");
        nothing_is_left("kill");
    }
}

/// A process that never initialises MPI keeps the others waiting in `MPI_Init`, which knows no deadline.
#[test]
fn a_job_whose_processes_do_not_all_start_ends() {
    // The second program of the launcher's line.
    let absent = ["suite", ":", "-n", "1", "sleep", "600"];
    let Outcome { code, text } = run_with(1, &[("HALOSCOPE_START_SECONDS", "2")], &[], &absent);
    assert!(code != Some(0), "{text}");
    assert!(text.contains("MPI did not start within 2 s"), "{text}");
}
