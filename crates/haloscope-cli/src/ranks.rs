//! Where the ranks of a job come from: `--ranks`, a launcher, or neither.

use std::time::Duration;

use anyhow::{Context as _, Result};
use haloscope_comm::{CHOICE_VARIABLE, Choice, Context, ContextOptions, Error, Launch};

/// The options of every command that can use ranks.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct RankArguments {
    /// Ranks that are threads of this process; under mpirun or srun, MPI has the ranks
    #[arg(long, value_name = "N")]
    pub ranks: Option<usize>,

    /// Give up on ranks that make no progress for so long
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub deadline: Duration,
}

impl RankArguments {
    /// Whether the user or a launcher says how many ranks there are.
    pub fn are_chosen(&self) -> Result<bool> {
        Ok(self.ranks.is_some() || Choice::detect()?.is_some() || Launch::detect()?.is_some())
    }

    /// Runs `body` on every rank, and returns what rank 0 returned.
    pub fn run<T: Send + 'static>(
        &self,
        body: impl Fn(&Context) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let options = ContextOptions { deadline: self.deadline, ..ContextOptions::default() };
        let Some(ranks) = self.ranks else {
            return body(&options.detect()?);
        };
        refuse_launcher(ranks)?;
        let results = options.threads(ranks, body)?;
        results.into_iter().next().context("there is a rank 0")
    }
}

/// Thread ranks in each of several processes would be several independent jobs.
fn refuse_launcher(ranks: usize) -> Result<()> {
    if Choice::detect()? == Some(Choice::Solo) {
        return Ok(());
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
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is needed".to_string())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a number of seconds greater than 0 is needed".into()),
    }
}
