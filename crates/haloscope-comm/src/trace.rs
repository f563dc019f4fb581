//! A timeline of one rank: what it did, on which thread, from when to when.
//!
//! A [`Context`](crate::Context) may have a trace. Without one, a span costs a comparison with `None`; with one, the span is
//! recorded when it ends. Spans of a thread are nested, because they end with their scope. A communicator around the
//! rank's own records the calls between ranks, so the algorithms know nothing of traces.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::intercept::{Intercept, Intercepted};
use crate::statistics::CallCost;

/// Everything that has been noted on a rank.
///
/// ```
/// use haloscope_comm::{Collectives, Context, Trace};
///
/// let ctx = Context::solo().traced(Trace::new());
/// {
///     let _span = ctx.span("work").with("piece", 7.0);
///     ctx.comm().barrier()?;
/// }
/// let events = ctx.trace().expect("it is traced").events();
/// let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
/// assert_eq!(names, ["barrier", "work"]);
/// # Ok::<(), haloscope_comm::Error>(())
/// ```
pub struct Trace {
    origin: Instant,
    layers: bool,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    events: Vec<Event>,
    threads: Vec<(ThreadId, String)>,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What: `forward`, or the name of a call.
    pub name: Cow<'static, str>,
    /// Whether it is a call between ranks.
    pub is_call: bool,
    /// Which of [`Trace::threads`].
    pub thread: usize,
    /// Since the trace began.
    pub begin: Duration,
    /// How long.
    pub length: Duration,
    /// What else is known, by name: the number of an operator, bytes.
    pub details: Vec<(&'static str, f64)>,
}

impl Trace {
    /// A trace that begins now. Ranks whose traces are to be compared meet at a barrier before.
    #[must_use]
    #[allow(clippy::new_without_default)] // It depends on the time.
    pub fn new() -> Self {
        Self { origin: Instant::now(), layers: false, noted: Mutex::default() }
    }

    /// Asks for the layers of networks as well, which are many.
    #[must_use]
    pub fn with_layers(mut self) -> Self {
        self.layers = true;
        self
    }

    /// Whether layers of networks are wanted.
    #[must_use]
    pub fn wants_layers(&self) -> bool {
        self.layers
    }

    /// What has ended so far, in the order of the ends.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The names of the threads that have noted something.
    #[must_use]
    pub fn threads(&self) -> Vec<String> {
        self.lock().threads.iter().map(|(_, name)| name.clone()).collect()
    }

    /// Notes something that ends now, on this thread.
    pub fn note(&self, name: impl Into<Cow<'static, str>>, length: Duration) {
        let now = Instant::now();
        let begin = now.checked_sub(length).unwrap_or(self.origin);
        self.add(name.into(), begin, length, false, Vec::new());
    }

    fn add(
        &self,
        name: Cow<'static, str>,
        begin: Instant,
        length: Duration,
        is_call: bool,
        details: Vec<(&'static str, f64)>,
    ) {
        let begin = begin.saturating_duration_since(self.origin);
        let mut noted = self.lock();
        let thread = noted.thread();
        noted.events.push(Event { name, is_call, thread, begin, length, details });
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    /// The place of the current thread in the list.
    fn thread(&mut self) -> usize {
        let current = std::thread::current();
        if let Some(place) = self.threads.iter().position(|(id, _)| *id == current.id()) {
            return place;
        }
        let name = current.name().unwrap_or("unnamed").to_owned();
        self.threads.push((current.id(), name));
        self.threads.len() - 1
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("events", &self.lock().events.len()).finish_non_exhaustive()
    }
}

/// Something under way, which is noted when this is dropped.
#[must_use = "a span ends when it is dropped"]
#[derive(Debug)]
pub struct Span<'a> {
    open: Option<Open<'a>>,
}

#[derive(Debug)]
struct Open<'a> {
    trace: &'a Trace,
    name: &'static str,
    begin: Instant,
    details: Vec<(&'static str, f64)>,
}

impl<'a> Span<'a> {
    pub(crate) fn begin(trace: Option<&'a Trace>, name: &'static str) -> Self {
        let open =
            trace.map(|trace| Open { trace, name, begin: Instant::now(), details: Vec::new() });
        Self { open }
    }

    /// With something else that is known of it.
    pub fn with(mut self, name: &'static str, value: f64) -> Self {
        if let Some(open) = &mut self.open {
            open.details.push((name, value));
        }
        self
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some(Open { trace, name, begin, details }) = self.open.take() {
            trace.add(name.into(), begin, begin.elapsed(), false, details);
        }
    }
}

/// Notes the calls of a communicator, with what they cost.
#[derive(Clone)]
pub(crate) struct Traced(pub Arc<Trace>);

impl Traced {
    fn call<T>(
        &self,
        operation: Operation,
        comm: &dyn Communicator,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let cost = || comm.statistics().cost(operation);
        let (before, begin) = (cost(), Instant::now());
        let result = call();
        let length = begin.elapsed();
        let details = difference(&before, &cost());
        self.0.add(operation.name().into(), begin, length, true, details);
        result
    }
}

/// What a call has added to the cost of its operation.
fn difference(before: &CallCost, after: &CallCost) -> Vec<(&'static str, f64)> {
    let microseconds =
        |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() * 1e6;
    vec![
        ("bytes sent", after.bytes_sent.saturating_sub(before.bytes_sent) as f64),
        ("bytes received", after.bytes_received.saturating_sub(before.bytes_received) as f64),
        ("transfer in µs", microseconds(before.transfer, after.transfer)),
        ("waiting in µs", microseconds(before.waiting, after.waiting)),
    ]
}

impl Intercept for Traced {
    fn execute(&self, call: Call<'_>, inner: &dyn Communicator) -> Result<()> {
        self.call(call.operation(), inner, || inner.execute(call))
    }

    /// The calls of the parts are noted, too.
    fn split(
        &self,
        color: Option<u64>,
        key: u64,
        inner: &dyn Communicator,
    ) -> Result<Option<Arc<dyn Communicator>>> {
        let part = self.call(Operation::Split, inner, || inner.split(color, key))?;
        let traced = |inner| Arc::new(Intercepted { inner, by: self.clone() }) as Arc<_>;
        Ok(part.map(traced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::Collectives;
    use crate::context::Context;
    use crate::error::Error;

    #[test]
    fn calls_are_noted_with_their_bytes_on_every_rank() {
        let noted = Context::threads(3, |ctx| {
            let traced = ctx.traced(Trace::new());
            let term = vec![1.0_f32; 50_000];
            let span = traced.span("sum");
            traced.comm().ordered_sum(&[(ctx.rank() as u64, &term)], &mut vec![0.0; term.len()])?;
            drop(span);
            let part = traced.comm().split(Some(0), 0)?;
            part.map_or(Ok(()), |part| part.barrier())?;
            let sent = ctx.comm().statistics().cost(Operation::OrderedSum).bytes_sent;
            Ok::<_, Error>((traced.trace().map(Trace::events).unwrap_or_default(), sent))
        });
        for (events, sent) in noted.expect("no rank fails") {
            let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
            assert_eq!(names, ["ordered_sum", "sum", "split", "barrier"]);
            let (call, span) = (&events[0], &events[1]);
            assert_eq!(call.details[0], ("bytes sent", sent as f64));
            assert!(sent > 0 && call.is_call && !span.is_call);
            assert!(span.begin <= call.begin && call.length <= span.length);
        }
    }

    #[test]
    fn threads_are_told_apart_by_name() {
        let ctx = Context::solo().traced(Trace::new());
        drop(ctx.span("here").with("piece", 1.0));
        std::thread::scope(|scope| {
            let work = || drop(ctx.span("there"));
            let worker = std::thread::Builder::new().name("worker".into());
            worker.spawn_scoped(scope, work).map(|_| ()).expect("a thread starts");
        });
        let trace = ctx.trace().expect("it is traced");
        let (events, threads) = (trace.events(), trace.threads());
        assert_eq!(threads[events[1].thread], "worker");
        assert_ne!(events[0].thread, events[1].thread);
        assert_eq!(events[0].details, [("piece", 1.0)]);
    }

    #[test]
    fn nothing_is_noted_without_a_trace() {
        let ctx = Context::solo();
        drop(ctx.span("work"));
        assert!(ctx.trace().is_none());
    }
}
