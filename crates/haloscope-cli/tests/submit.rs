//! `haloscope submit` and `haloscope dashboard` as far as they go without a cluster and without a browser.

use std::path::Path;
use std::process::{Command, Output};

fn haloscope(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_haloscope"))
        .current_dir(folder)
        .args(arguments)
        // Where Slurm is installed, these tests must not use it.
        .env("PATH", folder)
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const JOB: &str = "[measurements]\nphantom = 'landscape'\nsize = [16, 16]\n\n[[operators]]\nkind = 'identity'\n\n\
                   [solver]\nmethod = 'cg'\n\n[output]\nfile = 'image.npy'\n";

/// What the queue would only find out hours later.
#[test]
fn jobs_that_cannot_run_are_not_submitted() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = JOB.replace("landscape", "landscope");
    std::fs::write(folder.path().join("job.toml"), JOB).expect("a file");
    std::fs::write(folder.path().join("wrong.toml"), wrong).expect("a file");
    for (arguments, words) in [
        (&["submit", "wrong.toml", "--dry-run"][..], "landscope"),
        (&["submit", "job.toml", "--dry-run", "--time", "abc"], "--time: abc is given"),
    ] {
        let output = haloscope(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn a_dry_run_prints_the_script_of_a_job_file() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("job.toml"), JOB).expect("a file");
    let output = haloscope(
        folder.path(),
        &[
            "submit",
            "job.toml",
            "--nodes",
            "2",
            "--tasks-per-node",
            "4",
            "--gres",
            "gpu:4",
            "--time",
            "01:00:00",
            "--partition",
            "long",
            "--srun=--mpi=pmi2",
            "--dry-run",
        ],
    );
    let script = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", "#SBATCH --gres=gpu:4"] {
        assert!(script.lines().any(|found| found == line), "{script}");
    }
    let run = script.lines().find(|line| line.starts_with("srun ")).expect("a line");
    assert!(run.starts_with("srun --ntasks-per-node=4 --mpi=pmi2 /"), "{run}");
    assert!(run.ends_with("haloscope reconstruct job.toml --resume"), "{run}");
    assert!(!folder.path().join("haloscope-slurm").exists(), "nothing is written");
}

#[test]
fn a_grid_couples_its_lists() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = "[grid]\nnodes = [1, 2]\ntasks-per-node = [1, 4]\ngres = [\"gpu:1\", \"gpu:4\"]\n";
    std::fs::write(folder.path().join("grid.toml"), grid).expect("a file");
    let arguments =
        ["submit", "--grid", "grid.toml", "--dry-run", "--", "bench", "scaling", "--out", "{out}"];
    let output = haloscope(folder.path(), &arguments);
    let scripts = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for lines in [
        "--nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:1\n",
        "--nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n",
        "haloscope-slurm/2x4/results\n",
    ] {
        assert!(scripts.contains(lines), "{lines} in\n{scripts}");
    }
}

#[test]
fn a_study_on_a_cluster_is_a_job_for_each_number_of_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = "srun = [\"--mpi=pmi2\"]\n[grid]\nnodes = [1, 2]\ntasks-per-node = 2\n";
    std::fs::write(folder.path().join("grid.toml"), grid).expect("a file");
    let arguments =
        ["bench", "scaling", "--slurm", "grid.toml", "--sizes", "64", "--out", "jobs", "--dry-run"];
    let output = haloscope(folder.path(), &arguments);
    let scripts = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = "haloscope bench scaling --sizes 64 --backend mpi --ranks 4 \
                 --launcher 'srun --mpi=pmi2 -n' --out ";
    assert!(scripts.contains(words) && scripts.contains("jobs/2x2/results\n"), "{scripts}");
}

#[test]
fn ranks_of_a_study_have_the_cores_of_their_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = "[grid]\nnodes = [1, 2]\ntasks-per-node = 1\ncpus-per-task = [4, 8]\n";
    std::fs::write(folder.path().join("grid.toml"), grid).expect("a file");
    let output =
        haloscope(folder.path(), &["bench", "scaling", "--slurm", "grid.toml", "--dry-run"]);
    let scripts = text(&output.stdout);
    for (ranks, cores) in [(1, 4), (2, 8)] {
        let words = format!(
            "--ranks {ranks} --launcher 'srun --cpus-per-task={cores} -n' --threads {cores} --out "
        );
        assert!(scripts.contains(&words), "{words} in\n{scripts}");
    }
}

#[test]
fn misuse_of_submit_is_refused_with_what_would_be_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("grid.toml"), "[grid]\nnodes = [1, 2]\ntasks-per-node = [1]")
        .expect("a file");
    for (arguments, code, words) in [
        (&["submit"][..], 2, "JOB.toml"),
        (&["submit", "absent.toml"], 2, "absent.toml"),
        (&["submit", "--nodes", "0", "--", "info"], 2, "--nodes"),
        (&["submit", "--gres", "gpu 4", "--dry-run", "--", "info"], 2, "gres: \"gpu 4\""),
        (&["submit", "--grid", "grid.toml", "--nodes", "2", "--", "info"], 2, "--grid"),
        (
            &["submit", "--grid", "grid.toml", "--", "info"],
            2,
            "grid.toml: tasks-per-node: the list has 1",
        ),
        (&["submit", "--", "info"], 1, "sbatch: the command was not found"),
    ] {
        let output = haloscope(folder.path(), arguments);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {complaint}");
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}

/// Commands of a Slurm whose only job, number 7, runs for ever.
#[cfg(unix)]
fn pretend_slurm(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for (name, answer) in [("sbatch", "7"), ("squeue", "RUNNING|None")] {
        let file = folder.join(name);
        std::fs::write(&file, format!("#!/bin/sh\necho '{answer}'\n")).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("permissions");
    }
}

#[cfg(unix)]
#[test]
fn an_interruption_is_no_success_and_says_how_to_end_the_jobs() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let folder = tempfile::tempdir().expect("a folder");
    pretend_slurm(folder.path());
    std::fs::write(folder.path().join("grid.toml"), "[grid]\nnodes = 1\ntasks-per-node = 1\n")
        .expect("a file");
    for (arguments, signal, code) in [
        (&["submit", "--", "info"][..], "-INT", 130),
        (&["submit", "--", "info"], "-TERM", 143),
        (&["submit", "--grid", "grid.toml", "--", "info"], "-INT", 130),
        (&["bench", "scaling", "--slurm", "grid.toml"], "-TERM", 143),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_haloscope"))
            .current_dir(folder.path())
            .args(arguments)
            .env("PATH", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let runs = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("job 7 runs"));
        assert!(runs, "{arguments:?}");
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        let said: Vec<String> = lines.map_while(Result::ok).collect();
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{arguments:?}: {said:?}");
        assert!(said.concat().contains("job 7 goes on; `scancel 7` ends it"), "{said:?}");
    }
}

#[test]
fn a_dashboard_is_one_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = "study,predicted,ranks,total_seconds\nscaling,false,1,2\nscaling,false,2,1\n";
    std::fs::create_dir(folder.path().join("run")).expect("a folder");
    std::fs::write(folder.path().join("run/rows.csv"), rows).expect("a file");
    let output =
        haloscope(folder.path(), &["dashboard", "run", "run/rows.csv", "--out", "page.html"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("4 rows of 2 runs\n"), "{}", text(&output.stdout));
    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn a_bad_table_is_named_with_line_and_column() {
    let folder = tempfile::tempdir().expect("a folder");
    for (rows, words) in [
        ("", "rows.csv, line 1: the file is empty"),
        (
            "study,predicted,ranks,total_seconds\nscaling,false,1,soon\n",
            "rows.csv, line 2, column total_seconds: \"soon\" is not a number from 0",
        ),
    ] {
        std::fs::write(folder.path().join("rows.csv"), rows).expect("a file");
        let output = haloscope(folder.path(), &["dashboard", "rows.csv", "--out", "page.html"]);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint.contains(words), "{complaint}");
        assert!(!folder.path().join("page.html").exists());
    }
}
