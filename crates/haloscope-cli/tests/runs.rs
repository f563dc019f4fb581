//! What a run leaves behind, who may run where, and what the command says about it: checkpoints after success, locks,
//! full disks, `-v`, plans of job files, and the report.

mod jobs;

use std::process::{Child, Command};

use jobs::{
    Folder, PRIMAL_DUAL, command, deblurring, haloscope, identity_network, json, list, npy, text,
    wait_for,
};

const PERIODIC: &str = "\n[checkpoint]\niterations = 2\n";

/// A job that its time limit ends after one iteration.
fn cut_short(job: &str) -> String {
    job.replace("[stop]", "[stop]\nminutes = 1e-9")
}

/// A process that is ended when the test is over, whatever its outcome.
struct Running(Child);

impl Running {
    /// Starts an endless job and waits until it has its folder.
    fn endless(folder: &Folder, more: &str, options: &[&str]) -> Self {
        let job = deblurring(10_000_000, PRIMAL_DUAL) + more;
        let running = Self(folder.start(&job, options));
        let lock = folder.path("job-checkpoints/.haloscope.lock");
        wait_for("the lock", || std::fs::metadata(&lock).is_ok_and(|file| file.len() > 0));
        running
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = self.0.wait().expect("it ends");
        let mut words = String::new();
        let mut stderr = self.0.stderr.take().expect("its messages");
        std::io::Read::read_to_string(&mut stderr, &mut words).expect("text");
        (status.code(), words)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_that_was_cut_short_and_resumed_blocks_no_other() {
    let whole = deblurring(6, PRIMAL_DUAL);
    let expected = Folder::new().bits(&whole, &[]);
    for ranks in ["1", "3"] {
        let folder = Folder::new();
        let cut = json(&folder.run(&cut_short(&whole), &["--ranks", ranks]));
        assert_eq!((&cut["iterations"], folder.checkpoints().len()), (&1.into(), 1));
        let refused = folder.run(&whole, &["--ranks", ranks]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("--start-over"), "{}", text(&refused.stderr));
        let check = haloscope(&["check", &folder.name("job.toml")]);
        assert!(text(&check.stdout).contains("--resume or --start-over is needed"));

        let resumed = json(&folder.run(&whole, &["--resume", "--ranks", ranks]));
        assert_eq!((&resumed["resumed_from"], &resumed["bits"]), (&1.into(), &expected[..].into()));
        assert!(!folder.path("job-checkpoints").exists(), "nobody needs them any more");
        let again = folder.run(&whole, &["--ranks", ranks]);
        assert_eq!(json(&again)["bits"], expected);
        assert!(!text(&again.stderr).contains("starts over"));
        assert!(!folder.path("job-checkpoints").exists());
    }
}

#[cfg(unix)]
#[test]
fn a_signal_leaves_a_checkpoint_and_success_after_it_leaves_none() {
    let folder = Folder::new();
    let running = Running::endless(&folder, "", &["--quiet"]);
    running.signal("-INT");
    let (code, message) = running.end();
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("a checkpoint is in"), "{message}");
    assert_eq!(folder.checkpoints().len(), 1);
    assert!(!folder.path("job-checkpoints/.haloscope.lock").exists());
    assert!(!folder.path("pictures").exists(), "there is no result");
    let name = folder.checkpoints()[0].file_stem().expect("a name").display().to_string();
    let done: usize = name.trim_start_matches("iteration-").parse().expect("a number");
    let rest = deblurring(done + 1, PRIMAL_DUAL);
    let bits = folder.bits(&rest, &["--resume"]);
    assert_eq!(folder.bits(&rest, &[]), bits);
}

#[test]
fn periodic_checkpoints_of_a_finished_run_stay_and_the_next_run_starts_over() {
    let job = |iterations| deblurring(iterations, PRIMAL_DUAL) + PERIODIC;
    let folder = Folder::new();
    let bits = folder.bits(&job(4), &[]);
    assert_eq!(folder.checkpoints().len(), 2);
    let check = text(&haloscope(&["check", &folder.name("job.toml")]).stdout);
    assert!(check.contains("a new run starts over"), "{check}");

    let again = folder.run(&job(4), &["--ranks", "2"]);
    let message = text(&again.stderr);
    assert!(
        message.contains("iteration-0000004.checkpoint is from a run that finished"),
        "{message}"
    );
    assert_eq!(
        (&json(&again)["resumed_from"], &json(&again)["bits"]),
        (&serde_json::Value::Null, &bits[..].into())
    );
    let quiet = folder.run(&job(4), &["--quiet"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{}", text(&quiet.stderr));

    // They are there to be continued, and a run that is not finished is not given up.
    let longer = json(&folder.run(&job(8), &["--resume"]));
    assert_eq!(longer["resumed_from"], 4);
    json(&folder.run(&cut_short(&job(9)), &["--resume"]));
    assert_eq!(folder.run(&job(9), &[]).status.code(), Some(2));
    // Another job need not care for what a finished one left.
    json(&folder.run(&job(9), &["--resume"]));
    let other = job(3).replace("weight = 0.002", "weight = 0.003");
    assert_ne!(folder.bits(&other, &[]), bits);
    let left: Vec<_> = folder.checkpoints();
    assert!(left.len() == 1 && left[0].ends_with("iteration-0000002.checkpoint"), "{left:?}");
}

#[cfg(unix)]
#[test]
fn a_second_run_is_refused_with_the_name_of_the_first() {
    for ranks in ["1", "2"] {
        let folder = Folder::new();
        let running = Running::endless(&folder, "", &["--quiet", "--ranks", ranks]);
        let holder = format!("is in use by process {} ", running.0.id());
        let job = folder.name("job.toml");
        for options in [&[][..], &["--resume"], &["--start-over", "--ranks", "2"]] {
            let second = haloscope(&[&["reconstruct", &job][..], options].concat());
            let message = text(&second.stderr);
            assert_eq!(second.status.code(), Some(2), "{message}");
            assert!(message.contains(&holder) && message.contains("UTC"), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
        // Another job with the same pictures is another run in the same folder.
        let other = folder.write("other.toml", deblurring(3, PRIMAL_DUAL));
        let second = haloscope(&["reconstruct", &other]);
        let message = text(&second.stderr);
        assert!(message.contains(&holder) && message.contains("pictures"), "{message}");
        assert!(!folder.path("other-checkpoints").exists(), "nothing was run");

        // A process that is gone has no lock, whatever it left.
        running.signal("-KILL");
        running.end();
        assert!(folder.path("job-checkpoints/.haloscope.lock").exists());
        json(&folder.run(&deblurring(3, PRIMAL_DUAL), &[]));
        json(&haloscope(&["reconstruct", &other, "--json"]));
        assert!(!folder.path("pictures/.haloscope.lock").exists());
    }
}

/// A disk of its own, which is there as long as this is.
#[cfg(unix)]
struct SmallDisk(std::path::PathBuf);

#[cfg(unix)]
impl SmallDisk {
    /// A full disk, unless the test may not mount one, which is said.
    fn full(folder: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir(&folder).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&folder);
        if !mount.output().ok()?.status.success() {
            println!("skipped: a full disk, which needs the right to mount a small one");
            return None;
        }
        let disk = Self(folder);
        assert!(std::fs::write(disk.0.join("filler"), vec![0; 80 << 10]).is_err());
        Some(disk)
    }
}

#[cfg(unix)]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_for_checkpoints_is_a_warning_and_the_run_goes_on() {
    let folder = Folder::new();
    let Some(disk) = SmallDisk::full(folder.path("disk")) else { return };
    let section = "\n[checkpoint]\niterations = 2\nfolder = 'disk'\n";
    let job = deblurring(7, PRIMAL_DUAL);
    let expected = Folder::new().bits(&job, &[]);
    for ranks in ["1", "2"] {
        let output = folder.run(&(job.clone() + section), &["--quiet", "--ranks", ranks]);
        let message = text(&output.stderr);
        assert_eq!(json(&output)["bits"], expected, "{message}");
        assert!(message.contains("No space left") && message.contains("iteration-0000002"));
        assert!(message.contains("the run continues without it"), "{message}");
        assert_eq!(message.lines().count(), 1, "three attempts, one warning: {message}");
        assert!(list(&disk.0).is_empty());
        // At the end of its time there is a result, and no checkpoint.
        let output = folder.run(&(cut_short(&job) + section), &["--quiet", "--ranks", ranks]);
        let message = text(&output.stderr);
        assert_eq!(json(&output)["checkpoints"], serde_json::Value::Null);
        assert!(message.contains("there is none to resume from"), "{message}");
    }
    let endless = deblurring(10_000_000, PRIMAL_DUAL) + section;
    let running = Running(folder.start(&endless, &["--quiet"]));
    wait_for("the lock", || disk.0.join(".haloscope.lock").exists());
    running.signal("-TERM");
    let (code, message) = running.end();
    assert_eq!(code, Some(143), "{message}");
    assert!(message.contains("there is none to resume from"), "{message}");
    assert!(message.contains("without a checkpoint"), "{message}");
}

#[test]
fn a_section_that_is_misspelt_is_named_with_its_line() {
    let folder = Folder::new();
    let job = deblurring(3, PRIMAL_DUAL);
    let line = |job: &str, word: &str| {
        1 + job.lines().position(|line| line.contains(word)).expect("it is there")
    };
    for (right, wrong) in
        [("[solver]", "[sovler]"), ("[measurements]", "[measurments]"), ("[output]", "[outptu]")]
    {
        let job = job.replace(right, wrong);
        let path = folder.write("job.toml", &job);
        for subcommand in ["check", "reconstruct", "plan"] {
            let output = haloscope(&[subcommand, &path]);
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{message}");
            let place = format!("job.toml:{}: ", line(&job, wrong));
            let name = wrong.trim_matches(['[', ']']);
            let meant = format!("did you mean `{}`?", right.trim_matches(['[', ']']));
            for part in [&place, &format!("{name}: the section is unknown"), &meant] {
                assert!(message.contains(part), "{subcommand}: {message}");
            }
        }
    }
    let message = text(&folder.run(&deblurring(3, ""), &[]).stderr);
    assert!(message.contains("[solver] is missing: the method"), "{message}");
    let list = job.replace("[[operators]]", "[[operator]]");
    let message = text(&folder.run(&list, &[]).stderr);
    assert!(message.contains("operator: the section is unknown (did you mean `operators`?)"));
}

#[test]
fn a_job_file_can_be_planned() {
    let folder = Folder::new();
    folder.write("identity.safetensors", identity_network());
    let network = "[prior]\nkind = 'network'\nmodel = 'identity.safetensors'\npatch = 8\noverlap = 4\n\
                   [solver]\nmethod = 'pgd'\n";
    let job = folder.write("job.toml", deblurring(3, network));
    let plan = |options: &[&str]| json(&haloscope(&[&["plan", &job, "--json"], options].concat()));
    let report = plan(&["--ranks", "2"]);
    assert_eq!(report["sides"], serde_json::json!([24, 20]), "height and width, as in the job");
    assert_eq!((&report["channels"], &report["operators"]), (&3.into(), &3.into()));
    assert_eq!((&report["solver"], &report["prior"]), (&"pgd".into(), &"a network".into()));
    let chosen = &report["plan"];
    assert_eq!((&chosen["patch"], &chosen["overlap"]), (&"8".into(), &4.into()));
    assert_eq!((&chosen["tiles"], &chosen["grid"]), (&4.into(), &serde_json::json!([2, 2])));
    let ranks = |plans: &serde_json::Value| -> Vec<usize> {
        let plans = plans.as_array().expect("a list").iter();
        plans.map(|plan| plan["ranks"].as_array().map_or(0, Vec::len)).collect()
    };
    assert_eq!(
        (ranks(&report["other_ranks"]), &report["other_ranks"][0]["tiles"]),
        (vec![1, 4, 8], &4.into())
    );
    let advice = report["recommendation"].as_str().expect("words");
    assert!(advice.contains("`strategy = \"exact\"` in [prior]"), "{advice}");

    // The tiles and the memory are those of the check.
    let check = text(&haloscope(&["check", &job, "--ranks", "2"]).stdout);
    assert!(check.contains("4 tiles of"), "{check}");
    let megabytes = chosen["together_bytes"].as_u64().expect("bytes").div_ceil(1_000_000);
    assert!(check.contains(&format!("about {megabytes} MB for 2 ranks together")), "{check}");

    let words = text(&haloscope(&["plan", &job]).stdout);
    assert!(
        words.contains("job.toml: an image of 24x20 (height, width) with 3 channels"),
        "{words}"
    );
    for (more, part) in
        [(&["--size", "9x9"], "cannot be used with"), (&["--patch", "9"], "--patch")]
    {
        let refused = haloscope(&[&["plan", &job][..], more].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(part), "{}", text(&refused.stderr));
    }
    let nothing = haloscope(&["plan", "--ranks", "2"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing.stderr).contains("--size"), "{}", text(&nothing.stderr));
}

#[test]
fn a_volume_is_planned_with_its_depth_first() {
    let words = text(&haloscope(&["plan", "--size", "4x32x24", "--channels", "1"]).stdout);
    assert!(words.contains("a volume of 4x32x24 (depth, height, width) with 1 channel"), "{words}");
    assert!(words.contains("from 1 operator, primal-dual with total variation, on 1 rank of"));
}

#[test]
fn levels_of_an_evaluation_can_be_fractions_of_white() {
    let folder = Folder::new();
    let model = folder.write("identity.safetensors", identity_network());
    let image = folder.write("image.npy", npy(&[16, 16], |index| index as f32 / 256.0));
    let levels = |levels: &str| {
        let arguments = ["evaluate", &image, "--model", &model, "--json", "--levels", levels];
        let mut report = json(&haloscope(&arguments));
        for level in report["levels"].as_array_mut().expect("levels") {
            level["megapixels_per_second"] = serde_json::Value::Null;
        }
        report
    };
    assert_eq!(levels("15,25/255"), levels("15,25"));
    assert_eq!(levels("25/255")["levels"][0]["sigma"], 25.0);
    let refused = haloscope(&["evaluate", &image, "--model", &model, "--levels", "25/0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("25/255"), "{}", text(&refused.stderr));
    let words = haloscope(&["evaluate", &image, "--model", &model, "--threads", "1", "-v"]);
    assert!(
        text(&words.stderr).contains("image.npy with noise of 15: "),
        "{}",
        text(&words.stderr)
    );
    assert!(text(&words.stdout).contains("on 1 image, 1 thread;"), "{}", text(&words.stdout));
}

#[test]
fn verbose_runs_say_what_they_do() {
    let folder = Folder::new();
    folder.write("identity.safetensors", identity_network());
    let network = "[prior]\nkind = 'network'\nmodel = 'identity.safetensors'\npatch = 8\noverlap = 4\n\
                   [solver]\nmethod = 'pgd'\n";
    let job = folder.write("job.toml", deblurring(3, network));
    let said = |options: &[&str]| {
        let output =
            command(&[&["reconstruct", &job], options].concat()).output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let plain = said(&[]);
    assert!(!plain.contains("step size") && !plain.contains("iteration 1"), "{plain}");
    let more = said(&["-v", "--ranks", "2"]);
    for part in [
        "step size",
        "squared norm",
        "4 tiles (2x2) in windows of 16x14",
        "iteration 1 of 3, data term",
        "iteration 3 of 3, data term",
        "iterating took",
        "writing the result took",
    ] {
        assert_eq!(more.matches(part).count(), 1, "{part}: {more}");
    }
    assert!(!more.contains("rank 1: ") && !more.contains("waiting"), "{more}");
    let most = said(&["-vv", "--ranks", "2"]);
    assert!(most.contains("rank 1: 1 operator, 2 tiles") && most.contains("waiting"), "{most}");
    let events = said(&["-v", "--log", "json"]);
    for line in events.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("an object");
        let is_iteration = event["message"].as_str().is_some_and(|it| it.starts_with("iteration "));
        assert!(!is_iteration, "it is an event of its own: {line}");
    }
}

#[test]
fn numbers_agree_with_their_nouns() {
    let folder = Folder::new();
    let one =
        deblurring(1, "[solver]\nmethod = 'cg'\n").replace("angle = [0, 60, 120]", "angle = 0");
    let job = folder.write("job.toml", one);
    let check = text(&haloscope(&["check", &job]).stdout);
    assert!(check.contains("cg, 1 iteration at most"), "{check}");
    assert!(check.contains("1, with 1 of 1 operator at most"), "{check}");
    let summary = text(&haloscope(&["reconstruct", &job]).stdout);
    assert!(summary.contains("from 1 operator, on 1 rank"), "{summary}");
    assert!(summary.contains("\n1 iteration with no prior"), "{summary}");
    assert!(summary.contains("measurement  "), "{summary}");
    let page = std::fs::read_to_string(folder.path("pictures/report.html")).expect("a page");
    assert!(page.contains("24 × 20 from 1 operator<"), "the subtitle");
}

#[test]
fn the_report_says_what_is_shown_with_which_parameters_in_which_unit() {
    let folder = Folder::new();
    let page = |job: &str| {
        json(&folder.run(job, &[]));
        std::fs::read_to_string(folder.path("pictures/report.html")).expect("a page")
    };
    let frames = page(&deblurring(2, PRIMAL_DUAL));
    let pair = |page: &str, name: &str, value: &str| {
        let listed = format!("<dt>{name}</dt><dd>{value}</dd>");
        assert!(page.contains(&listed), "{listed}");
    };
    assert!(frames.contains("first of 3 measurements on the left of the line"), "the slider");
    assert!(frames.contains("<th scope=\"row\">first of 3 measurements</th>"), "the table");
    pair(&frames, "prior", "total variation");
    pair(&frames, "weight", "0.002");
    pair(&frames, "operators", "3 blur");
    pair(&frames, "operators[0].angle", "[0, 60, 120]");
    pair(&frames, "solver.method", "&quot;primal-dual&quot;");
    assert!(frames.contains("<span>0</span><span class=\"ramp\""), "black");
    assert!(frames.contains("</span><span>1</span><span class=\"unit\">where white is 1</span>"));
    assert!(frames.contains("<span>-0.125</span>"), "the scale of the difference");
    assert_eq!(frames.matches("<input").count(), 1);

    let scan = |size: &str, beam: &str| {
        format!(
            "[measurements]\nphantom = 'shepp-logan'\nsize = {size}\n[[operators]]\n{beam}\ngroups = 2\n\
             [prior]\nkind = 'total-variation'\nweight = 0.01\n[solver]\nmethod = 'hqs'\nnoise = 0.01\n\
             levels = [0.1, 0.02]\n[stop]\niterations = 1\n[output]\nfolder = 'pictures'\n"
        )
    };
    let plane =
        page(&scan("[16, 16]", "kind = 'parallel-beam'\nangles = 20\ndetector = 24\npixel = 0.5"));
    assert!(plane.contains("filtered back-projection on the left of the line"), "the slider");
    pair(&plane, "beam", "parallel");
    pair(&plane, "views", "20, from 0.00° to 171.00° (an arc of 171.00°)");
    pair(&plane, "detector", "24 bins, 1 apart");
    pair(&plane, "centre", "bin 11.5, the middle of the detector");
    pair(&plane, "pixel", "0.5");
    pair(&plane, "solver.levels", "[0.1, 0.02]");

    // Each slice of a volume has a line of its own, with the same slice on both sides.
    let cone = "kind = 'cone-beam'\nangles = 12\ndetector = [12, 16]\nsource-distance = 60\n\
                detector-distance = 20";
    let space = page(&scan("[8, 12, 10]", cone));
    assert_eq!(space.matches("<input").count(), 3);
    assert!(space.contains("depth 4, height 6, width 5 (counted from 0)"), "the slices");
    pair(
        &space,
        "beam",
        "cone, source 60 and detector 20 from the rotation axis (magnification 1.333)",
    );
}
