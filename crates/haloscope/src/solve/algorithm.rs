//! One step of a method, and what it is given.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use haloscope_comm::{CallCost, Communicator, Span};

use super::problem::Problem;
use super::record::{Record, Seconds};
use super::state::State;
use crate::error::Result;
use crate::image::Image;
use crate::memory::peak_resident_bytes;

/// A method: one step from a state to the next.
///
/// Everything that a step remembers is in the [`State`], so that a run can be resumed from it.
pub trait Algorithm: Send + Sync + fmt::Debug {
    /// Its name in messages and job files: `pgd`.
    fn name(&self) -> &'static str;

    /// The image after the next iteration. The state keeps the one before, so that it need not be copied; everything else in the
    /// state advances by one iteration.
    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image>;
}

/// The problem, with a clock for each part of a step.
#[derive(Debug)]
pub struct Setting<'a> {
    problem: &'a Problem,
    iteration: usize,
    data_term: Cell<Option<f64>>,
    gradient: Cell<Duration>,
    prior: Cell<Duration>,
}

impl<'a> Setting<'a> {
    pub(super) fn new(problem: &'a Problem, iteration: usize) -> Self {
        let zero = || Cell::new(Duration::ZERO);
        Self { problem, iteration, data_term: Cell::new(None), gradient: zero(), prior: zero() }
    }

    /// The number of completed iterations.
    #[must_use]
    pub fn iteration(&self) -> usize {
        self.iteration
    }

    /// The problem, for work that is not timed.
    #[must_use]
    pub fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// The gradient of the data term; also records the term's value.
    pub fn gradient(&self, image: &Image) -> Result<Image> {
        let (value, gradient) = self.data(|| self.problem.value_and_gradient(image))?;
        self.data_term.set(Some(value));
        Ok(gradient)
    }

    /// The prox of `step` times the data term.
    pub fn prox(&self, image: &Image, step: f64) -> Result<Image> {
        self.data(|| self.problem.prox(image, step))
    }

    /// Runs something whose time counts as the data term's.
    pub fn data<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _span = self.span("data");
        timed(&self.gradient, work)
    }

    /// Runs something whose time counts as the prior's.
    pub fn prior<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _span = self.span("prior");
        timed(&self.prior, work)
    }

    fn span(&self, name: &'static str) -> Span<'a> {
        self.problem.context().span(name)
    }

    /// Records a data term that a step computes anyway.
    pub fn note_data_term(&self, value: f64) {
        self.data_term.set(Some(value));
    }

    pub(super) fn into_record(
        self,
        iteration: usize,
        relative_change: f64,
        total: Duration,
        before: &CallCost,
        comm: &dyn Communicator,
    ) -> Record {
        let after = comm.statistics().total();
        let seconds = Seconds {
            total: total.as_secs_f64(),
            data: self.gradient.get().as_secs_f64(),
            prior: self.prior.get().as_secs_f64(),
            communication: after.transfer.saturating_sub(before.transfer).as_secs_f64(),
            waiting: after.waiting.saturating_sub(before.waiting).as_secs_f64(),
        };
        let peak_bytes = peak_resident_bytes();
        Record { iteration, data_term: self.data_term.get(), relative_change, seconds, peak_bytes }
    }
}

fn timed<T>(clock: &Cell<Duration>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    let result = work();
    clock.set(clock.get() + begin.elapsed());
    result
}
