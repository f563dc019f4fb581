//! `image = "auto"`, the default: the layout that takes less, told with its reason, the same on all ranks, and never other bits.

mod layouts;

use std::path::Path;

use haloscope::Result;
use haloscope::image::Layout;
use haloscope::io::{self, WriteOptions};
use haloscope_comm::Context;
use haloscope_job::{Event, Job, JobBuilder, LayoutChoice, Observer, Outcome, Resuming};
use layouts::{RANKS, Stopper, jobs, network, run, sharded, simulated, variation};

/// Keeps the choice that a run is told.
#[derive(Default)]
struct Chosen(Option<LayoutChoice>);

impl Observer for Chosen {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Planned(expected) = event {
            self.0.clone_from(&expected.layout);
        }
    }
}

/// What the ranks found, and the choice of each.
fn choose(job: &Job, ranks: usize) -> Vec<(Outcome, LayoutChoice)> {
    let job = job.clone();
    let body = move |ctx: &Context| {
        let mut chosen = Chosen::default();
        let outcome = job.run(ctx, &mut chosen).map_err(haloscope_job::Error::into_inner)?;
        Ok::<_, haloscope::Error>((outcome, chosen.0.expect("a plan")))
    };
    Context::threads(ranks, body).expect("no rank fails")
}

/// Whether each rank has a part, which all agree on and `check` foretells.
fn is_sharded(job: &Job, ranks: usize, outcomes: &[(Outcome, LayoutChoice)]) -> bool {
    let foretold = job.check(ranks).expect("a plan").expected.layout.expect("a choice");
    for (outcome, choice) in outcomes {
        let (is_sharded, reason) = (choice.is_sharded, &choice.reason);
        assert_eq!((is_sharded, reason), (foretold.is_sharded, &foretold.reason));
        assert_eq!(outcome.state.image.layout() != &Layout::Replicated, is_sharded);
    }
    foretold.is_sharded
}

fn written(job: JobBuilder, folder: &Path) -> JobBuilder {
    job.folder(folder).output(|it| it.set("file", "image.npy"))
}

#[test]
fn the_choice_has_the_bits_of_both_layouts_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut parts, mut whole) = (0, 0);
    for (name, job) in jobs() {
        let job = written(job, folder.path());
        let replicated = job.clone().edit("image", |it| it.set("layout", "replicated"));
        let replicated = replicated.build().expect("a job");
        let expected = run(&replicated, 1).remove(0).bits;
        let auto = job.clone().build().expect("a job");
        for ranks in RANKS {
            let outcomes = choose(&auto, ranks);
            assert!(
                outcomes.iter().all(|(outcome, _)| outcome.bits == expected),
                "{name}, {ranks}"
            );
            assert_eq!(run(&replicated, ranks)[0].bits, expected, "{name}, {ranks} replicated");
            let in_parts = sharded(job.clone()).build().expect("a job");
            if is_sharded(&auto, ranks, &outcomes) {
                assert!(ranks > 1, "{name}: one rank has it all");
                assert_eq!(run(&in_parts, ranks)[0].bits, expected, "{name}, {ranks} in shards");
                parts += 1;
            } else {
                whole += 1;
            }
        }
    }
    // Both are chosen, so that something was compared.
    assert!(parts > 10 && whole > 10, "{parts} and {whole}");
}

#[test]
fn shards_are_taken_where_they_hold_and_send_less_and_the_reason_has_the_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = simulated([96, 112])
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.2))
        .operator("blur", |it| it.set("kernel", "uniform").set("size", 3));
    let job = written(network(job).solver("pgd", |it| it), folder.path());
    for layout in [None, Some("auto")] {
        let job = match layout {
            None => job.clone(),
            Some(layout) => job.clone().edit("image", |it| it.set("layout", layout)),
        };
        let plan = job.build().expect("a job").check(4).expect("a plan");
        let choice = plan.expected.layout.as_ref().expect("a choice");
        let [whole, parts] = [&choice.replicated, &choice.sharded].map(|costs| costs.as_ref());
        let (whole, parts) = (whole.expect("possible"), parts.expect("possible"));
        assert!(choice.is_sharded, "{choice:?}");
        assert!(parts.memory_bytes < whole.memory_bytes && parts.bytes_sent < whole.bytes_sent);
        assert_eq!(parts.grid.iter().product::<usize>(), 4);
        let text = plan.to_string();
        assert!(text.contains("layout        sharded, because parts hold at most "), "{text}");
        for words in ["memory of a rank", "halo rounds", "\n              replicated  "] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

#[test]
fn jobs_with_other_bits_in_shards_stay_replicated_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let blurred = |sigma: f64| {
        simulated([96, 112]).operator("blur", |it| it.set("kernel", "gaussian").set("sigma", sigma))
    };
    let zooming = simulated([96, 112])
        .operator("downsampling", |it| it.set("factor", 2).set("filter", "gaussian"));
    let wide = |it: haloscope_job::Keys| it.set("kernel", "uniform").set("size", 61);
    let fourier = variation(simulated([96, 112]).operator("blur", wide), "pgd");
    let hqs = |job: JobBuilder| {
        network(job).solver("hqs", |it| it.set("levels", vec![0.2, 0.05]).set("noise", 0.05))
    };
    let admm = |job: JobBuilder, method: &str| {
        let few = |it: haloscope_job::Keys| it.set("weight", 0.02).set("iterations", 5);
        variation(job, method).prior("total-variation", few).stop(|it| it.set("iterations", 2))
    };
    let tiled =
        network(blurred(1.2)).edit("prior", |it| it.set("patch", 64)).solver("pgd", |it| it);
    let scan = Job::builder()
        .measurements(|it| it.set("phantom", "shepp-logan").set("size", vec![32, 32]))
        .operator("parallel-beam", |it| it.set("angles", 12).set("detector", 48))
        .solver("cg", |it| it)
        .stop(|it| it.set("iterations", 2));
    let pictures = variation(blurred(1.2), "fista");
    let cases = [
        (hqs(blurred(1.2)), "closed form for one blur operator", true),
        (admm(blurred(1.2), "admm"), "closed form", true),
        (admm(zooming, "drs"), "closed form for one downsampling operator", true),
        (fourier, "Fourier transforms of the whole image", true),
        (tiled, "`patch`", false),
        (scan, "the views of a scan see the whole image", true),
    ];
    for (job, words, has_shards) in cases {
        let replicated = job.clone().build().expect("a job");
        let auto = written(job.clone(), folder.path()).build().expect("a job");
        let expected = run(&replicated, 1).remove(0).bits;
        for ranks in [2, 3] {
            let outcomes = choose(&auto, ranks);
            assert!(!is_sharded(&auto, ranks, &outcomes), "{words}");
            assert!(outcomes[0].1.reason.contains(words), "{}", outcomes[0].1.reason);
            assert_eq!(outcomes[0].0.bits, expected, "{words}");
        }
        // The choice is not for nothing: shards find something else.
        if has_shards {
            let parts = sharded(job).build().expect("a job");
            assert_ne!(run(&parts, 2)[0].bits, expected, "{words}");
        }
    }
    let pictures = pictures
        .folder(folder.path())
        .output(|it| it.set("file", "image.npy").set("folder", "pictures"));
    let pictures = pictures.build().expect("a job");
    let outcomes = choose(&pictures, 2);
    assert!(!is_sharded(&pictures, 2, &outcomes) && outcomes[0].0.page.is_some());
    assert!(outcomes[0].1.reason.contains("pictures"), "{}", outcomes[0].1.reason);
}

#[test]
fn a_caller_without_a_file_gets_the_whole_image_on_every_rank() {
    let job = simulated([96, 112]).operator("identity", |it| it);
    let job = variation(job, "pgd").build().expect("a job");
    for (outcome, choice) in choose(&job, 3) {
        assert_eq!(outcome.image().shape(), [1, 3, 96, 112]);
        assert!(choice.reason.contains("its caller takes the image"), "{}", choice.reason);
    }
}

#[test]
fn a_run_in_shards_resumes_on_one_rank_and_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = simulated([96, 112])
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.2))
        .operator("blur", |it| it.set("kernel", "uniform").set("size", 3));
    // Several operators have no closed form in any layout.
    let job = network(job)
        .solver("hqs", |it| it.set("levels", vec![0.2, 0.05]).set("noise", 0.05))
        .stop(|it| it.set("iterations", 4));
    let whole = run(&job.clone().build().expect("a job"), 1).remove(0);
    for [from, to] in [[3, 1], [1, 3], [3, 5]] {
        let saved = folder.path().join(format!("{from}-{to}")).display().to_string();
        let job = written(job.clone(), folder.path()).checkpoint(|it| it.set("folder", saved));
        let job = job.build().expect("a job");
        let choice = |ranks| job.check(ranks).expect("a plan").expected.layout.expect("a choice");
        assert_eq!([1, 3, 5].map(|ranks| choice(ranks).is_sharded), [false, true, true]);
        let first = job.clone();
        let stopped = Context::threads(from, move |ctx| first.run(ctx, &mut Stopper(2)));
        assert!(stopped.expect("no rank fails")[0].checkpoints.is_some());
        let resumed = run(&job.resuming(Resuming::Latest), to).remove(0);
        assert_eq!((resumed.resumed_from, &resumed.bits), (Some(2), &whole.bits), "{from} to {to}");
    }
}

#[test]
fn files_are_judged_alike_in_both_layouts() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let counts = haloscope::phantom::landscape(96, 112)? * 200.0 + 20.0;
    io::write(folder.path().join("counts.npy"), &counts, &WriteOptions::default())?;
    let job = |layout: &str| {
        let job = Job::builder()
            .folder(folder.path())
            .image(|it| it.set("layout", layout))
            .measurements(|it| it.set("files", vec!["counts.npy", "counts.npy"]))
            .operator("identity", |it| it)
            .operator("identity", |it| it);
        written(variation(job, "fista"), folder.path()).build().expect("a job")
    };
    let refused = |layout: &str| {
        let job = job(layout);
        let checked = job.check(3).expect_err("refused").to_string();
        let body = move |ctx: &Context| job.run(ctx, &mut ()).map(drop);
        (checked, Context::threads(3, body).expect_err("refused").to_string())
    };
    for layout in ["replicated", "sharded", "auto"] {
        let (checked, ran) = refused(layout);
        for error in [checked, ran] {
            assert!(error.contains("far from the [0, 1] that `clamp`"), "{layout}: {error}");
        }
    }
    Ok(())
}
