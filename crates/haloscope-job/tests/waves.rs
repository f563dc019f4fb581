//! Jobs whose network runs in waves, because a rank would hold more at once than it may: the bits of the untiled network on any
//! number of ranks, in either layout of the image, and words that say so.

mod layouts;

use haloscope_comm::Context;
use haloscope_job::{Job, JobBuilder, Resuming};
use layouts::{RANKS, Stopper, run, sharded, simulated};

/// Deblurring of a tall picture.
fn job() -> JobBuilder {
    simulated([420, 200])
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.2))
        .operator("blur", |it| it.set("kernel", "uniform").set("size", 3))
        .prior("network", |it| it.set("model", "random:dncnn:8:4"))
        .solver("pgd", |it| it)
        .stop(|it| it.set("iterations", 4))
}

fn within(job: JobBuilder, budget: i64) -> Job {
    job.edit("prior", |it| it.set("memory_budget", budget)).build().expect("a job")
}

/// The least budget that a job can have on so many ranks: the one that its refusal of a byte names, with room for what a plan takes
/// beside its estimate.
fn least(job: &JobBuilder, ranks: usize) -> i64 {
    let tiny = within(job.clone(), 1);
    let error = Context::threads(ranks, move |ctx| tiny.run(ctx, &mut ()).map(drop));
    let error = error.expect_err("a byte").to_string();
    let mut words = error.split(' ').skip_while(|&word| word != "least").skip(1);
    let least: i64 = words.next().and_then(|word| word.parse().ok()).expect(&error);
    least + least / 12
}

#[test]
fn jobs_in_waves_have_the_bits_of_the_untiled_network_in_both_layouts() {
    let whole = run(&job().build().expect("a job"), 1).remove(0);
    let as_it_is: fn(JobBuilder) -> JobBuilder = |job| job;
    for ranks in RANKS {
        for (name, layout) in [("replicated", as_it_is), ("sharded", sharded)] {
            let job = layout(job());
            let job = within(job.clone(), least(&job, ranks));
            let plan = job.check(ranks).expect("a plan");
            let expected = &plan.expected.forecast;
            assert!(expected.pass.band().is_some(), "{name} on {ranks} ranks");
            let grid = expected.shards.as_ref().expect("it is exact").grid();
            assert_eq!(grid[0], 1, "{name} on {ranks} ranks: {grid:?}");
            let says = |words: &str| plan.lines.iter().any(|(_, line)| line.contains(words));
            assert!(says("in waves of") && says("exact"), "{:?}", plan.lines);
            for outcome in run(&job, ranks) {
                assert_eq!(outcome.bits, whole.bits, "{name} on {ranks} ranks");
            }
        }
    }
}

#[test]
fn what_is_in_waves_resumes_what_was_not() {
    let whole = run(&job().build().expect("a job"), 1).remove(0);
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().display().to_string();
    let job = job().checkpoint(|it| it.set("folder", saved));
    let first = job.clone().build().expect("a job");
    let outcomes = Context::threads(2, move |ctx| first.run(ctx, &mut Stopper(2)));
    assert!(outcomes.expect("no rank fails")[0].checkpoints.is_some());
    let budget = least(&self::job(), 3);
    let resumed = run(&within(job, budget).resuming(Resuming::Latest), 3).remove(0);
    assert_eq!((resumed.resumed_from, resumed.bits), (Some(2), whole.bits));
}

#[test]
fn grids_and_budgets_that_do_not_go_together_are_refused_with_what_does() {
    let refusal = |job: Job, ranks| {
        let outcome = Context::threads(ranks, move |ctx| job.run(ctx, &mut ()).map(drop));
        outcome.expect_err("refused").to_string()
    };
    let budget = least(&job(), 4);
    for layout in ["replicated", "sharded"] {
        let rows = job().image(|it| it.set("layout", layout).set("shards", vec![4, 1]));
        let error = refusal(within(rows, budget), 4);
        assert!(error.contains("[4, 1]") && error.contains("a grid of [1, 4]"), "{error}");
    }
    let error = refusal(within(job(), 1), 2);
    assert!(error.contains("at least") && error.contains("more ranks"), "{error}");
    // Tiles have no budget, which could change their bits.
    let tiles = job().edit("prior", |it| it.set("memory_budget", 1_000_000).set("patch", 64));
    let error = tiles.build().expect_err("tiles").to_string();
    assert!(error.contains("tiles are asked for"), "{error}");
    let none = job().edit("prior", |it| it.set("memory_budget", 0)).build();
    assert!(none.expect_err("no bytes").to_string().contains("1 or more"));
}
