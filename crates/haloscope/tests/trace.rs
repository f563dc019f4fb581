//! A traced run notes what every rank does, on which thread, and changes nothing.

mod pnp;

use haloscope::Error;
use haloscope::solve::gather_records;
use haloscope_comm::{Context, Event, Trace};
use pnp::Small;

fn end(event: &Event) -> std::time::Duration {
    event.begin + event.length
}

#[test]
fn every_rank_notes_its_work_in_spans_that_lie_inside_each_other() {
    let ranks = Context::threads(2, |ctx| {
        let traced = ctx.traced(Trace::new().with_layers());
        let outcome = Small::default().run(&traced, 3)?;
        let trace = traced.trace().expect("it is traced");
        Ok::<_, Error>((trace.events(), trace.threads(), outcome))
    });
    let untraced = Small::default().run(&Context::solo(), 3).expect("a run");
    for (rank, (events, threads, outcome)) in ranks.expect("no rank fails").iter().enumerate() {
        assert_eq!(outcome.state, untraced.state);
        let count = |name: &str| events.iter().filter(|event| event.name == name).count();
        for name in
            ["data", "gradient", "forward", "adjoint", "reduction", "prior", "denoise", "tiles"]
        {
            assert!(count(name) >= 3, "{name} on rank {rank}");
        }
        assert_eq!(count("iteration"), 3);
        // Three convolutions of each batch of tiles.
        assert_eq!(count("in_conv"), count("tiles"));
        assert!(events.iter().any(|event| event.is_call && event.name == "ordered_sum"));
        assert!(threads.contains(&format!("rank {rank}, worker 0")), "{threads:?}");

        for (index, one) in events.iter().enumerate() {
            for other in events[..index].iter().filter(|other| other.thread == one.thread) {
                let apart = end(other) <= one.begin || end(one) <= other.begin;
                let inside = one.begin <= other.begin && end(other) <= end(one);
                assert!(apart || inside, "{other:?} and {one:?}");
            }
        }

        // The clock of a record is read twice inside the span, so no delay can make it longer.
        let spans = events.iter().filter(|event| event.name == "iteration");
        for (span, record) in spans.zip(&outcome.records) {
            assert!(span.length.as_secs_f64() >= record.seconds.total);
        }
    }
}

#[test]
fn records_of_all_ranks_come_together() {
    let gathered = Context::threads(3, |ctx| {
        let outcome = Small::default().run(ctx, 2)?;
        let all = gather_records(ctx, &outcome.records)?;
        assert_eq!(all[ctx.rank()], outcome.records);
        Ok::<_, Error>(all)
    });
    let gathered = gathered.expect("no rank fails");
    assert!(gathered.windows(2).all(|pair| pair[0] == pair[1]));
    for record in gathered[0].iter().flatten() {
        assert!(record.seconds.total >= record.seconds.data + record.seconds.prior);
        assert_eq!(record.peak_bytes.is_some(), cfg!(target_os = "linux"));
    }
}
