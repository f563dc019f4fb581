//! Jobs with their arrays in a scratch folder: killed and resumed, within a limit of the system, and refused.
#![cfg(target_os = "linux")]

mod jobs;

use std::fs;
use std::os::unix::process::CommandExt;

use jobs::{Folder, command, haloscope, json, text, wait_for};

/// A volume of 3 MB from a few views of a cone, with a checkpoint after every iteration.
fn job(iterations: usize) -> String {
    format!(
        r#"
[measurements]
phantom = "shepp-logan"
size = [90, 96, 100]
noise = {{ gaussian = 0.01 }}
seed = 3

[[operators]]
kind = "cone-beam"
angles = 12
detector = [120, 150]
source-distance = 300
detector-distance = 100

[prior]
kind = "total-variation"
weight = 0.001

[solver]
method = "primal-dual"
step = 0.0005

[stop]
iterations = {iterations}

[output]
file = "image.npy"

[checkpoint]
iterations = 1
"#
    )
}

fn options(scratch: &str) -> [&str; 4] {
    ["--scratch", scratch, "--memory-limit", "90MB"]
}

fn count(folder: &str) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn a_job_that_is_killed_leaves_no_files_and_resumes_to_the_same_bits() {
    let folder = Folder::new();
    let scratch = folder.name("scratch");
    fs::create_dir(&scratch).expect("a folder");
    let expected = Folder::new().bits(&job(4), &[]);
    let mut running = folder.start(&job(4), &options(&scratch));
    wait_for("a checkpoint", || !folder.checkpoints().is_empty());
    running.kill().expect("SIGKILL is sent");
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(count(&scratch), 0, "{}", text(&output.stderr));
    let resume = ["--resume"];
    let output = folder.run(&job(4), &[&resume[..], &options(&scratch)].concat());
    let summary = json(&output);
    assert_eq!(summary["bits"], *expected);
    // A checkpoint of one is one of the other.
    assert_eq!(folder.bits(&job(5), &["--resume"]), Folder::new().bits(&job(5), &[]));
}

#[test]
fn a_job_runs_within_a_limit_that_is_too_small_for_memory() {
    let folder = Folder::new();
    let scratch = folder.name("scratch");
    fs::create_dir(&scratch).expect("a folder");
    // 12 MB of an image with a dual of three, and more beside it.
    let large = job(2).replace("[90, 96, 100]", "[140, 144, 150]");
    let limited = |options: &[&str]| {
        let path = folder.write("job.toml", &large);
        let mut limited =
            command(&[&["reconstruct", &path, "--json", "--start-over"], options].concat());
        // What is neither a file nor shared: all that a process takes for itself.
        let limit = libc::rlimit { rlim_cur: 100_000_000, rlim_max: 100_000_000 };
        // SAFETY: between the start of the process and that of the program, only a limit is set.
        unsafe {
            limited.pre_exec(move || match libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        limited.output().expect("the command starts")
    };
    let expected = Folder::new().bits(&large, &[]);
    let output = limited(&[]);
    assert!(!output.status.success(), "it fits into memory");
    let output = limited(&options(&scratch));
    assert_eq!(json(&output)["bits"], *expected);
}

#[test]
fn folders_that_cannot_be_used_are_one_line() {
    let folder = Folder::new();
    let path = folder.write("job.toml", job(1));
    for command in ["check", "reconstruct"] {
        let missing = folder.name("missing");
        let output = haloscope(&[command, &path, "--scratch", &missing]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("no file can be made in") && message.lines().count() == 1,
            "{message}"
        );
        let output = haloscope(&[command, &path, "--memory-limit", "2GB"]);
        assert_eq!(output.status.code(), Some(2), "a limit without a folder");
        assert!(text(&output.stderr).contains("add --scratch DIR"), "{}", text(&output.stderr));
    }
    // The folder may be that of the job.
    let own = format!("{}\n[memory]\nscratch = \"{}\"\nlimit = \"1MB\"\n", job(1), folder.name(""));
    let own = folder.write("own.toml", own);
    let refused = haloscope(&["check", &own]);
    let words = text(&refused.stderr);
    // The limit that it names is one that will do.
    let least = words.split("needs a limit of about ").nth(1).expect("a limit").split(" beside");
    let least = least.take(1).collect::<String>().replace(' ', "");
    let found = haloscope(&["check", &own, "--memory-limit", &least]);
    assert!(found.status.success(), "{least}: {}", text(&found.stderr));
    let scratch = folder.name("");
    let plan = haloscope(&["check", &path, "--scratch", &scratch, "--memory-limit", "90MB"]);
    let plan = text(&plan.stdout);
    assert!(plan.contains("read and") && plan.contains("are free"), "{plan}");
}
