//! What measuring processes do, without the processes: all studies on tiny sizes.

mod ask;

use std::process::Command;

use ask::{Answers, ask, measure, settings, study};

use haloscope::denoise::{Denoiser, NetworkDenoiser};
use haloscope_comm::Context;
use haloscope_job::{DeviceChoice, Distribution, Job};
use haloscope_nn::Shape;
use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::ModelName;
use haloscope_study::figures::summarise;
use haloscope_study::plan::{
    BatchStudy, Budget, CompareStudy, Cutting, MemoryStudy, OverlapStudy, ScalingStudy,
};
use haloscope_study::problem::{PROBLEMS, Problem};
use haloscope_study::row::{Backend, Layout, Mode, Row};
use haloscope_study::runner::DEEPINV;
use haloscope_study::trial::{Answer, Question, Trial};

fn scaling(problem: Problem, ranks: Vec<usize>, mode: Mode) -> Vec<Trial> {
    study(problem, ranks, mode).trials().expect("trials")
}

#[test]
fn every_problem_finds_the_same_image_on_1_2_and_3_ranks() {
    for problem in PROBLEMS {
        let found: Vec<Answers> =
            scaling(problem, vec![1, 2, 3], Mode::Strong).iter().map(measure).collect();
        for (answers, ranks) in found.iter().zip([1, 2, 3]) {
            // Repetitions, iterations, ranks.
            assert_eq!(answers.rows.len(), 2 * 2 * ranks, "{problem}");
            assert_eq!(answers.data, found[0].data, "{problem} on {ranks} ranks");
            assert_eq!(
                answers.images,
                vec![found[0].images[0].clone(); 2],
                "{problem} on {ranks} ranks"
            );
        }
    }
}

/// The job as `haloscope reconstruct` runs it: read from its text, with its output, checks and checkpoints.
fn bits_of_job(trial: &Trial, ranks: usize) -> String {
    bits_of_text(&trial.job_text().expect("a job"), ranks)
}

fn bits_of_text(text: &str, ranks: usize) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("job.toml");
    std::fs::write(&file, text).expect("a file");
    let job = Job::from_file(&file).expect(text);
    let outcomes = Context::threads(ranks, move |ctx| {
        Ok::<_, haloscope::Error>(job.run(ctx, &mut ()).map(|outcome| outcome.bits))
    });
    let bits = outcomes.expect("no rank fails").remove(0).expect("a result");
    // The job and its result.
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2, "{text}");
    bits
}

#[test]
fn a_study_finds_the_image_that_its_job_finds() {
    for problem in PROBLEMS {
        let trials = ScalingStudy { untiled: true, ..study(problem, vec![1, 3], Mode::Strong) };
        let trials = trials.trials().expect("trials");
        let [whole, one, three] = &trials[..] else { panic!("three trials") };
        assert_eq!(one.job_text().expect("a job"), three.job_text().expect("a job"));
        let image = |trial: &Trial| measure(trial).images[0].clone().expect("a digest");
        let bits = bits_of_job(one, 2);
        assert_eq!((image(one), image(three)), (bits.clone(), bits.clone()), "{problem}");
        let untiled = bits_of_job(whole, 2);
        assert_eq!(image(whole), untiled, "{problem}, untiled");
        assert_ne!(untiled, bits, "{problem}: tiles show");
    }
}

#[test]
fn an_image_is_cut_as_by_a_job_that_says_nothing_of_it() {
    let one = study(Problem::Deblur, vec![2], Mode::Strong);
    let study =
        ScalingStudy { sizes: vec![272.into()], patch: None, overlap: None, batch: None, ..one };
    let trial = study.trials().expect("trials").remove(0);
    assert_eq!(summarise(&measure(&trial).rows)[0].pixels_computed, Some(272 * 272));
    let is_of_tiles = |line: &&str| {
        ["patch =", "overlap =", "strategy ="].iter().any(|key| line.starts_with(key))
    };
    let text = trial.job_text().expect("a job");
    assert_eq!(text.lines().filter(is_of_tiles).count(), 1, "{text}");
    let without: Vec<&str> = text.lines().filter(|line| !is_of_tiles(line)).collect();
    let bits = [&text, &without.join("\n")].map(|text| bits_of_text(text, 2));
    assert_eq!(bits[0], bits[1]);
}

#[test]
fn what_ranks_share_does_not_change_the_image() {
    for problem in [Problem::SuperResolution, Problem::Tomography3d] {
        let study = ScalingStudy {
            distribute: vec![Distribution::Both, Distribution::Physics, Distribution::Denoiser],
            ..study(problem, vec![1, 2, 3], Mode::Strong)
        };
        let mut images = Vec::new();
        for trial in study.trials().expect("trials") {
            let answers = measure(&trial);
            let of = &trial.configuration;
            images.push((answers.data.clone(), answers.images[0].clone()));
            assert_eq!(images.last(), images.first(), "{of}");
            // The first rank has the most, and each has all that is not shared.
            let tiles = if problem == Problem::Tomography3d { 8 } else { 4 };
            let window = if problem == Problem::Tomography3d { 24 * 24 * 24 } else { 24 * 24 };
            let work: Vec<u64> = answers
                .rows
                .iter()
                .take(of.ranks * 2)
                .filter(|row| row.iteration == Some(1))
                .filter_map(|row| row.pixels_computed)
                .collect();
            let all = tiles * window;
            match of.distribute {
                Some(Distribution::Physics) => assert_eq!(work, vec![all; of.ranks], "{of}"),
                _ => assert_eq!(work.iter().sum::<u64>(), all, "{of}"),
            }
            let bytes: u64 = answers.rows.iter().filter_map(|row| row.bytes_sent).sum();
            assert_eq!(bytes > 0, of.ranks > 1, "{of}");
            let seconds = |row: &Row| row.transfer_seconds.zip(row.waiting_seconds);
            // One rank alone does not wait, but its calls take a moment, too.
            for (transfer, waiting) in answers.rows.iter().filter_map(seconds) {
                assert!(transfer + waiting > 0.0 || of.ranks == 1, "{of}");
            }
        }
    }
}

#[test]
fn parts_of_an_image_find_what_whole_images_find_and_send_less() {
    let study = ScalingStudy {
        sizes: vec![96.into()],
        model: Some("dncnn:4:3".parse().expect("a network")),
        patch: None,
        overlap: None,
        batch: None,
        layouts: vec![Layout::Replicated, Layout::Sharded],
        ..study(Problem::SuperResolution, vec![1, 2, 3], Mode::Strong)
    };
    let found: Vec<(Trial, Answers)> = (study.trials().expect("trials").into_iter())
        .map(|trial| (trial.clone(), measure(&trial)))
        .collect();
    let image = &found[0].1.images[0];
    let sent = |layout: Layout, ranks: usize| -> u64 {
        let of = |(trial, _): &&(Trial, Answers)| {
            (trial.configuration.layout, trial.configuration.ranks) == (Some(layout), ranks)
        };
        let (trial, answers) = found.iter().find(of).expect("measured");
        assert!(answers.images.iter().all(|other| other == image), "{}", trial.configuration);
        // A study and the job of its configuration are one thing.
        assert_eq!(Some(bits_of_job(trial, 2)), *image, "{}", trial.configuration);
        let quality = answers.rows[0].psnr_db.expect("a truth");
        assert!((quality - found[0].1.rows[0].psnr_db.expect("a truth")).abs() < 1e-6);
        let pixels: u64 = answers
            .rows
            .iter()
            .take_while(|row| row.iteration == Some(1))
            .filter_map(|row| row.pixels_computed)
            .sum();
        assert!(ranks > 1 || pixels == 96 * 96, "{pixels}");
        answers.rows.iter().filter_map(|row| row.bytes_sent).sum()
    };
    for ranks in [1, 2, 3] {
        let [whole, parts] = [Layout::Replicated, Layout::Sharded].map(|one| sent(one, ranks));
        assert!(if ranks == 1 { parts == whole } else { parts < whole }, "{parts} and {whole}");
    }
}

#[test]
fn less_is_sent_where_less_is_shared() {
    let sent = |distribute: Distribution| -> u64 {
        let one = study(Problem::Deblur, vec![2], Mode::Strong);
        let trials = ScalingStudy { distribute: vec![distribute], ..one }.trials();
        let rows = measure(&trials.expect("trials")[0]).rows;
        rows.iter().filter_map(|row| row.bytes_sent).sum()
    };
    let [both, physics, denoiser] =
        [Distribution::Both, Distribution::Physics, Distribution::Denoiser].map(sent);
    assert!(physics > denoiser, "{physics} and {denoiser}");
    // Words that agree on failures and the end come on top.
    let difference = both.abs_diff(physics + denoiser);
    assert!(difference < both / 100, "{both}, {physics} and {denoiser}");
}

#[test]
fn rows_of_a_reconstruction_are_complete_and_consistent() {
    let trials = scaling(Problem::Deblur, vec![3], Mode::Strong);
    let rows = measure(&trials[0]).rows;
    for row in &rows {
        assert_eq!(row.configuration, trials[0].configuration);
        let part = |seconds: Option<f64>| seconds.expect("a time");
        let (data, prior) = (part(row.data_seconds), part(row.prior_seconds));
        assert!(data > 0.0 && prior > 0.0 && data + prior <= row.total_seconds, "{row:?}");
        let communication = part(row.transfer_seconds) + part(row.waiting_seconds);
        assert!(communication > 0.0 && communication <= row.total_seconds, "{row:?}");
        assert!(row.bytes_sent > Some(0) && row.data_term > Some(0.0), "{row:?}");
        assert_eq!(row.psnr_db.is_some(), row.rank == 0, "{row:?}");
    }
    let of_first: Vec<&Row> =
        rows.iter().filter(|row| (row.repetition, row.iteration) == (0, Some(1))).collect();
    let ranks: Vec<usize> = of_first.iter().map(|row| row.rank).collect();
    assert_eq!(ranks, [0, 1, 2]);
    // Four tiles of 16² that see 4 pixels beyond, in windows whose sides are multiples of 8.
    let kept: u64 = of_first.iter().filter_map(|row| row.pixels_kept).sum();
    assert_eq!(kept, 32 * 32);
    assert_eq!(summarise(&rows)[0].pixels_computed, Some(4 * 24 * 24));
}

#[test]
fn weak_studies_give_each_rank_the_same_work() {
    for (trial, width) in
        scaling(Problem::SuperResolution, vec![1, 2], Mode::Weak).iter().zip([32, 64])
    {
        let rows = measure(trial).rows;
        // Four windows of 24² each.
        let work = Some(4 * 24 * 24);
        assert!(
            rows.iter().all(|row| row.configuration.width == width && row.pixels_computed == work)
        );
    }
}

/// The variable that makes the test below a process that measures one network.
const CHILD: &str = "HALOSCOPE_MEMORY_CHILD";

/// A trial for a network of a few tens of megabytes, much more than what else a process takes.
fn memory_trial(model: &str, width: usize) -> Trial {
    let study = MemoryStudy {
        models: vec![model.parse().expect("a network")],
        height: 512,
        widths: vec![width],
        budgets: vec![Budget::Whole],
        device: DeviceChoice::Cpu,
        threads: 1,
        repetitions: 1,
        settings: settings(),
    };
    study.trials().expect("trials").remove(0)
}

#[test]
fn memory_is_predicted_and_measured() {
    if let Ok(text) = std::env::var(CHILD) {
        let (model, width) = text.split_once(' ').expect("a model and a width");
        let rows = measure(&memory_trial(model, width.parse().expect("a width"))).rows;
        assert_eq!(rows.len(), 1);
        assert!(rows[0].total_seconds > 0.0);
        assert_eq!(rows[0].peak_bytes.is_some(), cfg!(target_os = "linux"));
        println!("bytes {:?} {}", rows[0].predicted_bytes, rows[0].peak_bytes.unwrap_or_default());
        return;
    }
    for (model, width) in [("unet:16-24", 512), ("unet:16-24", 516), ("dncnn:24:3", 520)] {
        // A process of its own, as in a study: what other tests have used would count.
        let child = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", "memory_is_predicted_and_measured", "--nocapture"])
            .env(CHILD, format!("{model} {width}"))
            .output()
            .expect("the child runs");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        let (_, found) = text.split_once("bytes Some(").expect("the child predicts");
        let (predicted, found) = found.split_once(") ").expect("two numbers");
        let predicted: f64 = predicted.parse().expect("a number");
        let found = found.split_whitespace().next().expect("a second number");
        let measured: f64 = found.parse().expect("a number");
        assert!(predicted > 40e6, "{model} is too small to tell: {predicted}");
        if cfg!(target_os = "linux") {
            // The code that runs for the first time and the threads' stacks take some megabytes. Where the system has no huge pages
            // left, what is reserved and never touched is not resident.
            let range = 0.85 * predicted..1.1 * predicted + 8e6;
            assert!(range.contains(&measured), "{model}: {predicted} predicted, {measured} taken");
        }
    }
}

#[test]
fn batches_do_not_change_the_image() {
    let study = BatchStudy {
        models: vec!["dncnn:4:3".parse().expect("a network")],
        size: 32,
        patches: vec![16],
        batches: vec![1, 3, 4],
        overlap: 0,
        device: DeviceChoice::Cpu,
        threads: 1,
        repetitions: 1,
        settings: settings(),
    };
    let found: Vec<Answers> = study.trials().expect("trials").iter().map(measure).collect();
    assert_eq!(found.len(), 3);
    for answers in &found {
        assert_eq!(answers.images, found[0].images);
        assert_eq!(answers.rows[0].pixels_computed, Some(32 * 32));
        // There are four patches, of which all fit.
        assert_eq!(answers.rows[0].automatic_batch, Some(4));
    }
}

#[test]
fn memory_of_a_batch_is_that_of_the_windows_of_the_plan() {
    let study = BatchStudy {
        models: vec!["drunet:2-2-2-2:1".parse().expect("a network")],
        size: 64,
        patches: vec![32],
        batches: vec![2],
        overlap: 8,
        device: DeviceChoice::Cpu,
        threads: 1,
        repetitions: 1,
        settings: settings(),
    };
    let rows = measure(&study.trials().expect("trials")[0]).rows;
    // Two windows of 40 pixels cover 64 with 16 in common: they need no overlap at the edges.
    assert_eq!(rows[0].pixels_computed, Some(4 * 40 * 40));
    let options = EngineOptions { threads: 1, ..EngineOptions::default() };
    let model = study.models[0].open(3, 2).expect("a model");
    let network = NetworkDenoiser::new(model, options).expect("a network");
    let bytes = network.memory(&[2, 3, 40, 40]).expect("a plan").map(|bytes| bytes as u64);
    assert_eq!(rows[0].predicted_bytes, bytes);
}

#[test]
fn comparisons_are_of_images_in_one_piece() {
    let study = CompareStudy {
        systems: vec!["haloscope".into()],
        problems: vec![Problem::Tomography2d],
        sizes: vec![16.into()],
        ranks: vec![1],
        cuts: vec![Cutting::Whole],
        model: Some("drunet:2-2-2-2:1".parse().expect("a network")),
        operators: 2,
        threads: 1,
        repetitions: 1,
        full: false,
        settings: settings(),
    };
    let rows = measure(&study.trials().expect("trials")[0]).rows;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].pixels_computed, rows[0].pixels_kept);
}

#[test]
fn links_are_measured_between_two_ranks() {
    let (answers, all) = ask(Question::Link(Backend::Threads));
    let [Answer::Link(speed)] = all[..] else { panic!("one answer: {all:?}") };
    assert!(answers.rows.is_empty() && answers.images.is_empty());
    // How fast they are is no fact to test; `measure/link.rs` tests what becomes of the times. But a sum of 32 MB cannot be
    // faster than the caches of any machine, nor an exchange faster than an instruction.
    assert!((1e-9..1.0).contains(&speed.latency_seconds), "{speed:?}");
    assert!((1e3..1e13).contains(&speed.bytes_per_second), "{speed:?}");
}

/// What takes time in the peer's operators is what the jobs say.
#[test]
fn the_peer_has_the_operators_of_the_jobs() {
    for (problem, ours, theirs) in [
        (
            Problem::Deblur,
            "sigma = [3.0, 1.0]",
            "gaussian_blur(sigma=(3.0, 1.0), angle=180.0 * index / count)",
        ),
        (Problem::Deblur, "angle = [0, 45, 90, 135]", "for index in range(count)"),
        (Problem::Deblur, "padding = \"circular\"", "Blur(filter=kernel, padding=\"circular\""),
        (Problem::SuperResolution, "filter = \"gaussian\"", "\"filter\": \"gaussian\""),
        (Problem::SuperResolution, "factor = 2", "\"factor\": 2"),
        (Problem::Tomography2d, "angles = 60", "views = 60"),
        (Problem::Tomography2d, "detector = 48", "shape[-1] * 3 // 2"),
        (Problem::Tomography3d, "angles = 48", "else 48"),
    ] {
        let trial = scaling(problem, vec![1], Mode::Strong).remove(0);
        let job = trial.job_text().expect("a job");
        let job = job.replace(".0, ", ", ").replace(".0]", "]");
        let ours = ours.replace(".0, ", ", ").replace(".0]", "]");
        assert!(job.contains(&ours), "{problem}: no {ours} in {job}");
        assert!(DEEPINV.contains(theirs), "{problem}: {theirs}");
    }
}

/// Torch is not needed for it: what stands in its place says what it finds when it is imported.
#[test]
#[cfg(unix)]
fn the_peer_gets_the_settings_of_its_allocator_before_its_libraries_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];
    let program = "import os, sys\n\
        print('thresholds', *[os.environ.get(name) for name in sys.argv[-1].split()])\n\
        os._exit(0)\n";
    std::fs::write(folder.path().join("torch.py"), program).expect("written");
    let mut command = Command::new("python3");
    command.args(["-c", DEEPINV, &names.join(" ")]).env("PYTHONPATH", folder.path());
    for name in names {
        command.env_remove(name);
    }
    // Without a buffer, so that what is printed is not lost.
    let Ok(output) = command.env("PYTHONUNBUFFERED", "1").output() else {
        println!("skipped: the peer's settings, which need python3");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.trim(), "thresholds 4294967296 17179869184", "{output:?}");
}

#[test]
fn waves_and_budgets_take_less_than_the_whole_image() {
    let trial = |budget: Budget| {
        let study = MemoryStudy {
            models: vec!["dncnn:16:4".parse().expect("a network")],
            height: 2048,
            widths: vec![68],
            budgets: vec![budget],
            device: DeviceChoice::Cpu,
            threads: 1,
            repetitions: 1,
            settings: settings(),
        };
        study.trials().expect("trials").remove(0)
    };
    let predicted = |budget: Budget| measure(&trial(budget)).rows[0].predicted_bytes;
    // The image comes and goes in arrays of its own.
    let arrays = 4 * (3 + 3) * 2048 * 68;
    let [whole, waves] = [Budget::Whole, Budget::Waves].map(predicted);
    assert!(waves < whole, "{waves:?} and {whole:?}");
    // An image that is in memory at once as well is in waves, too.
    for (height, budget) in [(2048, Budget::Waves), (16, Budget::Waves), (16, Budget::Whole)] {
        let mut short = trial(budget);
        short.configuration.height = height;
        let model = short.configuration.model.parse::<ModelName>().expect("a network");
        let model = model.open(3, 2).expect("a network");
        let shape = Shape::new([1, 3, height, 68]).expect("a shape");
        let (engine, options) =
            (Cpu::default(), EngineOptions { threads: 1, ..EngineOptions::default() });
        let plan = match budget {
            Budget::Waves => engine.plan_waves(model.network(), &shape, &options),
            _ => engine.plan(model.network(), &shape, &options),
        };
        let plan = plan.expect("a plan").memory().total() as u64;
        let arrays = (4 * (3 + 3) * height * 68) as u64;
        assert_eq!(measure(&short).rows[0].predicted_bytes, Some(plan + arrays), "{height}");
    }
    let within = predicted(Budget::Bytes(6_000_000));
    assert!(within.is_some_and(|bytes| bytes - arrays <= 6_000_000), "{within:?}");
    assert_eq!(trial(Budget::Bytes(6_000_000)).configuration.budget.as_deref(), Some("6MB"));
    assert!("6 apples".parse::<Budget>().expect_err("none").to_string().contains("waves"));
}

#[test]
fn seams_vanish_with_the_overlap_that_a_network_sees() {
    let study = OverlapStudy {
        models: vec!["dncnn:8:4".parse().expect("a network")],
        size: 64,
        patches: vec![16],
        overlaps: vec![0, 2, 8],
        levels: vec![0.1],
        threads: 1,
        repetitions: 1,
        settings: settings(),
    };
    let seams: Vec<f64> = (study.trials().expect("trials").iter())
        .map(|trial| measure(trial).rows[0].seam_rms.expect("a difference"))
        .collect();
    // Four layers of 3 × 3 see four pixels around each.
    assert!(seams[0] > 1e-5 && seams[1] < seams[0], "{seams:?}");
    assert!(seams[2] < 1e-3 * seams[0], "{seams:?}");
}
