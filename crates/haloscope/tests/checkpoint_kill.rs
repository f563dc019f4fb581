//! A job that is killed at any time goes on to the bits of one that was not.
//!
//! `HALOSCOPE_KILLS` sets how often it is killed on each number of ranks; 12 by default.

mod resumed;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use haloscope::solve::{Checkpoints, Every};
use haloscope_comm::Context;

const ITERATIONS: usize = 40;

fn start(folder: &Path, ranks: usize, layout: &str) -> Child {
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.parent().and_then(|deps| deps.parent()).expect("the target folder");
    Command::new(target.join("examples/checkpoint_job"))
        .arg(folder)
        .args([ITERATIONS.to_string(), ranks.to_string(), layout.to_owned()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the job starts")
}

/// The digest that a job which was left alone prints.
fn finish(job: Child) -> String {
    let output = job.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    digest_of(&output)
}

fn digest_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().and_then(|line| line.strip_prefix("digest ")).expect("a digest").to_owned()
}

#[test]
fn a_job_that_is_killed_at_random_times_goes_on_to_the_same_bits() {
    let kills: usize =
        std::env::var("HALOSCOPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let folder = || tempfile::tempdir().expect("a folder");
    let begin = std::time::Instant::now();
    let expected = finish(start(folder().path(), 1, "replicated"));
    let whole = begin.elapsed().max(Duration::from_millis(40));
    let mut random = fastrand::Rng::with_seed(11);
    // Parts that a checkpoint names are no leftovers of one that was being written.
    let is_leftover = |folder: &Path, name: &str| {
        let checkpoint = name.split('.').next().map(|start| format!("{start}.checkpoint"));
        let is_named = checkpoint.is_some_and(|it| folder.join(it).exists());
        Path::new(name).extension().is_some_and(|end| end == "part") && !is_named
    };
    for (ranks, layout) in [(1, "replicated"), (2, "replicated"), (3, "sharded")] {
        let mut current = folder();
        let (mut killed, mut finished, mut midway, mut leftovers) = (0, 0, 0, 0);
        while killed < kills {
            let mut job = start(current.path(), ranks, layout);
            std::thread::sleep(whole.mul_f64(0.5 * random.f64()));
            job.kill().expect("SIGKILL is sent");
            let output = job.wait_with_output().expect("it ends");
            if output.status.success() {
                // It was faster.
                assert_eq!(digest_of(&output), expected, "{ranks} ranks, {layout}");
                finished += 1;
                current = folder();
                continue;
            }
            killed += 1;
            let entries = std::fs::read_dir(current.path()).expect("a folder");
            leftovers += entries
                .filter(|entry| {
                    let name = entry.as_ref().expect("an entry").file_name();
                    is_leftover(current.path(), &name.to_string_lossy())
                })
                .count();
            let mut checkpoints =
                Checkpoints::new(current.path(), Every::default()).expect("checkpoints");
            let found = checkpoints.load_latest(&Context::solo(), &resumed::job());
            if let Some(found) = found.expect("what is there can be used") {
                // A checkpoint has its name only when it is whole.
                assert!(found.rejected.is_empty(), "{found:?}");
                midway += 1;
            }
            assert!(checkpoints.list().expect("a list").len() <= 3);
        }
        println!(
            "{ranks} ranks, {layout}: killed {killed} times, {midway} with a checkpoint to go on from, \
             {leftovers} while one was written; {finished} times it was faster"
        );
        assert_eq!(
            finish(start(current.path(), ranks, layout)),
            expected,
            "{ranks} ranks, {layout}"
        );
    }
}
