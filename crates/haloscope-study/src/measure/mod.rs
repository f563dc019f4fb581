//! The work of a measuring process: several repetitions of one configuration.

mod batch;
mod counts;
mod link;
mod memory;
mod overlap;
mod reconstruct;

use std::time::Duration;

use haloscope_comm::{Context, ContextOptions};

use crate::error::{Error, Result};
use crate::row::{Backend, Study};
use crate::trial::{Answer, Question, Trial};

/// How long ranks may wait for each other: the largest tile of the slowest rank takes less.
const DEADLINE: Duration = Duration::from_hours(1);

/// Takes the answers of a measuring process; ranks other than the first have none.
pub type Tell<'a> = dyn Fn(Answer) -> Result<()> + Send + Sync + 'a;

/// Measures what is asked for.
pub fn answer(
    question: Question,
    tell: impl Fn(Answer) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    match question {
        Question::Trial(trial) => measure(&trial, tell),
        Question::Link(backend) => link::measure(backend, tell),
    }
}

fn measure(
    trial: &Trial,
    tell: impl Fn(Answer) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    match trial.configuration.study {
        Study::Scaling | Study::Compare | Study::Counts => {
            let trial = trial.clone();
            on_ranks(
                trial.configuration.backend,
                trial.configuration.ranks,
                trial.configuration.threads,
                move |ctx| reconstruct::reconstruct(ctx, &trial, &tell),
            )
        }
        Study::Memory => memory::measure(trial, &tell),
        Study::Batch => batch::measure(trial, &tell),
        Study::Overlap => overlap::measure(trial, &tell),
    }
}

/// Runs `body` on ranks of some kind.
pub(crate) fn on_ranks(
    backend: Backend,
    ranks: usize,
    threads: usize,
    body: impl Fn(&Context) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let options =
        ContextOptions { deadline: DEADLINE, threads: Some(threads), ..ContextOptions::default() };
    match backend {
        Backend::Solo => body(&options.solo()?),
        Backend::Threads => options.threads(ranks, body).map(drop),
        Backend::Torchrun => {
            Err(Error::argument("backend", "torchrun; it is for programs in Python"))
        }
        Backend::Mpi => {
            let ctx = options.detect()?;
            if ctx.size() != ranks {
                return Err(Error::argument(
                    "launcher",
                    format!("it started {} ranks where {ranks} were asked for", ctx.size()),
                ));
            }
            body(&ctx).inspect_err(|error| {
                let is_known = matches!(
                    error,
                    Error::Reconstruction(haloscope::Error::Ranks(error)) if error.is_final()
                );
                // Unless the others know, they would wait for this rank.
                if ctx.size() > 1 && !is_known {
                    ctx.comm().abort(&error.to_string());
                }
            })
        }
    }
}
