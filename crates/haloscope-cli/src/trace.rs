//! `--trace`: a timeline of each rank in a file of its own, for Perfetto or Chrome.
//!
//! The format is Chrome's: a list of events with a beginning and a length in microseconds. A rank is a process there, and
//! its threads are threads; the files of several ranks can be opened together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use haloscope::io::write_atomically;
use haloscope_comm::{Collectives, Context, Event, Trace};
use serde_json::{Value, json};

/// The options of commands that can be traced.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct TraceArguments {
    /// Write a timeline of each rank to this folder, for ui.perfetto.dev or Chrome
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,

    /// Include the layers of networks in the timeline
    #[arg(long, requires = "trace")]
    trace_layers: bool,
}

impl TraceArguments {
    /// Runs `body` with a context that is traced if that is asked for, and writes this rank's file afterwards, even if the
    /// body has failed. All ranks call it.
    pub(crate) fn run<T>(
        &self,
        context: &Context,
        body: impl FnOnce(&Context) -> Result<T>,
    ) -> Result<T> {
        let Some(folder) = &self.trace else { return body(context) };
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        // All timelines begin when the ranks have met.
        context.comm().barrier()?;
        let trace = if self.trace_layers { Trace::new().with_layers() } else { Trace::new() };
        let context = context.traced(trace);
        let result = body(&context);
        let written = context.trace().map_or(Ok(()), |trace| write(folder, context.rank(), trace));
        // What went wrong first counts.
        let result = result?;
        written?;
        Ok(result)
    }
}

fn write(folder: &Path, rank: usize, trace: &Trace) -> Result<()> {
    let path = folder.join(format!("rank-{rank}.json"));
    let document = serde_json::to_vec(&document(rank, trace))?;
    write_atomically(&path, |file| file.write_all(&document))
        .with_context(|| path.display().to_string())
}

/// The whole file.
fn document(rank: usize, trace: &Trace) -> Value {
    let named = |what: &str, thread: usize, name: &str| json!({ "name": what, "ph": "M", "pid": rank, "tid": thread, "args": { "name": name } });
    let mut events = vec![named("process_name", 0, &format!("rank {rank}"))];
    for (index, name) in trace.threads().iter().enumerate() {
        events.push(named("thread_name", index, name));
    }
    events.extend(trace.events().iter().map(|event| complete(rank, event)));
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

/// An event with its beginning and its length.
fn complete(rank: usize, event: &Event) -> Value {
    let microseconds = |duration: Duration| duration.as_nanos() as f64 / 1e3;
    let details = event.details.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    json!({
        "name": event.name,
        "cat": if event.is_call { "communication" } else { "work" },
        "ph": "X",
        "pid": rank,
        "tid": event.thread,
        "ts": microseconds(event.begin),
        "dur": microseconds(event.length),
        "args": details.collect::<serde_json::Map<String, Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_their_names_threads_and_details() {
        let ctx = Context::solo().traced(Trace::new());
        drop(ctx.span("forward").with("operator", 2.0));
        let trace = ctx.trace().expect("it is traced");
        let file = document(3, trace);
        let events = file["traceEvents"].as_array().expect("a list");
        let forward = events.last().expect("the span");
        assert_eq!((&forward["name"], &forward["pid"]), (&json!("forward"), &json!(3)));
        assert_eq!(forward["args"]["operator"], json!(2.0));
        assert!(forward["ts"].as_f64() >= Some(0.0) && forward["dur"].as_f64() >= Some(0.0));
        assert_eq!(events[0]["args"]["name"], "rank 3");
    }

    #[test]
    fn a_body_that_fails_still_leaves_its_timeline() {
        let folder = tempfile::tempdir().expect("a folder");
        let arguments =
            TraceArguments { trace: Some(folder.path().join("new")), trace_layers: false };
        let failed: Result<()> = arguments.run(&Context::solo(), |ctx| {
            drop(ctx.span("forward"));
            anyhow::bail!("no luck")
        });
        assert_eq!(failed.expect_err("it fails").to_string(), "no luck");
        let text = std::fs::read_to_string(folder.path().join("new/rank-0.json")).expect("a file");
        assert!(text.contains("forward"));
    }
}
