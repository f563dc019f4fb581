//! Where the ranks of a job come from: `--ranks`, a launcher, or neither.

use std::time::Duration;

use anyhow::{Context as _, Result};
use haloscope_comm::{
    CHOICE_VARIABLE, Choice, Context, ContextOptions, Error, Launch, MAX_DEADLINE, MIN_DEADLINE,
};

use crate::exit::Agreed;

/// The options of every command that can use ranks.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct RankArguments {
    /// Number of ranks, as threads of this process; under mpirun or srun, the ranks are MPI processes
    #[arg(long, value_name = "N", value_parser = parse_ranks)]
    pub ranks: Option<usize>,

    /// Fail if a rank makes no progress for this long
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub deadline: Duration,
}

impl RankArguments {
    /// Runs `body` on every rank, and returns what rank 0 returned.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        body: impl Fn(&Context) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let options = ContextOptions { deadline: self.deadline, ..ContextOptions::default() };
        let Some(ranks) = self.ranks else {
            let context = options.detect()?;
            return body(&context).map_err(|error| explain(&context, error));
        };
        refuse_launcher(ranks)?;
        let results = options.threads(ranks, body).map_err(Agreed::aloud)?;
        results.into_iter().next().context("there is a rank 0")
    }
}

/// Tells the other ranks why this one gives up, unless they know. Under MPI that ends the process.
fn explain(context: &Context, error: anyhow::Error) -> anyhow::Error {
    let is_known = error.downcast_ref().is_some_and(Error::is_final) || error.is::<Agreed>();
    if context.size() > 1 && !is_known {
        context.comm().abort(&format!("{error:#}"));
    }
    error
}

/// Thread ranks in each of several processes would be several independent jobs.
fn refuse_launcher(ranks: usize) -> Result<()> {
    match Choice::detect()? {
        Some(Choice::Solo) => return Ok(()),
        Some(Choice::Mpi) => {
            let reason = format!(
                "--ranks {ranks} asks for threads, but {CHOICE_VARIABLE}=mpi for processes: use one of \
                 the two"
            );
            return Err(Error::Setup(reason).into());
        }
        None => (),
    }
    match Launch::detect()? {
        Some(launch) if launch.size != Some(1) => Err(Error::Setup(format!(
            "--ranks {ranks} asks for threads, but {} has started processes: use one of the two, \
             or set {CHOICE_VARIABLE}=solo",
            launch.launcher
        ))
        .into()),
        _ => Ok(()),
    }
}

fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|duration| (MIN_DEADLINE..=MAX_DEADLINE).contains(duration))
        .ok_or_else(|| "a number of seconds from 0.001 to 1000000000 is needed".into())
}

/// A number of ranks that threads can make.
pub(crate) fn parse_ranks(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("there must be at least 1".into()),
        Ok(ranks) if ranks > 1024 => {
            Err("threads make at most 1024 ranks; use MPI for more".into())
        }
        Ok(ranks) => Ok(ranks),
        Err(_) => Err("a number from 1 to 1024 is needed".into()),
    }
}
