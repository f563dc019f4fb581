//! Jobs that are killed, stopped by signals or run out of disk go on to the bits of those that were left alone.
//!
//! `HALOSCOPE_KILLS` sets how often a job is killed on each number of ranks; 4 by default.
#![cfg(unix)]

mod jobs;

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use jobs::{Folder, PRIMAL_DUAL, deblurring, json, list, text, wait_for};

const ITERATIONS: usize = 60;

fn job(iterations: usize) -> String {
    deblurring(iterations, PRIMAL_DUAL) + "\n[checkpoint]\niterations = 1\n"
}

/// The same with its image in shards, so that checkpoints are in parts.
fn job_in_shards(iterations: usize) -> String {
    let whole = job(iterations).replace("folder = \"pictures\"", "file = \"image.npy\"");
    format!("image = \"sharded\"\n{whole}")
}

fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &process.id().to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

#[test]
fn a_job_that_is_killed_at_random_times_goes_on_to_the_same_bits() {
    let kills: usize =
        std::env::var("HALOSCOPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let begin = Instant::now();
    let expected = Folder::new().bits(&job(ITERATIONS), &[]);
    let whole = begin.elapsed().max(Duration::from_millis(40));
    // The clock is as good a seed as any: the result must not depend on it.
    let mut random = begin.elapsed().as_nanos() as u64 | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    // Wide kernels are rounded differently in shards.
    let in_shards = Folder::new().bits(&job_in_shards(ITERATIONS), &["--ranks", "2"]);
    let cases = [
        ("1", job(ITERATIONS), &expected),
        ("2", job(ITERATIONS), &expected),
        ("3", job_in_shards(ITERATIONS), &in_shards),
    ];
    for (ranks, job, expected) in &cases {
        let mut folder = Folder::new();
        let (mut killed, mut midway, mut finished) = (0, 0, 0);
        while killed < kills {
            let options = ["--resume", "--quiet", "--ranks", ranks];
            let mut running = folder.start(job, &options);
            std::thread::sleep(whole.mul_f64(0.7 * next()));
            running.kill().expect("SIGKILL is sent");
            let output = running.wait_with_output().expect("it ends");
            if output.status.success() {
                // It was faster.
                assert_eq!(json(&output)["bits"], **expected, "{ranks} ranks");
                finished += 1;
                folder = Folder::new();
                continue;
            }
            killed += 1;
            let there = folder.checkpoints().len();
            assert!(there <= 3, "the last two are kept, and one may be on its way");
            midway += usize::from(there > 0);
        }
        println!(
            "{ranks} ranks: killed {killed} times, {midway} with a checkpoint to go on from; {finished} \
             times it was faster"
        );
        // Of a few, all may come too early; of many, none would be a run that saves nothing.
        assert!(kills < 20 || midway > 0, "no kill left a checkpoint");
        let resumed = folder.bits(job, &["--resume", "--ranks", ranks]);
        assert_eq!(resumed, **expected, "{ranks} ranks");
    }
}

#[test]
fn a_signal_ends_the_iteration_and_leaves_a_checkpoint() {
    for (name, code, word) in [("-INT", 130, "Ctrl-C"), ("-TERM", 143, "SIGTERM")] {
        for ranks in ["1", "2", "3"] {
            let folder = Folder::new();
            let endless = deblurring(1_000_000, PRIMAL_DUAL)
                .replace("folder = \"pictures\"", "file = \"image.npy\"");
            let endless = endless + "\n[checkpoint]\niterations = 1\n";
            let running = folder.start(&endless, &["--ranks", ranks]);
            wait_for("a checkpoint", || !folder.checkpoints().is_empty());
            signal(&running, name);
            let output = running.wait_with_output().expect("it ends");
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{ranks} ranks: {message}");
            assert!(message.contains(word) && message.contains("--resume"), "{message}");
            assert!(output.stdout.is_empty() && !folder.path("image.npy").exists());
            let latest = folder.checkpoints().pop().expect("a checkpoint");
            let name = latest.file_stem().expect("a name").display().to_string();
            let done: usize = name.trim_start_matches("iteration-").parse().expect("a number");
            let more = endless.replace("1000000", &(done + 3).to_string());
            let resumed = folder.bits(&more, &["--resume"]);
            assert_eq!(resumed, Folder::new().bits(&more, &[]), "{ranks} ranks");
        }
    }
}

/// The first iteration takes hours, and one signal alone would end it with a checkpoint.
#[test]
fn a_second_signal_ends_at_once() {
    let folder = Folder::new();
    let prior = "weight = 0.002\niterations = 1000000000\ntolerance = 0";
    let job = deblurring(2, PRIMAL_DUAL)
        .replace("size = [24, 20]", "size = [400, 400]")
        .replace("weight = 0.002", prior)
        .replace("primal-dual", "pgd");
    let mut running = folder.start(&job, &["--quiet"]);
    // It is there as soon as signals are watched for, and before the iteration.
    wait_for("the run", || folder.path("job-checkpoints/.haloscope.lock").exists());
    signal(&running, "-INT");
    let begin = Instant::now();
    let ended = loop {
        if let Some(status) = running.try_wait().expect("a process") {
            break Some(status);
        }
        if begin.elapsed() > Duration::from_mins(1) {
            running.kill().expect("SIGKILL is sent");
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
        // The process may be gone by now.
        let _ = Command::new("kill").args(["-INT", &running.id().to_string()]).output();
    };
    let output = running.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert_eq!(ended.and_then(|status| status.code()), Some(130), "{said}");
    assert!(folder.checkpoints().is_empty() && !said.contains("--resume"), "{said}");
}

/// A disk of its own, which is there as long as this is.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(folder: &'a Path, size: &str) -> Option<Self> {
        std::fs::create_dir(folder).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder);
        mount.output().ok()?.status.success().then_some(Self(folder))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn a_full_disk_leaves_the_old_checkpoint() {
    let folder = Folder::new();
    let disk = folder.path("disk");
    let Some(_mounted) = SmallDisk::mount(&disk, "256k") else {
        println!("skipped: a full disk, which needs the right to mount a small one");
        return;
    };
    let job = |iterations: usize| {
        deblurring(iterations, PRIMAL_DUAL) + "\n[checkpoint]\niterations = 3\nfolder = \"disk\"\n"
    };
    for ranks in ["1", "2"] {
        let whole = Folder::new().bits(&deblurring(8, PRIMAL_DUAL), &[]);
        json(&folder.run(&job(3), &["--start-over", "--ranks", ranks]));
        let before = list(&disk);
        assert_eq!(before.len(), 1);
        let content = std::fs::read(&before[0]).expect("a checkpoint");
        // All but some bytes of the disk.
        let filler = disk.join("filler");
        let full = std::fs::write(&filler, vec![0; 256 << 10]);
        assert!(full.is_err(), "the disk is small");
        let output = folder.run(&job(8), &["--resume", "--ranks", ranks, "--quiet"]);
        let message = text(&output.stderr);
        assert_eq!(json(&output)["bits"], whole, "{message}");
        assert!(
            message.contains("No space left") && message.contains("iteration-0000006"),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(list(&disk), before);
        assert_eq!(std::fs::read(&before[0]).expect("still there"), content);
        std::fs::remove_file(filler).expect("room again");
        assert_eq!(folder.bits(&job(8), &["--resume", "--ranks", ranks]), whole);
        for old in list(&disk) {
            std::fs::remove_file(old).expect("removed");
        }
    }
}

#[test]
fn a_signal_to_a_streamed_image_leaves_nothing_of_the_result() {
    let folder = Folder::new();
    let (input, out) = (folder.name("noisy.npy"), folder.name("clean.npy"));
    let image =
        haloscope::Array::from_shape_fn(vec![1, 1, 8192, 256], |at| (at[2] % 97) as f32 / 96.0);
    haloscope::io::write(&input, &image, &haloscope::io::WriteOptions::default()).expect("a file");
    let arguments = ["denoise", &input, "--out", &out, "--sigma", "0.1", "--memory-budget", "60MB"];
    let running = jobs::command(&arguments).spawn().expect("the command starts");
    let files = || std::fs::read_dir(folder.path(".")).expect("the folder").count();
    wait_for("the unfinished result", || files() == 2);
    signal(&running, "-INT");
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("Ctrl-C ended it; nothing was written"));
    assert_eq!(files(), 1, "only the input is left");
}
