//! `haloscope bench` as a user runs it: studies on tiny sizes, stopped and continued.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use haloscope_study::problem::Problem;
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

const TINY: &str = "--problem deblur,tomography-2d --sizes 32 --model drunet:2-2-2-2:1 --patch 16 --overlap 4 \
                    --operators 4 --iterations 2 --repetitions 2";

/// A tiny scaling study, with further options.
fn scaling<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["scaling", "--out", out];
    arguments.extend(TINY.split_whitespace());
    arguments.extend(more);
    arguments
}

/// The rows of a folder, the same in both files of a build with Parquet.
fn rows(folder: &Path) -> Vec<Row> {
    let rows = read_rows(folder).expect("rows");
    let copy = folder.join("rows.parquet");
    #[cfg(feature = "parquet")]
    assert_eq!(haloscope_study::parquet::read_parquet(&copy).expect("Parquet"), rows);
    #[cfg(not(feature = "parquet"))]
    assert!(!copy.exists());
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
    assert_eq!(facts["runs"][0]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(facts["runs"][0]["machine"], facts["machine"]);
    assert!(facts["links"]["threads"]["bytes_per_second"].as_f64() > Some(0.0), "{facts}");
    assert_eq!(facts["data"].as_object().map(serde_json::Map::len), Some(2), "{facts}");

    let second = bench(&scaling(&out, &["--ranks", "1,2,3"]));
    let more = rows(folder.path());
    assert_eq!(more[..measured.len()], measured, "what was there stays");
    assert_eq!(more.len(), 2 * 2 * 2 * 6);
    assert_eq!(text(&second.stderr).matches("was there").count(), 4, "{}", text(&second.stderr));

    let other = command(&scaling(&out, &["--seed", "5"])).output().expect("the command starts");
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("another folder"));
}

/// The job files that a study prints.
fn show_jobs(arguments: &[&str]) -> String {
    text(&bench(&[arguments, &["--show-jobs"]].concat()).stdout)
}

/// The digest of the image that `haloscope reconstruct` finds with a job on so many ranks.
fn reconstruct(folder: &Path, job: &str, ranks: &str) -> String {
    let file = folder.join("job.toml");
    std::fs::write(&file, job).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    command.arg("reconstruct").arg(&file).args(["--ranks", ranks, "--json", "--start-over"]);
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{job}: {}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    result["bits"].as_str().expect("a digest").to_owned()
}

#[test]
fn reconstruct_finds_the_image_of_the_study_with_the_job_that_it_prints() {
    let folder = tempfile::tempdir().expect("a folder");
    for problem in ["deblur", "super-resolution", "tomography-2d", "tomography-3d"] {
        let results = folder.path().join(problem);
        let out = results.display().to_string();
        let study = ["scaling", "--out", &out, "--problem", problem, "--ranks", "1,2"];
        let study: Vec<&str> = study.into_iter().chain(SMALL_IMAGE.split_whitespace()).collect();
        let job = show_jobs(&study);
        assert!(!results.exists(), "nothing is measured");
        assert!(job.contains("1 rank (threads)") && job.contains("2 ranks (threads)"), "{job}");
        assert_eq!(job.matches("[solver]").count(), 1, "both are one job: {job}");
        bench(&study);
        let facts = provenance(&results);
        let images: Vec<&serde_json::Value> =
            facts["images"].as_object().expect("digests").values().collect();
        // The study has compared the images of one rank and of two.
        for ranks in ["1", "2"] {
            let bits = reconstruct(folder.path(), &job, ranks);
            assert_eq!(images, [bits.as_str()], "{problem} on {ranks}");
        }
    }
}

const SMALL_IMAGE: &str = "--sizes 16 --model drunet:2-2-2-2:1 --patch 8 --overlap 4 --operators 5 --iterations 3 \
                           --repetitions 1";

#[test]
fn an_old_name_is_accepted_with_a_hint() {
    let old = bench(&["scaling", "--problem", "highres-color", "--sizes", "32", "--show-jobs"]);
    let hint = "the problem `highres-color` is called `deblur` now";
    assert!(text(&old.stderr).contains(hint), "{}", text(&old.stderr));
    let new = bench(&["scaling", "--problem", "deblur", "--sizes", "32", "--show-jobs"]);
    assert_eq!(text(&old.stdout), text(&new.stdout));
    assert!(!text(&new.stderr).contains("is called"), "{}", text(&new.stderr));
}

#[test]
fn studies_measure_the_image_in_one_piece_and_each_part_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let options = ["--ranks", "1,2", "--untiled", "--distribute", "both,physics,denoiser"];
    let study = ["scaling", "--out", &out, "--problem", "deblur"];
    let small: Vec<&str> = SMALL_IMAGE.split_whitespace().collect();
    let output = bench(&[&study[..], &small, &options].concat());
    let said = text(&output.stdout);
    for words in ["untiled, 1 rank (solo)", "only physics distributed", "untiled x"] {
        assert!(said.contains(words), "{said}");
    }
    let rows = rows(folder.path());
    // One rank alone, and three times one rank and two, with three iterations each.
    assert_eq!(rows.len(), 3 * (1 + 3 * 3));
    assert_eq!(rows.iter().filter(|row| row.configuration.patch.is_none()).count(), 3);
    // All ways to share have found one image, and the image in one piece is another.
    let facts = provenance(folder.path());
    assert_eq!(facts["images"].as_object().map(serde_json::Map::len), Some(2), "{facts}");
    assert_eq!(facts["data"].as_object().map(serde_json::Map::len), Some(1), "{facts}");
    let again = bench(&[&study[..], &small, &options].concat());
    assert_eq!(text(&again.stderr).matches("was there").count(), 7, "{}", text(&again.stderr));
}

#[cfg(feature = "builtin")]
#[test]
fn built_in_denoisers_are_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let study = "scaling --problem deblur,tomography-3d --sizes 16 --model builtin:color --patch 8 --overlap 2 --operators 2 \
                 --iterations 2 --repetitions 1 --ranks 1,2";
    let study: Vec<&str> = study.split_whitespace().chain(["--out", &out]).collect();
    let output = bench(&study);
    let words = "tomography-3d has one channel and gets builtin:volume, not builtin:color";
    assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    let models: std::collections::BTreeSet<(String, String)> = rows(folder.path())
        .into_iter()
        .map(|row| row.configuration)
        .map(|of| (of.problem.map_or_else(String::new, |one| one.to_string()), of.model))
        .collect();
    let expected = [("deblur", "builtin:color"), ("tomography-3d", "builtin:volume")];
    assert_eq!(models, expected.map(|(one, other)| (one.into(), other.into())).into());
    let compare = ["compare", "--problem", "deblur", "--sizes", "16", "--model", "builtin:color"];
    let compared = bench(&[&compare[..], &["--iterations", "1", "--out", &out]].concat());
    let words = "skipped: deepinv, because it has no builtin:color";
    assert!(text(&compared.stderr).contains(words), "{}", text(&compared.stderr));
}

#[test]
fn the_volume_of_a_job_is_there_when_it_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let volume = ball(folder.path(), "ball.nii", 3.0);
    let out = folder.path().join("results").display().to_string();
    let study = ["scaling", "--volume", &volume, "--out", &out, "--ranks", "2"];
    let study: Vec<&str> = study.into_iter().chain(SCAN.split_whitespace()).collect();
    let job = show_jobs(&study);
    assert!(job.contains("results/volume-16x16x16.nii"), "{job}");
    let bits = reconstruct(folder.path(), &job, "2");
    bench(&study);
    let facts = provenance(Path::new(&out));
    assert!(facts["images"].as_object().expect("digests").values().all(|image| *image == bits));
}

/// A small NIfTI file whose values are 100 in a ball of so many voxels, and 20 around it.
fn ball(folder: &Path, name: &str, radius: f32) -> String {
    let values = haloscope::Array::from_shape_fn(vec![1, 1, 12, 10, 10], |at| {
        let distance = |axis: usize, middle: f32| (at[axis] as f32 - middle).powi(2);
        let is_inside = distance(2, 5.5) + distance(3, 4.5) + distance(4, 4.5) < radius.powi(2);
        if is_inside { 100.0 } else { 20.0 }
    });
    let file = folder.join(name);
    haloscope::io::write(&file, &values, &haloscope::io::WriteOptions::default()).expect("a file");
    file.display().to_string()
}

const SCAN: &str = "--sizes 16 --model drunet:2-2-2-2:1 --patch 8 --overlap 4 --operators 4 --iterations 2 \
                    --repetitions 1 --noise 0";

#[test]
fn a_volume_of_a_file_is_scanned_and_not_mixed_with_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("results");
    let (large, small) =
        (ball(folder.path(), "large.nii.gz", 4.0), ball(folder.path(), "small.nii", 3.0));
    let out = results.display().to_string();
    let scan = |volume: &str, ranks: &str| {
        let mut study = command(&["scaling", "--out", &out, "--volume", volume, "--ranks", ranks]);
        study.args(SCAN.split_whitespace()).output().expect("the command starts")
    };
    let first = scan(&large, "1,2");
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(rows(&results).len(), 2 * 3);
    assert!(rows(&results).iter().all(|row| row.configuration.depth == Some(16)));
    let facts = provenance(&results);
    let digest = facts["runs"][0]["settings"]["volume"].as_str().expect("a digest").to_owned();
    let data = facts["data"].as_object().expect("digests of data");
    let name = format!("tomography-3d 16x16x16 of volume {digest}, 4 operators");
    assert_eq!(data.keys().collect::<Vec<_>>(), [&name]);
    let truth = haloscope::io::read(
        results.join("volume-16x16x16.nii"),
        &haloscope::io::ReadOptions::default(),
    );
    let truth = truth.expect("what was scanned").array;
    // As large as it fits, with the smallest value as 0, also beside it.
    assert_eq!((truth[[0, 0, 8, 8, 8]], truth[[0, 0, 8, 8, 0]]), (1.0, 0.0));

    let again = scan(&large, "1,2,3");
    assert_eq!(text(&again.stderr).matches("was there").count(), 2, "{}", text(&again.stderr));
    let other = scan(&small, "1,2");
    let message = text(&other.stderr);
    assert!(message.contains(&digest) && message.contains("use another folder"), "{message}");
    let phantom = command(&["scaling", "--out", &out, "--problem", "tomography-3d"])
        .args(SCAN.split_whitespace())
        .output()
        .expect("the command starts");
    assert!(text(&phantom.stderr).contains("use another folder"), "{}", text(&phantom.stderr));
    assert_eq!(rows(&results).len(), 2 * 6);
}

#[test]
fn jobs_of_a_grid_scan_the_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = folder.path().join("grid.toml");
    std::fs::write(&grid, "[grid]\nnodes = [1, 2]\ntasks-per-node = 1\n").expect("a file");
    let volume = ball(folder.path(), "a volume.nii", 3.0);
    let grid = grid.display().to_string();
    let scripts = bench(&["scaling", "--slurm", &grid, "--dry-run", "--volume", &volume]);
    let words = format!("--volume '{volume}'");
    assert_eq!(text(&scripts.stdout).matches(&words).count(), 2, "{}", text(&scripts.stdout));
}

/// The processes that a process has started, where the system says so.
fn children(process: u32) -> Vec<String> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_whitespace().map(String::from).collect()
}

/// Starts a study, sends it a signal after its first rows, and returns how it ended and what it said.
fn interrupt(arguments: &[&str], folder: &Path, signal: &str, is_terminal: bool) -> Output {
    let mut study = command(arguments);
    std::os::unix::process::CommandExt::process_group(&mut study, 0);
    let study = study.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let begin = Instant::now();
    let has_rows = || read_rows(folder).is_ok_and(|rows| !rows.is_empty());
    while !has_rows() && begin.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let measuring = children(study.id());
    // A terminal sends it to the study and to the process that measures; a queue may send it to the study alone.
    let target = format!("{}{}", if is_terminal { "-" } else { "" }, study.id());
    let sent = Command::new("kill").args([signal, "--", &target]).status().expect("kill");
    assert!(sent.success(), "the study was over too soon");
    let output = study.wait_with_output().expect("it ends");
    for process in measuring {
        assert!(!Path::new("/proc").join(&process).exists(), "{process} goes on");
    }
    output
}

#[test]
fn interrupted_studies_say_what_they_keep_and_go_on() {
    let reconstruction =
        "--sizes 16 --model dncnn:4:3 --operators 2 --iterations 2 --repetitions 60";
    let scaling = format!("scaling --problem deblur --ranks 1,2 {reconstruction}");
    let compare = format!("compare --problem super-resolution --python no/python {reconstruction}");
    let memory = "memory --model dncnn:4:3 --height 16 --widths 16,24 --repetitions 120";
    let batch = "batch --model dncnn:4:3 --size 32 --patches 16 --batches 1,2 --repetitions 120";
    for (study, whole, (signal, code, name), is_terminal) in [
        (&scaling[..], 60 * 2 * 3, ("-INT", 130, "Ctrl-C"), true),
        (&scaling, 60 * 2 * 3, ("-TERM", 143, "SIGTERM"), false),
        (&compare, 60 * 2, ("-INT", 130, "Ctrl-C"), false),
        (memory, 120 * 2, ("-INT", 130, "Ctrl-C"), true),
        (batch, 120 * 2, ("-TERM", 143, "SIGTERM"), false),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().display().to_string();
        let mut arguments: Vec<&str> = study.split_whitespace().collect();
        arguments.extend(["--threads", "1", "--out", &out]);
        let output = interrupt(&arguments, folder.path(), signal, is_terminal);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{study}: {message}");
        // Parquet and provenance, too, have what was measured.
        let kept = rows(folder.path());
        assert!(!kept.is_empty() && kept.len() < whole, "{study}: {} rows", kept.len());
        let command = format!("haloscope bench {}", arguments.join(" "));
        // On a busy machine there may be a single one.
        let kept_rows = match kept.len() {
            1 => "1 row is".to_owned(),
            count => format!("{count} rows are"),
        };
        let expected = format!(
            "haloscope: ended by {name}; {kept_rows} in {out}, and `{command}` resumes with the rest"
        );
        assert_eq!(message.lines().last(), Some(&expected[..]), "{message}");

        bench(&arguments);
        let all = rows(folder.path());
        assert_eq!(all[..kept.len()], kept, "{study}: what was measured before stays");
        assert_eq!(all.len(), whole, "{study}");
    }
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
    let count = |study| rows.iter().filter(|row| row.configuration.study == study).count();
    assert_eq!((count(Study::Memory), count(Study::Batch)), (6, 2));
    let summary = text(&bench(&["summary", &out]).stdout);
    assert!(summary.contains("Memory") && summary.contains("Batches"), "{summary}");
}

const SMALL: &str =
    "memory --model dncnn:4:3 --height 16 --widths 16 --repetitions 1 --threads 1 --out";

#[test]
fn a_power_cut_costs_a_study_its_last_row_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (out, page) = (path("study"), path("page.html"));
    let study = SMALL.replace("--widths 16", "--widths 16,24");
    let arguments: Vec<&str> = study.split(' ').chain([&out[..]]).collect();
    bench(&arguments);
    let table = Path::new(&out).join("rows.csv");
    let text_of = |file: &Path| std::fs::read_to_string(file).expect("a table");
    let whole = text_of(&table);
    for end in ["", "\n"] {
        std::fs::write(&table, whole[..whole.len() - 40].to_owned() + end).expect("a file");
        let words = "rows.csv: the last row is torn, and is left out";
        let summary = bench(&["summary", &out]);
        assert!(text(&summary.stderr).contains(words), "{}", text(&summary.stderr));
        assert!(text(&summary.stdout).contains("16x16"), "{}", text(&summary.stdout));
        let mut dashboard = Command::new(env!("CARGO_BIN_EXE_haloscope"));
        let output =
            dashboard.args(["dashboard", &out, "--out", &page]).output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("1 row of 1 run\n"), "{}", text(&output.stdout));

        let resumed = bench(&arguments);
        assert!(text(&resumed.stderr).contains(words), "{}", text(&resumed.stderr));
        assert_eq!(text(&resumed.stderr).matches("was there").count(), 1);
        assert_eq!(rows(Path::new(&out)).len(), 2);
        assert_eq!(text_of(&table).lines().count(), 3);
    }
}

#[test]
fn a_study_reports_in_json_where_programs_listen() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments: Vec<&str> = SMALL.split(' ').chain([&out[..], "--log", "json"]).collect();
    let output = bench(&arguments);
    let said = text(&output.stderr);
    let messages: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(messages.len(), 2, "{said}");
    assert!(messages.iter().all(|message| message["event"] == "message"), "{said}");
    assert!(messages[1]["message"].as_str().is_some_and(|text| text.starts_with("[1/1]")));
}

#[test]
fn a_study_goes_on_when_nobody_listens() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments: Vec<&str> = SMALL.split(' ').chain([&out[..]]).collect();
    let mut study = command(&arguments);
    let mut study = study.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(study.stderr.take());
    assert!(study.wait().expect("it ends").success());
    assert_eq!(rows(folder.path()).len(), 1);
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
        assert!(
            predicted.iter().all(|row| row.configuration.height == 64 && row.total_seconds > 0.0)
        );
    }
    // Another size is predicted beside it.
    bench(&["predict", &out, "--cluster", &cluster, "--sizes", "48", "--ranks", "64"]);
    let heights: Vec<usize> = rows(Path::new(&out))
        .iter()
        .filter(|row| row.predicted)
        .map(|row| row.configuration.height)
        .collect();
    assert_eq!(heights, [[64; 8].as_slice(), &[48; 4]].concat());

    // In a folder of their own, and not among the measurements of another.
    let own = folder.path().join("own").display().to_string();
    for size in ["64", "48"] {
        bench(&[
            "predict",
            &out,
            "--out",
            &own,
            "--cluster",
            &cluster,
            "--sizes",
            size,
            "--ranks",
            "64",
        ]);
    }
    let apart = rows(Path::new(&own));
    assert!(apart.iter().all(|row| row.predicted));
    let heights: Vec<usize> = apart.iter().map(|row| row.configuration.height).collect();
    assert_eq!(heights, [64, 64, 64, 64, 48, 48, 48, 48]);
    let other = command(&["predict", &out, "--out", &out, "--cluster", &cluster]).output();
    let other = other.expect("it runs");
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("it has measurements"), "{}", text(&other.stderr));
}

#[test]
fn misuse_is_one_line_that_says_what_would_be_accepted() {
    let files = tempfile::tempdir().expect("a folder");
    let volume = ball(files.path(), "ball.nii", 3.0);
    let flat = files.path().join("flat.nii");
    let picture = haloscope::Array::zeros(vec![1, 1, 8, 8]);
    haloscope::io::write(&flat, &picture, &haloscope::io::WriteOptions::default()).expect("a file");
    let flat = flat.display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    for (arguments, words) in [
        (&["scaling", "--problem", "mri"][..], "deblur"),
        (&["scaling", "--problem", "denoise"], "has one operator"),
        (&["scaling", "--distribute", "everything"], "both, physics and denoiser"),
        (&["scaling", "--seed", "9223372036854775808"], "at most 9223372036854775807"),
        (&["scaling", "--model", "vgg"], "dncnn:64:20"),
        (&["scaling", "--model", "builtin:colour"], "builtin:color"),
        (&["scaling", "--patch", "0"], "at least 1"),
        (&["compare", "--problem", "mri"], "tomography-2d, tomography-3d"),
        (&["scaling", "--ranks", "0"], "at least 1"),
        (&["scaling", "--sizes", "4"], "from 8"),
        (&["scaling", "--operators", "500", "--problem", "tomography-2d"], "1 to 60"),
        (&["batch", "--batches", "0"], "at least 1"),
        (&["overlap", "--levels", "0.1,0"], "above 0"),
        (&["compare", "--problem", "tomography-2d", "--sizes", "16x24"], "such as 24x24"),
        (&["scaling", "--backend", "gloo"], "threads and mpi"),
        (&["scaling", "--volume", "there/is/no.nii"], "there/is/no.nii"),
        (&["scaling", "--volume", &flat], "flat.nii: its shape is [1, 1, 8, 8]"),
        (
            &["scaling", "--volume", &volume, "--problem", "tomography-2d"],
            "it is for tomography-3d, and tomography-2d is asked for",
        ),
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
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("rows.csv"));
}

#[cfg(not(feature = "mpi"))]
#[test]
fn messages_are_counted_on_more_ranks_than_cores() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments = "scaling --count-only --problem tomography-2d,deblur --sizes 48,48x64 --model dncnn:4:3 --operators 4 \
                     --layout replicated,sharded --ranks 2,24 --out";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.push(&out);
    let output = bench(&arguments);
    let said = text(&output.stdout);
    assert!(said.contains("foretold") && !said.contains("NO"), "{said}");
    assert!(!said.contains("speedup") && said.contains("24 ranks (threads), in shards"), "{said}");
    let rows = rows(folder.path());
    assert_eq!(rows.len(), 2 * 2 * 2 * (2 + 24));
    assert!(rows.iter().all(|row| row.total_seconds == 0.0 && row.transfer_seconds.is_none()));
    assert!(rows.iter().all(|row| row.bytes_sent == row.predicted_bytes_sent));
}

#[test]
fn problems_side_by_side_calibrate_the_model_and_its_errors_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let output = bench(&scaling(&out, &["--ranks", "1,2", "--mode", "strong,contention"]));
    let said = text(&output.stdout);
    assert!(said.contains("side by side, 2 ranks") && said.contains("interval"), "{said}");
    let table = std::fs::read_to_string(folder.path().join("validation.csv")).expect("a table");
    let mut lines = table.lines();
    assert!(lines.next().is_some_and(|header| header.ends_with("error,is_inside,unseen")));
    // Two problems from one rank to two, whose contention was measured; nothing is predicted of problems side by side.
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines.iter().all(|line| line.ends_with(",ranks")), "{table}");
}

#[test]
fn seams_of_tiles_are_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let arguments = "overlap --model dncnn:4:3 --size 48 --patches 16 --overlaps 0,8 --levels 0.05,0.1 --threads 1 \
                     --repetitions 2 --out";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.push(&out);
    let output = bench(&arguments);
    assert!(text(&output.stdout).contains("Overlap of tiles"), "{}", text(&output.stdout));
    let rows = rows(folder.path());
    assert_eq!(rows.len(), 4 * 2);
    assert!(rows.iter().all(|row| row.seam_rms.is_some() && row.psnr_db.is_some()));
}

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
    let arguments = "compare --sizes 16 --model drunet:2-2-2-2:1 --operators 2 --iterations 2 --repetitions 1 --threads 2 \
                     --ranks 1,2";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.extend(["--python", &python, "--out", &out]);
    let output = bench(&arguments);
    let rows = rows(folder.path());
    // Four problems on one rank and on two, two iterations each.
    for system in ["haloscope", "deepinv"] {
        let own: Vec<&Row> = rows.iter().filter(|row| row.configuration.system == system).collect();
        assert_eq!(own.len(), 4 * 2 * (1 + 2), "{system}");
        // deepinv's measurements of the other problems are not the same.
        let has_quality = |row: &Row| {
            let problem = row.configuration.problem;
            let is_same = matches!(problem, Some(Problem::Deblur | Problem::Tomography2d));
            row.rank == 0 && (system == "haloscope" || is_same)
        };
        assert!(own.iter().all(|row| row.psnr_db.is_some() == has_quality(row)), "{system}");
        assert!(own.iter().all(|row| row.peak_bytes > Some(0)), "{system}");
    }
    assert!(text(&output.stdout).contains("times ours"), "{}", text(&output.stdout));
    let peers = provenance(folder.path())["peers"].clone();
    let peers = peers.as_object().expect("settings of the peer");
    assert_eq!(peers.len(), 4 * 2);
    assert!(peers.values().all(|peer| peer["deepinv"].is_string() && peer["torch"].is_string()));
    let processes: Vec<_> = peers.values().filter_map(|peer| peer["processes"].as_u64()).collect();
    assert!(processes.contains(&1) && processes.contains(&2));
}
