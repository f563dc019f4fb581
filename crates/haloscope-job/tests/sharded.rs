//! Jobs with `image = "sharded"`: the bits of a replicated image on any number of ranks, from files and simulations; checkpoints
//! that either layout resumes; and refusals that name what works.

use haloscope::io::{self, ReadOptions};
use haloscope::{Digest, Result};
use haloscope_comm::Context;
use haloscope_job::{Event, Job, JobBuilder, Observer, Outcome, Resuming};

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

fn run(job: &Job, ranks: usize) -> Vec<Outcome> {
    let job = job.clone();
    Context::threads(ranks, move |ctx| job.run(ctx, &mut ())).expect("no rank fails")
}

fn refusal(job: &Job, ranks: usize) -> String {
    let job = job.clone();
    let outcome = Context::threads(ranks, move |ctx| job.run(ctx, &mut ()).map(drop));
    outcome.expect_err("refused").to_string()
}

fn sharded(job: JobBuilder) -> JobBuilder {
    job.edit("image", |it| it.set("layout", "sharded"))
}

fn simulated(sides: [i64; 2]) -> JobBuilder {
    Job::builder().measurements(|it| {
        it.set("phantom", "landscape")
            .set("size", sides.to_vec())
            .set("noise", JobBuilder::keys().set("gaussian", 0.05))
            .set("seed", 3)
    })
}

fn variation(job: JobBuilder, method: &str) -> JobBuilder {
    job.prior("total-variation", |it| it.set("weight", 0.02).set("clamp", vec![0, 1]))
        .solver(method, |it| it)
        .stop(|it| it.set("iterations", 4))
}

fn network(job: JobBuilder) -> JobBuilder {
    job.prior("network", |it| it.set("model", "random:dncnn:8:4"))
        .stop(|it| it.set("iterations", 3))
}

/// Denoising, inpainting, deblurring and super-resolution, with total variation and with a network.
fn jobs() -> Vec<(&'static str, JobBuilder)> {
    let denoising = || simulated([44, 50]).operator("identity", |it| it);
    let inpainting =
        || simulated([44, 50]).operator("inpainting", |it| it.set("missing", 0.4).set("seed", 2));
    let deblurring = || {
        simulated([44, 50])
            .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.2))
            .operator("blur", |it| it.set("kernel", "uniform").set("size", 3))
    };
    let zooming = || {
        simulated([44, 52])
            .operator("downsampling", |it| it.set("factor", 2).set("filter", "gaussian"))
    };
    let hqs = |job: JobBuilder| {
        network(job).solver("hqs", |it| it.set("levels", vec![0.2, 0.05]).set("noise", 0.05))
    };
    vec![
        ("denoising, fista", variation(denoising(), "fista")),
        ("denoising, hqs", hqs(denoising())),
        (
            "denoising, hqs with the noise that is found",
            network(denoising()).solver("hqs", |it| it.set("levels", vec![0.2, 0.05])),
        ),
        ("inpainting, pgd", variation(inpainting(), "pgd")),
        ("inpainting, hqs", hqs(inpainting())),
        ("deblurring, primal-dual", variation(deblurring(), "primal-dual")),
        ("deblurring, network", network(deblurring()).solver("pgd", |it| it)),
        ("super-resolution, fista", variation(zooming(), "fista")),
        ("super-resolution, network", network(zooming()).solver("fista", |it| it)),
    ]
}

#[test]
fn shards_have_the_bits_of_a_replicated_image_on_any_number_of_ranks() {
    for (name, job) in jobs() {
        let whole = run(&job.clone().build().expect("a job"), 1).remove(0);
        let job = sharded(job).build().expect("a job");
        for ranks in RANKS {
            let outcomes = run(&job, ranks);
            for outcome in &outcomes {
                assert_eq!(outcome.bits, whole.bits, "{name}, {ranks} ranks");
            }
            let (found, expected) = (outcomes[0].quality, whole.quality.expect("a truth"));
            let found = found.expect("a truth");
            assert!((found.psnr_db - expected.psnr_db).abs() < 1e-6, "{name}: {found:?}");
            let parts: usize = outcomes.iter().map(|outcome| outcome.image().len()).sum();
            assert_eq!(parts, whole.image().len(), "{name}: each pixel is on one rank");
        }
    }
}

#[test]
fn files_are_read_and_written_in_parts() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let truth = haloscope::phantom::landscape(44, 50)?;
    for (name, shift) in [("first.npy", 0.0), ("second.npy", 0.1)] {
        io::write(folder.path().join(name), &(&truth + shift), &io::WriteOptions::default())?;
    }
    let job = |output: &str| {
        let job = Job::builder()
            .folder(folder.path())
            .measurements(|it| it.set("files", vec!["first.npy", "second.npy"]))
            .operator("identity", |it| it)
            .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.0))
            .output(|it| it.set("file", vec![format!("{output}.npy"), format!("{output}.png")]));
        variation(job, "fista")
    };
    let whole = run(&job("whole").build()?, 2).remove(0);
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it is written");
    for ranks in RANKS {
        let outcome = run(&sharded(job("parts")).build()?, ranks).remove(0);
        assert_eq!(outcome.bits, whole.bits, "{ranks} ranks");
        assert_eq!(read("parts.npy"), read("whole.npy"), "{ranks} ranks");
        assert_eq!(read("parts.png"), read("whole.png"), "{ranks} ranks");
    }
    let written = io::read(folder.path().join("parts.npy"), &ReadOptions::default())?.array;
    assert_eq!(Digest::of(&written).to_string(), whole.bits);
    Ok(())
}

/// Stops after some iterations.
struct Stopper(usize);

impl Observer for Stopper {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Iteration { .. } = event {
            self.0 = self.0.saturating_sub(1);
        }
    }

    fn stop(&mut self) -> Option<u8> {
        (self.0 == 0).then_some(7)
    }
}

#[test]
fn a_run_that_stops_on_three_ranks_resumes_on_five_and_in_the_other_layout() {
    let job = simulated([44, 50])
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.2))
        .fidelity("l1", |it| it)
        .prior("total-variation", |it| it.set("weight", 0.02))
        .solver("primal-dual", |it| it)
        .stop(|it| it.set("iterations", 6));
    let whole = run(&job.clone().build().expect("a job"), 1).remove(0);
    let replicated = |job: JobBuilder| job;
    let layouts: [fn(JobBuilder) -> JobBuilder; 2] = [sharded, replicated];
    for (from, to) in [(0, 0), (0, 1), (1, 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let saved = folder.path().display().to_string();
        let job = job.clone().checkpoint(|it| it.set("folder", saved));
        let first = layouts[from](job.clone()).build().expect("a job");
        let outcomes = Context::threads(3, move |ctx| first.run(ctx, &mut Stopper(2)));
        assert!(outcomes.expect("no rank fails")[0].checkpoints.is_some());
        let second = layouts[to](job).build().expect("a job").resuming(Resuming::Latest);
        let resumed = run(&second, 5).remove(0);
        assert_eq!(resumed.resumed_from, Some(2));
        assert_eq!(resumed.bits, whole.bits, "{from} to {to}");
    }
}

#[test]
fn grids_are_taken_from_the_job_and_both_ways_to_write_it_are_one() {
    let job = variation(simulated([44, 50]).operator("identity", |it| it), "fista");
    let text = sharded(job.clone()).to_string();
    let short =
        format!("image = \"sharded\"\nshards = [1, 2]\n{job}\n[output]\nfile = \"a.npy\"\n");
    let short = JobBuilder::from_text(&short).expect("TOML").without("output");
    let parts = run(&short.build().expect("a job"), 2);
    assert_eq!(parts[1].image().shape(), [1, 3, 44, 26], "{text}");
    let error = refusal(
        &job.clone()
            .image(|it| it.set("layout", "sharded").set("shards", vec![3, 1]))
            .build()
            .expect("a job"),
        2,
    );
    assert!(error.contains("[3, 1] are 3 parts for 2 ranks"), "{error}");
    let error = job.image(|it| it.set("shards", vec![2, 1])).build().expect_err("replicated");
    assert!(error.to_string().contains("image = \"sharded\""), "{error}");
}

#[test]
fn what_shards_cannot_serve_is_refused_with_what_works() {
    let scan = Job::builder()
        .measurements(|it| it.set("phantom", "shepp-logan").set("size", vec![32, 32]))
        .operator("parallel-beam", |it| it.set("angles", 12))
        .solver("cg", |it| it);
    let denoising = || simulated([44, 50]).operator("identity", |it| it);
    let tiled = |key: &str, value: toml::Value| {
        let job = network(denoising()).solver("pgd", |it| it);
        job.edit("prior", |it| it.set(key, value))
    };
    let pictures = variation(denoising(), "fista").output(|it| it.set("folder", "pictures"));
    for (job, words) in [
        (scan, "the views of a scan see all of it"),
        (tiled("strategy", "overlap".into()), "`strategy`"),
        (tiled("patch", 64.into()), "`patch`"),
        (pictures, "`folder` of [output]"),
    ] {
        let error = sharded(job).build().expect_err("refused").to_string();
        assert!(error.contains(words) && error.contains("image = \"replicated\""), "{error}");
    }
}

/// Comparisons with a truth would add their own messages, so the data are measured.
#[test]
fn a_plan_says_how_the_image_is_cut_and_what_travels() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let truth = haloscope::phantom::landscape(96, 112)?;
    io::write(folder.path().join("frame.npy"), &truth, &io::WriteOptions::default())?;
    let job = Job::builder()
        .folder(folder.path())
        .measurements(|it| it.set("files", vec!["frame.npy", "frame.npy"]))
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.2))
        .operator("blur", |it| it.set("kernel", "uniform").set("size", 3));
    let job = sharded(network(job).solver("pgd", |it| it)).build()?;
    for ranks in RANKS {
        let plan = job.check(ranks)?;
        let text = plan.to_string();
        assert!(text.contains("shards") && text.contains("largest load"), "{text}");
        assert_eq!(text.contains("halos"), ranks > 1, "{text}");
        let outcome = run(&job, ranks).remove(0);
        let foretold = plan.expected.forecast.bytes_sent() * outcome.iterations() as u64;
        assert_eq!(outcome.bytes_moved, foretold, "{ranks} ranks");
    }
    Ok(())
}
