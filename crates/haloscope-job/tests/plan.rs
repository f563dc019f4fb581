//! What a job says of itself before it is run.

use haloscope_comm::Context;
use haloscope_job::{Error, Job};

fn job(iterations: i64) -> Job {
    Job::builder()
        .measurements(|it| it.set("phantom", "landscape").set("size", vec![64, 80]))
        .operator("blur", |it| {
            it.set("kernel", "gaussian").set("sigma", vec![2.0, 1.0]).set("angle", vec![0, 60, 120])
        })
        .prior("total-variation", |it| {
            it.set("weight", 0.01).set("iterations", 20).set("tolerance", 0.0)
        })
        .solver("fista", |it| it)
        .stop(|it| it.set("iterations", iterations))
        .build()
        .expect("a job")
}

fn messages(ranks: usize) -> String {
    let plan = job(1).check(ranks).expect("a plan");
    let line = plan.lines.iter().find(|(name, _)| *name == "messages");
    line.expect("a line on messages").1.clone()
}

/// What is printed is what an iteration sends.
#[test]
fn the_plan_says_how_many_bytes_ranks_send() {
    assert_eq!(messages(1), "none");
    let moved = |iterations: i64| {
        let job = job(iterations);
        let run = move |ctx: &Context| job.run(ctx, &mut ()).map_err(Error::into_inner);
        Context::threads(3, run).expect("no rank fails")[0].bytes_moved
    };
    let bytes = (moved(12) - moved(2)) as f64 / 10.0;
    let words = messages(3);
    let foretold = words.strip_prefix("at most about ").and_then(|rest| {
        let (size, _) = rest.split_once(" in each iteration by all ranks together, ")?;
        let (number, unit) = size.split_once(' ')?;
        let unit = ["kB", "MB"].into_iter().zip([1e3, 1e6]).find(|(name, _)| *name == unit)?.1;
        Some(number.parse::<f64>().ok()? * unit)
    });
    let foretold = foretold.unwrap_or_else(|| panic!("{words}"));
    assert!((foretold / bytes - 1.0).abs() < 0.03, "{words}: {bytes} bytes are sent");
}
