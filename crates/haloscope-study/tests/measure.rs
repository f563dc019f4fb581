//! What measuring processes do, without the processes: all studies on tiny sizes.

use std::sync::{Arc, Mutex};

use haloscope::denoise::{Denoiser, NetworkDenoiser};
use haloscope_nn::engine::Options;
use haloscope_study::figures::summarise;
use haloscope_study::job::{Answer, Job, Question, Settings};
use haloscope_study::measure::answer;
use haloscope_study::plan::{BatchStudy, CompareStudy, MemoryStudy, ScalingStudy};
use haloscope_study::problem::Problem;
use haloscope_study::row::{Backend, Mode, Row};

/// What a job's process says.
#[derive(Default)]
struct Answers {
    rows: Vec<Row>,
    data: Vec<String>,
    images: Vec<Option<String>>,
}

fn ask(question: Question) -> (Answers, Vec<Answer>) {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let taken = answers.clone();
    answer(question, move |answer| {
        taken.lock().expect("no panic").push(answer);
        Ok(())
    })
    .expect("measured");
    let all = answers.lock().expect("no panic").clone();
    let mut sorted = Answers::default();
    for answer in &all {
        match answer.clone() {
            Answer::Data(digest) => sorted.data.push(digest),
            Answer::Repetition { rows, image } => {
                sorted.rows.extend(rows);
                sorted.images.push(image);
            }
            Answer::Link(_) => (),
        }
    }
    (sorted, all)
}

fn measure(job: &Job) -> Answers {
    ask(Question::Job(Box::new(job.clone()))).0
}

fn settings() -> Settings {
    Settings { iterations: 2, ..Settings::default() }
}

fn scaling(problem: Problem, ranks: Vec<usize>, mode: Mode) -> Vec<Job> {
    let study = ScalingStudy {
        problems: vec![problem],
        sizes: vec![32],
        ranks,
        modes: vec![mode],
        backends: vec![Backend::Threads],
        model: Some("drunet:2-2-2-2:1".parse().expect("a network")),
        patch: Some(16),
        overlap: Some(4),
        batch: 2,
        operators: 4,
        threads: 1,
        repetitions: 2,
        full: false,
        settings: settings(),
    };
    study.jobs().expect("jobs")
}

#[test]
fn every_problem_finds_the_same_image_on_1_2_and_3_ranks() {
    for problem in Problem::ALL {
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

#[test]
fn rows_of_a_reconstruction_are_complete_and_consistent() {
    let jobs = scaling(Problem::HighresColor, vec![3], Mode::Strong);
    let rows = measure(&jobs[0]).rows;
    for row in &rows {
        assert_eq!(row.configuration, jobs[0].configuration);
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
    for (job, width) in
        scaling(Problem::SuperResolution, vec![1, 2], Mode::Weak).iter().zip([32, 64])
    {
        let rows = measure(job).rows;
        // Four windows of 24² each.
        let work = Some(4 * 24 * 24);
        assert!(
            rows.iter().all(|row| row.configuration.width == width && row.pixels_computed == work)
        );
    }
}

#[test]
fn memory_is_predicted_and_measured() {
    let study = MemoryStudy {
        models: vec![
            "unet:2-4".parse().expect("a network"),
            "dncnn:4:3".parse().expect("a network"),
        ],
        height: 16,
        widths: vec![16, 20],
        threads: 1,
        repetitions: 1,
        settings: settings(),
    };
    for job in study.jobs().expect("jobs") {
        let rows = measure(&job).rows;
        assert_eq!(rows.len(), 1);
        assert!(rows[0].total_seconds > 0.0 && rows[0].predicted_bytes > Some(0));
        assert_eq!(rows[0].peak_bytes.is_some(), cfg!(target_os = "linux"));
    }
}

#[test]
fn batches_do_not_change_the_image() {
    let study = BatchStudy {
        model: "dncnn:4:3".parse().expect("a network"),
        size: 32,
        patches: vec![16],
        batches: vec![1, 3, 4],
        overlap: 0,
        threads: 1,
        repetitions: 1,
        settings: settings(),
    };
    let found: Vec<Answers> = study.jobs().expect("jobs").iter().map(measure).collect();
    assert_eq!(found.len(), 3);
    for answers in &found {
        assert_eq!(answers.images, found[0].images);
        assert_eq!(answers.rows[0].pixels_computed, Some(32 * 32));
    }
}

#[test]
fn memory_of_a_batch_is_that_of_the_windows_of_the_plan() {
    let study = BatchStudy {
        model: "drunet:2-2-2-2:1".parse().expect("a network"),
        size: 64,
        patches: vec![32],
        batches: vec![2],
        overlap: 8,
        threads: 1,
        repetitions: 1,
        settings: settings(),
    };
    let rows = measure(&study.jobs().expect("jobs")[0]).rows;
    // Two windows of 40 pixels cover 64 with 16 in common: they need no overlap at the edges.
    assert_eq!(rows[0].pixels_computed, Some(4 * 40 * 40));
    let options = Options { threads: 1, ..Options::default() };
    let model = study.model.build(3, 2).expect("a model");
    let network = NetworkDenoiser::new(model, options).expect("a network");
    let bytes = network.memory(&[2, 3, 40, 40]).expect("a plan").map(|bytes| bytes as u64);
    assert_eq!(rows[0].predicted_bytes, bytes);
}

#[test]
fn comparisons_are_of_images_in_one_piece() {
    let study = CompareStudy {
        systems: vec!["haloscope".into()],
        problems: vec![Problem::Tomography2d],
        sizes: vec![16],
        model: Some("drunet:2-2-2-2:1".parse().expect("a network")),
        operators: 2,
        threads: 1,
        repetitions: 1,
        full: false,
        settings: settings(),
    };
    let rows = measure(&study.jobs().expect("jobs")[0]).rows;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].pixels_computed, rows[0].pixels_kept);
}

#[test]
fn links_have_a_latency_and_a_bandwidth() {
    let (_, answers) = ask(Question::Link(Backend::Threads));
    let [Answer::Link(speed)] = answers[..] else { panic!("one answer: {answers:?}") };
    assert!(speed.latency_seconds > 0.0 && speed.bytes_per_second > 0.0, "{speed:?}");
}
