//! Jobs with `image = "sharded"`: the bits of a replicated image on any number of ranks, from files and simulations; checkpoints
//! that either layout resumes; and refusals that name what works.

mod layouts;

use std::path::Path;

use haloscope::io::{self, ReadOptions};
use haloscope::physics::Inpainting;
use haloscope::{Array, Digest, Result};
use haloscope_comm::Context;
use haloscope_job::{Event, Job, JobBuilder, Observer, Resuming};
use layouts::{RANKS, Stopper, jobs, network, run, sharded, simulated, variation};
use ndarray::Axis;

fn refusal(job: &Job, ranks: usize) -> String {
    let job = job.clone();
    let outcome = Context::threads(ranks, move |ctx| job.run(ctx, &mut ()).map(drop));
    outcome.expect_err("refused").to_string()
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
    let whole = job("whole").image(|it| it.set("layout", "replicated")).build()?;
    let whole = run(&whole, 2).remove(0);
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

/// An image of holes, its truth, an image to start from and masks, each in files of some formats.
fn write_holes(folder: &Path) -> Result<()> {
    let truth = haloscope::phantom::landscape(44, 50)?;
    let mask = Inpainting::random_mask(&[1, 44, 50], 0.3, 5)?.insert_axis(Axis(0));
    let coloured = Inpainting::random_mask(&[1, 132, 50], 0.3, 6)?;
    let coloured = coloured.into_shape_with_order(vec![1, 3, 44, 50]).expect("three channels");
    let write = |name: &str, array: &Array| {
        io::write(folder.join(name), array, &io::WriteOptions::default())
    };
    for (name, array) in [
        ("holes.npy", &(&truth * &mask)),
        ("coloured.npy", &(&truth * &coloured)),
        ("truth.npy", &truth),
        ("truth.png", &truth),
        ("start.tif", &truth.mapv(|value| 0.7 * value)),
        ("start.png", &truth.mapv(|value| 0.7 * value)),
        ("mask.png", &mask),
        ("mask.npy", &mask),
        ("mask-of-colours.npy", &coloured),
        ("inverted.png", &mask.mapv(|value| 1.0 - value)),
        ("inverted.npy", &mask.mapv(|value| 1.0 - value)),
    ] {
        write(name, array)?;
    }
    Ok(())
}

#[test]
fn truths_starts_and_masks_are_read_in_parts() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    write_holes(folder.path())?;
    let job = |holes: &str, mask: &str, truth: &str, start: &str| {
        let job = Job::builder()
            .folder(folder.path())
            .measurements(|it| it.set("files", vec![holes]))
            .operator("inpainting", |it| it.set("mask", mask))
            .truth(|it| it.set("file", truth))
            .start("file", |it| it.set("file", start));
        variation(job, "pgd")
    };
    let simulated = |image: &str| {
        let noise = JobBuilder::keys().set("gaussian", 0.05);
        let job = Job::builder()
            .folder(folder.path())
            .measurements(|it| it.set("image", image).set("noise", noise).set("seed", 3))
            .operator("identity", |it| it);
        variation(job, "fista")
    };
    for (name, job) in [
        ("arrays", job("holes.npy", "mask.npy", "truth.npy", "start.tif")),
        ("pictures", job("holes.npy", "mask.png", "truth.png", "start.png")),
        ("colours", job("coloured.npy", "mask-of-colours.npy", "truth.npy", "start.tif")),
        ("a simulation", simulated("truth.npy")),
        ("a simulation of a picture", simulated("truth.png")),
        // Which the first rank reads and deals.
        ("blocks", simulated("truth.npy").edit("measurements", |it| it.set("shrink", 2))),
    ] {
        let whole = job.clone().edit("image", |it| it.set("layout", "replicated"));
        let whole = run(&whole.build()?, 2).remove(0);
        let quality = whole.quality.expect("a truth");
        for ranks in RANKS {
            let outcome = run(&sharded(job.clone()).build()?, ranks).remove(0);
            assert_eq!(outcome.bits, whole.bits, "{name}, {ranks} ranks");
            let found = outcome.quality.expect("a truth");
            assert!((found.psnr_db - quality.psnr_db).abs() < 1e-6, "{name}: {found:?}");
        }
        sharded(job).build()?.check(3)?;
    }
    // What does not fit is refused by all ranks, as a check does.
    for (job, words) in [
        (job("holes.npy", "mask-of-colours.npy", "start.png", "missing.png"), "missing.png"),
        (job("holes.npy", "holes.npy", "small.npy", "start.png"), "the truth"),
        (job("holes.npy", "holes.npy", "truth.npy", "small.npy"), "the image to start from"),
        (job("holes.npy", "small.npy", "truth.npy", "start.png"), "the mask of inpainting"),
    ] {
        let small = Array::zeros(vec![1, 3, 44, 48]);
        io::write(folder.path().join("small.npy"), &small, &io::WriteOptions::default())?;
        let job = sharded(job).build()?;
        let checked = job.check(3).expect_err("refused").to_string();
        for error in [refusal(&job, 3), checked] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }
    Ok(())
}

/// Keeps what a run warns of.
#[derive(Default)]
struct Listener(Vec<String>);

impl Observer for Listener {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Warning(words) = event {
            self.0.push(words.to_owned());
        }
    }
}

#[test]
fn a_mask_by_which_nothing_is_there_is_doubted_in_every_layout() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    write_holes(folder.path())?;
    for (mask, is_doubted) in
        [("mask.npy", false), ("mask.png", false), ("inverted.npy", true), ("inverted.png", true)]
    {
        let job = Job::builder()
            .folder(folder.path())
            .measurements(|it| it.set("files", vec!["holes.npy"]))
            .operator("inpainting", |it| it.set("mask", mask));
        let job = variation(job, "pgd");
        let mut said: Option<Vec<String>> = None;
        for layout in ["replicated", "sharded"] {
            let job = job.clone().edit("image", |it| it.set("layout", layout)).build()?;
            for ranks in RANKS {
                let checked = job.check(ranks)?.warnings;
                let of_run = job.clone();
                let warnings = Context::threads(ranks, move |ctx| {
                    let mut listener = Listener::default();
                    of_run.run(ctx, &mut listener)?;
                    Ok::<_, haloscope_job::Error>(listener.0)
                });
                let warnings = warnings.expect("no rank fails");
                assert!(warnings[1..].iter().all(Vec::is_empty), "the first rank speaks for all");
                for warnings in [&checked, &warnings[0]] {
                    let words = warnings.concat();
                    assert_eq!(words.contains("may be inverted"), is_doubted, "{layout}: {words}");
                    let first = said.get_or_insert_with(|| warnings.clone());
                    assert_eq!(warnings, first, "{mask}, {layout}, {ranks} ranks");
                }
            }
        }
    }
    Ok(())
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
    let replicated = job.image(|it| it.set("layout", "replicated").set("shards", vec![2, 1]));
    let error = replicated.build().expect_err("nothing is cut");
    assert!(error.to_string().contains("image = \"sharded\""), "{error}");
}

#[test]
fn what_shards_cannot_serve_is_refused_with_what_works() {
    let denoising = || simulated([44, 50]).operator("identity", |it| it);
    let tiled = |key: &str, value: toml::Value| {
        let job = network(denoising()).solver("pgd", |it| it);
        job.edit("prior", |it| it.set(key, value))
    };
    let pictures = variation(denoising(), "fista").output(|it| it.set("folder", "pictures"));
    let framed = |key: &str, value: toml::Value| {
        let files = Job::builder()
            .measurements(|it| it.set("files", vec!["frame.npy"]).set(key, value))
            .operator("identity", |it| it);
        variation(files, "fista")
    };
    for (job, words) in [
        (framed("flat", "flat.npy".into()), "`flat`, `dark` and `logarithm`"),
        (framed("dark", "dark.npy".into()), "`flat`, `dark` and `logarithm`"),
        (framed("logarithm", true.into()), "`flat`, `dark` and `logarithm`"),
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
    let network = network(job.clone()).solver("pgd", |it| it);
    // A tolerance of 0 takes all iterations of its prox.
    let exactly = |solver: &str| {
        job.clone()
            .prior("total-variation", |it| {
                let it = it.set("weight", 0.01);
                if solver == "fista" { it.set("iterations", 3).set("tolerance", 0.0) } else { it }
            })
            .solver(solver, |it| it)
            .stop(|it| it.set("iterations", 2))
    };
    for (name, job) in
        [("network", network), ("fista", exactly("fista")), ("primal-dual", exactly("primal-dual"))]
    {
        let job = sharded(job).build()?;
        for ranks in RANKS {
            let plan = job.check(ranks)?;
            let text = plan.to_string();
            assert!(text.contains("shards") && text.contains("largest load"), "{text}");
            assert_eq!(text.contains("halos"), ranks > 1 && name == "network", "{text}");
            let outcome = run(&job, ranks).remove(0);
            let foretold = plan.expected.forecast.bytes_sent() * outcome.iterations() as u64;
            assert_eq!(outcome.bytes_moved, foretold, "{name}, {ranks} ranks");
        }
    }
    Ok(())
}
