//! From measurements to an image: iterative methods for a distributed problem.
//!
//! A [`Problem`] is the data term; a [`Prior`] is the other term. An [`Algorithm`] is one step on a [`State`], and the
//! loop around it ([`solve`]) handles what all methods share: stopping, recording and notifying. All ranks run the
//! same loop on the same image and agree on when to stop. The result therefore has the same bits on any number of
//! ranks, and a resumed run has the same bits as one that never stopped.

mod algorithm;
mod analysis;
mod back_projection;
mod backtracking;
mod checkpoint;
mod data_term;
mod dealt;
mod expectation;
mod fill;
mod fill_parts;
mod half_quadratic;
mod ingredients;
mod keys;
mod least_squares;
mod method;
mod noise;
mod ordered_subsets;
mod primal_dual;
mod prior;
mod problem;
mod prox_primal_dual;
mod proximal_gradient;
mod record;
mod red;
mod sharded;
mod sirt;
mod splitting;
mod state;
mod stop;
mod stretch;

use std::ops::ControlFlow;
use std::time::Instant;

use haloscope_comm::{Collectives, Reduction};
use haloscope_nn::Stop;

use crate::error::{Error, Result};
use crate::image::Image;

pub use algorithm::{Algorithm, Setting};
pub use analysis::Analysis;
pub use back_projection::FilteredBackProjection;
pub use backtracking::Backtracking;
pub use checkpoint::{Checkpoints, Every, FolderLock, Found, JobId, Part, Parts, Wanted};
pub use expectation::ExpectationMaximisation;
pub use half_quadratic::{HalfQuadratic, Schedule};
pub use ingredients::{Ingredients, PriorForms};
pub use keys::{Key, KeyKind, KeyValue, Keys};
pub use least_squares::{ConjugateGradient, Landweber};
pub use method::{Arrays, DataUse, Held, Method, PriorKind, Priors, Taken, Traits};
pub use noise::estimate_noise;
pub use primal_dual::{PrimalDual, WaveletPrimalDual};
pub use prior::{Plug, Prior, Range, TotalVariationPrior, WaveletPrior};
pub use problem::{Problem, Prox, Start};
pub use prox_primal_dual::{ProxPrimalDual, WaveletProxPrimalDual};
pub use proximal_gradient::{Fista, ProximalGradient};
pub use record::{Record, Seconds, gather_records};
pub use red::{RedFixedPoint, RedGradient};
pub use sirt::Sirt;
pub use splitting::{Admm, DouglasRachford};
pub use state::State;
pub use stop::{Reason, Stopping};
pub use stretch::Stretch;

/// The methods, in the order in which they are listed to users. Some have another algorithm for some fidelities:
/// [`Method::for_fidelity`].
pub static METHODS: &[Method] = &[
    ProximalGradient::METHOD,
    Fista::METHOD,
    HalfQuadratic::METHOD,
    Admm::METHOD,
    DouglasRachford::METHOD,
    RedGradient::METHOD,
    RedFixedPoint::METHOD,
    PrimalDual::METHOD,
    ConjugateGradient::METHOD,
    Landweber::METHOD,
    Sirt::METHOD,
    Sirt::SUBSETS_METHOD,
    ExpectationMaximisation::METHOD,
    ExpectationMaximisation::SUBSETS_METHOD,
    FilteredBackProjection::METHOD,
];

/// Called after every iteration; may stop the run.
pub type Watch<'a> = dyn FnMut(&Record, &State) -> Result<ControlFlow<()>> + 'a;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The image, and what is needed to continue from it.
    pub state: State,
    /// Why the run ended.
    pub reason: Reason,
    /// Every iteration of this run.
    pub records: Vec<Record>,
}

/// Iterates from `state` until one of the `stopping` rules holds. `watch` is called on every rank after each
/// iteration, outside the times that are recorded. Steps run on the threads that the context grants the rank.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::distribute::distribute;
/// use haloscope::fidelity::{Fidelities, L2};
/// use haloscope::physics::{Identity, Physics, Stack};
/// use haloscope::solve::{Landweber, Problem, Start, State, Stopping, solve};
/// use haloscope_comm::Context;
///
/// let ctx = Context::solo();
/// let frame: Arc<dyn Physics> = Arc::new(Identity::new(&[1, 8, 8]));
/// let physics = distribute(Stack::new(vec![frame])?, &ctx)?;
/// let data = physics.forward(&ndarray::ArrayD::ones(vec![1, 1, 8, 8]))?;
/// let fidelity = distribute(Fidelities::from(L2::default()), &ctx)?;
/// let problem = Problem::new(physics, data, fidelity)?;
///
/// let start = State::new(problem.start(&Start::Zeros)?);
/// let stopping = Stopping { iterations: 100, relative_change: 1e-7, ..Stopping::default() };
/// let outcome = solve(&problem, &Landweber { step: 0.5, range: None }, start, &stopping, None)?;
/// assert!(outcome.state.image.whole()?.iter().all(|value| (value - 1.0).abs() < 1e-5));
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn solve(
    problem: &Problem,
    algorithm: &dyn Algorithm,
    mut state: State,
    stopping: &Stopping,
    mut watch: Option<&mut Watch<'_>>,
) -> Result<Outcome> {
    stopping.check()?;
    problem.check_image(&state.image)?;
    let begin = Instant::now();
    let mut records = Vec::new();
    let reason = loop {
        if state.iteration >= stopping.iterations {
            break Reason::Iterations;
        }
        let record = problem.workers().run(|| advance(problem, algorithm, &mut state))?;
        let wants_stop = match &mut watch {
            Some(watch) => watch(&record, &state)?.is_break(),
            None => false,
        };
        let late = stopping.time_limit.is_some_and(|limit| begin.elapsed() >= limit);
        let reason = stopping.reason(&record);
        records.push(record);
        let comm = problem.context().comm();
        // Clocks and callers differ between ranks; the others differ nowhere.
        let mut word = [u64::from(late), u64::from(wants_stop)];
        comm.all_reduce(Reduction::Max, &mut word)?;
        match (reason, word) {
            (Some(reason), _) => break reason,
            (None, [_, 1]) => break Reason::Watcher,
            (None, [1, _]) => break Reason::TimeLimit,
            _ => (),
        }
    };
    Ok(Outcome { state, reason, records })
}

/// One iteration, on the threads of the rank.
fn advance(problem: &Problem, algorithm: &dyn Algorithm, state: &mut State) -> Result<Record> {
    Stop::check()?;
    let ctx = problem.context();
    let spent = ctx.comm().statistics().total();
    let span = ctx.span("iteration").with("number", (state.iteration + 1) as f64);
    let clock = Instant::now();
    let setting = Setting::new(problem, state.iteration);
    let next = algorithm.step(&setting, state)?;
    let total = clock.elapsed();
    drop(span);
    state.iteration += 1;
    let before = std::mem::replace(&mut state.image, next);

    let square = Image::share([&state.image], |[value]| f64::from(value).powi(2))?;
    let change = Image::share([&state.image, &before], |[now, before]| {
        (f64::from(now) - f64::from(before)).powi(2)
    })?;
    let [length, change] = state.image.layout().totals([square, change])?.map(f64::sqrt);
    if !length.is_finite() {
        return Err(Error::Numeric {
            what: algorithm.name().into(),
            reason: format!(
                "the image is not finite after iteration {}; a smaller step size may help",
                state.iteration
            ),
        });
    }
    let change = change / length.max(f64::MIN_POSITIVE);
    Ok(setting.into_record(state.iteration, change, total, &spent, ctx.comm()))
}
