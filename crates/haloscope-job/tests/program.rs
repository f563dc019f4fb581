//! A program that makes a job of its own gets what a job file gets: the same checks, the same bits, the same refusals.

use haloscope::{Array, Digest};
use haloscope_comm::Context;
use haloscope_job::{Event, Job, JobBuilder, Observer, Outcome, Resuming};

const FILE: &str = r#"
[measurements]
phantom = "landscape"
size = [40, 36]
noise = { gaussian = 0.02 }
seed = 5

[[operators]]
kind = "blur"
kernel = "gaussian"
sigma = 1.5

[[operators]]
kind = "downsampling"
factor = 2
filter = "gaussian"

[prior]
kind = "total-variation"
weight = 0.01
clamp = [0, 1]

[solver]
method = "fista"

[stop]
iterations = 6

[output]
file = "result.npy"
"#;

fn built() -> JobBuilder {
    Job::builder()
        .measurements(|it| {
            it.set("phantom", "landscape")
                .set("size", vec![40, 36])
                .set("noise", JobBuilder::keys().set("gaussian", 0.02))
                .set("seed", 5)
        })
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.5))
        .operator("downsampling", |it| it.set("factor", 2).set("filter", "gaussian"))
        .prior("total-variation", |it| it.set("weight", 0.01).set("clamp", vec![0, 1]))
        .solver("fista", |it| it)
        .stop(|it| it.set("iterations", 6))
}

fn run(job: Job, ranks: usize) -> Vec<Outcome> {
    Context::threads(ranks, move |ctx| job.run(ctx, &mut ())).expect("no rank fails")
}

#[test]
fn a_built_job_has_the_bits_of_the_file_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.toml");
    std::fs::write(&path, FILE).expect("written");
    let of_file = run(Job::from_file(&path).expect("a job"), 1).remove(0);
    assert!(folder.path().join("result.npy").exists());
    for ranks in [1, 2, 3, 5] {
        let outcomes = run(built().build().expect("a job"), ranks);
        for outcome in &outcomes {
            assert_eq!(outcome.image(), of_file.image(), "{ranks} ranks");
            assert_eq!(outcome.bits, Digest::of(of_file.image()).to_string());
        }
        assert_eq!(outcomes[0].quality, of_file.quality);
        assert!(outcomes[0].quality.is_some(), "the truth is known");
    }
}

#[test]
fn a_built_job_is_refused_where_a_file_would_be() {
    for (job, words) in [
        (built().solver("fsta", |it| it), "fista"),
        (built().stop(|it| it.set("iteration", 6)), "iterations"),
        (built().operator("blur", |it| it), "kernel"),
        (Job::builder(), "[measurements] is missing"),
    ] {
        let error = job.build().expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_plan_says_what_will_be_held_before_it_is() {
    let plan = built().build().expect("a job").check(2).expect("a plan");
    assert_eq!(plan.image, [1, 3, 40, 36]);
    assert_eq!(plan.measurements, [vec![3, 40, 36], vec![3, 20, 18]]);
    assert_eq!(plan.expected.forecast.ranks.len(), 2);
    let text = plan.to_string();
    assert!(text.contains("memory") && text.contains("fista, 6 iterations at most"), "{text}");
}

/// Notes what it is told, and stops after some iterations.
#[derive(Default)]
struct Recorder {
    iterations: Vec<usize>,
    notes: Vec<String>,
    started: bool,
    stages: usize,
    stop_after: Option<usize>,
    concluded: Option<Array>,
}

impl Observer for Recorder {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Iteration { record, .. } => self.iterations.push(record.iteration),
            Event::Note(note) | Event::Warning(note) => self.notes.push(note.to_owned()),
            Event::Started { .. } => self.started = true,
            Event::Stage { .. } => self.stages += 1,
            _ => (),
        }
    }

    fn stop(&mut self) -> Option<u8> {
        self.stop_after.filter(|after| self.iterations.len() >= *after).map(|_| 7)
    }

    fn conclude(&mut self, outcome: &Outcome) -> haloscope::Result<()> {
        self.concluded = Some(outcome.image().clone());
        Ok(())
    }
}

#[test]
fn an_observer_is_told_of_everything_and_can_stop_a_run_that_resumes() {
    let whole = run(built().build().expect("a job"), 1).remove(0);
    let mut recorder = Recorder::default();
    let job = built().build().expect("a job");
    job.run(&Context::solo(), &mut recorder).expect("a run");
    assert_eq!(recorder.iterations, [1, 2, 3, 4, 5, 6]);
    assert!(recorder.started && recorder.stages >= 4);
    assert_eq!(recorder.concluded.as_ref(), Some(whole.image()));

    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().display().to_string();
    let job = built().checkpoint(|it| it.set("folder", saved)).build().expect("a job");
    // One rank wants to stop, and all do.
    let stopped = job.clone();
    let outcomes = Context::threads(3, move |ctx| {
        let stop_after = (ctx.rank() == 1).then_some(4);
        stopped.run(ctx, &mut Recorder { stop_after, ..Recorder::default() })
    });
    for outcome in outcomes.expect("no rank fails") {
        assert_eq!(outcome.iterations(), 4);
        assert_eq!(outcome.ending, haloscope_job::Ending::Stopped(7));
        assert!(outcome.checkpoints.is_some());
    }
    let resumed = run(job.resuming(Resuming::Latest), 2).remove(0);
    assert_eq!((resumed.resumed_from, resumed.image()), (Some(4), whole.image()));
}

#[test]
fn an_observer_that_cannot_write_fails_the_run_and_the_image_is_saved() {
    struct Broken;
    impl Observer for Broken {
        fn conclude(&mut self, _: &Outcome) -> haloscope::Result<()> {
            Err(haloscope::Error::File { file: "page".into(), reason: "no room".into() })
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().display().to_string();
    let job = built().checkpoint(|it| it.set("folder", saved)).build().expect("a job");
    let failing = job.clone();
    let error = Context::threads(2, move |ctx| failing.run(ctx, &mut Broken)).expect_err("failed");
    assert!(error.to_string().contains("no room"), "{error}");
    let resumed = run(job.resuming(Resuming::Latest), 1).remove(0);
    assert_eq!(resumed.resumed_from, Some(6));
}
