//! `axes = "all"` in jobs and files: the same bits on any number of ranks, a plan that counts it, and what it is not for.

#![cfg(feature = "builtin")]

use haloscope::Array;
use haloscope::denoise::{Averaged, Axes, Denoiser, NetworkDenoiser};
use haloscope::io::{self, ReadOptions, WriteOptions};
use haloscope_comm::Context;
use haloscope_job::{Deviation, Event, FileDenoising, Job, JobBuilder, Observer, Outcome};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;

const MODEL: &str = "builtin:gray";

fn job(size: Vec<i64>, prior: impl Fn(haloscope_job::Keys) -> haloscope_job::Keys) -> JobBuilder {
    Job::builder()
        .measurements(|it| {
            let noise = JobBuilder::keys().set("gaussian", 0.05);
            it.set("phantom", "shepp-logan").set("size", size).set("noise", noise)
        })
        .operator("identity", |it| it)
        .operator("identity", |it| it)
        .prior("network", |it| prior(it.set("model", MODEL).set("sigma", 0.1)))
        .solver("pgd", |it| it)
        .stop(|it| it.set("iterations", 2))
}

fn run(job: &Job, ranks: usize) -> Vec<Outcome> {
    let job = job.clone();
    Context::threads(ranks, move |ctx| job.run(ctx, &mut ())).expect("no rank fails")
}

#[test]
fn a_job_along_all_axes_has_the_same_bits_on_any_number_of_ranks() {
    let size = || vec![11, 16, 13];
    let axial = job(size(), |it| it.set("axes", "axial")).build().expect("a job");
    let axial = run(&axial, 1).remove(0);
    let default = job(size(), |it| it).build().expect("a job");
    assert_eq!(run(&default, 1).remove(0).bits, axial.bits);
    let all = job(size(), |it| it.set("axes", "all")).build().expect("a job");
    let alone = run(&all, 1).remove(0);
    assert_ne!(alone.bits, axial.bits);
    for ranks in [2, 3, 5, 8] {
        for outcome in run(&all, ranks) {
            assert_eq!(outcome.bits, alone.bits, "{ranks} ranks");
        }
    }
    let prior = |job: &Job| job.prior();
    assert!(prior(&all).ends_with("along all axes"), "{}", prior(&all));
}

#[test]
fn what_it_is_not_for_is_refused_with_what_would_do() {
    let all = |it: haloscope_job::Keys| it.set("axes", "all");
    let sharded = || job(vec![8, 16, 16], all).image(|it| it.set("layout", "sharded"));
    for (job, words) in [
        (job(vec![16, 16], all), "2 sides"),
        (job(vec![8, 16, 16], |it| it.set("axes", "each")), "axial, all and ensemble"),
        (
            job(vec![8, 16, 16], |it| all(it.set("model", "builtin:volume"))),
            "sees volumes as a whole",
        ),
        (sharded(), "image = \"replicated\""),
    ] {
        let checked = job.build().and_then(|job| job.check(2).map(|_| ()));
        let error = checked.expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Adds up the work.
#[derive(Default)]
struct Watch(f64);

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Worked { flops } = event {
            self.0 += flops;
        }
    }
}

#[test]
fn a_file_along_all_axes_is_the_librarys_mean_and_all_work_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, output] = ["in.npy", "out.npy"].map(|name| folder.path().join(name));
    let shape = vec![1, 1, 9, 16, 12];
    let volume = Array::from_shape_fn(shape, |at| (at[2] * 5 + at[3] * at[4]) as f32 % 97.0 / 96.0);
    io::write(&input, &volume, &WriteOptions::default()).expect("written");
    let name: ModelName = "drunet:4-4-8-8:1".parse().expect("a model");
    let denoising = FileDenoising {
        model: Some(name.clone()),
        slices: Axes::All,
        axes: Some(io::Axes::Automatic),
        engine: EngineOptions { threads: 1, ..EngineOptions::default() },
        ..FileDenoising::new(&input, &output, Deviation::OfWhite(0.1))
    };
    let plan = denoising.check().expect("a plan");
    let (flops, mut watch) = (plan.flops(), Watch::default());
    let done = plan.run(&mut watch).expect("it runs");
    assert!((watch.0 / flops - 1.0).abs() < 1e-6, "{} of {flops}", watch.0);
    assert_eq!(done.slices, 9 + 16 + 12);
    let model = name.open(1, 2).expect("a model");
    let network = NetworkDenoiser::new(model, EngineOptions::default()).expect("aligned");
    let expected =
        Averaged::new(network, Axes::All).denoise(&volume, &0.1.into()).expect("a volume");
    let found = io::read(&output, &ReadOptions::default()).expect("read").array;
    assert_eq!(found.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    let flat = folder.path().join("flat.npy");
    let picture = Array::zeros(vec![1, 1, 16, 16]);
    io::write(&flat, &picture, &WriteOptions::default()).expect("written");
    let error = FileDenoising { input: flat, ..denoising }.check().expect_err("a picture");
    assert!(error.to_string().contains("slices: \"all\""), "{error}");
}
